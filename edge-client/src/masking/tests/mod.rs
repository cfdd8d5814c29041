//! Devices in an exchange with a server that is played by hand.

mod refusals;
mod whole;

use std::collections::BTreeMap;
use std::sync::Arc;

use models::{Array, ParamSet};
use shared::aggregation::{Scale, Template};
use shared::algorithm::hidden::{HiddenSum, terms};
use shared::algorithm::{Contribution, ErasedAlgorithm, Round, registry};
use shared::message::{Rounding, TaskKind, TrainReport};
use shared::record::Record;
use shared::secure::{Advertised, Recovery, Sealed, Share};

use super::*;

/// Round 4 of a run that hides each update among those of at least three devices.
const ROUND: u32 = 4;

fn spec() -> Arc<RunSpec> {
    let mut spec = RunSpec::example("fedavg");
    (spec.secure.enabled, spec.secure.min_devices) = (true, 3);
    Arc::new(spec)
}

fn key(index: u8) -> SecretKey {
    SecretKey::from_bytes([index + 1; 32])
}

fn report(index: u8) -> TrainReport {
    TrainReport { samples: 10 + u64::from(index), steps: 3, loss: 0.5, ..TrainReport::default() }
}

/// What a device has trained.
fn update(index: u8) -> Record {
    let mut tensors = ParamSet::new();
    let values =
        |count: u8| (0..count).map(|place| f32::from(index) * 0.3 - f32::from(place) * 1.7).collect();
    tensors.insert("head.fc.weight", Array::new(vec![2, 4], values(8)).unwrap());
    tensors.insert("head.fc.bias", Array::new(vec![2], values(2)).unwrap());
    Record { tensors, ..Record::default() }
}

/// The digest of what all were sent.
const BROADCAST: [u8; 32] = [4; 32];

fn plain(index: u8, round: u32) -> Plain {
    let task = TrainedTask {
        spec: spec(),
        round,
        failed: 0,
        work: TaskKind::TRAIN,
        broadcast: BROADCAST,
        client: key(index).public().client(),
        report: report(index),
        local: None,
    };
    Plain::new(task, update(index))
}

/// A device, with what it has stored and said.
struct Device {
    index: u8,
    machine: Masking,
    stored: Option<Vec<u8>>,
    /// It dies just after it has stored its state so often.
    dies: Option<usize>,
    draws: u8,
    answers: Vec<SecureAnswer>,
    saved: Option<(Update, usize)>,
    failed: Vec<String>,
    warned: Vec<String>,
}

impl Device {
    fn new(index: u8) -> Self {
        let machine = Masking::new(key(index).public().client(), Some(key(index)));
        let (answers, failed, warned) = (Vec::new(), Vec::new(), Vec::new());
        let mut device =
            Self { index, machine, stored: None, dies: None, draws: 0, answers, saved: None, failed, warned };
        device.restart();
        device
    }

    fn client(&self) -> ClientId {
        key(self.index).public().client()
    }

    /// All is lost but what is stored.
    fn restart(&mut self) {
        self.machine = Masking::new(self.client(), Some(key(self.index)));
        assert!(self.machine.wants(spec().run));
        let state = self.stored.as_ref().map(|stored| State::from_bytes(stored).expect("as it was stored"));
        self.machine.load(spec().run, state);
    }

    /// Takes a step in, and gives its answer.
    fn hears(&mut self, attempt: u32, step: SecureStep) -> Option<SecureAnswer> {
        self.hears_in(ROUND, attempt, step)
    }

    fn hears_in(&mut self, round: u32, attempt: u32, step: SecureStep) -> Option<SecureAnswer> {
        let (index, draws) = (self.index, &mut self.draws);
        let mut fresh = || {
            *draws += 1;
            Ok(PartySecret::new([index * 16 + *draws; 32]))
        };
        let actions = self.machine.step(&spec(), (round, attempt), step, &mut fresh);
        self.carry_out(actions)
    }

    fn trains(&mut self) {
        let actions = self.machine.trained(plain(self.index, ROUND));
        self.carry_out(actions);
    }

