//! Built-in architectures. Adding one takes one function and one entry in [`BUILT_INS`], whose tests then cover it.

mod convolutional;
mod imagenet;
mod mobile;
mod perceptrons;
mod residual;
#[cfg(test)]
mod tests;
mod text;
mod transformers;

use serde::{Deserialize, Serialize};

use super::{Architecture, ArchitectureError, Initialisation, Layer};

/// A built-in architecture.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// The name in configurations.
    pub name: &'static str,
    /// A description in one line.
    pub summary: &'static str,
    /// The sample shape that it was designed for; others may work.
    pub input: &'static [usize],
    /// The usual number of classes; for text, the size of the vocabulary.
    pub classes: usize,
    /// The default normalisation of its convolutions; `None` if there is no choice.
    pub norm: Option<Norm>,
    build: fn(&Given<'_>) -> Parts,
}

/// The normalisation of the convolutions of an architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Norm {
    /// None; the convolutions have biases instead.
    None,
    /// [`Layer::BatchNorm`], as in the paper. Its statistics depend on the data of each client.
    Batch,
    /// [`Layer::GroupNorm`] in 32 groups (Wu and He 2018), which does not depend on the other samples of a batch and so works
    /// with clients whose data differ (Hsieh et al., ICML 2020).
    Group,
}

/// The choices that a built-in architecture offers; `None` for its default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// The normalisation of its convolutions.
    pub norm: Option<Norm>,
    /// The initial values of its weights.
    pub initialisation: Option<Initialisation>,
    /// How many tokens there are, where samples are texts with one class each. `None` where the next token is learned, and tokens
    /// are the classes; and for samples that are no texts.
    pub vocabulary: Option<usize>,
    /// The length of the representation that a projection of two linear layers makes of the features, in place of the model's own.
    /// Its hidden layer is as wide as the features (Li, He, Song 2021, section 4.1).
    pub projection: Option<usize>,
}

/// The arguments for building an architecture.
struct Given<'a> {
    input: &'a [usize],
    classes: usize,
    norm: Norm,
    vocabulary: Option<usize>,
}

impl Given<'_> {
    /// How many tokens there are.
    fn tokens(&self) -> usize {
        self.vocabulary.unwrap_or(self.classes)
    }

    /// What makes one prediction for a text, and not one at each position.
    fn whole_text(&self) -> Option<Layer> {
        self.vocabulary.map(|_| Layer::MeanPositions)
    }
}

/// The layers of an architecture, without its name, input and classes.
struct Parts {
    initialisation: Initialisation,
    extractor: Vec<Layer>,
    projection: Vec<Layer>,
    head: Vec<Layer>,
}

impl Parts {
    /// Without a projection, with the default initialisation.
    fn plain(extractor: Vec<Layer>, head: Vec<Layer>) -> Self {
        Self { initialisation: Initialisation::default(), extractor, projection: vec![], head }
    }
}

impl BuiltIn {
    /// Whether samples are tokens.
    #[must_use]
    pub fn reads_tokens(&self) -> bool {
        let built = Architecture::by_name(self.name, self.input, self.classes);
        built.is_ok_and(|architecture| architecture.vocabulary().is_some())
    }

    pub(super) fn build(
        &self,
        input: &[usize],
        classes: usize,
        variant: Variant,
    ) -> Result<Architecture, ArchitectureError> {
        if self.norm.is_none() && variant.norm.is_some() {
            let have = BUILT_INS.iter().filter(|built_in| built_in.norm.is_some());
            let have = have.map(|built_in| built_in.name).collect();
            return Err(ArchitectureError::NoNorm { name: self.name.to_owned(), have });
        }
        let norm = variant.norm.or(self.norm).unwrap_or(Norm::None);
        let Parts { initialisation, extractor, projection, head } =
            (self.build)(&Given { input, classes, norm, vocabulary: variant.vocabulary });
        let initialisation = variant.initialisation.unwrap_or(initialisation);
        let (name, input) = (self.name.to_owned(), input.to_vec());
        let built = Architecture {
            name,
            input,
            classes,
            initialisation,
            extractor,
            projection,
            head,
            ..Architecture::default()
        };
        if variant.vocabulary.is_some() && built.vocabulary().is_none() {
            let have =
                BUILT_INS.iter().filter(|built_in| built_in.reads_tokens()).map(|of| of.name).collect();
            return Err(ArchitectureError::NoVocabulary { name: self.name.to_owned(), have });
        }
        match variant.projection {
            Some(length) => projected(built, length),
            None => Ok(built),
        }
    }
}

/// The architecture with a projection to this length before its head.
fn projected(built: Architecture, length: usize) -> Result<Architecture, ArchitectureError> {
    let features = built.feature_shape()?;
    let &[width] = &features[..] else {
        return Err(ArchitectureError::NoProjection { name: built.name, features });
    };
    let linear = |name: &str, out| Layer::Linear { name: name.to_owned(), out, bias: true };
    Ok(Architecture { projection: vec![linear("fc1", width), Layer::Relu, linear("fc2", length)], ..built })
}

