//! `aggregator runs archive`: a run in one file.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::super::exit::Failure;
use super::super::terminal;
use super::Place;
use crate::report::units::{bytes, counted};
use crate::run::reader;
use crate::runs::archive::archive as write;
use crate::runs::find::find;
use crate::storage::Disk;

#[derive(Debug, Args)]
pub(super) struct ArchiveArgs {
    /// The run: its name, or its directory
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// The file to write, such as mine.tar.gz; in a directory, RUN.tar.gz. No file is replaced
    #[arg(long, value_name = "FILE|DIR")]
    to: PathBuf,
}

pub(super) fn archive(place: &Place, arguments: &ArchiveArgs) -> Result<(), Failure> {
    let directory = find(&place.runs, &arguments.run)?;
    let to = if arguments.to.is_dir() {
        arguments.to.join(format!("{}.tar.gz", directory.name()))
    } else {
        arguments.to.clone()
    };
    let archived = write(&directory, &to)?;
    if place.json {
        return terminal::print_json(&json!({
            "run": directory.name(), "path": directory.root(), "file": to,
            "bytes": archived.bytes, "files": archived.files, "content_bytes": archived.content,
        }));
    }
    let name = directory.name();
    let mut said = format!(
        "{}: {}, {} of {}\nunpack it with  tar xzf {} -C runs\n",
        to.display(),
        bytes(archived.bytes),
        counted(archived.files, "file"),
        bytes(archived.content),
        to.file_name().unwrap_or(to.as_os_str()).to_string_lossy()
    );
    // A run is continued where its name says.
    let called = reader::configuration(&Disk, &directory).ok().flatten().map(|config| config.spec.name);
    if let Some(called) = called.filter(|called| *called != name && !directory.finished().is_file()) {
        let _ = writeln!(
            said,
            "to continue it there, rename the unpacked folder to {called}, the run.name of its configuration"
        );
    }
    terminal::print(&said)
}
