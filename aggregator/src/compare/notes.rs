//! Notes below the tables, the same for terminals and pages.

use std::collections::BTreeSet;

use shared::algorithm::registry;

use super::choice::aim;
use super::experiment::{Candidate, Paper};
use super::plan::{Plan, Planned, Target};
use super::results::{Line, measured_globally};
use crate::config::Config;
use crate::round::of_a_model;

/// The notes to these lines.
pub(super) fn notes(plan: &Plan, lines: &[&Line]) -> Vec<String> {
    let mut notes = vec![means(plan, lines)];
    notes.extend(targets(plan, lines));
    notes.extend(tuned(plan, lines));
    notes.extend(needless(plan, lines));
    notes.extend(measurements(lines));
    notes.extend(troubled(lines));
    notes.extend(papers(plan, lines));
    notes
}

fn means(plan: &Plan, lines: &[&Line]) -> String {
    let spread = match plan.experiment.seeds.len() {
        1 => "Means over 1 seed".to_owned(),
        seeds => format!("Means over {seeds} seeds +- sample standard deviation"),
    };
    let paired = match plan.experiment.baseline {
        Some(_) if lines.iter().any(|line| line.loss_difference.is_some()) => {
            "; differences are paired by seed, of the loss: less is better"
        }
        Some(_) => "; differences are paired by seed, in points of accuracy",
        None => "",
    };
    format!("{spread}{paired}. Bytes: in both directions, and in brackets what clients have sent (up).")
}

/// Limits to the precision of rounds and bytes to a target.
fn targets(plan: &Plan, lines: &[&Line]) -> Vec<String> {
    let mut notes = Vec::new();
    let aims = |cell: usize| plan.cells[cell].target.is_some() && lines.iter().any(|line| line.cell == cell);
    if lines.iter().any(|line| aims(line.cell) && line.steps.is_some()) {
        notes.push("Steps a round: of the optimiser, on one client.".to_owned());
    }
    if lines.iter().any(|line| line.rounds.is_some_and(|mean| mean.seeds < line.aimed().count())) {
        notes.push(
            "Where not every seed reached the target, rounds and bytes to it are means over those that did: the others would have \
             needed more."
                .to_owned(),
        );
    }
    let is_open = |line: &&Line| line.seeds.iter().filter(|seed| seed.complete).count() < line.planned;
    if lines.iter().any(|line| aims(line.cell) && is_open(line)) {
        notes.push(
            "Seeds that are not complete count in no mean: where they are the slow ones, rounds and bytes to the target look fewer than \
             they are."
                .to_owned(),
        );
    }
    let by_peak = |line: &&Line| plan.cells[line.cell].target == Some(Target::Peak);
    if lines.iter().any(by_peak) {
        notes.push("The peak is the best test of each run by itself.".to_owned());
    }
    if lines.iter().any(|line| line.rounds.is_some() && !by_peak(line)) {
        notes.push(
            "Rounds to a target are where the best accuracy so far crosses it, on a straight line between two tests."
                .to_owned(),
        );
    }
    let runs = plan.runs.iter().filter(|run| aims(run.cell) && plan.counts(run));
    let every: BTreeSet<u32> =
        runs.map(|run| run.config.spec.evaluate.every).filter(|&every| every > 1).collect();
    if !every.is_empty() {
        let every = every.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
        notes.push(format!(
            "Models are tested every {every} rounds: bytes to the target are rounded up to the next test."
        ));
    }
    notes
}

/// How values were chosen, and which of them are the least or the greatest that were tried.
fn tuned(plan: &Plan, lines: &[&Line]) -> Vec<String> {
    if lines.iter().all(|line| line.tried.is_empty()) {
        return Vec::new();
    }
    let seed = plan.experiment.seeds.first().map_or_else(String::new, ToString::to_string);
    let by = if lines.iter().any(|line| line.tried.iter().any(|candidate| candidate.loss.is_some())) {
        "with the least loss"
    } else if lines.iter().any(|line| aim(plan, line.cell).is_some()) {
        "with the fewest rounds to the target, else with the best accuracy"
    } else {
        "with the best accuracy"
    };
    let validated = plan.runs.iter().any(|run| run.config.data.validation.is_some());
    let counted = lines.iter().any(|line| aim(plan, line.cell).is_some());
    let samples = match (validated, counted) {
        (false, _) => "test samples",
        (true, false) => "validation samples",
        (true, true) => "test samples, accuracies on the validation samples",
    };
    let mut notes = vec![format!(
        "Chosen: the values {by}, of all that were tried with seed {seed}, on the {samples}; the other seeds run with the chosen ones \
         alone."
    )];
    let at_the_end = lines.iter().filter_map(|line| {
        let chosen = plan.chosen(line.cell, line.variant)?;
        let keys = outermost(chosen, &plan.experiment.variants[line.variant].candidates);
        (!keys.is_empty()).then(|| format!("{} ({})", line.name, keys.join(", ")))
    });
    let at_the_end: Vec<String> = at_the_end.collect();
    if !at_the_end.is_empty() {
        notes.push(format!(
            "{}: the least or the greatest of the values that were tried; others beyond it may be better.",
            at_the_end.join(", ")
        ));
    }
    notes
}

