//! Quantised networks against those in `f32`.

mod accuracy;
mod speed;

use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::Int8Engine;
use super::fold::{Norm, fold};
use crate::architecture::{ParameterKind, Variant};
use crate::cpu::memory::Use;
use crate::engine::Engine;
use crate::kernels::noise;
use crate::optimizer::Optimizer;
use crate::params::ParamSet;
use crate::sgd::Sgd;
use crate::{
    Architecture, Array, BUILT_INS, Backend, Correction, Layer, Masks, Mode, ModelError, Network, Norm as By,
};

/// A network of these sizes, drawn at random. Where initial values are all alike, as in normalisation, they are drawn as well.
fn drawn(name: &str, input: &[usize], norm: Option<By>) -> (Architecture, ParamSet) {
    let variant = Variant { norm, ..Variant::default() };
    let architecture = Architecture::variant(name, input, 10, variant).unwrap();
    let seed =
        |name: &str| name.bytes().fold(7u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    let mut params = architecture.initialise(|name| ChaCha8Rng::seed_from_u64(seed(name))).unwrap();
    for spec in architecture.parameter_specs().unwrap() {
        let is = |suffix: &str| spec.name.ends_with(suffix);
        let mut array = params.get(&spec.name).unwrap().clone();
        let drawn = noise(array.len(), seed(&spec.name) as u32);
        for (value, drawn) in array.values_mut().iter_mut().zip(drawn) {
            if is("running-var") || (spec.shape.len() == 1 && is(".weight")) {
                *value = 1.0 + 0.5 * drawn;
            } else if is("running-mean") || is(".bias") {
                *value += 0.1 * drawn;
            }
        }
        assert!(spec.kind != ParameterKind::Buffer || is("running-mean") || is("running-var"));
        params.insert(spec.name, array);
    }
    (architecture, params)
}

/// A batch for an architecture: noise with the mean of an image, or tokens.
fn samples(architecture: &Architecture, n: usize, seed: u32) -> Vec<f32> {
    let mut x = noise(n * architecture.input.iter().product::<usize>(), seed);
    match architecture.vocabulary() {
        Some(vocabulary) => {
            for x in &mut x {
                *x = (f32::midpoint(*x, 1.0) * vocabulary as f32).floor();
            }
        }
        None => x.iter_mut().for_each(|x| *x += 0.3),
    }
    x
}

/// Features, representation and logits of a batch.
fn outputs(network: &mut Network, x: &[f32]) -> [Vec<f32>; 3] {
    let input = &network.architecture().input;
    let shape = [&[x.len() / input.iter().product::<usize>()], &input[..]].concat();
    network.forward(x, &shape, Mode::Evaluation).unwrap();
    [network.features(), network.representation(), network.logits()].map(<[f32]>::to_vec)
}

fn bits(outputs: &[Vec<f32>; 3]) -> Vec<u32> {
    outputs.iter().flatten().map(|value| value.to_bits()).collect()
}

/// Every built-in architecture, at sizes that a test has time for.
const CASES: &[(&str, &[usize])] = &[
    ("char-lstm", &[20]),
    ("cnn-cifar", &[3, 24, 24]),
    ("cnn-mnist", &[1, 28, 28]),
    ("cnn-small", &[1, 28, 28]),
    ("lenet-5", &[3, 32, 32]),
    ("linear", &[1, 28, 28]),
    ("mlp-2nn", &[1, 28, 28]),
    ("mlp-25m", &[1, 2, 2]),
    ("mobilenet-v2", &[3, 64, 64]),
    ("mobilenet-v3-small", &[3, 64, 64]),
    ("moon-cnn", &[3, 32, 32]),
    ("resnet-18", &[3, 32, 32]),
    ("resnet-18-imagenet", &[3, 64, 64]),
    ("resnet-50", &[3, 16, 16]),
    ("resnet-50-imagenet", &[3, 64, 64]),
    ("resnet-9", &[3, 32, 32]),
    ("text-transformer", &[16]),
    ("vgg-16", &[3, 32, 32]),
    ("vgg-16-imagenet", &[3, 32, 32]),
    ("vit-tiny", &[3, 32, 32]),
    ("word-lstm", &[10]),
];

#[test]
fn all_built_in_models_are_tested() {
    for built_in in BUILT_INS {
        assert!(CASES.iter().any(|(name, _)| *name == built_in.name), "{}", built_in.name);
    }
}

/// The parameters with every weight that is quantised rounded to its 255 steps.
fn rounded(params: &ParamSet) -> ParamSet {
    let round = |(name, array): (&str, &Array)| {
        let mut array = array.clone();
        let outputs = array.shape().first().copied().unwrap_or(1);
        if name.contains("weight") && (array.shape().len() == 2 || array.shape().len() == 4) {
            let each = array.len() / outputs;
            for row in array.values_mut().chunks_exact_mut(each) {
                let scale = row.iter().fold(0.0f32, |largest, weight| largest.max(weight.abs())) / 127.0;
                for weight in row {
                    *weight = (*weight / scale).round() * scale;
                }
            }
        }
        (name.to_owned(), array)
    };
    params.iter().map(round).collect()
}

/// The bound is made by the same network in `f32`, with its weights rounded: how far that is off says how much the network makes
/// of small errors, from half a hundredth for one layer to a fifth for the 53 of `MobileNetV2` with random weights. The values
/// between layers have as many steps as the weights, and errors of about the same size, independent of those: in all about 1.4
/// times as much. Three times
/// as much leaves room for the draw.
#[test]
fn outputs_are_as_close_to_those_in_f32_as_rounded_weights_allow() {
    for &(name, input) in CASES {
        let (architecture, params) = drawn(name, input, None);
        let x = samples(&architecture, 3, 1);
        let whole = |params| outputs(&mut Network::new(&architecture, params, &Backend::cpu()).unwrap(), &x);
        let (expected, rounded) = (whole(&params), whole(&rounded(&params)));
        let found = outputs(&mut Network::new(&architecture, &params, &Backend::int8()).unwrap(), &x);
        for (what, expected) in expected.iter().enumerate() {
            let distance = |values: &[f32]| {
                assert_eq!(values.len(), expected.len(), "{what:?} of {name}");
                let squares =
                    |values: &mut dyn Iterator<Item = f32>| values.map(|x| f64::from(x * x)).sum::<f64>();
                let error = squares(&mut expected.iter().zip(values).map(|(a, b)| a - b));
                (error / squares(&mut expected.iter().copied())).sqrt()
            };
            let (distance, bound) = (distance(&found[what]), 3.0 * distance(&rounded[what]) + 0.01);
            println!("output {what} of {name}: {distance:.4} of {bound:.4}");
            assert!(distance < bound, "output {what} of {name}: {distance}, more than {bound}");
        }
    }
}

#[test]
fn neither_the_batch_nor_threads_show() {
    for &(name, input) in CASES {
        let (architecture, params) = drawn(name, input, None);
        let (x, each) = (samples(&architecture, 5, 2), input.iter().product::<usize>());
        let run = |threads: usize, x: &[f32]| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut network = Network::new(&architecture, &params, &Backend::int8()).unwrap();
            pool.install(|| outputs(&mut network, x))
        };
        let all = run(1, &x);
        assert!(bits(&all) == bits(&run(2, &x)) && bits(&all) == bits(&run(3, &x)), "{name} with threads");
        let alone = run(2, &x[3 * each..4 * each]);
        for (all, alone) in all.iter().zip(&alone) {
            let place = 3 * alone.len();
            assert_eq!(all[place..place + alone.len()], alone[..], "{name} alone");
        }
        // Another batch before leaves nothing behind.
        let mut network = Network::new(&architecture, &params, &Backend::int8()).unwrap();
        outputs(&mut network, &samples(&architecture, 7, 3));
        assert_eq!(bits(&all), bits(&outputs(&mut network, &x)), "{name} again");
    }
}

