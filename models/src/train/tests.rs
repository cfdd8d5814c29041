mod bits;
mod decay;
mod engines;
mod frozen;
mod gradients;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::*;
use crate::architecture::{Initialisation, Layer};
use crate::evaluate::evaluate;
use crate::loss::cross_entropy;
use crate::optimizer::AdamSettings;
use crate::params::Array;
use crate::sgd::Sgd;

/// The mode of a learner's first batch.
const TRAINING: Mode = Mode::Training(Masks::new(SEED, 0));
const SEED: [u8; 32] = [5; 32];

fn conv(name: &str, out: usize, kernel: usize, stride: usize, padding: usize, bias: bool) -> Layer {
    Layer::Conv { name: name.into(), out, kernel, stride, padding, bias }
}

fn linear(name: &str, out: usize, bias: bool) -> Layer {
    Layer::Linear { name: name.into(), out, bias }
}

fn max_pool(size: usize, stride: usize) -> Layer {
    Layer::MaxPool { size, stride, partial: false }
}

fn grouped(name: &str, out: usize, [kernel, stride, padding]: [usize; 3], groups: usize) -> Layer {
    Layer::GroupedConv { name: name.into(), out, kernel, stride, padding, groups, bias: true }
}

/// Depthwise and grouped convolutions, whose strides leave rows or columns over.
fn in_groups() -> Vec<Layer> {
    vec![
        conv("a", 4, 3, 1, 1, true),
        grouped("b", 4, [3, 1, 1], 4),
        grouped("d", 4, [3, 2, 1], 4),
        grouped("e", 6, [3, 1, 1], 2),
        grouped("f", 6, [2, 2, 1], 3),
        Layer::Flatten,
    ]
}

/// A squeeze-and-excitation block of four channels, between convolutions.
fn excited() -> Vec<Layer> {
    let body = vec![conv("s", 3, 1, 1, 0, true), Layer::Silu, conv("t", 4, 1, 1, 0, true), Layer::Sigmoid];
    let block = Layer::SqueezeExcite { body };
    vec![conv("a", 4, 3, 1, 1, true), block, conv("b", 2, 3, 1, 0, true), Layer::Flatten]
}

fn simplex_etf(name: &str) -> Layer {
    Layer::SimplexEtf { name: name.into() }
}

fn layer_norm(name: &str) -> Layer {
    Layer::LayerNorm { name: name.into(), epsilon: 1e-5 }
}

/// A block of self-attention of `features` values.
fn self_attention(features: usize, heads: usize, causal: bool) -> Layer {
    let attention = Layer::Attention { heads, causal };
    let body = vec![layer_norm("n"), linear("q", 3 * features, true), attention, linear("o", features, true)];
    Layer::Residual { body, shortcut: vec![] }
}

/// A vision transformer of one block.
fn transformer(last: Layer) -> Vec<Layer> {
    vec![
        conv("a", 4, 2, 2, 0, true),
        Layer::ToSequence,
        Layer::ClassToken { name: "t".into() },
        Layer::Positions { name: "p".into() },
        self_attention(4, 2, false),
        last,
    ]
}

/// A language model of one block.
fn language_model() -> Vec<Layer> {
    let embedding = Layer::Embedding { name: "e".into(), vocabulary: 5, dim: 6 };
    vec![embedding, Layer::SinusoidalPositions, Layer::Dropout { rate: 0.2 }, self_attention(6, 3, true)]
}

/// Functions of each value.
fn activations() -> [Layer; 6] {
    use Layer::{Gelu, HardSigmoid, HardSwish, Relu6, Sigmoid, Silu};
    [Relu6, HardSigmoid, HardSwish, Sigmoid, Silu, Gelu]
}

/// Image sizes of which the strides in [`uneven`] leave over more on one axis than on the other, or nothing.
const UNEVEN: [[usize; 3]; 4] = [[1, 6, 5], [1, 7, 6], [1, 8, 8], [1, 1, 4]];

fn uneven() -> Vec<Layer> {
    let layers = [("a", 3, 1, 1), ("b", 3, 2, 1), ("d", 2, 3, 1)];
    let conv = |(name, kernel, stride, padding)| conv(name, 2, kernel, stride, padding, true);
    layers.map(conv).into_iter().chain([Layer::Flatten]).collect()
}

