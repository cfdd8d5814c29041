//! Residual networks.

use super::{Given, Norm, Parts, linear, plain_conv, pool};
use crate::architecture::Layer;

/// The nine-layer residual network of `DAWNBench` (Page 2018) without bias or normalisation: 6 568 640 parameters for
/// 32x32 RGB.
pub(super) fn resnet_9(given: &Given<'_>) -> Parts {
    let conv = |name: &str, out| [plain_conv(name, out, 3, 1), Layer::Relu];
    let block = |name: &str, out| Layer::Residual {
        body: [conv(&format!("{name}-conv1"), out), conv(&format!("{name}-conv2"), out)].concat(),
        shortcut: vec![],
    };
    let mut extractor = vec![];
    extractor.extend(conv("conv1", 64));
    extractor.extend(conv("conv2", 128));
    extractor.extend([pool(2), block("block1", 128)]);
    extractor.extend(conv("conv3", 256));
    extractor.push(pool(2));
    extractor.extend(conv("conv4", 512));
    extractor.extend([pool(2), block("block2", 512), pool(4), Layer::Flatten]);
    let output = Layer::Linear { name: "fc".to_owned(), out: given.classes, bias: false };
    Parts::plain(extractor, vec![output])
}

/// ResNet-18 (He et al., CVPR 2016) with the stem for small images, one 3x3 convolution: 11 173 962 parameters for RGB with
/// normalisation, 11 169 162 without.
pub(super) fn resnet_18(given: &Given<'_>) -> Parts {
    resnet(given, [2, 2, 2, 2], 1, |layers, block| {
        [
            layers.conv(block, "1", block.width, 3, block.stride),
            vec![Layer::Relu],
            layers.conv(block, "2", block.width, 3, 1),
        ]
        .concat()
    })
}

/// ResNet-50 (He et al., CVPR 2016) with the stem for small images; the 3x3 convolution of a block has its stride, as in
/// `PyTorch`'s library. 23 520 842 parameters for RGB with normalisation, 23 494 282 without.
pub(super) fn resnet_50(given: &Given<'_>) -> Parts {
    resnet(given, [3, 4, 6, 3], 4, |layers, block| {
        [
            layers.conv(block, "1", block.width, 1, 1),
            vec![Layer::Relu],
            layers.conv(block, "2", block.width, 3, block.stride),
            vec![Layer::Relu],
            layers.conv(block, "3", 4 * block.width, 1, 1),
        ]
        .concat()
    })
}

/// A residual block.
struct Block {
    /// The prefix of the names of its layers.
    name: String,
    /// Channels of its inner convolutions.
    width: usize,
    /// How often it halves the image.
    stride: usize,
}

/// Convolutions followed by a normalisation.
struct Layers {
    norm: Norm,
}

impl Layers {
    fn conv(&self, block: &Block, number: &str, out: usize, kernel: usize, stride: usize) -> Vec<Layer> {
        let name = |kind: &str| format!("{}{kind}{number}", block.name);
        self.named([name("conv"), name("norm")], out, kernel, stride)
    }

    /// A convolution and its normalisation. Without normalisation, the convolution has a bias.
    fn named(&self, [conv, norm]: [String; 2], out: usize, kernel: usize, stride: usize) -> Vec<Layer> {
        let bias = self.norm == Norm::None;
        let conv = Layer::Conv { name: conv, out, kernel, stride, padding: kernel / 2, bias };
        match self.norm {
            Norm::None => vec![conv],
            Norm::Batch => vec![conv, Layer::BatchNorm { name: norm }],
            Norm::Group => vec![conv, Layer::GroupNorm { name: norm, groups: GROUPS }],
        }
    }
}

/// As in Wu and He 2018.
const GROUPS: usize = 32;

/// A stem and four stages of `blocks` residual blocks, whose output has `expansion` times their width.
fn resnet(
    given: &Given<'_>,
    blocks: [usize; 4],
    expansion: usize,
    body: impl Fn(&Layers, &Block) -> Vec<Layer>,
) -> Parts {
    let layers = Layers { norm: given.norm };
    let mut extractor = layers.named(["conv1", "norm1"].map(str::to_owned), 64, 3, 1);
    extractor.push(Layer::Relu);
    let mut channels = 64;
    for (stage, count) in blocks.into_iter().enumerate() {
        let width = 64 << stage;
        for number in 0..count {
            let stride = if stage > 0 && number == 0 { 2 } else { 1 };
            let block = Block { name: format!("layer{}-{number}-", stage + 1), width, stride };
            let changes = stride > 1 || channels != expansion * width;
            channels = expansion * width;
            let shortcut = if changes {
                let names = ["shortcut-conv", "shortcut-norm"].map(|kind| format!("{}{kind}", block.name));
                layers.named(names, channels, 1, stride)
            } else {
                vec![]
            };
            extractor.extend([Layer::Residual { body: body(&layers, &block), shortcut }, Layer::Relu]);
        }
    }
    extractor.push(Layer::GlobalAvgPool);
    Parts::plain(extractor, vec![linear("fc", given.classes)])
}
