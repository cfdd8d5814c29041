//! A network in numpy alone.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::answers::Answers;
use super::plan::{Operation, Part, Step};
use super::python::definition;
use super::script::{Script, parts_called, spelled_shape};
use super::{ensemble, preparation, samples};

/// The functions that networks are made of.
const FUNCTIONS: &str = include_str!("python/numpy_functions.py");

const NORMALISATIONS: [&str; 2] = ["batch_norm", "group_norm"];
const WINDOWS: [&str; 4] = ["conv2d", "max_pool", "avg_pool", "local_response_norm"];

/// The whole source.
pub(super) fn source(script: &Script<'_>) -> String {
    let functions = needed(script);
    let uses = |names: &[&str]| names.iter().any(|name| functions.contains(name));
    let windows = uses(&WINDOWS).then_some("from numpy.lib.stride_tricks import sliding_window_view");
    let mut modules = script.standard_modules();
    modules.push("import json");
    let mut head = script.head(&modules, windows.as_slice());
    if uses(&NORMALISATIONS) {
        head.push_str("\n\n# Added to variances.\nEPSILON = 1e-5");
    }
    let mut parts = vec![head, network(script)];
    parts.extend(ensemble::numpy(script));
    // In the order of their file.
    let names = names().filter(|name| functions.contains(name));
    parts.extend(names.map(|name| definition(FUNCTIONS, name).to_owned()));
    parts.push(load(script));
    parts.push(preparation::numpy(script));
    parts.push(predict(script));
    parts.extend(samples::reading(script.kind));
    parts.push(script.main());
    Script::joined(&parts)
}

/// The names of all functions, in the order of their file.
fn names() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.lines().filter_map(|line| line.strip_prefix("def ")?.split('(').next())
}

/// Whether a function of this name is called in the source, and none of a longer name or of a module.
fn calls(source: &str, name: &str) -> bool {
    let is_of_longer = |character: char| character.is_ascii_alphanumeric() || "_.".contains(character);
    source.match_indices(&format!("{name}(")).any(|(at, _)| !source[..at].ends_with(is_of_longer))
}

/// The functions that the network takes, and those that these call.
fn needed(script: &Script<'_>) -> BTreeSet<&'static str> {
    let mut needed = BTreeSet::from(["read_tensors", "by_layer"]);
    needed.extend(Answers::of(script.subject.architecture().task).numpy);
    for step in script.plan.steps() {
        if let Operation::Layer(spelling) = &step.operation {
            needed.extend(spelling.numpy.as_ref().map(|function| function.name));
        }
    }
    needed.extend(ensemble::takes_cosines(script).then_some("cosine"));
    let mut unread: Vec<_> = needed.iter().copied().collect();
    while let Some(function) = unread.pop() {
        let source = definition(FUNCTIONS, function);
        for called in names().filter(|name| calls(source, name)) {
            if needed.insert(called) {
                unread.push(called);
            }
        }
    }
    needed
}

fn network(script: &Script<'_>) -> String {
    let mut text = format!(
        "class Network:\n{}\n    \
         def __init__(self, weights: dict[str, dict[str, np.ndarray]]) -> None:\n        \
         self.weights = weights\n",
        script.about_network()
    );
    let mut input = script.subject.architecture().input.clone();
    for Part { name, steps, output } in &script.plan.parts {
        let [from, to] = [&input, output].map(|shape| spelled_shape(shape));
        let _ = write!(
            text,
            "\n    def {name}(self, x: np.ndarray) -> np.ndarray:\n        \"\"\"{from} to {to}.\"\"\"\n"
        );
        let mut lines = Vec::new();
        statements(steps, 1, &mut lines);
        if lines.iter().any(|line| line.contains("**w[")) {
            lines.insert(0, "w = self.weights".to_owned());
        }
        for line in lines {
            let _ = writeln!(text, "        {line}");
        }
        text.push_str("        return x\n");
        input.clone_from(output);
    }
    let _ = write!(
        text,
        "\n    def __call__(self, x: np.ndarray) -> np.ndarray:\n{}        return {}",
        script.about_forward(),
        parts_called(script.plan, "self", "x")
    );
    text
}

/// One statement for each layer. `depth` counts the blocks that they are in, from 1.
fn statements(steps: &[Step], depth: usize, lines: &mut Vec<String>) {
    let number = if depth == 1 { String::new() } else { depth.to_string() };
    for step in steps {
        match &step.operation {
            Operation::Layer(spelling) => {
                lines.extend(spelling.numpy.iter().map(|function| format!("x = {}", function.call)));
            }
            Operation::Residual { body, shortcut } => {
                lines.push(format!("block{number} = x"));
                statements(body, depth + 1, lines);
                if shortcut.is_empty() {
                    lines.push(format!("x = x + block{number}"));
                } else {
                    lines.push(format!("body{number}, x = x, block{number}"));
                    statements(shortcut, depth + 1, lines);
                    lines.push(format!("x = body{number} + x"));
                }
            }
            Operation::SqueezeExcite { body } => {
                lines.push(format!("image{number} = x"));
                lines.push("x = x.mean(axis=(2, 3), keepdims=True)".to_owned());
                statements(body, depth + 1, lines);
                lines.push(format!("x = image{number} * x.reshape(*x.shape[:2], 1, 1)"));
            }
        }
    }
}

fn load(script: &Script<'_>) -> String {
    let made = if script.is_ensemble() { "Ensemble(tensors)" } else { "Network(by_layer(tensors))" };
    format!(
        "def load(path: Path = WEIGHTS) -> {}:\n    \
         \"\"\"The network with its weights.\"\"\"\n    \
         tensors = read_tensors(path)\n    \
         return {made}",
        script.class()
    )
}

fn predict(script: &Script<'_>) -> String {
    let answer = match Answers::of(script.subject.architecture().task).numpy {
        Some(function) => format!("{function}(network(part))"),
        None => "network(part)".to_owned(),
    };
    format!(
        "def predict(network: {}, samples: np.ndarray) -> np.ndarray:\n{}    \
         x = prepare(samples)\n    \
         parts = [x[begin : begin + BATCH] for begin in range(0, len(x), BATCH)]\n    \
         return np.concatenate([{answer} for part in parts])",
        script.class(),
        script.about_predict()
    )
}