fn start(input: &[usize], extractor: Vec<Layer>, head: Vec<Layer>) -> (Architecture, ParamSet, Batch) {
    let (name, input) = ("test".into(), input.to_vec());
    let architecture = Architecture {
        name,
        input,
        classes: 3,
        initialisation: Initialisation::Uniform,
        extractor,
        projection: vec![],
        head,
        ..Architecture::default()
    };
    let seed = |name: &str| name.bytes().map(u64::from).sum();
    let params = architecture.initialise(|name| ChaCha8Rng::seed_from_u64(seed(name))).unwrap();
    let batch = noise(&architecture, 4);
    (architecture, params, batch)
}

/// Samples without meaning, tokens or pixels, whose labels follow each other as their tokens do.
fn noise(architecture: &Architecture, samples: usize) -> Batch {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let count = samples * architecture.input.iter().product::<usize>();
    let (classes, shape) = (architecture.classes as u32, [&[samples], &architecture.input[..]].concat());
    if let [Layer::Embedding { vocabulary, .. }, ..] = architecture.extractor[..] {
        let x: Vec<u32> = (0..count).map(|_| rng.next_u32() % vocabulary as u32).collect();
        let y: Vec<u32> = x.iter().map(|token| (token + 1) % classes).collect();
        let labels = samples * architecture.predictions().unwrap();
        return Batch::new(x.iter().map(|&token| token as f32).collect(), shape, y[..labels].to_vec())
            .unwrap();
    }
    let x = (0..count).map(|_| rng.next_u32() as f32 / u32::MAX as f32 * 2.0 - 1.0).collect();
    Batch::new(x, shape, (0..samples as u32).map(|i| i % classes).collect()).unwrap()
}

#[test]
fn a_step_follows_its_own_batch_alone() {
    let head = vec![linear("a", 4, true), Layer::Relu, linear("b", 3, true)];
    let (architecture, params, batch) = start(&[5], vec![], head);
    for sgd in [Sgd::plain(0.1), Sgd { rate: 0.1, momentum: 0.9, decay: 0.0 }] {
        let learner = || Learner::new(&architecture, &params, sgd, &Backend::cpu()).unwrap();
        let mut plain = learner();
        plain.step(&batch).unwrap();
        // A gradient of another loss was computed before and never used.
        let mut used = learner();
        let network = used.network();
        network.forward(batch.x(), batch.shape(), TRAINING).unwrap();
        let other = vec![1.0; network.logits().len()];
        network.backward(OutputGradients { logits: Some(&other), ..OutputGradients::default() }).unwrap();
        used.step(&batch).unwrap();
        assert_eq!(used.params().unwrap(), plain.params().unwrap());
    }
}

#[test]
fn a_loss_of_ones_own_is_descended_on_as_the_cross_entropy_is() {
    let head = vec![linear("a", 4, true), Layer::Relu, linear("b", 3, true)];
    let (architecture, params, batch) = start(&[5], vec![], head);
    let learner = || Learner::new(&architecture, &params, Sgd::plain(0.1), &Backend::cpu()).unwrap();
    let unlabelled = Batch::unlabelled(batch.x().to_vec(), batch.shape()).unwrap();
    let (mut by_labels, mut own) = (learner(), learner());
    assert!(matches!(own.step(&unlabelled), Err(ModelError::Labels { labels: 0, .. })));
    for _ in 0..3 {
        let expected = by_labels.step(&batch).unwrap();
        let logits = own.predict(&unlabelled).unwrap().to_vec();
        let found = own.step_with_loss(&unlabelled, &mut |network, by| {
            assert_eq!(network.logits(), logits, "a prediction is what a step of this network sees");
            Ok(cross_entropy(network.logits(), batch.y(), &mut by.logits))
        });
        assert_eq!(found.unwrap(), expected);
    }
    assert_eq!(own.params().unwrap(), by_labels.params().unwrap());
    let diverged = own.step_with_loss(&unlabelled, &mut |_, _| Ok(f32::NAN));
    assert!(matches!(diverged, Err(ModelError::Diverged { .. })));
}

