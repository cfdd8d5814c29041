//! `aggregator runs list`: a table of the runs, those that were active last at the end, where the prompt is.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::time::SystemTime;

use shared::calendar::moment;

use super::super::exit::Failure;
use super::super::terminal;
use super::Place;
use crate::events::printable;
use crate::report::clock::elapsed;
use crate::report::table::Table;
use crate::report::units::{bytes, counted};
use crate::runs::listing::{Folder, Kind, Listing};
use crate::runs::overview::Overview;

/// Blanks between columns.
const BLANKS: usize = 2;
/// What was changed stands on the run's line if there is this much room for it.
const ENOUGH: usize = 24;
/// Columns of a table that stand on the run's second line where the terminal is narrow: algorithm and data.
const SECOND: std::ops::Range<usize> = 2..4;

pub(super) fn list(place: &Place) -> Result<(), Failure> {
    let listing = Listing::of(&place.runs)?;
    if place.json {
        return terminal::print_json(&listing);
    }
    let columns = std::io::stdout().is_terminal().then(terminal::columns);
    terminal::print(&text(&listing, columns, moment(SystemTime::now())))
}

/// The list for a terminal of this many columns, or without an end of the lines for programs.
fn text(listing: &Listing, columns: Option<usize>, now: i64) -> String {
    let place = listing.directory.display();
    let mut text = String::new();
    if listing.runs.is_empty() {
        let _ = writeln!(text, "no run lies in {place}");
    } else {
        text.push_str(&runs(&listing.runs, columns, now));
    }
    if !listing.folders.is_empty() {
        let _ = writeln!(text, "\nalso in {place}");
        let name = listing.folders.iter().map(|folder| folder.folder.chars().count()).max().unwrap_or(0);
        for folder in &listing.folders {
            let line = format!("  {:<name$}  {}", printable(&folder.folder), what(folder));
            let _ = writeln!(text, "{}", cut(&line, columns));
        }
    }
    if !listing.runs.is_empty() {
        let size = listing.runs.iter().map(|run| run.bytes).sum();
        let _ = writeln!(text, "\n{}, {}", counted(listing.runs.len(), "run"), bytes(size));
    }
    text
}

/// What a folder without a run is, with what to do about it.
fn what(folder: &Folder) -> String {
    match folder.kind {
        Kind::Runs => {
            let inside = counted(folder.runs, "run");
            format!("{inside}, {}: --runs {}", bytes(folder.bytes), folder.path.display())
        }
        Kind::Damaged => format!("cannot be read: {}", printable(&folder.reason)),
        Kind::Identity | Kind::Leftover | Kind::Other => folder.reason.clone(),
    }
}

fn runs(runs: &[Overview], columns: Option<usize>, now: i64) -> String {
    let head = ["run", "state", "algorithm", "data", "last", "best", "rounds", "size", "age"];
    let whole = Table { head: words(&head), rows: runs.iter().map(|run| row(run, now)).collect(), left: 4 };
    let lines = whole.lines(BLANKS);
    let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let longest = runs.iter().map(|run| changed(run).chars().count()).max().unwrap_or(0);
    if columns.is_none_or(|columns| width + BLANKS + longest.min(ENOUGH) <= columns) {
        let said = std::iter::once("changed".to_owned()).chain(runs.iter().map(changed));
        let lines = lines.iter().zip(said).map(|(line, changed)| {
            let line = format!("{line:<width$}{:BLANKS$}{changed}", "");
            cut(line.trim_end(), columns) + "\n"
        });
        return lines.collect();
    }
    in_two_lines(whole, runs, columns.unwrap_or(usize::MAX))
}

