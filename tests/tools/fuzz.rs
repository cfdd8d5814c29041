//! The fuzzer's command line: damaged inputs for every decoder and both state machines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Args;
use federation_tests::fuzz::fuzz_loop::{Failure, FuzzLoop, Watch, examine};
use federation_tests::fuzz::{TARGETS, Target};
use peak_alloc::PeakAlloc;

/// The allocator of the whole program: what an input makes it allocate is compared with the input's length.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// How long one input may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The exit code of a process that has reported its failure.
const REPORTED: i32 = 1;

/// Plays damaged inputs to every decoder and both state machines.
///
/// Each target is played in a process of its own. An input that makes it panic, allocate what it was not sent, or take longer
/// than ten seconds is written to `target/fuzz/`. So is one that ends the process: it is found by playing the same inputs again,
/// each written down first. Exit code 1 if there was any.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Time for all targets together.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Only targets whose name contains this.
    #[arg(long, default_value = "")]
    target: String,
    /// Seed of the mutations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Plays this input instead, with the first target that matches.
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Plays one target in this process.
    #[arg(long, hide = true)]
    alone: bool,
    /// Writes each input down before it is played.
    #[arg(long, hide = true)]
    careful: bool,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let watch = Watch { memory: Some(&MEMORY), patience: Some(PATIENCE) };
    let exact = |target: &&Target| target.name == arguments.target;
    let like = |target: &&Target| target.name.contains(&arguments.target);
    let mut targets: Vec<&Target> = TARGETS.iter().filter(exact).collect();
    if targets.is_empty() {
        targets = TARGETS.iter().filter(like).collect();
    }
    let [first, ..] = targets[..] else {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("no target is called `{}`; there are: {}", arguments.target, names.join(", "));
        return ExitCode::from(2);
    };
    if let Some(path) = &arguments.replay {
        return replay(first, path, watch);
    }
    if arguments.alone {
        return alone(first, arguments, watch);
    }
    let each = arguments.seconds / targets.len() as f64;
    println!("{} targets, {each:.1} s each, seed {}", targets.len(), arguments.seed);
    println!("{:>18} {:>10} {:>12} {:>9}", "target", "inputs", "per second", "outcomes");
    let failed = targets.iter().filter(|target| !apart(target, each, arguments.seed)).count();
    println!("{failed} of {} targets failed", targets.len());
    ExitCode::from(u8::from(failed > 0))
}

fn replay(target: &Target, path: &Path, watch: Watch) -> ExitCode {
    let input = match fs::read(path) {
        Ok(input) => input,
        Err(error) => {
            eprintln!("cannot read {}: {error}", path.display());
            return ExitCode::from(2);
        }
    };
    println!("{}: {} bytes of {}", target.name, input.len(), path.display());
    match examine(target, &input, watch) {
        Ok(seen) => {
            println!("nothing is wrong: {seen:?}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{failure}");
            ExitCode::FAILURE
        }
    }
}

/// Where failing inputs are written.
fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/fuzz"))
}

fn keep(target: &Target, input: &[u8], name: &str) -> PathBuf {
    let path = folder().join(format!("{}-{name}", target.name));
    fs::create_dir_all(folder()).expect("the target directory can be written");
    fs::write(&path, input).expect("the target directory can be written");
    path
}

fn report(target: &Target, input: &[u8], failure: &str) {
    let path = keep(target, input, "failed");
    println!("{:>18} FAILED: {failure}", target.name);
    println!("{:>18} play it again with: --target {} --replay {}", "", target.name, path.display());
    println!("{:>18} once it is fixed, keep it in tests/corpus/{}/", "", target.name);
}

/// Plays one target in a process of its own. Whether nothing went wrong.
fn apart(target: &Target, seconds: f64, seed: u64) -> bool {
    let start = |more: &[&str]| {
        Command::new(std::env::current_exe().expect("the system knows the running program"))
            .args(["fuzz", "--alone", "--target", target.name, "--seconds", &seconds.to_string()])
            .args(["--seed", &seed.to_string()])
            .args(more)
            .status()
            .expect("this program can be started again")
    };
    let status = start(&[]);
    if status.success() {
        return true;
    }
    if status.code() != Some(REPORTED) {
        // The stack or the memory was at its end. The inputs are the same ones again.
        let again = start(&["--careful"]);
        if again.code() != Some(REPORTED) {
            let path = folder().join(format!("{}-careful", target.name));
            let input = fs::read(path).unwrap_or_default();
            report(target, &input, &format!("the process ended: {status}, and again: {again}"));
        }
    }
    false
}

fn alone(target: &Target, arguments: &Arguments, watch: Watch) -> ExitCode {
    let begun = Instant::now();
    match fuzz_loop(target, arguments, watch) {
        Ok((played, outcomes)) => {
            let rate = played as f64 / begun.elapsed().as_secs_f64();
            println!("{:>18} {played:>10} {rate:>12.0} {outcomes:>9}", target.name);
            ExitCode::SUCCESS
        }
        Err((input, failure)) => {
            report(target, &input, &failure.to_string());
            ExitCode::FAILURE
        }
    }
}

fn fuzz_loop(
    target: &Target,
    arguments: &Arguments,
    watch: Watch,
) -> Result<(u64, usize), (Vec<u8>, Failure)> {
    let begun = Instant::now();
    let mut fuzz_loop = FuzzLoop::begin(target, arguments.seed, watch)?;
    // With care it is slower, and has to come as far as without.
    let seconds = if arguments.careful { 20.0 * arguments.seconds } else { arguments.seconds };
    while begun.elapsed().as_secs_f64() < seconds {
        let input = fuzz_loop.next_input();
        if arguments.careful {
            keep(target, &input, "careful");
        }
        fuzz_loop.play(&input).map_err(|failure| (input, failure))?;
    }
    Ok((fuzz_loop.played, fuzz_loop.outcomes()))
}
