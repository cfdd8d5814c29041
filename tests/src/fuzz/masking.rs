//! The device's part in secure aggregation by a list of operations: the steps of a server that asks for anything in any order, trainings,
//! receipts, restarts.
//!
//! Regardless of what the server asks: in one round the device sends one masked update and one list of shares that it reveals, and in one exchange
//! one list of shares of its secrets.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use arbitrary::{Arbitrary, Unstructured};
use edge_client::masking::{Action, Masking, Plain, State, TrainedTask};
use models::{Array, ParamSet};
use shared::aggregation::Scale;
use shared::frame;
use shared::id::ClientId;
use shared::identity::SecretKey;
use shared::message::{Rounding, SecureAnswer, SecureStep, TaskKind, ToServer, TrainReport};
use shared::record::Record;
use shared::secure::{Advertised, Exchange, Party, PartySecret, Sealed};
use shared::seed::Seed;
use shared::spec::RunSpec;

use super::Seen;
use crate::keys::device_key;

/// Operations of one list.
const MOST: usize = 200;
/// Devices, of which the first one is fuzzed.
const DEVICES: u8 = 5;

#[derive(Arbitrary, Debug)]
enum Op {
    /// A step of a server that knows what it does, about those of the devices whose bits are set.
    Asks {
        round: u8,
        attempt: u8,
        step: u8,
        about: u8,
    },
    /// Any step.
    Hears {
        round: u8,
        attempt: u8,
        step: Vec<u8>,
    },
    Trained {
        round: u8,
    },
    Cancelled,
    Over {
        round: u8,
    },
    /// The process dies, and the next one finds what is in the store.
    Restarts,
}

fn spec() -> Arc<RunSpec> {
    static SPEC: OnceLock<Arc<RunSpec>> = OnceLock::new();
    let spec = || {
        let mut spec = RunSpec::example("fedavg");
        (spec.secure.enabled, spec.secure.min_devices) = (true, 3);
        Arc::new(spec)
    };
    SPEC.get_or_init(spec).clone()
}

fn key(device: u8) -> SecretKey {
    static KEYS: OnceLock<Vec<SecretKey>> = OnceLock::new();
    KEYS.get_or_init(|| (0..DEVICES).map(|device| device_key(device.into())).collect())[usize::from(device)]
        .clone()
}

struct Driver {
    machine: Masking,
    stored: Option<Vec<u8>>,
    draws: u64,
    /// What it has said of itself, by exchange.
    keys: BTreeMap<(u32, u32), Advertised>,
    shares: BTreeMap<(u32, u32), SecureAnswer>,
    revealed: BTreeMap<u32, SecureAnswer>,
    hidden: BTreeMap<u32, Vec<u8>>,
    refused: usize,
}

impl Driver {
    fn new() -> Self {
        let mut driver = Self {
            machine: Masking::new(key(0).public().client(), Some(key(0))),
            stored: None,
            draws: 0,
            keys: BTreeMap::new(),
            shares: BTreeMap::new(),
            revealed: BTreeMap::new(),
            hidden: BTreeMap::new(),
            refused: 0,
        };
        driver.restarts();
        driver
    }

    fn restarts(&mut self) {
        self.machine = Masking::new(key(0).public().client(), Some(key(0)));
        let state = self.stored.as_ref().map(|stored| State::from_bytes(stored).expect("as it was stored"));
        self.machine.load(spec().run, state);
    }

