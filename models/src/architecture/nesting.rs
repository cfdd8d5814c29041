//! The limit on the nesting of blocks.
//!
//! Architectures come from peers, and all code that walks one, from deserialising to dropping it, recurses into its blocks. A
//! level takes three bytes in the stored form, so that a message of a megabyte could overflow any stack. Deserialisation
//! stops at [`MAX_NESTING`]; shape inference refuses deeper architectures that were built in a program.

use std::cell::Cell;

use serde::{Deserialize, Deserializer, de};

/// The deepest nesting of residual blocks. Published networks need 1.
pub const MAX_NESTING: usize = 8;

thread_local! {
    /// The nesting depth of the block that this thread is deserialising. A thread-local, because derived implementations of
    /// `Deserialize` pass no context to nested values.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Increments the depth while it exists.
struct Level;

impl Level {
    fn enter() -> Option<Self> {
        let depth = DEPTH.get();
        (depth < MAX_NESTING).then(|| {
            DEPTH.set(depth + 1);
            Self
        })
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Deserialises one branch of a residual block, a list of layers.
pub(super) fn deserialize_layers<'de, D: Deserializer<'de>, L: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<L>, D::Error> {
    let Some(_level) = Level::enter() else {
        let message = format!("blocks are nested more than {MAX_NESTING} deep");
        return Err(de::Error::custom(message));
    };
    Vec::deserialize(deserializer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::{Architecture, ArchitectureError, Initialisation, Layer};

    /// `depth` blocks around nothing.
    fn nested(depth: usize) -> Vec<Layer> {
        (0..depth).fold(vec![], |body, _| vec![Layer::Residual { body, shortcut: vec![] }])
    }

    #[test]
    fn the_limit_is_where_it_says_and_reading_starts_over_after_an_error() {
        for _ in 0..3 {
            for depth in [0, 1, MAX_NESTING] {
                let json = serde_json::to_string(&nested(depth)).unwrap();
                assert_eq!(serde_json::from_str::<Vec<Layer>>(&json).unwrap(), nested(depth));
                let bytes = postcard::to_stdvec(&nested(depth)).unwrap();
                assert_eq!(postcard::from_bytes::<Vec<Layer>>(&bytes).unwrap(), nested(depth));
            }
            let deeper = nested(MAX_NESTING + 1);
            let error = serde_json::from_str::<Vec<Layer>>(&serde_json::to_string(&deeper).unwrap());
            assert!(error.unwrap_err().to_string().contains("more than 8 deep"));
            assert!(postcard::from_bytes::<Vec<Layer>>(&postcard::to_stdvec(&deeper).unwrap()).is_err());
        }
    }

    #[test]
    fn a_message_of_nothing_but_blocks_is_an_error_and_no_overflow() {
        // One layer, which is a block, whose body has one layer, which is a block, ...
        let block = postcard::to_stdvec(&nested(1)).unwrap();
        assert_eq!(block.len(), 4);
        let bytes = block[..2].repeat(1 << 20);
        assert!(postcard::from_bytes::<Vec<Layer>>(&bytes).is_err());
    }

    #[test]
    fn what_a_program_nests_too_deep_is_refused_too() {
        let architecture = |depth| Architecture {
            name: "test".into(),
            input: vec![3],
            classes: 3,
            initialisation: Initialisation::Uniform,
            extractor: nested(depth),
            projection: vec![],
            head: vec![],
            ..Architecture::default()
        };
        assert!(architecture(MAX_NESTING).parameter_specs().is_ok());
        let error = architecture(MAX_NESTING + 1).parameter_specs();
        assert!(matches!(error, Err(ArchitectureError::Layer { .. })), "{error:?}");
    }
}
