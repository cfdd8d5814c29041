//! `aggregator init`: a configuration for the user's own data.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use models::shape::spelled;
use serde_json::json;
use shared::cli::counted;
use shared::data::DataError;
use shared::data::survey::SurveyError;

use super::exit::Failure;
use super::terminal;
use crate::init::Suggestion;
use crate::storage::{Disk, write_durably};

#[derive(Debug, Args)]
pub(super) struct InitArgs {
    /// Folder of the samples: images by class, a CSV table, safetensors, IDX files or a text
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// File to write
    #[arg(long, value_name = "FILE", default_value = "run.toml")]
    out: PathBuf,
    /// Replace the file if it is there
    #[arg(long)]
    force: bool,
    /// Print one JSON object: what was found, and what was chosen
    #[arg(long)]
    json: bool,
}

pub(super) fn init(arguments: &InitArgs) -> Result<(), Failure> {
    let out = &arguments.out;
    if out.exists() && !arguments.force {
        return Err(Failure::Environment(format!(
            "{} is there already, and is not replaced without --force; --out FILE writes another one",
            out.display()
        )));
    }
    let path = from_file(&arguments.folder, out)?;
    let suggestion = Suggestion::of(&arguments.folder, &path, &run_name(&arguments.folder))
        .map_err(|error| refused(&error))?;
    write_durably(&Disk, out, |file| file.write_all(suggestion.text.as_bytes()))
        .map_err(|error| Failure::file("write", out, error))?;
    let Suggestion { survey, choice, .. } = &suggestion;
    if arguments.json {
        return terminal::print_json(&json!({
            "file": out, "set": survey.set.name, "format": survey.format.to_string(), "shape": spelled(&survey.shape),
            "classes": survey.labels.classes(), "class-names": survey.labels.names(), "label": survey.column,
            "train": survey.train, "test": survey.test, "model": choice.model, "clients": choice.clients,
            "notes": survey.notes,
        }));
    }
    let mut text = format!("found {}\n", survey.in_words());
    for note in &survey.notes {
        let _ = writeln!(text, "note  {note}");
    }
    if !survey.test {
        text.push_str(
            "note  there is no test split: each client holds a fifth of its samples out and tests on them\n",
        );
    }
    let file = out.display();
    let _ = write!(
        text,
        "wrote {file}: {} on {}\n\nNext:\n  \
         aggregator data describe {file}    who would have what\n  \
         aggregator simulate {file}         train here, over simulated clients\n  \
         aggregator serve {file}            train on devices, which join with a ticket\n",
        choice.model,
        counted(choice.clients, "client")
    );
    terminal::print(&text)
}

fn refused(error: &SurveyError) -> Failure {
    let way = match error {
        SurveyError::Data(DataError::OtherSplit { .. }) => {
            ": put samples to train on there as well".to_owned()
        }
        SurveyError::Data(DataError::Unclear { .. }) => {
            "; aggregator init --help shows how each kind of data lies in a folder".to_owned()
        }
        _ => String::new(),
    };
    Failure::Environment(format!("{error}{way}"))
}

/// The folder as a file at `out` names it: relative if it lies beside or below that file, else absolute.
fn from_file(folder: &Path, out: &Path) -> Result<String, Failure> {
    let absolute = |path: &Path| path.canonicalize().map_err(|error| Failure::file("find", path, error));
    let beside = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (folder, beside) = (absolute(folder)?, absolute(beside)?);
    let named = match folder.strip_prefix(&beside) {
        Ok(rest) if rest.as_os_str().is_empty() => Path::new("."),
        Ok(rest) => rest,
        Err(_) => &folder,
    };
    named.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::Environment(format!(
            "the name of {} is not UTF-8, which a configuration has to be: give it another name",
            folder.display()
        ))
    })
}

/// A run is called by the folder of its samples, as far as that can name a folder.
fn run_name(folder: &Path) -> String {
    let name =
        folder.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let usual = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_');
    let name: String = name
        .unwrap_or_default()
        .chars()
        .map(|character| if usual(character) { character } else { '-' })
        .take(60)
        .collect();
    let name = name.trim_matches('-').to_owned();
    if name.is_empty() || name == "identity" { "mine".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_named_as_the_file_sees_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let data = folder.path().join("my data");
        std::fs::create_dir(&data).expect("a folder in it");
        let place = |out: &str| from_file(&data, &folder.path().join(out)).expect("both are there");
        assert_eq!(place("run.toml"), "my data");
        assert_eq!(place("my data/run.toml"), ".");
        let outside = from_file(folder.path(), &data.join("run.toml")).expect("both are there");
        assert!(Path::new(&outside).is_absolute(), "{outside}");
        assert_eq!(run_name(&data), "my-data");
        assert_eq!(run_name(Path::new("/")), "mine");
    }
}
