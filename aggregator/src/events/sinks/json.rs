//! Events as JSON lines, for programs: one object per notice, appended to a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::SystemTime;

use serde::Serialize;
use shared::calendar::{moment, utc};

use crate::events::{Level, Notice, Sink, text};

/// One line of the file.
#[derive(Serialize)]
struct Line<'a> {
    /// UTC, to the second.
    time: String,
    level: Level,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'a str>,
    /// `event` is the notice's name; the other keys are its fields.
    #[serde(flatten)]
    notice: &'a Notice<'a>,
    /// The sentence for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

/// A notice as a line with an object, with the name of its run if others stand beside it. `None` of a status and a keep-alive.
pub(super) fn line(notice: &Notice<'_>, run: Option<&str>) -> Option<String> {
    if matches!(notice, Notice::Status(_) | Notice::Alive) {
        return None;
    }
    let (time, level) = (utc(moment(SystemTime::now())), notice.level());
    let line = Line { time, level, run, notice, text: text(notice) };
    Some(serde_json::to_string(&line).expect("every notice but a status is JSON") + "\n")
}

/// Appends notices to a file. Status and keep-alives are left out: they repeat what `aggregator status --json` says.
#[derive(Debug)]
pub struct JsonLines {
    file: File,
    failed: bool,
}

impl JsonLines {
    /// Appends to `path`, which is created if need be.
    ///
    /// # Errors
    /// What the system says if the file cannot be opened.
    pub fn append(path: &Path) -> io::Result<Self> {
        Ok(Self { file: OpenOptions::new().create(true).append(true).open(path)?, failed: false })
    }
}

impl Sink for JsonLines {
    fn receive(&mut self, notice: &Notice<'_>) {
        let Some(line) = line(notice, None) else { return };
        // One write a line: readers see whole lines, and a crash loses none that was written.
        let written = self.file.write_all(line.as_bytes());
        if let Err(error) = &written
            && !self.failed
        {
            tracing::warn!("the event log cannot be written: {error}");
        }
        self.failed = written.is_err();
    }
}

#[cfg(test)]
mod tests {
    use shared::id::ClientId;
    use shared::message::Refusal;

    use super::*;
    use crate::events::{Party, TaskResult};
    use crate::round::{Dominance, RoundRecord};

    #[test]
    fn a_notice_is_an_object_with_its_fields_and_its_sentence() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("events.jsonl");
        let mut log = JsonLines::append(&path).expect("the folder can be written");
        let client = ClientId::from_bytes([1; 16]);
        let result = TaskResult::Rejected("too\nlarge");
        log.receive(&Notice::Alive);
        log.receive(&Notice::Result { round: 3, client, result, shown: true, recorded: true });
        log.receive(&Notice::Refused { party: Party::Client(client), refusal: &Refusal::Revoked });
        log.receive(&Notice::Round(&RoundRecord { round: 3, ..RoundRecord::default() }));
        let dominance =
            Dominance { client, samples: 9000, share_of_samples: 0.75, share_of_weight: 0.5, bounded: 1 };
        log.receive(&Notice::Dominates { round: 3, dominance: &dominance });
        let text = std::fs::read_to_string(&path).expect("it is there");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
        let [result, refused, round, dominates] = &lines[..] else { panic!("{text}") };
        assert_eq!((&result["event"], &result["level"]), (&"result".into(), &"remark".into()), "{text}");
        assert_eq!((&result["result"], &result["reason"]), (&"rejected".into(), &"too\nlarge".into()));
        assert_eq!(result["client"], client.to_string());
        assert!(result["text"].as_str().is_some_and(|text| text.ends_with("round 3 rejected: too large")));
        assert_eq!((&refused["event"], &refused["party"]), (&"refused".into(), &"client 01010101".into()));
        assert_eq!(
            (&round["event"], &round["round"], &round["level"]),
            (&"round".into(), &3.into(), &"data".into())
        );
        assert!(round.get("text").is_none(), "{round}");
        assert_eq!(
            (&dominates["event"], &dominates["level"], &dominates["client"], &dominates["share_of_weight"]),
            (&"dominates".into(), &"alarm".into(), &client.to_string().into(), &0.5.into()),
            "{dominates}"
        );
    }
}
