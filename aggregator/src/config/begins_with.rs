//! The check of `model.from`: one place, by its full name.

use super::combinations::Combinations;
use super::full_names::absolute;
use super::{LIBRARIES, ModelOrigin, Raw};

/// Refuses a place that is none, or two, and puts its full name into `raw`.
pub(super) fn check(raw: &mut Raw, checks: &mut Combinations<'_>) {
    if checks.findings.is_doubtful("model.from") {
        return;
    }
    // An empty table asks for nothing.
    raw.model.from.take_if(|from| *from == ModelOrigin::default());
    let fresh =
        raw.model.fresh.as_ref().map(|patterns| ("model.fresh", format!("model.fresh = {patterns:?}")));
    let Some(from) = &mut raw.model.from else {
        if let Some(fresh) = fresh {
            let reason = "all tensors are drawn where the run begins with no other model; give model.from, or leave it out";
            checks.refuse(&[fresh], reason);
        }
        return;
    };
    let given = ["model.from.run", "model.from.file"].map(|key| (key, key.to_owned()));
    let place = match (&mut from.run, &mut from.file) {
        (Some(_), Some(_)) => {
            return checks.refuse(
                &given,
                "a run begins with one model; leave one of them out (--set model.from.run=)",
            );
        }
        (None, None) => {
            let given = [("model.from", "model.from.in-round or .digest alone".to_owned())];
            let reason =
                "they say which model is meant, and not where it is; give model.from.run or model.from.file";
            return checks.refuse(&given, reason);
        }
        (Some(place), None) | (None, Some(place)) => place,
    };
    match absolute("model.from", place.as_str().into()) {
        Ok((_, full)) => *place = full,
        Err(error) => checks.findings.add(error),
    }
    if let Some(names) = &mut from.names {
        if from.run.is_some() {
            let given = [("model.from.names", format!("model.from.names = {names:?}"))];
            return checks.refuse(&given, "a run calls tensors as its own network does: leave it out");
        }
        if !LIBRARIES.contains(&names.as_str()) {
            match absolute("model.from.names", names.as_str().into()) {
                Ok((_, full)) => *names = full,
                Err(error) => checks.findings.add(error),
            }
        }
    }
    let is_digest = |text: &&String| {
        text.len() == ModelOrigin::DIGITS
            && text.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c))
    };
    if let Some(other) = from.digest.as_ref().filter(|digest| !is_digest(digest)) {
        let given = [("model.from.digest", format!("model.from.digest = {other:?}"))];
        let reason = format!(
            "a digest has {} digits of 0 to 9 and a to f, as a run's own config.toml has it; leave it out to take the model as it is",
            ModelOrigin::DIGITS
        );
        checks.refuse(&given, &reason);
    }
}
