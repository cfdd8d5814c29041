//! The page of a run, from what lies in its directory: of any run at any time, also of one that goes on or was killed.
//!
//! | module | what it is |
//! |---|---|
//! | [`about`] | what the page says beside configuration and rounds: machines, data, clients |
//! | [`by_class`] | results by class of the models that a run has left |
//! | [`devices`] | what the devices of a served run have done |
//! | [`ending`] | how the last process has left the run |
//! | [`live`] | the page while a run goes on |

pub mod about;
pub mod by_class;
pub mod devices;
pub mod ending;
pub mod live;

use std::path::Path;

use serde::de::DeserializeOwned;
use shared::id::ClientId;

use crate::config::Config;
use crate::report::by_class::ModelByClass;
use crate::report::devices::{DeviceRow, Devices};
use crate::report::standing::{Standing, planned};
use crate::report::{Report, Summary, render};
use crate::round::RoundRecord;
use crate::round::jsonl::{Bookmark, Rounds};
use crate::run::directory::RunDirectory;
use crate::run::{RunError, reader};
use crate::storage::FileLayer;
use crate::storage::checksum::read_checked;

use about::About;

/// Why a run has no page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// Its files.
    #[error(transparent)]
    Run(#[from] RunError),
    /// There is no run.
    #[error("{} holds no run: name the directory of one, such as runs/NAME", .0.display())]
    NoRun(std::path::PathBuf),
}

/// A run as its directory has it.
pub struct Found {
    /// What it was asked to do.
    pub config: Config,
    /// Its closed rounds.
    pub rounds: Rounds,
    /// How it stands.
    pub standing: Standing,
    /// Since when, if that is known, in UTC.
    pub ended: Option<String>,
    /// What the page says beside, if it was written down.
    pub about: Option<About>,
    devices: Option<Devices>,
    by_class: Vec<ModelByClass>,
    name: String,
    /// How far the rounds were read.
    bookmark: Bookmark,
}

/// The rounds of a run as far as they were read.
#[derive(Debug, Default)]
pub struct ReadSoFar {
    records: Vec<RoundRecord>,
    bookmark: Bookmark,
}

impl Found {
    /// Reads the run in `directory`. `working` says that this process works on it.
    pub fn read(files: &dyn FileLayer, directory: &RunDirectory, working: bool) -> Result<Self, PageError> {
        Self::read_on(files, directory, working, None)
    }

    /// The same of a run of which this was read before: of its rounds those alone that are new.
    pub fn read_on(
        files: &dyn FileLayer,
        directory: &RunDirectory,
        working: bool,
        earlier: Option<ReadSoFar>,
    ) -> Result<Self, PageError> {
        let Some(config) = reader::configuration(files, directory)? else {
            return Err(PageError::NoRun(directory.root().to_owned()));
        };
        let ReadSoFar { records, bookmark } = earlier.unwrap_or_default();
        let (rounds, bookmark) = reader::rounds_on(files, directory, records, bookmark)?.unwrap_or_default();
        let (standing, ended) = ending::standing(files, directory, working);
        let about = About::read(files, directory);
        let devices = devices::read(files, directory);
        // Of a run that goes on again, they are those of a model that is the last no more.
        let by_class = if matches!(standing, Standing::Complete { .. }) {
            by_class::read(files, directory)
        } else {
            Vec::new()
        };
        let name = directory.name().into_owned();
        Ok(Self { config, rounds, standing, ended, about, devices, by_class, name, bookmark })
    }

    /// The rounds, to read on from.
    #[must_use]
    pub fn read_so_far(&self) -> ReadSoFar {
        ReadSoFar { records: self.rounds.records.clone(), bookmark: self.bookmark }
    }

    /// The same, if nothing else is needed of it.
    #[must_use]
    pub fn into_read_so_far(self) -> ReadSoFar {
        ReadSoFar { records: self.rounds.records, bookmark: self.bookmark }
    }

    /// Samples of each class over all simulated clients; `None` of devices, which keep that to themselves.
    #[must_use]
    pub fn samples_by_class(&self) -> Option<Vec<usize>> {
        let clients = self.about.as_ref()?.histograms.as_ref()?;
        let mut sums = vec![0; clients.iter().map(|(_, counts)| counts.len()).max()?];
        for (_, counts) in clients {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        Some(sums)
    }

    /// How the model of this round did by class, if the run has left it and tested it so.
    #[must_use]
    pub fn by_class(&self, round: u32) -> Option<&ModelByClass> {
        self.by_class.iter().find(|model| model.round == round)
    }

    /// What its devices have done, as far as its directory knows it.
    pub fn devices(&self) -> impl Iterator<Item = &DeviceRow> {
        self.devices.iter().flat_map(|devices| &devices.devices)
    }

    /// The names of its devices, as far as its directory knows them.
    pub fn names(&self) -> impl Iterator<Item = (ClientId, String)> {
        self.devices().filter_map(|device| Some((device.device, device.name.clone()?)))
    }

    /// How many rounds of training it has as far as is known: one more for each without a result.
    #[must_use]
    pub fn planned(&self) -> u32 {
        planned(&self.rounds.records, self.config.spec.rounds, &self.standing)
    }

    /// Its figures.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary::of(&self.rounds.records, None)
    }

    /// Its page.
    #[must_use]
    pub fn page(&self) -> String {
        render(&self.report())
    }

    /// What its page shows.
    #[must_use]
    pub fn report(&self) -> Report<'_> {
        let about = self.about.as_ref();
        Report {
            name: &self.name,
            config: &self.config,
            rounds: &self.rounds.records,
            histograms: about.and_then(|about| about.histograms.as_deref()),
            left_out: about.map_or(&[], |about| &about.left_out),
            target: None,
            standing: &self.standing,
            ended: self.ended.as_deref(),
            origin: about.map(|about| &about.origin),
            devices: self.devices.as_ref(),
            by_class: &self.by_class,
        }
    }
}

/// What a file with a checksum holds, if it is there; else why it cannot be read.
fn read_json<T: DeserializeOwned>(files: &dyn FileLayer, path: &Path) -> Result<Option<T>, String> {
    let why = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let json = read_checked(files, path).map_err(|error| why(&error))?;
    json.map(|json| serde_json::from_slice(&json)).transpose().map_err(|error| why(&error))
}
