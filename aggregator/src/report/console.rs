//! Terminal output of a run: one line per round, and a summary at the end. The caller prints them.

use std::fmt::Write as _;

use models::Measure;
use shared::cli::measure_text;

use super::Summary;
use super::summary::Arrivals;
use super::units::{bytes, counted, grouped, percent, seconds};
use crate::names::called;
use crate::round::stopping::Criterion;
use crate::round::{Dominance, RoundRecord, WaitedFor};

/// One round as an aligned line of at most `columns` characters, without the line break. `rounds` is the planned number of
/// rounds. Problems follow at the end of the line, or on further lines if there is no room.
///
/// ```text
/// round  3/15   93.1 %  loss 0.231  10 of 10    1.2 s  642.0 kB down   1.6 MB up
/// round  4/15   94.0 %  loss 0.207   7 of 10    9.7 s  642.0 kB down   1.2 MB up
///   2 rejected, 1 lost, waited for the time limit
/// ```
///
/// If there are too few columns, the traffic is left out, then the loss, and nothing else.
#[must_use]
pub fn line(record: &RoundRecord, rounds: u32, columns: usize) -> String {
    let width = rounds.to_string().len();
    let clients = record.sampled.to_string().len();
    let mut begin = format!("round {:>width$}/{rounds}", record.round);
    if record.closing {
        begin = format!("{:<1$}", "closing", begin.len());
    }
    let on_time = record.accepted.saturating_sub(record.late);
    let end = format!("  {:>clients$} of {}  {}", on_time, record.sampled, duration(record.wall_seconds()));
    let nothing = record.closing && record.accuracy.is_none();
    let is_of_numbers = !record.measures().is_empty() && record.accuracy.is_none();
    let (accuracy, mut loss) = match (record.accuracy, record.loss, record.train_loss) {
        // Clients have tested the last model, and nothing was trained.
        _ if nothing => (" ".repeat(9), " ".repeat(12)),
        (Some(accuracy), loss, _) => {
            (format!("  {:>7}", percent(accuracy)), format!("  loss {:<5}", figure(loss)))
        }
        (None, None, Some(train)) if !is_of_numbers => {
            (String::new(), format!("  {:<19}", format!("train loss {}", figure(Some(train)))))
        }
        (None, loss, _) => (
            format!("  {:>7}", headline(record).unwrap_or_else(|| "-".to_owned())),
            format!("  loss {:<5}", loss.map_or("-".to_owned(), |loss| figure(Some(loss)))),
        ),
    };
    let mut traffic = format!("  {:>8} down {:>8} up", bytes(record.bytes_down), bytes(record.bytes_up));
    let room = columns.saturating_sub(begin.len() + accuracy.len() + end.len());
    if loss.len() > room {
        loss.clear();
    }
    if loss.len() + traffic.len() > room {
        traffic.clear();
    }
    let mut text = [begin, accuracy, loss, end, traffic].concat();
    let beginning = text.len();
    for remark in remarks(record) {
        let line = text.rsplit('\n').next().unwrap_or_default().len();
        if line + 2 + remark.len() <= columns {
            text.push_str(if text.len() == beginning { "  " } else { ", " });
        } else {
            text.push_str("\n  ");
        }
        text.push_str(&remark);
    }
    text
}

/// The problems of a round, and the clients' accuracy of the model that they were sent.
fn remarks(record: &RoundRecord) -> Vec<String> {
    let counts = Arrivals::of(std::slice::from_ref(record)).troubles();
    let mut remarks: Vec<_> = counts.into_iter().map(|(count, what)| format!("{count} {what}")).collect();
    if record.late > 0 {
        remarks.insert(0, format!("and {}", counted(record.late, "late one")));
    }
    if matches!(record.waited_for, WaitedFor::MaxTime | WaitedFor::MinCount) {
        remarks.push(format!("waited for {}", record.waited_for));
    }
    if record.collapsed {
        remarks.push("the model names few classes".to_owned());
    }
    if record.diverged {
        remarks.push("the server's own training diverged".to_owned());
    }
    if let Some(dominance) = &record.dominance {
        let Dominance { client, share_of_weight, .. } = dominance;
        remarks.push(format!("client {} has {} of the weight", called(*client), percent(*share_of_weight)));
    }
    if let Some(&own) = record.metrics.get(Criterion::OwnAccuracy.name()) {
        remarks.push(format!(
            "round {}'s model on the clients' own samples: {}",
            record.round - 1,
            percent(own)
        ));
    }
    if let Some(&accuracy) = record.metrics.get(Criterion::ValidationAccuracy.name()) {
        remarks.push(format!("validation {}", percent(accuracy)));
    }
    remarks
}

