//! Starting a run: its directory, and whether it begins or continues.
//!
//! Nothing is ever overwritten. `runs/NAME` is continued if it holds an unfinished run of the very same
//! configuration, or a run that differs in nothing but what [may change](crate::config::changeable) while a run lasts and has rounds
//! to come; otherwise the run begins in `runs/NAME`, `runs/NAME-2`, `runs/NAME-3`, whichever is free. A directory
//! is free if it is not there, is empty, or holds what a process leaves that dies while it begins a run.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shared::cli::counted;
use shared::id::RunId;

use crate::config::Config;
use crate::config::changeable::may_change;
use crate::config::excerpt::{Difference, differences};
use crate::coordinator::Resume;
use crate::data;
use crate::round::WeightBounds;
use crate::run::directory::{RunDirectory, has_rounds, newest_checkpoint};
use crate::run::{Extent, InitialModel, Run, RunError, RunManifest, disk};
use crate::storage::{FileLayer, create_dir_durably};
use crate::transport::ListenError;

/// A run that is ready to go on, locked against other processes.
pub struct Started {
    /// The run.
    pub run: Run,
    /// Where it stands.
    pub resume: Resume,
    /// Whether it existed before.
    pub continued: bool,
    /// What of its configuration is another from now on.
    pub changed: Vec<Difference>,
    /// Runs of this name that were passed over, and why.
    pub passed: Vec<String>,
    /// The accuracy of the model that it begins with, where that is another run's and was tested there.
    pub initial_accuracy: Option<f64>,
    /// The last of them with another configuration, and the keys in which this run differs from it.
    pub differs: Option<(PathBuf, Vec<Difference>)>,
    lock: File,
}

/// Why a run cannot start. The operator can correct it.
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
    /// A network of another framework is to be simulated, and nothing trains it.
    #[error(
        "the run's network is of another framework (model.parameters), and a simulation needs the program that trains its clients: \
         give --set simulation.trainer='python3 train.py', or serve the run to devices"
    )]
    NoTrainer,
    /// The program that trains clients of a simulation does not answer.
    #[error("simulation.trainer: {0}")]
    Trainer(String),
    /// It has no samples, or too many.
    #[error(
        "simulation.trainer: it says that client {client} has {count} training samples, and of all clients one at least needs some"
    )]
    Samples {
        /// The client, counted from 0.
        client: u32,
        /// What it says.
        count: u64,
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
/// identity is decided here, regardless of `config`.
///
/// `prepare` gets ready what the run needs beside its directory, a port for example. It is called when a
/// directory was found that no other process uses, and before a new one is made: if it fails, nothing is left
/// behind. So is the model read that the run begins with; one that goes on has it in its checkpoint.
pub fn start_on<T>(
    files: Arc<dyn FileLayer>,
    mut config: Config,
    runs: &Path,
    fresh: bool,
    prepare: impl FnOnce(&Config) -> Result<T, StartError>,
) -> Result<(Started, T), StartError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(StartError::Random)?;
    config.spec.run = RunId::from_bytes(bytes);
    let tests = data::test_set(&config).map_err(RunError::from)?;
    // Missing inputs are reported before there is a directory.
    data::kept(&config).map_err(RunError::from)?;
    let mut passed = Vec::new();
    let mut differs = None;
    let (mut prepare, mut prepared) = (Some(prepare), None);
    let mut initial = None;
    for number in 1.. {
        let directory = RunDirectory::new(runs.join(numbered(&config.spec.name, number)));
        let mut ready = |begins: bool| {
            if begins && initial.is_none() {
                initial = InitialModel::read(&*files, &config).map_err(RunError::from)?;
            }
            if let Some(prepare) = prepare.take() {
                prepared = Some(prepare(&config)?);
            }
            Ok(())
        };
        let (occupant, lock) = claim(&*files, &directory, &config, fresh, &mut ready)?;
        let Some(lock) = lock else {
            let why = occupant.in_the_way(fresh).unwrap_or_default();
            passed.push(format!("{} {why}", directory.root().display()));
            if let Occupant::Other { changed, .. } = occupant
                && !changed.is_empty()
            {
                differs = Some((directory.root().to_owned(), changed));
            }
            continue;
        };
        let prepared = prepared.expect("what is claimed was prepared for");
        let continued = !matches!(occupant, Occupant::Vacant);
        let (mut changes, mut initial_accuracy) = (Vec::new(), None);
        if let Occupant::Same(manifest) | Occupant::Changed { manifest, .. } = &occupant {
            config.effective.keep_origin_of(&manifest.config(&directory)?);
        }
        let (run, resume) = match occupant {
            Occupant::Same(manifest) => {
                config.spec.run = manifest.run;
                if manifest.is_of_earlier_version() {
                    // Its rounds go on as they began.
                    config.policy.weight_bounds = WeightBounds::NONE;
                }
                let (mut run, resume) = Run::resume(files, directory, config, tests)?;
                run.restore_config(&manifest)?;
                (run, resume)
            }
            Occupant::Changed { manifest, changed, .. } => {
                config.spec.run = manifest.run;
                changes = changed;
                Run::change(files, directory, config, tests, manifest)?
            }
            _ => {
                initial_accuracy = initial.as_ref().and_then(|initial| initial.accuracy);
                (Run::begin_with(files, directory, config, tests, initial)?, Resume::default())
            }
        };
        let started =
            Started { run, resume, continued, changed: changes, passed, initial_accuracy, differs, lock };
        return Ok((started, prepared));
    }
    unreachable!("a directory has a last number only when the disk ends first")
}

