//! Which directory a run gets, and whether it begins or continues.
//!
//! Nothing is ever overwritten. `runs/NAME` is continued if it holds an unfinished run of the very same
//! configuration; otherwise the run begins in `runs/NAME`, `runs/NAME-2`, `runs/NAME-3`, whichever is free.

use std::fs::{File, TryLockError};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shared::id::RunId;

use crate::config::{Config, Raw};
use crate::coordinator::Resume;
use crate::data;
use crate::files::{Disk, FileLayer};
use crate::quic::ListenError;
use crate::run::directory::{RunDirectory, newest_checkpoint};
use crate::run::{Run, RunError, damaged, disk};

/// A run that is ready to go on, locked against other processes.
pub struct Started {
    /// The run.
    pub run: Run,
    /// Where it stands.
    pub resume: Resume,
    /// Whether it existed before.
    pub continued: bool,
    /// Runs of this name that were passed over, and why.
    pub passed: Vec<String>,
    lock: File,
}

/// Why a run cannot start. The operator's to mend.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The disk or the run's directory.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The port cannot be used.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Another process works on the run.
    #[error("{} is in use by another aggregator: stop that one, or start another run with --fresh", path.display())]
    InUse {
        /// The run's directory.
        path: PathBuf,
    },
    /// The system gives no random bytes for the run's identity.
    #[error("the system gives no random bytes: {0}")]
    Random(getrandom::Error),
}

impl Started {
    /// Splits off the lock, which must be held as long as the run is worked on.
    #[must_use]
    pub fn into_parts(self) -> (Run, Resume, File) {
        (self.run, self.resume, self.lock)
    }
}

/// Begins or continues the run that `config` describes, under `runs`. `fresh` never continues. The run's
/// identity is decided here, whatever `config` says.
///
/// `prepare` gets ready what the run needs beside its directory, a port for example. It is called when a
/// directory was found that nobody else uses, and before a new one is made: if it fails, nothing is left
/// behind.
pub fn start<T>(
    mut config: Config,
    runs: &Path,
    fresh: bool,
    prepare: impl FnOnce(&Config) -> Result<T, StartError>,
) -> Result<(Started, T), StartError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(StartError::Random)?;
    config.spec.run = RunId::from_bytes(bytes);
    let tests = data::test_set(&config).map_err(RunError::from)?;
    let files: Arc<dyn FileLayer> = Arc::new(Disk);
    let mut passed = Vec::new();
    for number in 1.. {
        let name = &config.spec.name;
        let name = if number == 1 { name.clone() } else { format!("{name}-{number}") };
        let directory = RunDirectory::new(runs.join(name));
        match occupant(&*files, &directory, &config)? {
            Occupant::Other(why) => passed.push(format!("{} {why}", directory.root().display())),
            Occupant::Same(_) if fresh => {
                passed.push(format!("{} is unfinished, and --fresh was given", directory.root().display()));
            }
            Occupant::Same(identity) => {
                let lock = lock(&directory)?;
                config.spec.run = identity;
                let prepared = prepare(&config)?;
                let (run, resume) = Run::resume(files, directory, config, tests)?;
                return Ok((Started { run, resume, continued: true, passed, lock }, prepared));
            }
            Occupant::Nobody => {
                let prepared = prepare(&config)?;
                let state = directory.state();
                std::fs::create_dir_all(&state).map_err(disk("create", &state))?;
                let lock = lock(&directory)?;
                let run = Run::begin(files, directory, config, tests)?;
                let started = Started { run, resume: Resume::default(), continued: false, passed, lock };
                return Ok((started, prepared));
            }
        }
    }
    unreachable!("a directory has a last number only when the disk ends first")
}

enum Occupant {
    /// The directory is free, or holds the beginning of a run that never came to be.
    Nobody,
    /// An unfinished run of the same configuration.
    Same(RunId),
    /// Something else: what it is.
    Other(String),
}

fn occupant(files: &dyn FileLayer, directory: &RunDirectory, config: &Config) -> Result<Occupant, RunError> {
    let root = directory.root();
    if !root.exists() {
        return Ok(Occupant::Nobody);
    }
    let identity = directory.identity();
    if !identity.exists() {
        let empty = root.is_dir() && files.list(root).is_ok_and(|names| names.is_empty());
        let begun = directory.state().is_dir();
        let other = || Occupant::Other("holds something else".to_owned());
        return Ok(if empty || begun { Occupant::Nobody } else { other() });
    }
    let stored = Raw::layered(Some(&directory.config()), &[]);
    let closed = newest_checkpoint(files, directory).unwrap_or(0);
    let Ok(stored) = stored else {
        return Ok(Occupant::Other("has a configuration that cannot be read".to_owned()));
    };
    if directory.finished().exists() {
        return Ok(Occupant::Other("is complete".to_owned()));
    }
    if stored != config.effective {
        return Ok(Occupant::Other(format!(
            "is unfinished after round {closed}, but its configuration (config.toml in it) is another one"
        )));
    }
    let mut json = String::new();
    let mut file = files.open(&identity).map_err(disk("open", &identity))?;
    file.read_to_string(&mut json).map_err(disk("read", &identity))?;
    let json: serde_json::Value = serde_json::from_str(&json).map_err(damaged(&identity))?;
    let id = json["run"].as_str().unwrap_or_default().parse().map_err(damaged(&identity))?;
    Ok(Occupant::Same(id))
}

fn lock(directory: &RunDirectory) -> Result<File, StartError> {
    let path = directory.lock();
    let options = File::options().create(true).append(true).open(&path);
    let file = options.map_err(disk("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StartError::InUse { path: directory.root().to_owned() }),
        Err(TryLockError::Error(error)) => Err(disk("lock", &path)(error).into()),
    }
}
