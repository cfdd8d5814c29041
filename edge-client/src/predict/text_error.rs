//! What is in the way of asking what follows a text.

use thiserror::Error;

/// Why a text cannot be asked about.
#[derive(Debug, Error)]
pub enum TextError {
    /// The model reads no tokens.
    #[error(
        "the model does not say what follows a text: it takes samples of shape {} as a whole; give values",
        models::shape::spelled(shape)
    )]
    NotText {
        /// Shape of one sample in the model.
        shape: Vec<usize>,
    },
    /// The model reads tokens, and what they stand for is not known.
    #[error(
        "the model's file does not name the {vocabulary} tokens that it reads: give values, the numbers of the tokens"
    )]
    Unnamed {
        /// Number of tokens.
        vocabulary: usize,
    },
    /// There is nothing that something could follow.
    #[error("the text is empty: give the beginning of one")]
    Empty,
    /// A word has no number.
    #[error("the model does not know the word {word:?}")]
    UnknownWord {
        /// The word.
        word: String,
    },
    /// A value is not the number of a token.
    #[error("{value} is not the number of a token: these are the whole numbers from 0 to {}", vocabulary - 1)]
    NotAToken {
        /// The value.
        value: f32,
        /// Number of tokens.
        vocabulary: usize,
    },
}
