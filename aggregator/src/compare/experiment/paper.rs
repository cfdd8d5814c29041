//! Checks of published numbers: one for an unknown cell or variant is a misprint and would otherwise be lost silently.

use super::document::ExperimentDocument;
use super::{Axis, ExperimentError, Paper, Variant};

/// Checks published numbers against all axes and variants of the file, before a form leaves any out.
pub(super) fn check(
    paper: &Paper,
    axes: &[Axis],
    variants: &[Variant],
    read: &ExperimentDocument<'_>,
) -> Result<(), ExperimentError> {
    for (name, rounds) in &paper.rounds {
        let path = ["paper", "rounds", name];
        known(name, axes, variants).map_err(|reason| read.wrong(&path, reason))?;
        if !rounds.is_finite() || *rounds < 0.0 {
            return Err(read.wrong(&path, format!("`{name}` is {rounds}, and should be a number of rounds")));
        }
    }
    let accuracies = paper.accuracy.iter().map(|(name, accuracy)| ("accuracy", name, vec![*accuracy]));
    let metrics =
        paper.metrics.iter().map(|(name, metrics)| ("metrics", name, metrics.values().copied().collect()));
    for (key, name, shares) in accuracies.chain(metrics) {
        let path = ["paper", key, name];
        known(name, axes, variants).map_err(|reason| read.wrong(&path, reason))?;
        if let Some(wrong) = shares.iter().find(|share| !(0.0..=100.0).contains(*share)) {
            return Err(read.wrong(&path, format!("`{name}` is {wrong}, and should be per cent, 0 to 100")));
        }
    }
    Ok(())
}

/// Checks that `name` is a variant in its cell: a point of each axis, then a variant.
fn known(name: &str, axes: &[Axis], variants: &[Variant]) -> Result<(), String> {
    let variants: Vec<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
    let points = axes.iter().map(|axis| axis.points.iter().map(|point| point.name.as_str()).collect());
    let all: Vec<Vec<&str>> = points.chain([variants]).collect();
    let parts: Vec<&str> = name.split('/').collect();
    if parts.len() != all.len() {
        let example: Vec<&str> = all.iter().filter_map(|names| names.first().copied()).collect();
        return Err(format!("`{name}` names no variant in its cell, such as `{}`", example.join("/")));
    }
    for (at, (part, names)) in parts.iter().zip(&all).enumerate() {
        if !names.contains(part) {
            let what = match axes.get(at) {
                Some(axis) => format!("`{part}` in [grid.{}]", axis.name),
                None => format!("variant `{part}`"),
            };
            let are = if names.len() == 1 { "is" } else { "are" };
            return Err(format!("`{name}`: there is no {what}; there {are} {}", names.join(", ")));
        }
    }
    Ok(())
}
