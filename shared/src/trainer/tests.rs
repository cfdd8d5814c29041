//! Trainers that do what they should, and such that do not: scripts of a shell.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use models::{Array, ParamSet};
use tempfile::TempDir;

use super::{ClientNumber, TrainerAtWork, TrainerCommand, Trainers};
use crate::algorithm::trainer::{TrainerJob, TrainerTest};
use crate::algorithm::{TrainError, Trainer as _, TrainerError};
use crate::spec::Training;
use crate::task::Progress;

/// A trainer that answers requests by these shell commands; `$line` is the request.
fn scripted(folder: &TempDir, answers: &[(&str, &str)]) -> Trainers {
    with_timeout(folder, answers, Duration::from_mins(1))
}

fn with_timeout(folder: &TempDir, answers: &[(&str, &str)], timeout: Duration) -> Trainers {
    let cases: String =
        answers.iter().map(|(request, does)| format!("'{{\"{request}\"'*) {does};;\n")).collect();
    let script = folder.path().join("trainer.sh");
    std::fs::write(&script, format!("while read -r line; do case $line in\n{cases}esac; done\n")).unwrap();
    Trainers::new(TrainerCommand {
        line: format!("sh {}", script.display()),
        directory: folder.path().join("files"),
        timeout,
        max_memory: None,
    })
}

fn go_on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn params() -> ParamSet {
    let mut params = ParamSet::new();
    params.insert("w", Array::new([2], vec![1.0, 2.0]).unwrap());
    params
}

/// Has it train the model above.
fn train(trainers: &Trainers) -> Result<ParamSet, TrainError> {
    let (training, params) = (Training::default(), params());
    let job = TrainerJob {
        round: 3,
        samples: 5,
        seed: 1,
        training: &training,
        learning_rate: 0.1,
        params: &params,
    };
    let mut at_work = TrainerAtWork { trainers, number: None };
    Ok(at_work.train(&job, &mut go_on)?.params)
}

/// Folders of processes.
fn files(folder: &TempDir) -> usize {
    std::fs::read_dir(folder.path().join("files")).unwrap().count()
}

fn said(result: Result<ParamSet, TrainError>) -> String {
    result.unwrap_err().to_string()
}

/// Copies the model that it is given to the place of the trained one.
const COPIES: &str = r#"m=${line#*\"model\":\"}; o=${line#*\"out\":\"}; cp "${m%%\"*}" "${o%%\"*}""#;

