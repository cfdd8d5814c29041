//! `--from`: a run begins with the model of another one.

use std::path::Path;

use toml::Value;

use super::exit::Failure;
use super::{ConfigArgs, RunArgs};
use crate::config::Config;
use crate::report::units::percent;
use crate::start::Started;

/// The keys of `model.from`, which `--from` sets or takes back.
const KEYS: [&str; 5] =
    ["model.from.run", "model.from.file", "model.from.names", "model.from.in-round", "model.from.digest"];

impl RunArgs {
    /// The configuration, of a run that has no identity yet, with what `--from` says.
    pub(super) fn validated(&self) -> Result<Config, Failure> {
        self.config.beginning_with(self.from.as_deref())?.validated()
    }
}

impl ConfigArgs {
    /// The same with `--from` as settings of `model.from`, in place of what the configuration's file has there.
    pub(super) fn beginning_with(&self, from: Option<&Path>) -> Result<Self, Failure> {
        let Some(from) = from else { return Ok(self.clone()) };
        let is_origin = |given: &&String| {
            let given = given.trim_start();
            given.starts_with("model.from") && !given.starts_with("model.from.names")
        };
        if let Some(given) = self.overrides.iter().find(is_origin) {
            return Err(Failure::Usage(format!(
                "--from and --set {given} both say what the run begins with: leave one of them out"
            )));
        }
        let Some(text) = from.to_str() else {
            return Err(Failure::Usage(format!(
                "--from {}: a configuration can only hold a path that is UTF-8; rename it",
                from.display()
            )));
        };
        // Where nothing is there, as when a run is continued without it, its name tells.
        let is_file =
            from.is_file() || !from.is_dir() && from.extension().is_some_and(|end| end == "safetensors");
        let key = if is_file { "model.from.file" } else { "model.from.run" };
        // First, so that names given with it stand.
        let mut overrides: Vec<String> = KEYS.map(|key| format!("{key}=")).into();
        overrides.extend(self.overrides.iter().cloned());
        overrides.push(format!("{key}={}", Value::String(text.to_owned())));
        Ok(Self { overrides, ..self.clone() })
    }
}

/// From which model the run began, in words; `None` if its parameters were drawn.
pub(super) fn begun_from(started: &Started) -> Option<String> {
    let origin = started.run.config().effective.model.from.as_ref()?;
    let place = Path::new(origin.place());
    let here = std::env::current_dir().ok();
    let place = here.and_then(|here| place.strip_prefix(here).ok()).unwrap_or(place);
    let round = origin.in_round.map_or_else(String::new, |round| format!(", round {round}"));
    let accuracy =
        started.initial_accuracy.map_or_else(String::new, |accuracy| format!(" ({})", percent(accuracy)));
    Some(format!("from {}{round}{accuracy}", place.display()))
}
