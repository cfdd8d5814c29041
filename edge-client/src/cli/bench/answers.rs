//! `edge-client bench --predict`: how soon programs on this device get an answer.
//!
//! What is measured is what they would use: a process of `edge-client predict --listen` for each model, asked over its socket.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Cursor, Read as _, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use models::{Architecture, BUILT_INS, write_model};
use serde::Serialize;
use serde_json::{Value, json};
use shared::cli::Processor;
use shared::seed::Seed;

use super::super::arguments::BenchArguments;
use super::super::error::{CliError, Exit};
use crate::memory;
use crate::predict::Predictor;

/// The least number of measured requests, however long they take.
const MIN_REQUESTS: usize = 20;
/// Connections, one after the other, that each send an image.
const IMAGES: usize = 20;
/// The fraction of the time that warms up.
const WARM_UP_SHARE: f64 = 0.3;

/// One row, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Row {
    model: String,
    /// From before the process was started to its first answer.
    start_ms: f64,
    /// The median time of a request with one sample, a line on an open connection.
    median_ms: f64,
    /// The time within which 99 of 100 of them were answered.
    p99_ms: f64,
    /// The median time of an HTTP POST of a PNG, each on a connection of its own; absent where samples are no images.
    image_ms: Option<f64>,
    /// The most memory that the process had resident; absent on other systems than Linux.
    peak_mb: Option<f64>,
    requests: usize,
}

/// A model to ask.
struct Subject {
    name: String,
    file: PathBuf,
    request: Value,
    /// A PNG, if its samples are images.
    image: Option<Vec<u8>>,
}

pub(super) fn run(arguments: &BenchArguments) -> Result<(), CliError> {
    let folder = std::env::temp_dir().join(format!("edge-client-bench-{}", std::process::id()));
    std::fs::create_dir(&folder).map_err(|error| CliError::system("make a folder for models", &error))?;
    let done = subjects(arguments, &folder).and_then(|subjects| print_rows(&subjects, arguments));
    // What is left in a temporary folder harms nothing.
    let _ = std::fs::remove_dir_all(&folder);
    done
}

fn print_rows(subjects: &[Subject], arguments: &BenchArguments) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    if !arguments.json {
        writeln!(
            out,
            "{:<22} {:>9} {:>10} {:>8} {:>9} {:>7}",
            "model", "start ms", "median ms", "p99 ms", "image ms", "MB"
        )
        .map_err(CliError::output)?;
    }
    for subject in subjects {
        let row = measure(subject, arguments.int8, arguments.seconds)?;
        if arguments.json { json_line(&row, &mut out) } else { line(&row, &mut out) }
            .and_then(|()| out.flush())
            .map_err(CliError::output)?;
    }
    Ok(())
}

/// The models that are asked for, each in a file. Mistakes are reported before anything is measured.
fn subjects(arguments: &BenchArguments, folder: &Path) -> Result<Vec<Subject>, CliError> {
    let built_in = |name: &str| drawn(super::architecture(name, arguments)?, folder);
    if arguments.models.is_empty() {
        return BUILT_INS.iter().map(|model| built_in(model.name)).collect();
    }
    let subject = |name: &String| {
        let path = Path::new(name);
        if path.exists() { trained(name, path) } else { built_in(name) }
    };
    arguments.models.iter().map(subject).collect()
}

/// A network with drawn parameters: an answer takes as long with any.
fn drawn(architecture: Architecture, folder: &Path) -> Result<Subject, CliError> {
    let seed = Seed::root(0);
    let params = architecture
        .initialise(|name| seed.derive_bytes("init", name.as_bytes()).rng())
        .map_err(|error| CliError::new(Exit::Usage, error.to_string()))?;
    let file = folder.join(format!("{}.safetensors", architecture.name));
    let written = File::create(&file).map_err(|error| error.to_string()).and_then(|mut out| {
        write_model(&architecture, &params, &BTreeMap::new(), &mut out).map_err(|error| error.to_string())
    });
    written
        .map_err(|reason| CliError::new(Exit::Local, format!("cannot write {}: {reason}", file.display())))?;
    let (request, image) = question(&architecture, &architecture.input);
    Ok(Subject { name: architecture.name, file, request, image })
}

/// A model or an ensemble that a run has left.
fn trained(name: &str, path: &Path) -> Result<Subject, CliError> {
    let predictor = Predictor::open(path, &Processor::best())?;
    let architecture = predictor.architecture();
    let shape = predictor.samples().map_or(&architecture.input, |samples| &samples.shape);
    let (request, image) = question(architecture, shape);
    Ok(Subject { name: name.to_owned(), file: path.to_owned(), request, image })
}

/// A request for one sample of this shape, and the same as an image if it can be one.
fn question(architecture: &Architecture, shape: &[usize]) -> (Value, Option<Vec<u8>>) {
    let count = shape.iter().product();
    if let Some(tokens) = architecture.vocabulary() {
        // By their numbers: what the tokens are called is another matter in each model.
        let values: Vec<usize> = (0..count).map(|at: usize| at * 31 % tokens).collect();
        return (json!({ "values": values }), None);
    }
    let bytes: Vec<u8> = (0..count).map(|at: usize| (at * 31 % 251) as u8).collect();
    let values: Vec<f32> = bytes.iter().map(|&byte| f32::from(byte) / 255.0).collect();
    let image = match *shape {
        [channels @ (1 | 3), height, width] => png(&bytes, channels, height, width),
        _ => None,
    };
    (json!({ "values": values }), image)
}

