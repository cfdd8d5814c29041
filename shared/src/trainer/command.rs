//! The command of a trainer, and what it may take.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::durable::{create_dir, private_dir};

/// How a trainer is run.
#[derive(Clone, Debug)]
pub struct TrainerCommand {
    /// What the shell runs, as in `python3 train.py`.
    pub line: String,
    /// The folder for its files. Each of its processes has one of its own in it.
    pub directory: PathBuf,
    /// The longest time without a line.
    pub timeout: Duration,
    /// Memory that each of its processes may take, in bytes; `None` if there is no bound.
    pub max_memory: Option<u64>,
}

impl TrainerCommand {
    /// The time without a line after which a trainer is ended where nothing else is said: importing a framework and loading samples
    /// on a small device takes long.
    pub const TIMEOUT: Duration = Duration::from_mins(5);

    /// Whether this system can bound the memory of a process (`max_memory`).
    pub const BOUNDS_MEMORY: bool = cfg!(target_os = "linux");

    /// The command for a new process, in a group of processes of its own: what it starts ends with it.
    pub(super) fn command(&self) -> Command {
        let mut command = shell(&self.line, self.max_memory);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Makes a folder for one process, its owner's alone. Its name is new: a process that has outlived its program may still write
    /// into the one that it had.
    pub(super) fn new_folder(&self) -> std::io::Result<PathBuf> {
        create_dir(&self.directory, private_dir())?;
        // A trainer may work in another folder.
        let directory = std::path::absolute(&self.directory)?;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        for name in since.as_nanos().. {
            let folder = directory.join(name.to_string());
            match private_dir().create(&folder) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => return made.map(|()| folder),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }
}

/// Has the shell run a line, in any form that the shell takes: `cd models && python3 train.py`, or `THREADS=2 ./train`.
#[cfg(unix)]
fn shell(line: &str, max_memory: Option<u64>) -> Command {
    use std::os::unix::process::CommandExt as _;

    // What the shell may take, what it starts may take.
    let bounded = max_memory.map(|bytes| format!("ulimit -d {} || exit 125\n{line}", bytes.div_ceil(1024)));
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(bounded.as_deref().unwrap_or(line)).process_group(0);
    command
}

#[cfg(not(unix))]
fn shell(line: &str, _: Option<u64>) -> Command {
    let mut command = Command::new("cmd");
    command.arg("/C").arg(line);
    command
}
