//! Exported models in Python: every built-in model and every kind of layer answers as it does here.

use std::collections::BTreeSet;
use std::path::PathBuf;

use aggregator::export::Target;
use aggregator::export::onnx::Preparing;
use federation_tests::exported::{Exports, Form, random_params};
use federation_tests::process::run;
use federation_tests::python::{with_numpy, with_onnx, with_torch};
use models::{Architecture, BUILT_INS, Initialisation, Layer, Norm, ParamSet, Task, Variant};
use shared::data::{Augmentation, Normalisation, Preparation, byte_tokens};
use shared::personalisation::{Gate, Method, Mix, PersonalModel};
use shared::spec::{DataSpec, LabelsAt};

fn conv(name: &str, out: usize, [kernel, stride, padding]: [usize; 3], bias: bool) -> Layer {
    Layer::Conv { name: name.to_owned(), out, kernel, stride, padding, bias }
}

fn linear(name: &str, out: usize) -> Layer {
    Layer::Linear { name: name.to_owned(), out, bias: true }
}

fn batch_norm(name: &str) -> Layer {
    Layer::BatchNorm { name: name.to_owned() }
}

fn group_norm(name: &str, groups: usize) -> Layer {
    Layer::GroupNorm { name: name.to_owned(), groups }
}

fn simplex_etf(name: &str) -> Layer {
    Layer::SimplexEtf { name: name.to_owned() }
}

fn lstm(name: &str, hidden: usize) -> Layer {
    Layer::Lstm { name: name.to_owned(), hidden }
}

fn pool(size: usize, stride: usize, partial: bool) -> Layer {
    Layer::MaxPool { size, stride, partial }
}

fn network(input: &[usize], extractor: Vec<Layer>, projection: Vec<Layer>, head: Vec<Layer>) -> Architecture {
    Architecture {
        name: "a \"\"\" name\\".to_owned(),
        input: input.to_vec(),
        classes: 4,
        initialisation: Initialisation::Uniform,
        extractor,
        projection,
        head,
        ..Architecture::default()
    }
}

/// Every kind of layer that takes images, with names that clash in Python, and blocks in blocks.
fn images() -> Architecture {
    let inner =
        Layer::Residual { body: vec![conv("train", 6, [1, 1, 0], true), Layer::Relu], shortcut: vec![] };
    let deep = Layer::Residual {
        body: vec![conv("deep", 6, [3, 1, 1], false)],
        shortcut: vec![inner, conv("deep-too", 6, [1, 1, 0], true)],
    };
    let block = Layer::Residual {
        body: vec![conv("class", 6, [3, 1, 1], true), group_norm("g", 3), deep, Layer::Dropout { rate: 0.5 }],
        shortcut: vec![conv("1x", 6, [1, 1, 0], false), batch_norm("sc")],
    };
    let response = |size| Layer::LocalResponseNorm { size, alpha: 0.7, beta: 0.75, k: 1.5 };
    let extractor = vec![
        conv("a-b", 5, [5, 2, 1], false),
        batch_norm("a_b"),
        Layer::Relu,
        block,
        response(4),
        pool(3, 2, true),
        response(3),
        Layer::AvgPool { size: 2, stride: 1 },
        Layer::Flatten,
        linear("fc", 8),
        batch_norm("relu1"),
        Layer::Relu,
    ];
    let projection = vec![linear("fc", 6), group_norm("norm", 2), Layer::Relu];
    network(&[3, 17, 15], extractor, projection, vec![linear("fc", 4)])
}

