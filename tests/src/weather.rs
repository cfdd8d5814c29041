//! How badly a simulated world treats its inhabitants.

use std::time::Duration;

/// What may go wrong, as probabilities and ranges.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Every delivery takes up to this.
    pub delay: Duration,
    /// Every training takes up to this.
    pub training: Duration,
    /// Probability that a delivery cuts its connection instead.
    pub cut: f64,
    /// Probability that a device dies at one of its steps.
    pub device_crash: f64,
    /// Probability that the aggregator dies at one of its steps.
    pub server_crash: f64,
    /// How long the dead stay dead.
    pub downtime: Duration,
}

impl Weather {
    /// Nothing goes wrong, and nothing takes time.
    pub const CALM: Self = Self {
        delay: Duration::from_millis(1),
        training: Duration::from_millis(1),
        cut: 0.0,
        device_crash: 0.0,
        server_crash: 0.0,
        downtime: Duration::from_millis(1),
    };
    /// Everything goes wrong often.
    pub const STORM: Self = Self {
        delay: Duration::from_millis(500),
        training: Duration::from_secs(3),
        cut: 0.05,
        device_crash: 0.03,
        server_crash: 0.03,
        downtime: Duration::from_secs(4),
    };
}
