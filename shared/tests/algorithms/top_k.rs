//! A few values of an update, and what is left out: it is sent later, and nothing is lost.

use models::{Architecture, Norm, Variant};
use shared::record::ToRecord as _;
use shared::spec::UpdateFormat;
use shared::spec::UpdateFormat::{BF16, F16, F32, Int4, Int8};

use super::*;

/// Where the client state has what was left out.
const LEFT_OUT: &str = "client.left-out.";

/// A network with tensors that are long enough to be sent in part.
fn sent(algorithm: &str, top_k: Option<f64>, precision: UpdateFormat) -> RunSpec {
    let spec = with(&spec(algorithm), training(2, 4));
    let architecture = Architecture::by_name("mlp-2nn", &[1, 2, 2], 2).unwrap();
    let update = Update { top_k, precision, broadcast: Some(Precision::F32.into()), ..spec.update };
    fitted(RunSpec { update, architecture, ..spec })
}

/// What one client sends in each of these rounds from the same model, as the server reads it, and its state after them.
fn rounds(spec: &RunSpec, numbers: &[u32]) -> (Vec<ParamSet>, Option<Record>) {
    let data = view(12, 1);
    let broadcast = initial(spec).into_record();
    let (mut local, mut updates) = (None, Vec::new());
    for &number in numbers {
        let mut monitor = |_| ControlFlow::Continue(());
        let (trained, _) =
            train_monitored(spec, number, 0, &data, broadcast.clone(), local.take(), &mut monitor).unwrap();
        local = trained.local.map(|local| wire(&local, Precision::F32));
        let seed = client_seed(spec, number, client_id(0));
        updates.push(shared::outgoing::received(trained.update, spec, &seed).unwrap().tensors);
    }
    (updates, local)
}

fn sum(updates: &[ParamSet]) -> ParamSet {
    let mut sum = updates[0].zeros_like();
    for update in updates {
        sum.add(update).unwrap();
    }
    sum
}

fn not_zero(array: &Array) -> usize {
    array.values().iter().filter(|value| **value != 0.0).count()
}

#[test]
fn what_was_sent_and_what_is_left_out_are_all_that_was_learned() {
    let numbers: Vec<u32> = (1..=6).collect();
    let (learned, state) = rounds(&sent("fedavg", None, F32), &numbers);
    assert!(state.is_none(), "nothing is kept without it");
    for (top_k, precision) in
        [(0.01, F32), (0.1, F32), (0.1, F16), (0.1, BF16), (0.1, Int8), (0.1, Int4), (1.0, Int8)]
    {
        let (updates, state) = rounds(&sent("fedavg", Some(top_k), precision), &numbers);
        let mut found = sum(&updates);
        let left_out = state.unwrap().tensors.take_under(LEFT_OUT);
        assert!(left_out.max_abs() > 0.0, "{top_k} {precision}: something is left out");
        for (name, array) in &left_out {
            let sent = found.get_mut(name).unwrap().values_mut();
            sent.iter_mut().zip(array.values()).for_each(|(sent, left)| *sent += left);
        }
        let off = apart(&found, &sum(&learned));
        assert!(off < 1e-6, "{top_k} {precision}: {off} of {}", sum(&learned).max_abs());
        let weight = updates[3].get("extractor.fc2.weight").unwrap();
        let most = (weight.len() as f64 * top_k).ceil() as usize;
        assert!(not_zero(weight) <= most, "{top_k} {precision}: {} of {most}", not_zero(weight));
        assert!(precision != F32 || not_zero(weight) == most, "{top_k}: {} of {most}", not_zero(weight));
        let bias = |update: &ParamSet| update.get("extractor.fc2.bias").unwrap().clone();
        assert_eq!(bias(&updates[5]), bias(&learned[5]), "what is short is whole");
        assert!(left_out.get("extractor.fc2.bias").is_none(), "and nothing of it is left out");
    }
}

#[test]
fn all_values_are_sent_to_the_bit() {
    let numbers = [1, 2, 3];
    let (learned, _) = rounds(&sent("fedavg", None, F32), &numbers);
    let (updates, state) = rounds(&sent("fedavg", Some(1.0), F32), &numbers);
    assert_eq!(updates, learned);
    let left_out = state.unwrap().tensors.take_under(LEFT_OUT);
    assert!(!left_out.is_empty() && left_out.max_abs() == 0.0, "the state says that there is nothing");
}