    fn carry_out(&mut self, actions: Vec<Action>) -> Option<SecureAnswer> {
        let mut answered = None;
        for action in actions {
            match action {
                Action::Keep(state) => {
                    self.stored = Some(state.to_bytes());
                    self.dies = self.dies.map(|left| left.wrapping_sub(1));
                    if self.dies.take_if(|left| *left == 0).is_some() {
                        self.restart();
                        return None;
                    }
                }
                Action::Send(ToServer::Secure { answer, .. }) => {
                    self.answers.push(SecureAnswer::clone(&answer));
                    answered = Some(*answer);
                }
                Action::Send(other) => panic!("{other:?}"),
                Action::Mask(job) => {
                    let actions = self.machine.masked(job.run());
                    self.carry_out(actions);
                }
                Action::Save { update, devices, .. } => self.saved = Some((*update, devices)),
                Action::Fail { failure, .. } => self.failed.push(failure.to_string()),
                Action::Warn { reason, .. } => self.warned.push(reason),
            }
        }
        answered
    }
}

/// The server, in one exchange.
struct Lab {
    attempt: u32,
    said: BTreeMap<ClientId, Advertised>,
    /// What was sealed, by whom it is for and whom it is from.
    sealed: BTreeMap<ClientId, BTreeMap<ClientId, Sealed>>,
    /// The devices that have sealed shares.
    present: Vec<ClientId>,
    shares: BTreeMap<ClientId, Vec<Share>>,
}

impl Lab {
    fn new(attempt: u32) -> Self {
        let (said, sealed, present, shares) = Default::default();
        Self { attempt, said, sealed, present, shares }
    }

    /// An exchange in which all of these have sealed their shares.
    fn shared(attempt: u32, devices: &mut [Device]) -> Self {
        let mut lab = Self::new(attempt);
        for device in devices.iter_mut() {
            lab.asks_for_keys(device);
        }
        for device in devices.iter_mut() {
            lab.asks_for_shares(device);
        }
        lab
    }

    fn asks_for_keys(&mut self, device: &mut Device) {
        if let Some(answer) = device.hears(self.attempt, SecureStep::Advertise) {
            let SecureAnswer::Keys(keys) = answer else { panic!("{answer:?}") };
            assert_eq!(*self.said.entry(keys.client()).or_insert(keys), keys, "the same keys");
        }
    }

    fn neighbours(&self, device: &Device) -> SecureStep {
        let others = self.said.iter().filter(|(client, _)| **client != device.client());
        SecureStep::Neighbours {
            members: self.said.len() as u32,
            neighbours: others.map(|(_, said)| *said).collect(),
        }
    }

    fn asks_for_shares(&mut self, device: &mut Device) {
        if let Some(answer) = device.hears(self.attempt, self.neighbours(device)) {
            let SecureAnswer::Shares(shares) = answer else { panic!("{answer:?}") };
            for (to, sealed) in shares {
                let of_device = self.sealed.entry(to).or_default();
                assert_eq!(*of_device.entry(device.client()).or_insert(sealed), sealed);
            }
            if !self.present.contains(&device.client()) {
                self.present.push(device.client());
            }
        }
    }

    fn mask(&self, device: &Device) -> SecureStep {
        let present = self.sealed.get(&device.client()).into_iter().flatten();
        let present = present.filter(|(from, _)| self.present.contains(from));
        SecureStep::Mask {
            rounding: rounding(),
            present: present.map(|(from, sealed)| (*from, *sealed)).collect(),
        }
    }

    fn reveal(&self, device: &Device, counted: &[ClientId]) -> SecureStep {
        let others: Vec<_> =
            self.present.iter().copied().filter(|client| *client != device.client()).collect();
        let (counted, missing) = others.into_iter().partition(|client| counted.contains(client));
        SecureStep::Reveal { counted, missing }
    }

    fn asks_to_reveal(&mut self, device: &mut Device, counted: &[ClientId]) {
        let answer = device.hears(self.attempt, self.reveal(device, counted));
        let Some(SecureAnswer::Revealed(shares)) = answer else { panic!("{answer:?}") };
        for (of, values) in shares {
            let at = self.place(of, device.client());
            self.shares.entry(of).or_default().push(Share { at, values });
        }
    }

