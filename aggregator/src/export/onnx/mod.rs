//! Export to ONNX: one file with the network, its weights, the preparation of samples if asked for, and the names of the classes.
//!
//! The input is `samples`, `[n, ...]`: numbers, or tokens as 64-bit integers. The outputs are `logits` and `probabilities`, and of
//! regression `values`, of any number of samples `n`. Nothing of opsets after [`OPSET`] is used, and no operator that is not of ONNX itself.
//!
//! * `graph`: operators and constants;
//! * `layers`, `sequences`: each kind of layer; `ensemble`: many networks with one answer; `mixture`: a personal model;
//!   `preparation`: what comes before them.

mod ensemble;
mod graph;
mod layers;
mod mixture;
mod preparation;
mod sequences;

use std::fmt;
use std::io::{self, Write};

use models::{Architecture, Task};
use serde_json::json;
use shared::data::text;
use shared::personalisation::PersonalModel;
use shared::spec::DataSpec;

use self::graph::Attribute::Int;
use self::graph::{Graph, declared};
use self::layers::Layers;
use super::samples::Kind;
use super::{ExportError, Subject};
use crate::protobuf::Message;

/// The version of ONNX's operators: the first that has layer normalisation, so that old runtimes read the file.
pub const OPSET: i64 = 17;

/// The version of the file's format that came with it.
const FORMAT: i64 = 8;

/// The largest message of protocol buffers.
const LARGEST: usize = i32::MAX as usize;

/// Where samples are cropped and normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Preparing {
    /// In the file: it takes samples as they are, the bytes of images divided by 255.
    Inside,
    /// Before it, by the program that uses it.
    Outside,
}

impl fmt::Display for Preparing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inside => "inside",
            Self::Outside => "outside",
        })
    }
}

/// The outputs of a model for this task, and what they are.
fn outputs(task: Task) -> &'static [(&'static str, &'static str)] {
    match task {
        Task::Classification | Task::MultiLabel => {
            &[("logits", "of each class"), ("probabilities", "of each class")]
        }
        Task::Regression { .. } => &[("values", "what is predicted")],
    }
}

/// The names of the outputs of a model for this task.
#[must_use]
pub fn outputs_in_words(task: Task) -> String {
    outputs(task).iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(" and ")
}

/// A model in ONNX.
pub struct Onnx {
    graph: Graph,
    /// What stands in the graph's message behind operators and constants.
    about: Message,
    /// What stands in the model's message behind the graph.
    end: Message,
    /// The shape of a sample that it takes.
    pub input: Vec<usize>,
    /// The shape of the logits of a sample.
    pub output: Vec<usize>,
}

impl Onnx {
    /// # Errors
    /// [`ExportError`] if the model cannot be read, is no network, or is larger than a file of ONNX can be.
    pub fn of(subject: Subject<'_>, preparing: Preparing) -> Result<Self, ExportError> {
        let architecture = subject.architecture();
        Self::made(architecture, subject.samples(), preparing, |graph, x| match subject {
            Subject::Model(_, params, _) => {
                let given = Layers { graph, params, prefix: String::new() }.network(architecture, x)?;
                Ok((given.logits, given.output))
            }
            Subject::Ensemble(bundle, fusion) => {
                Ok((ensemble::fused(graph, bundle, fusion, x)?, vec![architecture.classes]))
            }
        })
    }

    /// A personal model: both experts, and the gate between them.
    ///
    /// # Errors
    /// As [`Onnx::of`].
    pub fn personal(
        model: &PersonalModel,
        samples: &DataSpec,
        preparing: Preparing,
    ) -> Result<Self, ExportError> {
        Self::made(&model.architecture, Some(samples), preparing, |graph, x| mixture::mixed(graph, model, x))
    }

