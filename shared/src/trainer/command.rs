//! The command of a trainer, and what it may take.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How a trainer is run.
#[derive(Clone, Debug)]
pub struct TrainerCommand {
    /// What the shell runs, as in `python3 train.py`.
    pub line: String,
    /// The folder for its files. Each of its processes has one of its own in it.
    pub directory: PathBuf,
    /// The longest time without a line.
    pub timeout: Duration,
    /// Memory that a process may take, in bytes; `None` if there is no bound.
    pub max_memory: Option<u64>,
}

impl TrainerCommand {
    /// The time without a line after which a trainer is ended where nothing else is said: importing a framework and loading samples
    /// on a small device takes long.
    pub const TIMEOUT: Duration = Duration::from_mins(5);

    /// The command for a new process, in a group of processes of its own: what it starts ends with it.
    pub(super) fn command(&self) -> Command {
        let mut command = shell(&self.line);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

#[cfg(unix)]
fn shell(line: &str) -> Command {
    use std::os::unix::process::CommandExt as _;

    let mut command = Command::new("/bin/sh");
    // The shell gives its place to the program, so that its status and signals are the program's.
    command.arg("-c").arg(format!("exec {line}")).process_group(0);
    command
}

#[cfg(not(unix))]
fn shell(line: &str) -> Command {
    let mut command = Command::new("cmd");
    command.arg("/C").arg(line);
    command
}
