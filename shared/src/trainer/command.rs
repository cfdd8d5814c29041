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
    let mut script = max_memory
        .map_or_else(String::new, |bytes| format!("ulimit -d {} || exit 125\n", bytes.div_ceil(1024)));
    if is_one_program(line) {
        script.push_str("exec ");
    }
    script.push_str(line);
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(script).process_group(0);
    command
}

/// Whether a line starts one program and nothing else, so that the shell can give its place to it: the program's status and signals, and
/// its end of the pipes, are then its own. Some such lines are not recognised, and the shell stays between.
#[cfg(unix)]
fn is_one_program(line: &str) -> bool {
    let first = line.split_whitespace().next().unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./+-".contains(c);
    !line.contains(['&', '|', ';', '\n'])
        && first.chars().all(is_plain)
        && !["", "exec", "command", "."].contains(&first)
}

#[cfg(not(unix))]
fn shell(line: &str, _: Option<u64>) -> Command {
    let mut command = Command::new("cmd");
    command.arg("/C").arg(line);
    command
}
