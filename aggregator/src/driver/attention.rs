//! Whether the driver attends to what comes.

use std::time::Duration;

use super::{Notice, STATUS_INTERVAL};
use crate::coordinator::Event;

/// The driver comes round every [`STATUS_INTERVAL`] at the latest. If it takes so much longer it was kept from it: by a terminal
/// that takes no more output (Ctrl-S), or by a machine that was suspended or is overloaded.
const LATE: Duration = Duration::from_secs(2);

/// When the driver attended last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attention(Duration);

impl Attention {
    /// It attends at `now`. Gives for how long it did not, if it was kept from it.
    pub(super) fn at(&mut self, now: Duration) -> Option<Duration> {
        let by = now.saturating_sub(std::mem::replace(&mut self.0, now));
        (by >= STATUS_INTERVAL + LATE).then_some(by)
    }
}

/// The driver was kept from its work: what the operator is told of it, and the coordinator.
pub(super) fn stalled(by: Duration, notice: &mut (dyn FnMut(Notice<'_>) + Send)) -> Event {
    notice(Notice::Remark(format!(
        "nothing was attended to for {} s: the terminal took no output, or the machine was suspended or overloaded. Devices \
         have so much more time",
        by.as_secs()
    )));
    Event::Stalled { by }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_comes_round_is_attentive_and_one_that_was_kept_from_it_is_told_for_how_long() {
        let mut attention = Attention::default();
        let at = |attention: &mut Attention, seconds| attention.at(Duration::from_secs_f64(seconds));
        assert_eq!(at(&mut attention, 0.5), None);
        assert_eq!(at(&mut attention, 2.5), None, "late, as anybody may be");
        assert_eq!(at(&mut attention, 22.5), Some(Duration::from_secs(20)));
        assert_eq!(at(&mut attention, 22.6), None, "once");
    }
}
