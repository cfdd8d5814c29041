//! Accounts of differential privacy by Rényi's divergences: of noise that a server adds, and of noise that devices add themselves.
//!
//! Devices use the latter ([`device_noise`]) to hold a run to what their owners ask for.

mod complementary;
mod noise;
mod renyi;
mod skellam;

pub use complementary::ln_erfc;
pub use noise::Noise;
pub use renyi::Renyi;
pub use skellam::account as device_noise;

/// delta, the probability with which epsilon does not hold, where nothing is said.
pub const USUAL_DELTA: f64 = 1e-6;
