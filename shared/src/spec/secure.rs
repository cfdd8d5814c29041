//! `[secure-aggregation]`: whether the server learns sums alone.

use std::ops::Bound::{Excluded, Included};
use std::time::Duration;

use models::params::IntegerFormat;

use crate::secure::graph;
use crate::settings::Kind;
use crate::task::TaskKind;

crate::named!(IntegerFormat);

crate::section! {
    /// `[secure-aggregation]`: the server learns the sum of a round's updates, and nothing of a single one
    #[derive(Copy)]
    pub struct SecureAggregation {
        /// Whether devices hide their updates from the server
        pub enabled: bool = false;
        /// The fewest devices whose sum is learned: 3 or more
        ///
        /// Of the sum of two either device would know the update of the other.
        pub min_devices: u32 = 10, in Kind::Whole(2, 10_000);
        /// Share of a device's neighbours that can take its mask away
        ///
        /// More than half in any case. A smaller one withstands the loss of more devices, a larger one more devices that tell the
        /// server what they hold.
        pub threshold: f64 = 0.55, in Kind::Number(Excluded(0.0), Included(1.0));
        /// Of the numbers that devices hide and send: i64, or i32 of half the bytes
        ///
        /// The sum of all devices must fit in 32 bits: how finely values are rounded follows from `update.max-abs` then. Also where
        /// updates are not hidden, so that a simulation of the run gives its model.
        pub integers: IntegerFormat = IntegerFormat::I64;
        /// Seconds for which silent devices hold up the exchange of keys
        pub patience: f64 = 30.0, in Kind::Number(Excluded(0.0), Included(86_400.0));
    }
}

impl SecureAggregation {
    /// Whether, and how, updates are hidden in a round of this work.
    #[must_use]
    pub fn of(self, work: TaskKind) -> Option<Self> {
        Some(self).filter(|secure| secure.enabled && work.train)
    }

    /// How long silent devices hold up the exchange of keys.
    #[must_use]
    pub fn patience(&self) -> Duration {
        Duration::from_secs_f64(self.patience)
    }

    /// The fewest devices of a round: a sum of fewer is not learned, and a device sends nothing that is to be added to fewer.
    #[must_use]
    pub fn least(&self) -> usize {
        self.min_devices as usize
    }

    /// The neighbours of each device in a round of this number of them.
    #[must_use]
    pub fn degree(&self, members: usize) -> usize {
        graph::degree(members, self.threshold)
    }

    /// How many of a device's neighbours and itself can take its mask away.
    #[must_use]
    pub fn holders_needed(&self, neighbours: usize) -> usize {
        graph::threshold(self.threshold, neighbours + 1)
    }
}
