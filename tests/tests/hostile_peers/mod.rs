//! Hostile peers over real QUIC, against a real `serve` with honest clients in it.
//! Each hears what was wrong with it, the honest ones notice nothing, and the rounds count right.

mod exhaustion;
mod flood;
mod garbage;
mod places;
mod posing;
mod silent_flood;

use aggregator::coordinator::Outcome;
use federation_tests::gate::Gate;
use federation_tests::in_process::InProcessServer;
use federation_tests::keys::device_key;
use federation_tests::raw_peer::hello;
use federation_tests::scenario::Scenario;
use shared::identity::SecretKey;
use shared::message::{Hello, Verdict};

const SHAPE: [usize; 3] = [1, 28, 28];
/// Samples of every client in these federations.
const SAMPLES: u64 = 10;

/// A federation of this number of clients with ten samples each.
fn in_process(clients: u32, overrides: &[&str]) -> (tempfile::TempDir, InProcessServer) {
    let directory = tempfile::tempdir().unwrap();
    let sizes = [format!("data.clients={clients}"), format!("data.max-samples={}", 10 * clients)];
    let sizes = sizes.iter().map(String::as_str);
    let overrides: Vec<&str> = sizes.chain(overrides.iter().copied()).collect();
    let in_process = InProcessServer::start(Scenario::small(&overrides), &directory.path().join("run"));
    (directory, in_process)
}

/// The key of an unknown peer.
fn stranger_key(number: u8) -> SecretKey {
    device_key(1000 + u32::from(number))
}

/// The hello of an unknown peer: its identity is in no simulated federation.
fn stranger(number: u8) -> Hello {
    hello(stranger_key(number).public().client(), SAMPLES, &SHAPE, 10)
}

/// Two honest clients, held in the first round.
fn honest(in_process: &InProcessServer) -> [Gate; 2] {
    [in_process.gate(0), in_process.gate(1)]
}

/// The honest two finish `rounds` rounds, in each of which exactly their updates count.
fn assert_finished(
    in_process: InProcessServer,
    gates: &[Gate; 2],
    held: Vec<federation_tests::gate::Held>,
    rounds: u32,
) {
    let mut held = held;
    for round in 1..=rounds {
        for held in held.drain(..) {
            assert_eq!(held.round, round);
            held.open();
        }
        for gate in gates {
            assert_eq!(gate.receipt(round), Verdict::Accepted);
        }
        if round < rounds {
            held = gates.iter().map(Gate::held).collect();
        }
    }
    assert_counts(in_process, &vec![(2, 0, 0); rounds as usize]);
}

/// The run completes with these numbers of updates accepted, rejected and discarded in each round.
fn assert_counts(in_process: InProcessServer, expected: &[(usize, usize, usize)]) {
    let (outcome, records, model) = in_process.end();
    assert_eq!(outcome, Outcome::Completed);
    let counts: Vec<_> =
        records.iter().map(|round| (round.accepted, round.rejected, round.discarded)).collect();
    assert_eq!(counts, expected);
    assert_eq!(model.first_non_finite(), None);
}
