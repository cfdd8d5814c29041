//! A part of an experiment's runs, with all that may still be chosen for them.

use super::{Plan, Planned};

impl Plan {
    /// The runs of all choices that can be made among candidates.
    pub fn possible(&self) -> impl Iterator<Item = &Planned> {
        self.runs.iter().chain(&self.later)
    }

    /// Leaves out the runs that `keep` refuses, before anything is chosen. The candidates of a variant in a cell stay together.
    pub fn restrict(&mut self, keep: impl Fn(&Planned) -> bool) {
        self.runs.retain(&keep);
        self.later.retain(&keep);
    }
}
