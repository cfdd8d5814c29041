//! The architectures that come with the crate. Adding one is one function and one line in [`BUILT_INS`], whose tests then
//! cover it.

use super::{Architecture, Layer};

/// An architecture known by name.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// The name in configurations.
    pub name: &'static str,
    /// One line on what it is.
    pub summary: &'static str,
    /// The shape of sample it is meant for; others may work.
    pub input: &'static [usize],
    build: fn(input: &[usize], classes: usize) -> Parts,
}

/// The layers of an architecture but for its name.
struct Parts {
    extractor: Vec<Layer>,
    projection: Vec<Layer>,
    head: Vec<Layer>,
}

impl BuiltIn {
    pub(super) fn build(&self, input: &[usize], classes: usize) -> Architecture {
        let Parts { extractor, projection, head } = (self.build)(input, classes);
        let (name, input) = (self.name.to_owned(), input.to_vec());
        Architecture { name, input, classes, extractor, projection, head }
    }
}

/// Every built-in architecture, ordered by name.
pub const BUILT_INS: &[BuiltIn] = &[
    BuiltIn {
        name: "char-lstm",
        summary: "the next character, by `McMahan` et al. 2017: two LSTMs of 256 units over 80 characters",
        input: &[80],
        build: char_lstm,
    },
    BuiltIn {
        name: "cnn-mnist",
        summary: "the CNN of `McMahan` et al. 2017 for MNIST: two 5x5 convolutions and 512 hidden units",
        input: &[1, 28, 28],
        build: cnn_mnist,
    },
    BuiltIn {
        name: "cnn-small",
        summary: "a small fast CNN for 28x28 images: 9 226 parameters",
        input: &[1, 28, 28],
        build: cnn_small,
    },
    BuiltIn {
        name: "lenet-5",
        summary: "LeNet-5 as in PFL-MoE (Guo et al. 2021): two 5x5 convolutions, 120 and 84 hidden units",
        input: &[3, 32, 32],
        build: lenet_5,
    },
    BuiltIn {
        name: "linear",
        summary: "softmax regression, the baseline",
        input: &[1, 28, 28],
        build: linear_model,
    },
    BuiltIn {
        name: "mlp-25m",
        summary: "two hidden layers of 4 620 units, 100 MB in f32: to measure the system with",
        input: &[1, 28, 28],
        build: mlp_25m,
    },
    BuiltIn {
        name: "mlp-2nn",
        summary: "the 2NN of `McMahan` et al. 2017: two hidden layers of 200 units",
        input: &[1, 28, 28],
        build: mlp_2nn,
    },
    BuiltIn {
        name: "moon-cnn",
        summary: "the network of MOON (Li et al. 2021): LeNet-5 with a projection to 256 values",
        input: &[3, 32, 32],
        build: moon_cnn,
    },
    BuiltIn {
        name: "resnet-18",
        summary: "ResNet-18 for small images (He et al. 2016), with group normalisation",
        input: &[3, 32, 32],
        build: resnet_18,
    },
    BuiltIn {
        name: "resnet-9",
        summary: "nine layers with two residual blocks, without normalisation: 6.6 million parameters",
        input: &[3, 32, 32],
        build: resnet_9,
    },
];

/// Softmax regression. The extractor only flattens, so personalising the head is personalising all of it.
fn linear_model(_input: &[usize], classes: usize) -> Parts {
    Parts { extractor: vec![Layer::Flatten], projection: vec![], head: vec![linear("fc", classes)] }
}

/// 2NN of `McMahan` et al., AISTATS 2017, section 3: 199 210 parameters for 784 inputs and ten classes.
fn mlp_2nn(_input: &[usize], classes: usize) -> Parts {
    let extractor = vec![Layer::Flatten, linear("fc1", 200), Layer::Relu, linear("fc2", 200), Layer::Relu];
    Parts { extractor, projection: vec![], head: vec![linear("fc3", classes)] }
}

/// A model whose 25 021 930 parameters take 100 MB.
fn mlp_25m(_input: &[usize], classes: usize) -> Parts {
    let extractor = vec![Layer::Flatten, linear("fc1", 4620), Layer::Relu, linear("fc2", 4620), Layer::Relu];
    Parts { extractor, projection: vec![], head: vec![linear("fc3", classes)] }
}

/// CNN of `McMahan` et al., AISTATS 2017, section 3, padded to keep 28x28: 1 663 370 parameters.
fn cnn_mnist(_input: &[usize], classes: usize) -> Parts {
    let extractor = vec![
        conv("conv1", 32, 5, 1, 2),
        Layer::Relu,
        pool(2),
        conv("conv2", 64, 5, 1, 2),
        Layer::Relu,
        pool(2),
        Layer::Flatten,
    ];
    let head = vec![linear("fc1", 512), Layer::Relu, linear("fc2", classes)];
    Parts { extractor, projection: vec![], head }
}

