//! Shards: parts of an experiment that several machines run.
//!
//! `--shard 2/5` runs the second of five parts. Which runs these are follows from the experiment alone ([`split`]), so that the machines
//! need not speak to each other, and none of them waits for another one. A shard leaves its runs and a [`record`] of what it was,
//! but no tables: `--collect` makes these of all shards together ([`collect`](super::collect)).

pub mod record;
pub mod split;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The most shards of an experiment.
const MOST: u16 = 10_000;

/// One of several parts of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Shard {
    of: u16,
    number: u16,
}

impl Shard {
    /// Which of them it is, counted from 1.
    #[must_use]
    pub fn number(self) -> u16 {
        self.number
    }

    /// How many there are.
    #[must_use]
    pub fn of(self) -> u16 {
        self.of
    }
}

/// Why a text names no shard. The caller can correct it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardError {
    /// It is not two numbers.
    #[error("give the shard and the number of shards as I/N, such as 2/5 for the second of five")]
    Form,
    /// The experiment would be split into none or too many.
    #[error("the number of shards is from 1 to {MOST}: give I/N such as 2/5 for the second of five")]
    Count,
    /// There is no such shard.
    #[error("shards are counted from 1: the first of {0} is 1/{0}, and the last one is {0}/{0}")]
    Number(u16),
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Self, ShardError> {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (number, of) = text.split_once('/').ok_or(ShardError::Form)?;
        if !digits(number) || !digits(of) {
            return Err(ShardError::Form);
        }
        let of = of.parse().ok().filter(|of| (1..=MOST).contains(of)).ok_or(ShardError::Count)?;
        let number = number.parse().ok().filter(|number| (1..=of).contains(number));
        number.map(|number| Self { of, number }).ok_or(ShardError::Number(of))
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl TryFrom<String> for Shard {
    type Error = ShardError;

    fn try_from(text: String) -> Result<Self, ShardError> {
        text.parse()
    }
}

impl From<Shard> for String {
    fn from(shard: Shard) -> Self {
        shard.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_one_of_as_many_as_there_are() {
        for text in ["1/1", "2/5", "5/5", "10000/10000"] {
            assert_eq!(text.parse::<Shard>().map(|shard| shard.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("02/05".parse::<Shard>().map(|shard| shard.to_string()), Ok("2/5".to_owned()));
    }

    #[test]
    fn what_is_no_shard_is_refused_with_what_would_be_one() {
        let refused = |text: &str| text.parse::<Shard>().expect_err(text);
        for text in ["", "2", "a/b", "2/", "/5", "1/2/3", "-1/5", "+1/5", "1.5/5", "2 / 5", "2-5"] {
            assert_eq!(refused(text), ShardError::Form, "{text}");
        }
        for text in ["2/0", "0/0", "1/10001", "1/99999999999"] {
            assert_eq!(refused(text), ShardError::Count, "{text}");
        }
        for text in ["0/5", "6/5", "99999999999/5"] {
            assert_eq!(refused(text), ShardError::Number(5), "{text}");
        }
        assert_eq!(
            refused("6/5").to_string(),
            "shards are counted from 1: the first of 5 is 1/5, and the last one is 5/5"
        );
    }
}
