//! Networks of linear layers.

use super::{Given, Parts, linear};
use crate::architecture::Layer;

/// Softmax regression. The extractor only flattens, so that the head is the whole model.
pub(super) fn linear_model(given: &Given<'_>) -> Parts {
    Parts::plain(vec![Layer::Flatten], vec![linear("fc", given.classes)])
}

/// 2NN of `McMahan` et al., AISTATS 2017, section 3: 199 210 parameters for 784 inputs and ten classes.
pub(super) fn mlp_2nn(given: &Given<'_>) -> Parts {
    let extractor = vec![Layer::Flatten, linear("fc1", 200), Layer::Relu, linear("fc2", 200), Layer::Relu];
    Parts::plain(extractor, vec![linear("fc3", given.classes)])
}

/// A model whose 25 021 930 parameters take 100 MB.
pub(super) fn mlp_25m(given: &Given<'_>) -> Parts {
    let extractor = vec![Layer::Flatten, linear("fc1", 4620), Layer::Relu, linear("fc2", 4620), Layer::Relu];
    Parts::plain(extractor, vec![linear("fc3", given.classes)])
}