#[test]
fn dropout_is_of_the_seed_in_training_and_of_nothing_in_evaluation() {
    let layers = vec![linear("a", 64, true), Layer::Dropout { rate: 0.5 }];
    let (architecture, params, batch) = start(&[5], layers, vec![linear("b", 3, true)]);
    let learner = |backend: &Backend| Learner::new(&architecture, &params, Sgd::plain(0.1), backend).unwrap();
    let losses = |seed: [u8; 32], backend: &Backend| -> Vec<f32> {
        let mut learner = learner(backend).with_seed(seed);
        // The parameters stay, so that the masks alone make a difference.
        (0..3).map(|_| learner.gradient(&batch).unwrap().0).collect()
    };
    let first = losses([1; 32], &Backend::cpu());
    assert_eq!(first, losses([1; 32], &Backend::cpu()));
    assert_ne!(first, losses([2; 32], &Backend::cpu()));
    assert!(first[0] != first[1] && first[1] != first[2], "{first:?}");
    for (found, expected) in losses([1; 32], &Backend::candle_on_cpu()).iter().zip(&first) {
        assert!((found - expected).abs() < 1e-5, "{found} {expected}");
    }
    assert!(matches!(learner(&Backend::cpu()).step(&batch), Err(ModelError::NoSeed)));

    // Evaluation is that of the network without the layer.
    let plain = Architecture { extractor: architecture.extractor[..1].to_vec(), ..architecture.clone() };
    for backend in [Backend::cpu(), Backend::candle_on_cpu()] {
        let outputs = |architecture: &Architecture, mode: Mode| {
            let mut network = Network::new(architecture, &params, &backend).unwrap();
            network.forward(batch.x(), batch.shape(), mode).unwrap();
            (network.features().to_vec(), network.logits().to_vec())
        };
        assert_eq!(outputs(&architecture, Mode::Evaluation), outputs(&plain, Mode::Evaluation));
        let (kept, all) = (outputs(&architecture, TRAINING).0, outputs(&plain, TRAINING).0);
        assert!(kept.iter().zip(&all).all(|(kept, all)| *kept == 0.0 || *kept == 2.0 * all));
        let dropped = kept.iter().filter(|value| **value == 0.0).count();
        assert!((80..176).contains(&dropped), "{dropped} of 256");
    }
}

#[test]
fn buffers_follow_the_batches_and_nothing_else() {
    let layers = vec![Layer::BatchNorm { name: "n".into() }];
    let (architecture, params, batch) = start(&[5], layers, vec![linear("b", 3, true)]);
    let sgd = Sgd { rate: 0.1, momentum: 0.9, decay: 0.5 };
    let mut learner = Learner::new(&architecture, &params, sgd, &Backend::cpu()).unwrap();
    let (_, gradient) = learner.gradient(&batch).unwrap();
    let buffers = |params: &ParamSet| {
        ["running-mean", "running-var"]
            .map(|name| params.get(&format!("extractor.n.{name}")).unwrap().clone())
    };
    assert!(buffers(&gradient).iter().all(|array| array.values().iter().all(|&g| g == 0.0)));
    let seen = buffers(&learner.params().unwrap());
    assert_ne!(seen, buffers(&params));
    // Weight decay would halve them.
    learner.apply(&gradient).unwrap();
    evaluate(learner.network(), [&batch]).unwrap();
    assert_eq!(buffers(&learner.params().unwrap()), seen);
    learner.step(&batch).unwrap();
    assert_ne!(buffers(&learner.params().unwrap()), seen);
}

