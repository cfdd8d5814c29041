//! The roster after a restart: all clients known before, whether or not they come back. The sums of the next round are made for all
//! of them, so that the model of a run that was killed is that of one that was not, to the bit.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use aggregator::config::Config;
use aggregator::coordinator::{Event, Outcome, PeerId};
use aggregator::storage::Disk;
use federation_tests::raw_peer::{hello, update_header};
use federation_tests::scenario::Scenario;
use federation_tests::server::Server;
use models::{ParamSet, Precision};
use shared::id::ClientId;
use shared::message::ToServer;
use shared::record::Record;
use shared::seed::Seed;

/// Samples of each client that trains.
const SAMPLES: u64 = 10;
/// Of one that does not: next to this the others weigh little.
const MANY: u64 = 1_000_000;

/// An aggregator on a disk, and clients who do as they are told.
struct Bench {
    folder: tempfile::TempDir,
    config: Config,
    server: Option<Server>,
    now: Duration,
    connections: u64,
}

fn client(number: u8) -> ClientId {
    ClientId::from_bytes([number; 16])
}

impl Bench {
    fn start(clients: usize) -> Self {
        let clients = format!("data.clients={clients}");
        let config = Scenario::small(&[
            &clients,
            "round.min-updates=2",
            "run.rounds=2",
            "round.reconnect-grace=5",
            // A cap would make the client of many samples one of few.
            "round.max-weight-ratio=0",
            "round.max-weight-share=1",
        ])
        .config;
        let folder = tempfile::tempdir().unwrap();
        let mut bench = Self { folder, config, server: None, now: Duration::ZERO, connections: 0 };
        bench.starts();
        bench
    }

    fn starts(&mut self) {
        let server =
            Server::start(Arc::new(Disk), self.folder.path(), self.config.clone(), self.now).unwrap();
        self.server = Some(server);
        self.give(Event::Tick);
    }