#[test]
fn a_trainer_is_asked_for_its_samples_trains_and_tests() {
    let folder = TempDir::new().unwrap();
    let finished = format!(
        r#"{COPIES}; echo '{{"progress":{{"done":1,"total":2}}}}'; echo '{{"finished":{{"loss":0.5,"steps":2}}}}'"#
    );
    let trainers = scripted(
        &folder,
        &[
            (
                "describe",
                r#"case $line in *'"client":3'*) n=7;; *) n=5;; esac; echo "{\"described\":{\"samples\":$n}}""#,
            ),
            ("train", &finished),
            ("test", r#"echo '{"tested":{"samples":9,"loss":0.25,"accuracy":0.75}}'"#),
        ],
    );
    assert_eq!(trainers.samples(None, &mut go_on).unwrap(), 5);
    assert_eq!(trainers.samples(Some(ClientNumber { client: 3, clients: 4 }), &mut go_on).unwrap(), 7);
    assert_eq!(train(&trainers).unwrap(), params());
    let mut at_work = TrainerAtWork { trainers: &trainers, number: None };
    let found = at_work.test(3, &params(), &mut go_on).unwrap();
    assert_eq!(found, TrainerTest { samples: 9, loss: 0.25, accuracy: Some(0.75) });
    // One process has done all that, and leaves nothing.
    assert_eq!(files(&folder), 1);
    drop(trainers);
    assert!(!folder.path().join("files").exists());
}

#[test]
fn what_is_wrong_with_a_trainer_is_said() {
    for (does, part) in [
        ("echo 'no such column' >&2; exit 3", "ended (exit status: 3); its last line: no such column"),
        ("kill -9 $$", "signal: 9"),
        ("exec 1>&-", "closed its standard output"),
        ("echo Epoch 1", "answered \"Epoch 1\", which is no answer that is known"),
        (r#"echo '{"described":{"samples":5}}'"#, "no `finished`"),
        (r#"echo '{"cancelled":{}}'"#, "no answer to what it was asked"),
        (r#"echo '{"failed":{"reason":"no memory"}}'"#, "the trainer says: no memory"),
        (r#"echo '{"finished":{"loss":0.5}}'"#, "cannot be used"),
        (
            r#"o=${line#*\"out\":\"}; head -c 2000000 /dev/zero >"${o%%\"*}"; echo '{"finished":{"loss":0.5}}'"#,
            "more than",
        ),
        (r#"echo '{"finished":{"loss":1e999}}'"#, "no answer that is known"),
        (r#"echo '{"finished":{"loss":1,"samples":6}}'"#, "trained on 6 samples and was asked about 5"),
        ("head -c 70000 /dev/zero | tr '\\0' x; echo", "longer than 65536 bytes"),
    ] {
        let folder = TempDir::new().unwrap();
        let said = said(train(&scripted(&folder, &[("train", does)])));
        assert!(said.contains(part), "{does}: {said}");
    }
    let command = TrainerCommand {
        line: "/nowhere/train".to_owned(),
        directory: TempDir::new().unwrap().path().join("files"),
        timeout: Duration::from_mins(1),
        max_memory: None,
    };
    // A shell that stays between says it in its own way.
    let between = TrainerCommand { line: "sh -c 'kill -9 $$'; exit $?".to_owned(), ..command.clone() };
    let told = said(train(&Trainers::new(between)));
    assert!(told.contains("exit status: 137, signal 9"), "{told}");
    let said = said(train(&Trainers::new(command)));
    assert!(said.contains("exit status: 127") && said.contains("/nowhere/train"), "{said}");
}

#[test]
fn a_silent_trainer_is_ended_and_one_that_speaks_is_not() {
    let folder = TempDir::new().unwrap();
    let short = Duration::from_millis(300);
    let silent = with_timeout(&folder, &[("train", "sleep 600")], short);
    let begun = Instant::now();
    assert!(matches!(train(&silent).unwrap_err(), TrainError::Trainer(TrainerError::Silent { .. })));
    assert!(begun.elapsed() < Duration::from_mins(1));
    let folder = TempDir::new().unwrap();
    let speaks = format!(
        r#"for i in 1 2 3 4 5 6 7 8; do echo '{{"progress":{{"done":1}}}}'; sleep 0.1; done; {COPIES}; echo '{{"finished":{{"loss":0.5}}}}'"#
    );
    // Eight tenths of a second in all, and each tenth a word.
    assert!(train(&with_timeout(&folder, &[("train", &speaks)], short * 2)).is_ok());
}

#[test]
fn a_trainer_that_failed_is_started_again_after_a_while() {
    let folder = TempDir::new().unwrap();
    let mark = folder.path().join("failed-once");
    let once = format!(
        r#"if [ -e {mark} ]; then {COPIES}; echo '{{"finished":{{"loss":0.5}}}}'; else touch {mark}; exit 1; fi"#,
        mark = mark.display()
    );
    let trainers = scripted(&folder, &[("train", &once)]);
    let begun = Instant::now();
    assert!(said(train(&trainers)).contains("exit status: 1"));
    let left = trainers.backoff();
    assert!(left.is_some() || begun.elapsed() >= Duration::from_secs(1), "no backoff");
    assert!(train(&trainers).is_ok());
    assert!(begun.elapsed() >= Duration::from_secs(1), "it was not waited for");
    assert_eq!(trainers.backoff(), None);
}

#[test]
fn a_task_that_is_cancelled_is_given_up_and_the_trainer_goes_on() {
    let folder = TempDir::new().unwrap();
    let waits = r#"read -r cancel; echo '{"cancelled":{}}'"#;
    let describes = r#"echo '{"described":{"samples":5}}'"#;
    let trainers = scripted(&folder, &[("train", waits), ("describe", describes)]);
    let (training, params) = (Training::default(), params());
    let job = TrainerJob {
        round: 3,
        samples: 5,
        seed: 1,
        training: &training,
        learning_rate: 0.1,
        params: &params,
    };
    let mut at_work = TrainerAtWork { trainers: &trainers, number: None };
    let cancelled = at_work.train(&job, &mut |_| ControlFlow::Break(()));
    assert!(matches!(cancelled, Err(TrainError::Cancelled)), "{cancelled:?}");
    assert_eq!(trainers.samples(None, &mut go_on).unwrap(), 5);
    assert_eq!(files(&folder), 1, "the same process");
}

#[test]
fn a_program_that_ends_ends_its_trainers_at_work() {
    let folder = TempDir::new().unwrap();
    let trainers = scripted(&folder, &[("train", "sleep 600")]);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let training = scope.spawn(|| train(&trainers));
        while trainers.working().is_empty() {
            std::thread::yield_now();
        }
        trainers.end();
        assert!(said(training.join().unwrap()).contains("signal: 9"));
    });
    // What was queued behind it starts none.
    assert!(matches!(train(&trainers), Err(TrainError::Cancelled)));
    assert!(begun.elapsed() < Duration::from_mins(1));
}

#[test]
fn a_command_may_be_any_line_of_the_shell() {
    let folder = TempDir::new().unwrap();
    let trainers = scripted(&folder, &[("describe", r#"echo "{\"described\":{\"samples\":$SAMPLES}}""#)]);
    let here = folder.path().display();
    for (line, max_memory) in
        [("&& SAMPLES=5 sh trainer.sh", None), ("; SAMPLES=5 sh trainer.sh # ours", Some(1 << 30))]
    {
        let line = format!("cd {here} {line}");
        let command = TrainerCommand { line, max_memory, ..trainers.command().clone() };
        assert_eq!(Trainers::new(command).samples(None, &mut go_on).unwrap(), 5);
    }
}

#[test]
fn folders_of_processes_are_new_and_private() {
    let folder = TempDir::new().unwrap();
    let command = scripted(&folder, &[]).command().clone();
    let all: std::collections::BTreeSet<_> = (0..20).map(|_| command.new_folder().unwrap()).collect();
    assert_eq!((all.len(), files(&folder)), (20, 20));
    #[cfg(unix)]
    for made in all {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(made.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn memory_beyond_its_bound_is_not_given() {
    let folder = TempDir::new().unwrap();
    // The shell holds what it is given.
    let hungry =
        r#"x=$(head -c 100000000 /dev/zero | tr '\0' x); echo '{"failed":{"reason":"it was given"}}'"#;
    let bounded = |max_memory| {
        let trainers = scripted(&folder, &[("train", hungry)]);
        let command = TrainerCommand { max_memory, ..trainers.command().clone() };
        said(train(&Trainers::new(command)))
    };
    assert!(bounded(None).contains("it was given"));
    let refused = bounded(Some(32 << 20));
    assert!(!refused.contains("it was given"), "{refused}");
}