/// Layers of mobile networks and of transformers for images.
fn mobile() -> Architecture {
    let grouped = |name: &str, out, groups| Layer::GroupedConv {
        name: name.to_owned(),
        out,
        kernel: 3,
        stride: 1,
        padding: 1,
        groups,
        bias: true,
    };
    let norm = |name: &str| Layer::BatchNormWith { name: name.to_owned(), epsilon: 0.05, momentum: 0.01 };
    // What it gives has the axes of an image, or has not.
    let excite = |name: &str, more: Vec<Layer>| {
        let name = |number: usize| format!("{name}-{number}");
        let layers =
            vec![conv(&name(1), 3, [1, 1, 0], true), Layer::Relu, conv(&name(2), 6, [1, 1, 0], true)];
        Layer::SqueezeExcite { body: [layers, more].concat() }
    };
    let block = Layer::Residual {
        body: vec![grouped("depth", 6, 6), Layer::Relu6, excite("inner", vec![Layer::HardSigmoid])],
        shortcut: vec![],
    };
    let attention = Layer::Residual {
        body: vec![
            Layer::LayerNorm { name: "before".to_owned(), epsilon: 0.01 },
            linear("qkv", 18),
            Layer::Attention { heads: 3, causal: false },
            linear("out", 6),
        ],
        shortcut: vec![],
    };
    let extractor = vec![
        Layer::ZeroPad { pixels: 2 },
        conv("stem", 6, [3, 2, 0], false),
        norm("norm"),
        Layer::HardSwish,
        grouped("groups", 6, 2),
        Layer::Silu,
        block,
        excite("outer", vec![Layer::Flatten, Layer::Sigmoid]),
        Layer::ToSequence,
        Layer::ClassToken { name: "token".to_owned() },
        Layer::Positions { name: "places".to_owned() },
        attention,
        linear("mlp", 9),
        Layer::Gelu,
        Layer::FirstPosition,
        Layer::LayerNorm { name: "last".to_owned(), epsilon: 1e-6 },
    ];
    network(&[3, 8, 7], extractor, vec![], vec![linear("fc", 4)])
}

/// A causal transformer whose answer is one for each sample.
fn transformer() -> Architecture {
    let extractor = vec![
        Layer::Embedding { name: "e".to_owned(), vocabulary: 11, dim: 6 },
        Layer::SinusoidalPositions,
        linear("qkv", 30),
        Layer::Attention { heads: 2, causal: true },
        simplex_etf("each"),
        Layer::MeanPositions,
    ];
    network(&[9], extractor, vec![], vec![linear("fc", 4), simplex_etf("cosines")])
}

fn architectures() -> Vec<(&'static str, Architecture)> {
    // Windows with gaps, of which the last ones are partial, or begin beyond the image and are none.
    let gaps = |partial| {
        let layers = vec![conv("c", 4, [3, 3, 2], true), pool(2, 3, partial), Layer::GlobalAvgPool];
        network(&[1, 24, 22], layers, vec![], vec![])
    };
    let embedding = Layer::Embedding { name: "e".to_owned(), vocabulary: 11, dim: 5 };
    let recurrent = Layer::Residual { body: vec![lstm("inside", 5), Layer::Relu], shortcut: vec![] };
    vec![
        ("images", images()),
        ("mobile", mobile()),
        ("transformer", transformer()),
        (
            "a transformer with a number each",
            Architecture { task: Task::Regression { huber: None }, ..transformer() },
        ),
        ("a transformer of several labels", Architecture { task: Task::MultiLabel, ..transformer() }),
        ("gaps", gaps(false)),
        ("partial windows with gaps", gaps(true)),
        ("tokens", network(&[6], vec![embedding, recurrent, lstm("l", 7)], vec![], vec![linear("fc", 4)])),
        (
            "sequences of numbers",
            network(&[5, 3], vec![lstm("l", 4)], vec![linear("p", 6)], vec![linear("fc", 4)]),
        ),
        ("a table", network(&[7], vec![linear("fc", 9), Layer::Relu], vec![], vec![linear("fc", 4)])),
        (
            "several labels",
            Architecture { task: Task::MultiLabel, ..network(&[7], vec![], vec![], vec![linear("fc", 4)]) },
        ),
        ("numbers", Architecture { task: Task::Regression { huber: None }, ..images() }),
        ("a head alone", network(&[1, 5, 5], vec![], vec![], vec![Layer::Flatten, linear("fc", 4)])),
    ]
}

/// The numbers of the kinds. A new one gets the next number here, and a place in [`architectures`].
const KINDS: std::ops::Range<usize> = 0..33;

