//! Every operator against numbers computed by `PyTorch` in double precision: `models/tests/golden/kernels.py` made them.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::operator::Shared;
use super::parameter::{Descent, Parameter};
use super::plan::Planner;
use crate::architecture::{Architecture, Layer};
use crate::batch::Batch;
use crate::device::Backend;
use crate::loss::cross_entropy;
use crate::mode::Mode;
use crate::params::{Array, ParamSet};
use crate::sgd::Sgd;
use crate::train::Learner;

/// One file of cases.
struct Golden {
    bytes: Vec<u8>,
    cases: BTreeMap<String, Value>,
}

/// The tensors of one case, by name, with their shapes.
struct Case {
    name: String,
    settings: Value,
    tensors: BTreeMap<String, (Vec<usize>, Vec<f64>)>,
}

impl Golden {
    fn open(family: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{family}.safetensors"));
        let bytes = std::fs::read(path).unwrap();
        let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = metadata.metadata().as_ref().unwrap();
        let cases = metadata.iter().filter(|(name, _)| *name != "torch");
        let cases = cases.map(|(name, text)| (name.clone(), serde_json::from_str(text).unwrap())).collect();
        Self { bytes, cases }
    }

    fn cases(&self) -> impl Iterator<Item = Case> {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        assert!(!self.cases.is_empty());
        self.cases.iter().map(move |(name, settings)| {
            let tensors = file.iter().filter_map(|(full, view)| {
                let tensor = full.strip_prefix(name)?.strip_prefix('.')?;
                let data = view.data();
                let values: Vec<f64> = match view.dtype() {
                    Dtype::F64 => data.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect(),
                    Dtype::F32 => {
                        data.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect()
                    }
                    Dtype::I64 => data.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b) as f64).collect(),
                    other => panic!("{full} is of {other:?}"),
                };
                Some((tensor.to_owned(), (view.shape().to_vec(), values)))
            });
            Case { name: name.clone(), settings: settings.clone(), tensors: tensors.collect() }
        })
    }
}

impl Case {
    fn shape(&self, name: &str) -> &[usize] {
        &self.tensors[name].0
    }

    fn values(&self, name: &str) -> Vec<f32> {
        self.tensors[name].1.iter().map(|&value| value as f32).collect()
    }

    fn array(&self, name: &str) -> Array {
        Array::new(self.shape(name), self.values(name)).unwrap()
    }

    fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    fn setting(&self, name: &str) -> usize {
        self.settings[name].as_u64().unwrap() as usize
    }

    /// Compares with the tensor's own magnitude as the measure.
    fn check(&self, name: &str, found: &[f32]) {
        let expected = &self.tensors[name].1;
        assert_eq!(found.len(), expected.len(), "{} {name}", self.name);
        let scale = expected.iter().fold(1e-3f64, |max, value| max.max(value.abs()));
        for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
            let error = (f64::from(*found) - expected).abs();
            assert!(error <= 2e-5 * scale, "{} {name}[{index}]: {found} {expected}", self.name);
        }
    }
}

/// What layers give and what their backward pass gives; gradients and parameters by name.
struct Pass {
    output: Vec<f32>,
    gradients: BTreeMap<String, Vec<f32>>,
    parameters: BTreeMap<String, Vec<f32>>,
    by_input: Vec<f32>,
}

/// Runs layers of a part called `p` forward and, in training, backward. Parameters are given by name.
fn run(
    layers: &[Layer],
    (shape, x): (&[usize], &[f32]),
    parameters: BTreeMap<String, Array>,
    mode: Mode,
    gradient: &[f32],
) -> Pass {
    let names: Vec<String> = parameters.keys().cloned().collect();
    let mut parameters: Vec<Parameter> =
        parameters.into_iter().map(|(name, values)| Parameter::new(name, values, false)).collect();
    let mut sequence = Planner::new(&shape[1..], &names).sequence("p", "p", layers).unwrap();
    sequence.forward(&mut parameters, x, shape[0], mode).unwrap();
    let output = sequence.output(x).to_vec();
    let mut by_input = gradient.to_vec();
    if mode == Mode::Training {
        let shared = &mut Shared { n: shape[0], descent: Descent::Keep, free: &mut Vec::new() };
        by_input = sequence.backward(&mut parameters, x, by_input, true, shared);
    }
    let by_name = |values: fn(&Parameter) -> &[f32]| {
        parameters.iter().map(|p| (p.name.clone(), values(p).to_vec())).collect()
    };
    Pass {
        output,
        gradients: by_name(|parameter| &parameter.gradient),
        parameters: by_name(|parameter| parameter.values.values()),
        by_input,
    }
}

