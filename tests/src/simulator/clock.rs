//! Process clocks: each starts at zero with its process, and may jump ahead.

use std::time::Duration;

/// A monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    /// When its owner's life began.
    begun: Duration,
    /// How far it has jumped ahead.
    ahead: Duration,
}

impl Clock {
    /// A process starts at this moment of the simulation, and its clock at zero.
    pub(super) fn beginning(begun: Duration) -> Self {
        Self { begun, ahead: Duration::ZERO }
    }

    /// Its time at this moment of the simulation.
    pub(super) fn read(&self, now: Duration) -> Duration {
        now.saturating_sub(self.begun) + self.ahead
    }

    /// The moment of the simulation at which it shows this time; times that it has jumped over are due at once.
    pub(super) fn moment(&self, says: Duration) -> Duration {
        says.saturating_sub(self.ahead).saturating_add(self.begun)
    }

    pub(super) fn jump(&mut self, by: Duration) {
        self.ahead += by;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_clock_says_is_then_and_what_it_jumped_over_is_past() {
        let second = Duration::from_secs(1);
        let mut clock = Clock::beginning(10 * second);
        assert_eq!((clock.read(12 * second), clock.moment(2 * second)), (2 * second, 12 * second));
        clock.jump(5 * second);
        assert_eq!((clock.read(12 * second), clock.moment(7 * second)), (7 * second, 12 * second));
        assert_eq!(clock.moment(4 * second), 10 * second);
    }
}
