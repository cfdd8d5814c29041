//! The engine for CPUs against candle's engine.

use std::error::Error as _;

use super::*;

/// Candle's engine on the CPU, and on the CUDA device if there is one; prints a line if there is none.
fn other_backends() -> Vec<Backend> {
    let mut backends = vec![Backend::candle_on_cpu()];
    if cfg!(feature = "cuda") {
        match Backend::cuda() {
            Ok(cuda) => backends.push(cuda),
            Err(error) => eprintln!("skipped on CUDA: {error}: {:?}", error.source()),
        }
    }
    backends
}

/// Compares the loss of a batch and its gradient with those of the engine for CPUs.
fn check_agreement(architecture: &Architecture, params: &ParamSet, batch: &Batch) {
    let gradient = |backend: &Backend| {
        let learner = Learner::new(architecture, params, Sgd::plain(0.1), backend).unwrap();
        // The same masks of dropout on both.
        learner.with_seed(SEED).gradient(batch).unwrap()
    };
    let (loss, ours) = gradient(&Backend::cpu());
    for backend in other_backends() {
        let subject = format!("{} on {}", architecture.name, backend.name());
        let (expected, theirs) = gradient(&backend);
        assert!((loss - expected).abs() < 1e-5, "{subject}: {loss} {expected}");
        // What normalisation cancels out is rounding alone, on both sides.
        let nothing = 1e-6 * theirs.l2_norm() as f32;
        for (name, array) in &theirs {
            let scale = array.values().iter().fold(0.0f32, |max, value| max.max(value.abs()));
            let tolerance = if scale < nothing { nothing } else { 1e-4 * scale };
            for (found, expected) in ours.get(name).unwrap().values().iter().zip(array.values()) {
                let error = (found - expected).abs();
                assert!(error <= tolerance, "{subject}, {name}: {found} {expected}");
            }
        }
    }
}

#[test]
fn both_engines_agree() {
    for built_in in crate::architecture::BUILT_INS {
        let architecture = Architecture::by_name(built_in.name, built_in.input, 10).unwrap();
        // Dozens of normalisations of three samples amplify rounding; each kind of layer is compared below.
        if built_in.name == "mobilenet-v3-small" {
            continue;
        }
        if architecture.parameters().unwrap() > 2_000_000 {
            continue;
        }
        let params = architecture.initialise(|name| ChaCha8Rng::seed_from_u64(name.len() as u64)).unwrap();
        check_agreement(&architecture, &params, &noise(&architecture, 3));
    }
}

#[test]
fn both_engines_agree_on_what_convolutions_leave_over() {
    for input in UNEVEN {
        let (architecture, params, batch) = start(&input, uneven(), vec![linear("c", 3, true)]);
        check_agreement(&architecture, &params, &batch);
    }
}

#[test]
fn both_engines_agree_on_groups() {
    for input in [[1, 7, 6], [2, 6, 6]] {
        let (architecture, params, batch) = start(&input, in_groups(), vec![linear("c", 3, true)]);
        check_agreement(&architecture, &params, &batch);
    }
}

#[test]
fn both_engines_agree_on_squeeze_and_excitation_and_normalisation_of_rows() {
    let head = vec![linear("h", 6, true), layer_norm("n"), linear("c", 3, true), simplex_etf("s")];
    let own = Layer::BatchNormWith { name: "w".into(), epsilon: 1e-2, momentum: 0.3 };
    let layers = [vec![Layer::ZeroPad { pixels: 1 }, conv("z", 3, 2, 1, 0, true), own], excited()].concat();
    let (architecture, params, batch) = start(&[2, 5, 6], layers, head);
    check_agreement(&architecture, &params, &batch);
}

#[test]
fn both_engines_agree_on_attention() {
    for last in [Layer::FirstPosition, Layer::MeanPositions] {
        let (architecture, params, batch) = start(&[2, 4, 6], transformer(last), vec![linear("c", 3, true)]);
        check_agreement(&architecture, &params, &batch);
    }
    let mut layers = language_model();
    layers.retain(|layer| !matches!(layer, Layer::Dropout { .. }));
    let (architecture, params, batch) = start(&[4], layers, vec![linear("c", 3, true)]);
    check_agreement(&architecture, &params, &batch);
}

#[test]
fn both_engines_agree_on_activations() {
    for layer in activations() {
        // Wide enough for values on both sides of every kink.
        let extractor = vec![Layer::GroupNorm { name: "n".into(), groups: 1 }, linear("a", 40, true), layer];
        let (architecture, mut params, batch) = start(&[5], extractor, vec![linear("c", 3, true)]);
        params.get_mut("extractor.a.weight").unwrap().values_mut().iter_mut().for_each(|w| *w *= 8.0);
        check_agreement(&architecture, &params, &batch);
    }
}

