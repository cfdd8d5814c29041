//! Sums of updates that the server does not see are those that it would have made of them, for every algorithm that goes with that.

use models::params::{IntegerFormat, IntegerSet, Integers};
use shared::aggregation::{Aggregation, Buffers, DeviceNoise, Rule, Template, Weights};
use shared::algorithm::hidden::{AloneError, Cover, HiddenSum, OthersSum, masked, shown};
use shared::secret::Secret;
use shared::secure::Mask;

use super::*;

/// Federations of three clients: their specification, of any algorithm whose updates add up.
fn federations() -> Vec<(String, RunSpec)> {
    let mut found = Vec::new();
    for algorithm in ["fedavg", "fedprox", "moon", "fednova", "scaffold", "fedetf"] {
        for weights in [Weights::Samples, Weights::Uniform, Weights::Loss] {
            for rule in [Rule::Mean {}, Rule::ClippedMean { max_norm: 0.1 }] {
                let aggregation = Aggregation { weights, rule, ..Aggregation::default() };
                let training = training(2, 4);
                let mut spec = RunSpec { aggregation, training, ..spec(algorithm) };
                if algorithm == "moon" {
                    spec.architecture = models::Architecture::by_name("mlp-2nn", &[1, 2, 2], 2).unwrap();
                }
                found.push((format!("{algorithm}, {weights:?}, {}", rule.name()), spec));
            }
        }
    }
    found
}

/// Masks that cancel in the sum of three clients, but for one of each.
fn masks(index: usize) -> Vec<Mask> {
    let pair = |a: usize, b: usize| Seed::root((a * 10 + b) as u64);
    let others = (0..3).filter(|other| *other != index);
    let pairs =
        others.map(|other| Mask { seed: pair(index.min(other), index.max(other)), add: index < other });
    pairs.chain([own(index)]).collect()
}

fn own(index: usize) -> Mask {
    Mask { seed: Seed::root(100 + index as u64), add: true }
}

/// An update with its report.
type Reported<T> = (T, TrainReport);

/// Hides nothing.
fn uncovered(secret: &Secret) -> Cover<'_> {
    Cover { masks: &[], secret }
}

/// The masked updates of the next round, and the plain ones.
fn updates(federation: &mut Federation<'_>) -> (Vec<Reported<IntegerSet>>, Vec<Reported<Record>>) {
    let plain = federation.updates();
    let server = &federation.server;
    let round = server.round(federation.number + 1);
    let hide = |(index, (update, report)): (usize, &(Record, TrainReport))| {
        let client = (client_id(index), *report);
        let (masks, secret) = (masks(index), Secret::new(&[index as u8; 32]));
        let cover = Cover { masks: &masks, secret: &secret };
        (masked(&*server.algorithm, &round, client, update.clone(), cover).unwrap(), shown(*report))
    };
    (plain.iter().enumerate().map(hide).collect(), plain)
}

/// As it comes from another server.
fn travelled(record: &Record) -> Record {
    let bytes = record.to_bytes(Precision::F32);
    Record::read_with_integers(&mut &bytes[..], Limits::default()).unwrap()
}

#[test]
fn a_hidden_sum_of_two_servers_makes_the_same_model_to_the_bit() {
    let shares = [view(12, 1), view(20, 2), view(7, 3)];
    let narrow = |(name, mut spec): (String, RunSpec)| {
        spec.secure.integers = IntegerFormat::I32;
        // Sums by loss need more.
        (spec.aggregation.weights != Weights::Loss).then_some((name, spec))
    };
    for (name, spec) in federations().into_iter().chain(federations().into_iter().filter_map(narrow)) {
        let mut federation = Federation::new(&spec, &shares);
        for _ in 0..2 {
            let (hidden, plain) = updates(&mut federation);
            let (server, number) = (&federation.server, federation.number + 1);
            let round = server.round(number);
            let mut sum = HiddenSum::new(&*server.algorithm, &round).unwrap();
            // The last update is added elsewhere.
            for (index, (numbers, report)) in hidden.iter().enumerate().take(2) {
                sum.check(numbers).unwrap();
                sum.add(&*server.algorithm, &round, (client_id(index), *report), numbers);
            }
            let mut other = HiddenSum::new(&*server.algorithm, &round).unwrap();
            let (numbers, report) = &hidden[2];
            other.add(&*server.algorithm, &round, (client_id(2), *report), numbers);
            let other =
                OthersSum::from_record(&*server.algorithm, travelled(&other.into_record(&*server.algorithm)));
            sum.merge(&*server.algorithm, other.unwrap()).unwrap();
            let (partial, losses) = sum.reveal(&*server.algorithm, &[own(0), own(1), own(2)], 3).unwrap();
            let mean: f64 = plain.iter().map(|(_, report)| report.loss).sum();
            let losses = losses.unwrap();
            assert!((losses - mean).abs() < 1e-6, "{name}: {losses} {mean}");
            let mut global = server.algorithm.restore(federation.state.clone()).unwrap();
            server.algorithm.close(&mut global, partial, &round).unwrap();
            let state = server.algorithm.store(global);
            assert_eq!(state, server.close(&federation.state, &plain, number), "{name}");
            federation.number = number;
            federation.state = wire(&state, Precision::F32);
        }
    }
}

