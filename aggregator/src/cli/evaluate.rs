//! `aggregator evaluate`: a trained model, or an ensemble of them, on a data set.

use clap::Args;
use models::{Backend, Evaluation, PerClass};
use serde_json::json;
use shared::algorithm::Fusion;
use shared::cli::Names;
use shared::data::View;
use std::fmt::Write as _;

use super::exit::Failure;
use super::load_model::{BATCH, ModelArgs, Opened, Usable, no_answer};
use super::{per_class, terminal};
use crate::data::TestSet;
use crate::ensemble::{Bundle, Question};

#[derive(Debug, Args)]
pub(super) struct EvaluateArgs {
    #[command(flatten)]
    given: ModelArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn evaluate(arguments: &EvaluateArgs) -> Result<(), Failure> {
    let given = &arguments.given;
    let Opened { usable, view, called, names } = given.open()?.labelled()?;
    let (architecture, params) = match &usable {
        Usable::Model(architecture, params, _) => (architecture, params),
        Usable::Ensemble(bundle) => return ensemble(arguments, bundle, &view, &called, &names),
    };
    let tests = TestSet::new(view, usable.preparation(), BATCH);
    let (evaluation, by_class) = tests.evaluate_by_class(architecture, params, &Backend::cpu())?;
    if !evaluation.loss.is_finite() {
        return Err(no_answer(&given.model));
    }
    if arguments.json {
        let mut object = json!(evaluation);
        object["by-class"] = per_class::json(&by_class, &names);
        return terminal::print_json(&object);
    }
    let whole = format!("{} on {called}: {}\n", architecture.name, in_words(&evaluation));
    terminal::print(&(whole + &per_class::text(&by_class, &names, terminal::columns())))
}

fn in_words(evaluation: &Evaluation) -> String {
    format!(
        "accuracy {:.2} % ({} of {}), loss {:.4}",
        100.0 * evaluation.accuracy,
        evaluation.correct,
        evaluation.samples,
        evaluation.loss
    )
}

/// Every fusion and the members alone, since the members have to be run for one of them anyway.
fn ensemble(
    arguments: &EvaluateArgs,
    bundle: &Bundle,
    view: &View,
    called: &str,
    names: &Names,
) -> Result<(), Failure> {
    let manifest = &bundle.manifest;
    let chosen = arguments.given.fusion.unwrap_or(manifest.answering.fusion);
    let preparation = &manifest.data.preparation;
    let question = Question { view, preparation, batch: BATCH, fusions: &Fusion::ALL };
    let mut by_class = PerClass::new(manifest.architecture.classes);
    let (by, members) = bundle.evaluate_each(&question, &mut |answers| {
        for (fused, &label) in answers.fused.get(&chosen).into_iter().flatten().zip(answers.labels) {
            let class = fused.class();
            by_class.count(label, class as u32, fused.log_probabilities[class].exp());
        }
    })?;
    let evaluation = by.get(&chosen).copied().unwrap_or_default();
    // The first of equals.
    let best = members.iter().enumerate().reduce(|a, b| if b.1.accuracy > a.1.accuracy { b } else { a });
    if arguments.json {
        let fusions: serde_json::Map<_, _> =
            by.iter().map(|(fusion, evaluation)| (fusion.to_string(), json!(evaluation))).collect();
        let alone: Vec<_> = manifest
            .members
            .iter()
            .zip(&members)
            .map(|(member, evaluation)| json!({ "client": member.client, "samples": member.samples, "alone": evaluation }))
            .collect();
        let Evaluation { loss, accuracy, samples, correct } = evaluation;
        return terminal::print_json(&json!({
            "accuracy": accuracy, "loss": loss, "samples": samples, "correct": correct,
            "fusion": chosen, "fusions": fusions, "members": alone, "by-class": per_class::json(&by_class, names),
        }));
    }
    let mut text = format!(
        "{}, {} members, {chosen} fusion, on {called}: {}\n",
        manifest.architecture.name,
        members.len(),
        in_words(&evaluation)
    );
    for (fusion, evaluation) in by.iter().filter(|(fusion, _)| **fusion != chosen) {
        let _ = writeln!(text, "  {:<22} {}", format!("{fusion} fusion"), in_words(evaluation));
    }
    if let Some((number, evaluation)) = best {
        let name = format!("best member ({})", manifest.members[number].client.short());
        let _ = writeln!(text, "  {name:<22} {}", in_words(evaluation));
    }
    text.push_str(&per_class::text(&by_class, names, terminal::columns()));
    terminal::print(&text)
}
