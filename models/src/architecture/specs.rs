//! Parameter specifications, and the limits on the size of architectures.

use crate::params::element_count;

use super::{ArchitectureError, MAX_ELEMENTS, Quantity};

/// The limit of an architecture's layers, including residual blocks and the layers in them. The deepest of the published
/// residual networks, with 152 layers with parameters, has about 500.
pub const MAX_LAYERS: usize = 600;

/// The longest name of a layer, in characters. With [`MAX_LAYERS`] this keeps every architecture well within one message.
pub const MAX_NAME: usize = 60;

/// One parameter tensor of an architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterSpec {
    /// The full name, such as `extractor.conv1.weight`.
    pub name: String,
    /// The shape.
    pub shape: Vec<usize>,
    /// The inputs that each output of the layer sums over; for a bias that of its layer.
    pub fan_in: usize,
    /// The outputs that each input of the layer contributes to; for a bias that of its layer.
    pub fan_out: usize,
    /// The tensor's role in its layer.
    pub kind: ParameterKind,
    /// The tensor's initial values.
    pub initial: Initial,
}

/// The role of a parameter tensor in its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParameterKind {
    /// A factor.
    Weight,
    /// A summand.
    Bias,
    /// A statistic of the data, which training updates without a gradient.
    Buffer,
}

/// The distribution of a tensor's initial values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Initial {
    /// Uniform in `[-1/sqrt(fan), 1/sqrt(fan))`.
    Uniform {
        /// The number under the root.
        fan: usize,
    },
    /// Normal with mean 0 and variance `2 / fan` (He et al. 2015, eq. 10).
    He {
        /// The divisor of the variance.
        fan: usize,
    },
    /// Standard normal.
    Normal,
    /// Normal with mean 0 and deviation 0.02, as the positions of transformers (Devlin et al. 2019).
    Small,
    /// All 0.
    Zero,
    /// All 1.
    One,
}

/// The number of values of a shape; an error if there are none or too many.
pub(super) fn check_size(layer: &str, shape: &[usize]) -> Result<usize, ArchitectureError> {
    match element_count(shape) {
        Some(0) => {
            let problem = "the shape has no values: every dimension must be at least 1";
            Err(ArchitectureError::Layer { layer: layer.to_owned(), problem })
        }
        Some(count) if count <= MAX_ELEMENTS => Ok(count),
        count => Err(too_large(layer, Quantity::Values, count)),
    }
}

/// `count` is `None` if the number overflows.
pub(super) fn too_large(layer: &str, quantity: Quantity, count: Option<usize>) -> ArchitectureError {
    ArchitectureError::TooLarge { layer: layer.to_owned(), quantity, count }
}

/// Refuses names that would make parameter names ambiguous or hard to type.
pub(super) fn check_name(layer: &str, name: &str) -> Result<(), ArchitectureError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    let problem = "a layer's name is made of 1 to 60 ASCII letters, digits, `-` and `_`";
    Err(ArchitectureError::Layer { layer: layer.to_owned(), problem })
}
