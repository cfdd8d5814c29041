//! `[tune]`: values of one or two keys, of which the best is chosen for each variant in each cell.

use toml::Value;

use super::document::{ExperimentDocument, LONGEST, fits_folder};
use super::{ExperimentError, Variant};
use crate::config::excerpt::Excerpt;

/// One combination of the values.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its part of a run's name: `0.1`, of two keys `0.1+0.9`.
    pub name: String,
    /// For people: `learning-rate=0.1`, of two keys `learning-rate=0.1, momentum=0.9`.
    pub text: String,
    /// The keys that it sets, each with its value.
    pub values: Vec<(String, Value)>,
    /// Its configuration.
    pub layers: Vec<Excerpt>,
}

/// The most keys of one grid.
const KEYS: usize = 2;
/// The table of the grids that single variants have instead of the common one.
const VARIANTS: &str = "variants";

/// Gives the variants their candidates, from the table at `path`.
pub(super) fn read(
    path: &[&str],
    variants: &mut [Variant],
    read: &ExperimentDocument<'_>,
) -> Result<(), ExperimentError> {
    let Some(value) = read.value(path) else { return Ok(()) };
    if !value.is_table() {
        return Err(read.wrong(path, "`tune` is a table of keys of the configuration, each with its values"));
    }
    let common = candidates(path, read)?;
    let own = [path, &[VARIANTS]].concat();
    if read.value(&own).is_some_and(|value| !value.is_table()) {
        let reason =
            "`variants` is a table by the names of variants, each with a grid of its own, or none in {}";
        return Err(read.wrong(&own, reason));
    }
    for name in read.document.names(&own) {
        if !variants.iter().any(|variant| variant.name == name) {
            let names: Vec<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
            let reason = format!("`{name}` is none of the variants {}", names.join(", "));
            return Err(read.wrong(&[&own[..], &[&name]].concat(), reason));
        }
    }
    for variant in variants {
        let path = [&own[..], &[variant.name.as_str()]].concat();
        variant.candidates =
            if read.value(&path).is_some() { candidates(&path, read)? } else { common.clone() };
    }
    Ok(())
}

/// All combinations of the values of the keys in this table. None if it has no keys.
fn candidates(path: &[&str], read: &ExperimentDocument<'_>) -> Result<Vec<Candidate>, ExperimentError> {
    if read.value(path).is_some_and(|value| !value.is_table()) {
        let reason = "a table of keys of the configuration is needed here, each with its values";
        return Err(read.wrong(path, reason));
    }
    let keys: Vec<String> = read.document.names(path).into_iter().filter(|key| key != VARIANTS).collect();
    if keys.len() > KEYS {
        let reason = format!("{} keys are tuned together, and at most {KEYS} can be", keys.len());
        return Err(read.wrong(path, reason));
    }
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let mut found =
        vec![Candidate { name: String::new(), text: String::new(), values: Vec::new(), layers: Vec::new() }];
    for key in &keys {
        let place = [path, &[key.as_str()]].concat();
        let values = match read.value(&place) {
            Some(Value::Array(values)) if values.len() > 1 => values,
            _ => {
                let reason = format!(
                    "`{key}` needs a list of at least two values to choose from, and is a quoted key of the configuration, such as \
                     \"training.optimizer.sgd.learning-rate\" = [0.03, 0.1, 0.3]"
                );
                return Err(read.wrong(&place, reason));
            }
        };
        let short = key.rsplit('.').next().unwrap_or(key);
        let mut longer = Vec::new();
        for candidate in &found {
            for value in values {
                let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let join = |so_far: &str, between: &str, next: &str| match so_far {
                    "" => next.to_owned(),
                    so_far => format!("{so_far}{between}{next}"),
                };
                let name = join(&candidate.name, "+", &shown);
                if !fits_folder(&name) {
                    let reason = format!(
                        "{name:?} becomes part of a folder's name, and has more than {LONGEST} characters or others than letters, digits \
                         and - _ . = +: choose values that are written shorter"
                    );
                    return Err(read.wrong(&place, reason));
                }
                let mut next = Candidate {
                    name,
                    text: join(&candidate.text, ", ", &format!("{short}={shown}")),
                    ..candidate.clone()
                };
                next.values.push((key.clone(), value.clone()));
                next.layers.push(read.document.setting(&place, key, value.clone()));
                longer.push(next);
            }
        }
        found = longer;
    }
    let mut names: Vec<&str> = found.iter().map(|candidate| candidate.name.as_str()).collect();
    names.sort_unstable();
    if let Some([twice, _]) = names.array_windows().find(|[one, next]| one == next) {
        return Err(read.wrong(path, format!("`{twice}` stands there twice")));
    }
    Ok(found)
}