/// What tells best how far numbers are off, in nine characters: `R2  0.912`, or where that is not defined `MAE 0.123`.
fn headline(record: &RoundRecord) -> Option<String> {
    let of = |measure: Measure, name: &str| {
        let value = *record.metrics.get(measure.name())?;
        Some(format!("{name} {:>5}", figure(Some(value))))
    };
    of(Measure::R2, "R2 ").or_else(|| of(Measure::Mae, "MAE"))
}

/// A time in seven characters, as `   58 ms` or `  1.2 s`.
fn duration(seconds: f64) -> String {
    if seconds < 0.0995 {
        return format!("{:>4.0} ms", seconds * 1e3);
    }
    let decimals = usize::from(seconds < 1000.0);
    format!("{seconds:>5.decimals$} s")
}

/// A loss in five characters; `nan` if it is not finite.
fn figure(loss: Option<f64>) -> String {
    match loss {
        None => "nan".to_owned(),
        Some(loss) if loss < 9.9995 => format!("{loss:.3}"),
        Some(loss) if loss < 99.995 => format!("{loss:.2}"),
        Some(loss) if loss < 999.95 => format!("{loss:.1}"),
        Some(loss) if loss < 99_999.5 => format!("{loss:.0}"),
        Some(loss) => format!("{loss:.0e}"),
    }
}