#[test]
fn a_learner_after_another_is_as_if_new() {
    let layers = vec![
        conv("a", 4, 3, 1, 1, true),
        Layer::BatchNorm { name: "n".into() },
        Layer::Relu,
        Layer::Dropout { rate: 0.5 },
        Layer::Flatten,
    ];
    let mut networks = vec![start(&[1, 6, 6], layers, vec![linear("b", 3, true)])];
    for name in ["mlp-2nn", "lenet-5", "cnn-mnist"] {
        let architecture = Architecture::by_name(name, &[1, 28, 28], 3).unwrap();
        let rng = |name: &str| ChaCha8Rng::seed_from_u64(name.len() as u64);
        let params = architecture.initialise(rng).unwrap();
        let batch = noise(&architecture, 4);
        networks.push((architecture, params, batch));
    }
    for (architecture, params, first) in networks {
        let (name, then) = (&architecture.name, noise(&architecture, 3));
        let plain = Sgd::plain(0.1);
        let mut used = Learner::new(&architecture, &params, Sgd { momentum: 0.9, ..plain }, &Backend::cpu())
            .unwrap()
            .with_seed([9; 32]);
        used.set_clip(Some(0.01));
        let anchor = Some((0.3, used.params().unwrap()));
        used.correct(&Correction { anchor, ..Correction::default() }).unwrap();
        used.step(&first).unwrap();
        used.gradient(&first).unwrap();
        let left = used.params().unwrap();
        let before: Vec<u32> = bits(&left);
        let mut after = Learner::reusing(Some(used), &architecture, &params, plain, &Backend::cpu()).unwrap();
        let mut fresh = Learner::new(&architecture, &params, plain, &Backend::cpu()).unwrap();
        after = after.with_seed(SEED);
        fresh = fresh.with_seed(SEED);
        assert_eq!(after.gradient(&then).unwrap(), fresh.gradient(&then).unwrap(), "{name}");
        for batch in [&first, &then] {
            assert_eq!(after.step(batch).unwrap(), fresh.step(batch).unwrap(), "{name}");
        }
        assert_eq!(bits(&after.params().unwrap()), bits(&fresh.params().unwrap()), "{name}");
        assert_eq!(bits(&left), before, "what was read from the learner before stays");
        // Another architecture: the buffers of the first are not used.
        let other = Architecture::by_name("linear", &architecture.input, 3).unwrap();
        let params = other.initialise(|_| ChaCha8Rng::seed_from_u64(1)).unwrap();
        let other = Learner::reusing(Some(after), &other, &params, plain, &Backend::cpu()).unwrap();
        assert_eq!(other.params().unwrap(), params);
    }
}

fn bits(params: &ParamSet) -> Vec<u32> {
    params.iter().flat_map(|(_, array)| array.values()).map(|value| value.to_bits()).collect()
}

#[test]
fn a_step_is_the_gradient_applied() {
    let layers = vec![linear("a", 6, true), Layer::Relu];
    let (architecture, params, batch) = start(&[5], layers, vec![linear("b", 3, true)]);
    let sgd = Sgd { rate: 0.1, momentum: 0.9, decay: 0.01 };
    let mut stepped = Learner::new(&architecture, &params, sgd, &Backend::cpu()).unwrap();
    let mut applied = Learner::new(&architecture, &params, sgd, &Backend::cpu()).unwrap();
    for _ in 0..3 {
        let loss = stepped.step(&batch).unwrap();
        let (same, gradient) = applied.gradient(&batch).unwrap();
        assert_eq!(loss, same);
        applied.apply(&gradient).unwrap();
    }
    assert_eq!(stepped.params().unwrap(), applied.params().unwrap());
    // Loading resets the velocity: from here on the learner behaves like a new one.
    stepped.load(&params).unwrap();
    let mut fresh = Learner::new(&architecture, &params, sgd, &Backend::cpu()).unwrap();
    for _ in 0..2 {
        assert_eq!(stepped.step(&batch).unwrap(), fresh.step(&batch).unwrap());
    }
    assert_eq!(stepped.params().unwrap(), fresh.params().unwrap());
    let mut bad = params.clone();
    bad.insert("z", Array::zeros([1]));
    assert!(matches!(fresh.apply(&bad), Err(ModelError::Mismatch(_))));
}