proptest! {
    #[test]
    fn a_fold_is_what_layer_and_normalisation_were(
        outputs in 1usize..9, each in 1usize..20, biased: bool, epsilon in prop::sample::select(vec![1e-5, 1e-3]),
    ) {
        let (weight, x) = (noise(outputs * each, 1), noise(each, 2));
        let [bias, scale, offset, mean] = [3, 4, 5, 6].map(|seed| noise(outputs, seed));
        let variance: Vec<f32> = noise(outputs, 7).iter().map(|value| value * value + 0.01).collect();
        let norm = Norm { weight: &scale, bias: &offset, mean: &mean, variance: &variance, epsilon };
        let (folded, folded_bias) = fold(&weight, biased.then_some(&bias), outputs, Some(norm));
        let product = |weight: &[f32]| weight.iter().zip(&x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum::<f64>();
        for output in 0..outputs {
            let row = output * each..(output + 1) * each;
            let sum = product(&weight[row.clone()]) + if biased { f64::from(bias[output]) } else { 0.0 };
            let deviation = (f64::from(variance[output]) + epsilon).sqrt();
            let normal = (sum - f64::from(mean[output])) / deviation;
            let expected = f64::from(scale[output]) * normal + f64::from(offset[output]);
            let found = product(&folded[row]) + f64::from(folded_bias[output]);
            prop_assert!((found - expected).abs() < 1e-5 * (1.0 + expected.abs()), "{found} {expected}");
        }
    }
}

#[test]
fn batch_normalisation_between_layers_that_do_not_take_it() {
    // After pooling it is a layer of its own, and after a linear layer of a sequence its channels are positions.
    let norm = |name: &str| Layer::BatchNorm { name: name.into() };
    let conv = Layer::Conv { name: "conv".into(), out: 6, kernel: 3, stride: 1, padding: 1, bias: true };
    let architecture = Architecture {
        name: "test".into(),
        input: vec![2, 6, 6],
        classes: 10,
        extractor: vec![
            norm("first"),
            conv,
            Layer::MaxPool { size: 2, stride: 2, partial: false },
            norm("second"),
            Layer::Gelu,
            Layer::Flatten,
        ],
        head: vec![Layer::Linear { name: "fc".into(), out: 10, bias: false }],
        ..Architecture::default()
    };
    let params = architecture.initialise(|name| ChaCha8Rng::seed_from_u64(name.len() as u64)).unwrap();
    let x = samples(&architecture, 4, 1);
    let [.., expected] = outputs(&mut Network::new(&architecture, &params, &Backend::cpu()).unwrap(), &x);
    let [.., found] = outputs(&mut Network::new(&architecture, &params, &Backend::int8()).unwrap(), &x);
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() < 0.05, "{found} {expected}");
    }
}

