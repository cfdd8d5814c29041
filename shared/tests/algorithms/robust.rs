//! Rules that withstand wrong updates, on vectors small enough to be worked out by hand.
#![expect(clippy::float_cmp, reason = "what is worked out by hand is exact")]

use proptest::prelude::*;
use shared::aggregation::{Clip, WeightedSum};

use super::axes::{MEAN, normalised};
use super::*;

/// A set of one tensor with these values.
fn vector(values: &[f32]) -> ParamSet {
    let mut params = ParamSet::new();
    params.insert("w", Array::new([values.len()], values.to_vec()).unwrap());
    params
}

/// What a rule makes of these updates, which come in the order of their clients.
fn outcome(rule: Rule, vectors: &[Vec<f32>]) -> Vec<f32> {
    let updates: Vec<(Record, TrainReport)> = vectors
        .iter()
        .map(|values| (Record { tensors: vector(values), ..Record::default() }, TrainReport::default()))
        .collect();
    let mut stored = InMemory::new(&RunSpec::example("fedavg"), &updates);
    let template = Template::of(&updates[0].0.tensors);
    let mut found = Vec::new();
    let visit = &mut |tensor: &str, offset: usize, values: &[f32]| {
        assert_eq!((tensor, offset), ("w", found.len()));
        found.extend_from_slice(values);
    };
    rule.each_value(&mut stored, &template, visit).unwrap();
    found
}

/// The same of updates with a single value.
fn of_numbers(rule: Rule, numbers: &[f32]) -> f32 {
    let vectors: Vec<Vec<f32>> = numbers.iter().map(|&number| vec![number]).collect();
    outcome(rule, &vectors)[0]
}

#[test]
fn median_and_trimmed_mean_of_small_vectors() {
    let vectors = [vec![1.0, 5.0, -1.0, 0.0], vec![2.0, 1e6, 0.0, 0.0], vec![3.0, 4.0, 7.0, 0.0]];
    assert_eq!(outcome(Rule::Median {}, &vectors), [2.0, 5.0, 0.0, 0.0]);
    let more = [&vectors[..], &[vec![-50.0, 0.0, 0.0, 8.0], vec![6.0, 6.0, 1.0, -8.0]]].concat();
    let trimmed = outcome(Rule::TrimmedMean { beta: 0.2 }, &more);
    assert_eq!(trimmed, [2.0, 5.0, (1.0_f32 / 3.0), 0.0]);
    assert_eq!(outcome(Rule::TrimmedMean { beta: 0.4 }, &more), outcome(Rule::Median {}, &more));
}

#[test]
fn krum_takes_the_update_with_the_least_score() {
    let krum = Rule::Krum { byzantine: 1 };
    // The two closest count: the scores are 0.25 + 2.25 + ... of 1.0: 0.25 + 1, of 1.5: 0.25 + 0.5625.
    assert_eq!(of_numbers(krum, &[0.0, 1.0, 1.5, 2.25, 100.0]), 1.5);
    assert_eq!(of_numbers(krum, &[100.0, 2.25, 0.0, 1.5, 1.0]), 1.5, "in any order");
    // 1.0 and 1.5 both score 1.25: the first in the order of the clients is taken.
    assert_eq!(of_numbers(krum, &[0.0, 1.0, 1.5, 2.5, 100.0]), 1.0);
    assert_eq!(of_numbers(krum, &[0.0, 1.5, 1.0, 2.5, 100.0]), 1.5);
    // With f = 0 three of four others count, and the outlier is felt.
    assert_eq!(of_numbers(Rule::Krum { byzantine: 0 }, &[0.0, 1.0, 1.5, 2.25, 100.0]), 1.0);
    let planes = [vec![0.0, 0.0], vec![3.0, 4.0], vec![3.0, 5.0], vec![2.0, 4.0], vec![-9.0, 9.0]];
    assert_eq!(outcome(krum, &planes), [3.0, 4.0]);
}

#[test]
fn multi_krum_is_the_mean_of_those_with_the_least_scores() {
    let numbers = [0.0, 1.0, 1.5, 2.25, 100.0];
    let best = |chosen| of_numbers(Rule::MultiKrum { byzantine: 1, chosen }, &numbers);
    assert_eq!(best(1), 1.5);
    assert_eq!(best(2), 1.25);
    assert_eq!(best(3), 4.75 / 3.0);
    // m = n - f: all but the outlier.
    assert_eq!(best(4), 4.75 / 4.0);
    assert_eq!(best(0), best(4));
    assert_eq!(best(5), 104.75 / 5.0);
}

