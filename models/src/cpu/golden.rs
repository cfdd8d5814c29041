//! Every operator against numbers computed by `PyTorch` in double precision: `models/tests/golden/kernels.py` made them.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::parameter::{Descent, Parameter};
use super::plan::Planner;
use super::sequence::Sequence;
use crate::architecture::Layer;
use crate::loss::cross_entropy;
use crate::mode::Mode;
use crate::params::Array;
use crate::sgd::Sgd;

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

/// What a layer gives and what its backward pass gives.
struct Pass {
    output: Vec<f32>,
    gradients: BTreeMap<String, Vec<f32>>,
    parameters: BTreeMap<String, Vec<f32>>,
    by_input: Vec<f32>,
}

/// Runs one layer, called `l`, forward and backward. `parameters` are the kinds of its parameters with their values.
fn run(
    case: &Case,
    layer: Layer,
    input: &str,
    parameters: &[(&str, &str)],
    mode: Mode,
    gradient: &str,
) -> Pass {
    let shape = case.shape(input);
    let mut all: Vec<Parameter> = parameters
        .iter()
        .filter(|(_, tensor)| case.has(tensor))
        .map(|(kind, tensor)| {
            let values = Array::new(case.shape(tensor), case.values(tensor)).unwrap();
            Parameter::new(format!("part.l.{kind}"), values, false)
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    let names: Vec<String> = all.iter().map(|parameter| parameter.name.clone()).collect();
    let mut sequence: Sequence =
        Planner::new(&shape[1..], &names).sequence("part", "part", &[layer]).unwrap();
    let (x, n) = (case.values(input), shape[0]);
    sequence.forward(&mut all, &x, n, mode).unwrap();
    let output = sequence.output(&x).to_vec();
    let mut by_input = case.values(gradient);
    sequence.backward(&mut all, &x, &mut by_input, n, true, Descent::Keep);
    let by_kind = |values: fn(&Parameter) -> &[f32]| {
        all.iter().map(|p| (p.name["part.l.".len()..].to_owned(), values(p).to_vec())).collect()
    };
    Pass {
        output,
        gradients: by_kind(|parameter| &parameter.gradient),
        parameters: by_kind(|parameter| parameter.values.values()),
        by_input,
    }
}

/// Checks a layer with a weight and perhaps a bias in every case of a family.
fn check_family(family: &str, mode: Mode, layer: impl Fn(&Case) -> Layer) {
    for case in Golden::open(family).cases() {
        let kinds = [("weight", "weight"), ("bias", "bias")];
        let pass = run(&case, layer(&case), "input", &kinds, mode, "grad_output");
        case.check("output", &pass.output);
        case.check("grad_input", &pass.by_input);
        for (kind, gradient) in &pass.gradients {
            case.check(&format!("grad_{kind}"), gradient);
        }
    }
}

#[test]
fn linear() {
    check_family("linear", Mode::Training, |case| Layer::Linear {
        name: "l".into(),
        out: case.shape("weight")[0],
        bias: case.has("bias"),
    });
}

#[test]
fn convolution() {
    check_family("conv2d", Mode::Training, |case| Layer::Conv {
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
    check_family("max_pool2d", Mode::Training, |case| Layer::MaxPool {
        size: case.setting("kernel"),
        stride: case.setting("stride"),
    });
    check_family("avg_pool2d", Mode::Training, |case| Layer::AvgPool {
        size: case.setting("kernel"),
        stride: case.setting("stride"),
    });
}

#[test]
fn rectifier() {
    check_family("relu", Mode::Training, |_| Layer::Relu);
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
            parameter.descend_along(&sgd, Some(&gradients[step * count..][..count]));
            for (found, expected) in parameter.values.values().iter().zip(&expected[(step + 1) * count..]) {
                assert!((found - expected).abs() < 1e-6, "{} step {step}: {found} {expected}", case.name);
            }
        }
    }
}
