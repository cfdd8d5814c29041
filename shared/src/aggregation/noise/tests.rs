use models::params::{Array, ParamSet};

use super::*;
use crate::aggregation::{WeightedSum, Weights};
use crate::record::ToRecord as _;

const MECHANISM: Mechanism = Mechanism { clip: 2.0, noise: 1.0, rate: 0.5, devices: 8, adaptive: None };

fn set(values: &[f32]) -> ParamSet {
    ParamSet::from_iter([("w".to_owned(), Array::new([values.len()], values.to_vec()).expect("one axis"))])
}

/// The sum of these updates, clipped.
fn summed(mechanism: &Mechanism, updates: &[&[f32]]) -> WeightedSum {
    let template = Template::of(&set(updates[0]));
    let mut sum = WeightedSum::new(&template, mechanism.scale(1000.0), Weights::Uniform);
    for values in updates {
        sum.add_clipped(&set(values), 1, 0.0, mechanism.clip(&template));
    }
    sum
}

/// The private mean of these updates in this round.
fn mean(mechanism: Mechanism, secret: &Secret, round: u32, updates: &[&[f32]]) -> Vec<f32> {
    let mut found = Vec::new();
    let visit = |_: &str, _: usize, values: &[f32]| found.extend_from_slice(values);
    summed(&mechanism, updates).each_private_mean(Private { mechanism, secret, share: None }, round, visit);
    found
}

#[test]
fn the_mean_is_the_clipped_sum_over_the_expected_cohort_and_noise_of_its_deviation() {
    let secret = Secret::new(&[7; 32]);
    let values = 20_000;
    // Three updates: of the lengths 1 and 20 along the first axis, and one of nothing.
    let one: Vec<f32> = (0..values).map(|i| f32::from(i == 0)).collect();
    let long: Vec<f32> = one.iter().map(|value| value * 20.0).collect();
    let nothing = vec![0.0; values];
    for mechanism in [
        MECHANISM,
        Mechanism { noise: 0.01, ..MECHANISM },
        Mechanism { noise: 1000.0, clip: 1e-3, ..MECHANISM },
        Mechanism { noise: 3.7, clip: 40.0, rate: 1.0, devices: 3, adaptive: None },
    ] {
        let found = mean(mechanism, &secret, 1, &[&one, &long, &nothing]);
        let deviation = mechanism.noise * mechanism.clip / mechanism.expected();
        let expected = (1f64.min(mechanism.clip) + 20f64.min(mechanism.clip)) / mechanism.expected();
        assert!((f64::from(found[0]) - expected).abs() < 5.0 * deviation, "{mechanism:?}: {}", found[0]);
        let square = found[1..].iter().map(|value| f64::from(*value).powi(2)).sum::<f64>();
        let measured = (square / (values - 1) as f64).sqrt();
        // One percent is what 20,000 draws tell; what rounding adds is below it.
        assert!((measured / deviation - 1.0).abs() < 0.025, "{mechanism:?}: {measured}, not {deviation}");
    }
}

#[test]
fn a_round_of_nobody_is_noise() {
    let template = Template::of(&set(&[0.0; 100]));
    let secret = Secret::new(&[7; 32]);
    let empty = WeightedSum::new(&template, MECHANISM.scale(1000.0), Weights::Uniform);
    let mut found = Vec::new();
    let private = Private { mechanism: MECHANISM, secret: &secret, share: None };
    empty.each_private_mean(private, 3, |_, _, values| found.extend_from_slice(values));
    assert!(found.iter().filter(|value| **value != 0.0).count() > 90, "{found:?}");
}

#[test]
fn noise_is_the_same_again_and_another_for_another_round_secret_or_sum() {
    let secret = Secret::new(&[7; 32]);
    let (one, other): (&[f32], &[f32]) = (&[0.5; 50], &[0.25; 50]);
    let first = mean(MECHANISM, &secret, 1, &[one, other]);
    assert_eq!(first, mean(MECHANISM, &secret, 1, &[other, one]), "the order of arrival is chance");
    assert_ne!(first, mean(MECHANISM, &secret, 2, &[one, other]));
    assert_ne!(first, mean(MECHANISM, &Secret::new(&[8; 32]), 1, &[one, other]));
    // A round closed once more without one of its devices: the difference is that device's update behind noise, and not in the open.
    let without = mean(MECHANISM, &secret, 1, &[one]);
    let differences: Vec<f32> = first.iter().zip(&without).map(|(a, b)| a - b).collect();
    let apart = differences.iter().filter(|value| (**value - differences[0]).abs() > 1e-3).count();
    assert!(apart > 40, "{differences:?}");
}

