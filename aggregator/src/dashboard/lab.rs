//! The runs and the database, as they are read for pages. What has not changed is not read again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rayon::prelude::*;

use crate::database::{Database, DatabaseError, FILE};
use crate::enrolment::Device;
use crate::history::StoredRun;
#[cfg(feature = "cluster")]
use crate::leaves::shown::Together;
use crate::names;
use crate::page::Found;
use crate::run::directory::RunDirectory;
use crate::runs::find::{is_run, within};
use crate::runs::overview::Overview;
use crate::storage::Disk;

/// A run as it was read.
pub(super) struct Run {
    pub(super) overview: Overview,
    pub(super) found: Found,
}

/// Which run: its name among the runs, or among those of an experiment.
#[derive(Clone, Debug)]
pub(super) struct RunName {
    pub(super) experiment: Option<String>,
    pub(super) name: String,
}

/// The names of runs that cannot be read, each with the reason.
pub(super) type Unread = Vec<(String, String)>;

/// What a change of a file shows in.
type Mark = Option<(SystemTime, u64)>;

/// The files that a page of a run is made of, and whether a process works on it.
type Marks = (Vec<Mark>, bool);

/// A run as it was read last. Of those who ask for one that has changed, one reads it, and the others wait for that.
type Slot = Arc<Mutex<Option<(Marks, Arc<Run>)>>>;

/// What tells a file from another one of its name: a backup that is put back is another file.
type FileId = (u64, u64);

/// Everything that pages show.
pub(super) struct Lab {
    runs: PathBuf,
    experiments: PathBuf,
    directory: PathBuf,
    known: Mutex<BTreeMap<PathBuf, Slot>>,
    /// The connection that reads, once there is a database, with the file that it reads.
    database: Mutex<Option<(FileId, Database)>>,
}