#[test]
fn every_built_in_learns_a_batch_by_heart() {
    for built_in in crate::architecture::BUILT_INS {
        // Small inputs for the large models: the test is whether they learn.
        let (input, samples, rate) = match built_in.name {
            "char-lstm" => (&[12][..], 4, 0.5),
            "word-lstm" => (&[10][..], 4, 0.5),
            // Deep for its initialisation, so that it begins to learn slowly.
            "moon-cnn" => (built_in.input, 4, 0.05),
            "resnet-18" | "resnet-50" => (&[3, 8, 8][..], 4, 0.005),
            "vgg-16" => (built_in.input, 2, 0.002),
            "resnet-9" => (built_in.input, 2, 0.02),
            "resnet-18-imagenet" | "resnet-50-imagenet" => (&[3, 64, 64][..], 4, 0.005),
            "vgg-16-imagenet" => (&[3, 32, 32][..], 2, 0.002),
            "mobilenet-v2" | "mobilenet-v3-small" => (&[3, 64, 64][..], 8, 0.02),
            "vit-tiny" => (&[3, 32, 32][..], 4, 0.01),
            "text-transformer" => (&[12][..], 4, 0.05),
            _ => (built_in.input, 10, 0.02),
        };
        let architecture = Architecture::by_name(built_in.name, input, 10).unwrap();
        let params = architecture.initialise(|name| ChaCha8Rng::seed_from_u64(name.len() as u64)).unwrap();
        let batch = noise(&architecture, samples);
        let sgd = Sgd { rate, momentum: 0.9, decay: 0.0 };
        let learner = Learner::new(&architecture, &params, sgd, &Backend::cpu()).unwrap();
        let mut learner = learner.with_seed(SEED);
        let first = learner.step(&batch).unwrap();
        let learned = (1..400).any(|_| {
            // Momentum may overshoot, so that the predictions after the step count too.
            let loss = learner.step(&batch).unwrap_or_else(|error| panic!("{}: {error}", built_in.name));
            // Running statistics are not those of so few samples.
            let buffers = architecture.has_buffers();
            loss < first / 5.0
                && (buffers || evaluate(learner.network(), [&batch]).unwrap().accuracy > Some(0.9))
        });
        assert!(learned, "{}: {first}, {:?}", built_in.name, evaluate(learner.network(), [&batch]));
    }
}

#[test]
fn divergence_names_the_step_and_leaves_the_parameters() {
    let (architecture, params, batch) = start(&[5], vec![], vec![linear("b", 3, true)]);
    let mut learner = Learner::new(&architecture, &params, Sgd::plain(0.1), &Backend::cpu()).unwrap();
    learner.step(&batch).unwrap();
    let infinite = Batch::new(vec![f32::MAX; 10], [2, 5], vec![0, 1]).unwrap();
    let before = learner.params().unwrap();
    let mut large = before.clone();
    large.scale(1e3);
    learner.apply(&before.difference(&large).unwrap()).unwrap();
    let grown = learner.params().unwrap();
    let error = learner.step(&infinite).unwrap_err();
    assert!(matches!(error, ModelError::Diverged { step: 2, loss } if !loss.is_finite()), "{error}");
    assert_eq!(learner.params().unwrap(), grown);
}

#[test]
fn a_batch_that_does_not_fit_is_refused() {
    let (architecture, params, _) = start(&[5], vec![], vec![linear("b", 3, true)]);
    let mut learner = Learner::new(&architecture, &params, Sgd::plain(0.1), &Backend::cpu()).unwrap();
    let narrow = Batch::new(vec![0.0; 4], [1, 4], vec![0]).unwrap();
    assert!(matches!(learner.step(&narrow), Err(ModelError::Input { .. })));
    let label = Batch::new(vec![0.0; 5], [1, 5], vec![3]).unwrap();
    assert!(matches!(learner.step(&label), Err(ModelError::Label { label: 3, classes: 3 })));
    let twice = Batch::new(vec![0.0; 5], [1, 5], vec![0, 1]).unwrap();
    let error = learner.step(&twice).unwrap_err();
    assert!(matches!(error, ModelError::Labels { predictions: 1, labels: 2 }), "{error}");
}

#[test]
fn sequences_take_a_label_per_position_and_tokens_of_the_vocabulary() {
    let embedding = Layer::Embedding { name: "e".into(), vocabulary: 5, dim: 2 };
    let (architecture, params, batch) = start(&[4], vec![embedding], vec![linear("c", 3, true)]);
    let mut learner = Learner::new(&architecture, &params, Sgd::plain(0.1), &Backend::cpu()).unwrap();
    assert_eq!((batch.len(), batch.y().len()), (4, 16));
    learner.step(&batch).unwrap();
    assert_eq!(evaluate(learner.network(), [&batch]).unwrap().samples, 16);
    assert_eq!(crate::evaluate::predict(learner.network(), &batch).unwrap().len(), 16);
    let error = learner.step(&Batch::new(vec![0.0; 4], [1, 4], vec![0]).unwrap()).unwrap_err();
    assert!(matches!(error, ModelError::Labels { predictions: 4, labels: 1 }), "{error}");
    let error = learner.step(&Batch::new(vec![0.0, 1.0, 5.0, 2.0], [1, 4], vec![0; 4]).unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the token 5 is not one of the 5 in the vocabulary, which are whole numbers from 0"
    );
}
