//! `aggregator data describe`: who would have what, before anyone trains.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use shared::data::Split;

use super::exit::Failure;
use super::{ConfigArgs, terminal};
use crate::data;
use crate::report::data_summary::{Description, page, text};
use crate::storage::{Disk, write_durably};

#[derive(Debug, Args)]
pub(super) struct DescribeArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Also write a page with the picture and the numbers of all clients
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(super) fn describe(arguments: &DescribeArgs) -> Result<(), Failure> {
    let config = arguments.config.validated()?;
    let train = Arc::new(data::load(&config, Split::Train)?);
    let tests = data::test_samples(&config)?;
    let shares = data::divide(&config, train.clone())?;
    let description = Description::of(&config, &train, tests.as_ref(), &shares);
    if let Some(path) = &arguments.html {
        let page = page(&description);
        write_durably(&Disk, path, |out| out.write_all(page.as_bytes()))
            .map_err(|error| Failure::file("write", path, error))?;
    }
    terminal::show(arguments.json, &description, || text(&description, terminal::columns()))
}