#[test]
fn a_sum_with_a_mask_left_or_a_value_beyond_all_bounds_is_none() {
    let shares = [view(12, 1), view(20, 2), view(7, 3)];
    for (name, spec) in federations() {
        let mut federation = Federation::new(&spec, &shares);
        let (hidden, _) = updates(&mut federation);
        let server = &federation.server;
        let round = server.round(1);
        let summed = |changed: &dyn Fn(&mut IntegerSet), masks: &[Mask]| {
            let mut sum = HiddenSum::new(&*server.algorithm, &round).unwrap();
            for (index, (numbers, report)) in hidden.iter().enumerate() {
                let mut numbers = numbers.clone();
                if index == 1 {
                    changed(&mut numbers);
                }
                sum.add(&*server.algorithm, &round, (client_id(index), *report), &numbers);
            }
            sum.reveal(&*server.algorithm, masks, 3).map(|(_, losses)| losses)
        };
        let all = [own(0), own(1), own(2)];
        assert!(summed(&|_| {}, &all).is_ok(), "{name}");
        assert!(summed(&|_| {}, &all[..2]).is_err(), "{name}: a mask is left");
        let beyond = |numbers: &mut IntegerSet| {
            let value = &mut numbers.values_mut().next().unwrap().values_mut()[0];
            *value = value.wrapping_add(1 << 62);
        };
        assert!(summed(&beyond, &all).is_err(), "{name}");
    }
}

#[test]
fn what_is_no_hidden_update_of_the_round_is_refused() {
    let spec = spec("fedavg");
    let shares = [view(12, 1), view(20, 2), view(7, 3)];
    let mut federation = Federation::new(&spec, &shares);
    let (hidden, plain) = updates(&mut federation);
    let server = &federation.server;
    let round = server.round(1);
    let sum = HiddenSum::new(&*server.algorithm, &round).unwrap();
    let refused = |numbers: &IntegerSet| sum.check(numbers).unwrap_err();
    let mut less = hidden[0].0.clone();
    let (name, tensor) = less.pop_first().unwrap();
    assert!(refused(&less).to_string().contains(&name));
    let mut short = hidden[0].0.clone();
    short.insert(name, Integers::new(vec![1], vec![1]).unwrap());
    assert!(matches!(refused(&short), Rejection::Layout { .. }));
    let mut more = hidden[0].0.clone();
    more.insert("z".to_owned(), tensor.clone());
    assert!(matches!(refused(&more), Rejection::Layout { .. }));
    let mut narrow = hidden[0].0.clone();
    let name = narrow.first_key_value().unwrap().0.clone();
    narrow.insert(name, tensor.in_format(IntegerFormat::I32));
    assert!(refused(&narrow).to_string().contains("of i32 and not of i64"));
    let secret = Secret::new(&[0; 32]);
    // A device finds out by itself what a server would refuse if it saw it.
    let (mut update, report) = plain[0].clone();
    let hide = |update: &Record, report| {
        masked(&*server.algorithm, &round, (client_id(0), report), update.clone(), uncovered(&secret))
            .unwrap_err()
            .to_string()
    };
    let without = TrainReport { loss: f64::NAN, ..report };
    assert!(hide(&update, without).contains("loss"), "{}", hide(&update, without));
    update.tensors.iter_mut().next().unwrap().1.values_mut()[0] = f32::INFINITY;
    assert!(hide(&update, report).contains("diverged"), "{}", hide(&update, report));
    let local = RunSpec::example("local");
    let algorithm = registry::build(&local.algorithm).unwrap();
    let error = masked(&*algorithm, &round, (client_id(0), report), plain[0].0.clone(), uncovered(&secret))
        .unwrap_err();
    assert!(error.to_string().contains("local"), "{error}");
}

