//! What is accepted of an update, and how it is kept.

use std::path::Path;

use models::Limits;

use super::{Run, update_file};

/// A payload may exceed the plain encoding of the model by this much: headers and metadata.
const PAYLOAD_SLACK: u64 = 1 << 20;

impl Run {
    /// Largest payload that an honest client sends.
    #[must_use]
    pub fn max_payload(&self) -> u64 {
        if self.config.spec.secure.enabled {
            // Up to three sums of the models and one of control variates.
            return 4 * self.config.spec.secure.integers.bytes() as u64 * self.template.parameters() as u64
                + PAYLOAD_SLACK;
        }
        let width = self.config.spec.update.most_bytes();
        // An algorithm may send more than one set of parameters; four are more than any sends.
        4 * width * self.template.parameters() as u64 + PAYLOAD_SLACK
    }

    /// What is accepted of an update: compressed ones where the run has such.
    pub(super) fn accepted(&self) -> Limits {
        let max_bytes = self.max_payload();
        if !self.config.spec.update.is_compressed() {
            return Limits { max_bytes, max_values: 0, ..Limits::default() };
        }
        Limits { max_bytes, max_values: max_bytes, ..Limits::default() }.of_compressed()
    }

    /// The bytes that came of an accepted update, by the length of its file, or of what the file says was received.
    pub(super) fn came(&self, path: &Path, length: u64) -> u64 {
        if !self.expands() {
            return length;
        }
        update_file::received(&*self.files, path, self.max_payload()).unwrap_or(length)
    }

    /// Whether a closing round reads the files of its updates a few values at a time.
    pub(super) fn reads_in_step(&self) -> bool {
        self.config.spec.aggregation.rule.needs_every_update() || self.algorithm.ensemble().is_some()
    }

    /// Whether accepted updates are kept as what they stand for, and not as they came.
    pub(super) fn expands(&self) -> bool {
        self.reads_in_step() && self.config.spec.update.is_compressed()
    }
}
