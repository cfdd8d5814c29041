//! Corrections and clipping of the gradient against their formulas, in both engines.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::{
    Architecture, Backend, Batch, Correction, Initialisation, Layer, Learner, ModelError, ParamSet, Sgd,
};

/// A network with all kinds of parameters that are stepped differently: of convolutions and linear layers, biases, buffers.
fn architecture() -> Architecture {
    let conv =
        |name: &str, bias| Layer::Conv { name: name.into(), out: 3, kernel: 3, stride: 1, padding: 1, bias };
    Architecture {
        name: "test".into(),
        input: vec![2, 5, 4],
        classes: 3,
        initialisation: Initialisation::Uniform,
        extractor: vec![
            conv("a", true),
            Layer::Relu,
            conv("b", false),
            Layer::BatchNorm { name: "n".into() },
            Layer::Flatten,
        ],
        projection: vec![Layer::Linear { name: "c".into(), out: 6, bias: true }, Layer::Relu],
        head: vec![Layer::Linear { name: "d".into(), out: 3, bias: false }],
        ..Architecture::default()
    }
}

/// A parameter set of the architecture with pseudorandom values.
fn params(architecture: &Architecture, seed: u64) -> ParamSet {
    architecture.initialise(|name| ChaCha8Rng::seed_from_u64(seed + name.len() as u64)).unwrap()
}

fn batch(seed: u64) -> Batch {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let x = (0..6 * 40).map(|_| rng.next_u32() as f32 / u32::MAX as f32 * 2.0 - 1.0).collect();
    Batch::new(x, [6, 2, 5, 4], (0..6).map(|i| i % 3).collect()).unwrap()
}

const OPTIMIZERS: [Sgd; 3] = [
    Sgd { rate: 0.1, momentum: 0.0, decay: 0.0 },
    Sgd { rate: 0.1, momentum: 0.9, decay: 0.0 },
    Sgd { rate: 0.1, momentum: 0.9, decay: 0.02 },
];

fn backends() -> [Backend; 2] {
    [Backend::cpu(), Backend::candle_on_cpu()]
}

/// Steps with `correction` and `clip` in the engine, and with both by hand on the gradient: the models after three steps.
fn both(backend: &Backend, sgd: Sgd, correction: &Correction, clip: Option<f64>) -> [ParamSet; 2] {
    let architecture = architecture();
    let start = params(&architecture, 1);
    let new = || Learner::new(&architecture, &start, sgd, backend).unwrap();
    let (mut engine, mut hand) = (new(), new());
    engine.correct(correction).unwrap();
    engine.set_clip(clip);
    for seed in 0..3 {
        let loss = engine.step(&batch(seed)).unwrap();
        let (same, mut gradient) = hand.gradient(&batch(seed)).unwrap();
        assert!((loss - same).abs() < 1e-5);
        let norm = gradient.l2_norm();
        if let Some(clip) = clip.filter(|&clip| norm > clip) {
            gradient.scale((clip / norm) as f32);
        }
        if let Some((pull, anchor)) = &correction.anchor {
            let away = hand.params().unwrap().difference(anchor).unwrap();
            gradient.add_scaled(*pull as f32, &away).unwrap();
        }
        if let Some(shift) = &correction.shift {
            gradient.add(shift).unwrap();
        }
        hand.apply(&gradient).unwrap();
    }
    [engine.params().unwrap(), hand.params().unwrap()]
}

fn corrections() -> [Correction; 3] {
    let architecture = architecture();
    let anchor = Some((0.7, params(&architecture, 5)));
    let shift = Some(params(&architecture, 9));
    [
        Correction { anchor: anchor.clone(), shift: None },
        Correction { anchor: None, shift: shift.clone() },
        Correction { anchor, shift },
    ]
}

#[test]
fn a_corrected_step_is_a_step_along_the_corrected_gradient() {
    for backend in backends() {
        for sgd in OPTIMIZERS {
            let [plain, _] = both(&backend, sgd, &Correction::default(), None);
            for correction in corrections() {
                for clip in [None, Some(0.5)] {
                    let [engine, hand] = both(&backend, sgd, &correction, clip);
                    let distance = engine.distance(&hand).unwrap();
                    assert!(distance < 1e-5, "{} {sgd:?} {clip:?}: {distance}", backend.name());
                    assert!(engine.distance(&plain).unwrap() > 0.05, "it makes a difference");
                }
            }
        }
    }
}

#[test]
fn a_long_gradient_is_shortened_and_a_short_one_is_not() {
    for backend in backends() {
        for sgd in OPTIMIZERS {
            let none = Correction::default();
            let [plain, _] = both(&backend, sgd, &none, None);
            let [short, hand] = both(&backend, sgd, &none, Some(0.05));
            assert!(short.distance(&hand).unwrap() < 1e-5, "{} {sgd:?}", backend.name());
            assert!(short.distance(&plain).unwrap() > 0.05, "{} {sgd:?}", backend.name());
            let [long, _] = both(&backend, sgd, &none, Some(1e6));
            assert!(long.distance(&plain).unwrap() < 1e-5, "{} {sgd:?}", backend.name());
        }
    }
}

#[test]
fn no_correction_is_no_correction_to_the_bit() {
    let architecture = architecture();
    let zero = Correction { anchor: None, shift: Some(params(&architecture, 1).zeros_like()) };
    for sgd in OPTIMIZERS {
        let [plain, _] = both(&Backend::cpu(), sgd, &Correction::default(), None);
        assert_eq!(both(&Backend::cpu(), sgd, &zero, None)[0], plain, "{sgd:?}");
    }
}

#[test]
fn corrections_end_when_parameters_are_loaded() {
    let architecture = architecture();
    let start = params(&architecture, 1);
    for backend in backends() {
        let step = |learner: &mut Learner| {
            learner.step(&batch(1)).unwrap();
            learner.params().unwrap()
        };
        let mut plain = Learner::new(&architecture, &start, OPTIMIZERS[1], &backend).unwrap();
        let expected = step(&mut plain);
        let mut learner = Learner::new(&architecture, &start, OPTIMIZERS[1], &backend).unwrap();
        learner.correct(&corrections()[2]).unwrap();
        assert!(step(&mut learner).distance(&expected).unwrap() > 0.05);
        learner.load(&start).unwrap();
        assert_eq!(step(&mut learner), expected);
    }
}

#[test]
fn a_correction_must_fit_but_for_statistics() {
    let architecture = architecture();
    let start = params(&architecture, 1);
    let buffer = "extractor.n.running-mean";
    for backend in backends() {
        let mut learner = Learner::new(&architecture, &start, OPTIMIZERS[0], &backend).unwrap();
        let mut without = start.clone();
        without.remove(buffer).unwrap();
        learner.correct(&Correction { anchor: None, shift: Some(without.clone()) }).unwrap();
        without.remove("head.d.weight").unwrap();
        let error = learner.correct(&Correction { anchor: Some((1.0, without)), shift: None }).unwrap_err();
        let ModelError::Mismatch(mismatch) = error else { panic!("{error}") };
        assert_eq!(mismatch.tensor, "head.d.weight");
    }
}
