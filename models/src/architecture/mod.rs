//! Architectures: descriptions of networks.
//!
//! An [`Architecture`] is a list of layers in three named parts. This one definition drives shape inference, parameter counts,
//! initialisation, training and evaluation; it is stored in model files and sent to clients. It may come from an untrusted
//! source: nothing is allocated from it before [`Architecture::parameter_specs`] has accepted it.

mod adapters;
mod builtin;
mod decay;
mod error;
mod frozen;
mod inference;
mod initialise;
mod layer;
mod nesting;
mod opaque;
mod specs;

use serde::{Deserialize, Serialize};

use crate::task::Task;

pub use adapters::{AdapterError, is_adapter};
pub use builtin::{BUILT_INS, BuiltIn, Norm, Variant};
pub use decay::DecayOn;
pub use error::{ArchitectureError, Quantity};
pub use frozen::{Frozen, FrozenError, encode_frozen, frozen_digest, matches};
pub use initialise::Initialisation;
pub use layer::Layer;
pub use nesting::MAX_NESTING;
pub use opaque::{MAX_TENSORS, OpaqueTensor};
pub use specs::{Initial, MAX_LAYERS, MAX_NAME, ParameterKind, ParameterSpec};

/// The limit of an architecture's parameters, of the values between two layers, and of the values that a training pass of one
/// sample stores: 2^30, which are 4 GiB.
///
/// Architectures come from files and from peers; the limit keeps a hostile one from allocating all memory.
pub const MAX_ELEMENTS: usize = 1 << 30;

/// A feed-forward network: extractor, optional projection, head, applied one after the other.
///
/// Parameters are called `part.layer.kind`, as in `extractor.conv1.weight` or `head.fc3.bias`.
///
/// ```
/// let architecture = models::Architecture::by_name("mlp-2nn", &[1, 28, 28], 10)?;
/// assert_eq!(architecture.parameters()?, 199_210);
/// # Ok::<(), models::ArchitectureError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Architecture {
    /// The architecture's name, such as `lenet-5`.
    pub name: String,
    /// The shape of one sample, without the batch: `[channels, height, width]` for images, `[t]` for `t` tokens.
    pub input: Vec<usize>,
    /// The number of classes, and of logits for each prediction; for regression the number of its outputs.
    pub classes: usize,
    /// What it learns.
    #[serde(default, skip_serializing_if = "Task::is_classification")]
    pub task: Task,
    /// The initial values of weights and biases.
    #[serde(default)]
    pub initialisation: Initialisation,
    /// The layers from the input to the features.
    pub extractor: Vec<Layer>,
    /// The layers from the features to the representation that contrastive methods compare; empty in most models.
    pub projection: Vec<Layer>,
    /// The layers from the representation to the logits: `[classes]`, or `[t, classes]` for predictions at `t` positions.
    pub head: Vec<Layer>,
    /// The tensors that are not learned; `None` if all are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<Frozen>,
    /// The tensors of an opaque network, which has no layers; `None` if the layers say what they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensors: Option<Vec<OpaqueTensor>>,
}

impl Architecture {
    /// A built-in architecture for this shape of sample and number of classes.
    ///
    /// # Errors
    /// [`ArchitectureError::UnknownModel`], which lists the known names, or an error if the input does not fit.
    pub fn by_name(name: &str, input: &[usize], classes: usize) -> Result<Self, ArchitectureError> {
        Self::variant(name, input, classes, Variant::default())
    }

