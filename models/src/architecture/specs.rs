//! What an architecture needs: its tensors, and how large it may be.

use crate::params::element_count;

use super::{ArchitectureError, Quantity};

/// The most parameters of one architecture, the most values between two layers and the most that a pass of one sample
/// keeps: 2^30, which are 4 GiB.
///
/// Architectures come from files and from the network; this keeps a hostile one from asking for all memory.
pub const MAX_ELEMENTS: usize = 1 << 30;

/// The most layers of one architecture, those in residual blocks and the blocks themselves included. The deepest of the
/// published residual networks, of 152 layers with parameters, has about 500.
pub const MAX_LAYERS: usize = 600;

/// The most characters of a layer's name. With [`MAX_LAYERS`] this keeps every architecture well within one message.
pub const MAX_NAME: usize = 60;

/// One tensor of parameters that an architecture needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterSpec {
    /// The full name, such as `extractor.conv1.weight`.
    pub name: String,
    /// The shape.
    pub shape: Vec<usize>,
    /// The inputs that each output of the layer sums over; the bias has that of its layer.
    pub fan_in: usize,
    /// The outputs that each input of the layer goes to; the bias has that of its layer.
    pub fan_out: usize,
    /// What it does in its layer.
    pub kind: ParameterKind,
    /// What it starts as.
    pub initial: Initial,
}

/// What a parameter tensor does in its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParameterKind {
    /// It multiplies.
    Weight,
    /// It is added.
    Bias,
    /// It is a statistic of the data, which training keeps and no gradient reaches.
    Buffer,
}

/// How a parameter tensor is initialised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Initial {
    /// Every value uniform in `[-1/sqrt(fan), 1/sqrt(fan))`.
    Uniform {
        /// The number under the root.
        fan: usize,
    },
    /// Every value from the normal distribution of variance `2 / fan` (He et al. 2015, eq. 10).
    He {
        /// What the variance is divided by.
        fan: usize,
    },
    /// Every value from the standard normal distribution.
    Normal,
    /// Every value 0.
    Zero,
    /// Every value 1.
    One,
}

/// Refuses activations without values or with too many; gives their number.
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

/// `count` is none if it is more than any number here can say.
pub(super) fn too_large(layer: &str, quantity: Quantity, count: Option<usize>) -> ArchitectureError {
    ArchitectureError::TooLarge { layer: layer.to_owned(), quantity, count }
}

/// Refuses names that would make parameter names ambiguous, or hard to type.
pub(super) fn check_name(layer: &str, name: &str) -> Result<(), ArchitectureError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    let problem = "a layer's name is made of 1 to 60 ASCII letters, digits, `-` and `_`";
    Err(ArchitectureError::Layer { layer: layer.to_owned(), problem })
}
