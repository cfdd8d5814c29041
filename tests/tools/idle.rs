//! The footprint of a device's client: program size, memory at rest and in training, start-up time.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use federation_tests::programs::programs;
use federation_tests::serving::{Process, Serving, median, split_data};

/// What a device pays for taking part: the size of its program, its memory at rest and in training, and the time from its
/// start until it can train.
///
/// At rest: two clients join a run of `cnn-mnist` and finish round 1. One of them is killed; the other one has delivered its
/// update of round 2 and idles. Its resident memory is read once the receipt is in. The same with trainers of their own, whose memory
/// is not counted.
/// In training: the most that a client has had resident in three rounds of `lenet-5`.
/// Start: until the server has welcomed the client, which has read its samples by then; the median of several starts.
///
/// Without CLIENT, the client of the running profile is measured, which is not the one for devices. That one, and the one for
/// 64-bit ARM under emulation (its memory includes the emulator's, its time the translation):
///
///     cargo build --profile dist -p edge-client
///     federation-lab idle target/dist/edge-client
///     edge-client/packaging/build.sh arm64
///     federation-lab idle edge-client/packaging/emulate.sh target/portable/arm64/edge-client
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The command that starts the client.
    #[arg(trailing_var_arg = true)]
    client: Vec<OsString>,
}

/// Starts that are measured.
const STARTS: usize = 7;

pub(crate) fn run(arguments: &Arguments) {
    let mut client = arguments.client.clone();
    if client.is_empty() {
        client = vec![programs().edge_client.clone().into_os_string()];
    }
    let program = PathBuf::from(client.last().expect("it has a word at least"));
    let size = std::fs::metadata(&program).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    println!("{}", program.display());
    tell("program", size.len() as f64 / 1e6, "MB", 10.0);
    let (idle, peak) = of_cnn_mnist(&client);
    tell("at rest, after training cnn-mnist (6.7 MB of parameters)", idle, "MB", 25.0);
    println!("  {:58} {peak:7.1} MB", "    at most, while training that");
    tell("at rest, beside a trainer of its own", with_trainer(&client), "MB", 25.0);
    let (training, start) = lenet(&client);
    tell("training lenet-5, at most", training, "MB", 60.0);
    tell("from start to welcome", start, "ms", 200.0);
}

fn tell(what: &str, figure: f64, unit: &str, aim: f64) {
    println!("  {what:58} {figure:7.1} {unit}   (aim: below {aim} {unit})");
}

fn overrides(model: &str, clients: usize) -> Vec<String> {
    let data = format!("data.max-samples={}", 40 * clients);
    [&[format!("model.name={model}"), data][..], &rounds(clients)].concat()
}

/// Rounds without end.
fn rounds(clients: usize) -> Vec<String> {
    [
        "training.batch=10",
        "evaluate.every=0",
        "run.rounds=1000",
        &format!("data.clients={clients}"),
        &format!("round.min-updates={clients}"),
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Megabytes that are resident at rest, and the most that were.
fn of_cnn_mnist(client: &[OsString]) -> (f64, f64) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let overrides = overrides("cnn-mnist", 2);
    split_data(directory.path(), &overrides);
    let serving = Serving::start(directory.path(), &overrides);
    at_rest(directory.path(), serving, |serving, index| serving.join_as(client, directory.path(), index))
}

/// Megabytes that are resident at rest, without the trainer's.
fn with_trainer(client: &[OsString]) -> f64 {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let lab = std::env::current_exe().expect("a running program has a name");
    let initial = directory.path().join("init.safetensors");
    let made = Command::new(&lab).args(["trainer", "--init"]).arg(&initial).status();
    assert!(made.is_ok_and(|status| status.success()), "the initial model is not written");
    let parameters = format!("model.parameters={}", initial.display());
    let serving = Serving::start(directory.path(), &[rounds(2), vec![parameters]].concat());
    let trainer = format!("{} trainer", lab.display());
    let join = |serving: &Serving, index| serving.join_training_by(&trainer, client, directory.path(), index);
    at_rest(directory.path(), serving, join).0
}

/// Megabytes of a client that are resident at rest, and the most that were.
fn at_rest(directory: &Path, mut serving: Serving, join: impl Fn(&Serving, usize) -> Process) -> (f64, f64) {
    let idle = join(&serving, 0);
    let other = join(&serving, 1);
    for _ in 0..3 {
        serving.next_round().expect("rounds close while both clients are there");
    }
    drop(other);
    // The outbox is empty when the receipt of the last update is in: nothing more happens then.
    let outbox = directory.join("state-0/outbox");
    let deadline = Instant::now() + Duration::from_mins(1);
    let mut quiet = Instant::now();
    while quiet.elapsed() < Duration::from_secs(3) && Instant::now() < deadline {
        if outbox.exists() {
            quiet = Instant::now();
        }
        std::thread::yield_now();
    }
    (megabytes(&idle, "VmRSS"), megabytes(&idle, "VmHWM"))
}

/// The most megabytes that were resident while training, and milliseconds from start to welcome.
fn lenet(client: &[OsString]) -> (f64, f64) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let overrides = overrides("lenet-5", 1);
    split_data(directory.path(), &overrides);
    let mut serving = Serving::start(directory.path(), &overrides);
    let process = serving.join_as(client, directory.path(), 0);
    for _ in 0..3 {
        serving.next_round().expect("rounds close while the client is there");
    }
    let training = megabytes(&process, "VmHWM");
    drop(process);
    let starts = (0..STARTS).map(|_| start(serving.command(client, directory.path(), 0))).collect();
    (training, median(starts))
}

/// Milliseconds until the server has welcomed the client.
fn start(mut command: Command) -> f64 {
    let began = Instant::now();
    let mut child = command
        .arg("--json")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it started before");
    let lines = BufReader::new(child.stdout.take().expect("it was piped")).lines();
    let welcome = lines.map_while(Result::ok).find(|line| line.contains(r#""event":"joined""#));
    let took = began.elapsed();
    child.kill().and_then(|()| child.wait()).expect("an own child can be killed");
    assert!(welcome.is_some(), "the client ended before it was welcomed");
    1e3 * took.as_secs_f64()
}

fn megabytes(process: &Process, field: &str) -> f64 {
    process.memory(field).expect("this bench needs /proc") as f64 / 1e6
}
