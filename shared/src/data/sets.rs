//! Data sets that a configuration can name: the facts about each, stated once.

use std::fmt;

use serde::{Serialize, Serializer};

use super::cifar::{self, Cifar};
use super::format::Format;
use super::idx::Idx;
use super::text::{self, Text};
use super::{Normalisation, glyphs};

/// A data set by the name that a configuration gives it. [`DATA_SETS`](super::DATA_SETS) has all of them.
#[derive(Debug)]
pub struct DataSet {
    /// Its name in the configuration, and of its folder under `FEDERATION_DATA`.
    pub name: &'static str,
    /// What its files are; `None` for a set that is drawn from the run's seed.
    pub format: Option<Format>,
    /// The files of both splits, for messages.
    pub files: &'static str,
    /// Labels of one sample: 1, or of text one for each character; `None` if the files say how many.
    pub labels_each: Option<usize>,
    /// What is known of the samples before the files are read.
    pub samples: SetSamples,
    /// Training samples when no limit is set, if their number is known.
    pub training_samples: Option<usize>,
    /// Mean and standard deviation of the training images by channel, as published.
    pub moments: Option<(&'static [f32], &'static [f32])>,
}

/// What is known of a data set's samples.
#[derive(Debug)]
pub enum SetSamples {
    /// Those of a published set are always the same.
    Published {
        /// `[channels, height, width]` of an image, `[characters]` of text.
        shape: &'static [usize],
        /// Classes of the labels; of text, how many different characters there are.
        classes: usize,
    },
    /// Those of the user's own are described by the configuration: their shape, and their classes in one of these ways.
    Own {
        /// By `data.class-names`.
        by_names: bool,
        /// By the number `data.classes`.
        by_number: bool,
    },
}

/// Handwritten digits (`LeCun` et al. 1998).
pub const MNIST: DataSet = DataSet {
    name: "mnist",
    format: Some(&Idx),
    files: "the IDX files",
    labels_each: Some(1),
    samples: SetSamples::Published { shape: &[1, 28, 28], classes: 10 },
    training_samples: Some(60_000),
    moments: Some((&[0.1307], &[0.3081])),
};

/// Articles of clothing (Xiao et al. 2017), in the form of MNIST.
pub const FASHION_MNIST: DataSet =
    DataSet { name: "fashion-mnist", moments: Some((&[0.2860], &[0.3530])), ..MNIST };

/// Ten symbols in the form of MNIST, drawn: needs no files. The number of training samples is a choice: enough to learn
/// from in a few minutes on two cores.
pub const GLYPHS: DataSet = DataSet {
    name: "glyphs",
    format: None,
    files: "none",
    training_samples: Some(glyphs::TRAINING_SAMPLES),
    moments: None,
    ..MNIST
};

/// Photographs in colour of ten kinds of things (Krizhevsky 2009).
pub const CIFAR_10: DataSet = DataSet {
    name: "cifar-10",
    format: Some(&Cifar::TEN),
    files: "data_batch_1.bin to data_batch_5.bin and test_batch.bin",
    labels_each: Some(1),
    samples: SetSamples::Published { shape: &cifar::SHAPE, classes: 10 },
    training_samples: Some(50_000),
    moments: Some((&[0.4914, 0.4822, 0.4465], &[0.2470, 0.2435, 0.2616])),
};

/// The same of a hundred kinds.
pub const CIFAR_100: DataSet = DataSet {
    name: "cifar-100",
    format: Some(&Cifar::HUNDRED),
    files: "train.bin and test.bin",
    samples: SetSamples::Published { shape: &cifar::SHAPE, classes: 100 },
    moments: Some((&[0.5071, 0.4865, 0.4409], &[0.2673, 0.2564, 0.2762])),
    ..CIFAR_10
};

/// The plays, whose roles are the clients (`McMahan` et al. 2017).
pub const SHAKESPEARE: DataSet = DataSet {
    name: "shakespeare",
    format: Some(&Text),
    files: "the text file",
    labels_each: Some(text::WINDOW),
    samples: SetSamples::Published { shape: &[text::WINDOW], classes: text::VOCABULARY },
    training_samples: None,
    moments: None,
};

/// Grey images of the user's own in IDX files.
pub const IDX: DataSet = DataSet {
    name: "idx",
    samples: SetSamples::Own { by_names: true, by_number: true },
    training_samples: None,
    moments: None,
    ..MNIST
};

/// Text of the user's own, read like the plays.
pub const TEXT: DataSet = DataSet { name: "text", ..SHAKESPEARE };

/// What the trainers of devices read, which is known to them alone.
pub const TRAINER: DataSet = DataSet {
    name: "trainer",
    format: None,
    files: "none",
    labels_each: None,
    samples: SetSamples::Published { shape: &[], classes: 0 },
    training_samples: None,
    moments: None,
};

impl DataSet {
    /// Whether its samples are read by programs of their owners, and not here.
    #[must_use]
    pub fn is_of_trainers(&self) -> bool {
        *self == TRAINER
    }

    /// Whether it is a set of the user's own, and not a published one.
    #[must_use]
    pub fn is_own(&self) -> bool {
        matches!(self.samples, SetSamples::Own { .. })
    }

    /// Whether its samples are text, which has no class.
    #[must_use]
    pub fn is_text(&self) -> bool {
        self.labels_each.is_some_and(|labels| labels > 1)
    }

    /// By the published statistics of its training images.
    #[must_use]
    pub fn normalisation(&self) -> Option<Normalisation> {
        let (mean, deviation) = self.moments?;
        Some(Normalisation::Channels { mean: mean.to_vec(), deviation: deviation.to_vec() })
    }
}

impl PartialEq for DataSet {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Display for DataSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Serialize for DataSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}
