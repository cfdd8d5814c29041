//! A run that comes out of the store into its folder, in place of an earlier state, whenever the process is killed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use aggregator::cluster::connection::Patience;
use aggregator::cluster::error::StoreError;
use aggregator::cluster::experiments::{Claim, ExperimentId, Then};
use aggregator::cluster::file_store::{FileStore, Held, Of};
use aggregator::cluster::files::{Chosen, Digests, Kept, keep};
use aggregator::leaves::fetch::{Wanted, fetch_run, put_secret};
use aggregator::leaves::keeper::Keeper;
use aggregator::leaves::leadership::Led;
use aggregator::leaves::standing::{ServedRun, Standing};
use aggregator::leaves::store::RunStore;
use aggregator::run::directory::RunDirectory;
use aggregator::storage::{Disk, FileLayer};
use federation_tests::faulty_disk::{FaultyDisk, Loss};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

/// The identities of three runs, and the first one under another configuration.
const OURS: &str = r#"{"run":"0000000000000001"}"#;
const CHANGED: &str = r#"{"run":"0000000000000001","version":"1"}"#;
const THEIRS: &str = r#"{"run":"0000000000000002"}"#;
const ANOTHER: &str = r#"{"run":"0000000000000003"}"#;

/// A store.
#[derive(Debug)]
enum Store {
    /// It has one file, the identity of a run.
    Has(&'static str),
    /// It has nothing, and takes all.
    Empty,
    /// It does not answer before it is given up.
    Away,
}

impl FileStore for Store {
    fn held(&mut self, _: &mut dyn Patience, _: Of<'_>) -> Result<Option<Vec<Held>>, StoreError> {
        let content = match self {
            Self::Has(content) => *content,
            Self::Empty => return Ok(Some(Vec::new())),
            Self::Away => return Ok(None),
        };
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
        Ok(Some(()))
    }

    fn part(
        &mut self,
        _: &mut dyn Patience,
        _: Of<'_>,
        _: (&[u8], i32),
    ) -> Result<Option<Option<Vec<u8>>>, StoreError> {
        let Self::Has(content) = self else { unreachable!("there is no file") };
        Ok(Some(Some(content.as_bytes().to_vec())))
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
        Ok(Some(true))
    }
}

impl RunStore for Store {
    fn stand(
        &mut self,
        _: &mut dyn Patience,
        _: &ServedRun,
        _: (&str, &str),
        _: Option<&Claim>,
    ) -> Result<Option<Standing>, StoreError> {
        unreachable!("nothing is led here")
    }

