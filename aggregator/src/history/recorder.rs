//! The recorder of notices, on a thread of its own.

use std::collections::BTreeSet;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use rusqlite::Transaction;
use shared::id::{ClientId, RunId};

use super::{Health, rows, skipped_samples};
use crate::coordinator::{Load, Status};
use crate::database::{Database, moment};
use crate::events::{Level, Notice, Sink, printable, text};

/// Entries within this time share a transaction, and its sync.
const BATCH_INTERVAL: Duration = Duration::from_millis(200);

/// Interval of retries while the database cannot be written.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Interval at which mere progress is recorded.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// Entries that are queued while the database cannot be written; of more, the oldest are dropped. Closed rounds are not among
/// them.
const MAX_QUEUED: usize = 10_000;

/// An entry to write.
enum Entry {
    Status(Box<Status<i64>>),
    Opened { round: u32, cohort: usize },
    Arrived { round: u32, client: ClientId, verdict: &'static str, reason: String },
    LeftOut { client: ClientId, samples: u64 },
    Said { alarm: bool, text: String },
    Ended { outcome: &'static str },
}

/// Says what the listener is at.
pub type LoadOf = Box<dyn Fn() -> Load + Send>;

/// Records notices without blocking the caller.
pub struct Recorder {
    entries: Sender<(i64, Entry)>,
    thread: JoinHandle<()>,
    load: LoadOf,
    last: Option<(Instant, Status<i64>)>,
}

impl Recorder {
    /// Starts to record `run`, which a [`RoundLog`](super::RoundLog) has entered, and with its status what `load` says.
    #[must_use]
    pub fn start(database: Database, run: RunId, health: Health, load: LoadOf) -> Self {
        let (entries, queue) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(move || record(&database, run, &health, &queue))
            .expect("the operating system gives the aggregator one thread more");
        Self { entries, thread, load, last: None }
    }

    /// Records a status that differs from the last one; mere progress at intervals.
    fn note_status(&mut self, status: &Status) {
        let now = Instant::now();
        let mut snapshot = status.at(moment(SystemTime::now()));
        snapshot.load = Some(Load { checking: status.checking(), ..(self.load)() });
        let due = self.last.as_ref().is_none_or(|(noted, last)| {
            now.duration_since(*noted) >= PROGRESS_INTERVAL && *last != snapshot
                || snapshot.differs_from(last)
        });
        if due {
            self.last = Some((now, snapshot.clone()));
            self.tell(Entry::Status(Box::new(snapshot)));
        }
    }

    /// Records how the run ended, and returns when everything is written.
    pub fn finish(self, outcome: &'static str) {
        self.tell(Entry::Ended { outcome });
        let Self { entries, thread, .. } = self;
        drop(entries);
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }

    /// Queues an entry. The thread lives as long as this.
    fn tell(&self, entry: Entry) {
        let _ = self.entries.send((moment(SystemTime::now()), entry));
    }
}

impl Sink for Recorder {
    fn receive(&mut self, notice: &Notice<'_>) {
        match notice {
            Notice::Status(status) => self.note_status(status),
            &Notice::Opened { round, cohort } => self.tell(Entry::Opened { round, cohort }),
            Notice::Result { round, client, result, recorded: true, .. } => {
                let (verdict, reason) = (result.name(), printable(result.reason()));
                self.tell(Entry::Arrived { round: *round, client: *client, verdict, reason });
            }
            &Notice::SkippedSamples { client, samples, .. } => self.tell(Entry::LeftOut { client, samples }),
            // Closed rounds are entered by the round log.
            _ => {}
        }
        // Asides may come in any number, and push nothing out of what is kept.
        if notice.level() >= Level::Remark
            && let Some(text) = text(notice)
        {
            self.tell(Entry::Said { alarm: notice.level() == Level::Alarm, text });
        }
    }
}

fn record(database: &Database, run: RunId, health: &Health, queue: &Receiver<(i64, Entry)>) {
    let mut waiting: Vec<(i64, Entry)> = Vec::new();
    let (mut open, mut failed) = (true, false);
    while open {
        if waiting.is_empty() {
            match queue.recv() {
                Ok(entry) => waiting.push(entry),
                Err(_) => return,
            }
        }
        let pause = if failed { RETRY_INTERVAL } else { BATCH_INTERVAL };
        let until = Instant::now() + pause;
        loop {
            match queue.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(entry) => waiting.push(entry),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    open = false;
                    break;
                }
            }
        }
        drop_superseded(&mut waiting);
        let written = database.write("record what happens in", |transaction| {
            waiting.iter().try_for_each(|(at, entry)| write(transaction, run, *at, entry))
        });
        health.note(&written);
        failed = written.is_err();
        if !failed {
            waiting.clear();
        }
    }
}

/// Keeps only the newest status, the newest number of skipped samples per device, and the newest entries.
fn drop_superseded(waiting: &mut Vec<(i64, Entry)>) {
    let (mut status, mut left_out) = (false, BTreeSet::new());
    let mut kept: Vec<_> = std::mem::take(waiting)
        .into_iter()
        .rev()
        .filter(|(_, entry)| match entry {
            Entry::Status(_) => !std::mem::replace(&mut status, true),
            Entry::LeftOut { client, .. } => left_out.insert(*client),
            _ => true,
        })
        .collect();
    kept.reverse();
    *waiting = kept;
    let surplus = waiting.len().saturating_sub(MAX_QUEUED);
    waiting.drain(..surplus);
}

fn write(transaction: &Transaction<'_>, run: RunId, at: i64, entry: &Entry) -> rusqlite::Result<()> {
    match entry {
        Entry::Status(snapshot) => {
            let json = serde_json::to_string(snapshot).expect("numbers, names and ids are JSON");
            rows::status(transaction, run, &json, at)
        }
        Entry::Opened { round, cohort } => rows::opened(transaction, run, *round, *cohort, Some(at)),
        Entry::Arrived { round, client, verdict: "accepted", .. } => {
            rows::accepted(transaction, run, *round, *client, Some(at))
        }
        Entry::Arrived { round, client, verdict, reason } => {
            rows::arrived(transaction, run, *round, *client, (verdict, reason), at)
        }
        Entry::LeftOut { client, samples } => skipped_samples::note(transaction, run, *client, *samples),
        Entry::Said { alarm, text } => rows::event(transaction, run, *alarm, text, at),
        Entry::Ended { outcome } => rows::ended(transaction, run, outcome, at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts_and_pushes_nothing_else_out() {
        let client = |byte| ClientId::from_bytes([byte; 16]);
        let left_out = |byte, samples| (0, Entry::LeftOut { client: client(byte), samples });
        let said = |text: &str| (0, Entry::Said { alarm: false, text: text.to_owned() });
        let flood = (0..3 * MAX_QUEUED as u64).map(|samples| left_out(1, samples));
        let mut waiting: Vec<_> =
            [said("a"), left_out(2, 7)].into_iter().chain(flood).chain([said("b")]).collect();
        drop_superseded(&mut waiting);
        let kept: Vec<_> = waiting
            .iter()
            .map(|(_, entry)| match entry {
                Entry::Said { text, .. } => text.clone(),
                Entry::LeftOut { samples, .. } => samples.to_string(),
                _ => "other".to_owned(),
            })
            .collect();
        assert_eq!(kept, ["a", "7", &(3 * MAX_QUEUED - 1).to_string(), "b"]);
    }
}