#[test]
fn statistics_of_normalisation_layers_are_sent_whole() {
    let mut spec = sent("fedavg", Some(0.01), F32);
    let norm = Variant { norm: Some(Norm::Batch), ..Variant::default() };
    spec.architecture = Architecture::variant("resnet-18", &[1, 2, 2], 2, norm).unwrap();
    let dense = RunSpec { update: Update { top_k: None, ..spec.update }, ..spec.clone() };
    let ((updates, _), (learned, _)) = (rounds(&spec, &[1]), rounds(&dense, &[1]));
    let mut counts = [0, 0];
    for (name, array) in &learned[0] {
        let found = updates[0].get(name).unwrap();
        if name.contains(".running-") && array.len() >= 256 {
            assert_eq!(found, array, "{name}");
            counts[0] += 1;
        } else if array.len() >= 256 {
            assert!(not_zero(found) <= array.len().div_ceil(100), "{name}");
            counts[1] += 1;
        }
    }
    assert!(counts[0] > 3 && counts[1] > 10, "{counts:?}");
}

/// How often the server rejects what one client sends of these rounds, whose state is the one after the last update that counts, and the
/// state in the end.
fn rejected(spec: &RunSpec, rounds: u32) -> (Vec<u32>, Option<Record>) {
    let (data, broadcast) = (view(12, 1), initial(spec).into_record());
    let (mut local, mut rejected): (Option<Record>, _) = (None, Vec::new());
    for number in 1..=rounds {
        let mut monitor = |_| ControlFlow::Continue(());
        let trained = train_monitored(spec, number, 0, &data, broadcast.clone(), local.clone(), &mut monitor)
            .unwrap()
            .0;
        let seed = client_seed(spec, number, client_id(0));
        let read = shared::outgoing::received(trained.update, spec, &seed).unwrap().tensors;
        if read.max_abs() <= spec.update.max_abs as f32 {
            local = trained.local;
        } else {
            rejected.push(number);
        }
    }
    (rejected, local)
}

#[test]
fn what_was_left_out_makes_no_update_too_large() {
    let (learned, _) = rounds(&sent("fedavg", None, F32), &(1..=60).collect::<Vec<_>>());
    let largest = learned.iter().map(ParamSet::max_abs).fold(0.0, f32::max);
    for (precision, room) in [(F32, 1.01), (F16, 1.01), (BF16, 1.01), (Int8, 1.01), (Int4, 1.6)] {
        // What is learned in a round is within the bound, and what is left out of many is not.
        let mut spec = sent("fedavg", Some(0.01), precision);
        spec.update.max_abs = f64::from(largest) * room;
        let (of_all, _) =
            rejected(&RunSpec { update: Update { top_k: None, ..spec.update }, ..spec.clone() }, 60);
        assert_eq!(of_all, [0; 0], "{precision}: none is too large by itself");
        let (found, state) = rejected(&spec, 60);
        assert_eq!(found, [0; 0], "{precision}");
        let left_out = state.unwrap().tensors.take_under(LEFT_OUT).max_abs();
        assert!(
            left_out > spec.update.max_abs as f32 / 2.0,
            "{precision}: {left_out} is less than what is cut off"
        );
    }
}

#[test]
fn an_update_that_is_too_large_by_itself_is_not_made_smaller() {
    let numbers = [1, 2, 3];
    let (learned, _) = rounds(&sent("fedavg", None, F32), &numbers);
    let mut spec = sent("fedavg", Some(1.0), F32);
    let weights = learned[1].get("extractor.fc2.weight").unwrap().values();
    let largest = weights.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
    spec.update.max_abs = f64::from(largest) / 3.0;
    assert_eq!(rounds(&spec, &numbers).0, learned, "the server is to see it as it is");
}

/// An update of another network than the one that the state is of.
#[test]
fn state_that_does_not_fit_is_an_error() {
    let spec = sent("fedavg", Some(0.1), F32);
    let mut local = rounds(&spec, &[1]).1.unwrap();
    local.tensors.insert(format!("{LEFT_OUT}extractor.fc9.weight"), Array::zeros([300]));
    let mut monitor = |_| ControlFlow::Continue(());
    let broadcast = initial(&spec).into_record();
    let found = train_monitored(&spec, 2, 0, &view(12, 1), broadcast, Some(local), &mut monitor);
    let Err(TrainError::Local(reason)) = found.map(|_| ()) else { panic!("it is used") };
    assert!(reason.contains("extractor.fc9.weight"), "{reason}");
}

#[test]
fn what_is_left_out_lies_beside_what_the_algorithm_keeps() {
    for name in ["fedavg", "fedsgd", "fedprox", "fednova", "moon", "fedetf"] {
        let spec = sent(name, Some(0.1), F32);
        let spec = if name == "fedsgd" { with(&spec, training(1, 0)) } else { spec };
        let shares = [view(12, 1), view(7, 2)];
        let mut federation = Federation::new(&spec, &shares);
        let after = (0..3).map(|_| federation.round()).last().unwrap();
        assert!(apart(&initial(&spec), &after) > 1e-4, "{name}");
        let mut state = federation.locals[0].clone().unwrap();
        assert!(state.tensors.take_under(LEFT_OUT).max_abs() > 0.0, "{name}");
        assert_eq!(state.tensors.is_empty(), name != "moon", "{name}");
    }
}
