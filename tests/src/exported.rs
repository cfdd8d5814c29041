//! Exported networks in Python, and what they answer beside what our own engine does.

use std::fs;
use std::path::Path;

use aggregator::export::onnx::{Onnx, Preparing};
use aggregator::export::{Content, Exported, Subject, Target, export};
use models::{Architecture, Backend, Mode, Network, ParamSet};
use serde_json::{Value, json};
use shared::data::{Dataset, Samples, View};
use shared::personalisation::{Mix, Mixture, PersonalModel};
use shared::seed::{Seed, standard_normal, uniform_f32};
use shared::spec::DataSpec;

use crate::process::run;

/// Loads each network, passes its samples through it, and prints how far its answers are from ours.
const SCRIPT: &str = r#"
import importlib.util, json, sys
import numpy as np

def log_softmax(x):
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))

def answers(task, x):
    if task == "classification":
        return np.exp(log_softmax(x))
    return 1 / (1 + np.exp(-x)) if task == "multi-label" else x

for line in open(sys.argv[1]):
    case = json.loads(line)
    spec = importlib.util.spec_from_file_location("exported", case["source"])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    network = module.load()
    samples = np.fromfile(case["samples"], case["type"]).reshape(case["shape"])
    # Of PyTorch with gradients, which numpy does not take.
    logits = network(module.prepare(samples))
    logits = np.asarray(logits.detach() if hasattr(logits, "detach") else logits)
    expected = np.fromfile(case["expected"], "<f4").astype(np.float64).reshape(logits.shape)
    if case["up-to-a-constant"]:
        logits, expected = log_softmax(logits), log_softmax(expected)
    apart = abs(logits - expected).max() / max(1, abs(expected).max())
    probabilities = module.predict(network, samples)
    right = answers(case["task"], expected)
    told_apart = abs(probabilities - right).max() / max(1, abs(right).max())
    one = module.predict(network, samples[0])[0]
    alone = abs(one - probabilities[0]).max()
    print(json.dumps([case["name"], float(apart), float(told_apart), float(alone), float(np.ptp(expected)), len(module.CLASSES)]))
"#;

/// The same with onnxruntime; the checker of ONNX reads each file first.
const ONNX_SCRIPT: &str = r#"
import json, sys
import numpy as np
import onnx, onnxruntime

def log_softmax(x):
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))

def answers(task, x):
    if task == "classification":
        return np.exp(log_softmax(x))
    return 1 / (1 + np.exp(-x)) if task == "multi-label" else x

for line in open(sys.argv[1]):
    case = json.loads(line)
    model = onnx.load(case["source"])
    onnx.checker.check_model(model, full_check=True)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 17)]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(case["source"], options, providers=["CPUExecutionProvider"])
    samples = np.fromfile(case["samples"], case["type"]).reshape(case["shape"])
    if case["type"] == "u1":
        samples = samples.astype(np.float32) / 255
    if case["type"] == "<u2":
        samples = samples.astype(np.int64)
    names = [output.name for output in session.get_outputs()]
    assert names == (["values"] if case["task"] == "regression" else ["logits", "probabilities"]), names
    outputs = session.run(names, {"samples": samples})
    logits, probabilities = outputs[0], outputs[-1]
    expected = np.fromfile(case["expected"], "<f4").astype(np.float64).reshape(logits.shape)
    logits = logits.astype(np.float64)
    if case["up-to-a-constant"]:
        logits, expected = log_softmax(logits), log_softmax(expected)
    apart = abs(logits - expected).max() / max(1, abs(expected).max())
    right = answers(case["task"], expected)
    told_apart = abs(probabilities - right).max() / max(1, abs(right).max())
    [one] = session.run(names[-1:], {"samples": samples[:1]})
    alone = abs(one[0] - probabilities[0]).max()
    about = {entry.key: json.loads(entry.value) for entry in model.metadata_props}
    assert about["task"] == case["task"]
    assert about["classes"] == case["classes"] or not case["classes"], about["classes"]
    print(json.dumps([case["name"], float(apart), float(told_apart), float(alone), float(np.ptp(expected)), len(about["classes"])]))
"#;

/// What networks are exported to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Python.
    Source(Target),
    /// ONNX.
    Onnx(Preparing),
}

impl From<Target> for Form {
    fn from(target: Target) -> Self {
        Self::Source(target)
    }
}

impl From<Preparing> for Form {
    fn from(preparing: Preparing) -> Self {
        Self::Onnx(preparing)
    }
}

