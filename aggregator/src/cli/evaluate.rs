//! `aggregator evaluate`: a trained model, or an ensemble of them, on a data set.

use clap::Args;
use models::{Architecture, Backend, Network, ParamSet};
use serde_json::{Value, json};
use shared::cli::{ByLabel, by_class_json, by_class_text, counted, evaluation_json, evaluation_text};
use shared::data::Split;
use std::fmt::Write as _;

use super::exit::Failure;
use super::load_model::{BATCH, ModelArgs, Samples, Usable, no_answer};
use super::predict::values;
use super::terminal;
use crate::data::TestSet;
use crate::ensemble::{Bundle, Question};

#[derive(Debug, Args)]
pub(super) struct EvaluateArgs {
    #[command(flatten)]
    given: ModelArgs,
    /// Test on both splits of the data, and print the results of each
    #[arg(long, conflicts_with = "train")]
    every_split: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Results for programs and for people.
type Results = (Value, String);

pub(super) fn evaluate(arguments: &EvaluateArgs) -> Result<(), Failure> {
    let given = &arguments.given;
    if arguments.every_split && given.is_file() {
        return Err(Failure::Usage(
            "--every-split is for data of two splits, and --data names one file: leave it out".to_owned(),
        ));
    }
    let (path, usable) = given.model()?;
    let splits = if arguments.every_split { vec![Split::Test, Split::Train] } else { vec![given.split()] };
    let of_split = |&split: &Split| {
        let samples = given.samples(&path, &usable, split)?.labelled()?;
        match &usable {
            Usable::Model(architecture, params, _) => model(given, (architecture, params), &usable, samples),
            Usable::Ensemble(bundle) => ensemble(given, bundle, &samples),
        }
    };
    let results = splits.iter().map(of_split).collect::<Result<Vec<Results>, Failure>>()?;
    if !arguments.json {
        let texts: Vec<String> = results.into_iter().map(|(_, text)| text).collect();
        return terminal::print(&texts.join("\n"));
    }
    let mut objects = results.into_iter().map(|(object, _)| object);
    if arguments.every_split {
        let named: serde_json::Map<_, _> =
            splits.iter().map(|split| split.name().to_owned()).zip(objects).collect();
        return terminal::print_json(&named);
    }
    terminal::print_json(&objects.next().unwrap_or_default())
}

fn model(
    given: &ModelArgs,
    (architecture, params): (&Architecture, &ParamSet),
    usable: &Usable,
    samples: Samples,
) -> Result<Results, Failure> {
    let Samples { view, called, names } = samples;
    if !architecture.task.is_classification() {
        let (network, mut by_label) =
            (&mut Network::new(architecture, params, &Backend::cpu())?, ByLabel::default());
        let evaluation = values(network, usable, &view, &given.model, &mut |row| {
            by_label.count(row);
            Ok(())
        })?;
        let mut object = evaluation_json(&evaluation);
        if !by_label.is_empty() {
            object["by-label"] = by_label.json(&names);
        }
        let whole = format!("{} on {called}: {}\n", architecture.name, evaluation_text(&evaluation));
        return Ok((object, whole + &by_label.text(&names)));
    }
    let tests = TestSet::new(view, usable.preparation(), BATCH);
    let (evaluation, by_class) = tests.evaluate_by_class(architecture, params, &Backend::cpu())?;
    if !evaluation.loss.is_finite() {
        return Err(no_answer(&given.model));
    }
    let mut object = evaluation_json(&evaluation);
    let whole = format!("{} on {called}: {}\n", architecture.name, evaluation_text(&evaluation));
    object["by-class"] = by_class_json(&by_class, &names);
    Ok((object, whole + &by_class_text(&by_class, &names, terminal::columns())))
}

/// Every fusion and the members alone, since the members have to be run for one of them anyway.
fn ensemble(given: &ModelArgs, bundle: &Bundle, samples: &Samples) -> Result<Results, Failure> {
    let Samples { view, called, names } = samples;
    let manifest = &bundle.manifest;
    let chosen = given.fusion.unwrap_or(manifest.answering.fusion);
    let preparation = &manifest.data.preparation;
    let question = Question { view, preparation, batch: BATCH, fusions: manifest.answering.head.fusions() };
    let ((by, members), by_class) = bundle.evaluate_by_class(&question, chosen)?;
    let evaluation = by.get(&chosen).copied().unwrap_or_default();
    // The first of equals.
    let best = members.iter().enumerate().reduce(|a, b| if b.1.accuracy > a.1.accuracy { b } else { a });
    let fusions: serde_json::Map<_, _> =
        by.iter().map(|(fusion, evaluation)| (fusion.to_string(), evaluation_json(evaluation))).collect();
    let alone: Vec<_> = manifest
        .members
        .iter()
        .zip(&members)
        .map(|(member, evaluation)| json!({ "client": member.client, "samples": member.samples, "alone": evaluation_json(evaluation) }))
        .collect();
    let mut object = evaluation_json(&evaluation);
    object["fusion"] = json!(chosen);
    object["fusions"] = fusions.into();
    object["members"] = alone.into();
    object["by-class"] = by_class_json(&by_class, names);
    let mut text = format!(
        "{}, {}, {chosen} fusion, on {called}: {}\n",
        manifest.architecture.name,
        counted(members.len(), "member"),
        evaluation_text(&evaluation)
    );
    for (fusion, evaluation) in by.iter().filter(|(fusion, _)| **fusion != chosen) {
        let _ = writeln!(text, "  {:<22} {}", format!("{fusion} fusion"), evaluation_text(evaluation));
    }
    if let Some((number, evaluation)) = best {
        let name = format!("best member ({})", manifest.members[number].client.short());
        let _ = writeln!(text, "  {name:<22} {}", evaluation_text(evaluation));
    }
    text.push_str(&by_class_text(&by_class, names, terminal::columns()));
    Ok((object, text))
}
