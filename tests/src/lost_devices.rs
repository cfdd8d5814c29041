//! Federations whose updates are hidden and that lose devices at a step of a round: to the model of a run without masks.

use std::collections::BTreeSet;
use std::time::Duration;

use models::ParamSet;

use crate::faults::Faults;
use crate::scenario::Scenario;
use crate::simulator::{Loses, Simulator};

/// The round in which devices are lost: in the one before it all connect.
const ROUND: u32 = 2;
/// Virtual time in which that round has to close.
const LIMIT: Duration = Duration::from_hours(24);

/// A number of devices, and the share of them that is lost.
#[derive(Clone, Copy, Debug)]
pub struct Federation {
    /// Devices.
    pub devices: usize,
    /// The share of them that falls silent, at least one if it is not zero.
    pub lost: f64,
}

/// How a round went.
#[derive(Clone, Debug, PartialEq)]
pub struct Lost {
    /// Devices that fell silent.
    pub lost: usize,
    /// Devices whose updates count.
    pub counted: usize,
    /// Whether the round has no result.
    pub void: bool,
    /// Virtual time until it closed.
    pub took: Duration,
    /// Whether the model is that of the run without masks, or that before a round without a result.
    pub same_bits: bool,
}

impl Federation {
    /// How many devices fall silent.
    #[must_use]
    pub fn silent(&self) -> usize {
        (self.devices as f64 * self.lost - 1e-9).ceil() as usize
    }

    /// The fewest devices of a round, with and without masks.
    #[must_use]
    pub fn least(&self) -> usize {
        (self.devices / 2).clamp(3, 10)
    }

    fn scenario(&self, secure: bool) -> Scenario {
        let (least, devices) = (self.least(), self.devices);
        let common = [
            format!("data.clients={devices}"),
            format!("data.max-samples={}", (4 * devices).max(160)),
            format!("round.min-updates={least}"),
            "run.rounds=2".to_owned(),
            "round.timeout=600".to_owned(),
        ];
        let hidden =
            ["secure-aggregation.enabled=true".to_owned(), format!("secure-aggregation.min-devices={least}")];
        let settings = common.iter().chain(hidden.iter().filter(|_| secure));
        Scenario::of_devices(&settings.map(String::as_str).collect::<Vec<_>>())
    }

    /// Loses devices at this step.
    ///
    /// # Panics
    /// If the round does not close.
    #[must_use]
    pub fn lose(&self, step: Loses) -> Lost {
        let folder = tempfile::tempdir().expect("the system has a place for temporary files");
        let mut hidden = Simulator::new(self.scenario(true), Faults::NONE, 0, folder.path());
        self.silence(&mut hidden, step);
        let before = closed(&mut hidden, ROUND - 1);
        let began = hidden.now();
        let after = closed(&mut hidden, ROUND);
        let record = hidden.records().pop().expect("a round was closed");
        let expected = if record.void { before } else { self.without_masks(step) };
        Lost {
            lost: hidden.devices().iter().filter(|device| !device.alive()).count(),
            counted: record.accepted,
            void: record.void,
            took: hidden.now().saturating_sub(began),
            same_bits: after == expected,
        }
    }

    /// The model of a run without masks whose round has the same updates: without those of devices that were lost before they sent any.
    fn without_masks(&self, step: Loses) -> ParamSet {
        let folder = tempfile::tempdir().expect("the system has a place for temporary files");
        let mut plain = Simulator::new(self.scenario(false), Faults::NONE, 0, folder.path());
        if step != Loses::Reveal {
            self.silence(&mut plain, Loses::Update);
        }
        closed(&mut plain, ROUND)
    }

    fn silence(&self, simulator: &mut Simulator, step: Loses) {
        // Spread over all devices: every third of ten, for three tenths.
        let silent: BTreeSet<usize> =
            (0..self.silent()).map(|index| index * self.devices / self.silent()).collect();
        for device in silent {
            simulator.lose(device, ROUND, step);
        }
    }
}

/// The model when this round has closed.
fn closed(simulator: &mut Simulator, round: u32) -> ParamSet {
    while simulator.server().is_none_or(|server| server.run().closed() < round) {
        assert!(simulator.now() < LIMIT, "round {round} does not close");
        simulator.step();
    }
    simulator.model()
}