#[test]
fn a_network_without_a_layer_to_quantise() {
    let architecture = Architecture {
        name: "test".into(),
        input: vec![3, 4, 4],
        classes: 3,
        extractor: vec![],
        head: vec![Layer::Relu, Layer::GlobalAvgPool],
        ..Architecture::default()
    };
    let x = samples(&architecture, 2, 1);
    let params = ParamSet::new();
    let expected = outputs(&mut Network::new(&architecture, &params, &Backend::cpu()).unwrap(), &x);
    let mut network = Network::new(&architecture, &params, &Backend::int8()).unwrap();
    assert_eq!(outputs(&mut network, &x), expected);
    assert_eq!(network.features(), x);
}

#[test]
fn what_is_not_finite_does_not_hide() {
    let (architecture, params) = drawn("lenet-5", &[3, 32, 32], None);
    let mut network = Network::new(&architecture, &params, &Backend::int8()).unwrap();
    let mut x = samples(&architecture, 3, 1);
    let [.., clean] = outputs(&mut network, &x);
    x[3 * 32 * 32 + 7] = f32::NAN;
    let [.., logits] = outputs(&mut network, &x);
    assert!(logits[10..20].iter().all(|logit| logit.is_nan()));
    assert_eq!((&logits[..10], &logits[20..]), (&clean[..10], &clean[20..]));
}

#[test]
fn everything_about_training_is_refused() {
    let (architecture, params) = drawn("lenet-5", &[3, 32, 32], None);
    let x = samples(&architecture, 1, 1);
    let mut network = Network::new(&architecture, &params, &Backend::int8()).unwrap();
    let masks = Masks::new([0; 32], 0);
    let sgd = Optimizer::Sgd(Sgd { rate: 0.1, momentum: 0.0, decay: 0.0 });
    let results = [
        network.forward(&x, &[1, 3, 32, 32], Mode::Training(masks)),
        network.load(&params),
        network.params().map(drop),
        network.parameter("head.fc3.bias").map(drop),
        network.backward(crate::OutputGradients::default()),
        network.gradients().map(drop),
        network.add_gradient("head.fc3.bias", &[0.0; 10]),
        network.correct(&Correction::default()),
        network.step(&sgd, None),
        network.step_along(&sgd, &params),
        network.optimizer_state().map(drop),
        network.restore_optimizer(&crate::OptimizerState::default()),
    ];
    for (index, result) in results.into_iter().enumerate() {
        assert!(matches!(result, Err(ModelError::Quantised { .. })), "{index}: {result:?}");
    }
}

#[test]
fn weights_and_buffers_take_less_than_half() {
    for (name, input, n) in [
        ("mobilenet-v2", &[3, 96, 96][..], 1),
        ("mobilenet-v2", &[3, 96, 96], 32),
        ("resnet-18", &[3, 32, 32], 8),
        ("vit-tiny", &[3, 32, 32], 8),
        ("mlp-2nn", &[1, 28, 28], 1),
        ("char-lstm", &[80], 8),
    ] {
        let (architecture, params) = drawn(name, input, None);
        let mut engine = Int8Engine::new(&architecture, &params).unwrap();
        let shape = [&[n], input].concat();
        engine.forward(&samples(&architecture, n, 1), &shape, Mode::Evaluation).unwrap();
        let whole = architecture.memory(n, Use::Evaluation).unwrap();
        // The caller's batch is not the engine's.
        let batch = 4 * shape.iter().product::<usize>() as u64;
        let (found, before) = (engine.bytes() as u64, whole.total() - batch);
        println!("{name} {n}: {found} of {before} bytes");
        assert!(2 * found < before, "{name}: {found} of {before}");
    }
}