#[test]
fn the_sum_has_the_noise_that_the_count_leaves_it_and_the_count_is_that_of_updates_within_the_bound() {
    let values = 20_000;
    let one = |length: f32| (0..values).map(|i| if i == 0 { length } else { 0.0 }).collect::<Vec<f32>>();
    // Of the bound, 2, itself, below it, and above it.
    let updates = [one(2.0), one(0.5), one(2.001), one(70.0), one(0.0)];
    let updates: Vec<&[f32]> = updates.iter().map(Vec::as_slice).collect();
    let adaptive = AdaptiveClip { quantile: 0.5, rate: 0.2, noise: 0.6 };
    let mechanism = Mechanism { adaptive: Some(adaptive), ..MECHANISM };
    let template = Template::of(&set(updates[0]));
    let sum = |updates: &[&[f32]]| summed(&mechanism, updates);
    let mut merged = sum(&updates[..2]);
    merged.merge(&sum(&updates[2..])).expect("sums of one round");
    assert!(merged == sum(&updates));
    let (mut shares, mut found) = (Vec::new(), Vec::new());
    for secret in 0..200 {
        let (secret, place) = (Secret::new(&[secret; 32]), NoisedShare::default());
        let small: Vec<&[f32]> = updates.iter().map(|update| &update[..2]).collect();
        let (sum, values) =
            if shares.is_empty() { (merged.clone(), &mut found) } else { (sum(&small), &mut Vec::new()) };
        let private = Private { mechanism, secret: &secret, share: Some(&place) };
        sum.each_private_mean(private, 1, |_, _, mean| values.extend_from_slice(mean));
        shares.push(place.get().expect("it was put"));
    }
    // 3 of 5 over a cohort of 4, and noise of 0.6.
    let exact = (3.0 - 2.5) / 4.0 + 0.5;
    let (mean, error) = (shares.iter().sum::<f64>() / 200.0, 0.6 / 4.0 / 200f64.sqrt());
    assert!((mean - exact).abs() < 4.0 * error, "{mean}, not {exact}");
    let square = found[1..].iter().map(|value| f64::from(*value).powi(2)).sum::<f64>();
    let measured = (square / (values - 1) as f64).sqrt();
    let of_sum = (1f64 - 1.2f64.powi(-2)).powf(-0.5);
    let deviation = of_sum * mechanism.clip / mechanism.expected();
    assert!((measured / deviation - 1.0).abs() < 0.025, "{measured}, not {deviation}");
    let again = WeightedSum::from_record(merged.clone().into_record()).expect("its own record");
    assert!(again == merged && template.parameters() == values);
}

#[test]
fn any_number_of_threads_gives_the_same_bytes() {
    let secret = Secret::new(&[9; 32]);
    let values = vec![0.1; 3 * CHUNK + 7];
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a few threads");
        pool.install(|| mean(MECHANISM, &secret, 1, &[&values]))
    };
    assert_eq!(on(1), on(3));
}

/// How fast noise is drawn: `cargo test --release -p shared --lib noise -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn noise_for_1_66_million_values() {
    let secret = Secret::new(&[9; 32]);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread");
    let sum = summed(&MECHANISM, &[&vec![0.1; 1_663_370]]);
    let begun = std::time::Instant::now();
    let private = Private { mechanism: MECHANISM, secret: &secret, share: None };
    pool.install(|| sum.each_private_mean(private, 1, |_, _, _| {}));
    let seconds = begun.elapsed().as_secs_f64();
    println!("noise for 1,663,370 values on one core: {seconds:.2} s");
    assert!(seconds < 1.0);
}
