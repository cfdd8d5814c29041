//! The harness that the suites stand on.
//!
//! | module | what it gives |
//! |---|---|
//! | [`world`] | both state machines joined in memory: virtual time, delays, cuts, crashes |
//! | [`device`] | one simulated device of that world |
//! | [`server`] | the aggregator of that world: the real coordinator and the real durable steps |
//! | [`faulty_disk`] | a file layer that dies at a chosen operation |
//! | [`scenario`] | small configurations and data |

pub mod device;
pub mod faulty_disk;
pub mod scenario;
pub mod server;
pub mod world;