/// The greatest difference of a logit, relative to the largest one, and of a probability.
const CLOSE: f64 = 1e-4;

/// Exported networks with their samples and our answers, in a folder.
pub struct Exports<'a> {
    folder: &'a Path,
    form: Form,
    cases: Vec<Value>,
}

impl<'a> Exports<'a> {
    /// None yet.
    #[must_use]
    pub fn new(folder: &'a Path, form: impl Into<Form>) -> Self {
        Self { folder, form: form.into(), cases: Vec::new() }
    }

    /// Exports a network. `expected` are its answers to the samples, which are right if they are so up to a constant for each
    /// sample if `up_to_a_constant` says so.
    ///
    /// # Panics
    /// If it cannot be exported.
    pub fn add(
        &mut self,
        name: &str,
        subject: Subject<'_>,
        samples: &Dataset,
        expected: &[f32],
        up_to_a_constant: bool,
    ) {
        let stem = self.stem();
        let (extension, files) = match self.form {
            Form::Source(target) => ("py", export(subject, target, &stem)),
            Form::Onnx(preparing) => {
                let onnx = Onnx::of(subject, preparing).map(|onnx| Content::Onnx(Box::new(onnx)));
                ("onnx", onnx.map(|content| vec![Exported { name: format!("{stem}.onnx"), content }]))
            }
        };
        let about = (subject.architecture(), subject.samples());
        self.add_files(
            name,
            (files.expect("a valid network"), extension),
            about,
            (samples, expected),
            up_to_a_constant,
        );
    }

    /// Exports a personal model to ONNX with the answers of our engine.
    ///
    /// # Panics
    /// If it cannot be exported.
    pub fn add_personal(&mut self, name: &str, model: &PersonalModel, spec: &DataSpec) {
        let architecture = &model.architecture;
        let samples = random_samples(architecture, &spec.shape);
        let view = View::whole(samples.clone().into());
        let positions: Vec<usize> = (0..view.len()).collect();
        let batch = spec.preparation.batch(&view, &positions, &architecture.input);
        let mut mixture = Mixture::new(model, &Backend::cpu()).expect("a coherent model");
        let answer = mixture.answer(&batch.expect("samples of its shape")).expect("samples that it takes");
        let expected: Vec<f32> = match model.mix {
            Mix::Logits => answer.mixed,
            Mix::Probabilities => answer.mixed.iter().map(|share| share.ln()).collect(),
        };
        let onnx = Onnx::personal(model, spec, Preparing::Inside).expect("a valid network");
        let content = Content::Onnx(Box::new(onnx));
        let files = vec![Exported { name: format!("{}.onnx", self.stem()), content }];
        // One expert alone answers with its own logits, regardless of what would be mixed.
        let up_to_a_constant = model.mix == Mix::Probabilities;
        self.add_files(
            name,
            (files, "onnx"),
            (architecture, Some(spec)),
            (&samples, &expected),
            up_to_a_constant,
        );
    }

    /// The name of the files of the next case, without extensions.
    fn stem(&self) -> String {
        format!("case_{}", self.cases.len())
    }