/// Every built-in architecture, ordered by name.
pub const BUILT_INS: &[BuiltIn] = &[
    BuiltIn {
        name: "char-lstm",
        summary: "the next character, by `McMahan` et al. 2017: two LSTMs of 256 units over 80 characters",
        input: &[80],
        classes: 80,
        norm: None,
        build: text::char_lstm,
    },
    BuiltIn {
        name: "cnn-cifar",
        summary: "the CNN of `McMahan` et al. 2017 for 24x24 crops of CIFAR-10, with local response normalisation",
        input: &[3, 24, 24],
        classes: 10,
        norm: None,
        build: convolutional::cnn_cifar,
    },
    BuiltIn {
        name: "cnn-mnist",
        summary: "the CNN of `McMahan` et al. 2017 for MNIST: two 5x5 convolutions and 512 hidden units",
        input: &[1, 28, 28],
        classes: 10,
        norm: None,
        build: convolutional::cnn_mnist,
    },
    BuiltIn {
        name: "cnn-small",
        summary: "a small fast CNN for 28x28 images: 9 226 parameters",
        input: &[1, 28, 28],
        classes: 10,
        norm: None,
        build: convolutional::cnn_small,
    },
    BuiltIn {
        name: "lenet-5",
        summary: "LeNet-5 as in PFL-MoE (Guo et al. 2021): two 5x5 convolutions, 120 and 84 hidden units",
        input: &[3, 32, 32],
        classes: 10,
        norm: None,
        build: convolutional::lenet_5,
    },
    BuiltIn {
        name: "linear",
        summary: "softmax regression, the baseline",
        input: &[1, 28, 28],
        classes: 10,
        norm: None,
        build: perceptrons::linear_model,
    },
    BuiltIn {
        name: "mlp-25m",
        summary: "two hidden layers of 4 620 units, 100 MB in f32: to measure the system with",
        input: &[1, 28, 28],
        classes: 10,
        norm: None,
        build: perceptrons::mlp_25m,
    },
    BuiltIn {
        name: "mlp-2nn",
        summary: "the 2NN of `McMahan` et al. 2017: two hidden layers of 200 units",
        input: &[1, 28, 28],
        classes: 10,
        norm: None,
        build: perceptrons::mlp_2nn,
    },
    BuiltIn {
        name: "mobilenet-v2",
        summary: "MobileNetV2 (Sandler et al. 2018), depthwise convolutions normalised over the batch",
        input: &[3, 96, 96],
        classes: 10,
        norm: None,
        build: mobile::mobilenet_v2,
    },
    BuiltIn {
        name: "mobilenet-v3-small",
        summary: "the small MobileNetV3 (Howard et al. 2019), with squeeze-and-excitation",
        input: &[3, 96, 96],
        classes: 10,
        norm: None,
        build: mobile::mobilenet_v3_small,
    },
    BuiltIn {
        name: "moon-cnn",
        summary: "the network of MOON (Li et al. 2021): LeNet-5 with a projection to 256 values",
        input: &[3, 32, 32],
        classes: 10,
        norm: None,
        build: convolutional::moon_cnn,
    },
    BuiltIn {
        name: "resnet-18",
        summary: "ResNet-18 for small images (He et al. 2016), normalised by groups unless said otherwise",
        input: &[3, 32, 32],
        classes: 10,
        norm: Some(Norm::Group),
        build: residual::resnet_18,
    },
    BuiltIn {
        name: "resnet-18-imagenet",
        summary: "ResNet-18 for large images (He et al. 2016), normalised over the batch",
        input: &[3, 224, 224],
        classes: 10,
        norm: None,
        build: imagenet::resnet_18,
    },
    BuiltIn {
        name: "resnet-50",
        summary: "ResNet-50 for small images (He et al. 2016), normalised by groups unless said otherwise",
        input: &[3, 32, 32],
        classes: 10,
        norm: Some(Norm::Group),
        build: residual::resnet_50,
    },
    BuiltIn {
        name: "resnet-50-imagenet",
        summary: "ResNet-50 for large images (He et al. 2016), normalised over the batch",
        input: &[3, 224, 224],
        classes: 10,
        norm: None,
        build: imagenet::resnet_50,
    },
    BuiltIn {
        name: "resnet-9",
        summary: "nine layers with two residual blocks, without normalisation: 6.6 million parameters",
        input: &[3, 32, 32],
        classes: 10,
        norm: None,
        build: residual::resnet_9,
    },
    BuiltIn {
        name: "text-transformer",
        summary: "the next token: a causal transformer of four blocks of 256 features, for any length",
        input: &[80],
        classes: 80,
        norm: None,
        build: transformers::text_transformer,
    },
    BuiltIn {
        name: "vgg-16",
        summary: "VGG-16 for small images (Simonyan and Zisserman 2015), configuration D without normalisation",
        input: &[3, 32, 32],
        classes: 10,
        norm: None,
        build: convolutional::vgg_16,
    },
    BuiltIn {
        name: "vgg-16-imagenet",
        summary: "VGG-16 for large images, with dropout (Simonyan and Zisserman 2015)",
        input: &[3, 224, 224],
        classes: 10,
        norm: None,
        build: imagenet::vgg_16,
    },
    BuiltIn {
        name: "vit-tiny",
        summary: "the tiny vision transformer of Touvron et al. 2021, for patches of 16x16 pixels",
        input: &[3, 64, 64],
        classes: 10,
        norm: None,
        build: transformers::vit_tiny,
    },
    BuiltIn {
        name: "word-lstm",
        summary: "the next word, by `McMahan` et al. 2017: an LSTM of 256 units over ten words",
        input: &[10],
        classes: 10_000,
        norm: None,
        build: text::word_lstm,
    },
];

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
    Layer::MaxPool { size, stride: size, partial: false }
}
