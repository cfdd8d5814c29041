use std::time::Duration;

use shared::message::{Discard, Metric, Metrics, Refusal, Rejection};

use super::*;
use crate::failure::Blame;

fn lines(event: &Event) -> Vec<String> {
    said(event).map_or_else(Vec::new, |said| said.lines)
}

fn object(event: &Event) -> Option<Value> {
    said(event).map(|said| said.object)
}

fn events() -> Vec<Event> {
    let mut metrics = Metrics::default();
    metrics[0] = Some(Metric::OwnAccuracy(0.75));
    let report =
        TrainReport { samples: 600, steps: 60, loss: 0.25, duration: Duration::from_millis(1500), metrics };
    let receipt = |verdict| Notice::Receipt { round: 2, verdict };
    let notices = [
        Notice::Connected { server: "lab:4433".to_owned() },
        Notice::Disconnected {
            server: "lab:4433".to_owned(),
            reason: "a\nb".to_owned(),
            retry: Duration::from_millis(250),
        },
        Notice::Joined { spec: RunSpec::example("fedavg").into() },
        Notice::Training { round: 2, work: TaskKind::TRAIN },
        Notice::Trained { round: 2, work: TaskKind::TRAIN, report, bytes: 1234 },
        Notice::Failed { round: 2, failure: Failure::new(Blame::Server, "diverged") },
        receipt(Verdict::Accepted),
        receipt(Verdict::Rejected(Rejection::NotInCohort { round: 2 })),
        receipt(Verdict::Discarded(Discard::Late)),
    ];
    let mut events = vec![
        Event::Started {
            client: ClientId::from_bytes([0xab; 16]),
            data: Learned::From { format: &shared::data::csv::Csv, folder: "d".into() },
            device: "cpu",
            threads: 2,
            state: "s".into(),
        },
        Event::Samples {
            format: &shared::data::csv::Csv,
            skipped: Skipped { count: 7, others: 0, reasons: vec!["x.csv: line 3: has no label".to_owned()] },
            samples: 600,
            shape: vec![1, 28, 28],
        },
        Event::Pinned { key: PublicKey::from_bytes([0xcd; 32]), path: "s/server".into() },
        Event::Connecting { server: "lab:4433".to_owned() },
    ];
    events.extend(notices.into_iter().map(Event::Notice));
    events.extend([
        Event::Stopping,
        Event::Ended(SessionEnd::Completed { rounds: 3 }),
        Event::Ended(SessionEnd::Stopped),
        Event::Ended(SessionEnd::Refused(Refusal::NoSamples)),
        Event::Ended(SessionEnd::Unfit(Failure::new(Blame::Owner, "other classes"))),
    ]);
    events
}

#[test]
fn every_event_is_one_object_on_one_line_that_names_it() {
    let names: Vec<String> = events()
        .iter()
        .map(|event| {
            let line = object(event).expect("all of these are for programs too").to_string();
            assert!(!line.contains('\n'), "{line}");
            let object: Value = serde_json::from_str(&line).unwrap();
            object["event"].as_str().unwrap().to_owned()
        })
        .collect();
    let expected = "started samples pinned connecting connected disconnected joined training trained failed receipt receipt receipt \
                    stopping completed stopped refused unfit";
    assert_eq!(names.join(" "), expected);
}

#[test]
fn what_the_server_says_does_not_steer_the_terminal() {
    let reason = "gone\x1b[2J\nround 9: update accepted".to_owned();
    let server = "lab:4433".to_owned();
    let event = Event::Notice(Notice::Disconnected { server, reason, retry: Duration::ZERO });
    let line = printable(&lines(&event).concat());
    assert!(line.contains("gone\u{fffd}[2J\u{fffd}round 9") && !line.contains(char::is_control), "{line}");
}

#[test]
fn a_round_that_makes_a_model_of_its_own_alone_says_that() {
    let (metrics, duration) = (Metrics::default(), Duration::from_secs(1));
    let report = TrainReport { samples: 0, steps: 0, loss: 0.0, duration, metrics };
    let said = |work| {
        let trained = Notice::Trained { round: 3, work, report, bytes: 16 };
        lines(&Event::Notice(trained)).concat()
    };
    let work = TaskKind { train: false, evaluate: false, personalise: true };
    assert_eq!(said(work), "round 3: made a model of its own; sending 16 bytes");
    let tested = said(TaskKind { evaluate: true, ..work });
    assert!(tested.contains("tested the model of round 2") && tested.contains("; made a model"), "{tested}");
}

#[test]
fn the_numbers_are_those_of_the_report() {
    let all = events();
    let trained = object(&all[8]);
    assert_eq!(
        trained,
        Some(json!({
            "event": "trained", "round": 2, "samples": 600, "steps": 60, "loss": 0.25, "seconds": 1.5, "bytes": 1234,
            "metrics": { "own-accuracy": 0.75 }
        }))
    );
    assert_eq!(lines(&all[8]), ["round 2: trained 60 steps in 1.5 s, mean loss 0.2500; sending 1 kB"]);
    assert_eq!(object(&all[12]).unwrap()["verdict"], "discarded");
    assert_eq!(lines(&all[10]), ["round 2: update accepted"]);
    assert_eq!(lines(&all[2])[1..], ["cd".repeat(32)], "on a line of its own");
    assert_eq!(lines(&all[3]), ["connecting to lab:4433"]);
    assert_eq!(object(&all[0]).unwrap()["client"], "ab".repeat(16));
    assert_eq!(object(&all[1]).unwrap()["skipped"], 7);
    let started = lines(&all[1]);
    assert!(started[0].contains("from a CSV table"), "{started:?}");
    assert_eq!(
        started[1],
        "left out, since they cannot be used: 7 samples (x.csv: line 3: has no label; ...)"
    );
}

#[test]
fn a_failure_says_who_can_fix_it() {
    for (blame, word, text) in [
        (Blame::Owner, "owner", "because of this device's data or arguments"),
        (Blame::Server, "server", "because of the server or its run"),
        (Blame::Machine, "machine", "because of this machine"),
        (Blame::Program, "program", "because of a bug in this program"),
    ] {
        let failure = Failure::new(blame, "why");
        let failed = Event::Notice(Notice::Failed { round: 2, failure: failure.clone() });
        let unfit = Event::Ended(SessionEnd::Unfit(failure));
        assert_eq!(lines(&failed), [format!("round 2: training failed, {text}: why")]);
        assert_eq!(lines(&unfit), [format!("this device cannot take part in the run, {text}: why")]);
        let expected = json!({ "event": "failed", "round": 2, "blame": word, "reason": "why" });
        assert_eq!(object(&failed), Some(expected));
        assert_eq!(object(&unfit), Some(json!({ "event": "unfit", "blame": word, "reason": "why" })));
    }
}

#[test]
fn what_changes_every_moment_is_for_the_screen_alone() {
    let receiving = Notice::Receiving { round: 2, received: 1, total: 2 };
    for notice in [receiving, Notice::Progress(shared::message::Progress::default())] {
        let event = Event::Notice(notice);
        assert_eq!((lines(&event), object(&event)), (Vec::new(), None));
    }
}
