//! Errors of tables.

use models::shape::spelled;
use thiserror::Error;

use crate::data::Lacks;
use crate::data::error::FormatError;

/// Why a table, or a row of it, cannot be read.
#[derive(Debug, Error)]
pub(super) enum CsvError {
    #[error("cannot be read as CSV: {reason}")]
    Malformed { reason: String },
    #[error("{found} columns are named `{column}`; there are {columns}; one of them is to hold the labels")]
    LabelColumn { column: String, found: usize, columns: String },
    #[error(
        "has the feature `{found}` where train.csv has `{expected}`: put the columns of both in one order, since a model knows them by \
         their places"
    )]
    ColumnOrder { found: String, expected: String },
    #[error(
        "{outputs} numbers are to be learned, and their columns have no names: give them (data.targets in a configuration)"
    )]
    NoNames { outputs: usize },
    #[error("{found} columns are named `{column}`; there are {columns}; one of them is to hold the texts")]
    TextColumn { column: String, found: usize, columns: String },
    #[error("{found} columns are named `{column}`, which holds a feature of the model; there are {columns}")]
    FeatureColumn { column: String, found: usize, columns: String },
    #[error("column `{column}` cannot hold both a feature and what is learned")]
    FeatureIsLabel { column: String },
    #[error(
        "column `{column}` is no feature of the model: take it away, or name all features (data.features in a configuration)"
    )]
    UnknownColumn { column: String },
    #[error("is no text in UTF-8")]
    NotUtf8,
    #[error("column `{column}` cannot hold both the texts and what is learned of them")]
    TextIsLabel { column: String },
    #[error("texts are samples of one axis, as in the shape 256 for 256 bytes, and these are to have {}", spelled(.shape))]
    TextShape { shape: Vec<usize> },
    #[error("{columns} columns of features do not make samples of shape {}", spelled(.shape))]
    Columns { columns: usize, shape: Vec<usize> },
    #[error("has {found} fields where the header has {columns}")]
    Fields { found: usize, columns: usize },
    #[error(
        "a quotation mark is not closed, and hides what follows: close it in the same line, or write it twice if it belongs to \
         the text"
    )]
    OpenQuote,
    #[error("has no label in column `{column}`")]
    NoLabel { column: String },
    #[error(
        "column `{column}` holds {found:?}, which is no finite number; a column of texts is named by data.text"
    )]
    NotNumber { column: String, found: String },
}

impl FormatError for CsvError {
    fn lacks_labels(&self) -> bool {
        matches!(self, Self::LabelColumn { found: 0, .. })
    }

    fn lacks(&self) -> Option<Lacks> {
        matches!(self, Self::LabelColumn { .. }).then_some(Lacks::LabelColumn)
    }
}
