//! Experiments, and runs that are compared: tables, curves and paired differences, as in the report of `aggregator compare`.

use std::path::Path;
use std::sync::Arc;

use maud::html;

use super::super::lab::{Lab, LabError, Run, RunName};
use super::{Shown, Tab, escaped};
use crate::compare::existing::of_found;
use crate::compare::page::{Found, body};
use crate::compare::results::lines;
use crate::report::units::counted;

pub(in crate::dashboard) fn list(lab: &Lab) -> Result<Shown, LabError> {
    let names = lab.experiments()?;
    let mut rows = Vec::new();
    for name in &names {
        let runs = lab.experiment(name)?;
        let over = runs.iter().filter(|run| run.overview.over).count();
        let working = runs.iter().any(|run| run.overview.is_worked_on());
        rows.push((name, runs.len(), over, working));
    }
    let rounds = html! {
        section.card {
            @if names.is_empty() {
                p.empty { "There is no experiment here: " code { "aggregator compare experiment.toml" } " runs one." }
            } @else {
                table {
                    thead { tr { th.text scope="col" { "experiment" } th scope="col" { "runs begun" } th scope="col" { "complete" }
                        th.text scope="col" { "state" } } }
                    tbody { @for (name, begun, over, working) in rows {
                        tr {
                            th.text scope="row" { a href=(format!("/compare?experiment={}", escaped(name))) { (name) } }
                            td { (begun) } td { (over) }
                            td.text { @if working { (super::runs::state("running")) } @else { "-" } }
                        }
                    } }
                }
            }
            p.note { "Any runs are compared that are ticked among the " a href="/" { "runs" } "." }
        }
    };
    let lead = html! { (counted(names.len(), "experiment")) };
    let title = "Experiments".to_owned();
    Ok(Shown { tab: Tab::Experiments, title, lead, status: html! {}, rounds, forms: None })
}

/// The runs that a request names, or those of its experiment.
pub(in crate::dashboard) fn show(lab: &Lab, query: &[(String, String)]) -> Result<Shown, LabError> {
    let experiment = query.iter().find(|(key, _)| key == "experiment").map(|(_, name)| name);
    let runs: Vec<Arc<Run>> = if let Some(name) = experiment {
        lab.experiment(name)?
    } else {
        let named = query.iter().filter(|(key, _)| key == "run");
        let named = named.map(|(_, name)| RunName { experiment: None, name: name.clone() });
        named.map(|name| lab.run(&name)).collect::<Result<_, _>>()?
    };
    let (tab, title) = match experiment {
        Some(name) => (Tab::Experiments, name.clone()),
        None => (Tab::Runs, "Comparison".to_owned()),
    };
    if runs.is_empty() {
        let rounds = html! { section.card { p.empty { "Tick two or more " a href="/" { "runs" } " to compare them." } } };
        return Ok(Shown { tab, title, lead: html! {}, status: html! {}, rounds, forms: None });
    }
    let found: Vec<_> = runs.iter().map(|run| (run.overview.path.as_path(), &run.found)).collect();
    let (plan, rounds, unfinished) = of_found(&found);
    let lines = lines(&plan, &rounds);
    let found = Found { plan: &plan, rounds: &rounds, lines: &lines, mixtures: &[], complete: None };
    let link = |run: &str| {
        let name = Path::new(run).file_name()?.to_str()?.to_owned();
        Some(RunName { experiment: experiment.cloned(), name }.place())
    };
    let rounds = html! {
        (body(&found, &link))
        @if !unfinished.is_empty() {
            section.card { h2 { "Not over" } ul { @for run in &unfinished { li { (run) } } } }
        }
    };
    let lead = html! { (counted(runs.len(), "run")) ", seeds " (plan.seeds()) ". Differences are taken seed by seed." };
    Ok(Shown { tab, title, lead, status: html! {}, rounds, forms: None })
}
