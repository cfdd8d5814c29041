//! The built-in glyphs are neither too easy nor too hard: a linear model cannot read them well, a small
//! convolutional network can. Between the two lies the room in which federated methods differ.

use std::sync::Arc;

use models::{Architecture, Backend, Batch, Learner, Sgd, Targets, evaluate};
use shared::data::{Split, View, glyphs};
use shared::seed::{Seed, shuffle};

const TRAIN: usize = 8_000;
const TEST: usize = 2_000;
const BATCH: usize = 16;

fn batch(view: &View, positions: &[usize]) -> Batch {
    let (mut x, mut y) = (Vec::new(), Targets::default());
    view.fill(positions, &mut x, &mut y);
    let shape = [&[positions.len()], view.shape()].concat();
    Batch::with_targets(x, shape, y).unwrap()
}

/// Accuracy on test and on training samples after some epochs of stochastic gradient descent, with the rate falling
/// linearly to zero.
fn train(model: &str, sgd: Sgd, epochs: usize) -> (f64, f64) {
    let seed = Seed::root(2024);
    let view = |split, count| View::whole(Arc::new(glyphs::generate(&seed, split, count).unwrap()));
    let (train, test) = (view(Split::Train, TRAIN), view(Split::Test, TEST));
    let architecture = Architecture::by_name(model, train.shape(), train.classes()).unwrap();
    let params = architecture.initialise(|name| seed.derive_bytes("init", name.as_bytes()).rng()).unwrap();
    let mut learner = Learner::new(&architecture, &params, sgd, &Backend::cpu()).unwrap();
    let mut order: Vec<usize> = (0..TRAIN).collect();
    let steps = epochs * TRAIN.div_ceil(BATCH);
    let mut step = 0;
    for epoch in 0..epochs {
        shuffle(&mut order, &mut seed.derive_numbered("epoch", epoch as u64).rng());
        for positions in order.chunks(BATCH) {
            learner.set_rate(sgd.rate * (1.0 - step as f64 / steps as f64));
            learner.step(&batch(&train, positions)).unwrap();
            step += 1;
        }
    }
    let mut accuracy = |view: &View| {
        let positions: Vec<usize> = (0..TEST).collect();
        let batches = positions.chunks(200).map(|positions| batch(view, positions));
        evaluate(learner.network(), batches).unwrap().accuracy.unwrap()
    };
    (accuracy(&test), accuracy(&train))
}

#[test]
fn a_linear_model_cannot_read_the_glyphs() {
    let sgd = Sgd { rate: 0.02, momentum: 0.9, decay: 0.0 };
    let (test, train) = train("linear", sgd, 12);
    println!("linear: {test:.4} on test, {train:.4} on training samples");
    assert!(test < 0.90, "a linear model reaches {test}: the glyphs are too easy");
    assert!(
        train > 0.75,
        "the linear model learned only {train} of its training samples: its failure proves nothing"
    );
}

#[test]
fn a_small_convolutional_network_can_read_the_glyphs() {
    let sgd = Sgd { rate: 0.04, momentum: 0.9, decay: 1e-4 };
    let (test, train) = train("cnn-small", sgd, 2);
    println!("cnn-small: {test:.4} on test, {train:.4} on training samples");
    assert!(test > 0.97, "cnn-small reaches only {test}: the glyphs are too hard");
}
