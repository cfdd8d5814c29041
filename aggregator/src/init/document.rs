//! The configuration as text: what was found, what was chosen, and why.

use std::fmt::Write as _;

use models::shape::spelled;
use shared::data::Labels;
use shared::data::survey::Survey;

use super::Choice;

/// Column at which comments begin, where the line leaves room.
const COMMENT: usize = 34;

/// A `run.toml` that runs as it is.
pub(super) fn of(survey: &Survey, choice: &Choice, path: &str, name: &str) -> String {
    let mut text = format!(
        "# A federated run on the samples in {path}, written by aggregator init {}.\n\
         # Found: {}.\n\
         # `aggregator config FILE` shows every other key with its default and what it means.\n",
        env!("CARGO_PKG_VERSION"),
        one_line(&survey.in_words())
    );
    for note in &survey.notes {
        let _ = writeln!(text, "# Note: {}.", one_line(note));
    }
    let mut out = Lines { text };
    out.section("run");
    out.key("name", &quoted(name), "of the folder in runs/");
    out.key("rounds", &choice.rounds.to_string(), "communication rounds");
    out.key("seed", "1", "the same seed gives the same bytes");

    out.section("data");
    out.key("set", &quoted(survey.set.name), &format!("{}", survey.format));
    out.key("path", &quoted(path), "relative to this file");
    if survey.set.is_own() {
        let shape = match survey.text {
            Some(_) => "bytes of a text that count; devices are told",
            None => "of a sample; devices are told",
        };
        out.key("shape", &quoted(&spelled(&survey.shape)), shape);
        match &survey.labels {
            Labels::Names(names) => {
                let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
                out.key("class-names", &format!("[{}]", names.join(", ")), "their order is their number");
            }
            Labels::Numbers(classes) => {
                out.key("classes", &classes.to_string(), "labels are 0 to this, less 1");
            }
            Labels::Values { outputs: 2.., .. } => {
                let comment = "numbers of a sample; data.targets in its place names them";
                out.key("classes", &survey.labels.classes().to_string(), comment);
            }
            Labels::Values { .. } => {}
        }
    }
    columns(&mut out, survey);
    out.key("clients", &choice.clients.to_string(), "simulated, or devices that are expected");
    if !survey.set.is_text() {
        out.key(
            "partition",
            "{ iid = {} }",
            "how a simulation divides the samples; or dirichlet, shards, ...",
        );
    }

    out.section("model");
    out.key("name", &quoted(choice.model), choice.reason);
    if let Some(vocabulary) = survey.vocabulary {
        out.key("vocabulary", &vocabulary.to_string(), "tokens are 0 to this, less 1");
    }
    if let Labels::Values { flags, .. } = survey.labels {
        let (task, comment) = if flags {
            ("multi-label", "any of the classes may apply")
        } else {
            ("regression", "numbers are learned")
        };
        out.key("task", &quoted(task), comment);
    }

    out.section("training");
    out.key("epochs", &choice.epochs.to_string(), "of a client in a round");
    out.key("batch", &choice.batch.to_string(), "samples in a step");
    out.key(
        "optimizer",
        &format!("{{ {} = {{ learning-rate = {} }} }}", choice.optimizer.0, choice.optimizer.1),
        "",
    );

    out.section("algorithm.fedavg");

    out.section("round");
    out.key("fraction", &format!("{:?}", choice.fraction), "of the clients is asked in a round");
    if !survey.test {
        out.section("evaluate");
        out.text.push_str(
            "# There is no test split: each client holds some of its samples out, and tests on them.\n",
        );
        out.key("every", "0", "the server has nothing to test on");
        out.key("on-clients-every", "1", "rounds between tests by the clients");
        out.key("hold-out", "0.2", "share of a client's samples");
    }
    out.text
}

/// Which columns of a table are what.
fn columns(out: &mut Lines, survey: &Survey) {
    if let Some(column) = survey.column.as_ref().filter(|column| *column != "label") {
        let comment = match survey.labels {
            Labels::Values { .. } => "the column that is learned",
            _ => "the column that holds the labels",
        };
        out.key("label", &quoted(column), comment);
    }
    if let Some(text) = &survey.text {
        out.key("text", &quoted(text), "the column that holds the texts");
    }
    if !survey.features.is_empty() {
        let names: Vec<String> = survey.features.iter().map(|name| quoted(name)).collect();
        out.key("features", &format!("[{}]", names.join(", ")), "by name, in any order on a device");
    }
    if let Some((mean, deviation)) = &survey.moments {
        out.key("normalise", "\"channels\"", "columns are brought to one scale");
        out.key("mean", &numbers(mean), "");
        out.key("std", &numbers(deviation), "");
    }
}

struct Lines {
    text: String,
}

impl Lines {
    fn section(&mut self, name: &str) {
        let _ = write!(self.text, "\n[{name}]\n");
    }

    fn key(&mut self, key: &str, value: &str, comment: &str) {
        let line = format!("{key} = {value}");
        let _ = if comment.is_empty() {
            writeln!(self.text, "{line}")
        } else {
            writeln!(self.text, "{line:<COMMENT$} # {comment}")
        };
    }
}

/// A TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Names of files and columns may hold line breaks, which would end a comment.
fn one_line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

fn numbers(values: &[f64]) -> String {
    let values: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("[{}]", values.join(", "))
}
