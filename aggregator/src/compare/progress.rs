//! Progress of an experiment, and an estimate of the remaining time.

use std::time::Duration;

use super::plan::{Plan, Planned};
use super::seed::Rounds;
use crate::round::RoundRecord;

type Kind = (usize, usize, Option<usize>);

/// The progress of every run.
#[derive(Clone, Debug)]
pub struct Progress {
    runs: Vec<State>,
    jobs: usize,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// Cell, variant and candidate: runs of one kind take about the same time.
    kind: Kind,
    rounds: u32,
    closed: u32,
    /// Rounds that were timed, and their seconds in total.
    timed: (u32, f64),
    over: bool,
}

impl Progress {
    /// The progress of these runs with the rounds that they have closed. Those in `left` have rounds to go, and `jobs` run at a time.
    #[must_use]
    pub fn new(plan: &Plan, closed: &Rounds, left: &[usize], jobs: usize) -> Self {
        let state = |(position, (run, closed)): (usize, (&Planned, &Option<Vec<RoundRecord>>))| {
            let rounds = run.config.spec.rounds;
            let closed = closed.as_ref().and_then(|closed| closed.last()).map_or(0, |round| round.round);
            let over = !left.contains(&position);
            State { kind: (run.cell, run.variant, run.candidate), rounds, closed, timed: (0, 0.0), over }
        };
        Self { runs: plan.runs.iter().zip(closed).enumerate().map(state).collect(), jobs: jobs.max(1) }
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
        (sum(|run| run.closed), sum(|run| if run.over { run.closed } else { run.rounds.max(run.closed) }))
    }

    /// Estimated time until all runs are over. A round takes the mean time of the rounds of its kind so far, or of all rounds
    /// if its kind has none yet; where runs of its kind ended before their last round, a run has as many rounds as they had.
    /// `None` before the first round.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let pace = |kind: Option<Kind>| {
            let seen = self.runs.iter().filter(|run| kind.is_none_or(|kind| kind == run.kind));
            let (rounds, seconds) = seen.fold((0, 0.0), |(n, s), run| (n + run.timed.0, s + run.timed.1));
            (rounds > 0).then(|| seconds / f64::from(rounds))
        };
        let mean = pace(None)?;
        let open: Vec<&State> = self.runs.iter().filter(|run| !run.over).collect();
        let expected = |run: &State| {
            let over =
                self.runs.iter().filter(|other| other.over && other.kind == run.kind && other.closed > 0);
            let (count, rounds) =
                over.fold((0, 0), |(count, rounds), other| (count + 1, rounds + other.closed));
            // What has gone on for longer than they did may end with any round.
            let mean = u32::checked_div(rounds, count);
            mean.map_or(run.rounds, |mean| mean.max(run.closed + 1).min(run.rounds))
        };
        let left = |run: &State| {
            f64::from(expected(run).saturating_sub(run.closed)) * pace(Some(run.kind)).unwrap_or(mean)
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
        let state = |&(cell, variant)| State {
            kind: (cell, variant, None),
            rounds: 10,
            closed: 0,
            timed: (0, 0.0),
            over: false,
        };
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
    fn runs_that_end_early_tell_how_long_the_others_take() {
        let mut progress = progress(&[(0, 0), (0, 0), (0, 1)], 1);
        for round in 1..=4 {
            progress.closed(0, round, Duration::from_secs(1));
        }
        // 6, 10 and 10 rounds.
        assert_eq!(progress.remaining(), Some(Duration::from_secs(26)));
        progress.over(0);
        assert_eq!(
            progress.remaining(),
            Some(Duration::from_secs(4 + 10)),
            "of the other kind nothing is known"
        );
        for round in 1..=6 {
            progress.closed(1, round, Duration::from_secs(1));
        }
        assert_eq!(progress.remaining(), Some(Duration::from_secs(1 + 10)));
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
