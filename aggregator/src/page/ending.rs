//! How a process has left a run: written down at every orderly end, taken back when another process goes on.

use std::io;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use shared::calendar::{moment, utc};
use tracing::warn;

use crate::report::standing::Standing;
use crate::run::directory::RunDirectory;
use crate::run::{RunError, disk};
use crate::storage::FileLayer;
use crate::storage::checksum::{read_checked, write_checked};
use crate::storage::held::is_held_alone;

/// How the last process has left a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// How the run stands since.
    #[serde(flatten)]
    standing: Standing,
    /// When that was, in UTC.
    at: String,
}

/// Writes down that this process leaves the run.
pub fn note(files: &dyn FileLayer, directory: &RunDirectory, standing: &Standing) -> Result<(), RunError> {
    let path = directory.ending();
    let ending = Ending { standing: standing.clone(), at: utc(moment(SystemTime::now())) };
    let json = serde_json::to_vec(&ending).expect("texts are JSON");
    write_checked(files, &path, |out| out.write_all(&json)).map_err(disk("write", &path))
}

/// Takes back what an earlier process has written: this one goes on.
pub fn forget(files: &dyn FileLayer, directory: &RunDirectory) -> Result<(), RunError> {
    let path = directory.ending();
    files.remove(&path).map_err(disk("remove", &path))
}

/// How the run stands, and since when if that is known. `working` says that this process works on it.
pub(super) fn standing(
    files: &dyn FileLayer,
    directory: &RunDirectory,
    working: bool,
) -> (Standing, Option<String>) {
    match read(files, directory) {
        Ok(Some(Ending { standing, at })) => return (standing, Some(at)),
        Ok(None) => {}
        Err(error) => {
            let path = directory.ending();
            warn!("how the last process has left the run cannot be read from {}: {error}", path.display());
        }
    }
    if working || is_worked_on(directory) {
        return (Standing::Running, None);
    }
    // Older versions have left nothing but this.
    let complete = matches!(files.length(&directory.finished()), Ok(Some(_)));
    (if complete { Standing::Complete { early: None } } else { Standing::Interrupted }, None)
}

fn read(files: &dyn FileLayer, directory: &RunDirectory) -> io::Result<Option<Ending>> {
    let json = read_checked(files, &directory.ending())?;
    Ok(json.map(|json| serde_json::from_slice(&json)).transpose()?)
}

/// Whether a process works on the run: it holds the lock.
pub(crate) fn is_worked_on(directory: &RunDirectory) -> bool {
    is_held_alone(&directory.lock())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::round::stopping::EarlyEnd;
    use crate::storage::Disk;

    #[test]
    fn a_run_stands_as_its_last_process_has_left_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let run = RunDirectory::new(folder.path());
        std::fs::create_dir(run.state()).expect("a folder in it");
        let stands = || standing(&Disk, &run, false).0;
        assert_eq!(stands(), Standing::Interrupted);
        assert_eq!(standing(&Disk, &run, true), (Standing::Running, None));
        let lock = Disk.lock(&run.lock()).expect("it is free");
        assert_eq!(stands(), Standing::Running, "another process works on it");
        drop(lock);
        std::fs::write(run.finished(), "").expect("a file in it");
        assert_eq!(stands(), Standing::Complete { early: None }, "of an older version");
        let failed = Standing::Failed { reason: "it diverged".to_owned() };
        let complete = [None, Some(EarlyEnd::Participations)].map(|early| Standing::Complete { early });
        for left in [Standing::Stopped, failed].into_iter().chain(complete) {
            note(&Disk, &run, &left).expect("it can be written");
            assert_eq!(stands(), left);
            assert!(standing(&Disk, &run, true).1.is_some_and(|at| at.ends_with('Z')));
        }
        forget(&Disk, &run).expect("it can be removed");
        assert_eq!(standing(&Disk, &run, true).0, Standing::Running, "it goes on");
    }
}
