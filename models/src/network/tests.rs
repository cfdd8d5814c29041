use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::*;
use crate::architecture::{Initialisation, Layer};
use crate::dropout_masks::Masks;
use crate::params::MismatchKind;

const TRAINING: Mode = Mode::Training(Masks::new([0; 32], 0));

fn architecture() -> Architecture {
    let linear = |name: &str, out| Layer::Linear { name: name.into(), out, bias: false };
    Architecture {
        name: "test".into(),
        input: vec![2],
        classes: 1,
        initialisation: Initialisation::Uniform,
        extractor: vec![linear("a", 2), Layer::Relu],
        projection: vec![linear("b", 1)],
        head: vec![linear("c", 1)],
        ..Architecture::default()
    }
}

fn params() -> ParamSet {
    let mut params = ParamSet::new();
    params.insert("extractor.a.weight", Array::new([2, 2], vec![1.0, 2.0, -1.0, 0.5]).unwrap());
    params.insert("projection.b.weight", Array::new([1, 2], vec![3.0, 7.0]).unwrap());
    params.insert("head.c.weight", Array::new([1, 1], vec![-2.0]).unwrap());
    params
}

#[test]
fn the_three_parts_are_applied_in_order() {
    for backend in [Backend::cpu(), Backend::candle_on_cpu()] {
        let mut network = Network::new(&architecture(), &params(), &backend).unwrap();
        network.forward(&[1.0, 1.0], &[1, 2], Mode::Evaluation).unwrap();
        assert_eq!(network.features(), [3.0, 0.0]);
        assert_eq!(network.representation(), [9.0]);
        assert_eq!(network.logits(), [-18.0]);
    }
}

#[test]
fn gradients_enter_at_any_output() {
    // With a = W x = (3, -0.5), f = max(a, 0), r = 3 f_1 + 7 f_2 and l = -2 r.
    for backend in [Backend::cpu(), Backend::candle_on_cpu()] {
        let mut network = Network::new(&architecture(), &params(), &backend).unwrap();
        let mut gradients = |gradients| {
            network.forward(&[1.0, 1.0], &[1, 2], TRAINING).unwrap();
            network.backward(gradients).unwrap();
            let set = network.gradients().unwrap();
            ["extractor.a", "projection.b", "head.c"]
                .map(|layer| set.get(&format!("{layer}.weight")).unwrap().values().to_vec())
        };
        let none = OutputGradients::default();
        let [a, b, c] = gradients(OutputGradients { logits: Some(&[1.0]), ..none });
        assert_eq!((a, b, c), (vec![-6.0, -6.0, 0.0, 0.0], vec![-6.0, 0.0], vec![9.0]));
        let [a, b, c] = gradients(OutputGradients { representation: Some(&[1.0]), ..none });
        assert_eq!((a, b, c), (vec![3.0, 3.0, 0.0, 0.0], vec![3.0, 0.0], vec![0.0]));
        let [a, b, c] = gradients(OutputGradients { features: Some(&[2.0, 5.0]), ..none });
        assert_eq!((a, b, c), (vec![2.0, 2.0, 0.0, 0.0], vec![0.0, 0.0], vec![0.0]));
        let all = OutputGradients {
            features: Some(&[2.0, 5.0]),
            representation: Some(&[1.0]),
            logits: Some(&[1.0]),
        };
        let [a, b, c] = gradients(all);
        assert_eq!((a, b, c), (vec![-1.0, -1.0, 0.0, 0.0], vec![-3.0, 0.0], vec![9.0]));
    }
}