#[test]
fn bulyan_of_seven() {
    let bulyan = Rule::Bulyan { byzantine: 1 };
    // Krum chooses 2, 3, 1, 4, 0 one after the other; three of them are closest to their median, 2.
    assert_eq!(of_numbers(bulyan, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 100.0]), 2.0);
    // The two far ones are the last to be chosen, so neither is among five of seven.
    assert_eq!(of_numbers(bulyan, &[1.0, 2.0, 3.0, 4.0, 5.0, 1e6, -1e6]), 3.0);
    // An update that is near as a whole is no help against one bad value: the second is left out where it counts.
    let mut hidden: Vec<Vec<f32>> = (0..7).map(|k| vec![k as f32 * 0.01; 40]).collect();
    hidden[3][7] = 0.4;
    let found = outcome(bulyan, &hidden);
    assert!(found[7] <= 0.05, "{}", found[7]);
}

/// Rules for no attackers.
fn means() -> [Rule; 3] {
    [
        Rule::TrimmedMean { beta: 0.0 },
        Rule::MultiKrum { byzantine: 0, chosen: 0 },
        Rule::Bulyan { byzantine: 0 },
    ]
}

proptest! {
    #[test]
    fn without_attackers_they_are_the_mean(
        vectors in prop::collection::vec(prop::array::uniform5(-9f32..9.0), 3..12),
    ) {
        let vectors: Vec<Vec<f32>> = vectors.iter().map(|vector| vector.to_vec()).collect();
        for rule in means() {
            let found = outcome(rule, &vectors);
            for (index, found) in found.iter().enumerate() {
                let sum: f64 = vectors.iter().map(|vector| f64::from(vector[index])).sum();
                let mean = sum / vectors.len() as f64;
                prop_assert!((f64::from(*found) - mean).abs() < 1e-5, "{}: {} {}", rule.name(), found, mean);
            }
        }
    }
}

#[test]
fn a_liar_among_seven_moves_no_value_beyond_the_honest_ones() {
    let shares: Vec<View> = (0..7).map(|k| view(6 + 2 * k, k)).collect();
    let plain = with(&spec("fedavg"), training(2, 3));
    for rule in Rule::ALL.iter().copied().filter(Rule::counts_alike) {
        for algorithm in ["fedavg", "fedsgd"] {
            let training = if algorithm == "fedsgd" { training(1, 0) } else { plain.training };
            let aggregation = Aggregation { rule, weights: Weights::Uniform, ..Aggregation::default() };
            let spec = RunSpec { aggregation, ..with(&spec(algorithm), training) };
            let mut federation = Federation::new(&spec, &shares);
            let mut updates = federation.updates();
            let step =
                if algorithm == "fedsgd" { -training.optimizer.to_engine().rate() as f32 } else { 1.0 };
            updates[2].0.tensors.scale(-1e3);
            let Federation { server, state, .. } = &federation;
            let found = server.current_model(&server.close(state, &updates, 1));
            let found = found.difference(&initial(&spec)).unwrap();
            updates.remove(2);
            for (name, array) in &found {
                for (index, value) in array.values().iter().enumerate() {
                    let honest = updates
                        .iter()
                        .map(|(update, _)| step * update.tensors.get(name).unwrap().values()[index]);
                    let (low, high) = honest
                        .fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
                    let within = (low - 1e-5..=high + 1e-5).contains(value);
                    assert!(within, "{algorithm}, {}: {name}[{index}] {value} {low} {high}", rule.name());
                }
            }
        }
    }
}

#[test]
fn rules_that_withstand_no_attacker_with_few_updates_do_not_close() {
    let shares: Vec<View> = (0..4).map(|k| view(5, k)).collect();
    let uniform = Aggregation { weights: Weights::Uniform, ..Aggregation::default() };
    for (rule, least) in [
        (Rule::Krum { byzantine: 1 }, 5),
        (Rule::MultiKrum { byzantine: 0, chosen: 9 }, 9),
        (Rule::Bulyan { byzantine: 1 }, 7),
        (Rule::TrimmedMean { beta: 0.2 }, 5),
    ] {
        assert_eq!(rule.least(), least);
        let spec = RunSpec { aggregation: Aggregation { rule, ..uniform }, ..spec("fedavg") };
        let mut federation = Federation::new(&spec, &shares);
        let updates = federation.updates();
        let mut global = federation.server.algorithm.restore(federation.state.clone()).unwrap();
        let mut stored = InMemory::new(&spec, &updates);
        let round = federation.server.round(1);
        let error = federation.server.algorithm.close_stored(&mut global, &mut stored, &round).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(rule.name()) && text.contains("round.min-updates"), "{text}");
        assert_eq!(federation.server.algorithm.store(global), federation.state, "nothing has changed");
    }
}

