//! The one spelling of a shape for people: its sides with an x between them, as in `3x32x32`.

use std::fmt::Display;

/// The most sides of a sample.
pub const MAX_SIDES: usize = 8;
/// The longest side of a sample.
pub const MAX_SIDE: usize = 65_536;

/// A shape as text: `3x32x32`, or `13` for a row of a table.
#[must_use]
pub fn spelled<T: Display>(shape: &[T]) -> String {
    shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("x")
}

/// Reads a shape as people write it.
///
/// # Errors
/// What is accepted.
pub fn parse(text: &str) -> Result<Vec<usize>, String> {
    let side = |number: &str| number.trim().parse().ok().filter(|side| (1..=MAX_SIDE).contains(side));
    let sides: Option<Vec<usize>> = text.split('x').map(side).collect();
    sides.filter(|sides| sides.len() <= MAX_SIDES).ok_or_else(|| {
        format!(
            "a shape is 1 to {MAX_SIDES} whole numbers from 1 to {MAX_SIDE} with an x between them, as in 1x28x28 or 784"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for (shape, text) in [(&[3, 32, 32][..], "3x32x32"), (&[784], "784")] {
            assert_eq!(spelled(shape), text);
            assert_eq!(parse(text).as_deref(), Ok(shape));
        }
        for wrong in ["", "3x", "0x2", "[3, 32, 32]", "3x65537", "1x1x1x1x1x1x1x1x1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