    fn living(
        &mut self,
        _: &mut dyn Patience,
        _: &ExperimentId,
    ) -> Result<Option<BTreeSet<String>>, StoreError> {
        unreachable!("there are no leaves")
    }
}

fn served() -> ServedRun {
    ServedRun { id: [1; 32], name: "run".to_owned() }
}

fn fetch(files: &dyn FileLayer, runs: &Path, mut store: Store) -> Result<Option<bool>, StoreError> {
    fetch_run(&mut store, &served(), (files, runs), &|| true)
}

fn begin(place: &RunDirectory, identity: &str) {
    fs::create_dir_all(place.state()).unwrap();
    fs::write(place.identity(), identity).unwrap();
}

fn claim() -> Claim {
    let (name, lease) = ("run".to_owned(), Duration::from_secs(5));
    Claim { name, epoch: 1, rounds: 0, worker: "a".to_owned(), deserted: None, lease }
}

/// Puts what is in `place` into a store that takes it.
fn keep_whole(place: &RunDirectory) {
    let claim = claim();
    let (_leads, standing) = watch::channel(Standing::Leads(claim.clone()));
    let (_stop, stopped) = watch::channel(false);
    let led = Led::new(served(), claim, standing, stopped);
    Keeper::new(Box::new(Store::Empty), led, "any").keep_whole(place, 0).unwrap();
}

fn names(runs: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(runs).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

#[test]
fn what_the_store_never_got_gives_way_and_another_run_does_not() {
    let runs = tempfile::tempdir().unwrap();
    let place = RunDirectory::new(runs.path().join("run"));
    let fetch = |store| fetch(&Disk, runs.path(), store);
    // This process begins, and dies before the store has anything; another one begins the run.
    assert_eq!(fetch(Store::Empty).unwrap(), Some(false));
    begin(&place, OURS);
    assert_eq!(fetch(Store::Has(THEIRS)).unwrap(), Some(true));
    assert_eq!(fs::read_to_string(place.identity()).unwrap(), THEIRS);
    // The same again is the run itself; another one is none of its own.
    assert_eq!(fetch(Store::Has(THEIRS)).unwrap(), Some(true));
    assert!(matches!(fetch(Store::Has(ANOTHER)), Err(StoreError::Occupied { .. })));
    // Nor is one that was there before.
    assert_eq!(fetch(Store::Empty).unwrap(), Some(false));
    assert!(matches!(fetch(Store::Has(ANOTHER)), Err(StoreError::Occupied { .. })));
}

#[test]
fn a_run_that_the_store_has_got_gives_way_to_no_other_one() {
    let runs = tempfile::tempdir().unwrap();
    let place = RunDirectory::new(runs.path().join("run"));
    assert_eq!(fetch(&Disk, runs.path(), Store::Empty).unwrap(), Some(false));
    begin(&place, OURS);
    keep_whole(&place);
    // The store is lost, and another server begins.
    let other = fetch(&Disk, runs.path(), Store::Has(THEIRS));
    assert!(matches!(other, Err(StoreError::Occupied { .. })), "{other:?}");
    assert_eq!(fs::read_to_string(place.identity()).unwrap(), OURS);
}

#[test]
fn a_pause_that_is_taken_back_while_the_run_is_put_into_the_store_is_in_nobodys_way() {
    let runs = tempfile::tempdir().unwrap();
    let place = RunDirectory::new(runs.path().join("run"));
    begin(&place, OURS);
    fs::write(place.paused(), "").unwrap();
    // It is listed by then.
    let resumes = |name: &str| {
        if name == "state/paused" {
            fs::remove_file(place.paused()).unwrap();
        }
        true
    };
    let of = Chosen { directory: &place, which: &resumes, digests: &mut Digests::default() };
    let wanted = || true;
    let stands = (0, Then::GoesOn);
    let kept = keep(&mut Store::Empty, &mut Wanted(&wanted), &served().id, &claim(), of, stands, "any");
    assert_eq!(kept.unwrap(), Kept::There);
    assert!(!place.paused().exists());
}

#[test]
fn a_run_is_the_same_under_another_configuration() {
    let runs = tempfile::tempdir().unwrap();
    let place = RunDirectory::new(runs.path().join("run"));
    begin(&place, OURS);
    assert_eq!(fetch(&Disk, runs.path(), Store::Has(CHANGED)).unwrap(), Some(true));
    assert_eq!(fs::read_to_string(place.identity()).unwrap(), CHANGED);
}

#[test]
fn closed_rounds_that_the_store_has_lost_are_kept_beside_the_run() {
    let runs = tempfile::tempdir().unwrap();
    let place = RunDirectory::new(runs.path().join("run"));
    let fetch = |store| fetch(&Disk, runs.path(), Store::Has(store)).unwrap();
    // A server that led may be one round ahead of the store.
    begin(&place, OURS);
    fs::write(place.checkpoint(1), "after one round").unwrap();
    assert_eq!(fetch(OURS), Some(true));
    assert_eq!(names(runs.path()), ["run".to_owned()].into());
    for (number, rounds) in [(1, 2), (2, 50)] {
        fs::write(place.checkpoint(rounds), "after more").unwrap();
        assert_eq!(fetch(OURS), Some(true));
        assert!(!place.checkpoint(rounds).exists(), "the run goes on from what the store has");
        let kept = RunDirectory::new(runs.path().join(format!("run-kept-{number}")));
        assert!(kept.checkpoint(rounds).exists() && kept.identity().exists());
    }
    // Also of a run with the mark of a beginning, which earlier versions have left there.
    fs::write(place.checkpoint(1), "after one round").unwrap();
    fs::write(runs.path().join(".begun-run"), [1; 32]).unwrap();
    assert_eq!(fetch(THEIRS), Some(true));
    assert!(runs.path().join("run-kept-3/state/checkpoint-000001.safetensors").exists());
}

#[test]
fn a_run_that_was_moved_away_for_another_one_that_never_came_is_there_again() {
    let runs = tempfile::tempdir().unwrap();
    begin(&RunDirectory::new(runs.path().join(".former-run")), OURS);
    assert_eq!(fetch(&Disk, runs.path(), Store::Empty).unwrap(), Some(false));
    assert_eq!(names(runs.path()), ["run".to_owned()].into());
}

#[test]
fn a_fetch_that_is_given_up_says_so_and_no_run_begins() {
    let runs = tempfile::tempdir().unwrap();
    assert_eq!(fetch(&Disk, runs.path(), Store::Away).unwrap(), None);
    assert!(!runs.path().join(".begun-run").exists());
}

#[test]
fn the_secret_of_a_run_that_has_begun_stays() {
    let runs = tempfile::tempdir().unwrap();
    let place = RunDirectory::new(runs.path().join("run"));
    let secret = || fs::read(place.secret()).unwrap();
    put_secret(&place, &[1; 32]).unwrap();
    put_secret(&place, &[2; 32]).unwrap();
    assert_eq!(secret(), [2; 32], "no run has begun with the first one");
    begin(&place, OURS);
    put_secret(&place, &[2; 32]).unwrap();
    assert!(matches!(put_secret(&place, &[3; 32]), Err(StoreError::OtherSecret { .. })));
    assert_eq!(secret(), [2; 32]);
}

#[test]
fn a_process_that_is_killed_while_a_run_comes_gets_it_the_next_time() {
    for fatal in 0.. {
        let runs = tempfile::tempdir().unwrap();
        let place = RunDirectory::new(runs.path().join("run"));
        begin(&place, THEIRS);
        fs::write(place.rounds(), "what is removed first, or last").unwrap();
        let dying = FaultyDisk::dying_at(fatal, Loss::Nothing);
        let first = fetch(&dying, runs.path(), Store::Has(THEIRS));
        if first.is_ok() {
            assert!(fatal > 10, "every operation was the last one");
            return;
        }
        let again = fetch(&Disk, runs.path(), Store::Has(THEIRS)).unwrap();
        assert_eq!(again, Some(true), "killed at operation {fatal}");
        assert_eq!(fs::read_to_string(place.identity()).unwrap(), THEIRS);
        assert_eq!(names(runs.path()), ["run".to_owned()].into(), "killed at operation {fatal}");
    }
}
