//! `aggregator report`: the page of any run, at any time.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::exit::Failure;
use super::named_run::NamedRuns;
use super::terminal;
use crate::names;
use crate::page::Found;
use crate::report::console;
use crate::report::standing::Standing;
use crate::storage::{Disk, write_durably};
use crate::tensorboard::TensorBoard;

#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// The run: its name, or its directory
    #[arg(value_name = "RUN")]
    run: PathBuf,
    #[command(flatten)]
    named: NamedRuns,
    /// Write the page to this file [default: RUN/report.html]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the rounds for TensorBoard as well, into RUN/tensorboard
    #[arg(long)]
    tensorboard: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn report(arguments: &ReportArgs) -> Result<(), Failure> {
    let directory = arguments.named.find(&arguments.run)?;
    let found = Found::read(&Disk, &directory, false)?;
    names::set(found.names());
    let path = arguments.out.clone().unwrap_or_else(|| directory.report());
    // A process that works on the run writes its page, too: the draft has a name of this process's own.
    let mut draft = path.clone().into_os_string();
    draft.push(format!(".{}", std::process::id()));
    let draft = PathBuf::from(draft);
    write_durably(&Disk, &draft, |out| out.write_all(found.page().as_bytes()))
        .and_then(|()| std::fs::rename(&draft, &path))
        .inspect_err(|_| drop(std::fs::remove_file(&draft)))
        .map_err(|error| Failure::file("write", &path, error))?;
    let events = if arguments.tensorboard {
        let begun = TensorBoard::begin(&directory, &found.config, &found.rounds.records);
        Some(begun.map_err(|(path, error)| Failure::file("write", &path, error))?.path().to_owned())
    } else {
        None
    };
    let summary = found.summary();
    if arguments.json {
        let (last, best) = (summary.last.unzip(), summary.best.unzip());
        return terminal::print_json(&json!({
            "run": directory.root(),
            "report": path,
            "tensorboard": events,
            "standing": found.standing,
            "rounds": summary.rounds,
            "planned": found.planned(),
            "accuracy": last.0,
            "best_accuracy": best.0,
            "best_round": best.1,
            "loss": summary.last_loss,
            "best_loss": summary.best_loss.map(|(loss, _)| loss),
            "wall_seconds": summary.times.wall,
        }));
    }
    let planned = found.planned();
    let why = match &found.standing {
        Standing::Failed { reason } => format!(": {reason}"),
        Standing::Complete { early: Some(early) } => format!(": {}", early.reason()),
        _ => String::new(),
    };
    terminal::print(&format!(
        "{} after round {} of {planned}{why}\n{}\nreport  {}\n",
        found.standing.name(),
        summary.rounds,
        console::summary(&summary),
        path.display()
    ))?;
    events.map_or(Ok(()), |events| terminal::print(&format!("events  {}\n", events.display())))
}

#[cfg(all(test, feature = "simulate"))]
mod tests {
    use clap::Parser;

