//! A network as a module of `PyTorch`.

use std::fmt::Write as _;

use super::answers::Answers;
use super::plan::{Operation, Part, Step};
use super::python::definition;
use super::script::{Script, parts_called};
use super::{ensemble, preparation, samples};

/// The classes and functions that networks are made of.
const MODULES: &str = include_str!("python/torch_modules.py");

/// Layers that `PyTorch` has not, or not as a module of one input and one output.
const LAYERS: [&str; 10] = [
    "GlobalAvgPool",
    "Lstm",
    "ToSequence",
    "ClassToken",
    "Positions",
    "SimplexEtf",
    "SinusoidalPositions",
    "Attention",
    "FirstPosition",
    "MeanPositions",
];

/// The whole source.
pub(super) fn source(script: &Script<'_>) -> String {
    let mut parts = vec![
        script.head(&standard(script), &["from safetensors.torch import load_file", "from torch import nn"]),
    ];
    parts.push(network(script));
    parts.extend(ensemble::torch(script));
    parts.extend(needed(script).into_iter().map(|name| definition(MODULES, name).to_owned()));
    parts.push(load(script));
    parts.push(preparation::torch(script));
    parts.push(predict(script));
    parts.extend(samples::reading(script.kind));
    parts.push(script.main());
    Script::joined(&parts)
}

fn standard(script: &Script<'_>) -> Vec<&'static str> {
    let mut modules = script.standard_modules();
    modules.push("from collections import OrderedDict");
    modules
}

/// The definitions that the network takes.
fn needed(script: &Script<'_>) -> Vec<&'static str> {
    let mut needed = vec!["layers"];
    let steps = script.plan.steps();
    let residual = |step: &&Step| matches!(step.operation, Operation::Residual { .. });
    needed.extend(steps.iter().any(residual).then_some("Residual"));
    let excites = |step: &&Step| matches!(step.operation, Operation::SqueezeExcite { .. });
    needed.extend(steps.iter().any(excites).then_some("SqueezeExcite"));
    for name in LAYERS {
        let call = format!("{name}(");
        let is = |step: &Step| match &step.operation {
            Operation::Layer(spelling) => spelling.torch.starts_with(&call),
            Operation::Residual { .. } | Operation::SqueezeExcite { .. } => false,
        };
        needed.extend(steps.iter().any(|step| is(step)).then_some(name));
    }
    needed.extend(ensemble::takes_cosines(script).then_some("cosine"));
    needed
}

fn network(script: &Script<'_>) -> String {
    let mut text = format!("class Network(nn.Module):\n{}\n", script.about_network());
    text.push_str("    def __init__(self) -> None:\n        super().__init__()\n");
    for Part { name, steps, .. } in &script.plan.parts {
        let _ = writeln!(text, "        self.{name} = {}", sequence(steps, 2));
    }
    let _ = write!(
        text,
        "\n    def forward(self, x: torch.Tensor) -> torch.Tensor:\n{}        return {}",
        script.about_forward(),
        parts_called(script.plan, "self", "x")
    );
    text
}

/// `layers(...)` over as many lines as it has layers.
fn sequence(steps: &[Step], depth: usize) -> String {
    if steps.is_empty() {
        return "layers()".to_owned();
    }
    let margin = " ".repeat(4 * depth);
    let mut text = String::from("layers(\n");
    for Step { name, operation } in steps {
        let module = match operation {
            Operation::Layer(spelling) => spelling.torch.clone(),
            Operation::Residual { body, shortcut } => {
                let inner = " ".repeat(4 * (depth + 2));
                let mut block = format!("Residual(\n{inner}body={},\n", sequence(body, depth + 2));
                if !shortcut.is_empty() {
                    let _ = writeln!(block, "{inner}shortcut={},", sequence(shortcut, depth + 2));
                }
                block + &" ".repeat(4 * (depth + 1)) + ")"
            }
            Operation::SqueezeExcite { body } => format!("SqueezeExcite({})", sequence(body, depth + 1)),
        };
        let _ = writeln!(text, "{margin}    {name}={module},");
    }
    text + &margin + ")"
}

fn load(script: &Script<'_>) -> String {
    let class = script.class();
    format!(
        "def load(path: Path = WEIGHTS) -> {class}:\n    \
         \"\"\"The network with its weights, in evaluation mode.\"\"\"\n    \
         network = {class}()\n    \
         network.load_state_dict(load_file(path), strict=True)\n    \
         return network.eval()"
    )
}

fn predict(script: &Script<'_>) -> String {
    format!(
        "@torch.inference_mode()\n\
         def predict(network: {}, samples: np.ndarray | torch.Tensor) -> np.ndarray:\n{}    \
         device = next(network.parameters()).device\n    \
         parts = prepare(samples).to(device).split(BATCH)\n    \
         return torch.cat([network(part){} for part in parts]).cpu().numpy()",
        script.class(),
        script.about_predict(),
        Answers::of(script.subject.architecture().task).torch
    )
}
