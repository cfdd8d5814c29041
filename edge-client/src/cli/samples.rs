//! Arguments that name samples, and reading them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueHint};
use models::Architecture;
use shared::data::{DataError, Inputs, Labels, OnError, ReadOptions, Split, View, inputs, registry};
use shared::spec::DataSpec;

use super::error::{CliError, Exit};
use super::event::{left_out, printable};
use super::terminal;

/// The samples of a command.
#[derive(Clone, Debug, Args)]
pub struct SampleArguments {
    /// Directory of the samples, in any of the formats that --help lists
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub data: PathBuf,
    /// Column of a CSV table that holds the labels [default: as the run or the model says, else label]
    #[arg(long, value_name = "COLUMN")]
    pub label: Option<String>,
    /// What to do about a sample that cannot be used: a damaged image, a row without a label
    #[arg(long, value_enum, default_value_t = OnError::Stop)]
    pub on_error: OnError,
}

impl SampleArguments {
    /// Reads a split for a model. `spec` describes the samples, if the model's file does.
    pub(super) fn load(
        &self,
        split: Split,
        spec: Option<&DataSpec>,
        model: &Architecture,
    ) -> Result<View, DataError> {
        let options = DataSpec::reading(spec, model.task, model.classes);
        let options = ReadOptions { on_error: self.on_error, ..options.with_column(self.label.as_deref())? };
        let (_, data) = registry::read(&self.data, split, &options)?;
        if let Some(left_out) = left_out(data.skipped()) {
            terminal::print(&printable(&left_out));
        }
        Ok(View::whole(Arc::new(data)))
    }
}

/// The samples of a device that joins.
#[derive(Clone, Debug, Args)]
pub struct OwnSampleArguments {
    /// Directory of the samples, in any of the formats that --help lists
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, required_unless_present = "trainer")]
    data: Option<PathBuf>,
    /// Column of a CSV table that holds the labels [default: as the run or the model says, else label]
    #[arg(long, value_name = "COLUMN")]
    pub label: Option<String>,
    /// What to do about a sample that cannot be used: a damaged image, a row without a label
    #[arg(long, value_enum, default_value_t = OnError::Stop)]
    pub on_error: OnError,
}

impl OwnSampleArguments {
    /// Their directory. clap requires it unless a trainer reads the samples.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.data.as_deref().unwrap_or(Path::new("."))
    }
}

/// What a model is asked about.
#[derive(Clone, Debug, Args)]
pub struct InputArguments {
    /// The samples: a folder in any of the formats that --help lists, or of images; an image; a CSV table; - for one from standard input
    ///
    /// Labels need not be there: without them there is no accuracy.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath, required_unless_present_any = ["listen", "text"])]
    pub data: Option<PathBuf>,
    /// Column of a CSV table that holds the labels, if it is there [default: as the model says, else label]
    #[arg(long, value_name = "COLUMN")]
    pub label: Option<String>,
    /// What to do about a sample that cannot be used: a damaged image, a row without a number
    #[arg(long, value_enum, default_value_t = OnError::Stop)]
    pub on_error: OnError,
}

impl InputArguments {
    /// Reads what a model is asked about. `spec` describes the samples, if the model's file does.
    pub(super) fn load(
        &self,
        split: Split,
        spec: Option<&DataSpec>,
        model: &Architecture,
    ) -> Result<Inputs, DataError> {
        let options = DataSpec::reading(spec, model.task, model.classes);
        let options = ReadOptions { on_error: self.on_error, ..options.with_column(self.label.as_deref())? };
        // clap asks for it wherever this is called.
        let data = self.data.as_deref().unwrap_or(Path::new("."));
        let read = inputs::read(data, split, &options)?;
        if let Some(left_out) = left_out(read.dataset.skipped()) {
            terminal::print(&printable(&left_out));
        }
        Ok(read)
    }
}

/// The error of a command for which `way` names the option that uses the other split.
pub(super) fn or_by(way: &'static str) -> impl FnOnce(DataError) -> CliError {
    move |problem| match problem {
        DataError::OtherSplit { .. } => CliError::new(Exit::Local, format!("{problem}; {way}")),
        problem => problem.into(),
    }
}

/// Classes, by number or by their names.
pub(super) fn classes(text: &str) -> Result<Labels, String> {
    if let Ok(number) = text.parse::<i64>() {
        return match number {
            1..=65_536 => Ok(Labels::Numbers(number as usize)),
            _ => Err(format!("{number} classes: give a number from 1 to 65536, or the names of the classes")),
        };
    }
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    let repeated = names.iter().enumerate().any(|(at, name)| names[..at].contains(name));
    if repeated || names.iter().any(String::is_empty) {
        return Err("give different names with a comma between them, as in cat,dog".to_owned());
    }
    Ok(Labels::Names(names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_a_number_or_names() {
        assert_eq!(classes("100"), Ok(Labels::Numbers(100)));
        assert_eq!(classes("cat, dog"), Ok(Labels::Names(vec!["cat".to_owned(), "dog".to_owned()])));
        for wrong in ["0", "-1", "65537", "", "cat,,dog", "cat,cat"] {
            assert!(classes(wrong).is_err(), "{wrong}");
        }
    }
}
