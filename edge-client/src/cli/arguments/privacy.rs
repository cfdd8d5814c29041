//! What an owner asks of the runs that the device takes part in.

use std::num::NonZeroU32;

use clap::Args;
use shared::privacy::USUAL_DELTA;

use super::super::parse::{delta, devices, epsilon};
use crate::task::PrivateOnly;

/// What a run must do for the privacy of the device.
#[derive(Clone, Debug, Args)]
pub struct PrivacyArguments {
    /// Leave runs in which the server would see this device's updates: they must be hidden among those of at least N devices
    ///
    /// In a run with secure aggregation the server learns the sum of a round's updates alone. Of a run without it, or with one among
    /// fewer devices, no task is taken, and its operator is told.
    #[arg(long, value_name = "N", value_parser = devices, allow_negative_numbers = true)]
    pub secure_only: Option<NonZeroU32>,
    /// Leave runs in which devices do not add noise themselves that keeps all rounds within this epsilon of differential privacy
    ///
    /// Checked is what this device does itself: it clips its update, adds its part of the noise and hides the rest, so that the server, too,
    /// learns noisy sums alone. Every round of the run counts, and a round too many is not trained in. Noise that a server promises to add
    /// is only its word: a run with that alone is left, too. Epsilon holds for one run, and for sums in which the other devices are real
    /// (--secure-only says among how many).
    #[arg(long, value_name = "EPSILON", value_parser = epsilon, allow_negative_numbers = true)]
    private_only: Option<f64>,
    /// The probability with which that epsilon does not hold: less than one in the number of devices
    #[arg(long, value_name = "DELTA", value_parser = delta, default_value_t = USUAL_DELTA, requires = "private_only", allow_negative_numbers = true)]
    private_delta: f64,
}

impl PrivacyArguments {
    /// What the noise of devices must keep all rounds within, if anything.
    pub fn private_only(&self) -> Option<PrivateOnly> {
        self.private_only.map(|epsilon| PrivateOnly { epsilon, delta: self.private_delta })
    }
}
