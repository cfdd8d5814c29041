//! The device's samples: read before it connects, or as the run says.

use std::fmt;
use std::sync::Arc;

use shared::data::View;
use shared::spec::{Reading, RunSpec};

use super::{Connector, Driver, Notice, Store};
use crate::allowance::Allowance;
use crate::failure::Failure;
use crate::session::{DeviceProfile, Event};
use crate::task::{OwnTrainer, TestSamples, Untested, untested};

/// What a device has to learn from.
#[derive(Clone, Debug)]
pub struct DeviceSamples {
    /// Its training samples.
    pub data: View,
    /// Number of training samples that were skipped as unusable when they were read.
    pub skipped: u64,
    /// Its test samples, for runs that ask for tests.
    pub tests: TestSamples,
    /// The owner's own program that reads them, trains and tests: their number alone is known then.
    pub trainer: Option<OwnTrainer>,
}

/// Where the samples come from.
#[derive(Clone)]
pub enum Source {
    /// They are in memory.
    Read(DeviceSamples),
    /// This reads them, once the server has said how. Another run that the device joins later may say it otherwise.
    AsTheRunSays(Arc<ReadSamples>),
}

/// Reads samples.
pub type ReadSamples = dyn Fn(&Reading) -> Result<DeviceSamples, Failure> + Send + Sync;

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(samples) => samples.fmt(f),
            Self::AsTheRunSays(_) => f.write_str("AsTheRunSays"),
        }
    }
}

impl<C: Connector, S: Store> Driver<'_, C, S> {
    /// Reads the samples beside the driver, which stays free to stop.
    pub(super) fn read(&mut self, reading: Reading) {
        self.channel = None;
        // Those of another run: memory for two sets is not counted on.
        self.samples = None;
        if let Source::AsTheRunSays(read) = &self.participant.samples {
            let read = read.clone();
            self.reading = Some(tokio::task::spawn_blocking(move || read(&reading)));
        }
    }

    /// Takes the samples in.
    pub(super) fn samples_read(&mut self, read: Result<DeviceSamples, Failure>) -> Event {
        Event::Read(read.map(|samples| {
            let of_device = DeviceProfile::of(self.participant.client, &samples.data, samples.skipped);
            self.samples = Some(samples);
            self.measure_memory();
            self.participant.bounds(of_device)
        }))
    }

    /// What the samples take is not left for a run: it was not known when the program began.
    fn measure_memory(&mut self) {
        // What reading has freed, or an earlier run, is not taken.
        (self.participant.at_rest)();
        self.participant.memory = self.participant.memory.map(Allowance::anew);
        if let Some(memory) = self.participant.memory {
            self.connector.limit_tasks(memory.left());
        }
    }

    /// Looks beside the driver whether the device can test the run's models: a test split may be large.
    pub(super) fn look_for_tests(&mut self, spec: Arc<RunSpec>) {
        let Some(DeviceSamples { data, tests, trainer, .. }) = self.samples.clone() else { return };
        if trainer.is_some() {
            // What it tests on it says when it is asked.
            return;
        }
        let client = self.participant.client;
        self.looking = Some(tokio::task::spawn_blocking(move || untested(&spec, client, &data, &tests)));
    }

    /// Tells the owner of the device what is missing; the session tells the server.
    pub(super) fn looked_for_tests(&mut self, missing: Option<Untested>) -> Option<Event> {
        let reason = missing?.to_string();
        if self.untested.as_ref() != Some(&reason) {
            (self.notice)(Notice::Untested { reason: reason.clone() });
            self.untested = Some(reason.clone());
        }
        Some(Event::Untested { reason })
    }
}