    fn add_files(
        &mut self,
        name: &str,
        (files, extension): (Vec<Exported<'_>>, &str),
        (architecture, spec): (&Architecture, Option<&DataSpec>),
        (samples, expected): (&Dataset, &[f32]),
        up_to_a_constant: bool,
    ) {
        let stem = self.stem();
        let at = |extension: &str| self.folder.join(format!("{stem}.{extension}"));
        for file in files {
            let mut bytes = Vec::new();
            file.content.write(&mut bytes).expect("memory");
            fs::write(self.folder.join(&file.name), bytes).expect("the folder can be written");
        }
        let (kind, bytes) = match samples.samples() {
            Samples::Bytes(values) => ("u1", values.clone()),
            Samples::Floats(values) => ("<f4", little_endian(values)),
            Samples::Tokens(values) => ("<u2", values.iter().flat_map(|token| token.to_le_bytes()).collect()),
        };
        fs::write(at("samples"), bytes).expect("the folder can be written");
        fs::write(at("expected"), little_endian(expected)).expect("the folder can be written");
        let shape = [&[samples.len()], samples.shape()].concat();
        self.cases.push(json!({
            "name": name, "source": at(extension), "task": architecture.task.name(), "classes": spec.map(|samples| &samples.class_names), "samples": at("samples"), "type": kind, "shape": shape,
            "expected": at("expected"), "up-to-a-constant": up_to_a_constant,
        }));
    }

    /// Exports one model with the answers of our engine.
    ///
    /// # Panics
    /// If it is none.
    pub fn add_model(&mut self, name: &str, architecture: &Architecture, spec: Option<&DataSpec>) {
        let params = random_params(architecture);
        let shape = spec.map_or(&architecture.input, |spec| &spec.shape);
        let samples = random_samples(architecture, shape);
        let preparation = spec.map(|spec| spec.preparation.clone()).unwrap_or_default();
        let view = View::whole(samples.clone().into());
        let positions: Vec<usize> = (0..view.len()).collect();
        let batch = preparation.batch(&view, &positions, &architecture.input).expect("samples of its shape");
        let mut network = Network::new(architecture, &params, &Backend::cpu()).expect("a network");
        network.forward(batch.x(), batch.shape(), Mode::Evaluation).expect("samples that it takes");
        let subject = Subject::Model(architecture, &params, spec);
        let is_text = matches!(samples.samples(), Samples::Tokens(_));
        if self.form == Form::Onnx(Preparing::Outside) && !is_text {
            let prepared =
                Dataset::unlabelled(architecture.input.clone(), Samples::Floats(batch.x().to_vec()));
            return self.add(name, subject, &prepared.expect("as many samples"), network.logits(), false);
        }
        self.add(name, subject, &samples, network.logits(), false);
    }

    /// Asks all of them with this Python.
    ///
    /// # Panics
    /// If an answer is not ours.
    pub fn check(&self, python: &Path) {
        let list = self.folder.join("cases");
        let lines: String = self.cases.iter().map(|case| format!("{case}\n")).collect();
        fs::write(&list, lines).expect("the folder can be written");
        let script = match self.form {
            Form::Source(_) => SCRIPT,
            Form::Onnx(_) => ONNX_SCRIPT,
        };
        let ended = run(python, &["-c", script, &list.display().to_string()]);
        assert_eq!(ended.code, Some(0), "{}", ended.text);
        assert_eq!(ended.text.lines().count(), self.cases.len(), "{}", ended.text);
        let mut wrong = Vec::new();
        for line in ended.text.lines() {
            let (name, logits, probabilities, alone, range, classes): (String, f64, f64, f64, f64, usize) =
                serde_json::from_str(line).unwrap_or_else(|_| panic!("{}", ended.text));
            // One sample alone is what it is among others, and the answers say something.
            let close = [logits, probabilities, alone].iter().all(|apart| *apart <= CLOSE);
            if !close || range < 1e-3 || classes < 2 {
                wrong.push(format!("{name}: {logits} {probabilities} {alone}, over {range}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

fn little_endian(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Parameters whose normalisations and biases do something.
///
/// # Panics
/// If the architecture is not valid.
#[must_use]
pub fn random_params(architecture: &Architecture) -> ParamSet {
    let seed = Seed::root(5);
    let mut params = architecture.initialise(|name| seed.derive(name).rng()).expect("a valid architecture");
    for spec in architecture.parameter_specs().expect("a valid architecture") {
        let values = params.get_mut(&spec.name).expect("each is initialised").values_mut();
        let mut rng = seed.derive(&spec.name).derive("moved").rng();
        match spec.initial {
            models::Initial::One => values.fill_with(|| 0.5 + uniform_f32(&mut rng)),
            models::Initial::Zero => values.fill_with(|| 0.3 * standard_normal(&mut rng) as f32),
            _ => {}
        }
    }
    params
}

/// A few samples of this shape: tokens, bytes of images, or numbers.
///
/// # Panics
/// If there are none of this shape.
#[must_use]
pub fn random_samples(architecture: &Architecture, shape: &[usize]) -> Dataset {
    let mut rng = Seed::root(6).derive("samples").rng();
    let length = 3 * shape.iter().product::<usize>();
    let samples = match (architecture.vocabulary(), shape) {
        (Some(vocabulary), _) => {
            let token = |uniform: f32| (uniform * vocabulary as f32) as u16;
            Samples::Tokens((0..length).map(|_| token(uniform_f32(&mut rng))).collect())
        }
        (None, [_, _, _]) => {
            Samples::Bytes((0..length).map(|_| (256.0 * uniform_f32(&mut rng)) as u8).collect())
        }
        (None, _) => Samples::Floats((0..length).map(|_| standard_normal(&mut rng) as f32).collect()),
    };
    Dataset::unlabelled(shape.to_vec(), samples).expect("three samples")
}
