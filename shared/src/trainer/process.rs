//! One process of a trainer, and the talk with it.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use tracing::info;

use super::command::TrainerCommand;
use super::line::{Answer, MAX_LINE, Request};
use crate::algorithm::{TrainError, TrainerError};
use crate::task::Progress;

/// How often the one who asks is asked whether to go on.
const POLL: Duration = Duration::from_millis(100);
/// The time that a trainer has to give up what it is at.
const GRACE: Duration = Duration::from_secs(10);
/// The time that it has to end by itself.
const LAST_MOMENT: Duration = Duration::from_secs(1);
/// Lines of standard error that are kept for a message.
const KEPT: usize = 5;
/// Characters of a line that a message has room for.
const SHOWN: usize = 200;

/// A running trainer. It is ended when this is dropped.
pub struct TrainerProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Said>,
    errors: Arc<Mutex<VecDeque<String>>>,
    reads_errors: Option<JoinHandle<()>>,
    timeout: Duration,
    directory: PathBuf,
}

/// What came on standard output.
enum Said {
    Line(String),
    /// More than a line may have.
    TooLong(String),
}

impl TrainerProcess {
    /// Starts a process, with a new folder for its files.
    ///
    /// # Errors
    /// [`TrainerError::Start`] or [`TrainerError::Files`].
    pub fn start(command: &TrainerCommand) -> Result<Self, TrainerError> {
        let directory = command.new_folder().map_err(|error| TrainerError::Files {
            reason: format!("{}: {error}", command.directory.display()),
        })?;
        let start = |reason: String| TrainerError::Start { command: command.line.clone(), reason };
        let mut child = command.command().spawn().map_err(|error| start(error.to_string()))?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (said, lines) = sync_channel(64);
        let errors: Arc<Mutex<VecDeque<String>>> = Arc::default();
        let kept = errors.clone();
        let thread = |error: std::io::Error| start(error.to_string());
        let mut process =
            Self { child, stdin, lines, errors, reads_errors: None, timeout: command.timeout, directory };
        // From here on the process ends with this.
        if let Some(stdout) = stdout {
            Builder::new()
                .name("trainer-out".to_owned())
                .spawn(move || answers(stdout, &said))
                .map_err(thread)?;
        }
        if let Some(stderr) = stderr {
            let reader = Builder::new().name("trainer-err".to_owned());
            process.reads_errors = Some(reader.spawn(move || complaints(stderr, &kept)).map_err(thread)?);
        }
        Ok(process)
    }

    /// Asks, and waits for the answer. Ten times a second `monitor` is told the progress and cancels by breaking.
    ///
    /// # Errors
    /// [`TrainError::Cancelled`], or [`TrainError::Trainer`]. After any but [`TrainerError::Failed`] and a cancellation that it has
    /// heard the process has been ended.
    pub fn ask(
        &mut self,
        request: &Request<'_>,
        round: Option<u32>,
        monitor: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Answer, TrainError> {
        // What was said after the last answer is no answer to this.
        while self.lines.try_recv().is_ok() {}
        self.say(request)?;
        let mut progress = Progress { round, ..Progress::default() };
        let (mut heard, mut cancelled) = (Instant::now(), None::<Instant>);
        loop {
            if cancelled.is_none() && monitor(progress).is_break() {
                self.say(&Request::Cancel {})?;
                cancelled = Some(Instant::now());
            }
            if cancelled.is_some_and(|since| since.elapsed() > GRACE) {
                self.kill();
                return Err(TrainError::Cancelled);
            }
            let line = match self.lines.recv_timeout(POLL) {
                Ok(Said::Line(line)) => line,
                Ok(Said::TooLong(begins)) => {
                    self.kill();
                    return Err(refused(&begins, format!("longer than {MAX_LINE} bytes")).into());
                }
                Err(RecvTimeoutError::Timeout) if heard.elapsed() > self.timeout => {
                    self.kill();
                    return Err(TrainerError::Silent { seconds: self.timeout.as_secs() }.into());
                }
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended().into()),
            };
            heard = Instant::now();
            let answer = Answer::read(&line).map_err(|problem| {
                self.kill();
                refused(&line, problem)
            })?;
            match answer {
                Answer::Progress { done, total } => {
                    progress = Progress { round, done, total: total.max(done) }
                }
                Answer::Cancelled {} if cancelled.is_none() => {
                    self.kill();
                    return Err(refused(&line, "no answer to what it was asked".to_owned()).into());
                }
                _ if cancelled.is_some() => return Err(TrainError::Cancelled),
                Answer::Failed { reason } => {
                    return Err(TrainerError::Failed { reason: shown(&reason) }.into());
                }
                answer => return Ok(answer),
            }
        }
    }

