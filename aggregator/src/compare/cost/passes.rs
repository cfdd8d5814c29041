//! Samples that pass through a network, and what that takes.

use edge_client::bench::Pace;
use models::Architecture;

/// Samples that pass through one network.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Passes {
    pub(super) network: Architecture,
    /// Samples in a batch of training.
    pub(super) batch: usize,
    /// Samples that the network is trained on, one after the other.
    pub(super) trained: f64,
    /// Samples that it answers without learning: of tests, for pseudo-labels, for comparison.
    pub(super) tested: f64,
}

impl Passes {
    /// What they take at this pace.
    pub(super) fn at(&self, pace: Pace) -> f64 {
        self.trained * pace.trained + self.tested * pace.tested
    }

    /// Their multiply-adds. A step is a forward pass and, twice as long, a backward one.
    pub(super) fn operations(&self) -> f64 {
        let parameters = self.network.parameters().unwrap_or(0) as u64;
        let pass = self.network.multiply_adds().unwrap_or(0).max(parameters).max(1) as f64;
        self.at(Pace { trained: 3.0 * pass, tested: pass })
    }
}
