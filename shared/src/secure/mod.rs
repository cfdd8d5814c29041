//! Secure aggregation: the server learns the sum of a round's updates and nothing of a single one.
//!
//! Bonawitz et al.: *Practical Secure Aggregation for Privacy-Preserving Machine Learning*, CCS 2017 (eprint 2017/281), with the graph
//! of neighbours of Bell et al., CCS 2020 ([`graph`]).
//!
//! ```text
//! every member i:   y_i = x_i + PRG(b_i) + sum over neighbours j of +- PRG(s_ij)      modulo 2^64
//! server:           sum x_i = sum y_i - sum PRG(b_i) -+ sum over the missing j of PRG(s_ij)
//! ```
//!
//! The `x_i` are the whole numbers that [`ExactSum`](crate::aggregation::ExactSum) adds, so that the sum, and with it the model, is the
//! same to the bit as without masks. The `s_ij` are agreed by X25519, and what i adds j takes away. The `b_i` and the masking keys are
//! [shared](shamir) among a member's neighbours and itself.
//!
//! | step | member | server |
//! |---|---|---|
//! | 1 keys | [says](Party::advertise) its public keys, signed by its identity | draws the [neighbours](graph::neighbours) |
//! | 2 shares | [sends](Party::shares) sealed shares of its two secrets, one for each neighbour | passes them on; who has sent them takes part |
//! | 3 update | sends its update with its [masks](Party::masks) | adds them up, and decides durably whose count |
//! | 4 reveal | gives its shares of the own masks of those who count, and of the masking keys of the missing | [takes the masks away](Recovery::masks) |
//!
//! What decides how much an update counts, and what it was trained from, are the *terms* of a round. They are part of the seeds of shared
//! masks: if the server tells two members different ones, so that one update hides in a sum of nothing, what they share does not cancel.
//!
//! A member gives one of two secrets of each neighbour away and never both: with both, the server could unmask a single update.

pub mod exchange;
pub mod graph;
mod keys;
pub mod mask;
mod party;
mod recovery;
pub mod shamir;
#[cfg(test)]
mod tests;

pub use exchange::{Advertised, Exchange};
pub use mask::Mask;
pub use party::{Party, PartyError, PartySecret, Sealed, Values};
pub use recovery::{Recovery, RecoveryError};
pub use shamir::Share;
