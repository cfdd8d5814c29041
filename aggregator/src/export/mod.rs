//! Export of models: what a run has learned, as source and weights that need nothing of this program.
//!
//! ```text
//! NAME.py            one file, to be run and to be imported: `Network`, `load`, `prepare`, `predict`, and what the classes are called
//! NAME.safetensors   its weights
//! ```
//!
//! * [`Target`]: the Python that is exported to; a new one is a variant with its files; [`onnx`]: another format, of one file;
//!   [`hub`]: a folder with a card;
//! * `layers`: how each kind of layer is spelled, for all targets in Python;
//! * `plan`: a network's layers with their names, and where each tensor goes;
//! * `torch`, `numpy`: the network in the one and in the other;
//! * `ensemble`: many networks with one answer;
//! * `script`: what both have around it; `preparation`, `samples`: how samples are prepared and read;
//! * `weights`: the file of tensors.

mod answers;
mod ensemble;
pub mod hub;
mod layers;
mod numpy;
#[expect(clippy::cast_possible_wrap, reason = "sides of tensors are far below 2^63")]
pub mod onnx;
mod plan;
mod preparation;
mod python;
mod samples;
mod script;
mod torch;
mod weights;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};

use models::{Architecture, ArchitectureError, ModelError, ParamSet};
use shared::algorithm::Fusion;
use shared::spec::DataSpec;

use onnx::Onnx;
pub use weights::Weights;

use crate::ensemble::{Bundle, EnsembleError};
use plan::Plan;
use script::Script;

/// The Python that is exported to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// An nn.Module and its state dictionary, for torch.
    Torch,
    /// Python with numpy alone.
    Numpy,
}

impl Target {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Torch, Self::Numpy];

    /// The packages of Python that the exported files need.
    #[must_use]
    pub fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Torch => &["torch", "numpy", "safetensors"],
            Self::Numpy => &["numpy"],
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Torch => "torch",
            Self::Numpy => "numpy",
        })
    }
}

/// What is exported.
#[derive(Clone, Copy)]
pub enum Subject<'a> {
    /// One model, and what its samples are if it says so.
    Model(&'a Architecture, &'a ParamSet, Option<&'a DataSpec>),
    /// Many, and how they become one answer.
    Ensemble(&'a Bundle, Fusion),
}

impl Subject<'_> {
    /// The network: of an ensemble that of each member.
    #[must_use]
    pub fn architecture(&self) -> &Architecture {
        match self {
            Self::Model(architecture, ..) => architecture,
            Self::Ensemble(bundle, _) => &bundle.manifest.architecture,
        }
    }

    /// What its samples are, if it says so.
    #[must_use]
    pub fn samples(&self) -> Option<&DataSpec> {
        match self {
            Self::Model(.., samples) => *samples,
            Self::Ensemble(bundle, _) => Some(&bundle.manifest.data),
        }
    }
}

/// A file that is exported.
pub struct Exported<'a> {
    /// Its path in the folder of the export.
    pub name: String,
    /// What is in it.
    pub content: Content<'a>,
}

/// The content of an exported file.
pub enum Content<'a> {
    /// Source.
    Text(String),
    /// Tensors.
    Tensors(Weights<'a>),
    /// A model and its metadata, as a run leaves them.
    Model(&'a Architecture, &'a ParamSet, BTreeMap<String, String>),
    /// A whole model in ONNX.
    Onnx(Box<Onnx>),
}

impl Content<'_> {
    /// Writes it.
    ///
    /// # Errors
    /// Those of `out`, or that a model does not fit its own network.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Text(text) => out.write_all(text.as_bytes()),
            Self::Tensors(weights) => weights.write(out),
            Self::Model(architecture, params, metadata) => {
                let params = weights::all_usable(params);
                models::write_model(architecture, &params, metadata, out).map_err(io::Error::other)
            }
            Self::Onnx(onnx) => onnx.write(out),
        }
    }
}

/// Why nothing can be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The architecture is none of a network.
    #[error("the model's architecture is not valid: {0}")]
    Architecture(#[from] ArchitectureError),
    /// The ensemble cannot be read.
    #[error(transparent)]
    Ensemble(#[from] EnsembleError),
    /// A member of the ensemble cannot be asked.
    #[error("the model cannot be asked: {0}")]
    Model(#[from] ModelError),
    /// ONNX is a format of files of less than two gigabytes.
    #[error(
        "the model has {bytes} bytes, and a file of ONNX has less than 2 GiB: export it to torch or numpy, or an ensemble of fewer members"
    )]
    TooLarge {
        /// What it would have.
        bytes: usize,
    },
}

/// The files of an export to Python: source and weights, both called `name`.
///
/// # Errors
/// [`ExportError`] if it cannot be read, or is no network.
pub fn export<'a>(
    subject: Subject<'a>,
    target: Target,
    name: &str,
) -> Result<Vec<Exported<'a>>, ExportError> {
    let plan = Plan::of(subject.architecture())?;
    let script = Script::new(subject, &plan, target, name);
    let source = match target {
        Target::Torch => torch::source(&script),
        Target::Numpy => numpy::source(&script),
    };
    let weights = Weights::of(subject, &plan, target);
    Ok(vec![
        Exported { name: format!("{name}.py"), content: Content::Text(source) },
        Exported { name: format!("{name}.safetensors"), content: Content::Tensors(weights) },
    ])
}
