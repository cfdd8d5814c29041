//! What the sources of all targets in Python have around the network.

use std::fmt::Write as _;

use models::Architecture;
use shared::data::text;
use shared::data::{Normalisation, Preparation};
use shared::spec::data::label_column;

use super::answers::Answers;
use super::plan::Plan;
use super::python::{self, documentation, is_identifier, literal, plain, tuple};
use super::samples::Kind;
use super::{Subject, Target};
use crate::report::units;

/// A file that can be run and imported.
pub(super) struct Script<'a> {
    pub(super) subject: Subject<'a>,
    pub(super) plan: &'a Plan,
    pub(super) target: Target,
    /// The name of the file, without its extension.
    name: &'a str,
    pub(super) kind: Kind,
    /// The shape of a sample before it is prepared.
    pub(super) shape: Vec<usize>,
    pub(super) preparation: Preparation,
    /// The columns of a table that hold what is learned.
    pub(super) columns: Vec<String>,
    /// What the classes are called; empty where they are numbers.
    pub(super) classes: Vec<String>,
}

/// A shape for documentation: `[n, 3, 32, 32]`.
pub(super) fn spelled_shape(shape: &[usize]) -> String {
    let axes: Vec<String> =
        ["n".to_owned()].into_iter().chain(shape.iter().map(ToString::to_string)).collect();
    format!("[{}]", axes.join(", "))
}

/// All parts one after the other: `self.head(self.extractor(x))`.
pub(super) fn parts_called(plan: &Plan, network: &str, x: &str) -> String {
    called(plan.parts.iter().map(|part| part.name), network, x)
}

/// The parts before the head, which give the representation.
pub(super) fn representation_called(plan: &Plan, network: &str, x: &str) -> String {
    called(plan.parts.iter().map(|part| part.name).filter(|name| *name != "head"), network, x)
}

fn called<'a>(parts: impl Iterator<Item = &'a str>, network: &str, x: &str) -> String {
    parts.fold(x.to_owned(), |inner, name| format!("{network}.{name}({inner})"))
}

impl<'a> Script<'a> {
    pub(super) fn new(subject: Subject<'a>, plan: &'a Plan, target: Target, name: &'a str) -> Self {
        let architecture: &Architecture = subject.architecture();
        let samples = subject.samples();
        let shape = samples.map_or_else(|| architecture.input.clone(), |samples| samples.shape.clone());
        let kind = Kind::of(architecture, samples, &shape);
        let named = samples.map(|samples| samples.output_names(architecture.task)).unwrap_or_default();
        Self {
            subject,
            plan,
            target,
            name,
            kind,
            shape,
            preparation: samples.map(|samples| samples.preparation.clone()).unwrap_or_default(),
            columns: samples
                .map_or_else(|| vec![label_column()], |samples| samples.columns(architecture.task)),
            classes: if kind == Kind::Text { text::token_names() } else { named },
        }
    }

    pub(super) fn is_ensemble(&self) -> bool {
        matches!(self.subject, Subject::Ensemble(..))
    }

