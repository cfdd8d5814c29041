//! What keys accept, and how that is said.

use std::ops::Bound::{self, Excluded, Included, Unbounded};

use models::BUILT_INS;
use models::architecture::MAX_TENSORS;

/// The longest list of numbers or names.
pub const MAX_LIST_LENGTH: usize = 1024;

const MAX_COUNT: i64 = u32::MAX as i64;
/// A year: longer than any federation waits, and far below what a `Duration` or a deadline overflows at.
const MAX_SECONDS: f64 = 31_536_000.0;
const MAX_NUMBER: f64 = 1e30;

/// What a key accepts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A text of 1 to this many characters, without control characters.
    Text(usize),
    /// Such a text that can name a folder: without `/` and `\\`, and not beginning with a dot.
    FolderName(usize),
    /// A whole number in this closed range.
    Whole(i64, i64),
    /// A number, whole or not, in this range.
    Number(Bound<f64>, Bound<f64>),
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// A list of 1 to 1024 finite numbers.
    Numbers,
    /// A list of 1 to 8 whole numbers above 0.
    Shape,
    /// A list of 1 to 1024 different texts of 1 to 200 characters, none of them control characters.
    Names,
    /// A list of tensors of a network of another framework.
    Tensors,
    /// The name of a built-in model.
    Model,
    /// A network as layers.
    Network,
    /// One of these texts, or a list of different ones of them.
    SomeOf(&'static [&'static str]),
    /// True or false.
    Flag,
    /// A table without keys.
    Empty,
    /// One table by an algorithm's name, whose keys are the algorithm's.
    Algorithm,
}

impl Kind {
    /// A count, 0 included.
    pub const COUNT: Self = Self::Whole(0, MAX_COUNT);
    /// A count of at least one.
    pub const POSITIVE: Self = Self::Whole(1, MAX_COUNT);
    /// A seed.
    pub const SEED: Self = Self::Whole(0, i64::MAX);
    /// Seconds, 0 included.
    pub const SECONDS: Self = Self::Number(Included(0.0), Included(MAX_SECONDS));
    /// Seconds, more than 0.
    pub const POSITIVE_SECONDS: Self = Self::Number(Excluded(0.0), Included(MAX_SECONDS));
    /// A finite number above 0, such as a learning rate.
    pub const RATE: Self = Self::Number(Excluded(0.0), Included(MAX_NUMBER));
    /// A finite number that is not negative.
    pub const NOT_NEGATIVE: Self = Self::Number(Included(0.0), Included(MAX_NUMBER));
    /// Any finite number.
    pub const FINITE: Self = Self::Number(Included(-MAX_NUMBER), Included(MAX_NUMBER));
    /// A share of a whole, which leaves something.
    pub const SHARE: Self = Self::Number(Included(0.0), Excluded(1.0));
    /// A probability.
    pub const PROBABILITY: Self = Self::Number(Included(0.0), Included(1.0));

    /// Whether this is a text of at most `limit` characters that [`Kind::FolderName`] accepts.
    #[must_use]
    pub fn is_folder_name(text: &str, limit: usize) -> bool {
        Self::is_text(text, limit) && !text.contains(['/', '\\']) && !text.starts_with('.')
    }

    /// Whether this is a text of at most `limit` characters that [`Kind::Text`] accepts.
    #[must_use]
    pub fn is_text(text: &str, limit: usize) -> bool {
        (1..=limit).contains(&text.chars().count()) && !text.contains(char::is_control)
    }

    /// What is accepted, in words.
    #[must_use]
    pub fn accepts(&self) -> String {
        match *self {
            Self::Text(limit) => {
                format!("a text of 1 to {limit} characters, none of them control characters")
            }
            Self::FolderName(limit) => {
                format!(
                    "a text of 1 to {limit} characters without control characters, / or \\, not beginning with a dot"
                )
            }
            Self::Whole(low, high) => format!("a whole number, at least {low} and at most {high}"),
            Self::Number(low, high) => format!("a number {}", range(low, high)),
            Self::OneOf(names) => names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", "),
            Self::Numbers => format!("a list of 1 to {MAX_LIST_LENGTH} finite numbers"),
            Self::Shape => {
                "1 to 8 whole numbers from 1 to 65536 with an x between them, as in \"3x32x32\"".to_owned()
            }
            Self::Names => {
                format!(
                    "a list of 1 to {MAX_LIST_LENGTH} different texts of 1 to 200 characters, none of them control characters"
                )
            }
            Self::Tensors => {
                format!(
                    "a list of 1 to {MAX_TENSORS} names with their shapes, as in \"conv1.weight: 64x3x7x7\""
                )
            }
            Self::Model => format!("one of {}", model_names().join(", ")),
            Self::Network => {
                "a list of layers, or a table with such lists: extractor, projection and head".to_owned()
            }
            Self::SomeOf(names) => {
                format!("{}, or a list of different ones", Self::OneOf(names).accepts())
            }
            Self::Flag => "true or false".to_owned(),
            Self::Empty => "an empty table, {}".to_owned(),
            Self::Algorithm => "one table, [algorithm.NAME]".to_owned(),
        }
    }
}

/// The names of the built-in models.
#[must_use]
pub fn model_names() -> Vec<&'static str> {
    BUILT_INS.iter().map(|built_in| built_in.name).collect()
}

fn range(low: Bound<f64>, high: Bound<f64>) -> String {
    let low = match low {
        Included(low) => format!("of at least {low}"),
        Excluded(low) => format!("greater than {low}"),
        Unbounded => "of any size".to_owned(),
    };
    match high {
        Included(MAX_NUMBER) | Unbounded => low,
        Included(high) => format!("{low} and at most {high}"),
        Excluded(high) => format!("{low} and less than {high}"),
    }
}
