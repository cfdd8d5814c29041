//! Fuzzing: damaged inputs for every decoder and both state machines, for as long as it is told.
//!
//! `cargo bench -p federation-tests --profile dev --bench fuzz -- [--seconds N] [--target NAME] [--seed S]`
//! `cargo bench -p federation-tests --profile dev --bench fuzz -- --target NAME --replay FILE`
//!
//! N seconds (60) are shared out among the targets; NAME is a part of a target's name. The profile `dev` checks for
//! overflows, which the release profile does not. Each target is played in a process of its own. An input that makes it panic,
//! allocate what it was not sent, or take longer than two seconds is written to `target/fuzz/`; so is one that ends the
//! process, which is found by playing the same inputs again, each written down before. Exit code 1 if there was any.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::str::FromStr;
use std::time::{Duration, Instant};

use federation_tests::fuzz::hunt::{Failure, Hunt, Watch, examine};
use federation_tests::fuzz::{TARGETS, Target};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// How long one input may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The exit code of a process that has reported its failure.
const REPORTED: i32 = 1;

const USAGE: &str = "usage: fuzz [--seconds N] [--target NAME] [--seed S] [--replay FILE]";

fn number<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

struct Arguments {
    seconds: f64,
    target: String,
    seed: u64,
    replay: Option<PathBuf>,
    /// Plays one target in this process.
    alone: bool,
    /// Writes each input down before it is played.
    careful: bool,
}

fn arguments() -> Result<Arguments, String> {
    let mut found = Arguments {
        seconds: 60.0,
        target: String::new(),
        seed: 1,
        replay: None,
        alone: false,
        careful: false,
    };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        let mut value = || given.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--seconds" => found.seconds = number(&value()?)?,
            "--seed" => found.seed = number(&value()?)?,
            "--target" => found.target = value()?,
            "--replay" => found.replay = Some(value()?.into()),
            "--alone" => found.alone = true,
            "--careful" => found.careful = true,
            // Cargo's.
            "--bench" => {}
            other => return Err(format!("`{other}` is unknown")),
        }
    }
    Ok(found)
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(mistake) => {
            eprintln!("{mistake}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
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
        return replay(first, path);
    }
    if arguments.alone {
        return alone(first, &arguments);
    }
    let each = arguments.seconds / targets.len() as f64;
    println!("{} targets, {each:.1} s each, seed {}", targets.len(), arguments.seed);
    println!("{:>18} {:>10} {:>12} {:>9}", "target", "inputs", "per second", "outcomes");
    let failed = targets.iter().filter(|target| !apart(target, each, arguments.seed)).count();
    println!("{failed} of {} targets failed", targets.len());
    ExitCode::from(u8::from(failed > 0))
}

fn watch() -> Watch<'static> {
    Watch { memory: Some(&MEMORY), patience: Some(PATIENCE) }
}

fn replay(target: &Target, path: &Path) -> ExitCode {
    let input = match fs::read(path) {
        Ok(input) => input,
        Err(error) => {
            eprintln!("cannot read {}: {error}", path.display());
            return ExitCode::from(2);
        }
    };
    println!("{}: {} bytes of {}", target.name, input.len(), path.display());
    match examine(target, &input, watch()) {
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
    println!("{:>18} once it is mended, keep it in tests/corpus/{}/", "", target.name);
}

/// Plays one target in a process of its own. Whether nothing went wrong.
fn apart(target: &Target, seconds: f64, seed: u64) -> bool {
    let start = |more: &[&str]| {
        Command::new(std::env::current_exe().expect("the system knows the running program"))
            .args(["--alone", "--target", target.name, "--seconds", &seconds.to_string()])
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

fn alone(target: &Target, arguments: &Arguments) -> ExitCode {
    let begun = Instant::now();
    match hunt(target, arguments, begun) {
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

fn hunt(target: &Target, arguments: &Arguments, begun: Instant) -> Result<(u64, usize), (Vec<u8>, Failure)> {
    let mut hunt = Hunt::begin(target, arguments.seed, watch())?;
    // With care it is slower, and has to come as far as without.
    let seconds = if arguments.careful { 20.0 * arguments.seconds } else { arguments.seconds };
    while begun.elapsed().as_secs_f64() < seconds {
        let input = hunt.next_input();
        if arguments.careful {
            keep(target, &input, "careful");
        }
        hunt.play(&input).map_err(|failure| (input, failure))?;
    }
    Ok((hunt.played, hunt.outcomes()))
}
