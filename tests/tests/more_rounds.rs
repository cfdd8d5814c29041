//! A run that is complete or was stopped goes on in its own folder with more rounds: bit for bit as if they had been asked for at
//! first, with any algorithm, and whenever its process dies.

use std::fs;
use std::sync::Arc;

use aggregator::round::RoundRecord;
use aggregator::run::Run;
use aggregator::storage::Disk;
use federation_tests::copy_folder::copy_folder;
use federation_tests::faulty_disk::{FaultyDisk, Loss};
use federation_tests::scenario::Scenario;
use federation_tests::whole_run::{finish, start, whole};

fn of_rounds(rounds: u32, settings: &[&str]) -> Scenario {
    let rounds = format!("run.rounds={rounds}");
    Scenario::small(&[settings, &[rounds.as_str()]].concat())
}

/// What two equal runs have in common of their records.
fn learned(run: &Run) -> Vec<RoundRecord> {
    let learned = |record: &RoundRecord| RoundRecord {
        round: record.round,
        closing: record.closing,
        accepted: record.accepted,
        train_loss: record.train_loss,
        metrics: record.metrics.clone(),
        ..RoundRecord::default()
    };
    run.records().iter().map(learned).collect()
}

#[tokio::test]
async fn it_learns_the_same_as_a_run_that_was_to_have_them_at_first() {
    let cases: [&[&str]; 8] = [
        &["algorithm.fedavg={}"],
        &["algorithm.scaffold={}"],
        &["algorithm.moon={}", "model.name=cnn-small"],
        &["training.schedule.exponential.gamma=0.5", "training.warmup=3"],
        &["evaluate.on-clients-every=1", "evaluate.hold-out=0.25", "algorithm.scaffold={}"],
        &["aggregation.server-optimizer.sgd.momentum=0.9", "round.fraction=0.5"],
        &["update.broadcast=int8", "model.name=mlp-2nn"],
        &[
            "update.broadcast=int8",
            "model.name=mlp-2nn",
            "evaluate.on-clients-every=1",
            "evaluate.hold-out=0.25",
        ],
    ];
    for settings in cases {
        let [folder, at_once] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let first = whole(folder.path(), &of_rounds(2, settings)).await;
        let before = first.closed();
        drop(first);
        let scenario = of_rounds(4, settings);
        let started = start(Arc::new(Disk), folder.path(), &scenario).unwrap();
        assert!(started.continued && started.passed.is_empty(), "{settings:?}");
        assert_eq!(started.changed.iter().map(|(key, ..)| key.as_str()).collect::<Vec<_>>(), ["run.rounds"]);
        assert_eq!(started.run.closed(), 2, "{settings:?}: {before} rounds were closed");
        let more = finish(started, &scenario).await;
        let other = whole(at_once.path(), &scenario).await;
        assert_eq!(learned(&more), learned(&other), "{settings:?}");
        let [model, its] = [&more, &other].map(|run| fs::read(run.directory().model()).unwrap());
        assert!(model == its, "{settings:?}: another model");
        // From now on it is the run of four rounds.
        let config = fs::read_to_string(more.directory().config()).unwrap();
        assert!(config.contains("rounds = 4"), "{settings:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{settings:?}");
    }
}

#[tokio::test]
async fn what_is_learned_otherwise_is_another_run() {
    let others: [(&[&str], &[&str], &str); 4] = [
        (&["training.schedule.cosine={}"], &["run.rounds=4", "training.schedule.cosine={}"], "learning rate"),
        (&[], &["run.rounds=4", "training.epochs=2"], "is complete"),
        (&[], &["run.rounds=1"], "has 2 rounds already"),
        (&[], &["run.rounds=2", "round.timeout=9"], "is complete"),
    ];
    for (before, asked, why) in others {
        let folder = tempfile::tempdir().unwrap();
        drop(whole(folder.path(), &of_rounds(2, before)).await);
        let started = start(Arc::new(Disk), folder.path(), &Scenario::small(asked)).unwrap();
        assert!(!started.continued && started.passed[0].contains(why), "{:?}", started.passed);
    }
}

#[tokio::test]
async fn an_unfinished_run_takes_other_settings_of_its_rounds_and_an_early_end_can_be_put_off() {
    let folder = tempfile::tempdir().unwrap();
    let test = ["evaluate.every=1", "early-stopping.target=0.01"];
    let early = whole(folder.path(), &of_rounds(4, &test)).await;
    assert_eq!((early.closed(), early.ended()), (1, Some(1)));
    drop(early);
    let later = of_rounds(4, &["evaluate.every=1", "early-stopping.target=1.0", "round.timeout=9"]);
    let started = start(Arc::new(Disk), folder.path(), &later).unwrap();
    let keys: Vec<&str> = started.changed.iter().map(|(key, ..)| key.as_str()).collect();
    assert_eq!(keys, ["early-stopping.target", "round.timeout"]);
    drop(started);
    // It has changed, and is not finished.
    let again = start(Arc::new(Disk), folder.path(), &later).unwrap();
    assert!(again.continued && again.changed.is_empty());
    let run = finish(again, &later).await;
    assert!(run.closed() > 1);
}

#[tokio::test]
async fn a_process_may_die_anywhere_while_it_begins_to_go_on() {
    let settings = ["evaluate.on-clients-every=1", "evaluate.hold-out=0.25", "algorithm.scaffold={}"];
    let (two, four) = (of_rounds(2, &settings), of_rounds(4, &settings));
    let at_once = tempfile::tempdir().unwrap();
    let expected = learned(&whole(at_once.path(), &four).await);
    let complete = tempfile::tempdir().unwrap();
    drop(whole(complete.path(), &two).await);
    let mut last = 0;
    for loss in [Loss::Nothing, Loss::Some(1)] {
        for fatal in 0.. {
            let folder = tempfile::tempdir().unwrap();
            copy_folder(complete.path(), folder.path());
            let disk = FaultyDisk::dying_at(fatal, loss);
            let done = start(Arc::new(disk.clone()), folder.path(), &four).is_ok();
            disk.cut_power(loss);
            let again = start(Arc::new(Disk), folder.path(), &four).unwrap();
            assert!(again.continued, "{loss:?} {fatal}: {:?}", again.passed);
            assert_eq!(learned(&finish(again, &four).await), expected, "{loss:?} {fatal}");
            last = fatal;
            if done {
                break;
            }
        }
        assert!(last > 15, "only {last} operations");
    }
}
