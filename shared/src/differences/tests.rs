use models::{Architecture, Array, Norm, ParamSet, Variant};

use super::*;
use crate::seed::Seed;

/// A run whose network has weights and short tensors.
fn spec() -> RunSpec {
    let mut spec = RunSpec::example("fedavg");
    spec.architecture = Architecture::by_name("mlp-2nn", &[1, 8, 8], 10).unwrap();
    spec
}

/// The model of a round: every value moves by little, and by as little as a hundredth of that.
fn model(spec: &RunSpec, round: u32) -> Record {
    let mut tensors = spec.architecture.initialise(|name| Seed::root(3).derive(name).rng()).unwrap();
    for (_, array) in tensors.iter_mut() {
        for (value, at) in array.values_mut().iter_mut().zip(0u32..) {
            *value += round as f32 * 1e-3 * ((at % 97) as f32 - 48.0) / 48.0;
        }
    }
    Record { tensors, scalars: vec![round as u8], ..Record::default() }
}

fn decoded(base: &Base) -> Record {
    base.record().unwrap()
}

/// The greatest difference of two sets.
fn distance(a: &ParamSet, b: &ParamSet) -> f32 {
    let pairs = a.iter().zip(b.iter()).flat_map(|((_, a), (_, b))| a.values().iter().zip(b.values()));
    pairs.fold(0.0, |most, (a, b)| most.max((a - b).abs()))
}

#[test]
fn whoever_was_sent_differences_has_what_others_were_sent_whole() {
    let spec = spec();
    let first = Base::first(&model(&spec, 1));
    let (mut server, mut lengths, mut payload) = (first.clone(), Vec::new(), Vec::new());
    let mut bases = vec![first.clone()];
    for round in 2..5 {
        let difference = server.difference(model(&spec, round), &spec, round).unwrap();
        assert!(difference.len() * 7 < server.bytes().len() * 2, "{} bytes", difference.len());
        assert_eq!(base_of(&difference).unwrap(), server.digest());
        server = server.after(&difference).unwrap();
        lengths.push(difference.len() as u64);
        payload.extend_from_slice(&difference);
        bases.push(server.clone());
    }
    let payload = Bytes::from(payload);
    let whole = Base::new(server.bytes().clone());
    // A device that has the model already passes over all of them.
    for base in &bases {
        assert_eq!(base.follow(&payload, &lengths, whole.digest()).unwrap(), whole);
    }
    assert_eq!(decoded(&whole).scalars, [4]);
    // What is damaged, of another run or of no length is noticed.
    let refused =
        |base: &Base, payload: &Bytes, lengths: &[u64], to| base.follow(payload, lengths, to).unwrap_err();
    let other = Base::first(&model(&spec, 9));
    assert!(matches!(refused(&other, &payload, &lengths, whole.digest()), DifferenceError::OtherBase));
    assert!(matches!(refused(&whole, &payload, &lengths, other.digest()), DifferenceError::OtherBase));
    assert!(matches!(refused(&first, &payload, &lengths, other.digest()), DifferenceError::OtherModel));
    assert!(matches!(refused(&first, &payload, &lengths[1..], whole.digest()), DifferenceError::Length));
    assert!(matches!(
        refused(&first, &payload, &[lengths[0] - 1], whole.digest()),
        DifferenceError::Record(_)
    ));
    let longer = [lengths[0], lengths[1], lengths[2] + 1];
    assert!(matches!(refused(&first, &payload, &longer, whole.digest()), DifferenceError::Length));
    assert!(matches!(refused(&first, &payload, &lengths[..2], whole.digest()), DifferenceError::Length));
    let mut damaged = payload.to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let error = refused(&first, &damaged.into(), &lengths, whole.digest());
    assert!(matches!(error, DifferenceError::OtherModel), "{error}");
}

#[test]
fn errors_do_not_add_up_over_a_hundred_rounds() {
    let spec = spec();
    let mut base = Base::first(&model(&spec, 1));
    let mut errors = Vec::new();
    for round in 2..102 {
        let model = model(&spec, round);
        let difference = base.difference(model.clone(), &spec, round).unwrap();
        base = base.after(&difference).unwrap();
        errors.push(distance(&decoded(&base).tensors, &model.tensors));
    }
    // Values move by up to 1e-3 in a round: a step is a 127th of that, with what the round before has left.
    let step = 1.02e-3 / 127.0;
    assert!(errors.iter().all(|error| *error < step), "{errors:?}");
    assert!(errors[99] > step / 100.0, "it is rounded: {errors:?}");
}

#[test]
fn statistics_and_short_tensors_are_exact_under_any_prefix() {
    let mut spec = spec();
    let variant = Variant { norm: Some(Norm::Batch), ..Variant::default() };
    // Of its statistics many have 512 values.
    spec.architecture = Architecture::variant("resnet-18", &[3, 32, 32], 10, variant).unwrap();
    let under = |round| {
        let mut tensors = ParamSet::new();
        tensors.insert_under("model.", model(&spec, round).tensors);
        tensors.insert_under("variate.", model(&spec, round + 5).tensors);
        Record { tensors, ..Record::default() }
    };
    let base = Base::first(&under(1));
    let next = base.after(&base.difference(under(2), &spec, 2).unwrap()).unwrap();
    let (next, expected) = (decoded(&next), under(2));
    let buffers = buffers(&spec);
    let mut counts = [0; 2];
    for (name, array) in &expected.tensors {
        let is_exact = array.len() < 256 || buffers.iter().any(|buffer| name.ends_with(buffer.as_str()));
        counts[usize::from(is_exact)] += 1;
        assert_eq!(next.tensors.get(name) == Some(array), is_exact, "{name}");
    }
    assert!(counts[0] > 10 && counts[1] > 20, "{counts:?}");
}

#[test]
fn what_the_base_lacks_comes_whole_and_what_is_gone_is_gone() {
    let spec = spec();
    let with = |name: &str, length: usize| {
        let mut record = model(&spec, 1);
        record.tensors.insert(name, Array::new([length], vec![0.3; length]).unwrap());
        record
    };
    let base = Base::first(&with("a", 300));
    for model in [with("b", 400), with("a", 400), model(&spec, 1)] {
        let next = base.after(&base.difference(model.clone(), &spec, 2).unwrap()).unwrap();
        assert_eq!(decoded(&next), model, "what has not moved is exact");
    }
    // A server that changes what is not there.
    let mut lone = ParamSet::new();
    lone.insert("c", Array::new([300], vec![1.0; 300]).unwrap());
    let compression = Compression { format: Format::Int8, sparse: false, seed: [1; 32] };
    let beside = Beside { from: base.digest(), scalars: Vec::new() };
    let sent = Record::with_scalars(lone, &beside).to_compressed(&compression, &|_| false);
    let error = base.after(&sent.into()).unwrap_err();
    assert!(matches!(error, DifferenceError::NoSuchTensor { .. }), "{error}");
}

#[test]
fn the_seed_and_the_round_say_how_values_are_rounded() {
    let spec = spec();
    let base = Base::first(&model(&spec, 1));
    let of = |spec: &RunSpec, round| base.difference(model(spec, 2), spec, round).unwrap();
    assert_eq!(of(&spec, 2), of(&spec, 2));
    assert_ne!(of(&spec, 2), of(&spec, 3));
    assert_ne!(of(&spec, 2), of(&RunSpec { seed: spec.seed + 1, ..spec.clone() }, 2));
}
