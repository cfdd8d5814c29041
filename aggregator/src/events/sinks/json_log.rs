//! The log on standard error as JSON lines, for collectors of logs: notices as in the [event log](super::json), and the sentences that
//! are no notices with their fields.
//!
//! There is one standard error, and what is told there comes from everywhere: whether it is told so is a static.

use std::path::Path;
use std::sync::OnceLock;
use std::time::SystemTime;

use serde_json::{Map, Value, json};
use shared::calendar::{moment, utc};

use super::json::line;
use crate::events::{Level, Notice};

static ON: OnceLock<()> = OnceLock::new();
static RUN: OnceLock<(String, String)> = OnceLock::new();

/// How a sentence begins that is a warning.
const WARNING: &str = "WARNING: ";

/// From now on the log is JSON.
pub fn turn_on() {
    let _ = ON.set(());
}

/// Whether it is.
#[must_use]
pub fn is_on() -> bool {
    ON.get().is_some()
}

/// From now on lines name this run, and sentences its folder as well. A process works on one.
pub fn name_run(name: &str, folder: &Path) {
    let _ = RUN.set((name.to_owned(), folder.display().to_string()));
}

fn run() -> Option<&'static str> {
    RUN.get().map(|(name, _)| name.as_str())
}

/// The line of a notice; empty for a status and a keep-alive.
#[must_use]
pub fn of_notice(notice: &Notice<'_>) -> String {
    line(notice, run()).unwrap_or_default()
}

/// The line of a sentence with these fields.
#[must_use]
pub fn of_text(text: &str, fields: Map<String, Value>) -> String {
    let (level, text) = text.strip_prefix(WARNING).map_or((Level::Remark, text), |text| (Level::Alarm, text));
    let mut line = Map::from_iter([
        ("time".to_owned(), json!(utc(moment(SystemTime::now())))),
        ("level".to_owned(), json!(level)),
    ]);
    if let Some((run, folder)) = RUN.get() {
        line.extend([("run".to_owned(), json!(run)), ("folder".to_owned(), json!(folder))]);
    }
    line.extend(fields);
    line.insert("text".to_owned(), json!(text));
    Value::Object(line).to_string() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_an_object_with_its_level_and_fields() {
        let fields = Map::from_iter([("client".to_owned(), json!(7))]);
        let line = of_text("WARNING: the disk is slow", fields);
        let object: Value = serde_json::from_str(&line).expect("an object");
        assert_eq!((&object["level"], &object["text"]), (&json!("alarm"), &json!("the disk is slow")));
        assert_eq!(object["client"], 7);
        assert!(object["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
        let remark: Value = serde_json::from_str(&of_text("came", Map::new())).expect("an object");
        assert_eq!(remark["level"], "remark");
        assert_eq!(of_notice(&Notice::Alive), "");
    }
}