/// The two convolutions that LeNet-5 and the encoder of MOON share.
///
/// Images of less than 32 rows are padded by 2 as in `LeCun` et al. 1998, so 28x28 gives the same 400 features.
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
/// grey. The head is all fully connected layers, their `theta_C`.
fn lenet_5(input: &[usize], classes: usize) -> Parts {
    let extractor = lenet_convolutions(input);
    let head = vec![linear("fc1", 120), Layer::Relu, linear("fc2", 84), Layer::Relu, linear("fc3", classes)];
    Parts { extractor, projection: vec![], head }
}

/// The network of MOON (Li, He and Song, CVPR 2021, section 4.1): an encoder like LeNet-5, a projection of two layers to
/// 256 values, and the output layer on top of that. 92 626 parameters for 32x32 RGB.
fn moon_cnn(input: &[usize], classes: usize) -> Parts {
    let mut extractor = lenet_convolutions(input);
    extractor.extend([linear("fc1", 120), Layer::Relu, linear("fc2", 84), Layer::Relu]);
    let projection = vec![linear("fc1", 84), Layer::Relu, linear("fc2", 256)];
    Parts { extractor, projection, head: vec![linear("fc", classes)] }
}

/// Our own, for small devices: the first convolution halves the image, so that little is left to do at full resolution.
fn cnn_small(_input: &[usize], classes: usize) -> Parts {
    let extractor = vec![
        conv("conv1", 8, 5, 2, 2),
        Layer::Relu,
        conv("conv2", 16, 3, 1, 1),
        Layer::Relu,
        pool(2),
        Layer::Flatten,
    ];
    Parts { extractor, projection: vec![], head: vec![linear("fc1", classes)] }
}

/// The nine-layer residual network of `DAWNBench` (Page 2018) without bias or normalisation: 6 568 640 parameters for
/// 32x32 RGB.
fn resnet_9(_input: &[usize], classes: usize) -> Parts {
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
    let output = Layer::Linear { name: "fc".to_owned(), out: classes, bias: false };
    Parts { extractor, projection: vec![], head: vec![output] }
}

/// ResNet-18 (He et al., CVPR 2016) with the stem for small images, one 3x3 convolution, and group normalisation in 32
/// groups (Wu and He 2018), whose sense does not depend on whose data are in a batch (Hsieh et al., ICML 2020):
/// 11 173 962 parameters for RGB.
fn resnet_18(_input: &[usize], classes: usize) -> Parts {
    let norm = |name: String| Layer::GroupNorm { name, groups: 32 };
    let mut extractor = vec![plain_conv("conv1", 64, 3, 1), norm("norm1".to_owned()), Layer::Relu];
    for (stage, out) in [64, 128, 256, 512].into_iter().enumerate() {
        for block in 0..2 {
            let name = |layer: &str| format!("layer{}-{block}-{layer}", stage + 1);
            let halves = stage > 0 && block == 0;
            let stride = if halves { 2 } else { 1 };
            let body = vec![
                plain_conv(&name("conv1"), out, 3, stride),
                norm(name("norm1")),
                Layer::Relu,
                plain_conv(&name("conv2"), out, 3, 1),
                norm(name("norm2")),
            ];
            let shortcut = if halves {
                vec![plain_conv(&name("shortcut-conv"), out, 1, stride), norm(name("shortcut-norm"))]
            } else {
                vec![]
            };
            extractor.extend([Layer::Residual { body, shortcut }, Layer::Relu]);
        }
    }
    extractor.push(Layer::GlobalAvgPool);
    Parts { extractor, projection: vec![], head: vec![linear("fc", classes)] }
}

/// The character model of `McMahan` et al., AISTATS 2017, section 3: the next character after each of 80, embedded in 8
/// dimensions, by two LSTMs of 256 units. With `V` characters 796 672 + 265 `V` parameters.
fn char_lstm(_input: &[usize], classes: usize) -> Parts {
    let embedding = Layer::Embedding { name: "embedding".to_owned(), vocabulary: classes, dim: 8 };
    let lstm = |name: &str| Layer::Lstm { name: name.to_owned(), hidden: 256 };
    let extractor = vec![embedding, lstm("lstm1"), lstm("lstm2")];
    Parts { extractor, projection: vec![], head: vec![linear("fc", classes)] }
}

fn conv(name: &str, out: usize, kernel: usize, stride: usize, padding: usize) -> Layer {
    Layer::Conv { name: name.to_owned(), out, kernel, stride, padding, bias: true }
}

/// Without bias, padded so that a stride of 1 keeps height and width.
fn plain_conv(name: &str, out: usize, kernel: usize, stride: usize) -> Layer {
    Layer::Conv { name: name.to_owned(), out, kernel, stride, padding: kernel / 2, bias: false }
}

