//! `aggregator data split`: every client's share as files, for devices or processes that should train on it.

use std::path::PathBuf;

use clap::Args;
use shared::cli::counted;
use shared::data::{Dataset, Split, idx, safetensors};

use super::exit::Failure;
use super::{ConfigArgs, terminal};
use crate::data;

#[derive(Debug, Args)]
pub(super) struct SplitArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// New or empty directory to write to: client-000, client-001, ... and test, if there are test samples
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub(super) fn split(arguments: &SplitArgs) -> Result<(), Failure> {
    let config = arguments.config.validated()?;
    let occupied = std::fs::read_dir(&arguments.out).is_ok_and(|mut entries| entries.next().is_some());
    if occupied {
        return Err(Failure::Environment(format!(
            "{} is not empty: shares of another split would stay among the new ones; name another directory",
            arguments.out.display()
        )));
    }
    let shares = data::shares(&config)?;
    let tests = data::test_samples(&config)?;
    if tests.is_none() {
        terminal::tell("no test samples are there, and the run asks for none");
    }
    let write = |name: String, split: Split, dataset: &Dataset| -> Result<(), Failure> {
        let directory = arguments.out.join(name);
        std::fs::create_dir_all(&directory).map_err(|error| Failure::file("create", &directory, error))?;
        // Grey images in the format that every tool of their field reads, all others in the one that holds anything.
        let write = if idx::fits(dataset) { idx::write_split } else { safetensors::write_split };
        write(&directory, split, dataset)?;
        terminal::print(&format!("{}  {}\n", directory.display(), counted(dataset.len(), "sample")))
    };
    for (index, share) in shares.iter().enumerate() {
        if share.is_empty() {
            // The partition allows it; a device without data has nothing to bring.
            terminal::print(&format!("client {index} has no samples: no directory\n"))?;
            continue;
        }
        write(format!("client-{index:03}"), Split::Train, &share.to_dataset()?)?;
    }
    tests.map_or(Ok(()), |tests| write("test".to_owned(), Split::Test, &tests))
}