/// A complete run of the very same configuration under `runs`; `None` if there is none, or one that is unfinished and would be
/// continued.
pub fn completed(files: &dyn FileLayer, config: &Config, runs: &Path) -> Result<Option<PathBuf>, RunError> {
    let mut complete = None;
    for number in 1.. {
        let directory = RunDirectory::new(runs.join(numbered(&config.spec.name, number)));
        match occupant(files, &directory, config)? {
            Occupant::Vacant => break,
            Occupant::Same(_) | Occupant::Changed { .. } => return Ok(None),
            Occupant::Complete => complete = Some(directory.root().to_owned()),
            Occupant::Other { .. } | Occupant::Damaged(_) => {}
        }
    }
    Ok(complete)
}

/// Whether the run in `directory` is unfinished and goes on under `config`, or would go on under it although it is complete.
#[must_use]
pub fn goes_on(files: &dyn FileLayer, directory: &RunDirectory, config: &Config) -> bool {
    matches!(occupant(files, directory, config), Ok(Occupant::Same(_) | Occupant::Changed { .. }))
}

/// Whether a run of `config` begins in `directory`, or goes on there.
#[must_use]
pub fn has_room(files: &dyn FileLayer, directory: &RunDirectory, config: &Config) -> bool {
    let found = occupant(files, directory, config);
    matches!(found, Ok(Occupant::Vacant | Occupant::Same(_) | Occupant::Changed { .. }))
}

fn numbered(name: &str, number: u32) -> String {
    if number == 1 { name.to_owned() } else { format!("{name}-{number}") }
}

/// Looks at the directory before anything is created in it, and once more when it is locked: another process may have
/// begun, continued or completed a run there meanwhile. Gives the lock if a run begins or goes on there. `ready` is told whether
/// one begins.
fn claim(
    files: &dyn FileLayer,
    directory: &RunDirectory,
    config: &Config,
    fresh: bool,
    ready: &mut dyn FnMut(bool) -> Result<(), StartError>,
) -> Result<(Occupant, Option<File>), StartError> {
    let seen = occupant(files, directory, config)?.sound_or(fresh)?;
    if seen.in_the_way(fresh).is_some() {
        return Ok((seen, None));
    }
    if matches!(seen, Occupant::Vacant) {
        ready(true)?;
    }
    let state = directory.state();
    create_dir_durably(files, &state).map_err(disk("create", &state))?;
    let lock = lock(files, directory)?;
    let seen = occupant(files, directory, config)?.sound_or(fresh)?;
    if seen.in_the_way(fresh).is_some() {
        return Ok((seen, None));
    }
    ready(matches!(seen, Occupant::Vacant))?;
    Ok((seen, Some(lock)))
}

