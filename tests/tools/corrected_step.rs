//! The cost of gradient corrections and clipping.
#![expect(clippy::unwrap_used, reason = "a measurement that cannot be made has failed")]

use std::time::Instant;

use clap::Args;
use models::{Architecture, Backend, Batch, Correction, Learner, Sgd};
use shared::seed::Seed;

/// The time of a step with a gradient correction or clipping beside that of a plain one: the shortest of 200, taken in turn.
#[derive(Args)]
pub(crate) struct Arguments {}

const REPETITIONS: usize = 200;

pub(crate) fn run(_: &Arguments) {
    let plain = Sgd::plain(0.01);
    let momentum = Sgd { rate: 0.01, momentum: 0.9, decay: 1e-5 };
    for (name, batch, sgd) in [
        ("mlp-2nn", 10, plain),
        ("mlp-2nn", 64, momentum),
        ("cnn-mnist", 10, plain),
        ("cnn-mnist", 64, momentum),
        ("moon-cnn", 64, momentum),
    ] {
        measure(name, batch, sgd);
    }
}

fn measure(name: &str, batch: usize, sgd: Sgd) {
    let input: &[usize] = if name == "moon-cnn" { &[3, 32, 32] } else { &[1, 28, 28] };
    let architecture = Architecture::by_name(name, input, 10).unwrap();
    let params = architecture.initialise(|tensor| Seed::root(1).derive(tensor).rng()).unwrap();
    let values = batch * input.iter().product::<usize>();
    let x: Vec<f32> = (0..values).map(|i| (i * 7919 % 251) as f32 / 251.0).collect();
    let labels = (0..batch as u32).map(|i| i % 10).collect();
    let data = Batch::new(x, [&[batch], input].concat(), labels).unwrap();
    let mut shift = params.clone();
    shift.scale(1e-3);
    let kinds = [
        ("plain", Correction::default(), None),
        ("anchor (FedProx)", Correction { anchor: Some((0.01, params.clone())), shift: None }, None),
        ("shift (SCAFFOLD)", Correction { anchor: None, shift: Some(shift) }, None),
        ("clip", Correction::default(), Some(1.0)),
    ];
    let mut learners = kinds.map(|(kind, correction, clip)| {
        let mut learner = Learner::new(&architecture, &params, sgd, &Backend::cpu()).unwrap();
        learner.correct(&correction).unwrap();
        learner.set_clip(clip);
        (kind, learner, f64::INFINITY)
    });
    for _ in 0..REPETITIONS {
        for (_, learner, best) in &mut learners {
            let started = Instant::now();
            learner.step(&data).unwrap();
            *best = best.min(started.elapsed().as_secs_f64());
        }
    }
    let plain = learners[0].2;
    for (kind, _, best) in &learners {
        let (time, ratio) = (best * 1e3, best / plain);
        println!("{name}, B {batch}, momentum {}: {kind}: {time:.3} ms, {ratio:.2} x plain", sgd.momentum);
    }
}
