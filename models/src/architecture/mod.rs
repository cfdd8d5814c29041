//! Architectures: a network as a value.
//!
//! An [`Architecture`] is a list of layers in three named parts. The one definition drives shape inference and parameter
//! counts, initialisation, training and evaluation; it is stored in model files and sent to clients. It may therefore
//! come from outside: nothing is allocated from it before [`Architecture::parameter_specs`] has accepted it.

mod builtin;
mod error;
mod inference;
mod initialise;
mod layer;
mod nesting;
mod specs;

use serde::{Deserialize, Serialize};

pub use builtin::{BUILT_INS, BuiltIn, Norm, Variant};
pub use error::{ArchitectureError, Quantity};
pub use initialise::Initialisation;
pub use layer::Layer;
pub use nesting::MAX_NESTING;
pub use specs::{Initial, MAX_ELEMENTS, MAX_LAYERS, MAX_NAME, ParameterKind, ParameterSpec};

/// A feed-forward network: extractor, optional projection, head, applied one after the other.
///
/// Parameters are called `part.layer.kind`, as in `extractor.conv1.weight` or `head.fc3.bias`.
///
/// ```
/// let architecture = models::Architecture::by_name("mlp-2nn", &[1, 28, 28], 10)?;
/// assert_eq!(architecture.parameters()?, 199_210);
/// # Ok::<(), models::ArchitectureError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Architecture {
    /// The name it is known by, such as `lenet-5`.
    pub name: String,
    /// The shape of one sample, without the batch: `[channels, height, width]` for images, `[t]` for `t` tokens.
    pub input: Vec<usize>,
    /// The number of classes, which is the number of logits of each prediction.
    pub classes: usize,
    /// What weights and biases start as.
    #[serde(default)]
    pub initialisation: Initialisation,
    /// From the input to features.
    pub extractor: Vec<Layer>,
    /// From features to the representation that contrastive methods compare; empty in most models.
    pub projection: Vec<Layer>,
    /// From there to logits: `[classes]`, or `[t, classes]` for a prediction at each of `t` positions.
    pub head: Vec<Layer>,
}

impl Architecture {
    /// A built-in architecture for this shape of sample and number of classes.
    ///
    /// # Errors
    /// [`ArchitectureError::UnknownModel`], which lists the known ones, or what does not fit about the input.
    pub fn by_name(name: &str, input: &[usize], classes: usize) -> Result<Self, ArchitectureError> {
        Self::variant(name, input, classes, Variant::default())
    }

    /// A variant of a built-in architecture.
    ///
    /// # Errors
    /// As [`Architecture::by_name`], and [`ArchitectureError::NoNorm`] if the model has no normalisation to choose.
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

    /// The size of the vocabulary, if samples are tokens: whole numbers below it.
    #[must_use]
    pub fn vocabulary(&self) -> Option<usize> {
        match self.extractor.first() {
            Some(&Layer::Embedding { vocabulary, .. }) => Some(vocabulary),
            _ => None,
        }
    }

    /// Whether there is dropout in it, so that training needs masks.
    #[must_use]
    pub fn drops_out(&self) -> bool {
        fn any(layers: &[Layer]) -> bool {
            layers.iter().any(|layer| match layer {
                Layer::Dropout { .. } => true,
                Layer::Residual { body, shortcut } => any(body) || any(shortcut),
                _ => false,
            })
        }
        self.parts().iter().any(|(_, layers)| any(layers))
    }

    /// Whether statistics of the data are among its parameters, as with batch normalisation. Not of an architecture without
    /// [`Architecture::parameter_specs`].
    #[must_use]
    pub fn has_buffers(&self) -> bool {
        let is_buffer = |spec: &ParameterSpec| spec.kind == ParameterKind::Buffer;
        self.parameter_specs().is_ok_and(|specs| specs.iter().any(is_buffer))
    }

    /// Whether anything is learned below the head, so that a representation can be more than the sample itself. Not of an
    /// architecture without [`Architecture::parameter_specs`].
    #[must_use]
    pub fn represents(&self) -> bool {
        self.learns_in("extractor") || self.learns_in("projection")
    }

    /// Whether anything is learned in a part. Not of an architecture without [`Architecture::parameter_specs`].
    #[must_use]
    pub fn learns_in(&self, part: &str) -> bool {
        let learned = |spec: &ParameterSpec| {
            let of_part = spec.name.strip_prefix(part).is_some_and(|rest| rest.starts_with('.'));
            of_part && spec.kind != ParameterKind::Buffer
        };
        self.parameter_specs().is_ok_and(|specs| specs.iter().any(learned))
    }

    /// What stands on the extractor as a network of its own: projection and head, whose samples are features. Its
    /// parameters have the names that they have in the whole.
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

    /// The three parts with the names that prefix their parameters, in the order they are applied.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, &[Layer]); 3] {
        [("extractor", &self.extractor), ("projection", &self.projection), ("head", &self.head)]
    }
}
