//! The aggregator's lives in the world.

use std::ops::Range;
use std::sync::Arc;

use aggregator::coordinator::{Event, Outcome, PeerId, Resume};
use aggregator::files::Disk;
use aggregator::report::{RoundRecord, jsonl};
use aggregator::run::Run;
use aggregator::run::directory::RunDirectory;
use models::ParamSet;
use rand::RngExt as _;
use shared::message::{ToClient, Verdict};

use super::queue::Happening;
use super::{World, across};
use crate::faulty_disk::{FaultyDisk, Loss};
use crate::server::{Effect, Server};

impl World {
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
            Some(server) => server.run().published(),
            None => self.read_back().published(),
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
        let (fatal, loss) = self.deaths.pop_front().unwrap_or((usize::MAX, Loss::Nothing));
        self.disk = self.disk.next_life(fatal, loss);
        match Server::start(Arc::new(self.disk.clone()), &self.runs, self.scenario.config.clone(), self.now) {
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
            assert!(kept, "the accepted update of {} in round {round} is gone: {resume:?}", client.short());
        }
    }

    pub(super) fn server_event(&mut self, event: Event) {
        if self.server.is_some() && self.chance.random_bool(self.weather.server_crash) {
            self.server_dies();
            return;
        }
        let Some(server) = &mut self.server else { return };
        match server.handle(self.now, event) {
            Err(_) => self.server_dies(),
            Ok(effects) => {
                self.outcome.clone_from(&server.outcome);
                for effect in effects {
                    match effect {
                        Effect::Deliver(peer, message, payload) => {
                            let message = across(&message);
                            if let (
                                ToClient::Receipt { round, verdict: Verdict::Accepted },
                                Some(connection),
                            ) = (&message, self.connections.get(&peer))
                            {
                                self.promised.insert((*round, self.devices[connection.device].client()));
                            }
                            self.deliver(
                                peer,
                                1,
                                |message, payload| Happening::ToDevice {
                                    peer,
                                    message: Box::new(message),
                                    payload,
                                },
                                message,
                                payload,
                            );
                        }
                        Effect::Cut(peer) => self.cut(peer),
                    }
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
        let peers: Vec<PeerId> = self.connections.keys().copied().collect();
        for peer in peers {
            self.cut(peer);
        }
        let downtime = self.draw(self.weather.downtime);
        self.schedule(downtime, Happening::ServerStarts);
    }
}
