//! Deletion of a run, in steps that a crash may cut off anywhere.
//!
//! The run gets another name first, in one step: until then it is whole, and from then on no command takes it for a run, and no
//! run is continued in it. Then `state/run.json` is removed, which makes a directory a run, and then the rest.

use std::path::{Path, PathBuf};

use super::error::disk;
use super::{RunsError, claim};
use crate::run::directory::RunDirectory;
use crate::storage::{FileLayer, parent, write_durably};

/// What the name of a run ends with while it is deleted; a number may follow.
const MARK: &str = ".deleting";

/// The file in a run that is being deleted. It is written before the run gets the other name, and is the last to go: no other folder
/// of such a name is taken for the rest of a run.
const MARKER: &str = "deleting";

/// Whether this is the rest of a run whose deletion was cut off; in the end that is an empty folder.
#[must_use]
pub fn is_leftover(path: &Path) -> bool {
    let is_empty = || path.read_dir().is_ok_and(|mut entries| entries.next().is_none());
    is_marked(path) && (path.join(MARKER).is_file() || is_empty())
}

fn is_marked(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let Some((_, number)) = name.rsplit_once(MARK) else { return false };
    let digits = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    number.is_empty() || number.strip_prefix('-').is_some_and(digits)
}

/// Deletes the run in `directory`, or the rest of one.
///
/// # Errors
/// A process works on the run, it is a link, or the disk fails.
pub fn delete(files: &dyn FileLayer, directory: &RunDirectory) -> Result<(), RunsError> {
    let root = directory.root();
    if root.is_symlink() {
        return Err(RunsError::Link { path: root.to_owned() });
    }
    // No process begins to work on it meanwhile.
    let _lock = claim::to_change(files, directory)?;
    let above = parent(root);
    let left = if is_leftover(root) { root.to_owned() } else { free_name(files, root)? };
    if left != root {
        let marker = root.join(MARKER);
        write_durably(files, &marker, |_| Ok(())).map_err(disk("write", &marker))?;
        files.rename(root, &left).map_err(disk("rename", root))?;
        files.sync_dir(above).map_err(disk("sync", above))?;
    }
    let left = RunDirectory::new(left);
    let identity = left.identity();
    files.remove(&identity).map_err(disk("remove", &identity))?;
    for name in files.list(left.root()).map_err(disk("list", left.root()))? {
        let path = left.root().join(&name);
        if name != MARKER {
            let removed = if path.is_symlink() || !path.is_dir() {
                files.remove(&path)
            } else {
                files.remove_dir(&path)
            };
            removed.map_err(disk("remove", &path))?;
        }
    }
    files.remove_dir(left.root()).map_err(disk("remove", left.root()))?;
    files.sync_dir(above).map_err(disk("sync", above))
}

fn free_name(files: &dyn FileLayer, root: &Path) -> Result<PathBuf, RunsError> {
    let marked = |number: u32| {
        let mut name = root.as_os_str().to_owned();
        name.push(MARK);
        if number > 1 {
            name.push(format!("-{number}"));
        }
        PathBuf::from(name)
    };
    let mut number = 1;
    while files.length(&marked(number)).map_err(disk("look at", &marked(number)))?.is_some() {
        number += 1;
    }
    Ok(marked(number))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::storage::Disk;

    fn run(folder: &Path) -> RunDirectory {
        let directory = RunDirectory::new(folder.join("x"));
        fs::create_dir_all(directory.spool()).expect("folders");
        fs::write(directory.identity(), "{}").expect("a file");
        directory
    }

    #[test]
    fn rests_of_deletions_are_known_by_their_names() {
        for name in ["x.deleting", "x.deleting-2", "a.deleting.deleting"] {
            assert!(is_marked(Path::new(name)), "{name}");
        }
        for name in ["x", "x.deleting-", "x.deleting-a", "x.deleting-2b", "deleting"] {
            assert!(!is_marked(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn a_run_goes_whole_and_what_lies_beside_it_stays() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let directory = run(folder.path());
        fs::create_dir(folder.path().join("x.deleting")).expect("the rest of another deletion");
        delete(&Disk, &directory).expect("no process works on it");
        assert!(!directory.root().exists() && folder.path().join("x.deleting").exists());
        delete(&Disk, &RunDirectory::new(folder.path().join("x.deleting")))
            .expect("a rest can be deleted, too");
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 0);
    }

    #[test]
    fn a_run_in_use_and_a_link_stay() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let directory = run(folder.path());
        let lock = Disk.lock(&directory.lock()).expect("it is free");
        let refused = delete(&Disk, &directory).expect_err("a process works on it");
        assert!(matches!(refused, RunsError::InUse { .. }), "{refused}");
        assert!(directory.identity().is_file());
        drop(lock);
        #[cfg(unix)]
        {
            let link = folder.path().join("link");
            std::os::unix::fs::symlink(directory.root(), &link).expect("a link");
            let refused = delete(&Disk, &RunDirectory::new(link)).expect_err("a link");
            assert!(matches!(refused, RunsError::Link { .. }), "{refused}");
            assert!(directory.identity().is_file());
        }
    }
}
