//! The tables that say what the samples are: which data set, and how a network sees it.

use std::fmt;

use serde::{Deserialize, Serialize};
use shared::data::{OnError, Partition, cifar, glyphs, text};
use shared::settings::Kind;
use shared::spec::LabelsAt;
use shared::{named, section};

section! {
    /// `[data]`
    pub struct DataTable {
        /// The data set, by name; glyphs are drawn, all others read from files
        pub set: DataSet = DataSet::Glyphs;
        /// Folder of its files, relative to this file
        pub path: Option<String> = None, in Kind::Text(4096), unset "the set's folder in FEDERATION_DATA";
        /// Of a sample of images, csv or safetensors
        pub shape: Option<Vec<u32>> = None, in Kind::Shape, unset "the set's";
        /// Number of classes of csv or safetensors
        pub classes: Option<u32> = None, in Kind::Whole(1, 65_536), unset "the set's";
        /// What labels of images or csv are called, in order
        pub class_names: Option<Vec<String>> = None, in Kind::Names, unset "numbers";
        /// The column of a csv table that holds the labels
        pub label: String = "label".to_owned(), in Kind::Text(200);
        /// At a sample that cannot be used: stop or skip
        pub on_error: OnError = OnError::Stop;
        /// Clients K: simulated, or devices expected to join (more may)
        pub clients: u32 = 10, in Kind::POSITIVE;
        /// How a simulation divides the training samples
        pub partition: Partition = Partition::Iid {};
        /// Training samples at most (own sets: evenly spaced)
        pub max_samples: Option<u32> = None, in Kind::POSITIVE, unset "all samples (glyphs: 6000)", was "limit";
        /// Which side has them: device (each its own), or server (it alone; then devices need none)
        pub labels: LabelsAt = LabelsAt::default();
        /// Labelled training samples of the server, equally many of each class
        pub labelled: Option<u32> = None, in Kind::POSITIVE, unset "none";
        /// None; mnist, fashion-mnist, cifar-10, cifar-100: that set's; channels: data.mean; whiten
        pub normalise: Normalise = Normalise::None;
        /// Means by channel, for normalise = "channels"
        pub mean: Option<Vec<f64>> = None, in Kind::Numbers, unset "none";
        /// Standard deviations by channel, for the same
        pub std: Option<Vec<f64>> = None, in Kind::Numbers, unset "none", was "deviation";
    }
}

named!(DataSet, Normalise);

/// The data sets that a configuration can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DataSet {
    /// Drawn from the run's seed: needs no files.
    Glyphs,
    /// Handwritten digits (`LeCun` et al. 1998), from IDX files.
    Mnist,
    /// Articles of clothing (Xiao et al. 2017), from IDX files.
    FashionMnist,
    /// Photographs in colour of ten kinds of things (Krizhevsky 2009), from the binary files.
    #[serde(rename = "cifar-10")]
    Cifar10,
    /// The same of a hundred kinds.
    #[serde(rename = "cifar-100")]
    Cifar100,
    /// The plays, whose roles are the clients (`McMahan` et al. 2017), from a text file.
    Shakespeare,
    /// Any images, from a folder per class.
    Images,
    /// Any features, from a table.
    Csv,
    /// Anything, from two tensors.
    Safetensors,
}

impl DataSet {
    /// Every data set.
    pub const ALL: [Self; 9] = [
        Self::Glyphs,
        Self::Mnist,
        Self::FashionMnist,
        Self::Cifar10,
        Self::Cifar100,
        Self::Shakespeare,
        Self::Images,
        Self::Csv,
        Self::Safetensors,
    ];

    /// Whether it is a set of the user's own, in one of the formats for that, and not a published one.
    #[must_use]
    pub fn is_own(self) -> bool {
        matches!(self, Self::Images | Self::Csv | Self::Safetensors)
    }

    /// Its name in the configuration, and of its folder under `FEDERATION_DATA`.
    #[must_use]
    pub fn name(self) -> &'static str {
        shared::settings::variants::<Self>()[self as usize]
    }

    /// The shape of one sample, and the number of classes: `[channels, height, width]` of images; of text, `[characters]`
    /// and how many different ones there are. `None` if the configuration must say them.
    #[must_use]
    pub fn known(self) -> Option<(&'static [usize], usize)> {
        match self {
            Self::Glyphs | Self::Mnist | Self::FashionMnist => Some((&[1, 28, 28], 10)),
            Self::Cifar10 => Some((&cifar::SHAPE, 10)),
            Self::Cifar100 => Some((&cifar::SHAPE, 100)),
            Self::Shakespeare => Some((&[text::WINDOW], text::VOCABULARY)),
            Self::Images | Self::Csv | Self::Safetensors => None,
        }
    }

    /// Training samples when no limit is set, where the set has a known number of them. Glyphs are drawn, so for them this
    /// is a choice: enough to learn from in a few minutes on two cores.
    #[must_use]
    pub fn training_samples(self) -> Option<usize> {
        match self {
            Self::Glyphs => Some(glyphs::TRAINING_SAMPLES),
            Self::Mnist | Self::FashionMnist => Some(60_000),
            Self::Cifar10 | Self::Cifar100 => Some(50_000),
            Self::Shakespeare | Self::Images | Self::Csv | Self::Safetensors => None,
        }
    }

    /// Whether its samples are text, which has no class.
    #[must_use]
    pub fn is_text(self) -> bool {
        self == Self::Shakespeare
    }

    /// The files that it is read from.
    #[must_use]
    pub fn files(self) -> &'static str {
        match self {
            Self::Glyphs => "none",
            Self::Mnist | Self::FashionMnist => "the IDX files",
            Self::Cifar10 => "data_batch_1.bin to data_batch_5.bin and test_batch.bin",
            Self::Cifar100 => "train.bin and test.bin",
            Self::Shakespeare => "the text file",
            Self::Images => "train/CLASS/ and test/CLASS/",
            Self::Csv => "train.csv and test.csv",
            Self::Safetensors => "train.safetensors and test.safetensors",
        }
    }
}

impl fmt::Display for DataSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How samples are normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Normalise {
    /// Not at all.
    None,
    /// By the statistics of MNIST.
    Mnist,
    /// By those of Fashion-MNIST.
    FashionMnist,
    /// By those of CIFAR-10.
    #[serde(rename = "cifar-10")]
    Cifar10,
    /// By those of CIFAR-100.
    #[serde(rename = "cifar-100")]
    Cifar100,
    /// By `data.mean` and `data.deviation`.
    Channels,
    /// Each sample by its own mean and deviation.
    Whiten,
}

impl Normalise {
    /// Its name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        shared::settings::variants::<Self>()[self as usize]
    }
}
