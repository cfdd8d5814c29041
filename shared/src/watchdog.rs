//! Watchdog: whether a program makes progress.
//!
//! A keep-alive has to say more than "the driver's loop runs": it would be sent while a GPU never answers or a disk never
//! returns. It is therefore sent only while there is nothing to do, or if the work has advanced since the last one. The
//! supervisor (systemd's `WatchdogSec=`) decides how long a standstill may last, and restarts the program after it.

/// Compares the progress of some work with that of the last look.
#[derive(Clone, Copy, Debug)]
pub struct Watchdog<P> {
    last: Option<P>,
}

impl<P> Default for Watchdog<P> {
    fn default() -> Self {
        Self { last: None }
    }
}

impl<P: PartialEq> Watchdog<P> {
    /// Whether the work has advanced since the last call. `progress` is [`None`] while there is no work, which counts as
    /// progress, and otherwise a value that changes with every step.
    pub fn advanced(&mut self, progress: Option<P>) -> bool {
        let advanced = progress.is_none() || progress != self.last;
        self.last = progress;
        advanced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_to_do_is_progress_and_work_that_stands_still_is_not() {
        let mut watchdog = Watchdog::default();
        let work = [None, None, Some(0), Some(0), Some(0), Some(7), Some(7), None, Some(7), Some(7), Some(0)];
        let advanced = [true, true, true, false, false, true, false, true, true, false, true];
        assert_eq!(work.map(|work| watchdog.advanced(work)), advanced);
    }
}
