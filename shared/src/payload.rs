//! What accompanies a message: many bytes, in one piece or in several.
//!
//! A record's tensors are as they are encoded in memory already, if they travel as `f32`. A payload refers to them piece by
//! piece, so that an update that stays in its process is not copied to be sent and not copied to be read. Where bytes have to
//! lie next to each other, for a disk or a network, they are put there.

use bytes::Bytes;

/// Bytes in pieces. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    pieces: Vec<Bytes>,
}

impl Payload {
    /// These pieces, one after the other.
    #[must_use]
    pub fn new(pieces: Vec<Bytes>) -> Self {
        Self { pieces }
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// Whether there is no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces, in order.
    #[must_use]
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// All bytes next to each other; a copy of them unless they are in one piece.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match &self.pieces[..] {
            [whole] => whole.clone(),
            pieces => pieces.concat().into(),
        }
    }
}

impl From<Bytes> for Payload {
    fn from(whole: Bytes) -> Self {
        Self { pieces: vec![whole] }
    }
}

impl From<&'static [u8]> for Payload {
    fn from(whole: &'static [u8]) -> Self {
        Bytes::from_static(whole).into()
    }
}

impl From<Vec<u8>> for Payload {
    fn from(whole: Vec<u8>) -> Self {
        Bytes::from(whole).into()
    }
}

/// Equal bytes, wherever they are cut.
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