fn png(bytes: &[u8], channels: usize, height: usize, width: usize) -> Option<Vec<u8>> {
    use image::{ExtendedColorType, ImageEncoder as _, codecs::png::PngEncoder};
    let colour = if channels == 1 { ExtendedColorType::L8 } else { ExtendedColorType::Rgb8 };
    let mut png = Vec::new();
    PngEncoder::new(Cursor::new(&mut png)).write_image(bytes, width as u32, height as u32, colour).ok()?;
    Some(png)
}

/// A process that answers; it ends with this value, or with the process that measures.
struct Answering {
    child: Child,
    address: String,
    _said: BufReader<ChildStderr>,
}

impl Answering {
    fn start(file: &Path, int8: bool) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        command.args(["predict", "--until-closed", "--listen", "127.0.0.1:0", "--model"]).arg(file);
        command.args(int8.then_some("--int8"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let said = child.stderr.take().ok_or_else(|| io::Error::other("it has no output"))?;
        let mut said = BufReader::new(said);
        let mut line = String::new();
        said.read_line(&mut line)?;
        let Some((_, address)) = line.trim().split_once("answering at ") else {
            let status = child.wait()?;
            return Err(io::Error::other(format!("it ended ({status}): {}", line.trim())));
        };
        let address = address.to_owned();
        Ok(Self { child, address, _said: said })
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn measure(subject: &Subject, int8: bool, duration: Duration) -> Result<Row, CliError> {
    let failed = |error: io::Error| {
        let name = &subject.name;
        CliError::new(
            Exit::Unexpected,
            format!("the process that answers for {name} cannot be asked: {error}"),
        )
    };
    ask(subject, int8, duration).map_err(failed)
}

fn ask(subject: &Subject, int8: bool, duration: Duration) -> io::Result<Row> {
    let start = Instant::now();
    let answering = Answering::start(&subject.file, int8)?;
    let mut stream = TcpStream::connect(&answering.address)?;
    stream.set_nodelay(true)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let request = format!("{}\n", subject.request);
    let mut line = String::new();
    let mut once = || -> io::Result<Duration> {
        let asked = Instant::now();
        stream.write_all(request.as_bytes())?;
        line.clear();
        answers.read_line(&mut line)?;
        let took = asked.elapsed();
        let answer: Value = serde_json::from_str(&line)?;
        match answer.get("error").and_then(Value::as_str) {
            Some(reason) => Err(io::Error::other(reason.to_owned())),
            None => Ok(took),
        }
    };
    once()?;
    let first = start.elapsed();
    let begun = Instant::now();
    while begun.elapsed() < duration.mul_f64(WARM_UP_SHARE) {
        once()?;
    }
    let begun = Instant::now();
    let mut times = Vec::new();
    while times.len() < MIN_REQUESTS || begun.elapsed() < duration {
        times.push(once()?);
    }
    let image = match &subject.image {
        Some(image) => {
            let posted: io::Result<Vec<_>> = (0..IMAGES).map(|_| post(&answering.address, image)).collect();
            Some(milliseconds(quantile(posted?, 0.5)))
        }
        None => None,
    };
    let peak_mb = memory::peak_of(answering.child.id()).map(|bytes| bytes as f64 / 1e6);
    Ok(Row {
        model: subject.name.clone(),
        start_ms: milliseconds(first),
        requests: times.len(),
        median_ms: milliseconds(quantile(times.clone(), 0.5)),
        p99_ms: milliseconds(quantile(times, 0.99)),
        image_ms: image,
        peak_mb,
    })
}

/// Sends an image over a connection of its own, as `curl --data-binary` does.
fn post(address: &str, image: &[u8]) -> io::Result<Duration> {
    let asked = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let head = format!("POST / HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\n\r\n", image.len());
    stream.write_all(&[head.as_bytes(), image].concat())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let took = asked.elapsed();
    if answer.starts_with("HTTP/1.1 200") { Ok(took) } else { Err(io::Error::other(answer)) }
}

/// The smallest of these times that this share of them does not exceed.
fn quantile(mut times: Vec<Duration>, share: f64) -> Duration {
    times.sort_unstable();
    let rank = (times.len() as f64 * share).ceil() as usize;
    times.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn line(row: &Row, out: &mut dyn Write) -> io::Result<()> {
    let or = |figure: Option<f64>, decimals: usize, absent: &str| {
        figure.map_or_else(|| absent.to_owned(), |figure| format!("{figure:.decimals$}"))
    };
    writeln!(
        out,
        "{:<22} {:>9.1} {:>10.3} {:>8.3} {:>9} {:>7}",
        row.model,
        row.start_ms,
        row.median_ms,
        row.p99_ms,
        or(row.image_ms, 3, "-"),
        or(row.peak_mb, 1, "?"),
    )
}

fn json_line(row: &Row, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, row)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_times() {
        let times = |count: u64| (1..=count).rev().map(Duration::from_millis).collect::<Vec<_>>();
        let of = |count, share| quantile(times(count), share).as_millis();
        assert_eq!([of(100, 0.5), of(100, 0.99), of(3, 0.5), of(1, 0.99)], [50, 99, 2, 1]);
        assert_eq!(quantile(Vec::new(), 0.5), Duration::ZERO);
    }
}