    fn hears(&mut self, round: u32, attempt: u32, step: SecureStep) {
        let draws = &mut self.draws;
        let mut fresh = || {
            *draws += 1;
            Ok(PartySecret::new(*Seed::root(*draws).as_bytes()))
        };
        let actions = self.machine.step(&spec(), (round, attempt), step, &mut fresh);
        self.carry_out(actions);
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Keep(state) => {
                    let bytes = state.to_bytes();
                    assert_eq!(State::from_bytes(&bytes).as_ref(), Some(&state));
                    self.stored = Some(bytes);
                }
                Action::Send(message) => {
                    // It panics where a message is too long for a frame.
                    drop(frame::encode(&message, 0));
                    let ToServer::Secure { round, attempt, answer } = message else {
                        panic!("not of an exchange: {message:?}")
                    };
                    self.sends((round, attempt), &answer);
                }
                Action::Mask(job) => {
                    let actions = self.machine.masked(job.run());
                    self.carry_out(actions);
                }
                Action::Save { update, devices, .. } => {
                    assert!(devices >= 3, "hidden among {devices} devices");
                    let bytes = update.payload.to_bytes().to_vec();
                    let before = self.hidden.entry(update.id.round).or_insert_with(|| bytes.clone());
                    assert!(*before == bytes, "two masked updates of one round");
                }
                Action::Fail { .. } | Action::Warn { .. } => self.refused += 1,
            }
        }
    }

    fn sends(&mut self, exchange: (u32, u32), answer: &SecureAnswer) {
        match answer {
            SecureAnswer::Keys(said) => {
                assert_eq!(*self.keys.entry(exchange).or_insert(*said), *said, "other keys");
            }
            SecureAnswer::Shares(_) => {
                let before = self.shares.entry(exchange).or_insert_with(|| answer.clone());
                assert!(before == answer, "two lists of shares in one exchange");
            }
            SecureAnswer::Revealed(_) => {
                let before = self.revealed.entry(exchange.0).or_insert_with(|| answer.clone());
                assert!(before == answer, "two lists are revealed in one round");
            }
        }
    }

    /// A step as an honest server would take it with the devices of these bits, or with one less here and there.
    fn asks(&mut self, round: u32, attempt: u32, step: u8, about: u8) {
        let exchange = Exchange { run: spec().run, round, attempt };
        let others: Vec<u8> = (1..DEVICES).filter(|device| about & (1 << device) != 0).collect();
        let party = |device: u8| {
            let seed = Seed::root(device.into()).derive_numbered("round", round.into());
            let seed = seed.derive_numbered("attempt", attempt.into());
            Party::new(exchange, key(device).public().client(), PartySecret::new(*seed.as_bytes()))
        };
        let said = |device: u8| party(device).advertise(&key(device));
        let mut neighbours: Vec<Advertised> = others.iter().map(|device| said(*device)).collect();
        neighbours.sort_by_key(Advertised::client);
        let step = match step % 4 {
            0 => SecureStep::Advertise,
            1 => SecureStep::Neighbours { members: neighbours.len() as u32 + 1, neighbours },
            2 => {
                let Some(own) = self.keys.get(&(round, attempt)).copied() else { return };
                let threshold = spec().secure.threshold;
                let sealed = |device: &u8| -> Option<(ClientId, Sealed)> {
                    let all: Vec<_> =
                        (1..DEVICES).filter(|other| other != device).map(said).chain([own]).collect();
                    let shares = party(*device).shares(&all, threshold).ok()?;
                    let sealed = shares.into_iter().find(|(to, _)| *to == own.client())?.1;
                    Some((key(*device).public().client(), sealed))
                };
                let mut present: Vec<_> = others.iter().filter_map(sealed).collect();
                present.sort_by_key(|(client, _)| *client);
                let scale = Scale::agree(1000.0, 600, 10);
                SecureStep::Mask { rounding: Rounding { scale, most_samples: 11 }, present }
            }
            _ => {
                let all = (1..DEVICES).map(|device| (device, key(device).public().client()));
                let (counted, missing): (Vec<_>, Vec<_>) =
                    all.partition(|(device, _)| others.contains(device));
                let clients = |list: Vec<(u8, ClientId)>| {
                    let mut clients: Vec<_> = list.into_iter().map(|(_, client)| client).collect();
                    clients.sort();
                    clients
                };
                SecureStep::Reveal { counted: clients(counted), missing: clients(missing) }
            }
        };
        self.hears(round, attempt, step);
    }

    fn trained(&mut self, round: u32) {
        let mut tensors = ParamSet::new();
        let array = |shape: &[usize]| {
            let values = (0..shape.iter().product::<usize>()).map(|value| value as f32 * 0.1).collect();
            Array::new(shape.to_vec(), values).expect("as many as the shape has")
        };
        tensors.insert("head.fc.weight", array(&[2, 4]));
        tensors.insert("head.fc.bias", array(&[2]));
        let task = TrainedTask {
            spec: spec(),
            round,
            failed: 0,
            work: TaskKind::TRAIN,
            broadcast: [4; 32],
            client: key(0).public().client(),
            report: TrainReport { samples: 10, steps: 3, loss: 0.5, ..TrainReport::default() },
            local: None,
        };
        let actions = self.machine.trained(Plain::new(task, Record { tensors, ..Record::default() }));
        self.carry_out(actions);
    }

    fn play(&mut self, op: Op) {
        let number = |byte: u8| u32::from(byte % 3);
        match op {
            Op::Asks { round, attempt, step, about } => {
                self.asks(number(round), number(attempt), step, about);
            }
            Op::Hears { round, attempt, step } => {
                if let Ok(step) = frame::decode(&step) {
                    self.hears(number(round), number(attempt), step);
                }
            }
            Op::Trained { round } => self.trained(number(round)),
            Op::Cancelled => self.machine.cancel(),
            Op::Over { round } => {
                let actions = self.machine.over(number(round));
                self.carry_out(actions);
            }
            Op::Restarts => self.restarts(),
        }
    }
}

/// Operations.
///
/// # Panics
/// If the device gives more away than it may.
#[must_use]
pub fn run(bytes: &[u8]) -> Seen {
    let mut input = Unstructured::new(bytes);
    let mut driver = Driver::new();
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        let Ok(op) = Op::arbitrary(&mut input) else { break };
        driver.play(op);
    }
    let few = |count: usize| ["none", "some", "many"][count.min(2)].chars().collect::<Vec<_>>();
    Seen::of(&[driver.keys.len(), driver.shares.len(), driver.hidden.len(), driver.revealed.len()].map(few))
}

/// The steps of an honest exchange, whose training ends at another place in each; and bytes that mean anything.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    // An operation is drawn by the first of its four bytes times the number of operations.
    let op = |index: u32, rest: &[u8]| {
        [&(index * (u32::MAX / 6) + (u32::MAX / 12)).to_le_bytes()[..], rest].concat()
    };
    let asks = |step: u8| op(0, &[1, 0, step, 0b11110]);
    let mut seeds = super::session::noise("masking");
    for place in 0..4 {
        let mut steps: Vec<Vec<u8>> = (0..4).map(asks).collect();
        steps.insert(place, op(2, &[1]));
        seeds.push(steps.concat());
        steps.insert(place + 1, op(5, &[]));
        steps.push(asks(3));
        seeds.push(steps.concat());
    }
    seeds
}
