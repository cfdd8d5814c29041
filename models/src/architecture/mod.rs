//! Architectures: a network as a value.
//!
//! An [`Architecture`] is a list of layers in three named parts. The one definition drives shape inference and parameter
//! counts, initialisation, training and evaluation; it is stored in model files and sent to clients. It may therefore
//! come from outside: nothing is allocated from it before [`Architecture::parameter_specs`] has accepted it.

mod builtin;
mod initialise;
mod shapes;

use serde::{Deserialize, Serialize};

pub use builtin::{BUILT_INS, BuiltIn};
pub use shapes::{ArchitectureError, MAX_ELEMENTS, ParameterKind, ParameterSpec};

/// A feed-forward network: extractor, optional projection, head, applied one after the other.
///
/// Parameters are called `part.layer.kind`, as in `extractor.conv1.weight` or `head.fc3.bias`.
///
/// ```
/// let architecture = models::Architecture::by_name("mlp-2nn", &[1, 28, 28], 10)?;
/// assert_eq!(architecture.parameters()?, 199_210);
/// # Ok::<(), models::ArchitectureError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Architecture {
    /// The name it is known by, such as `lenet-5`.
    pub name: String,
    /// The shape of one sample, without the batch: `[channels, height, width]` for images.
    pub input: Vec<usize>,
    /// The number of classes, which is the number of logits.
    pub classes: usize,
    /// From the input to features.
    pub extractor: Vec<Layer>,
    /// From features to the representation that contrastive methods compare; empty in most models.
    pub projection: Vec<Layer>,
    /// From there to logits.
    pub head: Vec<Layer>,
}

/// One layer. Those with parameters have a name, unique within their part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Layer {
    /// Two-dimensional cross-correlation, `[c, h, w]` to `[out, h', w']` with `h' = (h + 2 padding - kernel) / stride + 1`
    /// rounded down. Its weight has the shape `[out, c, kernel, kernel]`.
    Conv {
        /// The layer's name, such as `conv1`.
        name: String,
        /// Channels produced.
        out: usize,
        /// Height and width of the kernel in pixels.
        kernel: usize,
        /// Pixels between applications.
        stride: usize,
        /// Rows and columns of zeros added on each side; less than the kernel.
        padding: usize,
        /// Whether there is a bias per channel.
        bias: bool,
    },
    /// `y = W x + b`, `[n]` to `[out]`. Its weight has the shape `[out, n]`.
    Linear {
        /// The layer's name, such as `fc1`.
        name: String,
        /// Features produced.
        out: usize,
        /// Whether there is a bias per feature.
        bias: bool,
    },
    /// `max(x, 0)`.
    Relu,
    /// The maximum over windows that do not overlap, `[c, h, w]` to `[c, h / size, w / size]` rounded down. Rows and
    /// columns that fill no window are dropped. Among equal maxima the first gets the gradient, as in `PyTorch`.
    MaxPool {
        /// Height and width of the window in pixels.
        size: usize,
        /// Pixels between windows; must equal `size`.
        stride: usize,
    },
    /// Everything into one dimension, row-major.
    Flatten,
}

impl Architecture {
    /// A built-in architecture for this shape of sample and number of classes.
    ///
    /// # Errors
    /// [`ArchitectureError::UnknownModel`], which lists the known ones, or what does not fit about the input.
    pub fn by_name(name: &str, input: &[usize], classes: usize) -> Result<Self, ArchitectureError> {
        let Some(built_in) = BUILT_INS.iter().find(|built_in| built_in.name == name) else {
            return Err(ArchitectureError::UnknownModel {
                name: name.to_owned(),
                known: BUILT_INS.iter().map(|built_in| built_in.name).collect(),
            });
        };
        let architecture = built_in.build(input, classes);
        architecture.parameter_specs()?;
        Ok(architecture)
    }

    /// The three parts with the names that prefix their parameters, in the order they are applied.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, &[Layer]); 3] {
        [("extractor", &self.extractor), ("projection", &self.projection), ("head", &self.head)]
    }
}
