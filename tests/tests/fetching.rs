//! A run that comes out of the store into its folder, in place of an earlier state, whenever the process is killed.

use std::fs;
use std::path::Path;

use aggregator::cluster::connection::Patience;
use aggregator::cluster::error::StoreError;
use aggregator::cluster::experiments::{Claim, ExperimentId, Then};
use aggregator::cluster::file_store::{FileStore, Held, Of};
use aggregator::leaves::fetch::fetch_run;
use aggregator::leaves::standing::ServedRun;
use aggregator::run::directory::RunDirectory;
use aggregator::storage::{Disk, FileLayer};
use federation_tests::faulty_disk::{FaultyDisk, Loss};
use sha2::{Digest as _, Sha256};

/// A store of one file, the identity of a run, or of nothing.
struct One(Option<&'static str>);

impl FileStore for One {
    fn held(&mut self, _: &mut dyn Patience, _: Of<'_>) -> Result<Option<Vec<Held>>, StoreError> {
        let Some(content) = self.0 else { return Ok(Some(Vec::new())) };
        let digest = Some(Sha256::digest(content).to_vec());
        let bytes = i64::try_from(content.len()).unwrap();
        Ok(Some(vec![
            Held { path: "state".to_owned(), digest: None, bytes: 0 },
            Held { path: "state/run.json".to_owned(), digest, bytes },
        ]))
    }

    fn put_part(
        &mut self,
        _: &mut dyn Patience,
        _: Of<'_>,
        _: (&[u8], i32),
        _: &[u8],
    ) -> Result<Option<()>, StoreError> {
        unreachable!("nothing is kept here")
    }

    fn part(
        &mut self,
        _: &mut dyn Patience,
        _: Of<'_>,
        _: (&[u8], i32),
    ) -> Result<Option<Option<Vec<u8>>>, StoreError> {
        Ok(Some(self.0.map(|content| content.as_bytes().to_vec())))
    }

    fn replace(
        &mut self,
        _: &mut dyn Patience,
        _: &ExperimentId,
        _: &Claim,
        _: &[Held],
        _: (u32, Then),
        _: &str,
    ) -> Result<Option<bool>, StoreError> {
        unreachable!("nothing is kept here")
    }
}

fn fetch(files: &dyn FileLayer, runs: &Path, store: Option<&'static str>) -> Result<bool, StoreError> {
    let run = ServedRun { id: [1; 32], name: "run".to_owned() };
    fetch_run(&mut One(store), &run, (files, runs), &|| true)
}

fn begin(place: &RunDirectory, identity: &str) {
    fs::create_dir_all(place.state()).unwrap();
    fs::write(place.identity(), identity).unwrap();
}

#[test]
fn what_the_store_never_got_gives_way_and_another_run_does_not() {
    let runs = tempfile::tempdir().unwrap();
    let place = RunDirectory::new(runs.path().join("run"));
    let fetch = |store| fetch(&Disk, runs.path(), store);
    // This process begins, and dies before the store has anything; another one begins the run.
    assert!(!fetch(None).unwrap());
    begin(&place, "ours");
    assert!(fetch(Some("theirs")).unwrap());
    assert_eq!(fs::read_to_string(place.identity()).unwrap(), "theirs");
    // The same again is the run itself; another one is none of its own.
    assert!(fetch(Some("theirs")).unwrap());
    assert!(matches!(fetch(Some("another")), Err(StoreError::Occupied { .. })));
    // Nor is one that was there before.
    assert!(!fetch(None).unwrap());
    assert!(matches!(fetch(Some("another")), Err(StoreError::Occupied { .. })));
}

#[test]
fn a_process_that_is_killed_while_a_run_comes_gets_it_the_next_time() {
    for fatal in 0.. {
        let runs = tempfile::tempdir().unwrap();
        let place = RunDirectory::new(runs.path().join("run"));
        begin(&place, "theirs");
        fs::write(place.rounds(), "what is removed first, or last").unwrap();
        let dying = FaultyDisk::dying_at(fatal, Loss::Nothing);
        let first = fetch(&dying, runs.path(), Some("theirs"));
        if first.is_ok() {
            assert!(fatal > 10, "every operation was the last one");
            return;
        }
        assert!(fetch(&Disk, runs.path(), Some("theirs")).unwrap(), "killed at operation {fatal}");
        assert_eq!(fs::read_to_string(place.identity()).unwrap(), "theirs");
        let left: Vec<_> =
            fs::read_dir(runs.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["run"], "killed at operation {fatal}");
    }
}