/// The run as a whole, in a few lines with line breaks.
#[must_use]
pub fn summary(summary: &Summary) -> String {
    let times = &summary.times;
    let mut text = format!("{} in {}", counted(summary.rounds, "round"), seconds(times.wall));
    if let Some(median) = summary.median_seconds.filter(|_| summary.rounds > 1) {
        let _ = write!(text, ", half of them within {}", seconds(median));
    }
    text.push('\n');
    let parts = times.parts().into_iter().map(|(name, time)| format!("{name} {}", seconds(time)));
    let parts: Vec<String> = parts.chain(times.unknown()).collect();
    if !parts.is_empty() {
        let _ = writeln!(text, "{}", parts.join(", "));
    }
    if summary.missing > 0 {
        let _ =
            writeln!(text, "without {}, whose records are lost", counted(summary.missing, "earlier round"));
    }
    if let (Some((last, _)), Some((best, round))) = (summary.last, summary.best) {
        let _ = writeln!(text, "accuracy {}, at best {} in round {round}", percent(last), percent(best));
    } else if let Some((best, round)) = summary.best_loss {
        let _ = writeln!(text, "loss at best {best:.4} in round {round}");
    }
    if !summary.measures.is_empty() {
        let measures = summary.measures.iter().map(|&(measure, value)| measure_text(measure, value));
        let _ = writeln!(text, "{} at last", measures.collect::<Vec<_>>().join(", "));
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
        grouped(summary.arrivals.accepted),
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
            metrics: std::collections::BTreeMap::new(),
            closing: false,
            clients: std::collections::BTreeMap::new(),
            sampled: 10,
            accepted: 10,
            rejected: 0,
            discarded: 0,
            failed: 0,
            late: 0,
            not_now: 0,
            lost: 0,
            bytes_down: 642_000,
            bytes_up: 1_642_000,
            seconds: 1.21,
            waited_for: WaitedFor::Cohort,
            collapsed: false,
            diverged: false,
            dominance: None,
            void: false,
            ..RoundRecord::default()
        }
    }

    #[test]
    fn golden_lines() {
        let smooth = line(&record(), 15, 80);
        assert_eq!(smooth, "round  3/15   93.1 %  loss 0.231  10 of 10    1.2 s  642.0 kB down   1.6 MB up");
        let untested = line(&RoundRecord { accuracy: None, loss: None, round: 12, ..record() }, 15, 80);
        assert_eq!(
            untested,
            "round 12/15  train loss 0.196     10 of 10    1.2 s  642.0 kB down   1.6 MB up"
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
            line(&rough, 15, 80),
            "round  3/15   93.1 %  loss nan     7 of 10  600.0 s  642.0 kB down   1.6 MB up\n  \
             1 rejected, 1 failed, 1 lost, waited for the time limit"
        );
        assert_eq!(
            line(&rough, 15, 59),
            "round  3/15   93.1 %  loss nan     7 of 10  600.0 s\n  \
             1 rejected, 1 failed, 1 lost, waited for the time limit"
        );
        assert_eq!(
            line(&RoundRecord { accepted: 12, late: 2, ..record() }, 15, 80),
            "round  3/15   93.1 %  loss 0.231  10 of 10    1.2 s  642.0 kB down   1.6 MB up\n  and 2 late ones"
        );
        assert_eq!(
            line(&RoundRecord { lost: 1, ..record() }, 15, 59),
            "round  3/15   93.1 %  loss 0.231  10 of 10    1.2 s  1 lost"
        );
    }

    #[test]
    fn no_line_is_wider_than_its_columns() {
        let crowd = RoundRecord {
            round: 1000,
            accuracy: Some(1.0),
            loss: Some(123.456),
            sampled: 1000,
            accepted: 1000,
            rejected: 1000,
            discarded: 1000,
            failed: 1000,
            lost: 1000,
            bytes_down: 999_900_000,
            bytes_up: 999_900_000,
            seconds: 999.94,
            waited_for: WaitedFor::MinCount,
            ..record()
        };
        for columns in [59, 60, 80, 100, 200] {
            let text = line(&crowd, 1000, columns);
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns}\n{text}");
            assert_eq!(text.contains("loss 123.5"), columns >= 59, "{text}");
            assert_eq!(text.contains("999.9 MB up"), columns >= 100, "{text}");
        }
        let narrow = line(&crowd, 1000, 20);
        assert!(narrow.starts_with("round 1000/1000  100.0 %  1000 of 1000  999.9 s\n"), "{narrow}");
    }

    #[test]
    fn a_round_takes_as_long_as_all_of_its_parts_and_short_ones_are_no_zero() {
        let timed = RoundRecord { waited_seconds: Some(0.5), disk_seconds: Some(0.3), ..record() };
        assert!(line(&timed, 15, 80).contains("10 of 10    2.0 s  "), "{}", line(&timed, 15, 80));
        let quick = line(&RoundRecord { seconds: 0.0583, ..record() }, 15, 80);
        assert!(quick.contains("10 of 10    58 ms  642.0 kB"), "{quick}");
    }

    #[test]
    fn a_closing_round_claims_no_figures() {
        let closing = RoundRecord { closing: true, accuracy: None, loss: None, train_loss: None, ..record() };
        let text = line(&closing, 15, 80);
        assert_eq!(text, "closing                           10 of 10    1.2 s  642.0 kB down   1.6 MB up");
    }

    #[test]
    fn losses_have_five_characters() {
        let cases = [(0.0, "0.000"), (9.9996, "10.00"), (99.996, "100.0"), (1234.5, "1234"), (1e9, "1e9")];
        for (loss, shown) in cases {
            assert_eq!(figure(Some(loss)), shown);
        }
    }

    #[test]
    fn golden_summary() {
        let rounds =
            [record(), RoundRecord { round: 4, accuracy: Some(0.92), lost: 1, accepted: 9, ..record() }];
        assert_eq!(
            summary(&Summary::of(&rounds, Some(0.93))),
            "2 rounds in 2.4 s, half of them within 1.2 s\n\
             training 2.4 s, of 2 rounds only training is known\n\
             without 2 earlier rounds, whose records are lost\n\
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