enum Occupant {
    /// The directory is free, or holds the beginning of a run that never came to be.
    Vacant,
    /// An unfinished run of the same configuration.
    Same(RunManifest),
    /// A run that goes on under another configuration.
    Changed {
        /// The run.
        manifest: RunManifest,
        /// The keys in which its configuration changes.
        changed: Vec<Difference>,
        /// It was complete.
        complete: bool,
    },
    /// A complete one.
    Complete,
    /// Something else.
    Other {
        /// What it is.
        why: String,
        /// The keys in which the run to be started differs from it, if it is a run.
        changed: Vec<Difference>,
    },
    /// A run whose configuration is not known any more.
    Damaged(RunError),
}

impl Occupant {
    /// Something that has no configuration.
    fn unknown(why: &str) -> Self {
        Self::Other { why: why.to_owned(), changed: Vec::new() }
    }

    /// An unfinished run may be behind damage, and must not begin again beside it in silence; `fresh` asks for another run.
    fn sound_or(self, fresh: bool) -> Result<Self, RunError> {
        match self {
            Self::Damaged(error) if !fresh => Err(error),
            seen => Ok(seen),
        }
    }

    /// Why no run begins or goes on here, if so; `fresh` never continues.
    fn in_the_way(&self, fresh: bool) -> Option<&str> {
        match self {
            Self::Other { why, .. } => Some(why),
            Self::Complete => Some("is complete"),
            Self::Damaged(_) => Some("is damaged, and --fresh was given"),
            Self::Changed { complete: true, .. } if fresh => Some("is complete, and --fresh was given"),
            Self::Same(_) | Self::Changed { .. } if fresh => Some("is unfinished, and --fresh was given"),
            Self::Same(_) | Self::Changed { .. } | Self::Vacant => None,
        }
    }
}

fn occupant(files: &dyn FileLayer, directory: &RunDirectory, config: &Config) -> Result<Occupant, RunError> {
    let there = |path: &Path| -> Result<bool, RunError> {
        Ok(files.length(path).map_err(disk("look at", path))?.is_some())
    };
    let read = RunManifest::read(files, directory);
    let read = read.and_then(|found| match found {
        Some(manifest) => Ok(Some((manifest.config(directory)?, manifest))),
        None => Ok(None),
    });
    let (stored, manifest) = match read {
        Ok(Some(found)) => found,
        Ok(None) if is_free(files, directory)? => return Ok(Occupant::Vacant),
        Ok(None) if has_rounds(files, directory) => {
            let reason = match newest_checkpoint(files, directory) {
                Some(round) => format!("it is not there, and the checkpoint of round {round} is"),
                None => "it is not there, and rounds were opened".to_owned(),
            };
            return Ok(Occupant::Damaged(RunError::Damaged { path: directory.identity(), reason }));
        }
        Ok(None) => return Ok(Occupant::unknown("holds something else")),
        // A complete run is in no other one's way.
        Err(RunError::Damaged { .. }) if there(&directory.finished())? => {
            return Ok(Occupant::unknown("is complete, and its configuration cannot be read"));
        }
        Err(error @ RunError::Damaged { .. }) => return Ok(Occupant::Damaged(error)),
        Err(error) => return Err(error),
    };
    let mut asked = config.effective.clone();
    asked.keep_origin_of(&stored);
    let (stored, asked) = (stored.without_local_paths(), asked.without_local_paths());
    let complete = there(&directory.finished())?;
    if stored == asked {
        return Ok(if complete { Occupant::Complete } else { Occupant::Same(manifest) });
    }
    let changed = differences(&stored, &asked);
    Ok(match in_the_way_of_change(files, directory, config, &manifest, &changed, complete)? {
        None => Occupant::Changed { manifest, changed, complete },
        Some(why) => Occupant::Other { why, changed },
    })
}

