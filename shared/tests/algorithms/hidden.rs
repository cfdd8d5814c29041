//! Sums of updates that the server does not see are those that it would have made of them, for every algorithm that goes with that.

use models::params::{IntegerSet, Integers};
use shared::aggregation::{Aggregation, Rule, Weights};
use shared::algorithm::hidden::{HiddenSum, masked, shown};
use shared::secure::Mask;

use super::*;

/// Federations of three clients: their specification, of any algorithm whose updates add up.
fn federations() -> Vec<(String, RunSpec)> {
    let mut found = Vec::new();
    for algorithm in ["fedavg", "fedprox", "moon", "fednova", "scaffold"] {
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

/// The masked updates of the next round, and the plain ones.
fn updates(federation: &mut Federation<'_>) -> (Vec<Reported<IntegerSet>>, Vec<Reported<Record>>) {
    let plain = federation.updates();
    let server = &federation.server;
    let round = server.round(federation.number + 1);
    let hide = |(index, (update, report)): (usize, &(Record, TrainReport))| {
        let client = (client_id(index), *report);
        let masks = masks(index);
        (masked(&*server.algorithm, &round, client, update.clone(), &masks).unwrap(), shown(*report))
    };
    (plain.iter().enumerate().map(hide).collect(), plain)
}

#[test]
fn a_hidden_sum_makes_the_same_model_to_the_bit() {
    let shares = [view(12, 1), view(20, 2), view(7, 3)];
    for (name, spec) in federations() {
        let mut federation = Federation::new(&spec, &shares);
        for _ in 0..2 {
            let (hidden, plain) = updates(&mut federation);
            let (server, number) = (&federation.server, federation.number + 1);
            let round = server.round(number);
            let mut sum = HiddenSum::new(&*server.algorithm, &round).unwrap();
            for (index, (numbers, report)) in hidden.iter().enumerate() {
                sum.check(numbers).unwrap();
                sum.add(&*server.algorithm, &round, (client_id(index), *report), numbers);
            }
            let (partial, losses) = sum.reveal(&*server.algorithm, &[own(0), own(1), own(2)], 3).unwrap();
            let mean: f64 = plain.iter().map(|(_, report)| report.loss).sum();
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
    more.insert("z".to_owned(), tensor);
    assert!(matches!(refused(&more), Rejection::Layout { .. }));
    // A device finds out by itself what a server would refuse if it saw it.
    let (mut update, report) = plain[0].clone();
    let hide = |update: &Record, report| {
        masked(&*server.algorithm, &round, (client_id(0), report), update.clone(), &[])
            .unwrap_err()
            .to_string()
    };
    let without = TrainReport { loss: f64::NAN, ..report };
    assert!(hide(&update, without).contains("loss"), "{}", hide(&update, without));
    update.tensors.iter_mut().next().unwrap().1.values_mut()[0] = f32::INFINITY;
    assert!(hide(&update, report).contains("diverged"), "{}", hide(&update, report));
    let local = RunSpec::example("local");
    let algorithm = registry::build(&local.algorithm).unwrap();
    let error = masked(&*algorithm, &round, (client_id(0), report), plain[0].0.clone(), &[]).unwrap_err();
    assert!(error.to_string().contains("local"), "{error}");
}
