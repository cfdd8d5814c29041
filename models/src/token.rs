//! Tokens, which samples hold as floats.

use crate::error::ModelError;

/// Converts a sample's value to a token.
///
/// # Errors
/// [`ModelError::Token`] if it is not an integer or not in the vocabulary.
pub(crate) fn check_token(token: f32, vocabulary: usize) -> Result<u32, ModelError> {
    // NaN is in no range. -0 is 0.
    if (0.0..vocabulary as f32).contains(&token) && token.fract() == 0.0 {
        Ok(token as u32)
    } else {
        Err(ModelError::Token { token, vocabulary })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_must_be_whole_and_known() {
        for (token, expected) in [(0.0, 0), (-0.0, 0), (6.0, 6)] {
            assert_eq!(check_token(token, 7).unwrap(), expected);
        }
        for token in [7.0, -1.0, 0.5, f32::NAN, f32::INFINITY, 6.999] {
            let error = check_token(token, 7).unwrap_err();
            assert!(error.to_string().contains(&format!("{token}")), "{error}");
        }
    }
}