/// Two lines for each run: figures, and below them what it did and what was changed. A name that is too long for its column
/// stands on a line of its own.
fn in_two_lines(whole: Table, runs: &[Overview], columns: usize) -> String {
    let without = |mut row: Vec<String>| {
        row.drain(SECOND);
        row
    };
    let Table { head, rows, .. } = whole;
    let mut table = Table { head: without(head), rows: rows.into_iter().map(without).collect(), left: 2 };
    let names: Vec<String> = table.rows.iter_mut().map(|row| std::mem::take(&mut row[0])).collect();
    let figures = table.lines(BLANKS).iter().map(|line| line.chars().count()).max().unwrap_or(0);
    // The head of the column is there already.
    let room = columns.saturating_sub(figures - table.head[0].len());
    let fits = |name: &String| name.chars().count() <= room;
    for (row, name) in table.rows.iter_mut().zip(&names).filter(|(_, name)| fits(name)) {
        row[0].clone_from(name);
    }
    let mut lines = table.lines(BLANKS).into_iter();
    let mut text = lines.next().unwrap_or_default() + "\n";
    for ((line, name), run) in lines.zip(&names).zip(runs) {
        if !fits(name) {
            let _ = writeln!(text, "{name}");
        }
        let changed = changed(run);
        let colon = if changed.is_empty() { "" } else { ": " };
        let second = format!("  {} on {}{colon}{changed}", run.algorithm, run.data);
        let _ = writeln!(text, "{line}\n{}", cut(&second, Some(columns)));
    }
    text
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn row(run: &Overview, now: i64) -> Vec<String> {
    let [last, best] = run.scores();
    vec![
        printable(&run.run),
        run.state.to_owned(),
        run.algorithm.clone(),
        run.data.clone(),
        last,
        best,
        format!("{}/{}", run.rounds, run.planned),
        bytes(run.bytes),
        run.age(now).map_or_else(|| "-".to_owned(), elapsed),
    ]
}

/// The changed keys in a few words, without those that other columns show.
fn changed(run: &Overview) -> String {
    let shown = ["data.set", "run.rounds"];
    let changed = run.changed.iter().filter(|(key, _)| !shown.contains(&key.as_str()));
    changed.map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>().join(", ")
}

/// Cut at this many columns, if there are columns.
fn cut(line: &str, columns: Option<usize>) -> String {
    const MORE: &str = "...";
    match columns {
        Some(columns) if line.chars().count() > columns => {
            line.chars().take(columns.saturating_sub(MORE.len())).chain(MORE.chars()).take(columns).collect()
        }
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use shared::id::RunId;
    use toml::Value;

    use super::*;

    fn run(name: &str, state: &'static str, epochs: i64) -> Overview {
        let changed = [("data.set", Value::from("mnist")), ("training.epochs", Value::from(epochs))];
        let changed = changed.map(|(key, value)| (key.to_owned(), value));
        Overview {
            run: name.to_owned(),
            path: name.into(),
            id: RunId::from_bytes([1; 8]),
            state,
            reason: None,
            algorithm: "fedavg".to_owned(),
            model: "lenet-5".to_owned(),
            data: "mnist".to_owned(),
            rounds: 12,
            planned: 15,
            accuracy: Some(0.931),
            best_accuracy: Some(1.0),
            best_round: Some(7),
            loss: None,
            best_loss: None,
            bytes: 642_000,
            begun: None,
            active: Some("1970-01-01T00:00:00Z".to_owned()),
            changed: BTreeMap::from(changed),
            served: false,
            pruned: false,
            over: true,
        }
    }

    fn listing() -> Listing {
        let folder = Folder {
            folder: "sweep".to_owned(),
            path: "runs/sweep".into(),
            kind: Kind::Runs,
            reason: String::new(),
            runs: 1,
            bytes: 1_000_000,
        };
        let runs = vec![run("mnist-fedavg", "complete", 5), run(&"long-".repeat(9), "interrupted", 2)];
        Listing { directory: "runs".into(), runs, folders: vec![folder] }
    }

    #[test]
    fn nothing_wraps_on_any_terminal_and_no_name_is_cut() {
        let mut all = listing();
        let key = "aggregation.server-optimizer.sgd.momentum".to_owned();
        all.runs[1].changed.insert(key, Value::from(0.9));
        for columns in [72, 80, 100, 120, 200] {
            let text = text(&all, Some(columns), 3_600_000);
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns}\n{text}");
            assert!(text.contains(&"long-".repeat(9)), "{columns}\n{text}");
        }
    }

    #[test]
    fn golden_lists() {
        let narrow = text(&listing(), Some(80), 3_600_000);
        let expected = "\
run           state          last     best  rounds      size       age
mnist-fedavg  complete     93.1 %  100.0 %   12/15  642.0 kB  60.0 min
  fedavg on mnist: training.epochs 5
long-long-long-long-long-long-long-long-long-
              interrupted  93.1 %  100.0 %   12/15  642.0 kB  60.0 min
  fedavg on mnist: training.epochs 2

also in runs
  sweep  1 run, 1.0 MB: --runs runs/sweep

2 runs, 1.3 MB
";
        assert_eq!(narrow, expected);
        let piped = text(&listing(), None, 3_600_000);
        let line = piped.lines().nth(1).expect("the first run");
        assert!(line.starts_with("mnist-fedavg ") && line.ends_with("training.epochs 5"), "{piped}");
        assert_eq!(piped.lines().count(), 8, "{piped}");
    }

    #[test]
    fn a_directory_without_runs_says_so() {
        let none = Listing { directory: "runs".into(), runs: Vec::new(), folders: Vec::new() };
        assert_eq!(text(&none, Some(80), 0), "no run lies in runs\n");
    }
}
