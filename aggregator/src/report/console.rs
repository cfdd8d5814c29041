//! A run for people at a terminal: one line per round, and a few at the end. The caller prints them.

use std::fmt::Write as _;

use super::summary::Arrivals;
use super::units::{bytes, counted, percent, seconds};
use super::{RoundRecord, Summary, WaitedFor};

/// One round as an aligned line, without the line break; `rounds` is how many are planned.
///
/// ```text
/// round  3/15  accuracy  93.1 %  loss 0.231  10 of 10 in    1.2 s  down 642.0 kB  up   1.6 MB
/// ```
#[must_use]
pub fn line(record: &RoundRecord, rounds: u32) -> String {
    let width = rounds.to_string().len();
    let mut line = format!("round {:>width$}/{rounds}", record.round);
    match (record.accuracy, record.loss) {
        (None, None) => {
            let train = record.train_loss.map_or_else(String::new, |loss| format!("train loss {loss:.3}"));
            let _ = write!(line, "  {train:<28}");
        }
        (accuracy, loss) => {
            let accuracy = accuracy.map_or_else(|| "-".to_owned(), percent);
            let loss = loss.map_or_else(|| "not finite".to_owned(), |loss| format!("{loss:.3}"));
            let _ = write!(line, "  accuracy {accuracy:>7}  loss {loss:<5}");
        }
    }
    let clients = record.sampled.to_string().len();
    let _ = write!(
        line,
        "  {:>clients$} of {} in {:>6.1} s  down {:>8}  up {:>8}",
        record.accepted,
        record.sampled,
        record.seconds,
        bytes(record.bytes_down),
        bytes(record.bytes_up)
    );
    for (count, what) in Arrivals::of(std::slice::from_ref(record)).troubles() {
        let _ = write!(line, "  {count} {what}");
    }
    if matches!(record.waited_for, WaitedFor::MaxTime | WaitedFor::MinCount) {
        let _ = write!(line, "  waited for {}", record.waited_for);
    }
    line
}

/// The run as a whole, in a few lines with line breaks.
#[must_use]
pub fn summary(summary: &Summary) -> String {
    let mut text = format!("{} in {}", counted(summary.rounds, "round"), seconds(summary.seconds));
    if let Some(median) = summary.median_seconds {
        let _ = write!(text, ", half of them within {}", seconds(median));
    }
    text.push('\n');
    if let (Some((last, _)), Some((best, round))) = (summary.last, summary.best) {
        let _ = writeln!(text, "accuracy {}, at best {} in round {round}", percent(last), percent(best));
    }
    if let Some(target) = summary.target {
        let goal = percent(target.accuracy);
        let _ = match target.round {
            Some(round) => writeln!(text, "target of {goal} reached in round {round}"),
            None => writeln!(text, "target of {goal} not reached"),
        };
    }
    let _ = write!(
        text,
        "{} of {} accepted",
        summary.arrivals.accepted,
        counted(summary.arrivals.sampled, "update")
    );
    for (count, what) in summary.arrivals.troubles() {
        let _ = write!(text, ", {count} {what}");
    }
    let _ = writeln!(text, "\n{} down, {} up", bytes(summary.bytes_down), bytes(summary.bytes_up));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> RoundRecord {
        RoundRecord {
            round: 3,
            accuracy: Some(0.931),
            loss: Some(0.2312),
            train_loss: Some(0.1957),
            sampled: 10,
            accepted: 10,
            rejected: 0,
            discarded: 0,
            failed: 0,
            lost: 0,
            bytes_down: 642_000,
            bytes_up: 1_642_000,
            seconds: 1.21,
            waited_for: WaitedFor::Cohort,
        }
    }

    #[test]
    fn golden_lines() {
        let smooth = line(&record(), 15);
        assert_eq!(
            smooth,
            "round  3/15  accuracy  93.1 %  loss 0.231  10 of 10 in    1.2 s  down 642.0 kB  up   1.6 MB"
        );
        let untested = line(&RoundRecord { accuracy: None, loss: None, round: 12, ..record() }, 15);
        assert_eq!(
            untested,
            "round 12/15  train loss 0.196              10 of 10 in    1.2 s  down 642.0 kB  up   1.6 MB"
        );
        assert_eq!(smooth.find("10 of 10"), untested.find("10 of 10"), "columns stand under each other");
        let rough = RoundRecord {
            accepted: 7,
            rejected: 1,
            failed: 1,
            lost: 1,
            seconds: 600.0,
            loss: None,
            waited_for: WaitedFor::MaxTime,
            ..record()
        };
        assert_eq!(
            line(&rough, 15),
            "round  3/15  accuracy  93.1 %  loss not finite   7 of 10 in  600.0 s  down 642.0 kB  up   1.6 MB  \
             1 rejected  1 failed  1 lost  waited for the time limit"
        );
    }

    #[test]
    fn golden_summary() {
        let rounds =
            [record(), RoundRecord { round: 4, accuracy: Some(0.92), lost: 1, accepted: 9, ..record() }];
        assert_eq!(
            summary(&Summary::of(&rounds, Some(0.93))),
            "2 rounds in 2.4 s, half of them within 1.2 s\n\
             accuracy 92.0 %, at best 93.1 % in round 3\n\
             target of 93.0 % reached in round 3\n\
             19 of 20 updates accepted, 1 lost\n\
             1.3 MB down, 3.3 MB up\n"
        );
        assert_eq!(
            summary(&Summary::of(&[], None)),
            "0 rounds in 0 ms\n0 of 0 updates accepted\n0 B down, 0 B up\n"
        );
    }
}
