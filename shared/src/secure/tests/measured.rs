//! What an exchange of many devices with a large model costs each side.

use std::time::Instant;

use models::{Architecture, Array, Limits, ParamSet, Precision};

use super::*;
use crate::aggregation::{Scale, Template};
use crate::algorithm::hidden::{Cover, HiddenSum, masked};
use crate::algorithm::{Round as RoundOf, registry};
use crate::message::TrainReport;
use crate::record::Record;
use crate::secret::Secret;
use crate::spec::RunSpec;

const DEVICES: usize = 100;
const LOST: usize = 10;

fn seconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}

/// A run of `cnn-mnist`, which has 1.66 M parameters.
fn spec() -> RunSpec {
    let architecture = Architecture::by_name("cnn-mnist", &[1, 28, 28], 10).expect("a model that there is");
    RunSpec { architecture, ..RunSpec::example("fedavg") }
}

/// An update of it.
fn update_of(template: &Template) -> Record {
    let mut tensors = ParamSet::new();
    for (name, shape) in template.iter() {
        let length = shape.iter().product::<usize>();
        let values = (0..length).map(|place| (place % 1000) as f32 * 1e-5 - 5e-3).collect();
        tensors.insert(name, Array::new(shape.to_vec(), values).expect("as many as the shape has"));
    }
    Record { tensors, ..Record::default() }
}

/// Printed by `cargo test --release -p shared --lib a_hundred -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement of a minute, in a release build"]
fn a_hundred_devices_with_a_large_model() {
    let spec = spec();
    let specs = spec.architecture.parameter_specs().expect("it fits");
    let template = Template::of_updates(specs, spec.aggregation.buffers);
    let algorithm = &*registry::build(&spec.algorithm).expect("there is fedavg");
    let scale = Scale::agree(1000.0, 60, DEVICES);
    let round_of =
        RoundOf { number: 3, failed: 0, spec: &spec, template: &template, scale, clients: 0, private: None };
    let report = TrainReport { samples: 60, steps: 6, loss: 0.5, ..TrainReport::default() };
    let trained = update_of(&template);
    let round = Round::new(DEVICES, &[], update);
    let all: Vec<_> = round.members.keys().copied().collect();
    let first = all[0];
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread");
    // Keys, shares, the update as whole numbers, masks, their bytes, and what is revealed.
    let (device, payload) = pool.install(|| {
        let begun = Instant::now();
        let neighbours: Vec<_> = round.neighbours[&first].iter().map(|near| round.members[near]).collect();
        let party = Party::new(round.exchange, first, PartySecret::new([5; 32]));
        let _ = party.advertise(&SecretKey::from_bytes([5; 32]));
        let _ = party.shares(&neighbours, SHARE).expect("keys of members");
        let masks = party.masks(&neighbours, &TERMS).expect("keys of members");
        let cover = Cover { masks: &masks, secret: &Secret::new(&[5; 32]) };
        let integers =
            masked(algorithm, &round_of, (first, report), trained.clone(), cover).expect("an update");
        let record = Record { integers, ..Record::with_scalars(ParamSet::new(), &0_u32) };
        let payload = record.to_payload(Precision::F32).to_bytes();
        let _ = round.reveal(first, &all);
        (seconds(begun), payload)
    });
    let counted = &all[LOST..];
    let mut shares: BTreeMap<ClientId, Vec<Share>> = BTreeMap::new();
    for client in counted {
        for (of, share) in round.reveal(*client, counted) {
            shares.entry(of).or_default().push(share);
        }
    }
    // Updates are read and added, masks put together and taken away.
    let (added, server, masks) = pool.install(|| {
        let begun = Instant::now();
        let mut sum = HiddenSum::new(algorithm, &round_of).expect("a sum");
        let limits = Limits { max_bytes: payload.len() as u64, ..Limits::default() };
        for client in counted {
            let record = Record::read_with_integers(&mut &payload[..], limits).expect("a record");
            sum.check(&record.integers).expect("all numbers");
            sum.add(algorithm, &round_of, (*client, report), &record.integers);
        }
        let added = seconds(begun);
        let masks = round.recovery().masks(counted, &shares).expect("all answer");
        // All are one device's update, whose masks do not cancel: what is left is found to be no sum.
        assert!(sum.reveal(algorithm, &masks, counted.len()).is_err());
        (added, seconds(begun), masks.len())
    });
    println!(
        "{DEVICES} devices, {LOST} lost, {} parameters, {} neighbours each: a device {device:.2} s, the server {server:.2} s, of which \
         {added:.2} s to read and add {} updates and the rest to take {masks} masks away; each on one core",
        trained.tensors.parameters(),
        round.neighbours[&first].len(),
        counted.len(),
    );
    assert!(device < 1.0 && server < 10.0);
}
