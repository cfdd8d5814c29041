//! Networks for images of about 224x224 pixels.
//!
//! Layers are called as in `torchvision`, with `-` for `.`: `extractor.layer2-0-downsample-0.weight` is its
//! `layer2.0.downsample.0.weight`, and `head.fc.bias` its `fc.bias`. Order and shapes of all tensors are the same.

use super::{Given, Parts, conv, linear, pool};
use crate::architecture::{Initialisation, Layer};

/// ResNet-18 (He et al., CVPR 2016): 11 689 512 parameters for RGB and a thousand classes.
pub(super) fn resnet_18(given: &Given<'_>) -> Parts {
    resnet(given, [2, 2, 2, 2], 1)
}

/// ResNet-50 (He et al., CVPR 2016), whose 3x3 convolutions have the strides: 25 557 032 parameters for RGB and a thousand classes.
pub(super) fn resnet_50(given: &Given<'_>) -> Parts {
    resnet(given, [3, 4, 6, 3], 4)
}

/// A stem that quarters the image, and four stages of `blocks` blocks, whose output has `expansion` times their width: blocks of two
/// convolutions, or bottlenecks of three if that is more than 1.
fn resnet(given: &Given<'_>, blocks: [usize; 4], expansion: usize) -> Parts {
    let mut extractor = normalised(["conv1", "bn1"].map(str::to_owned), 64, 7, 2);
    // Of rectified values, so that zeros around them are no maxima.
    extractor.extend([
        Layer::Relu,
        Layer::ZeroPad { pixels: 1 },
        Layer::MaxPool { size: 3, stride: 2, partial: false },
    ]);
    let mut channels = 64;
    for (stage, count) in blocks.into_iter().enumerate() {
        let width = 64 << stage;
        for number in 0..count {
            let stride = if stage > 0 && number == 0 { 2 } else { 1 };
            let name = |kind: &str| format!("layer{}-{number}-{kind}", stage + 1);
            let conv = |index: usize, out, kernel, stride| {
                normalised([name(&format!("conv{index}")), name(&format!("bn{index}"))], out, kernel, stride)
            };
            let rectifier = || vec![Layer::Relu];
            let body = if expansion == 1 {
                [conv(1, width, 3, stride), rectifier(), conv(2, width, 3, 1)].concat()
            } else {
                let middle = [rectifier(), conv(2, width, 3, stride), rectifier()].concat();
                [conv(1, width, 1, 1), middle, conv(3, expansion * width, 1, 1)].concat()
            };
            let changes = stride > 1 || channels != expansion * width;
            channels = expansion * width;
            let shortcut = if changes {
                normalised(["downsample-0", "downsample-1"].map(name), channels, 1, stride)
            } else {
                vec![]
            };
            extractor.extend([Layer::Residual { body, shortcut }, Layer::Relu]);
        }
    }
    extractor.push(Layer::GlobalAvgPool);
    Parts { initialisation: Initialisation::He, ..Parts::plain(extractor, vec![linear("fc", given.classes)]) }
}

/// A convolution without bias, padded so that a stride of 1 keeps height and width, and its normalisation.
fn normalised([name, norm]: [String; 2], out: usize, kernel: usize, stride: usize) -> Vec<Layer> {
    let conv = Layer::Conv { name, out, kernel, stride, padding: kernel / 2, bias: false };
    vec![conv, Layer::BatchNorm { name: norm }]
}

/// VGG-16 with its dropout (Simonyan and Zisserman, ICLR 2015, configuration D): 138 357 544 parameters for 3x224x224 and a thousand
/// classes. Other images have other features before the first linear layer.
pub(super) fn vgg_16(given: &Given<'_>) -> Parts {
    let mut extractor = vec![];
    // The number of a layer in torchvision, which counts all of them.
    let mut number = 0;
    for (out, convolutions) in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)] {
        for _ in 0..convolutions {
            extractor.extend([conv(&format!("features-{number}"), out, 3, 1, 1), Layer::Relu]);
            number += 2;
        }
        extractor.push(pool(2));
        number += 1;
    }
    extractor.push(Layer::Flatten);
    let dropout = || Layer::Dropout { rate: 0.5 };
    let head = vec![
        linear("classifier-0", 4096),
        Layer::Relu,
        dropout(),
        linear("classifier-3", 4096),
        Layer::Relu,
        dropout(),
        linear("classifier-6", given.classes),
    ];
    Parts { initialisation: Initialisation::He, ..Parts::plain(extractor, head) }
}