fn kinds(layers: &[Layer], found: &mut BTreeSet<usize>) {
    for layer in layers {
        let number = match layer {
            Layer::Conv { .. } => 0,
            Layer::Linear { .. } => 1,
            Layer::Relu => 2,
            Layer::MaxPool { .. } => 3,
            Layer::Flatten => 4,
            Layer::AvgPool { .. } => 5,
            Layer::GlobalAvgPool => 6,
            Layer::BatchNorm { .. } => 7,
            Layer::GroupNorm { .. } => 8,
            Layer::Residual { body, shortcut } => {
                kinds(body, found);
                kinds(shortcut, found);
                9
            }
            Layer::Embedding { .. } => 10,
            Layer::Lstm { .. } => 11,
            Layer::LocalResponseNorm { .. } => 12,
            Layer::Dropout { .. } => 13,
            Layer::SqueezeExcite { body } => {
                kinds(body, found);
                14
            }
            Layer::BatchNormWith { .. } => 15,
            Layer::ZeroPad { .. } => 16,
            Layer::ToSequence => 17,
            Layer::ClassToken { .. } => 18,
            Layer::Positions { .. } => 19,
            Layer::SinusoidalPositions => 20,
            Layer::Attention { .. } => 21,
            Layer::FirstPosition => 22,
            Layer::MeanPositions => 23,
            Layer::LayerNorm { .. } => 24,
            Layer::GroupedConv { .. } => 25,
            Layer::Relu6 => 26,
            Layer::HardSigmoid => 27,
            Layer::HardSwish => 28,
            Layer::Sigmoid => 29,
            Layer::Silu => 30,
            Layer::Gelu => 31,
            Layer::SimplexEtf { .. } => 32,
        };
        found.insert(number);
    }
}

#[test]
fn every_kind_of_layer_is_among_those_that_are_tried() {
    let mut found = BTreeSet::new();
    for (_, architecture) in architectures() {
        architecture.parts().iter().for_each(|(_, layers)| kinds(layers, &mut found));
    }
    assert!(found.into_iter().eq(KINDS));
}

/// Samples that are cropped, and normalised in this way, for a network on what is left.
fn prepared(shape: &[usize], crop: u32, normalisation: Normalisation) -> (Architecture, DataSpec) {
    let augmentation = Augmentation { random_crop: crop, horizontal_flip: 0.5, ..Augmentation::default() };
    let preparation = Preparation { augmentation, normalisation };
    let input = preparation.shape(shape).unwrap();
    let spec = DataSpec {
        shape: shape.to_vec(),
        class_names: ["a\"b", "c\\d\n", "\u{202e}e", "ü"].map(str::to_owned).to_vec(),
        preparation,
        labels: LabelsAt::Device,
        column: "label".to_owned(),
        text: None,
        features: Vec::new(),
    };
    (network(&input, vec![Layer::Flatten], vec![], vec![linear("fc", 4)]), spec)
}

/// All networks in one process of Python, whose start takes longer than most of them.
fn every_network(form: impl Into<Form>, python: &std::path::Path) {
    let folder = tempfile::tempdir().unwrap();
    let mut exports = Exports::new(folder.path(), form);
    for built_in in BUILT_INS {
        // Text as it is read has 97 characters, which have names. Networks for large images are tried on small ones, where they have
        // a fraction of their parameters.
        let (input, classes) = match built_in.input {
            [3, 224, 224] => (&[3, 64, 64][..], 10),
            input if built_in.name == "char-lstm" => (input, 97),
            input => (input, built_in.classes),
        };
        let norms = [Norm::None, Norm::Batch, Norm::Group].map(Some);
        let norms = if built_in.name == "resnet-18" { &norms[..] } else { &[None] };
        for &norm in norms {
            let variant = Variant { norm, ..Variant::default() };
            let architecture = Architecture::variant(built_in.name, input, classes, variant).unwrap();
            exports.add_model(&format!("{} {norm:?}", built_in.name), &architecture, None);
        }
    }
    for (name, architecture) in architectures() {
        exports.add_model(name, &architecture, None);
    }
    add_prepared(&mut exports);
    exports.check(python);
}

