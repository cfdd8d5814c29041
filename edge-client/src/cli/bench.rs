//! `edge-client bench`.
//!
//! Each row of the table is measured in a child process, since peak memory and the time to the first step belong to a process.

mod answers;

use std::io::{self, BufRead as _, BufReader, Write};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum as _;
use models::{Architecture, BUILT_INS};
use serde::{Deserialize, Serialize};
use shared::cli::{Processor, cores};

use super::arguments::BenchArguments;
use super::error::{CliError, Exit};
use crate::bench::{Subject, measure};
use crate::memory;
use crate::pool::NoThreads;
use crate::predict::{GlobalModel, model_file};

/// The lines that a measuring process prints.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// The first step is done.
    FirstStep,
    Row(Row),
}

/// One row, as `--json` prints it.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    model: String,
    device: String,
    batch: usize,
    threads: usize,
    ms_per_step: f64,
    samples_per_s: f64,
    gflops: f64,
    /// The share of the rate of large matrix products, on the CPU; absent on others.
    peak_share: Option<f64>,
    /// What the estimate by which `join` refuses runs says of this process.
    estimated_mb: Option<f64>,
    peak_mb: Option<f64>,
    /// From before the process was started to the end of its first step.
    first_step_ms: f64,
    steps: usize,
}

pub(super) fn run(arguments: &BenchArguments) -> Result<(), CliError> {
    if arguments.predict {
        return answers::run(arguments);
    }
    let threads = if arguments.threads.is_empty() { &[cores()][..] } else { &arguments.threads };
    let all: Vec<String> = BUILT_INS.iter().map(|built_in| built_in.name.to_owned()).collect();
    let models = if arguments.models.is_empty() { &all } else { &arguments.models };
    // Mistakes are reported before anything is measured.
    let architectures =
        models.iter().map(|model| architecture(model, arguments)).collect::<Result<Vec<_>, _>>()?;
    if arguments.in_process {
        return measure_here(&models[0], &architectures[0], arguments.batches[0], threads[0], arguments);
    }
    Processor::backend(arguments.device)?;
    let mut out = io::stdout().lock();
    if !arguments.json {
        heading(&mut out).map_err(CliError::output)?;
    }
    for (model, &batch, &threads) in models
        .iter()
        .flat_map(|model| arguments.batches.iter().map(move |batch| (model, batch)))
        .flat_map(|(model, batch)| threads.iter().map(move |threads| (model, batch, threads)))
    {
        let row = in_own_process(model, batch, threads, arguments)?;
        if arguments.json { json(&row, &mut out) } else { line(&row, &mut out) }
            .and_then(|()| out.flush())
            .map_err(CliError::output)?;
    }
    Ok(())
}

/// The network of this name, or that of a model's file or a run's folder.
fn architecture(model: &str, arguments: &BenchArguments) -> Result<Architecture, CliError> {
    let path = Path::new(model);
    if path.exists() {
        return of_a_file(model, path, arguments);
    }
    let found = BUILT_INS.iter().find(|built_in| built_in.name == model);
    if found.is_none() && path.components().nth(1).is_some() {
        return Err(CliError::new(Exit::Local, format!("{model} is not there")));
    }
    // The constructor below reports an unknown name.
    let (meant_for, classes) = found.map_or((&[][..], 1), |found| (found.input, found.classes));
    let input = arguments.input.as_ref().map_or(meant_for, |shape| &shape.0);
    Ok(Architecture::by_name(model, input, classes)?)
}

fn of_a_file(model: &str, path: &Path, arguments: &BenchArguments) -> Result<Architecture, CliError> {
    let refused = |reason: &str| Err(CliError::new(Exit::Usage, format!("{model} {reason}")));
    if arguments.input.is_some() {
        return refused("says itself which shape its samples have: leave --input out");
    }
    let architecture = GlobalModel::open(&model_file(path))?.architecture;
    if architecture.is_opaque() {
        return refused(
            "has no layers here: its owner's program trains it, and what is measured is this program",
        );
    }
    Ok(architecture)
}

