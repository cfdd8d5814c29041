//! Payloads: the bulk data that accompanies a message, in one piece or several.
//!
//! In memory, tensors already have the encoding in which they are sent as `f32`. A payload refers to them piece by piece, so
//! that an update within one process is copied neither to send nor to receive it. The pieces are only concatenated where a
//! disk or a network needs contiguous bytes.

use bytes::Bytes;

/// A byte string in pieces. Clones share the bytes.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    pieces: Vec<Bytes>,
}

impl Payload {
    /// The concatenation of these pieces.
    #[must_use]
    pub fn new(pieces: Vec<Bytes>) -> Self {
        Self { pieces }
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces, in order.
    #[must_use]
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// The contiguous bytes: a copy, unless there is one piece.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match &self.pieces[..] {
            [whole] => whole.clone(),
            pieces => pieces.concat().into(),
        }
    }
}

impl<B: Into<Bytes>> From<B> for Payload {
    fn from(whole: B) -> Self {
        Self { pieces: vec![whole.into()] }
    }
}

/// Equality of the bytes, however they are divided into pieces.
impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.pieces.iter().flatten().eq(other.pieces.iter().flatten())
    }
}

impl Eq for Payload {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_payload_is_cut_does_not_matter() {
        let piece = |text: &'static str| Bytes::from_static(text.as_bytes());
        let whole = Payload::from(piece("abcdef"));
        for pieces in [vec![piece("abc"), piece(""), piece("def")], vec![piece("a"), piece("bcdef")]] {
            let cut = Payload::new(pieces);
            assert_eq!(cut, whole);
            assert_eq!((cut.len(), cut.to_bytes()), (6, piece("abcdef")));
        }
        assert_ne!(Payload::new(vec![piece("abc"), piece("deg")]), whole);
        assert_eq!(whole.to_bytes().as_ptr(), whole.pieces()[0].as_ptr());
        assert!(Payload::default().is_empty() && Payload::default().to_bytes().is_empty());
    }
}
