//! Crashes and restarts of the simulated aggregator.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aggregator::coordinator::{Event, Outcome, PeerId, Resume};
use aggregator::round::{RoundRecord, jsonl};
use aggregator::run::Run;
use aggregator::run::directory::RunDirectory;
use aggregator::storage::Disk;
use models::ParamSet;
use rand::RngExt as _;
use shared::message::{ToClient, Verdict};

use super::clock::Clock;
use super::queue::Happening;
use super::{Simulator, across};
use crate::faults::Faults;
use crate::faulty_disk::{FaultyDisk, Loss};
use crate::scenario::Scenario;
use crate::server::{Effect, Server};

/// Disk operations among which a drawn death or want of room falls; a run of three rounds has some 200.
const DISK_LIFE: usize = 250;

/// The longest that a run may take, in virtual time.
const LIMIT: Duration = Duration::from_hours(24);

/// The model of a run under these faults.
///
/// # Panics
/// If the run does not complete.
#[must_use]
pub fn model_of(scenario: &Scenario, faults: Faults, seed: u64) -> ParamSet {
    let directory = tempfile::tempdir().expect("the system has a place for temporary files");
    Simulator::completed(scenario, faults, seed, directory.path()).model()
}

impl Simulator {
    /// A run under these faults to its end, in a directory under `runs`.
    ///
    /// # Panics
    /// If it does not complete.
    #[must_use]
    pub fn completed(scenario: &Scenario, faults: Faults, seed: u64, runs: &Path) -> Self {
        let mut simulator = Self::new(scenario.clone(), faults, seed, runs);
        let outcome = simulator.run_until_end(LIMIT);
        assert_eq!(outcome, Some(Outcome::Completed), "seed {seed} at {:?}", simulator.now());
        simulator
    }

    /// The aggregator's first life ends at the disk operation `fatal` of that life; given again, so does the next one.
    pub fn die_at(&mut self, fatal: usize, loss: Loss) {
        self.deaths.push_back((fatal, loss));
    }

    /// At these disk operations of each life of the aggregator there is no room.
    pub fn fill_during(&mut self, operations: Range<usize>) {
        self.disk = self.disk.clone().full_during(operations);
    }

    /// The disk of the aggregator's present life.
    #[must_use]
    pub fn disk(&self) -> &FaultyDisk {
        &self.disk
    }

    /// The aggregator's directory.
    #[must_use]
    pub fn run_directory(&self) -> RunDirectory {
        RunDirectory::new(self.runs.join(&self.scenario.config.spec.name))
    }

    /// The global model of the ended run.
    ///
    /// # Panics
    /// If the aggregator is dead or its checkpoint cannot be read.
    #[must_use]
    pub fn model(&self) -> ParamSet {
        let model = match &self.server {
            // A death that was drawn may fall on this very read: it is one with the run complete.
            Some(server) => server.run().current_model().or_else(|_| self.read_back().current_model()),
            None => self.read_back().current_model(),
        };
        model.expect("the checkpoint can be read")
    }

    /// The closed rounds of the ended run, as they are written down.
    ///
    /// # Panics
    /// If they cannot be read.
    #[must_use]
    pub fn records(&self) -> Vec<RoundRecord> {
        let text = std::fs::read_to_string(self.run_directory().rounds()).expect("rounds were closed");
        jsonl::read(&text).expect("whole lines").records
    }

    /// The run of an aggregator that died with the run complete, and has nothing to do when it is started again.
    fn read_back(&self) -> Run {
        let resumed = Run::resume(Arc::new(Disk), self.run_directory(), self.scenario.config.clone(), None);
        resumed.expect("a complete run can be read").0
    }