/// Why the run in `directory` does not go on under `config`, from which it differs in these keys; `None` if it does.
fn in_the_way_of_change(
    files: &dyn FileLayer,
    directory: &RunDirectory,
    config: &Config,
    manifest: &RunManifest,
    changed: &[Difference],
    complete: bool,
) -> Result<Option<String>, RunError> {
    let state = |closed: u32| {
        if complete { "is complete".to_owned() } else { format!("is unfinished after round {closed}") }
    };
    if !may_change(changed, config) || manifest.is_of_earlier_version() {
        let state = state(newest_checkpoint(files, directory).unwrap_or(0));
        let other = "but its configuration (config.toml in it) is another one";
        return Ok(Some(if complete { state } else { format!("{state}, {other}") }));
    }
    if files.length(&directory.pruned()).map_err(disk("look at", &directory.pruned()))?.is_some() {
        return Ok(Some("is over and cannot go on: what continues it was pruned".to_owned()));
    }
    // What cannot be read of a complete run is in no other one's way.
    let extent = match Extent::of(files, directory) {
        Ok(Some(extent)) => extent,
        Err(error) if !complete => return Err(error),
        Ok(None) | Err(_) => return Ok(Some(state(0))),
    };
    let (rounds, schedule) = (config.spec.rounds, &config.spec.training.schedule);
    let state = state(extent.closed);
    if rounds < extent.with_result {
        return Ok(Some(format!(
            "has {} already, and run.rounds asks for {rounds}",
            counted(extent.with_result as usize, "round")
        )));
    }
    if complete && rounds == extent.with_result {
        return Ok(Some(state));
    }
    if schedule.depends_on_length() && changed.iter().any(|(key, ..)| key == "run.rounds") {
        return Ok(Some(format!(
            "{state}, and its learning rate (training.schedule) falls over all its rounds: with other rounds it is another run"
        )));
    }
    Ok(None)
}

/// Is there nothing, or nothing but what a process leaves that dies while it begins a run? The lock comes first, so a
/// file of any of these names without it is not ours.
fn is_free(files: &dyn FileLayer, directory: &RunDirectory) -> Result<bool, RunError> {
    const STATE: [&str; 11] = [
        "lock",
        "spool",
        "broadcast-000001.safetensors",
        "broadcast-000001.safetensors.partial",
        "base-000001.safetensors",
        "base-000001.safetensors.partial",
        "checkpoint-000000.safetensors",
        "checkpoint-000000.safetensors.partial",
        "run.json.partial",
        "secret",
        "secret.partial",
    ];
    let names = |path: &Path| match files.list(path) {
        Ok(names) => Ok(Some(names)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Some(Vec::new())),
        // A file is in its place; one in place of a folder above it is in the way of every run.
        Err(error)
            if error.kind() == ErrorKind::NotADirectory && matches!(files.length(path), Ok(Some(_))) =>
        {
            Ok(None)
        }
        Err(error) => Err(disk("list", path)(error)),
    };
    let Some(root) = names(directory.root())? else { return Ok(false) };
    let Some(state) = names(&directory.state())? else { return Ok(false) };
    let begun = state.iter().any(|name| name == "lock");
    let ours = |name: &String| match name.as_str() {
        "state" => true,
        "config.toml" | "config.toml.partial" => begun,
        _ => false,
    };
    Ok(root.iter().all(ours)
        && state.iter().all(|name| STATE.contains(&name.as_str()))
        && (begun || state.is_empty()))
}

fn lock(files: &dyn FileLayer, directory: &RunDirectory) -> Result<File, StartError> {
    let path = directory.lock();
    files.lock(&path).map_err(|error| match error {
        TryLockError::WouldBlock => StartError::InUse { path: directory.root().to_owned() },
        TryLockError::Error(error) => disk("lock", &path)(error).into(),
    })
}
