//! Networks for devices.
//!
//! Layers are called as in `torchvision`, with `-` for `.`: `extractor.features-1-conv-0-0.weight` is its
//! `features.1.conv.0.0.weight`, and `head.classifier-1.bias` its `classifier.1.bias`. Order and shapes of all tensors are the same.

use super::{Given, Parts, conv, linear};
use crate::architecture::{Initialisation, Layer};

/// `MobileNetV2` (Sandler et al., CVPR 2018, table 2) of width 1: 3 504 872 parameters for RGB and a thousand classes, 2 236 682 for
/// ten. Images are halved five times.
pub(super) fn mobilenet_v2(given: &Given<'_>) -> Parts {
    /// Expansion, output channels, blocks, and the stride of the first of them.
    const STAGES: [[usize; 4]; 7] = [
        [1, 16, 1, 1],
        [6, 24, 2, 2],
        [6, 32, 3, 2],
        [6, 64, 4, 2],
        [6, 96, 3, 1],
        [6, 160, 3, 2],
        [6, 320, 1, 1],
    ];
    let mut extractor = normalised("features-0", Conv { out: 32, kernel: 3, stride: 2, groups: 1 });
    extractor.push(Layer::Relu6);
    let (mut channels, mut number) = (32, 1);
    for [expansion, out, blocks, first_stride] in STAGES {
        for block in 0..blocks {
            let stride = if block == 0 { first_stride } else { 1 };
            let body =
                inverted(&format!("features-{number}-conv"), [channels, expansion * channels, out], stride);
            if stride == 1 && channels == out {
                extractor.push(Layer::Residual { body, shortcut: vec![] });
            } else {
                extractor.extend(body);
            }
            (channels, number) = (out, number + 1);
        }
    }
    extractor.extend(normalised("features-18", Conv { out: 1280, kernel: 1, stride: 1, groups: 1 }));
    extractor.extend([Layer::Relu6, Layer::GlobalAvgPool]);
    let head = vec![Layer::Dropout { rate: 0.2 }, linear("classifier-1", given.classes)];
    Parts { initialisation: Initialisation::He, ..Parts::plain(extractor, head) }
}

/// A block of `MobileNetV3`.
struct Bottleneck {
    kernel: usize,
    /// Channels of the depthwise convolution.
    wide: usize,
    out: usize,
    /// Whether there is squeeze-and-excitation.
    excited: bool,
    activation: Layer,
    stride: usize,
}

/// The small `MobileNetV3` (Howard et al., ICCV 2019, table 2) of width 1: 2 542 856 parameters for RGB and a thousand classes,
/// 1 528 106 for ten. Images are halved five times. Its normalisation has the settings of `torchvision`.
pub(super) fn mobilenet_v3_small(given: &Given<'_>) -> Parts {
    /// Kernel, channels inside and after, squeeze-and-excitation, whether rectifiers are soft, stride.
    const BLOCKS: [(usize, usize, usize, bool, bool, usize); 11] = [
        (3, 16, 16, true, false, 2),
        (3, 72, 24, false, false, 2),
        (3, 88, 24, false, false, 1),
        (5, 96, 40, true, true, 2),
        (5, 240, 40, true, true, 1),
        (5, 240, 40, true, true, 1),
        (5, 120, 48, true, true, 1),
        (5, 144, 48, true, true, 1),
        (5, 288, 96, true, true, 2),
        (5, 576, 96, true, true, 1),
        (5, 576, 96, true, true, 1),
    ];
    let first = Conv { out: 16, kernel: 3, stride: 2, groups: 1 };
    let mut extractor = with_settings(normalised("features-0", first));
    extractor.push(Layer::HardSwish);
    let mut channels = 16;
    for ((kernel, wide, out, excited, soft, stride), number) in BLOCKS.into_iter().zip(1..) {
        let activation = if soft { Layer::HardSwish } else { Layer::Relu };
        let block = Bottleneck { kernel, wide, out, excited, activation, stride };
        let body = with_settings(block.layers(&format!("features-{number}-block"), channels));
        if stride == 1 && channels == out {
            extractor.push(Layer::Residual { body, shortcut: vec![] });
        } else {
            extractor.extend(body);
        }
        channels = out;
    }
    let last = Conv { out: 576, kernel: 1, stride: 1, groups: 1 };
    extractor.extend(with_settings(normalised("features-12", last)));
    extractor.extend([Layer::HardSwish, Layer::GlobalAvgPool]);
    let head = vec![
        linear("classifier-0", 1024),
        Layer::HardSwish,
        Layer::Dropout { rate: 0.2 },
        linear("classifier-3", given.classes),
    ];
    Parts { initialisation: Initialisation::He, ..Parts::plain(extractor, head) }
}