    /// The class that answers.
    pub(super) fn class(&self) -> &'static str {
        if self.is_ensemble() { "Ensemble" } else { "Network" }
    }

    /// Modules of Python itself.
    pub(super) fn standard_modules(&self) -> Vec<&'static str> {
        let mut modules = vec!["import argparse", "import sys", "from pathlib import Path"];
        modules.extend(matches!(self.kind, Kind::Table | Kind::Bytes).then_some("import csv"));
        modules
    }

    /// Documentation, imports and constants.
    pub(super) fn head(&self, standard: &[&str], further: &[&str]) -> String {
        let mut standard = standard.to_vec();
        // As formatters order them: whole modules first.
        standard.sort_by_key(|line| (line.starts_with("from"), *line));
        let mut packages = vec!["import numpy as np"];
        packages.extend((self.target == Target::Torch).then_some("import torch"));
        packages.extend(further);
        let mut text = self.documentation();
        text.push_str("\nfrom __future__ import annotations\n\n");
        text.push_str(&(standard.join("\n") + "\n\n" + &packages.join("\n") + "\n\n"));
        text.push_str(
            "# The weights lie beside this file.\nWEIGHTS = Path(__file__).with_suffix(\".safetensors\")\n\n",
        );
        let _ = write!(
            text,
            "# The shape of one sample before `prepare`: {}.\nSHAPE = {}\n\n",
            self.kind.axes(&self.shape),
            python::shape(&self.shape)
        );
        let samples = self.subject.samples();
        text.push_str(&self.kind.constants(
            &self.columns,
            samples.and_then(|samples| samples.text.as_deref()),
            samples.map_or(&[], |samples| &samples.features),
        ));
        text.push_str(&moments(&self.preparation.normalisation));
        let answers = Answers::of(self.subject.architecture().task);
        let classes = match &self.classes[..] {
            [] => format!("tuple(str(number) for number in range({}))", self.subject.architecture().classes),
            names => tuple(&names.iter().map(|name| literal(name)).collect::<Vec<_>>()),
        };
        let _ = write!(
            text,
            "# The classes in the order of the {}.\nCLASSES = {classes}\n\n\
             # Samples that `predict` passes through the network together.\nBATCH = 64",
            answers.outputs
        );
        text
    }

    fn documentation(&self) -> String {
        let model = plain(&self.subject.architecture().name);
        let (packages, images) = (self.target.packages(), self.kind == Kind::Image);
        let what = match (self.subject, self.target) {
            (Subject::Model(..), Target::Torch) => format!("{model}, as a module of PyTorch."),
            (Subject::Model(..), Target::Numpy) => format!("{model}, in numpy."),
            (Subject::Ensemble(bundle, fusion), target) => format!(
                "An ensemble of {} x {model} with {fusion} fusion, {}.",
                bundle.manifest.members.len(),
                if target == Target::Torch { "as a module of PyTorch" } else { "in numpy" }
            ),
        };
        let importable = is_identifier(self.name);
        let file = format!("{}.py", if importable { self.name } else { "THIS_FILE" });
        let mut usage = String::new();
        for (argument, says) in self.kind.usage(self.subject.architecture().task, self.plan.is_sequence()) {
            let command = format!("python3 {file} {argument}");
            let _ = writeln!(usage, "    {command:<42}{says}");
        }
        let by_task = Answers::of(self.subject.architecture().task);
        let module = if importable { self.name } else { "network" };
        let renamed = if importable { "" } else { " (under a name that can be imported, here network.py)" };
        let needs = match packages {
            [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
            _ => packages.join(""),
        };
        let images = if images { "; images take Pillow, too" } else { "" };
        format!(
            "\"\"\"{what}\n\n{usage}\n\
             In a program{renamed}:\n\n    \
             from {module} import load, predict, prepare\n\n    \
             network = load()\n    \
             {:<46}# {} to {}\n    \
             {:<46}# {}, a part at a time\n\n\
             It needs {needs}{images}.\nWritten by `aggregator export --to {}`, version {}.\n\"\"\"\n",
            format!("{} = network(prepare(samples))", by_task.outputs),
            spelled_shape(&self.shape),
            spelled_shape(&self.plan.output),
            "answers = predict(network, samples)",
            by_task.predicted,
            self.target,
            env!("CARGO_PKG_VERSION"),
        )
    }

    pub(super) fn about_network(&self) -> String {
        let architecture = self.subject.architecture();
        let count = architecture.parameters().unwrap_or(0);
        documentation(1, &[format!("{}: {} parameters.", plain(&architecture.name), units::grouped(count))])
    }

    pub(super) fn about_forward(&self) -> String {
        let (input, output) =
            (spelled_shape(&self.subject.architecture().input), spelled_shape(&self.plan.output));
        let outputs = Answers::of(self.subject.architecture().task).outputs;
        let at = if self.plan.is_sequence() { " at each position" } else { "" };
        documentation(2, &[format!("The {outputs}{at}, {output}, of samples that `prepare` gives, {input}.")])
    }

    pub(super) fn about_predict(&self) -> String {
        let output = spelled_shape(&self.plan.output);
        let at = if self.plan.is_sequence() { " at each position" } else { "" };
        documentation(
            1,
            &[format!(
                "The {}{at}, {output}, for samples as they are before `prepare`.",
                Answers::of(self.subject.architecture().task).predicted
            )],
        )
    }

    pub(super) fn main(&self) -> String {
        // Of a text, what comes after it.
        let answers = if self.plan.is_sequence() {
            "predict(network, read(path))[:, -1]"
        } else {
            "predict(network, read(path))"
        };
        let by_task = Answers::of(self.subject.architecture().task);
        include_str!("python/main.py")
            .replace("SAID", by_task.said)
            .replace("PRINTED", by_task.printed)
            .replace("ANSWERS", answers)
            .replace("HELP", &literal(self.kind.help()))
            .trim_end()
            .to_owned()
    }

    /// Definitions, two empty lines apart.
    pub(super) fn joined(parts: &[String]) -> String {
        parts.iter().map(|part| part.trim_end()).collect::<Vec<_>>().join("\n\n\n") + "\n"
    }
}

/// `MEAN` and `DEVIATION`, of samples that are normalised by channel.
fn moments(normalisation: &Normalisation) -> String {
    let Normalisation::Channels { mean, deviation } = normalisation else { return String::new() };
    let numbers =
        |values: &[f32]| tuple(&values.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>());
    format!(
        "# Of the training data, by channel.\nMEAN = {}\nDEVIATION = {}\n\n",
        numbers(mean),
        numbers(deviation)
    )
}
