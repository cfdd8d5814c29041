//! Copying of a run into the folder of the collection: it has its name there only when all of it is on disk.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::error::{CollectError, disk};
use crate::run::directory::RunDirectory;
use crate::runs::contents::contents;
use crate::storage::{Disk, FileLayer as _, create_dir_durably, parent};

/// Where runs are copied to before they get their names.
fn draft(out: &Path) -> PathBuf {
    out.join("collecting")
}

/// Lets `fill` write the run `name` into a folder of its own, and gives it its name in the folder `runs` of `out`, where no run has that
/// name then.
///
/// # Errors
/// Those of the disk and of `fill`. The run has no name in `runs` then.
pub fn arrival<E: From<CollectError>>(
    out: &Path,
    name: &str,
    fill: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let draft = draft(out).join(name);
    Disk.remove_dir(&draft).map_err(disk("remove", &draft))?;
    create_dir_durably(&Disk, &draft).map_err(disk("create", &draft))?;
    fill(&draft)?;
    let to = out.join("runs").join(name);
    Disk.sync_dir(&draft).map_err(disk("sync", &draft))?;
    Disk.rename(&draft, &to).map_err(disk("write", &to))?;
    Disk.sync_dir(parent(&to)).map_err(disk("sync", parent(&to)))?;
    Ok(())
}

/// Copies the run `from` into the folder `runs` of `out`, where no run has its name.
///
/// # Errors
/// Those of the disk. The run has no name in `runs` then.
pub fn transfer(from: &RunDirectory, out: &Path) -> Result<(), CollectError> {
    arrival(out, &from.name(), |draft| {
        for entry in contents(from.root())? {
            let to = draft.join(&entry.name);
            if entry.folder {
                Disk.create_dir(&to).map_err(disk("create", &to))?;
                continue;
            }
            let mut source = File::open(&entry.path).map_err(disk("read", &entry.path))?;
            let mut file = Disk.create(&to).map_err(disk("write", &to))?;
            io::copy(&mut source, &mut file).map_err(disk("write", &to))?;
            file.sync().map_err(disk("write", &to))?;
        }
        Ok(())
    })
}

/// Removes what a collection that was cut off has left.
///
/// # Errors
/// Those of the disk.
pub fn clear(out: &Path) -> Result<(), CollectError> {
    let draft = draft(out);
    Disk.remove_dir(&draft).map_err(disk("remove", &draft))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_comes_as_a_whole_without_what_is_of_its_machine() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let from = RunDirectory::new(folder.path().join("there/runs/x--1"));
        let out = folder.path().join("here");
        let write = |path: PathBuf, text: &str| {
            std::fs::create_dir_all(parent(&path)).expect("a folder");
            std::fs::write(path, text).expect("written");
        };
        for (path, text) in [
            (from.model(), "model"),
            (from.identity(), "run"),
            (from.lock(), ""),
            (from.secret(), "secret"),
            (from.state().join("clients/a"), "kept"),
            (from.root().join("report.html.partial"), "half"),
            // As a collection that was cut off leaves it.
            (draft(&out).join("x--1/model.safetensors"), "half"),
            (out.join("runs/y--1/state/run.json"), "another"),
        ] {
            write(path, text);
        }
        transfer(&from, &out).expect("copied");
        clear(&out).expect("removed");
        let to = RunDirectory::new(out.join("runs/x--1"));
        let read = |path: PathBuf| std::fs::read_to_string(path).ok();
        assert_eq!(read(to.model()).as_deref(), Some("model"));
        assert_eq!(read(to.state().join("clients/a")).as_deref(), Some("kept"));
        let left = [to.lock(), to.secret(), to.root().join("report.html.partial"), draft(&out)];
        assert!(!left.iter().any(|path| path.exists()), "{left:?}");
        assert_eq!(Disk.list(&out.join("runs")).expect("readable"), ["x--1", "y--1"]);
    }
}