/// Runs one layer, called `l`, on a case. `kinds` are those of its parameters, with the tensors that hold them.
fn run_case(case: &Case, layer: Layer, kinds: &[(&str, &str)], mode: Mode) -> Pass {
    let present = kinds.iter().filter(|(_, tensor)| case.has(tensor));
    let parameters = present.map(|(kind, tensor)| (format!("p.l.{kind}"), case.array(tensor)));
    let x = case.values("input");
    run(&[layer], (case.shape("input"), &x), parameters.collect(), mode, &case.values("grad_output"))
}

/// Checks a layer with a weight and perhaps a bias in every case of a family.
fn check_family(family: &str, layer: impl Fn(&Case) -> Layer) {
    for case in Golden::open(family).cases() {
        let pass = run_case(&case, layer(&case), &[("weight", "weight"), ("bias", "bias")], Mode::Training);
        case.check("output", &pass.output);
        case.check("grad_input", &pass.by_input);
        for (name, gradient) in &pass.gradients {
            case.check(&format!("grad_{}", &name["p.l.".len()..]), gradient);
        }
    }
}

#[test]
fn linear() {
    check_family("linear", |case| Layer::Linear {
        name: "l".into(),
        out: case.shape("weight")[0],
        bias: case.has("bias"),
    });
}

#[test]
fn convolution() {
    check_family("conv2d", |case| Layer::Conv {
        name: "l".into(),
        out: case.shape("weight")[0],
        kernel: case.setting("kernel"),
        stride: case.setting("stride"),
        padding: case.setting("padding"),
        bias: case.has("bias"),
    });
}

#[test]
fn pooling() {
    check_family("max_pool2d", |case| Layer::MaxPool {
        size: case.setting("kernel"),
        stride: case.setting("stride"),
    });
    check_family("avg_pool2d", |case| Layer::AvgPool {
        size: case.setting("kernel"),
        stride: case.setting("stride"),
    });
}

#[test]
fn rectifier() {
    check_family("relu", |_| Layer::Relu);
}

#[test]
fn losses() {
    for case in Golden::open("cross_entropy").cases() {
        let labels: Vec<u32> = case.values("labels").iter().map(|&label| label as u32).collect();
        let mut gradient = Vec::new();
        let loss = cross_entropy(&case.values("logits"), &labels, &mut gradient);
        case.check("loss", &[loss]);
        case.check("grad_logits", &gradient);
    }
}

#[test]
fn descent() {
    for case in Golden::open("optimisers").cases().filter(|case| case.name.starts_with("sgd")) {
        let setting = |name: &str| case.settings[name].as_f64().unwrap_or(0.0);
        let sgd = Sgd { rate: setting("lr"), momentum: setting("momentum"), decay: setting("weight_decay") };
        let &[steps, count] = case.shape("gradients") else { panic!("one row a step") };
        let (gradients, expected) = (case.values("gradients"), case.values("parameters"));
        let start = Array::new([count], expected[..count].to_vec()).unwrap();
        let mut parameter = Parameter::new("w".into(), start, false);
        for step in 0..steps {
            parameter.descend_along(&sgd, &gradients[step * count..][..count]);
            for (found, expected) in parameter.values.values().iter().zip(&expected[(step + 1) * count..]) {
                assert!((found - expected).abs() < 1e-6, "{} step {step}: {found} {expected}", case.name);
            }
        }
    }
}

#[test]
fn batch_normalisation() {
    let kinds = [
        ("weight", "weight"),
        ("bias", "bias"),
        ("running-mean", "running_mean_before"),
        ("running-var", "running_var_before"),
    ];
    for case in Golden::open("batch_norm").cases() {
        let training = case.settings["training"].as_bool().unwrap();
        let mode = if training { Mode::Training } else { Mode::Evaluation };
        let pass = run_case(&case, Layer::BatchNorm { name: "l".into() }, &kinds, mode);
        case.check("output", &pass.output);
        case.check("running_mean_after", &pass.parameters["p.l.running-mean"]);
        case.check("running_var_after", &pass.parameters["p.l.running-var"]);
        if training {
            case.check("grad_input", &pass.by_input);
            case.check("grad_weight", &pass.gradients["p.l.weight"]);
            case.check("grad_bias", &pass.gradients["p.l.bias"]);
        }
    }
}

#[test]
fn group_normalisation() {
    check_family("group_norm", |case| Layer::GroupNorm { name: "l".into(), groups: case.setting("groups") });
}

