//! The bytes of a round.

use shared::message::{ToClient, ToServer};

use crate::run::{Broadcast, Run, Traffic};

/// Counts what is sent and received.
///
/// A simulation that goes on after an interruption connects its clients anew, which one that was never interrupted does not: what is said
/// only because of a new connection is not counted then, so that both have the same figures.
#[derive(Debug)]
pub(super) struct Counter {
    sum: Traffic,
    /// Whether greetings count.
    greetings: bool,
}

impl Counter {
    /// That of a run which goes on after this many closed rounds, in a round that was open before if there is one.
    pub(super) fn of(run: &Run, reopened: Option<&Broadcast>, closed: u32) -> Self {
        let earlier = reopened.map_or(Traffic::default(), |broadcast| run.earlier_traffic(broadcast));
        Self::new(earlier, run.is_simulated() && closed > 0)
    }

    fn new(earlier: Traffic, goes_on: bool) -> Self {
        Self { sum: earlier, greetings: !goes_on }
    }

    /// A message was sent, with its payload in this number of bytes.
    pub(super) fn down(&mut self, message: &ToClient, bytes: u64) {
        let greeting = matches!(
            message,
            ToClient::PositionalWelcome { .. }
                | ToClient::Welcome { .. }
                | ToClient::Conditions(_)
                | ToClient::Counted { .. }
                | ToClient::Frozen { .. }
                | ToClient::ResumePoint(_)
        );
        if self.greetings || !greeting {
            self.sum.down += bytes;
        }
    }

    /// A task was sent.
    pub(super) fn task(&mut self, bytes: u64) {
        self.sum.down += bytes;
    }

    /// A message was received in this number of bytes.
    pub(super) fn up(&mut self, message: &ToServer, bytes: u64) {
        let greeting = matches!(
            message,
            ToServer::Hello(_)
                | ToServer::ClientState { .. }
                | ToServer::Untested { .. }
                | ToServer::SkippedSamples { .. }
                | ToServer::WantsFrozen { .. }
                | ToServer::ResumePoint(_)
        );
        if self.greetings || !greeting {
            self.sum.up += bytes;
        }
    }

    /// An update was received.
    pub(super) fn update(&mut self, bytes: u64) {
        self.sum.up += bytes;
    }

    /// What was counted of this round.
    pub(super) fn sum(&self) -> Traffic {
        self.sum
    }

    /// The same, and the next round begins.
    pub(super) fn take(&mut self) -> Traffic {
        std::mem::take(&mut self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_count_but_not_those_of_a_simulation_that_goes_on() {
        let counted = |goes_on| {
            let mut counter = Counter::new(Traffic { down: 7, up: 5 }, goes_on);
            counter.up(&ToServer::ClientState { after: None }, 10);
            counter.down(&ToClient::Counted { update: None }, 100);
            counter.task(1000);
            counter.up(&ToServer::Goodbye, 20);
            counter.down(&ToClient::Finished { rounds: 3 }, 200);
            counter.update(40);
            let Traffic { down, up } = counter.take();
            assert_eq!(counter.sum(), Traffic::default());
            (down, up)
        };
        assert_eq!(counted(false), (1307, 75));
        assert_eq!(counted(true), (1207, 65));
    }
}
