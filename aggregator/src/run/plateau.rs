//! The rate of the server's own training where it falls once the server learns no more.
//!
//! Where the rule stands follows from the tests of the rounds before, and stands in the metadata of every checkpoint, for the round
//! after it, as the [bound of a private run](super::clip) does.

use super::{Run, RunError};
use crate::round::{Plateau, PlateauState, RoundRecord};

/// The key of the state in a checkpoint's metadata.
pub(super) const KEY: &str = "server-plateau";

/// The state before the first round, if the rate may fall.
pub(super) fn first(plateau: Plateau) -> Option<PlateauState> {
    plateau.patience.map(|_| PlateauState::default())
}

impl Run {
    /// Reads where the rule stands after the `closed` round, if the rate may fall.
    pub(super) fn restore_plateau(&mut self, closed: u32) -> Result<(), RunError> {
        if self.plateau.is_some() {
            self.plateau = Some(self.noted(
                closed,
                KEY,
                |text| text.parse().ok(),
                "at which rate the server trains on",
            )?);
        }
        Ok(())
    }

    /// The share of its rate at which the server trains next; 1 unless it may fall.
    pub(super) fn server_rate_share(&self) -> f64 {
        self.plateau.unwrap_or_default().share()
    }

    /// Notes what a closed round says of the rate.
    pub(super) fn adapt_plateau(&mut self, record: &RoundRecord) {
        self.plateau = self.plateau.map(|state| state.after(record, self.config.server.plateau));
    }
}
