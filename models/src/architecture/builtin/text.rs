//! Language models. Given a vocabulary, each tells texts apart: its head gets the mean of the states at all positions.

use super::{Given, Parts, linear};
use crate::architecture::Layer;

/// The character model of `McMahan` et al., AISTATS 2017, section 3: the next character after each of 80, embedded in 8
/// dimensions, by two LSTMs of 256 units. With `V` characters 796 672 + 265 `V` parameters.
pub(super) fn char_lstm(given: &Given<'_>) -> Parts {
    let embedding = Layer::Embedding { name: "embedding".to_owned(), vocabulary: given.tokens(), dim: 8 };
    let lstm = |name: &str| Layer::Lstm { name: name.to_owned(), hidden: 256 };
    let mut extractor = vec![embedding, lstm("lstm1"), lstm("lstm2")];
    extractor.extend(given.whole_text());
    Parts::plain(extractor, vec![linear("fc", given.classes)])
}

/// The word model of `McMahan` et al., AISTATS 2017, section 3: the next word after each of ten, embedded in 192 dimensions, by
/// an LSTM of 256 units. With `V` words 459 776 + 449 `V` parameters: 4 949 776 for 10 000. The paper counts 4 950 544; the 768
/// more are the peepholes of its LSTM, which hardly any library supports.
pub(super) fn word_lstm(given: &Given<'_>) -> Parts {
    let embedding = Layer::Embedding { name: "embedding".to_owned(), vocabulary: given.tokens(), dim: 192 };
    let lstm = Layer::Lstm { name: "lstm".to_owned(), hidden: 256 };
    let mut extractor = vec![embedding, lstm];
    extractor.extend(given.whole_text());
    Parts::plain(extractor, vec![linear("fc", given.classes)])
}