#[test]
fn embedding() {
    for case in Golden::open("embedding").cases() {
        let &[vocabulary, dim] = case.shape("weight") else { panic!("a row for each token") };
        let layer = Layer::Embedding { name: "l".into(), vocabulary, dim };
        let parameters = BTreeMap::from([("p.l.weight".to_owned(), case.array("weight"))]);
        let tokens = case.values("indices");
        let gradient = case.values("grad_output");
        let pass = run(&[layer], (case.shape("indices"), &tokens), parameters, Mode::Training, &gradient);
        case.check("output", &pass.output);
        case.check("grad_weight", &pass.gradients["p.l.weight"]);
    }
}

#[test]
fn long_short_term_memory() {
    // The states of one case begin elsewhere than at 0, which no layer of ours does.
    for case in Golden::open("lstm").cases().filter(|case| !case.has("h_0")) {
        let hidden = case.setting("hidden");
        let layers: Vec<Layer> = (0..case.setting("layers"))
            .map(|layer| Layer::Lstm { name: format!("l{layer}"), hidden })
            .collect();
        let mut parameters = BTreeMap::new();
        for layer in 0..layers.len() {
            let bias = case.values(&format!("bias_ih_l{layer}"));
            // Ours is the sum of the two that PyTorch keeps; both have its gradient.
            let bias =
                bias.iter().zip(case.values(&format!("bias_hh_l{layer}"))).map(|(a, b)| a + b).collect();
            parameters.insert(format!("p.l{layer}.bias"), Array::new([4 * hidden], bias).unwrap());
            for kind in ["ih", "hh"] {
                let weight = case.array(&format!("weight_{kind}_l{layer}"));
                parameters.insert(format!("p.l{layer}.weight-{kind}"), weight);
            }
        }
        let x = case.values("input");
        let gradient = case.values("grad_output");
        let pass = run(&layers, (case.shape("input"), &x), parameters, Mode::Training, &gradient);
        case.check("output", &pass.output);
        case.check("grad_input", &pass.by_input);
        for layer in 0..layers.len() {
            case.check(&format!("grad_bias_hh_l{layer}"), &pass.gradients[&format!("p.l{layer}.bias")]);
            for kind in ["ih", "hh"] {
                let gradient = &pass.gradients[&format!("p.l{layer}.weight-{kind}")];
                case.check(&format!("grad_weight_{kind}_l{layer}"), gradient);
            }
        }
    }
}

/// Noise in `[-1, 1)` from a hash of the position, as in `golden_file.py`.
fn noise(stream: u32, count: usize) -> impl Iterator<Item = f32> {
    (0..count as u32).map(move |position| {
        let mut x = (stream << 20) + position;
        x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
        x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
        x ^= x >> 16;
        (x >> 8) as f32 / (1 << 23) as f32 - 1.0
    })
}

#[test]
fn three_steps_of_a_network() {
    for case in Golden::open("training").cases() {
        let architecture = Architecture::by_name(&case.name, &[1, 28, 28], 10).unwrap();
        let mut params = ParamSet::new();
        for (stream, spec) in architecture.parameter_specs().unwrap().into_iter().enumerate() {
            let bound = 1.0 / (spec.fan_in as f32).sqrt();
            let count = spec.shape.iter().product();
            let values = noise(stream as u32, count).map(|value| value * bound).collect();
            params.insert(spec.name, Array::new(spec.shape, values).unwrap());
        }
        let samples = case.setting("samples");
        let labels = case.values("labels").iter().map(|&label| label as u32).collect();
        let batch = Batch::new(noise(100, samples * 784).collect(), [samples, 1, 28, 28], labels).unwrap();
        let sgd = Sgd::plain(case.settings["rate"].as_f64().unwrap());
        let mut learner = Learner::new(&architecture, &params, sgd, &Backend::cpu()).unwrap();

        let (_, first) = learner.gradient(&batch).unwrap();
        let mut losses: Vec<f32> =
            (0..case.setting("steps")).map(|_| learner.step(&batch).unwrap()).collect();
        let after = learner.params().unwrap();
        losses.push(learner.gradient(&batch).unwrap().0);
        case.check("losses", &losses);
        for (what, set) in [("first_gradient", &first), ("after", &after)] {
            for (name, array) in set {
                let values = array.values();
                let indices = case.values(&format!("{name}.indices"));
                let chosen: Vec<f32> = indices.iter().map(|&index| values[index as usize]).collect();
                case.check(&format!("{name}.{what}.values"), &chosen);
                let squares: f64 = values.iter().map(|&value| f64::from(value).powi(2)).sum();
                case.check(&format!("{name}.{what}.sum_of_squares"), &[squares as f32]);
            }
        }
    }
}
