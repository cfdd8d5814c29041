//! A run in one file, which another machine can unpack and use.
//!
//! The same run gives the same bytes: names are sorted, owners and modes are the same everywhere, and every file has the date at which the
//! run began. It holds the [contents](super::contents) of a run.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder};
use shared::calendar::moment_in;
use tar::{Builder, EntryType, Header};

use super::contents::{Entry, contents};
use super::error::disk;
use super::{RunsError, claim};
use crate::page::about::About;
use crate::run::directory::RunDirectory;
use crate::storage::{Disk, FileLayer as _, parent, write_durably};

/// The date of all files where it is not known when the run began: 1 January 2020.
const LONG_AGO: i64 = 1_577_836_800_000;

/// What an archive holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Archived {
    /// Files in it.
    pub files: usize,
    /// Bytes of these.
    pub content: u64,
    /// Size of the archive.
    pub bytes: u64,
}

/// Writes the run in `directory` to the new file `to`, under its name.
///
/// # Errors
/// A process works on the run, the file exists, or the disk fails: then there is no such file.
pub fn archive(directory: &RunDirectory, to: &Path) -> Result<Archived, RunsError> {
    let exists = || RunsError::Exists { path: to.to_owned() };
    if to.symlink_metadata().is_ok() {
        return Err(exists());
    }
    let _lock = claim::to_read(directory)?;
    let begun = About::read(&Disk, directory).and_then(|about| moment_in(&about.origin.begun));
    let date = u64::try_from(begun.unwrap_or(LONG_AGO) / 1000).unwrap_or_default();
    let entries = contents(directory.root())?;
    let name = name_of(directory.root())?;
    let mut draft = to.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let draft = PathBuf::from(draft);
    let mut failed = None;
    let written = write_durably(&Disk, &draft, |out| {
        pack(out, name, &entries, date)
            .inspect_err(|(path, _)| failed = Some(path.clone()))
            .map_err(|(_, error)| error)
    });
    // A file of that name may have been made meanwhile, and a link never replaces one.
    let placed = written.and_then(|()| place(&draft, to));
    let _ = fs::remove_file(&draft);
    let _ = fs::remove_file(crate::storage::partial(&draft));
    placed.map_err(|error| match failed {
        _ if error.kind() == io::ErrorKind::AlreadyExists => exists(),
        Some(path) if !path.as_os_str().is_empty() => disk("archive", &path)(error),
        _ => disk("write", to)(error),
    })?;
    Disk.sync_dir(parent(to)).map_err(disk("sync", parent(to)))?;
    let sizes = entries.iter().filter(|entry| !entry.folder).map(|entry| entry.bytes);
    let bytes = fs::metadata(to).map_err(disk("look at", to))?.len();
    Ok(Archived { files: sizes.clone().count(), content: sizes.sum(), bytes })
}

/// Gives a complete file its name, unless another one has it.
fn place(draft: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(draft, to) {
        // A file system without links.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists && !to.exists() => fs::rename(draft, to),
        linked => linked,
    }
}

fn name_of(root: &Path) -> Result<&str, RunsError> {
    let name = root.file_name().and_then(|name| name.to_str());
    name.ok_or_else(|| RunsError::Name { path: root.to_owned() })
}

/// Writes the archive; an error names the file that was at work.
fn pack(out: &mut dyn Write, run: &str, entries: &[Entry], date: u64) -> Result<(), (PathBuf, io::Error)> {
    let compressed = GzBuilder::new().write(out, Compression::default());
    let mut archive = Builder::new(compressed);
    let root = Entry { path: PathBuf::new(), name: String::new(), folder: true, bytes: 0 };
    for entry in std::iter::once(&root).chain(entries) {
        let path = Path::new(run).join(&entry.name);
        let added = if entry.folder {
            let mut header = header(EntryType::Directory, 0o755, 0, date);
            archive.append_data(&mut header, path.join(""), io::empty())
        } else {
            File::open(&entry.path).and_then(|file| {
                // The page may have been written again since.
                let mut header = header(EntryType::Regular, 0o644, file.metadata()?.len(), date);
                archive.append_data(&mut header, path, file)
            })
        };
        added.map_err(|error| (entry.path.clone(), error))?;
    }
    let finished = archive.into_inner().and_then(flate2::write::GzEncoder::finish);
    finished.map(drop).map_err(|error| (PathBuf::new(), error))
}

fn header(kind: EntryType, mode: u32, bytes: u64, date: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(bytes);
    header.set_mtime(date);
    header.set_uid(0);
    header.set_gid(0);
    header
}
