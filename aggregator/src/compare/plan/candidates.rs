//! What the candidates of a variant must be: different runs, which differ in what is tuned and in nothing else.

use super::{Candidate, ExperimentError, Planned};
use crate::config::Config;
use crate::config::excerpt::{self, differences_beyond};

/// Keys in which every run differs from every other one.
const OWN: [&str; 2] = ["run.name", "run.seed"];

/// Refuses candidates that are the same, as an override of the command line can make them, and those that change a key which is
/// not tuned: a rate of SGD would take another optimiser away. `planned` are the runs of one variant, `untuned` is its configuration
/// without candidates.
pub(super) fn check(
    planned: &[Planned],
    candidates: &[Candidate],
    untuned: Option<&Config>,
) -> Result<(), ExperimentError> {
    let of = |run: &Planned| run.candidate.and_then(|candidate| candidates.get(candidate));
    let tuned: Vec<(&Planned, &Candidate)> = planned.iter().filter_map(|run| Some((run, of(run)?))).collect();
    for (run, candidate) in &tuned {
        let changes =
            untuned.map(|untuned| differences_beyond(&untuned.effective, &run.config.effective, &OWN));
        let is_tuned = |key: &str| candidate.values.iter().any(|(tuned, _)| tuned == key);
        if let Some((key, there, now)) = changes.into_iter().flatten().find(|(key, ..)| !is_tuned(key)) {
            return Err(wrong(
                candidate,
                format!(
                    "{} changes `{key}` as well, from {there} to {now}: give the variant what is tuned in its own table, or another grid \
                     in [tune.variants]",
                    candidate.text
                ),
            ));
        }
    }
    for (position, (run, candidate)) in tuned.iter().enumerate() {
        let same = |(other, _): &&(&Planned, &Candidate)| {
            differences_beyond(&other.config.effective, &run.config.effective, &OWN).is_empty()
        };
        if let Some((_, other)) = tuned[..position].iter().find(same) {
            return Err(wrong(
                candidate,
                format!(
                    "{} and {} are the same run: another setting overrides them",
                    other.text, candidate.text
                ),
            ));
        }
    }
    Ok(())
}

fn wrong(candidate: &Candidate, reason: String) -> ExperimentError {
    let key = candidate.values.first().map_or("", |(key, _)| key.as_str());
    let place = excerpt::origin(&candidate.layers, &[], key);
    ExperimentError::Content {
        place: place.map_or_else(|| "[tune]".to_owned(), |place| place.to_string()),
        reason,
    }
}