/// Networks with every preparation of samples.
fn add_prepared(exports: &mut Exports<'_>) {
    let channels = |mean: &[f32], deviation: &[f32]| Normalisation::Channels {
        mean: mean.to_vec(),
        deviation: deviation.to_vec(),
    };
    for (name, (architecture, spec)) in [
        ("grey, cropped", prepared(&[1, 9, 12], 5, channels(&[0.1307], &[0.3081]))),
        ("in colour", prepared(&[3, 6, 6], 0, channels(&[0.4, 0.5, 0.6], &[0.2, 0.25, 1e-5]))),
        ("in colour, whitened", prepared(&[3, 7, 6], 3, Normalisation::Whiten)),
        ("a table by columns", {
            let (_, spec) = prepared(&[1, 9, 12], 5, Normalisation::None);
            let normalisation = channels(&[1.0, 0.0, -2.0], &[0.5, 1.0, 3.0]);
            let preparation = Preparation { normalisation, ..Preparation::default() };
            let table = network(&[3], vec![], vec![], vec![linear("fc", 4)]);
            (table, DataSpec { shape: vec![3], preparation, ..spec })
        }),
        ("texts of a column", {
            let (_, spec) = prepared(&[1, 9, 12], 5, Normalisation::None);
            let variant = Variant { vocabulary: Some(byte_tokens::VOCABULARY), ..Variant::default() };
            let reader = Architecture::variant("text-transformer", &[12], 4, variant).unwrap();
            let (text, preparation) = (Some("said".to_owned()), Preparation::default());
            (reader, DataSpec { shape: vec![12], preparation, text, ..spec })
        }),
    ] {
        exports.add_model(name, &architecture, Some(&spec));
    }
}

#[test]
fn torch_answers_as_we_do() {
    match with_torch() {
        Ok(python) => every_network(Target::Torch, &python),
        Err(reason) => println!("skipped: {reason}"),
    }
}

#[test]
fn numpy_answers_as_we_do() {
    match with_numpy() {
        Ok(python) => every_network(Target::Numpy, &python),
        Err(reason) => println!("skipped: no Python with numpy: {reason}"),
    }
}

#[test]
fn onnx_answers_as_we_do() {
    if let Some(python) = onnx_or_skipped() {
        every_network(Preparing::Inside, &python);
    }
}

/// A Python with onnxruntime; where there is none, the test says so and is skipped.
fn onnx_or_skipped() -> Option<PathBuf> {
    with_onnx().map_err(|reason| println!("skipped: {reason}")).ok()
}

#[test]
fn onnx_answers_as_personal_models_do() {
    let Some(python) = onnx_or_skipped() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut exports = Exports::new(folder.path(), Preparing::Inside);
    let channels = Normalisation::Channels { mean: vec![0.4, 0.5, 0.6], deviation: vec![0.2, 0.25, 0.3] };
    let (_, spec) = prepared(&[3, 32, 32], 0, channels);
    let images = Architecture::by_name("moon-cnn", &[3, 32, 32], 4).unwrap();
    let letters = DataSpec { shape: vec![6], preparation: Preparation::default(), ..spec.clone() };
    let letters = DataSpec { class_names: Vec::new(), ..letters };
    let text = Architecture::by_name("word-lstm", &[6], 30).unwrap();
    for (architecture, spec) in [(images, spec), (text, letters)] {
        let mixes = [Mix::Logits, Mix::Probabilities];
        let methods = Method::ALL.into_iter().filter(|method| method.fits(&architecture).is_ok());
        for (method, mix) in methods.flat_map(|method| mixes.map(|mix| (method, mix))) {
            let (global, mut local) = (random_params(&architecture), random_params(&architecture));
            local.iter_mut().flat_map(|(_, array)| array.values_mut()).for_each(|value| *value *= -0.7);
            let local = if method.is_whole() { local } else { above_the_extractor(&local) };
            let inputs: usize = match method {
                Method::Mf => architecture.input.iter().product(),
                _ => {
                    architecture.feature_shape().unwrap().iter().product::<usize>()
                        / architecture.predictions().unwrap()
                }
            };
            let gate = matches!(method, Method::Mf | Method::Mfe).then(|| {
                let weights: Vec<f32> = (0..inputs).map(|at| ((at * 37 % 11) as f32 - 5.0) / 40.0).collect();
                Gate::of(&weights, 0.3)
            });
            let name = format!("{} {method:?} {mix:?}", architecture.name);
            let model =
                PersonalModel { method, mix, architecture: architecture.clone(), global, local, gate };
            exports.add_personal(&name, &model, &spec);
        }
    }
    exports.check(&python);
}

