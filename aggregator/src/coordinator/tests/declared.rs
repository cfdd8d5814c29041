//! Declared samples: what a device may say, and what it counts for.

use super::*;

const BOUNDS: WeightBounds = WeightBounds { ratio: 100, share: 0.5 };

/// A hello of client `n` with this many samples.
fn declaring(n: u8, samples: u64) -> Hello {
    Hello { samples, ..hello(n, None) }
}

/// The cap of a round that opens among these actions.
fn cap(actions: &[Action]) -> SampleCap {
    let cap = actions.iter().find_map(|action| match action {
        Action::Open(opening) => Some(opening.sample_cap),
        _ => None,
    });
    cap.expect("a round opens")
}

#[test]
fn a_device_with_more_samples_than_the_operator_allows_is_refused() {
    let mut bench = Bench::new(RoundPolicy { max_samples: Some(1000), ..policy(3) });
    let refusal = Refusal::TooManySamples { declared: 1001, bound: 1000 };
    assert_eq!(bench.greets(1, declaring(1, 1001)), refused(bench.peer(1), refusal));
    assert_eq!(bench.greets(1, declaring(1, 1000)), [welcome(bench.peer(1), None)]);
}

#[test]
fn the_cap_follows_all_known_clients_and_stays_when_the_cohort_grows() {
    let bounded = RoundPolicy { weight_bounds: BOUNDS, fraction: 0.5, min: 2, ..policy(4) };
    let mut bench = Bench::new(bounded);
    for n in 1..=3 {
        bench.joins(n);
    }
    let opened = bench.greets(4, declaring(4, 1 << 32));
    // 10, 20 and 30 samples, drawn or not.
    let expected = BOUNDS.cap([10, 20, 30, 1 << 32]);
    assert_eq!((cap(&opened), expected.of(1 << 32)), (expected, 60));
    let Some(Action::Open(opening)) = opened.last() else { panic!("{opened:?}") };
    let asked: Vec<u8> = (1..=4).filter(|n| opening.cohort.contains_key(&client(*n))).collect();
    bench.opened(1);
    // A lost member is replaced; one that has joined meanwhile does not move the cap.
    bench.greets(5, declaring(5, 5000));
    assert_eq!(cap(&bench.fails(asked[0], 1)), expected);
}

#[test]
fn without_bounds_or_without_training_there_is_no_cap() {
    let mut bench = Bench::new(policy(3));
    bench.joins(1);
    bench.joins(2);
    assert_eq!(cap(&bench.greets(3, declaring(3, 1 << 32))), SampleCap::NONE);
}
