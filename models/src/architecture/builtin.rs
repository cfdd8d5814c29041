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
    build: fn(&[usize]) -> Parts,
}

/// Extractor and head without the last layer, which depends on the number of classes and is added for all alike.
struct Parts {
    extractor: Vec<Layer>,
    head: Vec<Layer>,
    /// The name of the last layer.
    output: &'static str,
}

impl BuiltIn {
    pub(super) fn build(&self, input: &[usize], classes: usize) -> Architecture {
        let Parts { extractor, mut head, output } = (self.build)(input);
        head.push(linear(output, classes));
        let (name, input) = (self.name.to_owned(), input.to_vec());
        Architecture { name, input, classes, extractor, projection: Vec::new(), head }
    }
}

/// Every built-in architecture, ordered by name.
pub const BUILT_INS: &[BuiltIn] = &[
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
];

/// Softmax regression. The extractor only flattens, so personalising the head is personalising all of it.
fn linear_model(_input: &[usize]) -> Parts {
    Parts { extractor: vec![Layer::Flatten], head: vec![], output: "fc" }
}

/// 2NN of `McMahan` et al., AISTATS 2017, section 3: 199 210 parameters for 784 inputs and ten classes.
fn mlp_2nn(_input: &[usize]) -> Parts {
    let extractor = vec![Layer::Flatten, linear("fc1", 200), Layer::Relu, linear("fc2", 200), Layer::Relu];
    Parts { extractor, head: vec![], output: "fc3" }
}

/// A model whose 25 021 930 parameters take 100 MB.
fn mlp_25m(_input: &[usize]) -> Parts {
    let extractor = vec![Layer::Flatten, linear("fc1", 4620), Layer::Relu, linear("fc2", 4620), Layer::Relu];
    Parts { extractor, head: vec![], output: "fc3" }
}

/// CNN of `McMahan` et al., AISTATS 2017, section 3, padded to keep 28x28: 1 663 370 parameters.
fn cnn_mnist(_input: &[usize]) -> Parts {
    let extractor = vec![
        conv("conv1", 32, 5, 1, 2),
        Layer::Relu,
        pool(2),
        conv("conv2", 64, 5, 1, 2),
        Layer::Relu,
        pool(2),
        Layer::Flatten,
    ];
    Parts { extractor, head: vec![linear("fc1", 512), Layer::Relu], output: "fc2" }
}

/// LeNet-5 in the variant of Guo et al., APWeb-WAIM 2021: 62 006 parameters for 32x32 RGB. The head is all fully
/// connected layers, their `theta_C`.
///
/// Images of less than 32 rows are padded by 2 as in `LeCun` et al. 1998, so 28x28 gives the same 400 features: 61 706
/// parameters in grey.
fn lenet_5(input: &[usize]) -> Parts {
    let padding = match input {
        &[_, height, _] if height < 32 => 2,
        _ => 0,
    };
    let extractor = vec![
        conv("conv1", 6, 5, 1, padding),
        Layer::Relu,
        pool(2),
        conv("conv2", 16, 5, 1, 0),
        Layer::Relu,
        pool(2),
        Layer::Flatten,
    ];
    let head = vec![linear("fc1", 120), Layer::Relu, linear("fc2", 84), Layer::Relu];
    Parts { extractor, head, output: "fc3" }
}

/// Our own, for small devices: the first convolution halves the image, so that little is left to do at full resolution.
fn cnn_small(_input: &[usize]) -> Parts {
    let extractor = vec![
        conv("conv1", 8, 5, 2, 2),
        Layer::Relu,
        conv("conv2", 16, 3, 1, 1),
        Layer::Relu,
        pool(2),
        Layer::Flatten,
    ];
    Parts { extractor, head: vec![], output: "fc1" }
}

fn conv(name: &str, out: usize, kernel: usize, stride: usize, padding: usize) -> Layer {
    Layer::Conv { name: name.to_owned(), out, kernel, stride, padding, bias: true }
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