/// Starts this program again for one row, and reads what it prints.
fn in_own_process(
    model: &str,
    batch: NonZeroUsize,
    threads: NonZeroUsize,
    arguments: &BenchArguments,
) -> Result<Row, CliError> {
    let system = |action| move |error| CliError::system(action, &error);
    let program = std::env::current_exe().map_err(system("find its own file"))?;
    let mut command = Command::new(program);
    command
        .args(["bench", "--in-process", "--model", model])
        .args(["--batch", &batch.to_string(), "--threads", &threads.to_string()])
        .args(["--seconds", &arguments.seconds.as_secs_f64().to_string()])
        // The child ends when this process does, which closes the pipe.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if let Some(shape) = &arguments.input {
        let numbers: Vec<String> = shape.0.iter().map(ToString::to_string).collect();
        command.args(["--input", &numbers.join("x")]);
    }
    if let Some(device) = arguments.device.and_then(|device| device.to_possible_value()) {
        command.args(["--device", device.get_name()]);
    }
    let start = Instant::now();
    let mut child = command.spawn().map_err(system("start a process to measure in"))?;
    // Taken, since waiting for the child would close it.
    let _until_then = child.stdin.take();
    let mut first_step = None;
    let mut row = None;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(Line::FirstStep) => first_step = Some(start.elapsed()),
                Ok(Line::Row(found)) => row = Some(found),
                // The exit status will say more.
                Err(_) => break,
            }
        }
    }
    let status = child.wait().map_err(system("wait for a process of its own"))?;
    match (row, first_step) {
        (Some(row), Some(first_step)) if status.success() => {
            Ok(Row { first_step_ms: first_step.as_secs_f64() * 1e3, ..row })
        }
        _ => Err(CliError::new(
            Exit::Unexpected,
            format!("the process that measures {model} ended without a result ({status})"),
        )),
    }
}

/// Ends this process with its parent: when the other end of standard input is closed.
pub(super) fn end_with_parent() -> io::Result<()> {
    let wait = || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(Exit::Unexpected as i32);
    };
    std::thread::Builder::new().spawn(wait).map(drop)
}

/// Measures one row in this process.
fn measure_here(
    model: &str,
    architecture: &Architecture,
    batch: NonZeroUsize,
    threads: NonZeroUsize,
    arguments: &BenchArguments,
) -> Result<(), CliError> {
    // As `join` does, whose memory and steps this stands for.
    memory::keep_freed(memory::Heaps::One);
    end_with_parent().map_err(|error| CliError::system("start a thread that waits", &error))?;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads.get())
        .build()
        .map_err(|error| NoThreads(error.to_string()))?;
    let backend = Processor::backend(arguments.device)?;
    let subject =
        Subject { architecture: architecture.clone(), batch: batch.get(), duration: arguments.seconds };
    let mut told = Ok(());
    let speed = pool.install(|| measure(&subject, &backend, || told = print(&Line::FirstStep)))?;
    told.map_err(CliError::output)?;
    let step = speed.step.as_secs_f64();
    let row = Row {
        model: model.to_owned(),
        device: backend.name().to_owned(),
        batch: batch.get(),
        threads: threads.get(),
        ms_per_step: step * 1e3,
        samples_per_s: batch.get() as f64 / step,
        gflops: speed.flops / 1e9,
        peak_share: (backend.name() == "cpu").then_some(speed.flops / speed.peak_flops),
        estimated_mb: speed.estimated_memory.map(|bytes| bytes as f64 / 1e6),
        peak_mb: speed.peak_memory.map(|bytes| bytes as f64 / 1e6),
        first_step_ms: Duration::ZERO.as_secs_f64(),
        steps: speed.steps,
    };
    print(&Line::Row(row)).map_err(CliError::output)
}

fn print(line: &Line) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, line)?;
    writeln!(out)?;
    out.flush()
}

fn heading(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "{:<24} {:>6} {:>5} {:>7} {:>9} {:>11} {:>8} {:>7} {:>7} {:>7} {:>9}",
        "model",
        "device",
        "batch",
        "threads",
        "ms/step",
        "samples/s",
        "GFLOP/s",
        "of peak",
        "est. MB",
        "MB",
        "first ms"
    )
}

fn line(row: &Row, out: &mut dyn Write) -> io::Result<()> {
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "?".to_owned());
    writeln!(
        out,
        "{:<24} {:>6} {:>5} {:>7} {:>9.3} {:>11.0} {:>8.1} {:>7} {:>7} {:>7} {:>9.1}",
        row.model,
        row.device,
        row.batch,
        row.threads,
        row.ms_per_step,
        row.samples_per_s,
        row.gflops,
        or_unknown(row.peak_share.map(|share| format!("{:.0} %", 100.0 * share))),
        or_unknown(row.estimated_mb.map(|mb| format!("{mb:.1}"))),
        or_unknown(row.peak_mb.map(|mb| format!("{mb:.1}"))),
        row.first_step_ms,
    )
}

fn json(row: &Row, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, row)?;
    writeln!(out)
}
