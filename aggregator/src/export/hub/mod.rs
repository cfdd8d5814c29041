//! Export as a folder of the Hugging Face hub: the model, its description for programs, and a card for people.
//!
//! ```text
//! model.safetensors    the model, as a run leaves it: this program takes it back, and every reader of safetensors reads its tensors
//! config.json          the network, what its samples are and how they are prepared, the names of the classes
//! README.md            the card: where the model comes from, how well it does, how it is used
//! onnx/model.onnx      the same in ONNX, unless it is too large for that
//! ```
//!
//! * `training`: what is known of the model's training; `card`: the card; `description`: the file for programs.

mod card;
mod description;
mod training;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use models::{Architecture, ParamSet};
use shared::spec::{DataSpec, SAMPLES_KEY};

use super::onnx::{Onnx, Preparing};
use super::samples::Kind;
use super::{Content, ExportError, Exported, Subject};

pub use training::{Clients, Tested, Training};

/// The paths of the files in the folder.
pub const FILES: [&str; 4] = ["README.md", "config.json", "model.safetensors", "onnx/model.onnx"];

/// A model that is exported, and all that the folder says of it.
#[derive(Clone, Copy)]
pub struct Model<'a> {
    /// The network.
    pub architecture: &'a Architecture,
    /// Its parameters.
    pub params: &'a ParamSet,
    /// What its samples are, if it says so.
    pub samples: Option<&'a DataSpec>,
    /// Its training, if it is known.
    pub training: Option<&'a Training>,
    /// The licence that the card names: an identifier of SPDX, or one that the hub knows.
    pub licence: Option<&'a str>,
}

impl<'a> Model<'a> {
    fn subject(&self) -> Subject<'a> {
        Subject::Model(self.architecture, self.params, self.samples)
    }

    fn kind(&self) -> Kind {
        let shape = self.samples.map_or(&self.architecture.input, |samples| &samples.shape);
        Kind::of(self.architecture, self.samples, shape)
    }

    fn class_names(&self) -> &'a [String] {
        self.samples.map_or(&[], |samples| &samples.class_names)
    }
}

/// The files of the folder.
///
/// # Errors
/// [`ExportError`] if the model is no network.
pub fn folder(model: Model<'_>) -> Result<Vec<Exported<'_>>, ExportError> {
    let onnx = match Onnx::of(model.subject(), Preparing::Inside) {
        Ok(onnx) => Some(onnx),
        Err(ExportError::TooLarge { .. }) => None,
        Err(error) => return Err(error),
    };
    let parameters = model.architecture.parameters()?;
    let contents = [
        Some(Content::Text(card::card(&model, parameters, onnx.is_some()))),
        Some(Content::Text(description::description(&model, parameters))),
        Some(Content::Model(model.architecture, model.params, metadata(&model))),
        onnx.map(|onnx| Content::Onnx(Box::new(onnx))),
    ];
    let files = FILES.into_iter().zip(contents);
    Ok(files
        .filter_map(|(name, content)| Some(Exported { name: name.to_owned(), content: content? }))
        .collect())
}

/// What stands in the model's file beside its network.
fn metadata(model: &Model<'_>) -> BTreeMap<String, String> {
    let samples = model.samples.map(|samples| {
        let json = serde_json::to_string(samples).expect("names and numbers are JSON");
        (SAMPLES_KEY.to_owned(), json)
    });
    // The hub's own libraries ask for it: tensors lie as PyTorch has them.
    let format = ("format".to_owned(), "pt".to_owned());
    samples.into_iter().chain([format]).collect()
}
