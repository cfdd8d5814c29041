//! Fault profiles: how often and how long delays, cuts and crashes happen in a simulation.

use std::time::Duration;

/// What may go wrong, as probabilities and ranges.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Every delivery takes up to this.
    pub delay: Duration,
    /// Every training takes up to this.
    pub training: Duration,
    /// Probability that a delivery cuts its connection instead. Of an update that is cut a part may have arrived.
    pub cut: f64,
    /// Probability that from a delivery on a connection drops everything silently.
    pub silence: f64,
    /// Probability that an update arrives twice.
    pub twice: f64,
    /// Probability that a device dies at one of its steps.
    pub device_crash: f64,
    /// Probability that the aggregator dies at one of its steps.
    pub server_crash: f64,
    /// How long the dead stay dead.
    pub downtime: Duration,
    /// Every durable step of the aggregator takes up to this.
    pub disk: Duration,
    /// Probability that a life of the aggregator ends at one of its first few hundred disk operations, half of these with
    /// the power.
    pub disk_death: f64,
    /// Probability that for some operations of a life of the aggregator there is no room on its disk.
    pub full: f64,
    /// Probability that a clock jumps ahead before one of its owner's steps: it was suspended, and nothing else was.
    pub jump: f64,
    /// How far.
    pub farthest: Duration,
}

impl Faults {
    /// Nothing goes wrong, and nothing takes time.
    pub const NONE: Self = Self {
        delay: Duration::from_millis(1),
        training: Duration::from_millis(1),
        cut: 0.0,
        silence: 0.0,
        twice: 0.0,
        device_crash: 0.0,
        server_crash: 0.0,
        downtime: Duration::from_millis(1),
        disk: Duration::ZERO,
        disk_death: 0.0,
        full: 0.0,
        jump: 0.0,
        farthest: Duration::ZERO,
    };
    /// Connections and processes die often.
    pub const HEAVY: Self = Self {
        delay: Duration::from_millis(500),
        training: Duration::from_secs(3),
        cut: 0.05,
        device_crash: 0.03,
        server_crash: 0.03,
        downtime: Duration::from_secs(4),
        ..Self::NONE
    };
}
