//! Frozen parameters: what is learned is what is learned where the gradient of the others is set to 0 by hand.

use bytes::Bytes;

use super::*;
use crate::architecture::{Frozen, encode_frozen};

/// A convolutional network with batch normalisation and dropout in both parts, and a residual block.
fn network() -> (Architecture, ParamSet, Batch) {
    let conv = |name: &str, out| Layer::Conv {
        name: name.into(),
        out,
        kernel: 3,
        stride: 1,
        padding: 1,
        bias: true,
    };
    let norm = |name: &str| Layer::BatchNorm { name: name.into() };
    let extractor = vec![
        conv("a", 4),
        norm("na"),
        Layer::Gelu,
        Layer::Residual { body: vec![conv("b", 4), norm("nb"), Layer::Gelu], shortcut: vec![] },
        Layer::Dropout { rate: 0.3 },
        conv("c", 3),
        norm("nc"),
    ];
    let head = vec![Layer::Flatten, linear("d", 6, true), Layer::Gelu, linear("e", 3, true)];
    start(&[2, 5, 5], extractor, head)
}

/// The architecture with these tensors frozen at what they are in `params`, and the others.
fn freeze(architecture: &Architecture, params: &ParamSet, names: &[&str]) -> (Architecture, ParamSet) {
    let names = names.iter().map(|&name| name.to_owned()).collect();
    let architecture = Architecture { frozen: Some(Frozen::named(names)), ..architecture.clone() };
    let (learned, frozen) = architecture.divide(params.clone());
    (architecture.with_frozen(&Bytes::from(encode_frozen(&frozen))).unwrap(), learned)
}

fn backends() -> [Backend; 2] {
    [Backend::cpu(), Backend::candle_on_cpu()]
}

#[test]
fn what_is_learned_is_what_is_learned_where_other_gradients_are_zero() {
    // Without normalisation and dropout, whose mode depends on what is frozen.
    let (architecture, params, batch) = start(
        &[6],
        vec![linear("a", 5, true), Layer::Gelu, linear("b", 5, true), Layer::Relu],
        vec![linear("c", 4, true), Layer::Relu, linear("d", 3, true)],
    );
    for names in [&["extractor.*"][..], &["extractor.b.*"], &["head.d.*", "extractor.a.weight"], &["*.bias"]]
    {
        for (backend, momentum) in backends().iter().flat_map(|backend| [(backend, 0.0), (backend, 0.9)]) {
            let sgd = Sgd { rate: 0.1, momentum, decay: 0.0 };
            let (frozen, learned) = freeze(&architecture, &params, names);
            let mut ours = Learner::new(&frozen, &learned, sgd, backend).unwrap();
            let mut theirs = Learner::new(&architecture, &params, sgd, backend).unwrap();
            for _ in 0..4 {
                ours.step(&batch).unwrap();
                let (_, mut gradient) = theirs.gradient(&batch).unwrap();
                for (name, array) in gradient.iter_mut() {
                    if frozen.is_frozen(name) {
                        array.values_mut().fill(0.0);
                    }
                }
                theirs.apply(&gradient).unwrap();
            }
            let found = ours.params().unwrap();
            let (expected, untouched) = frozen.divide(theirs.params().unwrap());
            assert!(found.distance(&expected).unwrap() < 1e-6, "{names:?} on {}", backend.name());
            assert!(found.distance(&learned).unwrap() > 1e-3, "nothing was learned");
            let whole = frozen.compose(&found).unwrap();
            assert_eq!(frozen.divide(whole.into_owned()).1, untouched);
            for (name, values) in &untouched {
                assert_eq!(ours.network().parameter(name).unwrap(), *values, "{name} on {}", backend.name());
            }
        }
    }
}