    /// `kill -9`, and the same command again. All that was asked of the disk was done.
    fn is_killed(&mut self) {
        self.server = None;
        self.starts();
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    fn give(&mut self, event: Event) {
        let server = self.server.as_mut().unwrap();
        server.handle(self.now, event).unwrap();
        while server.is_busy() {
            for event in server.make().unwrap() {
                server.handle(self.now, event).unwrap();
            }
        }
    }

    fn passes(&mut self, time: Duration) {
        self.now += time;
        self.give(Event::Tick);
    }

    fn joins(&mut self, number: u8, samples: u64) -> PeerId {
        self.connections += 1;
        let peer = PeerId(self.connections);
        let message = ToServer::Hello(hello(client(number), samples, &[1, 28, 28], 10));
        self.give(Event::Message { peer, message });
        peer
    }

    fn leaves(&mut self, peer: PeerId) {
        self.give(Event::Disconnected { peer });
    }

    /// Something of its own, the same every time.
    fn delivers(&mut self, peer: PeerId, number: u8, round: u32) {
        let seed = Seed::root(u64::from(number)).derive_numbered("round", u64::from(round));
        let architecture = &self.server().run().spec().architecture;
        let tensors = architecture.initialise(|tensor| seed.derive(tensor).rng()).unwrap();
        let payload = Record { tensors, ..Record::default() }.to_bytes(Precision::F32);
        let server = self.server.as_mut().unwrap();
        let event = server.upload(peer, update_header(round, SAMPLES), &payload, true).unwrap();
        self.give(event);
    }

    /// The model of the run that is over.
    fn model(&self) -> ParamSet {
        let server = self.server();
        assert_eq!(server.outcome, Some(Outcome::Completed), "{}", server.coordinator().status(self.now));
        assert!(server.run().records().iter().all(|round| round.accepted == 2));
        server.run().current_model().unwrap()
    }
}

/// Clients 1 and 2 train two rounds. A third comes and goes: before the first round, or while it is open. If `killed`, the
/// aggregator is killed then, and the third is never seen again.
fn with_a_passer_by(before: bool, killed: bool) -> Bench {
    let mut bench = Bench::start(2);
    let peers = (!before).then(|| [1, 2].map(|number| bench.joins(number, SAMPLES)));
    let third = bench.joins(3, MANY);
    bench.leaves(third);
    if killed {
        bench.is_killed();
    }
    let peers =
        peers.filter(|_| !killed).unwrap_or_else(|| [1, 2].map(|number| bench.joins(number, SAMPLES)));
    for round in 1..=2 {
        if killed && (round == 2 || before) {
            // The third might come back.
            bench.passes(bench.config.policy.reconnect_grace);
        }
        for (peer, number) in peers.into_iter().zip(1..) {
            bench.delivers(peer, number, round);
        }
    }
    bench
}

#[test]
fn clients_that_came_and_went_before_a_kill_count_in_the_sums_after_it() {
    for before in [true, false] {
        let (undisturbed, killed) = (with_a_passer_by(before, false), with_a_passer_by(before, true));
        let known = killed.server().continued().roster.get(&client(3));
        assert_eq!(known, Some(&MANY), "before: {before}");
        assert!(undisturbed.model() == killed.model(), "before: {before}: the model is another one");
        let alone = {
            let mut bench = Bench::start(2);
            let peers = [1, 2].map(|number| bench.joins(number, SAMPLES));
            for round in 1..=2 {
                for (peer, number) in peers.into_iter().zip(1..) {
                    bench.delivers(peer, number, round);
                }
            }
            bench.model()
        };
        assert!(alone != undisturbed.model(), "the third makes a difference, or nothing was tested");
    }
}

/// Clients 1, 2 and 3 are to train two rounds. The third is revoked while the first one is open.
fn with_one_revoked(killed: bool) -> Bench {
    let mut bench = Bench::start(3);
    let mut peers = [1, 2].map(|number| bench.joins(number, SAMPLES));
    bench.joins(3, SAMPLES);
    bench.give(Event::Revoked { client: client(3) });
    bench.delivers(peers[0], 1, 1);
    if killed {
        bench.is_killed();
        peers = [bench.joins(1, SAMPLES), bench.joins(2, SAMPLES)];
    }
    // At once: clients that will not come are not waited for.
    bench.delivers(peers[1], 2, 1);
    bench.delivers(peers[0], 1, 2);
    bench.delivers(peers[1], 2, 2);
    bench
}

#[test]
fn a_client_revoked_before_a_kill_is_not_waited_for_after_it() {
    let (undisturbed, killed) = (with_one_revoked(false), with_one_revoked(true));
    assert!(!killed.server().continued().roster.contains_key(&client(3)));
    assert!(undisturbed.model() == killed.model(), "the model is another one");
}

#[test]
fn a_state_directory_without_a_roster_of_its_own_is_continued_and_a_damaged_one_is_told() {
    for damage in [None, Some("")] {
        let mut bench = Bench::start(2);
        for number in 1..=2 {
            bench.joins(number, SAMPLES);
        }
        let third = bench.joins(3, MANY);
        bench.leaves(third);
        let roster = bench.server().run().directory().roster();
        assert!(roster.exists());
        bench.server = None;
        match damage {
            // As an older program leaves it.
            None => fs::remove_file(&roster).unwrap(),
            Some(damage) => fs::write(&roster, damage).unwrap(),
        }
        bench.starts();
        let resumed = bench.server().continued();
        assert_eq!(
            resumed.roster.keys().copied().collect::<Vec<_>>(),
            [1, 2].map(client),
            "as round 1 opened"
        );
        let told = bench.server().run().warnings().join("");
        assert_eq!(told.contains("roster.json is damaged"), damage.is_some(), "{told:?}");
        let peers = [1, 2].map(|number| bench.joins(number, SAMPLES));
        for round in 1..=2 {
            for (peer, number) in peers.into_iter().zip(1..) {
                bench.delivers(peer, number, round);
            }
        }
        bench.model();
    }
}
