//! Convolutional networks without shortcuts.

use super::{Given, Parts, conv, linear, pool};
use crate::architecture::{Initialisation, Layer};

/// CNN of `McMahan` et al., AISTATS 2017, section 3, padded to keep 28x28: 1 663 370 parameters.
pub(super) fn cnn_mnist(given: &Given<'_>) -> Parts {
    let extractor = vec![
        conv("conv1", 32, 5, 1, 2),
        Layer::Relu,
        pool(2),
        conv("conv2", 64, 5, 1, 2),
        Layer::Relu,
        pool(2),
        Layer::Flatten,
    ];
    let head = vec![linear("fc1", 512), Layer::Relu, linear("fc2", given.classes)];
    Parts::plain(extractor, head)
}

/// A network of this project for small devices: the first convolution halves the image, to do little work at full resolution.
pub(super) fn cnn_small(given: &Given<'_>) -> Parts {
    let extractor = vec![
        conv("conv1", 8, 5, 2, 2),
        Layer::Relu,
        conv("conv2", 16, 3, 1, 1),
        Layer::Relu,
        pool(2),
        Layer::Flatten,
    ];
    Parts::plain(extractor, vec![linear("fc1", given.classes)])
}

/// The two convolutions that LeNet-5 and the encoder of MOON share.
///
/// Images of less than 32 rows are padded by 2 as in `LeCun` et al. 1998, so that 28x28 gives the same 400 features as 32x32.
fn lenet_convolutions(input: &[usize]) -> Vec<Layer> {
    let padding = match input {
        &[_, height, _] if height < 32 => 2,
        _ => 0,
    };
    vec![
        conv("conv1", 6, 5, 1, padding),
        Layer::Relu,
        pool(2),
        conv("conv2", 16, 5, 1, 0),
        Layer::Relu,
        pool(2),
        Layer::Flatten,
    ]
}

/// LeNet-5 in the variant of Guo et al., APWeb-WAIM 2021: 62 006 parameters for 32x32 RGB, 61 706 for 28x28 or 32x32
/// grey. The head consists of all fully connected layers, the paper's `theta_C`.
pub(super) fn lenet_5(given: &Given<'_>) -> Parts {
    let extractor = lenet_convolutions(given.input);
    let head =
        vec![linear("fc1", 120), Layer::Relu, linear("fc2", 84), Layer::Relu, linear("fc3", given.classes)];
    Parts::plain(extractor, head)
}

/// The network of MOON (Li, He and Song, CVPR 2021, section 4.1): an encoder like LeNet-5, a projection of two layers to
/// 256 values, and the output layer on top of that. 92 626 parameters for 32x32 RGB.
pub(super) fn moon_cnn(given: &Given<'_>) -> Parts {
    let mut extractor = lenet_convolutions(given.input);
    extractor.extend([linear("fc1", 120), Layer::Relu, linear("fc2", 84), Layer::Relu]);
    let projection = vec![linear("fc1", 84), Layer::Relu, linear("fc2", 256)];
    Parts { projection, ..Parts::plain(extractor, vec![linear("fc", given.classes)]) }
}

/// The CNN of `McMahan` et al., AISTATS 2017, section 3, for CIFAR-10, which is that of the `TensorFlow` tutorial of the time:
/// 1 068 298 parameters for 24x24 crops.
///
/// The tutorial pads "SAME", which for windows of 3, two apart, on even sizes is a row below and a column to the right:
/// partial windows. Its local response normalisation is `(1 + 0.001 / 9 * sum of squares of 9 channels)^0.75`.
pub(super) fn cnn_cifar(given: &Given<'_>) -> Parts {
    let pool = Layer::MaxPool { size: 3, stride: 2, partial: true };
    let norm = Layer::LocalResponseNorm { size: 9, alpha: 0.001, beta: 0.75, k: 1.0 };
    let extractor = vec![
        conv("conv1", 64, 5, 1, 2),
        Layer::Relu,
        pool.clone(),
        norm.clone(),
        conv("conv2", 64, 5, 1, 2),
        Layer::Relu,
        norm,
        pool,
        Layer::Flatten,
    ];
    let head =
        vec![linear("fc1", 384), Layer::Relu, linear("fc2", 192), Layer::Relu, linear("fc3", given.classes)];
    Parts::plain(extractor, head)
}

/// Configuration D of Simonyan and Zisserman (ICLR 2015) for small images, without normalisation: thirteen 3x3
/// convolutions, and 512 and 512 hidden units, half of which are dropped in training. 15 245 130 parameters for 32x32 RGB.
///
/// Initialised after He et al. 2015: with `PyTorch`'s default, fifteen rectified layers divide the variance by 6^15, and training
/// makes no progress. The head consists of all linear layers, which PFL-MoE (Guo et al. 2021) personalises.
pub(super) fn vgg_16(given: &Given<'_>) -> Parts {
    let mut extractor = vec![];
    for (stage, (out, convolutions)) in
        [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)].into_iter().enumerate()
    {
        for number in 1..=convolutions {
            extractor.extend([conv(&format!("conv{}-{number}", stage + 1), out, 3, 1, 1), Layer::Relu]);
        }
        extractor.push(pool(2));
    }
    extractor.push(Layer::Flatten);
    let dropout = || Layer::Dropout { rate: 0.5 };
    let mut head = vec![linear("fc1", 512), Layer::Relu, dropout()];
    head.extend([linear("fc2", 512), Layer::Relu, dropout(), linear("fc3", given.classes)]);
    Parts { initialisation: Initialisation::He, ..Parts::plain(extractor, head) }
}