fn linear(name: &str, out: usize) -> Layer {
    Layer::Linear { name: name.to_owned(), out, bias: true }
}

fn pool(size: usize) -> Layer {
    Layer::MaxPool { size, stride: size }
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::architecture::ArchitectureError;

    #[test]
    fn parameter_counts_are_those_of_the_papers() {
        for (name, input, count) in [
            ("moon-cnn", [3, 32, 32], 92_626),
            ("resnet-9", [3, 32, 32], 6_568_640),
            ("resnet-18", [3, 32, 32], 11_173_962),
            ("mlp-2nn", [1, 28, 28], 199_210),
            ("mlp-25m", [1, 28, 28], 25_021_930),
            ("cnn-mnist", [1, 28, 28], 1_663_370),
            ("lenet-5", [1, 28, 28], 61_706),
            ("lenet-5", [3, 32, 32], 62_006),
            ("linear", [1, 28, 28], 7_850),
            ("cnn-small", [1, 28, 28], 9_226),
        ] {
            let architecture = Architecture::by_name(name, &input, 10).unwrap();
            assert_eq!(architecture.parameters(), Ok(count), "{name} on {input:?}");
            let params = architecture.initialise(|_| rand_chacha::ChaCha8Rng::from_seed([0; 32])).unwrap();
            assert_eq!(params.parameters(), count, "{name}");
        }
        for vocabulary in [2, 65, 90] {
            let text = Architecture::by_name("char-lstm", &[80], vocabulary).unwrap();
            assert_eq!(text.parameters(), Ok(796_672 + 265 * vocabulary));
            assert_eq!(text.predictions(), Ok(80));
        }
    }

    #[test]
    fn names_in_blocks_read_like_those_of_the_libraries() {
        let names = |name: &str| -> Vec<String> {
            let architecture = Architecture::by_name(name, &[3, 32, 32], 10).unwrap();
            architecture.parameter_specs().unwrap().into_iter().map(|spec| spec.name).collect()
        };
        assert!(names("resnet-18").contains(&"extractor.layer2-0-shortcut-conv.weight".to_owned()));
        let expected = ["conv1", "conv2", "block1-conv1", "block1-conv2", "conv3", "conv4", "block2-conv1"];
        for (found, expected) in names("resnet-9").iter().zip(expected) {
            assert_eq!(*found, format!("extractor.{expected}.weight"));
        }
    }

    #[test]
    fn the_registry_is_ordered_and_every_entry_works() {
        assert!(BUILT_INS.is_sorted_by(|a, b| a.name < b.name));
        for built_in in BUILT_INS {
            for classes in [2, 10, 62] {
                let architecture = Architecture::by_name(built_in.name, built_in.input, classes).unwrap();
                assert_eq!(architecture.name, built_in.name);
                assert!(architecture.multiply_adds().unwrap() > 0);
                for part in ["extractor", "head"] {
                    assert!(
                        architecture.parts().iter().any(|(name, layers)| *name == part && !layers.is_empty())
                    );
                }
                let json = serde_json::to_string(&architecture).unwrap();
                assert_eq!(serde_json::from_str::<Architecture>(&json).unwrap(), architecture);
                // Messages carry it in a form that does not describe itself.
                let bytes = postcard::to_stdvec(&architecture).unwrap();
                assert_eq!(postcard::from_bytes::<Architecture>(&bytes).unwrap(), architecture);
            }
            assert!(built_in.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
            assert!(!built_in.summary.is_empty());
        }
    }

    #[test]
    fn the_stored_form_is_readable() {
        let json = r#"{"name":"mine","input":[1,4,4],"classes":2,
            "extractor":[{"conv":{"name":"c","out":2,"kernel":3,"stride":1,"padding":1,"bias":false}},"relu",
                         {"max-pool":{"size":2,"stride":2}},"flatten"],
            "projection":[],"head":[{"linear":{"name":"out","out":2,"bias":true}}]}"#;
        let architecture: Architecture = serde_json::from_str(json).unwrap();
        assert_eq!(architecture.parameters(), Ok(18 + 18));
        let unknown = json.replace("\"bias\":false", "\"bias\":false,\"groups\":2");
        assert!(serde_json::from_str::<Architecture>(&unknown).unwrap_err().to_string().contains("groups"));
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones_and_a_bad_input_is_refused() {
        let error = Architecture::by_name("lenet", &[1, 28, 28], 10).unwrap_err();
        assert!(error.to_string().contains("lenet-5, linear"), "{error}");
        assert!(matches!(
            Architecture::by_name("lenet-5", &[784], 10),
            Err(ArchitectureError::Input { layer, .. }) if layer == "extractor.conv1"
        ));
        assert!(Architecture::by_name("mlp-2nn", &[1, 28, 28], 0).is_err());
    }
}