/// What a local expert has that stands on the global extractor.
fn above_the_extractor(params: &ParamSet) -> ParamSet {
    let mut above = params.clone();
    for (name, _) in params.iter().filter(|(name, _)| name.starts_with("extractor.")) {
        above.remove(name);
    }
    above
}

#[test]
fn onnx_takes_samples_that_were_prepared_outside() {
    let Some(python) = onnx_or_skipped() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut exports = Exports::new(folder.path(), Preparing::Outside);
    add_prepared(&mut exports);
    exports.check(&python);
}

/// Layers may be called by any attribute that modules of `PyTorch` have, in any version of it.
#[test]
fn no_name_of_a_layer_is_in_the_way_of_torch() {
    let python = match with_torch() {
        Ok(python) => python,
        Err(reason) => {
            println!("skipped: {reason}");
            return;
        }
    };
    let list = "import keyword; from torch import nn; print(*dir(nn.Sequential()), *keyword.kwlist, *keyword.softkwlist, sep='\\n')";
    let ended = run(&python, &["-c", list]);
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    let mut names: Vec<String> = ended.text.lines().map(str::to_owned).collect();
    names.sort();
    names.dedup();
    assert!(names.len() > 100, "{names:?}");
    let body = names.iter().map(|name| linear(name, 4)).collect();
    let block = Layer::Residual { body, shortcut: vec![] };
    let architecture = network(&[4], vec![block], vec![], vec![linear("register_forward_hook", 4)]);
    let folder = tempfile::tempdir().unwrap();
    let mut exports = Exports::new(folder.path(), Target::Torch);
    exports.add_model("taken names", &architecture, None);
    exports.check(&python);
}

/// Compares what is said of the beginning of a sequence with the beginning of what is said of the whole.
const SHORTER: &str = r"
import importlib.util, sys
import numpy as np
spec = importlib.util.spec_from_file_location('exported', sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
network, whole = module.load(), np.arange(9)[None] % 11
full = module.predict(network, whole)
for length in (1, 4, 9):
    part = module.predict(network, whole[:, :length])
    assert part.shape == (1, length, 4) and abs(part - full[:, :length]).max() < 1e-5, length
try:
    module.predict(network, np.zeros((1, 10), int))
except ValueError as error:
    assert 'at most 9 positions, and not 10' in str(error), error
else:
    sys.exit('more positions than it knows are taken')
";

#[test]
fn a_network_that_has_learned_positions_answers_shorter_sequences() {
    let extractor = vec![
        Layer::Embedding { name: "e".to_owned(), vocabulary: 11, dim: 6 },
        Layer::Positions { name: "places".to_owned() },
        linear("qkv", 18),
        Layer::Attention { heads: 2, causal: true },
    ];
    let architecture = network(&[9], extractor, vec![], vec![linear("fc", 4)]);
    for (target, python) in [(Target::Torch, with_torch()), (Target::Numpy, with_numpy())] {
        let python = match python {
            Ok(python) => python,
            Err(reason) => {
                println!("skipped for {target}: {reason}");
                continue;
            }
        };
        let folder = tempfile::tempdir().unwrap();
        Exports::new(folder.path(), target).add_model("shorter", &architecture, None);
        let source = folder.path().join("case_0.py").display().to_string();
        let ended = run(&python, &["-c", SHORTER, &source]);
        assert_eq!(ended.code, Some(0), "{target}: {}", ended.text);
    }
}
