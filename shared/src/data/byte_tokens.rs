//! Texts of one length as tokens: the bytes of UTF-8.
//!
//! Bytes need no vocabulary that devices would have to agree on, and every text of every language has them. A text is cut after as
//! many bytes as a sample has, and filled up with [`PADDING`] behind its end. Line breaks of
//! Windows are taken for those of others.

use super::{DataError, Dataset, Samples};

/// The token behind the end of a text.
pub const PADDING: u16 = 0;

/// Number of different tokens: the padding, and one for each byte.
pub const VOCABULARY: usize = 257;

/// Appends the tokens of a text: `length` of them, each a byte's value and 1, or [`PADDING`].
pub fn append(text: &str, length: usize, tokens: &mut Vec<u16>) {
    let end = tokens.len() + length;
    let bytes = text.as_bytes();
    let is_dropped = |at: usize| bytes[at] == b'\r' && bytes.get(at + 1) == Some(&b'\n');
    let kept = (0..bytes.len()).filter(|&at| !is_dropped(at)).map(|at| u16::from(bytes[at]) + 1);
    tokens.extend(kept.take(length));
    tokens.resize(end, PADDING);
}

/// The tokens of a text.
#[must_use]
pub fn tokens(text: &str, length: usize) -> Vec<u16> {
    let mut tokens = Vec::with_capacity(length);
    append(text, length, &mut tokens);
    tokens
}

/// A text as a sample: this many of its tokens.
///
/// # Errors
/// [`DataError`] if it is to have none.
pub fn sample(text: &str, length: usize) -> Result<Dataset, DataError> {
    Dataset::unlabelled(vec![length], Samples::Tokens(tokens(text, length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_and_filled_up() {
        assert_eq!(tokens("ab", 4), [98, 99, PADDING, PADDING]);
        assert_eq!(tokens("abc", 2), [98, 99]);
        assert_eq!(tokens("\u{e9}", 3), [0xc3 + 1, 0xa9 + 1, PADDING]);
        assert_eq!(tokens("", 2), [PADDING; 2]);
        assert_eq!((tokens("a\r\nb", 3), tokens("\r", 1)), (vec![98, 11, 99], vec![14]));
        assert!(tokens("\u{10ffff}\0", 9).iter().all(|&token| usize::from(token) < VOCABULARY));
    }
}