#[test]
fn gradients_with_parts_frozen_are_central_differences() {
    let (architecture, params, batch) = network();
    for names in
        [&["extractor.*"][..], &["extractor.a.*", "extractor.n*"], &["*.running-*"], &["extractor.b.*"]]
    {
        let (frozen, learned) = freeze(&architecture, &params, names);
        for backend in backends() {
            let mut learner =
                Learner::new(&frozen, &learned, Sgd::plain(0.1), &backend).unwrap().with_seed(SEED);
            let (_, gradient) = learner.gradient(&batch).unwrap();
            learned.check_same_layout(&gradient).unwrap();
            let mut network = Network::new(&frozen, &learned, &backend).unwrap();
            // A few of each tensor: candle takes its time.
            let step = 1e-3f32;
            for (name, array) in &gradient {
                for index in [0, array.len() / 2, array.len() - 1] {
                    let mut loss_at = |offset: f32| {
                        let mut moved = learned.clone();
                        moved.get_mut(name).unwrap().values_mut()[index] += offset;
                        network.load(&moved).unwrap();
                        gradients::training_loss(&mut network, &batch)
                    };
                    let expected = (loss_at(step) - loss_at(-step)) / f64::from(2.0 * step);
                    let found = f64::from(array.values()[index]);
                    let on = backend.name();
                    assert!(
                        (found - expected).abs() < 2e-3,
                        "{names:?} on {on}: {name}[{index}] {found} {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_frozen_part_does_in_training_what_it_does_in_evaluation() {
    let (architecture, params, batch) = network();
    let (frozen, learned) = freeze(&architecture, &params, &["extractor.*"]);
    for backend in backends() {
        let mut network = Network::new(&frozen, &learned, &backend).unwrap();
        network.forward(batch.x(), batch.shape(), Mode::Evaluation).unwrap();
        let expected = network.features().to_vec();
        network.forward(batch.x(), batch.shape(), TRAINING).unwrap();
        assert_eq!(network.features(), expected, "{}", backend.name());
        let mean = network.parameter("extractor.na.running-mean").unwrap();
        assert_eq!(Some(&mean), params.get("extractor.na.running-mean"), "{}", backend.name());
    }
}

#[test]
fn frozen_parameters_that_are_not_at_hand_are_named() {
    let (architecture, params, _) = network();
    let frozen = Frozen::named(vec!["extractor.*".to_owned()]);
    let architecture = Architecture { frozen: Some(frozen), ..architecture };
    let (learned, _) = architecture.divide(params);
    let error = Network::new(&architecture, &learned, &Backend::cpu()).unwrap_err();
    assert!(matches!(error, ModelError::Mismatch(mismatch) if mismatch.tensor == "extractor.a.weight"));
}

#[test]
fn a_learner_is_not_reused_for_other_frozen_parameters() {
    let (architecture, mut params, batch) = network();
    let (first, learned) = freeze(&architecture, &params, &["extractor.*"]);
    params.get_mut("extractor.a.weight").unwrap().values_mut()[0] += 1.0;
    let (second, _) = freeze(&architecture, &params, &["extractor.*"]);
    let backend = Backend::cpu();
    let step = |mut learner: Learner| {
        learner.step(&batch).unwrap();
        learner
    };
    let new = |architecture| {
        Learner::new(architecture, &learned, Sgd::plain(0.1), &backend).unwrap().with_seed(SEED)
    };
    let done = step(new(&first));
    let again =
        Learner::reusing(Some(done), &second, &learned, Sgd::plain(0.1), &backend).unwrap().with_seed(SEED);
    assert_eq!(step(again).params().unwrap(), step(new(&second)).params().unwrap());
}

#[test]
fn a_batch_with_its_features_is_learned_from_as_one_without() {
    for name in ["lenet-5", "mobilenet-v3-small", "vit-tiny"] {
        let built_in = crate::architecture::BUILT_INS.iter().find(|built_in| built_in.name == name).unwrap();
        let architecture = Architecture::by_name(name, built_in.input, 5).unwrap();
        let params = architecture.initialise(|name| ChaCha8Rng::seed_from_u64(name.len() as u64)).unwrap();
        let (frozen, learned) = freeze(&architecture, &params, &["extractor.*"]);
        let batch = noise(&architecture, 3);
        let new =
            || Learner::new(&frozen, &learned, Sgd::plain(0.1), &Backend::cpu()).unwrap().with_seed(SEED);
        let features = new().features(&batch).unwrap().to_vec();
        let (mut anew, mut known) = (new(), new());
        let with_features = batch.clone().with_features(features);
        for _ in 0..2 {
            let losses = [anew.step(&batch), known.step(&with_features)].map(Result::unwrap);
            assert_eq!(losses[0].to_bits(), losses[1].to_bits(), "{name}");
        }
        assert_eq!(anew.params().unwrap(), known.params().unwrap(), "{name}");
    }
}

#[test]
fn only_networks_with_a_frozen_extractor_begin_with_features() {
    let (architecture, params, batch) = network();
    let (frozen, learned) = freeze(&architecture, &params, &["extractor.*"]);
    for backend in backends() {
        let mut network = Network::new(&frozen, &learned, &backend).unwrap();
        network.forward_batch(&batch, TRAINING).unwrap();
        let (features, logits) = (network.features().to_vec(), network.logits().to_vec());
        let samples = vec![0.0; batch.x().len()];
        let others = Batch::new(samples, batch.shape(), batch.y().to_vec()).unwrap();
        let with_features = others.clone().with_features(features.clone());
        network.forward_batch(&with_features, TRAINING).unwrap();
        let name = backend.name();
        assert_eq!((network.features(), network.logits()), (&features[..], &logits[..]), "{name}");
        network.forward_batch(&others, TRAINING).unwrap();
        assert_ne!(network.logits(), logits, "{name}");
        let wrong = batch.clone().with_features(vec![0.0; 8]);
        assert!(matches!(network.forward_batch(&wrong, TRAINING), Err(ModelError::Input { .. })));
        let mut whole = Network::new(&architecture, &params, &backend).unwrap();
        whole.forward_batch(&with_features, TRAINING).unwrap();
        assert_ne!(whole.features(), features, "{name}: they change with the extractor");
    }
}

/// A step of a network whose extractor is frozen, without and with its features, as shares of a whole step.
#[test]
#[ignore = "a measurement: with --release, on a machine with nothing else to do"]
fn a_step_takes_less_with_a_frozen_extractor_and_next_to_nothing_with_its_features() {
    let architecture = Architecture::by_name("mobilenet-v2", &[3, 96, 96], 5).unwrap();
    let params = architecture.initialise(|name| ChaCha8Rng::seed_from_u64(name.len() as u64)).unwrap();
    let (frozen, learned) = freeze(&architecture, &params, &["extractor.*"]);
    let batch = noise(&architecture, 32);
    let new = |architecture, params| {
        Learner::new(architecture, params, Sgd::plain(0.01), &Backend::cpu()).unwrap().with_seed(SEED)
    };
    let (mut whole, mut part) = (new(&architecture, &params), new(&frozen, &learned));
    let known = batch.clone().with_features(part.features(&batch).unwrap().to_vec());
    let mut known_part = new(&frozen, &learned);
    let took = |learner: &mut Learner, batch: &Batch| {
        let begun = std::time::Instant::now();
        learner.step(batch).unwrap();
        begun.elapsed().as_secs_f64()
    };
    // In turns, so that other work of the machine meets all three. The first turn makes room.
    let mut turns: Vec<[f64; 2]> = (0..8)
        .map(|_| {
            let all = took(&mut whole, &batch);
            [took(&mut part, &batch) / all, took(&mut known_part, &known) / all]
        })
        .skip(1)
        .collect();
    let shares = [0, 1].map(|which| {
        turns.sort_by(|a, b| a[which].total_cmp(&b[which]));
        turns[turns.len() / 2][which]
    });
    println!(
        "mobilenet-v2, 3x96x96, batch 32: frozen {:.3}, with features {:.4} of a step",
        shares[0], shares[1]
    );
    assert!(shares[0] <= 0.4 && shares[1] <= 0.02, "{shares:?}");
}
