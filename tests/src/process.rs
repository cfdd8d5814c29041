//! A running program: its lines as they come, its end, and signals to it.

use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Nothing here takes nearly so long on any machine; it turns a hang into a failure.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// The code of a program that Ctrl-C stopped.
pub const INTERRUPTED: i32 = 130;

/// A program that was started. Dropping it kills it.
pub struct Process {
    name: String,
    child: Child,
    lines: Receiver<String>,
    /// Lines of both outputs in the order in which they were read.
    seen: Vec<String>,
    /// How many of them [`line`](Self::line) has looked at.
    looked: usize,
}

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; 128 and the signal's number if one ended it, as a shell has it.
    pub code: Option<i32>,
    /// All that it printed, standard output and standard error line by line.
    pub text: String,
}

impl Process {
    /// Starts a program with nothing to read and without the user's environment for it. `name` is for
    /// messages.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(name: &str, command: &mut Command) -> Self {
        command.env_remove("RUST_LOG").env_remove("XDG_STATE_HOME").stdin(Stdio::null());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        let (sender, lines) = mpsc::channel();
        let outputs: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|out| Box::new(out) as _),
            child.stderr.take().map(|out| Box::new(out) as _),
        ];
        for output in outputs.into_iter().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        Self { name: name.to_owned(), child, lines, seen: Vec::new(), looked: 0 }
    }

    /// Waits for the next line that `wanted` likes, and passes over those before it.
    ///
    /// # Panics
    /// If the program ends before, or takes for ever.
    pub fn line(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            while let Some(line) = self.seen.get(self.looked) {
                self.looked += 1;
                if wanted(line) {
                    return line.clone();
                }
            }
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("{} ended before {what}:\n{}", self.name, self.text())
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("{} never came to {what}:\n{}", self.name, self.text())
                }
            }
        }
    }

    /// Passes over the lines that have come so far: the next one that is waited for is later than this moment.
    pub fn pass_over(&mut self) {
        self.seen.extend(self.lines.try_iter());
        self.looked = self.seen.len();
    }

    /// Waits for the next line of JSON whose members are at least those of `expected`.
    ///
    /// # Panics
    /// As [`line`](Self::line).
    pub fn object(&mut self, expected: &Value) -> Value {
        let fits = |line: &str| {
            let object: Value = serde_json::from_str(line).ok()?;
            let wanted = expected.as_object().expect("objects are waited for");
            wanted.iter().all(|(key, value)| object.get(key) == Some(value)).then_some(object)
        };
        let line = self.line(&expected.to_string(), |line| fits(line).is_some());
        fits(&line).expect("it did just now")
    }

    /// Waits until the program has ended by itself.
    ///
    /// # Panics
    /// If it does not.
    #[must_use]
    pub fn wait(self) -> Ended {
        self.wait_within(PATIENCE)
    }

    /// The same, with more patience.
    ///
    /// # Panics
    /// If it does not.
    #[must_use]
    pub fn wait_within(mut self, patience: Duration) -> Ended {
        let deadline = Instant::now() + patience;
        // Its outputs are closed when it ends.
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("{} does not end:\n{}", self.name, self.text()),
            }
        }
        let status = self.child.wait().expect("an own child can be waited for");
        let signal = || status.signal().map(|number| 128 + number);
        Ended { code: status.code().or_else(signal), text: self.text() }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Has the program not ended yet?
    ///
    /// # Panics
    /// If the system does not tell.
    pub fn alive(&mut self) -> bool {
        self.child.try_wait().expect("an own child can be asked for").is_none()
    }

    /// Kills the program as `kill -9` does, and waits until it has ended.
    ///
    /// # Panics
    /// If it has ended before: the test did not test what it should.
    pub fn kill(mut self) {
        assert!(self.alive(), "{} ended before it was killed:\n{}", self.name, self.text());
        self.kill_if_alive();
    }

    /// The same, if it has not ended. Says whether it was killed.
    ///
    /// # Panics
    /// If the system does not tell.
    pub fn kill_if_alive(&mut self) -> bool {
        let alive = self.alive();
        if alive {
            self.child.kill().expect("a living child can be killed");
            self.child.wait().expect("an own child can be waited for");
        }
        alive
    }

    /// Sends the signal of Ctrl-C.
    ///
    /// # Panics
    /// If there is no program `kill`.
    pub fn interrupt(&self) {
        self.signal("-INT");
    }

    /// Stops the program where it is, until it is told to [go on](Self::go_on).
    ///
    /// # Panics
    /// If there is no program `kill`.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Lets a program that was stopped go on.
    ///
    /// # Panics
    /// If there is no program `kill`.
    pub fn go_on(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(status.expect("there is a program kill").success(), "{} takes no {signal}", self.name);
    }

    fn text(&self) -> String {
        self.seen.join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a condition holds that no event announces: a file exists, for example.
///
/// # Panics
/// If it never is.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "{what}: never");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Runs a program to its end.
///
/// # Panics
/// If it cannot be started, or does not end.
#[must_use]
pub fn run(program: &Path, arguments: &[&str]) -> Ended {
    Process::start(&program.display().to_string(), Command::new(program).args(arguments)).wait()
}
