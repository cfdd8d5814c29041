//! What was found wrong so far, and what nothing more can be said of.

use super::{ConfigError, ConfigErrors, Renamed};

/// Mistakes, collected over all layers and checks.
#[derive(Debug, Default)]
pub(super) struct Findings {
    errors: Vec<ConfigError>,
    /// Full paths whose values are not what was meant. What follows from them would only mislead.
    doubtful: Vec<String>,
    /// Keys that were given by their old names.
    pub(super) renamed: Vec<Renamed>,
}

impl Findings {
    pub(super) fn add(&mut self, error: ConfigError) {
        self.errors.push(error);
    }

    /// Nothing more shall be said of this key, nor of those in it; `""` is the whole configuration.
    pub(super) fn doubt(&mut self, key: &str) {
        self.doubtful.push(key.to_owned());
    }

    /// Whether the value of this key, or of any in it, is known not to be what was meant.
    pub(super) fn is_doubtful(&self, key: &str) -> bool {
        let begins = |long: &str, short: &str| {
            short.is_empty()
                || long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.doubtful.iter().any(|doubtful| begins(key, doubtful) || begins(doubtful, key))
    }

    /// Puts the errors of one file, from number `first` on, into the order of its lines.
    pub(super) fn in_order_of_lines(&mut self, first: usize) {
        self.errors[first..].sort_by_key(ConfigError::line);
    }

    pub(super) fn count(&self) -> usize {
        self.errors.len()
    }

    /// `value` if nothing was found.
    pub(super) fn none_or<T>(self, value: T) -> Result<T, ConfigErrors> {
        if self.errors.is_empty() { Ok(value) } else { Err(ConfigErrors(self.errors)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubt_covers_what_is_in_a_table_and_the_table() {
        let mut findings = Findings::default();
        findings.doubt("round.count");
        for (key, doubtful) in [
            ("round.count", true),
            ("round.count.min", true),
            ("round", true),
            ("round.counter", false),
            ("round.time", false),
            ("data", false),
        ] {
            assert_eq!(findings.is_doubtful(key), doubtful, "{key}");
        }
        findings.doubt("");
        assert!(findings.is_doubtful("data.set"));
    }
}
