//! Which whole runs are to go.

use std::time::Duration;

use super::overview::Overview;

/// Which whole runs are to go: those that every part of the rule names that is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Runs that failed and are over: those whose process failed go on with the same command.
    pub failed: bool,
    /// Runs that were not active for longer than this.
    pub older_than: Option<Duration>,
    /// Runs that are not among this number of those that were active last.
    pub keep: Option<usize>,
}

impl Rule {
    /// Whether it names anything.
    #[must_use]
    pub fn is_given(&self) -> bool {
        *self != Self::default()
    }

    /// The runs that are to go, of `runs` in the order of their activity; none that a process works on.
    #[must_use]
    pub fn named<'a>(&self, runs: &'a [Overview], now: i64) -> Vec<&'a Overview> {
        if !self.is_given() {
            return Vec::new();
        }
        let newest = runs.len() - self.keep.unwrap_or(0).min(runs.len());
        let old = |run: &Overview| {
            self.older_than.is_none_or(|limit| {
                run.age(now).is_some_and(|age| u128::from(age.unsigned_abs()) > limit.as_millis())
            })
        };
        let goes = |run: &&Overview| {
            !run.is_worked_on() && old(run) && (!self.failed || run.state == "failed" && run.over)
        };
        runs[..newest].iter().filter(goes).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use shared::calendar::utc;
    use shared::id::RunId;

    use super::*;

    const HOUR: i64 = 3_600_000;

    fn run(name: &str, state: &'static str, hours: i64) -> Overview {
        Overview {
            run: name.to_owned(),
            path: name.into(),
            id: RunId::from_bytes([1; 8]),
            state,
            reason: None,
            algorithm: String::new(),
            model: String::new(),
            data: String::new(),
            rounds: 0,
            planned: 15,
            accuracy: None,
            best_accuracy: None,
            best_round: None,
            loss: None,
            best_loss: None,
            bytes: 1,
            begun: None,
            active: Some(utc(1000 * HOUR - hours * HOUR)),
            changed: BTreeMap::new(),
            served: false,
            pruned: false,
            over: ["complete", "failed"].contains(&state),
        }
    }

    #[test]
    fn a_run_goes_if_all_that_was_said_names_it() {
        let mut runs = vec![
            run("old", "complete", 100),
            run("works", "running", 90),
            run("broken", "failed", 50),
            run("waits", "paused", 40),
            run("new", "failed", 2),
            run("last", "complete", 1),
        ];
        let named = |runs: &[Overview], rule: Rule| {
            let named = rule.named(runs, 1000 * HOUR);
            named.iter().map(|run| run.run.clone()).collect::<Vec<_>>().join(" ")
        };
        let older = |hours| Some(Duration::from_hours(hours));
        let none = Rule::default();
        assert_eq!(named(&runs, none), "", "nothing was said");
        assert_eq!(named(&runs, Rule { failed: true, ..none }), "broken new");
        assert_eq!(named(&runs, Rule { older_than: older(10), ..none }), "old broken");
        assert_eq!(named(&runs, Rule { older_than: older(100), ..none }), "", "exactly as old");
        assert_eq!(named(&runs, Rule { keep: Some(2), ..none }), "old broken");
        assert_eq!(named(&runs, Rule { keep: Some(0), ..none }), "old broken new last");
        assert_eq!(named(&runs, Rule { keep: Some(9), ..none }), "");
        assert_eq!(named(&runs, Rule { failed: true, keep: Some(2), ..none }), "broken");
        assert_eq!(named(&runs, Rule { failed: true, older_than: older(10), keep: Some(1) }), "broken");
        runs[2].over = false;
        assert_eq!(named(&runs, Rule { failed: true, ..none }), "new", "the other one can go on");
        runs[2].over = true;
        runs[0].active = None;
        assert_eq!(named(&runs, Rule { older_than: older(10), ..none }), "broken", "of unknown age");
    }
}
