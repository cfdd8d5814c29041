//! Files in the directory of a run that is continued.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aggregator::coordinator::Coordinator;
use aggregator::round::jsonl;
use aggregator::start::{StartError, start_on};
use aggregator::storage::Disk;
use shared::frame;

use super::{Seen, tmp};
use crate::faults::Faults;
use crate::scenario::Scenario;
use crate::simulator::Simulator;

/// What stands in its files.
pub const WORDS: &[&str] =
    &["\"round\":", "\"accepted\":", "\"closing\":", "null", "{}", "[]", "18446744073709551615"];

struct Left {
    scenario: Scenario,
    /// Paths within `runs/`, and content.
    files: Vec<(PathBuf, Vec<u8>)>,
}

/// What a process leaves that is killed with one round closed, and two of the next one's updates accepted.
fn left() -> &'static Left {
    static LEFT: OnceLock<Left> = OnceLock::new();
    LEFT.get_or_init(|| {
        let scenario = Scenario::small(&["round.min-updates=4"]);
        let folder = tempfile::tempdir().expect("the system has a place for temporary files");
        let mut simulator = Simulator::new(scenario.clone(), Faults::NONE, 0, folder.path());
        simulator.slow_down(0, Duration::from_mins(1));
        simulator.slow_down(1, Duration::from_mins(1));
        let accepted = simulator.run_directory().accepted(2);
        simulator.run_until(|_| accepted.read_dir().is_ok_and(|entries| entries.count() == 2));
        let mut files = tmp::files(folder.path());
        for (path, _) in &mut files {
            *path = path.strip_prefix(folder.path()).expect("it lies there").to_owned();
        }
        // The identity of the run is drawn anew each time, and the corpus begins with these files.
        files.retain(|(path, _)| !path.ends_with("lock"));
        Left { scenario, files }
    })
}

/// The first byte says which file of a run's directory the others are. The run goes on, or another one begins beside it.
///
/// # Panics
/// If it goes on and cannot be used.
#[must_use]
pub fn run(bytes: &[u8]) -> Seen {
    let Some((&first, content)) = bytes.split_first() else { return Seen::of(&"empty") };
    let Left { scenario, files } = left();
    let folder = tmp::folder();
    let chosen = usize::from(first) % files.len();
    for (place, (path, right)) in files.iter().enumerate() {
        tmp::write(&folder.join(path), if place == chosen { content } else { right });
    }
    let started =
        start_on(Arc::new(Disk), scenario.config.clone(), &folder, false, |_| Ok::<_, StartError>(()));
    let (started, ()) = match started {
        Ok(started) => started,
        Err(error) => return Seen::of(&error),
    };
    let continued = started.continued;
    let (run, resume, _lock) = started.into_parts();
    let mut open = false;
    if let Some(reopened) = resume.open.as_ref().filter(|reopened| reopened.decided().is_none()) {
        open = true;
        match run.broadcast(reopened.opening.round, reopened.opening.work) {
            Ok(broadcast) => drop(frame::encode(&broadcast.to(None).task(), broadcast.model.length)),
            // The checkpoint is read here.
            Err(error) => return Seen::of(&error),
        }
    }
    let records = jsonl::write(run.records());
    assert_eq!(jsonl::read(&records).expect("own lines").records.len(), run.records().len());
    let mut coordinator =
        Coordinator::new(run.spec().clone(), scenario.config.policy, resume, Duration::ZERO);
    while coordinator.poll().is_some() {}
    Seen::of(&(continued.then_some(()), open.then_some("open"), (!run.warnings().is_empty()).then_some(())))
}

/// Each file as it is.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let seed = |(place, (_, content)): (usize, &(PathBuf, Vec<u8>))| [&[place as u8][..], content].concat();
    left().files.iter().enumerate().map(seed).collect()
}