    pub(super) fn start_server(&mut self) {
        if self.run_directory().finished().exists() {
            self.outcome = Some(Outcome::Completed);
            return;
        }
        let (fatal, loss) = match self.deaths.pop_front() {
            Some(death) => death,
            None if self.happens(self.faults.disk_death) => {
                let seed = self.chance.random();
                let loss = if self.chance.random() { Loss::Some(seed) } else { Loss::Nothing };
                (self.chance.random_range(0..DISK_LIFE), loss)
            }
            None => (usize::MAX, Loss::Nothing),
        };
        self.disk = self.disk.next_life(fatal, loss);
        if self.happens(self.faults.full) {
            let from = self.chance.random_range(0..DISK_LIFE);
            self.disk = self.disk.clone().full_during(from..from + self.chance.random_range(1..20));
        }
        self.server_clock = Clock::beginning(self.now);
        self.step_is_due = false;
        self.begun.clear();
        let disk = Arc::new(self.disk.clone());
        match Server::start(disk, &self.runs, self.scenario.config.clone(), Duration::ZERO) {
            Ok(mut server) => {
                if let Some(database) = &self.database
                    && server.enter(database).is_err()
                {
                    self.server_dies();
                    return;
                }
                if self.server_deaths > 0 {
                    self.keeps_its_word(server.continued());
                    self.resumes.push(server.continued().clone());
                }
                self.server = Some(server);
                // A resumed machine may have something to do at once.
                self.server_event(Event::Tick);
            }
            Err(_) => self.server_dies(),
        }
    }

    /// A restart takes nothing back that a device was told.
    fn keeps_its_word(&self, resume: &Resume) {
        for (round, client) in &self.promised {
            let open = resume.open.as_ref().filter(|open| open.opening.round == *round);
            let kept = *round <= resume.closed
                || self.forgiving
                || open.is_some_and(|open| open.accepted.contains(client));
            assert!(
                kept,
                "the accepted update of {} in round {round} is missing: {resume:?}",
                client.short()
            );
        }
    }

    pub(super) fn server_event(&mut self, event: Event) {
        if self.server.is_some() && self.happens(self.faults.server_crash) {
            // Its last step may have been done without being reported.
            if self.chance.random()
                && let Some(server) = &mut self.server
            {
                let _ = server.make();
            }
            self.server_dies();
            return;
        }
        if self.happens(self.faults.jump) {
            let by = self.draw(self.faults.farthest);
            self.server_clock.jump(by);
            self.troubles.jumps += 1;
        }
        let now = self.server_clock.read(self.now);
        let Some(server) = &mut self.server else { return };
        match server.handle(now, event) {
            Err(_) => self.server_dies(),
            Ok(effects) => {
                self.outcome.clone_from(&server.outcome);
                self.server_effects(effects);
                self.go_on_with_steps();
            }
        }
    }

    /// Sees to it that the next durable step is made, now or when the disk has had its time.
    fn go_on_with_steps(&mut self) {
        if self.step_is_due || !self.server.as_ref().is_some_and(Server::is_busy) {
            return;
        }
        if self.faults.disk.is_zero() {
            self.make_step();
        } else {
            self.step_is_due = true;
            let takes = self.draw(self.faults.disk);
            self.schedule(takes, Happening::StepIsMade { server_life: self.server_deaths });
        }
    }

    pub(super) fn make_step(&mut self) {
        let Some(server) = &mut self.server else { return };
        match server.make() {
            Err(_) => self.server_dies(),
            Ok(events) => events.into_iter().for_each(|event| self.server_event(event)),
        }
    }

    fn server_effects(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Deliver(peer, message, payload) => {
                    let message = across(&message);
                    if let (ToClient::Receipt { round, verdict: Verdict::Accepted }, Some(connection)) =
                        (&message, self.connections.get(&peer))
                    {
                        self.promised.insert((*round, self.devices[connection.device].client()));
                    }
                    self.deliver_to_device(peer, message, payload);
                }
                Effect::Cut(peer) => self.cut(peer),
                Effect::StateDiffers { client, server, device } => {
                    self.told.push((client, server, device));
                }
            }
        }
    }

    /// Kills the aggregator. It starts again as time passes.
    pub fn kill_server(&mut self) {
        self.server_dies();
    }

    pub(super) fn server_dies(&mut self) {
        self.server = None;
        self.server_deaths += 1;
        self.step_is_due = false;
        let peers: Vec<PeerId> = self.connections.keys().copied().collect();
        for peer in peers {
            self.cut(peer);
        }
        let downtime = self.draw(self.faults.downtime);
        self.schedule(downtime, Happening::ServerStarts);
    }
}
