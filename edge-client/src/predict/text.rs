//! A text as a sample, and the token that follows one.
//!
//! A model of texts with a class each is asked about a text as a whole.
//!
//! A network of tokens predicts at each position from the tokens up to it: embeddings, recurrent layers, linear ones and causal
//! attention look at no later position. A text that is shorter than the network's window is therefore filled up behind its end, and
//! the answer is the one at its last token; of a longer text the last window counts. A network that looks ahead is not asked.

use models::Batch;
use shared::data::{DataError, Dataset, byte_tokens, text};
use shared::prediction::Row;
use shared::spec::DataSpec;

use super::{PredictError, Predictor, TextError};

impl Predictor {
    /// The sample that a text is; `None` if the model reads no texts as a whole.
    ///
    /// # Errors
    /// [`DataError`] if the model takes samples that no text is.
    #[must_use]
    pub fn text_sample(&self, text: &str) -> Option<Result<Dataset, DataError>> {
        let is_read =
            |samples: &&DataSpec| samples.text.is_some() && samples.shape == self.architecture().input;
        let samples = self.samples().filter(is_read)?;
        let &[length] = &samples.shape[..] else { return None };
        Some(byte_tokens::sample(text, length))
    }

    /// Whether the model says what follows a text; one that reads tokens may as well tell texts apart.
    #[must_use]
    pub fn continues_text(&self) -> bool {
        self.vocabulary().is_ok()
    }

    /// What its tokens or classes are called, none of them if that is not known. The tokens of a model without names are the
    /// characters of a text if they are as many.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let named = self.class_names();
        let characters = named.is_empty()
            && self.continues_text()
            && self.architecture().vocabulary() == Some(text::VOCABULARY);
        if characters { text::token_names() } else { named }
    }

    /// The tokens of a text: its characters, or for a model that names its tokens its words, with spaces between them.
    ///
    /// # Errors
    /// [`TextError`] if the model reads no text, or not this one.
    pub fn tokens(&self, written: &str) -> Result<Vec<u32>, TextError> {
        let vocabulary = self.vocabulary()?;
        let names = self.class_names();
        if names.is_empty() && vocabulary == text::VOCABULARY {
            return Ok(written.chars().map(|character| text::token(character).into()).collect());
        }
        if names.len() != vocabulary {
            return Err(TextError::Unnamed { vocabulary });
        }
        let number = |word: &str| {
            let found = names.iter().position(|name| name == word);
            found.map(|number| number as u32).ok_or_else(|| TextError::UnknownWord { word: word.to_owned() })
        };
        written.split_whitespace().map(number).collect()
    }

    /// The tokens with these numbers.
    ///
    /// # Errors
    /// [`TextError`] if the model reads no tokens, or has none of such a number.
    pub fn tokens_of(&self, values: &[f32]) -> Result<Vec<u32>, TextError> {
        let vocabulary = self.vocabulary()?;
        let number = |&value: &f32| {
            let whole = value.fract() == 0.0 && (0.0..vocabulary as f32).contains(&value);
            whole.then_some(value as u32).ok_or(TextError::NotAToken { value, vocabulary })
        };
        values.iter().map(number).collect()
    }

    /// The prediction of what follows these tokens.
    ///
    /// # Errors
    /// [`PredictError::Text`] without tokens or with a model that reads none, otherwise as [`Predictor::predict`].
    pub fn follow(&mut self, tokens: &[u32]) -> Result<Row, PredictError> {
        self.vocabulary()?;
        let input = self.architecture().input.clone();
        let window: usize = input.iter().product();
        let tokens = &tokens[tokens.len().saturating_sub(window)..];
        let last = tokens.len().checked_sub(1).ok_or(TextError::Empty)?;
        let mut x: Vec<f32> = tokens.iter().map(|&token| token as f32).collect();
        x.resize(window, 0.0);
        let batch = Batch::unlabelled(x, [&[1], &input[..]].concat())?;
        let (mut predictions, gates) = self.answerer.answer(&batch, &[0])?;
        let prediction = predictions.swap_remove(last);
        super::row(0, prediction, None, gates.map(|gates| gates[last]))
    }

    /// The number of tokens, if the model predicts the next one after each.
    fn vocabulary(&self) -> Result<usize, TextError> {
        let architecture = self.architecture();
        let each = architecture.predictions().is_ok_and(|each| architecture.input == [each]);
        let vocabulary = architecture.vocabulary().filter(|_| each && !architecture.looks_ahead());
        vocabulary.ok_or_else(|| TextError::NotText { shape: architecture.input.clone() })
    }
}