    /// The number of the process, and of the group of what it has started.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// A file in its folder.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Ends processes that have nothing to do: a trainer ends by itself when its input ends, and all have the same moment to tidy up.
    pub(super) fn end_all(mut processes: Vec<Self>) {
        for process in &mut processes {
            process.stdin = None;
        }
        let since = Instant::now();
        while since.elapsed() < LAST_MOMENT && processes.iter_mut().any(Self::is_running) {
            std::thread::sleep(POLL / 10);
        }
        for process in &mut processes {
            process.kill();
        }
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn say(&mut self, request: &Request<'_>) -> Result<(), TrainerError> {
        // A name of a file that is no UTF-8 has no place in it.
        let line = serde_json::to_string(request);
        let mut line = line.map_err(|error| TrainerError::Files { reason: error.to_string() })?;
        line.push('\n');
        let written =
            self.stdin.as_mut().map(|stdin| stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush()));
        match written {
            Some(Ok(())) => Ok(()),
            _ => Err(self.ended()),
        }
    }

    /// How it ended, if it did by itself; else it is ended.
    fn ended(&mut self) -> TrainerError {
        // Its end of the pipe is closed, so that it is about to end, if it has not yet.
        let since = Instant::now();
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if since.elapsed() < LAST_MOMENT => std::thread::sleep(POLL / 10),
                _ => break None,
            }
        };
        let how = status.map_or_else(|| "it closed its standard output".to_owned(), in_words);
        self.kill();
        // Its last words are on their way; what it has started elsewhere may hold the pipe open for longer.
        let since = Instant::now();
        while self.reads_errors.as_ref().is_some_and(|reader| !reader.is_finished())
            && since.elapsed() < POLL * 5
        {
            std::thread::sleep(POLL / 10);
        }
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        TrainerError::Ended { how, last: errors.back().cloned().unwrap_or_default() }
    }

    /// Ends it with all that it has started.
    pub(super) fn kill(&mut self) {
        end_group(self.child.id());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for TrainerProcess {
    fn drop(&mut self) {
        // It has a moment to tidy up.
        self.stdin = None;
        let since = Instant::now();
        while since.elapsed() < LAST_MOMENT && self.is_running() {
            std::thread::sleep(POLL / 10);
        }
        self.kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// How a process ended. Of a signal that has ended its program, a shell tells by a status above 128 (POSIX, exit status of commands).
fn in_words(status: ExitStatus) -> String {
    let signal = status.code().filter(|code| cfg!(unix) && (129..=192).contains(code));
    signal.map_or_else(|| status.to_string(), |code| format!("{status}, signal {}", code - 128))
}

fn refused(given: &str, problem: String) -> TrainerError {
    TrainerError::Answer { given: shown(given), problem }
}

fn shown(text: &str) -> String {
    text.trim().chars().filter(|c| !c.is_control()).take(SHOWN).collect()
}

/// Passes lines on until the output ends, or the one who listens has ended.
fn answers(stdout: impl Read, said: &SyncSender<Said>) {
    let mut reader = BufReader::new(stdout);
    while let Some(bytes) = line(&mut reader, MAX_LINE + 1) {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let is_last = bytes.len() > MAX_LINE;
        let line = if is_last { Said::TooLong(text) } else { Said::Line(text) };
        if said.send(line).is_err() || is_last {
            return;
        }
    }
}

/// The next line, or as much of it as `limit` bytes; `None` at the end.
fn line(reader: &mut impl BufRead, limit: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = reader.take(limit as u64).read_until(b'\n', &mut bytes).ok()?;
    (read > 0).then_some(bytes)
}

/// Logs standard error and keeps its last lines, until it ends.
fn complaints(stderr: impl Read, kept: &Mutex<VecDeque<String>>) {
    let mut reader = BufReader::new(stderr);
    while let Some(bytes) = line(&mut reader, MAX_LINE) {
        let line = shown(&String::from_utf8_lossy(&bytes));
        if line.is_empty() {
            continue;
        }
        info!(target: "trainer", "{line}");
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(line);
    }
}

/// Ends a process that was started as the first of its group, and all others of that.
#[cfg(unix)]
pub(super) fn end_group(group: u32) {
    use rustix::process::{Pid, Signal, kill_process_group};

    if let Some(group) = i32::try_from(group).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

#[cfg(not(unix))]
pub(super) fn end_group(_: u32) {}
