//! The halves of a data set.

/// Which half of a data set. The names of its files follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// What is trained on.
    Train,
    /// What is evaluated on.
    Test,
}

impl Split {
    /// `train` or `test`: the name of its folder, or of its file but for the ending, in the formats that have no names of
    /// their own.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Test => "test",
        }
    }
}
