//! The two splits of a data set.

/// Training or test samples. The names of a data set's files follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Split {
    /// The training samples.
    Train,
    /// The test samples.
    Test,
}

impl Split {
    /// `train` or `test`: the name of its folder, or the stem of its file name, in formats without names of their own.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Test => "test",
        }
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Train => Self::Test,
            Self::Test => Self::Train,
        }
    }
}