impl Bottleneck {
    fn layers(&self, name: &str, channels: usize) -> Vec<Layer> {
        let &Self { kernel, wide, out, stride, .. } = self;
        let mut layers = Vec::new();
        let mut position = 0;
        let mut next = || {
            position += 1;
            format!("{name}-{}", position - 1)
        };
        if wide != channels {
            layers.extend(normalised(&next(), Conv { out: wide, kernel: 1, stride: 1, groups: 1 }));
            layers.push(self.activation.clone());
        }
        layers.extend(normalised(&next(), Conv { out: wide, kernel, stride, groups: wide }));
        layers.push(self.activation.clone());
        if self.excited {
            let name = next();
            let conv = |number: usize, out| conv(&format!("{name}-fc{number}"), out, 1, 1, 0);
            let body = vec![conv(1, squeezed(wide)), Layer::Relu, conv(2, wide), Layer::HardSigmoid];
            layers.push(Layer::SqueezeExcite { body });
        }
        layers.extend(normalised(&next(), Conv { out, kernel: 1, stride: 1, groups: 1 }));
        layers
    }
}

/// A quarter of the channels, rounded to a multiple of eight that is at least nine tenths of it.
fn squeezed(channels: usize) -> usize {
    let quarter = channels / 4;
    let near = ((quarter + 4) / 8 * 8).max(8);
    if near * 10 < quarter * 9 { near + 8 } else { near }
}

/// With the batch normalisation of `torchvision`'s `MobileNetV3`.
fn with_settings(layers: Vec<Layer>) -> Vec<Layer> {
    let with = |layer| match layer {
        Layer::BatchNorm { name } => Layer::BatchNormWith { name, epsilon: 1e-3, momentum: 0.01 },
        layer => layer,
    };
    layers.into_iter().map(with).collect()
}

/// A convolution without bias, padded so that a stride of 1 keeps height and width.
struct Conv {
    out: usize,
    kernel: usize,
    stride: usize,
    groups: usize,
}

/// The convolution `name-0` and its normalisation `name-1`.
fn normalised(name: &str, conv: Conv) -> Vec<Layer> {
    vec![named(format!("{name}-0"), conv), Layer::BatchNorm { name: format!("{name}-1") }]
}

fn named(name: String, Conv { out, kernel, stride, groups }: Conv) -> Layer {
    let (padding, bias) = (kernel / 2, false);
    if groups == 1 {
        Layer::Conv { name, out, kernel, stride, padding, bias }
    } else {
        Layer::GroupedConv { name, out, kernel, stride, padding, groups, bias }
    }
}

/// A block from few channels to many (if these are more), one depthwise convolution of them, and back to few.
fn inverted(name: &str, [channels, wide, out]: [usize; 3], stride: usize) -> Vec<Layer> {
    let mut layers = Vec::new();
    let mut position = 0;
    if wide > channels {
        layers.extend(normalised(&format!("{name}-0"), Conv { out: wide, kernel: 1, stride: 1, groups: 1 }));
        layers.push(Layer::Relu6);
        position += 1;
    }
    let depthwise = Conv { out: wide, kernel: 3, stride, groups: wide };
    layers.extend(normalised(&format!("{name}-{position}"), depthwise));
    layers.push(Layer::Relu6);
    let narrow = Conv { out, kernel: 1, stride: 1, groups: 1 };
    layers.push(named(format!("{name}-{}", position + 1), narrow));
    layers.push(Layer::BatchNorm { name: format!("{name}-{}", position + 2) });
    layers
}