#[test]
fn the_noise_of_devices_is_in_the_sum_and_has_its_deviation() {
    let shares = [view(12, 1), view(20, 2), view(7, 3)];
    // In the second case the noise is far beyond what updates may have.
    for (integers, noise, clip, max_abs) in
        [(IntegerFormat::I64, 0.01, 0.05, MAX_ABS), (IntegerFormat::I32, 8.0, 1.0, 1.0)]
    {
        let mut spec = spec("fedavg");
        (spec.training, spec.aggregation.weights) = (training(2, 4), Weights::Uniform);
        (spec.secure.integers, spec.secure.min_devices) = (integers, 3);
        spec.architecture = models::Architecture::by_name("mlp-2nn", &[1, 2, 2], 2).unwrap();
        let values =
            Template::of_updates(spec.architecture.parameter_specs().unwrap(), Buffers::Average).parameters();
        let device_noise = DeviceNoise { clip, noise, devices: 3, over: 4, values: values as u64 };
        spec.device_noise = Some(device_noise);
        let mut federation = Federation::new(&spec, &shares);
        federation.server.scale = device_noise.scale(max_abs);
        assert!(device_noise.fits(integers, 3));
        let closed = |hidden: Vec<Reported<IntegerSet>>, server: &Server<'_>, start: &Record| {
            let round = server.round(1);
            let mut sum = HiddenSum::new(&*server.algorithm, &round).unwrap();
            for (index, (numbers, report)) in hidden.iter().enumerate() {
                sum.check(numbers).unwrap();
                sum.add(&*server.algorithm, &round, (client_id(index), *report), numbers);
            }
            let (partial, losses) = sum.reveal(&*server.algorithm, &[own(0), own(1), own(2)], 3).unwrap();
            assert_eq!(losses, None, "a loss would have no noise");
            let mut global = server.algorithm.restore(start.clone()).unwrap();
            server.algorithm.close(&mut global, partial, &round).unwrap();
            server.algorithm.store(global)
        };
        let (hidden, plain) = updates(&mut federation);
        let (again, _) = updates(&mut federation);
        assert_eq!(hidden, again, "the same update has the same noise");
        let noisy = closed(hidden, &federation.server, &federation.state);
        // The same without noise: clipped updates, and the same divisor.
        let server = &federation.server;
        let mut expected = vec![0.0; values];
        for (update, _) in &plain {
            let all = update.tensors.iter().flat_map(|(_, array)| array.values());
            let length = all.map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
            let factor = (clip / length).min(1.0_f64);
            let all = update.tensors.iter().flat_map(|(_, array)| array.values());
            expected.iter_mut().zip(all).for_each(|(sum, value)| *sum += factor * f64::from(*value) / 4.0);
        }
        let before = federation.state.tensors.iter().flat_map(|(_, array)| array.values());
        let after = noisy.tensors.iter().flat_map(|(_, array)| array.values());
        let found: Vec<f64> = after.zip(before).map(|(after, before)| f64::from(after - before)).collect();
        let errors = found.iter().zip(&expected).map(|(found, expected)| (found - expected).powi(2));
        let deviation = (errors.sum::<f64>() / values as f64).sqrt();
        let wanted = noise * clip / 4.0;
        assert!((deviation / wanted - 1.0).abs() < 0.05, "{noise}: {deviation}, not {wanted}");
        // More than three honest devices add up to is refused, and so is another scale.
        let round = server.round(1);
        let mut sum = HiddenSum::new(&*server.algorithm, &round).unwrap();
        let mut numbers = updates(&mut federation).0.remove(0);
        let server = &federation.server;
        let first = numbers.0.values_mut().next().unwrap();
        first.values_mut()[0] = integers.wrap(first.values()[0].wrapping_add(1 << 30));
        sum.add(&*server.algorithm, &server.round(1), (client_id(0), numbers.1), &numbers.0);
        assert!(sum.reveal(&*server.algorithm, &[own(0)], 1).is_err());
        let other = Round { scale: Scale::agree(MAX_ABS, 1, 3), ..server.round(1) };
        let secret = Secret::new(&[0; 32]);
        let (update, report) = plain[0].clone();
        let refused = masked(&*server.algorithm, &other, (client_id(0), report), update, uncovered(&secret));
        assert!(refused.unwrap_err().to_string().contains("the noise that the server asks for is none"));
        // So is noise that does not cover what an update tells.
        for change in [
            (|spec: &mut RunSpec| spec.aggregation.weights = Weights::Samples) as fn(&mut RunSpec),
            |spec| spec.secure.min_devices = 2,
            |spec| spec.device_noise.as_mut().unwrap().noise = 0.0,
            |spec| spec.device_noise.as_mut().unwrap().values -= 1,
            |spec| {
                let noise = spec.device_noise.as_mut().unwrap();
                (noise.noise, noise.devices) = (1000.0, 1);
            },
        ] {
            let mut spec = spec.clone();
            change(&mut spec);
            let scale = spec.device_noise.unwrap().scale(max_abs);
            let other = Round { spec: &spec, scale, ..server.round(1) };
            let (update, report) = plain[0].clone();
            let refused =
                masked(&*server.algorithm, &other, (client_id(0), report), update, uncovered(&secret));
            assert!(matches!(refused, Err(AloneError::Noise)), "{:?}", spec.device_noise);
        }
    }
}
