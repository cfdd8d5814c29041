//! `model.from`: the model that a run begins with, in place of parameters that are drawn.
//!
//! It is asked for by its place. When the run begins, its round and the digest of its parameters are noted beside that, in the run's
//! own configuration: from then on it is known by the digest alone, and its place may be removed.

use std::path::Path;

use shared::section;
use shared::settings::Kind;
use toml::{Table, Value};

use super::ConfigError;
use super::full_names::absolute;

/// The libraries whose names of tensors are known by the library's name.
pub const LIBRARIES: [&str; 3] = ["torchvision", "timm", "transformers"];

section! {
    /// `model.from`: of a run, or of a file.
    #[derive(Eq)]
    pub struct ModelOrigin {
        /// Begin with the newest model of the run in this directory
        pub run: Option<String> = None, in Kind::Text(4096), unset "parameters are drawn";
        /// Begin with the model in this file, as a run leaves it
        pub file: Option<String> = None, in Kind::Text(4096), unset "parameters are drawn";
        /// Whose names its file has: torchvision, timm, transformers, or a names.toml
        pub names: Option<String> = None, in Kind::Text(4096), unset "as here";
        /// The round that it was made in
        pub in_round: Option<u32> = None, in Kind::COUNT, unset "the newest; noted when the run begins";
        /// The digest of its parameters
        pub digest: Option<String> = None, in Kind::Text(ModelOrigin::DIGITS), unset "any; noted when the run begins";
    }
}

/// Before the name of a run, where `model.from` is one text.
const RUN: &str = "run:";
/// The folder of runs in the working directory, where `--runs` names no other.
const RUNS: &str = "runs";

impl ModelOrigin {
    /// Hexadecimal digits of a digest.
    pub const DIGITS: usize = 32;

    /// The key of all of it.
    pub(super) const KEY: &str = "model.from";
    /// What is accepted in place of the table.
    pub(super) const SHORT: &str = "\"run:NAME\", the run NAME of the folder runs";

    /// The text that names the run of this name; `None` if no run can have the name.
    pub(super) fn short(name: &str) -> Option<String> {
        Kind::is_folder_name(name, usize::MAX).then(|| format!("{RUN}{name}"))
    }

    /// Writes `model.from = "run:NAME"` of a layer out: as the run NAME of the folder `runs`, by its full path. Whether that was so.
    pub(super) fn write_out(layer: &mut Table) -> Result<bool, ConfigError> {
        let Some(from) = layer.get_mut("model").and_then(|model| model.get_mut("from")) else {
            return Ok(false);
        };
        let name = from.as_str().and_then(|text| text.strip_prefix(RUN));
        let Some(name) = name.filter(|name| Kind::is_folder_name(name, usize::MAX)) else { return Ok(false) };
        let (_, run) = absolute(Self::KEY, Path::new(RUNS).join(name))?;
        *from = Value::Table(Table::from_iter([("run".to_owned(), Value::String(run))]));
        Ok(true)
    }

    /// Where it lies.
    #[must_use]
    pub fn place(&self) -> &str {
        self.run.as_deref().or(self.file.as_deref()).unwrap_or_default()
    }

    /// Whether a run that began from `begun` is what this asks for: the same parameters or, where it is left open which, the model
    /// that was at the same place then.
    pub(super) fn is_met_by(&self, begun: &Self) -> bool {
        match (&self.digest, &begun.digest) {
            (Some(asked), Some(found)) => asked == found,
            (None, Some(_)) => {
                (&self.run, &self.file, &self.names) == (&begun.run, &begun.file, &begun.names)
                    && self.in_round.is_none_or(|round| begun.in_round == Some(round))
            }
            (_, None) => false,
        }
    }
}