/// The weighted mean of these updates, no longer than `bound`.
fn clipped(bound: f64, terms: &[(&[f32], u64)]) -> Vec<f32> {
    let template = Template::of(&vector(terms[0].0));
    let scale = Scale::agree(MAX_ABS, 3, terms.len());
    let mut sum = WeightedSum::new(&template, scale, Weights::Samples);
    for (values, weight) in terms {
        sum.add_clipped(&vector(values), *weight, 1.0, Clip { bound, template: &template });
    }
    let mut mean = Vec::new();
    sum.each_mean(|_, _, values| mean.extend_from_slice(values)).unwrap();
    mean
}

#[test]
fn clipping_shortens_what_is_longer_than_the_bound() {
    assert_eq!(clipped(2.5, &[(&[3.0, 4.0], 1)]), [1.5, 2.0]);
    assert_eq!(clipped(5.0, &[(&[3.0, 4.0], 1)]), [3.0, 4.0]);
    // Weights 1 and 3; the second is shortened from 500 to 5.
    assert_eq!(clipped(5.0, &[(&[3.0, 4.0], 1), (&[-300.0, 400.0], 3)]), [-1.5, 4.0]);
}

#[test]
fn clipping_beyond_every_norm_is_the_mean_to_the_bit_and_below_them_it_bounds_the_step() {
    let shares: Vec<View> = (0..5).map(|k| view(4 + 5 * k, k)).collect();
    let spec = with(&spec("fedavg"), training(2, 3));
    for weights in [Weights::Samples, Weights::Uniform, Weights::Loss] {
        let of = |rule| {
            let aggregation = Aggregation { weights, rule, ..Aggregation::default() };
            federate(&RunSpec { aggregation, ..spec.clone() }, &shares, 1).remove(0)
        };
        assert_eq!(of(Rule::ClippedMean { max_norm: 1e6 }), of(Rule::Mean {}), "{weights:?}");
        let short = of(Rule::ClippedMean { max_norm: 0.01 });
        let step = short.distance(&initial(&spec)).unwrap();
        assert!(step > 0.001 && step <= 0.0101, "{weights:?}: {step}");
    }
}

#[test]
fn statistics_of_normalisation_layers_are_neither_measured_nor_clipped() {
    let specs = normalised("fedavg", Aggregation::default()).architecture.parameter_specs().unwrap();
    let template = Template::of_updates(specs, Buffers::Average);
    let update = |value: f32, statistic: f32| {
        let mut params = ParamSet::new();
        for (name, shape) in template.iter() {
            let mut array = Array::zeros(shape);
            array.values_mut().fill(if template.is_buffer(name) { statistic } else { value });
            params.insert(name, array);
        }
        params
    };
    assert!(template.is_buffer(MEAN));
    let mut sum = WeightedSum::new(&template, Scale::agree(MAX_ABS, 1, 1), Weights::Uniform);
    sum.add_clipped(&update(5.0, 900.0), 1, 0.0, Clip { bound: 1e-3, template: &template });
    sum.each_mean(|tensor, _, values| {
        let kept = values.iter().all(|&value| value == 900.0);
        let short = values.iter().all(|&value| (0.0..1e-3).contains(&value));
        assert!(if template.is_buffer(tensor) { kept } else { short }, "{tensor}: {values:?}");
    })
    .unwrap();

    // Krum goes by the parameters: the second is closest to its neighbours, however far its statistics are.
    let updates: Vec<(Record, TrainReport)> = [(0.0, 1.0), (1.0, 900.0), (1.5, 1.0), (3.0, 1.0), (50.0, 1.0)]
        .iter()
        .map(|&(value, statistic)| {
            (Record { tensors: update(value, statistic), ..Record::default() }, TrainReport::default())
        })
        .collect();
    let mut stored = InMemory::new(&RunSpec::example("fedavg"), &updates);
    let visit = &mut |tensor: &str, _: usize, values: &[f32]| {
        let expected = if template.is_buffer(tensor) { 900.0 } else { 1.0 };
        assert!(values.iter().all(|&value| value == expected), "{tensor}: {values:?}");
    };
    Rule::Krum { byzantine: 1 }.each_value(&mut stored, &template, visit).unwrap();
}