    /// The place of the share of a device's secrets that `holder` has: all are neighbours, in order.
    fn place(&self, of: ClientId, holder: ClientId) -> u8 {
        let mut others = self.said.keys().filter(|client| **client != of);
        if of == holder {
            1
        } else {
            others.position(|client| *client == holder).expect("a neighbour") as u8 + 2
        }
    }

    /// The sum of these devices' updates as the server learns it, encoded, with the sum of their losses.
    fn sum(&self, devices: &[&Device]) -> (Record, f64) {
        let spec = spec();
        let exchange = Exchange { run: spec.run, round: ROUND, attempt: self.attempt };
        let members: BTreeMap<_, _> =
            self.present.iter().map(|client| (*client, self.said[client])).collect();
        let others = |client: &ClientId| self.said.keys().copied().filter(|other| other != client).collect();
        let neighbours = self.said.keys().map(|client| (*client, others(client))).collect();
        let terms = terms(&spec, &rounding(), 0, &BROADCAST);
        let (members, neighbours, share) = (&members, &neighbours, spec.secure.threshold);
        let recovery = Recovery { exchange, terms: &terms, members, neighbours, share };
        let counted: Vec<_> = devices.iter().map(|device| device.client()).collect();
        let masks = recovery.masks(&counted, &self.shares).expect("enough have answered");
        with_round(|algorithm, round| {
            let mut sum = HiddenSum::new(algorithm, round).unwrap();
            for device in devices {
                let (saved, _) = device.saved.as_ref().expect("it is hidden");
                assert_eq!((saved.report.loss, saved.report.samples), (0.0, report(device.index).samples));
                let record = hidden_record(saved);
                assert_eq!(record.scalars::<u32>("an attempt").unwrap(), self.attempt);
                sum.check(&record.integers).unwrap();
                let counts = TrainReport { samples: saved.report.samples.min(11), ..saved.report };
                sum.add(algorithm, round, (device.client(), counts), &record.integers);
            }
            let (partial, losses) = sum.reveal(algorithm, &masks, devices.len()).unwrap();
            (algorithm.encode_partial(partial), losses.expect("they are told"))
        })
    }
}

/// An update counts for at most 11 samples.
fn rounding() -> Rounding {
    Rounding { scale: Scale::agree(1000.0, 600, 10), most_samples: 11 }
}

/// What a server reads of a hidden update.
fn hidden_record(update: &Update) -> Record {
    let payload = update.payload.to_bytes();
    let limits = models::Limits { max_bytes: payload.len() as u64, ..models::Limits::default() };
    Record::read_with_integers(&mut &payload[..], limits).expect("a record")
}

/// The same sum of updates that the server sees.
fn seen(devices: &[&Device]) -> (Record, f64) {
    with_round(|algorithm, round| {
        let mut partial = algorithm.begin(round).unwrap();
        let mut losses = 0.0;
        for device in devices {
            let report =
                TrainReport { samples: report(device.index).samples.min(11), ..report(device.index) };
            let update = algorithm.check(round, update(device.index)).unwrap();
            let contribution =
                Contribution { client: device.client(), weight: report.samples, report, update };
            algorithm.fold(&mut partial, contribution, round);
            losses += report.loss;
        }
        (algorithm.encode_partial(partial), losses)
    })
}

fn with_round<T>(work: impl FnOnce(&dyn ErasedAlgorithm, &Round<'_>) -> T) -> T {
    let spec = spec();
    let algorithm = registry::build(&spec.algorithm).unwrap();
    let template =
        Template::of_updates(spec.architecture.parameter_specs().unwrap(), spec.aggregation.buffers);
    let scale = rounding().scale;
    let (number, failed, clients, private) = (ROUND, 0, 0, None);
    let round = Round { number, failed, spec: &spec, template: &template, scale, clients, private };
    work(&*algorithm, &round)
}

/// Devices that have not begun.
fn devices(count: u8) -> Vec<Device> {
    (0..count).map(Device::new).collect()
}