/// Why something cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(super) enum LabError {
    /// There is nothing of this name.
    #[error("there is no {what} of this name")]
    Unknown {
        /// What was looked for.
        what: &'static str,
    },
    /// A directory.
    #[error("cannot list {}: {error}", path.display())]
    List {
        /// It.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A run cannot be read.
    #[error(transparent)]
    Page(#[from] crate::page::PageError),
    /// The database.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl Lab {
    pub(super) fn new(runs: PathBuf, experiments: PathBuf, directory: PathBuf) -> Self {
        Self { runs, experiments, directory, known: Mutex::default(), database: Mutex::default() }
    }

    /// The directory of the runs, or of what will hold it.
    pub(super) fn place(&self) -> &Path {
        self.runs.ancestors().find(|place| place.is_dir()).unwrap_or(Path::new("."))
    }

    /// The directory of the server's key and database.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// All runs, those that were active last first; and the folders of runs that cannot be read, with the reason.
    pub(super) fn all(&self) -> Result<(Vec<Arc<Run>>, Unread), LabError> {
        self.all_in(&within(&self.runs))
    }

    fn all_in(&self, place: &Path) -> Result<(Vec<Arc<Run>>, Unread), LabError> {
        let (mut runs, mut unread) = (Vec::new(), Vec::new());
        let directories = directories(place)?;
        // What was deleted is not kept.
        let there: BTreeSet<&Path> = directories.iter().map(RunDirectory::root).collect();
        let is_there = |path: &Path| {
            if path.parent() == Some(place) { there.contains(path) } else { path.is_dir() }
        };
        lock(&self.known).retain(|path, _| is_there(path));
        let read = directories.par_iter().map(|directory| self.read(directory)).collect::<Vec<_>>();
        for (directory, read) in directories.iter().zip(read) {
            match read {
                Ok(run) => runs.push(run),
                Err(error) => unread.push((directory.name().into_owned(), error.to_string())),
            }
        }
        runs.sort_by(|a, b| {
            let key = |run: &Run| (run.overview.is_worked_on(), run.overview.active.clone());
            key(b).cmp(&key(a)).then_with(|| a.overview.run.cmp(&b.overview.run))
        });
        Ok((runs, unread))
    }

    /// The run of this name.
    pub(super) fn run(&self, RunName { experiment, name }: &RunName) -> Result<Arc<Run>, LabError> {
        let place = match experiment {
            Some(experiment) => below(&self.experiments, experiment, "experiment")?.join("runs"),
            None => within(&self.runs),
        };
        let directory = RunDirectory::new(below(&place, name, "run")?);
        if is_run(&directory) { self.read(&directory) } else { Err(LabError::Unknown { what: "run" }) }
    }

    /// The runs that this server serves with others.
    #[cfg(feature = "cluster")]
    pub(super) fn together(&self) -> Vec<Together> {
        Together::all(&within(&self.runs))
    }

    /// What a change of such a run shows in.
    pub(super) fn together_mark(&self) -> i64 {
        #[cfg(feature = "cluster")]
        return self.together().iter().map(|together| together.shown.told).max().unwrap_or(0);
        #[cfg(not(feature = "cluster"))]
        {
            let _ = self;
            0
        }
    }

    /// The experiments, by name.
    #[cfg(feature = "simulate")]
    pub(super) fn experiments(&self) -> Result<Vec<String>, LabError> {
        if !self.experiments.is_dir() {
            return Ok(Vec::new());
        }
        let mut names: Vec<_> = folders(&self.experiments)?
            .into_iter()
            .filter(|path| path.join("runs").is_dir())
            .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
            .collect();
        names.sort();
        Ok(names)
    }

    /// The runs of an experiment.
    #[cfg(feature = "simulate")]
    pub(super) fn experiment(&self, name: &str) -> Result<Vec<Arc<Run>>, LabError> {
        let place = below(&self.experiments, name, "experiment")?.join("runs");
        if !place.is_dir() {
            return Err(LabError::Unknown { what: "experiment" });
        }
        let mut runs = self.all_in(&place)?.0;
        runs.sort_by(|a, b| a.overview.run.cmp(&b.overview.run));
        Ok(runs)
    }

    /// The database, to read it; `None` before a server has made one. Names of devices are those in it from then on.
    pub(super) fn database(&self) -> Result<Option<Database>, LabError> {
        let database = self.open()?;
        if let Some(database) = &database {
            names::set(Device::names(database)?);
        }
        Ok(database)
    }

    /// The connection that reads.
    fn open(&self) -> Result<Option<Database>, LabError> {
        let mut open = lock(&self.database);
        let file = fs::metadata(self.directory.join(FILE)).ok().filter(Metadata::is_file);
        let Some(now) = file.map(|file| (file.dev(), file.ino())) else {
            *open = None;
            return Ok(None);
        };
        open.take_if(|(file, _)| *file != now);
        if open.is_none() {
            *open = Some((now, Database::open_to_read(&self.directory)?));
        }
        Ok(open.as_ref().map(|(_, database)| database.clone()))
    }

    /// What the database knows of a run; `None` of a simulation.
    pub(super) fn served(&self, run: &Run) -> Result<Option<(Database, StoredRun)>, LabError> {
        let Some(database) = self.database()? else { return Ok(None) };
        let id = run.overview.id.to_string();
        Ok(database.run(&id)?.map(|stored| (database, stored)))
    }

    /// What a change of any run shows in: a number that differs afterwards. It is cheap.
    pub(super) fn rounds_mark(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        let experiments = folders(&self.experiments).unwrap_or_default();
        let places = experiments.into_iter().map(|folder| folder.join("runs"));
        for place in std::iter::once(within(&self.runs)).chain(places) {
            for directory in directories(&place).unwrap_or_default() {
                directory.root().hash(&mut hasher);
                marks(&directory).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// What a change in the database shows in.
    pub(super) fn database_mark(&self) -> (Option<FileId>, i64) {
        let database = self.open().ok().flatten();
        let file = lock(&self.database).as_ref().map(|(file, _)| *file);
        (file, database.and_then(|database| database.foreign_changes().ok()).unwrap_or(0))
    }

    fn read(&self, directory: &RunDirectory) -> Result<Arc<Run>, LabError> {
        let slot = lock(&self.known).entry(directory.root().to_owned()).or_default().clone();
        let mut slot = lock(&slot);
        let now = marks(directory);
        if let Some((_, run)) = slot.as_ref().filter(|(marks, _)| *marks == now) {
            return Ok(run.clone());
        }
        let earlier = slot.take().map(|(_, run)| match Arc::try_unwrap(run) {
            Ok(run) => run.found.into_read_so_far(),
            // A page that is being drawn holds it still.
            Err(run) => run.found.read_so_far(),
        });
        let found = Found::read_on(&Disk, directory, false, earlier)?;
        let overview = Overview::of(directory, &found);
        let run = Arc::new(Run { overview, found });
        *slot = Some((now, run.clone()));
        Ok(run)
    }
}

/// A folder of this name in `place`, and nowhere else.
fn below(place: &Path, name: &str, what: &'static str) -> Result<PathBuf, LabError> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(part)), None) if part == name => Ok(place.join(name)),
        _ => Err(LabError::Unknown { what }),
    }
}

fn folders(place: &Path) -> Result<Vec<PathBuf>, LabError> {
    let list = || -> io::Result<Vec<PathBuf>> {
        let entries: Vec<_> = fs::read_dir(place)?.collect::<io::Result<_>>()?;
        Ok(entries.into_iter().map(|entry| entry.path()).filter(|path| path.is_dir()).collect())
    };
    list().map_err(|error| LabError::List { path: place.to_owned(), error })
}

/// The directories of the runs in `place`; none before there is any.
fn directories(place: &Path) -> Result<Vec<RunDirectory>, LabError> {
    if !place.exists() {
        return Ok(Vec::new());
    }
    Ok(folders(place)?.into_iter().map(RunDirectory::new).filter(is_run).collect())
}

fn marks(directory: &RunDirectory) -> Marks {
    let files = [
        directory.config(),
        directory.rounds(),
        directory.about(),
        directory.devices(),
        directory.by_class(),
        directory.ending(),
        directory.finished(),
        directory.presence(),
        directory.pruned(),
        directory.paused(),
    ];
    let mark = |file: Metadata| file.modified().ok().map(|modified| (modified, file.len()));
    let marks = files.iter().map(|path| fs::metadata(path).ok().and_then(mark)).collect();
    (marks, crate::page::ending::is_worked_on(directory))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_the_directory_of_runs() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let lab = Lab::new(runs.clone(), folder.path().join("none"), folder.path().join("identity"));
        assert!(
            lab.all().is_ok_and(|(runs, unread)| runs.is_empty() && unread.is_empty()),
            "there is none yet"
        );
        for name in ["..", ".", "", "/etc", "../x", "a/b", "a/../..", "./a", "a/"] {
            assert!(matches!(below(&runs, name, "run"), Err(LabError::Unknown { .. })), "{name:?}");
        }
        assert_eq!(below(&runs, "a", "run").unwrap(), runs.join("a"));
        for experiment in [None, Some("b".to_owned()), Some("..".to_owned())] {
            assert!(lab.run(&RunName { experiment, name: "a".to_owned() }).is_err());
        }
        assert!(lab.database().unwrap().is_none());
    }

    #[test]
    fn a_database_that_was_put_back_from_a_backup_is_the_one_that_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let lab = Lab::new(place("runs"), place("experiments"), place("identity"));
        drop(Database::open(&place("identity")).unwrap());
        let shown = || lab.database().unwrap().unwrap().path().is_file();
        assert!(shown());
        let before = lab.database_mark();
        drop(Database::open(&place("backup")).unwrap());
        fs::rename(place("backup").join(FILE), place("identity").join(FILE)).unwrap();
        assert!(shown());
        assert_ne!(lab.database_mark().0, before.0);
    }

    #[test]
    fn a_pause_changes_what_is_shown_of_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let directory = RunDirectory::new(folder.path());
        fs::create_dir(directory.state()).unwrap();
        let before = marks(&directory);
        fs::write(directory.paused(), "").unwrap();
        assert_ne!(marks(&directory), before);
        fs::remove_file(directory.paused()).unwrap();
        assert_eq!(marks(&directory), before);
    }
}
