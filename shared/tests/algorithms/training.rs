//! The client's half: batches, shuffles, cancellation.

use super::*;

/// Progress of each step of one client with ten samples, and its update.
fn steps(training: Training) -> (Vec<(u64, u64)>, Vec<u8>) {
    let spec = with(&spec("fedavg"), training);
    let data = view(10, 1);
    let mut heard = Vec::new();
    let broadcast = Record { tensors: initial(&spec), ..Record::default() };
    let mut monitor = |progress: Progress| {
        assert_eq!(progress.round, Some(1));
        heard.push((progress.done, progress.total));
        ControlFlow::Continue(())
    };
    let (trained, report) = train_monitored(&spec, 1, 0, &data, broadcast, None, &mut monitor).unwrap();
    assert_eq!((report.samples, report.steps), (10, heard.len() as u64));
    assert!(report.loss > 0.0 && report.loss.is_finite());
    (heard, trained.update.to_bytes(Precision::F32))
}

#[test]
fn a_batch_of_everything_is_one_step_per_epoch() {
    let everything = steps(training(2, 0));
    assert_eq!(everything.0, [(1, 2), (2, 2)]);
    for batch in [10, 11, u32::MAX] {
        assert_eq!(steps(training(2, batch)), everything, "B = {batch}");
    }
    assert_ne!(steps(training(2, 9)).1, everything.1);
}

#[test]
fn the_last_batch_of_an_epoch_may_be_smaller() {
    let (heard, _) = steps(training(2, 4));
    assert_eq!(heard, [(1, 6), (2, 6), (3, 6), (4, 6), (5, 6), (6, 6)]);
    assert_eq!(steps(training(1, 5)).0.len(), 2);
    assert_eq!(steps(training(1, 1)).0.len(), 10);
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_any_other_another_shuffle() {
    let spec = with(&spec("fedavg"), training(1, 1));
    let data = view(10, 1);
    let broadcast = Record { tensors: initial(&spec), ..Record::default() };
    let update = |spec: &RunSpec, round, index| {
        let mut monitor = |_| ControlFlow::Continue(());
        let trained = train_monitored(spec, round, index, &data, broadcast.clone(), None, &mut monitor);
        trained.unwrap().0.update.to_bytes(Precision::F32)
    };
    let one = update(&spec, 1, 0);
    assert_eq!(update(&spec, 1, 0), one);
    assert_ne!(update(&spec, 2, 0), one, "another round");
    assert_ne!(update(&spec, 1, 1), one, "another client");
    assert_ne!(update(&RunSpec { seed: 2, ..spec }, 1, 0), one, "another run");
}

#[test]
fn a_monitor_that_breaks_cancels_at_that_step() {
    for (name, last) in [("fedavg", 3), ("fedavg", 1), ("fedsgd", 1)] {
        let spec = with(&spec(name), training(5, 4));
        let broadcast = Record { tensors: initial(&spec), ..Record::default() };
        let mut calls = 0;
        let mut monitor = |_| {
            calls += 1;
            if calls == last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let result = train_monitored(&spec, 1, 0, &view(10, 1), broadcast, None, &mut monitor);
        assert!(matches!(result.err(), Some(TrainError::Cancelled)), "{name}");
        assert_eq!(calls, last, "{name}: nothing happens after that");
    }
}

#[test]
fn a_broadcast_that_does_not_fit_is_the_servers_fault() {
    for name in registry::names() {
        let spec = spec(name);
        let mut monitor = |_| ControlFlow::Continue(());
        let scalars = Record { tensors: initial(&spec), scalars: vec![1], ..Record::default() };
        let result = train_monitored(&spec, 1, 0, &view(3, 1), scalars, None, &mut monitor);
        assert!(matches!(result.err(), Some(TrainError::Broadcast(_))), "{name}");
        let result = train_monitored(&spec, 1, 0, &view(3, 1), Record::default(), None, &mut monitor);
        assert!(matches!(result.err(), Some(TrainError::Model(_) | TrainError::Broadcast(_))), "{name}");
    }
}

#[test]
fn features_of_a_frozen_extractor_are_kept_over_rounds_and_change_no_bytes() {
    let plain = models::Architecture::by_name("mlp-2nn", &[1, 2, 2], 2).unwrap();
    let params = plain.initialise(|name| Seed::root(5).derive(name).rng()).unwrap();
    let names = models::Frozen::named(vec!["extractor.*".to_owned()]);
    let named = models::Architecture { frozen: Some(names), ..plain };
    let (learned, frozen) = named.divide(params);
    let encoded = models::architecture::encode_frozen(&frozen).into();
    let fresh = || {
        let architecture = named.clone().with_frozen(&encoded).unwrap();
        RunSpec { architecture, ..with(&spec("fedavg"), training(1, 3)) }
    };
    let data = view(10, 1);
    let broadcast = Record { tensors: learned, ..Record::default() };
    let update = |spec: &RunSpec, round| {
        let mut monitor = |_| ControlFlow::Continue(());
        let trained = train_monitored(spec, round, 0, &data, broadcast.clone(), None, &mut monitor);
        trained.unwrap().0.update.to_bytes(Precision::F32)
    };
    let source = data.dataset().clone() as models::Source;
    // What is kept of all samples, and whether it had to be asked for by this closure.
    let kept = |spec: &RunSpec, otherwise: f32| {
        let of = spec.architecture.frozen.as_ref().unwrap().features().unwrap();
        of.get_or_compute(&source, data.indices(), || Ok::<_, ()>(vec![otherwise; 10 * 200])).unwrap()
    };
    let cold = update(&fresh(), 2);
    let warm = fresh();
    update(&warm, 1);
    assert_ne!(kept(&warm, 0.5)[..], [0.5; 10 * 200]);
    assert_eq!(update(&warm, 2), cold);
    // What is kept is what is used.
    let other = fresh();
    kept(&other, 0.5);
    assert_ne!(update(&other, 2), cold);
    // Samples that change at random have no features to keep.
    let mut augmented = fresh();
    augmented.data.preparation.augmentation.horizontal_flip = 0.5;
    update(&augmented, 1);
    assert_eq!(kept(&augmented, 0.5)[..], [0.5; 10 * 200]);
}
