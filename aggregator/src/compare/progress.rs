//! Progress of an experiment, and an estimate of the remaining time.

use std::time::Duration;

use super::plan::{Plan, Standing};

/// The progress of every run.
#[derive(Clone, Debug)]
pub struct Progress {
    runs: Vec<State>,
    jobs: usize,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// Cell and variant: runs of one kind take about the same time.
    kind: (usize, usize),
    rounds: u32,
    closed: u32,
    /// Rounds that were timed, and their seconds in total.
    timed: (u32, f64),
    over: bool,
}

impl Progress {
    /// The progress of these runs, of which those in `left` have rounds to go and `jobs` run at a time.
    #[must_use]
    pub fn new(plan: &Plan, standing: &[Standing], left: &[usize], jobs: usize) -> Self {
        let state = |(position, (run, standing)): (usize, (&super::plan::Planned, &Standing))| {
            let rounds = run.config.spec.rounds;
            let closed = match standing {
                Standing::Done => rounds,
                Standing::Unfinished(closed) => *closed,
                _ => 0,
            };
            let over = !left.contains(&position);
            State { kind: (run.cell, run.variant), rounds, closed, timed: (0, 0.0), over }
        };
        Self { runs: plan.runs.iter().zip(standing).enumerate().map(state).collect(), jobs: jobs.max(1) }
    }

    /// A round of run number `run` closed.
    pub fn closed(&mut self, run: usize, round: u32, took: Duration) {
        let state = &mut self.runs[run];
        state.closed = round;
        state.timed.0 += 1;
        state.timed.1 += took.as_secs_f64();
    }

    /// Run number `run` is complete or has failed.
    pub fn over(&mut self, run: usize) {
        self.runs[run].over = true;
    }

    /// Runs that are over, and all.
    #[must_use]
    pub fn runs(&self) -> (usize, usize) {
        (self.runs.iter().filter(|run| run.over).count(), self.runs.len())
    }

    /// Rounds that are closed, and all.
    #[must_use]
    pub fn rounds(&self) -> (u64, u64) {
        let sum = |count: fn(&State) -> u32| self.runs.iter().map(|run| u64::from(count(run))).sum();
        // A run may end before all of its rounds are over.
        (sum(|run| run.closed), sum(|run| if run.over { run.closed } else { run.rounds }))
    }

    /// Estimated time until all runs are over. A round takes the mean time of the rounds of its kind so far, or of all rounds
    /// if its kind has none yet. `None` before the first round.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let pace = |kind: Option<(usize, usize)>| {
            let seen = self.runs.iter().filter(|run| kind.is_none_or(|kind| kind == run.kind));
            let (rounds, seconds) = seen.fold((0, 0.0), |(n, s), run| (n + run.timed.0, s + run.timed.1));
            (rounds > 0).then(|| seconds / f64::from(rounds))
        };
        let mean = pace(None)?;
        let open: Vec<&State> = self.runs.iter().filter(|run| !run.over).collect();
        let left = |run: &State| {
            f64::from(run.rounds.saturating_sub(run.closed)) * pace(Some(run.kind)).unwrap_or(mean)
        };
        let total: f64 = open.iter().map(|run| left(run)).sum();
        // Rounds of one run cannot overlap.
        let longest = open.iter().map(|run| left(run)).fold(0.0, f64::max);
        let lanes = self.jobs.min(open.len()).max(1) as f64;
        Duration::try_from_secs_f64((total / lanes).max(longest)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(kinds: &[(usize, usize)], jobs: usize) -> Progress {
        let state = |&kind| State { kind, rounds: 10, closed: 0, timed: (0, 0.0), over: false };
        Progress { runs: kinds.iter().map(state).collect(), jobs }
    }

    #[test]
    fn a_kind_takes_what_it_took_and_the_others_the_mean() {
        let mut progress = progress(&[(0, 0), (0, 0), (0, 1)], 1);
        assert_eq!(progress.remaining(), None);
        progress.closed(0, 1, Duration::from_secs(4));
        progress.closed(0, 2, Duration::from_secs(2));
        // 8, 10 and 10 rounds of 3 seconds.
        assert_eq!(progress.remaining(), Some(Duration::from_secs(84)));
        progress.closed(2, 1, Duration::from_secs(9));
        assert_eq!(progress.remaining(), Some(Duration::from_secs(24 + 30 + 81)));
        progress.over(2);
        // It ended after a round of ten: nine of the thirty are not to come.
        assert_eq!((progress.runs(), progress.rounds()), ((1, 3), (3, 21)));
        assert_eq!(progress.remaining(), Some(Duration::from_secs(54)));
    }

    #[test]
    fn jobs_share_the_time_and_the_longest_run_bounds_it() {
        let mut progress = progress(&[(0, 0), (0, 0), (0, 1)], 2);
        progress.closed(0, 1, Duration::from_secs(1));
        progress.closed(2, 1, Duration::from_secs(10));
        // 9 + 10 + 90 seconds over two lanes are 54.5, but the last run alone needs 90.
        assert_eq!(progress.remaining(), Some(Duration::from_secs(90)));
    }
}
