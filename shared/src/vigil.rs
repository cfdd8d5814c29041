//! Whether a program gets on with its work, for whoever restarts it if it does not.
//!
//! A driver that only said "I am alive" would say so while what it waits for hangs: a GPU that never answers, a disk that
//! never returns. So the keep-alive is said only if there is nothing to do, or if what is to be done has come further since
//! the last time. Who supervises the program decides how long nothing may come further.

/// Remembers how far the work was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vigil {
    seen: Option<u64>,
}

impl Vigil {
    /// Is there progress since the last time? `work` is [`None`] if nothing is in hand, and otherwise a number that changes
    /// with every step of it.
    pub fn progressed(&mut self, work: Option<u64>) -> bool {
        let progressed = work.is_none() || work != self.seen;
        self.seen = work;
        progressed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_to_do_is_progress_and_work_that_stands_still_is_not() {
        let mut vigil = Vigil::default();
        let work = [None, None, Some(0), Some(0), Some(0), Some(7), Some(7), None, Some(7), Some(7), Some(0)];
        let progressed = [true, true, true, false, false, true, false, true, true, false, true];
        assert_eq!(work.map(|work| vigil.progressed(work)), progressed);
    }
}