    /// `network` adds what comes behind the prepared samples, and says the value of the logits and the shape of those of a sample.
    fn made(
        architecture: &Architecture,
        samples: Option<&DataSpec>,
        preparing: Preparing,
        network: impl FnOnce(&mut Graph, &str) -> Result<(String, Vec<usize>), ExportError>,
    ) -> Result<Self, ExportError> {
        let inside = preparing == Preparing::Inside;
        let input = match samples {
            Some(samples) if inside => samples.shape.clone(),
            _ => architecture.input.clone(),
        };
        let kind = Kind::of(architecture, samples, &input);
        let mut graph = Graph::default();
        let prepared = match samples {
            Some(samples) if inside && !kind.is_tokens() => preparation::prepared(
                &mut graph,
                "samples",
                &samples.preparation,
                &samples.shape,
                &architecture.input,
            ),
            _ => "samples".to_owned(),
        };
        let (logits, output) = network(&mut graph, &prepared)?;
        let outputs = outputs(architecture.task);
        graph.output(outputs[0].0, "Identity", &[&logits], &[]);
        match architecture.task {
            Task::Classification => {
                graph.output("probabilities", "Softmax", &["logits"], &[("axis", Int(-1))]);
            }
            Task::MultiLabel => graph.output("probabilities", "Sigmoid", &["logits"], &[]),
            Task::Regression { .. } => {}
        }
        let takes = match (kind, inside) {
            (Kind::Bytes, _) => "the bytes of texts, each and 1, with 0 behind the end",
            (Kind::Text | Kind::Tokens, _) => "tokens, from 0",
            (_, false) => "samples as they were prepared for training, see the metadata `preparation`",
            (Kind::Image, true) => "images, their bytes divided by 255",
            (Kind::Table | Kind::Array, true) => "numbers as they are in the data",
        };
        let mut about = Message::new()
            .text(2, &architecture.name)
            .message(11, &declared("samples", kind.is_tokens(), &input, takes));
        for (name, says) in outputs {
            about = about.message(12, &declared(name, false, &output, says));
        }
        let onnx = Self { graph, about, end: end(architecture, samples, kind, preparing), input, output };
        let bytes = onnx.graph_bytes();
        if bytes > LARGEST - onnx.end.as_bytes().len() - 64 {
            return Err(ExportError::TooLarge { bytes });
        }
        Ok(onnx)
    }

    fn graph_bytes(&self) -> usize {
        self.graph.parts().iter().map(|part| part.len()).sum::<usize>() + self.about.as_bytes().len()
    }

    /// Writes the file.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut begin = Message::new()
            .integer(1, FORMAT)
            .text(2, "aggregator export --to onnx")
            .text(3, env!("CARGO_PKG_VERSION"));
        begin.begin(7, self.graph_bytes());
        out.write_all(begin.as_bytes())?;
        self.graph.parts().iter().try_for_each(|part| out.write_all(part))?;
        out.write_all(self.about.as_bytes())?;
        out.write_all(self.end.as_bytes())
    }
}

/// The opset, and what people and programs should know of the model.
fn end(architecture: &Architecture, samples: Option<&DataSpec>, kind: Kind, preparing: Preparing) -> Message {
    let named =
        samples.map(|samples| samples.output_names(architecture.task)).filter(|names| !names.is_empty());
    let classes = match named {
        Some(names) => names,
        None if kind == Kind::Text => text::token_names(),
        None => (0..architecture.classes).map(|number| number.to_string()).collect(),
    };
    let preparation = samples.map(|samples| {
        let crop = samples.preparation.augmentation.random_crop;
        json!({ "centre-crop": crop, "normalisation": samples.preparation.normalisation })
    });
    let metadata = [
        ("task", json!(architecture.task.name())),
        ("classes", json!(classes)),
        ("sample-shape", json!(samples.map_or(&architecture.input, |samples| &samples.shape))),
        ("preparation", preparation.unwrap_or_default()),
        ("preparation-is", json!(preparing.to_string())),
    ];
    let mut end = Message::new().message(8, &Message::new().text(1, "").integer(2, OPSET));
    for (key, value) in metadata {
        end.add(14, &Message::new().text(1, key).text(2, &value.to_string()));
    }
    end
}
