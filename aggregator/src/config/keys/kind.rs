//! What keys accept, and how that is said.

use std::ops::Bound::{self, Excluded, Included, Unbounded};

use models::BUILT_INS;
use shared::algorithm::registry;

use super::{FINITE, MOST_NUMBERS};

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
    /// A list of 1 to 1024 different texts of 1 to 200 characters.
    Names,
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
            Self::Numbers => format!("a list of 1 to {MOST_NUMBERS} finite numbers"),
            Self::Shape => "a list of 1 to 8 whole numbers from 1 to 65536, as in [3, 32, 32]".to_owned(),
            Self::Names => {
                format!("a list of 1 to {MOST_NUMBERS} different texts of 1 to 200 characters")
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
            Self::Algorithm => {
                format!("one table, [algorithm.NAME], with NAME one of {}", registry::names().join(", "))
            }
        }
    }
}

/// The names of the built-in models.
pub(in crate::config) fn model_names() -> Vec<&'static str> {
    BUILT_INS.iter().map(|built_in| built_in.name).collect()
}

fn range(low: Bound<f64>, high: Bound<f64>) -> String {
    let low = match low {
        Included(low) => format!("of at least {low}"),
        Excluded(low) => format!("greater than {low}"),
        Unbounded => "of any size".to_owned(),
    };
    match high {
        FINITE | Unbounded => low,
        Included(high) => format!("{low} and at most {high}"),
        Excluded(high) => format!("{low} and less than {high}"),
    }
}