    use super::super::load_model::open_model;
    use super::super::simulate::{SimulateArgs, simulate};
    use super::*;
    use crate::compare::existing::existing;
    use crate::run::Which;
    use crate::run::directory::RunDirectory;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: SimulateArgs,
    }

    #[derive(Parser)]
    struct ReportLine {
        #[command(flatten)]
        arguments: ReportArgs,
    }

    fn report_of(run: &std::path::Path) -> Result<(), Failure> {
        let line = ["report", run.to_str().expect("UTF-8"), "--json"];
        report(&ReportLine::try_parse_from(line).expect("a command line").arguments)
    }

    /// A small run with this name.
    fn run(runs: &std::path::Path, name: &str, more: &[&str]) -> (RunDirectory, Result<(), Failure>) {
        let named = format!("run.name={name}");
        let small = ["run.rounds=2", "model.name=linear", "data.clients=2", "data.max-samples=200", &named];
        let settings = small.iter().chain(more).flat_map(|setting| ["--set", setting]);
        let begin = ["simulate", "--device", "cpu", "--json", "--runs", runs.to_str().expect("UTF-8")];
        let line = Line::try_parse_from(begin.into_iter().chain(settings)).expect("a command line");
        (RunDirectory::new(runs.join(name)), simulate(&line.arguments, false))
    }

    fn page(directory: &RunDirectory) -> String {
        report_of(directory.root()).expect("it is a run");
        std::fs::read_to_string(directory.report()).expect("it was written")
    }

    #[test]
    fn a_run_has_its_page_and_its_model_at_any_time() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (directory, outcome) = run(folder.path(), "whole", &[]);
        outcome.expect("it can run");
        let whole = std::fs::read_to_string(directory.report()).expect("it was written");
        assert!(
            whole.contains("<strong>Complete</strong>") && whole.contains("training: SHA-256 "),
            "{whole}"
        );
        assert!(page(&directory).contains("<strong>Complete</strong>"));
        assert!(whole.contains("Results by class of the last model</h2>"), "{whole}");
        // Damage to what the page has beside the rounds costs that part alone.
        let by_class = std::fs::read_to_string(directory.by_class()).expect("it was written");
        std::fs::write(directory.by_class(), by_class.replacen('1', "2", 1)).expect("damaged");
        let without = page(&directory);
        assert!(
            without.contains("<strong>Complete</strong>") && !without.contains("Results by class"),
            "{without}"
        );
        // As a process leaves it that is killed before the end.
        for path in [directory.ending(), directory.finished(), directory.model(), directory.report()] {
            std::fs::remove_file(path).expect("it was there");
        }
        assert!(page(&directory).contains("<h2>Interrupted after round 2 of 2</h2>"));
        let (file, _) = open_model(directory.root(), Which::Newest).expect("its checkpoint");
        assert!(file == directory.model() && !file.exists());
        open_model(directory.root(), Which::Best).expect("the checkpoint of its best model");
        let text = report_of(&folder.path().join("none")).expect_err("there is none").to_string();
        assert!(text.contains("holds no run"), "{text}");
    }

    #[test]
    fn the_page_of_a_run_that_failed_says_why() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let rate = "training.optimizer.sgd.learning-rate=1e9";
        let (directory, outcome) = run(folder.path(), "diverged", &[rate, "run.rounds=3"]);
        assert!(matches!(outcome, Err(Failure::NoProgress(_))), "{outcome:?}");
        let page = page(&directory);
        assert!(
            page.contains("<h2>Failed after round 3 of 6</h2>") && page.contains("training diverged"),
            "{page}"
        );
        assert!(page.contains("3 without enough updates"), "{page}");
    }

    #[test]
    fn runs_that_exist_are_compared_and_those_of_other_seeds_are_one_variant() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let seeds = [("a1", "run.seed=1"), ("a2", "run.seed=2")]
            .map(|(name, seed)| run(folder.path(), name, &[seed]));
        let other = run(folder.path(), "b", &["run.seed=1", "training.epochs=2"]);
        let runs: Vec<_> = seeds.into_iter().chain([other]).collect();
        let paths: Vec<_> = runs.iter().map(|(directory, _)| directory.root().to_owned()).collect();
        let (plan, rounds, unfinished) = existing(&Disk, &paths).expect("all are runs");
        assert_eq!(unfinished, [""; 0]);
        let variants: Vec<_> = plan.experiment.variants.iter().map(|variant| &*variant.name).collect();
        assert_eq!((variants, plan.seeds()), (vec!["a1", "b"], "1, 2".to_owned()));
        let lines = crate::compare::results::lines(&plan, &rounds);
        let seeds: Vec<_> = lines.iter().map(|line| line.accuracy.map_or(0, |mean| mean.seeds)).collect();
        assert_eq!(seeds, [2, 1]);
        assert!(
            plan.experiment.about.contains("a1 -> b: training.epochs 1 -> 2."),
            "{}",
            plan.experiment.about
        );
    }
}