#[test]
fn parts_that_learn_nothing_may_change_the_shape() {
    let fc = Layer::Linear { name: "fc".into(), out: 1, bias: false };
    let architecture = Architecture {
        name: "test".into(),
        input: vec![1, 2, 2],
        classes: 1,
        initialisation: Initialisation::Uniform,
        extractor: vec![Layer::Relu],
        projection: vec![Layer::GlobalAvgPool],
        head: vec![fc],
        ..Architecture::default()
    };
    let mut params = ParamSet::new();
    params.insert("head.fc.weight", Array::new([1, 1], vec![3.0]).unwrap());
    for backend in [Backend::cpu(), Backend::candle_on_cpu()] {
        let mut network = Network::new(&architecture, &params, &backend).unwrap();
        network.forward(&[1.0, 2.0, -9.0, 5.0], &[1, 1, 2, 2], TRAINING).unwrap();
        for features in [None, Some(&[1.0; 4][..])] {
            let gradients = OutputGradients { features, logits: Some(&[0.5]), ..OutputGradients::default() };
            network.backward(gradients).unwrap();
            let found = network.gradients().unwrap();
            assert_eq!(found.get("head.fc.weight").unwrap().values(), [1.0]);
        }
    }
}

#[test]
fn the_classifier_gives_for_features_what_the_whole_gives_for_samples() {
    for (name, input) in [("lenet-5", &[1, 28, 28][..]), ("moon-cnn", &[3, 32, 32]), ("char-lstm", &[7])] {
        let whole = Architecture::by_name(name, input, 10).unwrap();
        let params = whole.initialise(|name| ChaCha8Rng::seed_from_u64(name.len() as u64)).unwrap();
        let mut network = Network::new(&whole, &params, &Backend::cpu()).unwrap();
        let x: Vec<f32> = (0..2 * input.iter().product::<usize>()).map(|at| (at % 7) as f32).collect();
        network.forward(&x, &[&[2], input].concat(), Mode::Evaluation).unwrap();

        let above = whole.classifier().unwrap();
        let mut head = params.select("projection.");
        head.insert_under("", params.select("head."));
        let mut classifier = Network::new(&above, &head, &Backend::cpu()).unwrap();
        let shape = [&[2], &above.input[..]].concat();
        classifier.forward(network.features(), &shape, Mode::Evaluation).unwrap();
        assert_eq!(classifier.logits(), network.logits(), "{name}");
    }
}

#[test]
fn load_and_read_copy() {
    let mut network = Network::new(&architecture(), &params(), &Backend::cpu()).unwrap();
    let before = network.params().unwrap();
    assert_eq!(before, params());
    let mut other = params();
    other.scale(2.0);
    network.load(&other).unwrap();
    assert_eq!(network.params().unwrap(), other);
    // The earlier snapshot has not changed.
    assert_eq!(before, params());
}

#[test]
fn parameters_that_do_not_fit_are_named() {
    let tensor = |params: &ParamSet| match Network::new(&architecture(), params, &Backend::cpu()) {
        Err(ModelError::Mismatch(mismatch)) => mismatch,
        other => panic!("{other:?}"),
    };
    let mut missing = params().select("extractor.");
    missing.insert("projection.b.weight", Array::zeros([1, 2]));
    assert_eq!(tensor(&missing), Mismatch::missing("head.c.weight"));
    for extra in ["a", "head.c.bias", "z"] {
        let mut set = params();
        set.insert(extra, Array::zeros([1]));
        assert_eq!(tensor(&set), Mismatch::extra(extra));
    }
    let mut wrong = params();
    wrong.insert("head.c.weight", Array::zeros([1]));
    assert!(matches!(tensor(&wrong).kind, MismatchKind::Shape { .. }));

    let mut network = Network::new(&architecture(), &params(), &Backend::cpu()).unwrap();
    assert!(network.load(&wrong).is_err());
    assert_eq!(network.params().unwrap(), params());
}

#[test]
fn samples_of_another_shape_are_refused() {
    let mut network = Network::new(&architecture(), &params(), &Backend::cpu()).unwrap();
    for shape in [&[1usize, 3][..], &[2], &[1, 1, 2], &[]] {
        let x = vec![0.0; shape.iter().product()];
        let result = network.forward(&x, shape, Mode::Evaluation);
        assert!(matches!(result, Err(ModelError::Input { .. })), "{shape:?}");
    }
}