    /// A variant of a built-in architecture.
    ///
    /// # Errors
    /// As [`Architecture::by_name`], [`ArchitectureError::NoNorm`] if the model has no normalisation to choose, and
    /// [`ArchitectureError::NoVocabulary`] if it reads no tokens and is given some, and
    /// [`ArchitectureError::NoProjection`] if a projection does not take its features.
    pub fn variant(
        name: &str,
        input: &[usize],
        classes: usize,
        variant: Variant,
    ) -> Result<Self, ArchitectureError> {
        let Some(built_in) = BUILT_INS.iter().find(|built_in| built_in.name == name) else {
            return Err(ArchitectureError::UnknownModel {
                name: name.to_owned(),
                known: BUILT_INS.iter().map(|built_in| built_in.name).collect(),
            });
        };
        let architecture = built_in.build(input, classes, variant)?;
        architecture.parameter_specs()?;
        Ok(architecture)
    }

    /// The size of the vocabulary if samples are tokens.
    #[must_use]
    pub fn vocabulary(&self) -> Option<usize> {
        match self.extractor.first() {
            Some(&Layer::Embedding { vocabulary, .. }) => Some(vocabulary),
            _ => None,
        }
    }

    /// Whether the network has dropout, so that training needs a seed for its masks.
    #[must_use]
    pub fn has_dropout(&self) -> bool {
        self.has_layer(&|layer| matches!(layer, Layer::Dropout { .. }))
    }

    /// Whether what the network says at a position of a sequence depends on later positions: by attention that is not causal.
    #[must_use]
    pub fn looks_ahead(&self) -> bool {
        self.has_layer(&|layer| matches!(layer, Layer::Attention { causal: false, .. }))
    }

    /// Whether some layer is such a one, at any depth.
    fn has_layer(&self, is: &dyn Fn(&Layer) -> bool) -> bool {
        fn any(layers: &[Layer], is: &dyn Fn(&Layer) -> bool) -> bool {
            layers.iter().any(|layer| match layer {
                Layer::Residual { body, shortcut } => any(body, is) || any(shortcut, is),
                Layer::SqueezeExcite { body } => any(body, is),
                layer => is(layer),
            })
        }
        self.parts().iter().any(|(_, layers)| any(layers, is))
    }

    /// Whether the network has buffers, which are statistics of the data, as in batch normalisation. `false` if the architecture
    /// is not valid.
    #[must_use]
    pub fn has_buffers(&self) -> bool {
        let is_buffer = |spec: &ParameterSpec| spec.kind == ParameterKind::Buffer;
        self.parameter_specs().is_ok_and(|specs| specs.iter().any(is_buffer))
    }

    /// Whether the network learns a representation: whether extractor or projection have parameters. `false` if the architecture
    /// is not valid.
    #[must_use]
    pub fn has_representation(&self) -> bool {
        self.learns_part("extractor") || self.learns_part("projection")
    }

    /// Whether a part has parameters that are learned. `false` if the architecture is not valid.
    #[must_use]
    pub fn learns_part(&self, part: &str) -> bool {
        let learned = |spec: &ParameterSpec| {
            let of_part = spec.name.strip_prefix(part).is_some_and(|rest| rest.starts_with('.'));
            of_part && spec.kind != ParameterKind::Buffer
        };
        self.parameter_specs().is_ok_and(|specs| specs.iter().any(learned))
    }

    /// Projection and head as a network of their own, whose samples are the extractor's features. Parameters keep their names.
    ///
    /// # Errors
    /// As [`Architecture::parameter_specs`].
    pub fn classifier(&self) -> Result<Self, ArchitectureError> {
        let classifier = Self {
            name: format!("classifier of {}", self.name),
            input: self.feature_shape()?,
            extractor: Vec::new(),
            ..self.clone()
        };
        classifier.parameter_specs()?;
        Ok(classifier)
    }

    /// The same parts, to be changed.
    fn parts_mut(&mut self) -> [(&'static str, &mut Vec<Layer>); 3] {
        [("extractor", &mut self.extractor), ("projection", &mut self.projection), ("head", &mut self.head)]
    }

    /// The three parts in the order of application, with the names that prefix their parameters.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, &[Layer]); 3] {
        [("extractor", &self.extractor), ("projection", &self.projection), ("head", &self.head)]
    }
}