#[test]
fn both_engines_learn_alike() {
    let block = vec![conv("b", 4, 3, 1, 1, false), Layer::BatchNorm { name: "n".into() }, Layer::Relu];
    let layers = vec![
        conv("a", 4, 3, 2, 1, true),
        Layer::Relu,
        Layer::Residual { body: block, shortcut: vec![] },
        max_pool(2, 2),
        Layer::Flatten,
    ];
    let (architecture, params, batch) = start(&[2, 9, 8], layers, vec![linear("c", 3, true)]);
    let sgd = Sgd { rate: 0.05, momentum: 0.9, decay: 0.01 };
    // The larger epsilon keeps gradients of nearly 0, which engines round otherwise, from steps of full length.
    let adam = AdamSettings { decay: 0.1, epsilon: 1e-3, ..AdamSettings::with_rate(0.02) };
    for optimizer in
        [Optimizer::Sgd(sgd), Optimizer::Nesterov(sgd), Optimizer::Adam(adam), Optimizer::AdamW(adam)]
    {
        let train = |backend: &Backend| {
            let mut learner = Learner::new(&architecture, &params, optimizer, backend).unwrap();
            let losses: Vec<f32> = (0..10).map(|_| learner.step(&batch).unwrap()).collect();
            (losses, learner.params().unwrap())
        };
        let (losses, ours) = train(&Backend::cpu());
        assert!(losses[9] < losses[0] / 2.0, "{optimizer:?} {losses:?}");
        for backend in other_backends() {
            let (expected, theirs) = train(&backend);
            for (found, expected) in losses.iter().zip(&expected) {
                assert!(
                    (found - expected).abs() < 1e-4,
                    "{} {optimizer:?}: {losses:?} {expected:?}",
                    backend.name()
                );
            }
            let distance = ours.clone().difference(&theirs).unwrap().l2_norm();
            assert!(distance < 1e-4 * ours.l2_norm(), "{} {optimizer:?}: {distance}", backend.name());
        }
    }
}

#[test]
fn an_optimizer_goes_on_elsewhere_with_what_it_has_kept() {
    let layers = vec![linear("a", 7, true), Layer::Relu];
    let (architecture, params, batch) = start(&[5], layers, vec![linear("c", 3, true)]);
    let (sgd, adam) = (Sgd { momentum: 0.9, ..Sgd::plain(0.05) }, AdamSettings::with_rate(0.02));
    for optimizer in [Optimizer::Sgd(sgd), Optimizer::Nesterov(sgd), Optimizer::AdamW(adam)] {
        for backend in [Backend::cpu()].into_iter().chain(other_backends()) {
            let learner =
                |params: &ParamSet| Learner::new(&architecture, params, optimizer, &backend).unwrap();
            let steps = |learner: &mut Learner, count: usize| {
                for _ in 0..count {
                    learner.step(&batch).unwrap();
                }
                learner.params().unwrap()
            };
            let whole = steps(&mut learner(&params), 6);
            let mut first = learner(&params);
            let half = steps(&mut first, 3);
            let mut second = learner(&half);
            second.restore_optimizer(&first.optimizer_state().unwrap()).unwrap();
            assert_eq!(steps(&mut second, 3), whole, "{} {optimizer:?}", backend.name());
            // Without it, it takes other steps.
            assert_ne!(steps(&mut learner(&half), 3), whole, "{} {optimizer:?}", backend.name());

            let mut foreign = first.optimizer_state().unwrap();
            foreign.moments[0].insert("head.c.bias", Array::zeros([4]));
            let error = second.restore_optimizer(&foreign).unwrap_err();
            assert!(
                matches!(&error, ModelError::Mismatch(found) if found.tensor == "head.c.bias"),
                "{error:?}"
            );
        }
    }
}

#[test]
fn one_value_in_a_channel_teaches_no_engine_its_variance() {
    let norm = Layer::BatchNorm { name: "n".into() };
    let (features, params, _) = start(&[5], vec![norm.clone()], vec![linear("c", 3, true)]);
    let head = vec![Layer::Flatten, linear("c", 3, true)];
    let (pixels, of_pixels, _) = start(&[2, 1, 2], vec![norm], head);
    for backend in [Backend::cpu()].into_iter().chain(other_backends()) {
        let step = |architecture: &Architecture, params: &ParamSet, samples: usize| {
            let mut learner = Learner::new(architecture, params, Sgd::plain(0.1), &backend).unwrap();
            let found = learner.step(&noise(architecture, samples));
            (found, learner.params().unwrap())
        };
        let (refused, after) = step(&features, &params, 1);
        let error = refused.unwrap_err();
        assert!(matches!(&error, ModelError::OneValue { layer } if layer == "extractor.n"), "{error}");
        assert!(error.to_string().contains("training.drop-last = true"), "{error}");
        assert_eq!(after, params, "{}: nothing was learned from it", backend.name());
        // Two values are enough, whether of two samples or of one.
        for (architecture, params, samples) in [(&features, &params, 2), (&pixels, &of_pixels, 1)] {
            let loss = step(architecture, params, samples).0.unwrap();
            assert!(loss.is_finite(), "{}: {loss}", backend.name());
        }
        // And to be used it needs none.
        let mut network = crate::Network::new(&features, &params, &backend).unwrap();
        assert!(evaluate(&mut network, [&noise(&features, 1)]).is_ok());
    }
}