/// The keys whose chosen number is the least or the greatest of at least three, by their last parts.
fn outermost<'a>(chosen: &'a Candidate, candidates: &[Candidate]) -> Vec<&'a str> {
    let number =
        |value: &toml::Value| value.as_float().or_else(|| value.as_integer().map(|value| value as f64));
    let at_the_end = |&key: &usize| {
        let mut all: Vec<f64> = candidates.iter().filter_map(|other| number(&other.values[key].1)).collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        let own = number(&chosen.values[key].1);
        all.len() > 2 && (own == all.first().copied() || own == all.last().copied())
    };
    let name = |key: usize| chosen.values[key].0.rsplit('.').next().unwrap_or_default();
    (0..chosen.values.len()).filter(at_the_end).map(name).collect()
}

/// Methods without a global model, or without any influence of clients on it.
fn needless(plan: &Plan, lines: &[&Line]) -> Vec<String> {
    let of = |wanted: fn(&Config) -> bool| {
        let here = |run: &&Planned| {
            lines.iter().any(|line| (line.cell, line.variant) == (run.cell, run.variant))
                && plan.counts(run)
                && wanted(&run.config)
        };
        let variants: BTreeSet<usize> = plan.runs.iter().filter(here).map(|run| run.variant).collect();
        let names = variants.into_iter().map(|variant| plan.experiment.variants[variant].name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let alone =
        of(|config| registry::build(&config.spec.algorithm).is_ok_and(|built| built.personal().is_some()));
    let unheard = of(|config| config.server.mixture.alpha <= 0.0);
    let notes = [
        (
            alone,
            "the accuracy is the mean over the clients' own models, where others have one global model; the bytes are those of \
             these tests, and the method itself needs none.",
        ),
        (
            unheard,
            "nothing that clients learn counts; the bytes are what this program sends all the same, and the method itself needs \
             none.",
        ),
    ];
    let named = notes.into_iter().filter(|(names, _)| !names.is_empty());
    named.map(|(names, text)| format!("{names}: {text}")).collect()
}

/// Which measurements are means over the rounds, and which are of the last test.
fn measurements(lines: &[&Line]) -> Option<String> {
    // Tests of a model by clients on samples of their own begin with `own-`.
    let (last, mean): (Vec<&str>, Vec<&str>) =
        measured_globally(lines).into_iter().partition(|name| of_a_model(name) || name.starts_with("own-"));
    let said = |names: Vec<&str>, what| (!names.is_empty()).then(|| format!("{}: {what}.", names.join(", ")));
    let said = [said(mean, "means over the rounds"), said(last, "of the last test")];
    let said: Vec<String> = said.into_iter().flatten().collect();
    (!said.is_empty()).then(|| said.join(" "))
}

/// The problems of each run that had any.
fn troubled(lines: &[&Line]) -> impl Iterator<Item = String> {
    let seeds = lines.iter().flat_map(|line| line.seeds.iter().map(move |seed| (line, seed)));
    seeds.filter_map(|(line, seed)| {
        let mut text = seed.troubles.text();
        if seed.fruitless() {
            text.push_str("; it learned nothing and counts nowhere");
        }
        (!text.is_empty()).then(|| format!("{}, seed {}: {text}.", line.name, seed.seed))
    })
}

/// The sources of published numbers.
fn papers(plan: &Plan, lines: &[&Line]) -> impl Iterator<Item = String> {
    let says = |paper: &&Paper| lines.iter().any(|line| !paper.of(&line.name).is_nothing());
    plan.experiment.papers.iter().filter(says).map(Paper::note).filter(|note| !note.is_empty())
}
