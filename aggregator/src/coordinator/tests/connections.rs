//! Hello, silence, reconnection, stop.

use super::*;

#[test]
fn an_absurd_number_of_samples_is_refused() {
    let mut coordinator = Coordinator::new(spec(), policy(1), Resume::default(), Duration::ZERO);
    let hello = Hello {
        client: client(1),
        software: String::new(),
        samples: u64::MAX,
        shape: spec().architecture.input.iter().map(|&axis| axis as u32).collect(),
        classes: spec().architecture.classes as u32,
        holds: None,
    };
    coordinator.handle(Duration::ZERO, Event::Message { peer: PeerId(1), message: ToServer::Hello(hello) });
    let answer = coordinator.poll();
    assert!(
        matches!(&answer, Some(Action::Send { message: ToClient::Refused(Refusal::Protocol(_)), .. })),
        "{answer:?}"
    );
}

#[test]
fn unfit_clients_are_refused_with_the_reason() {
    let cases = [
        (
            Hello { shape: vec![1, 3, 3], ..hello(1, None) },
            Refusal::Shape { expected: vec![1, 2, 2], found: vec![1, 3, 3] },
        ),
        (
            Hello { shape: vec![2; 8], ..hello(1, None) },
            Refusal::Shape { expected: vec![1, 2, 2], found: vec![2; 8] },
        ),
        (
            Hello { shape: vec![u32::MAX; 10_000], ..hello(1, None) },
            Refusal::Protocol(
                "it declares samples of 10000 axes, of which at most 8 can be compared with the run's"
                    .to_owned(),
            ),
        ),
        (Hello { classes: 3, ..hello(1, None) }, Refusal::Classes { expected: 2, found: 3 }),
        (Hello { classes: 0, ..hello(1, None) }, Refusal::Unlabelled),
        (Hello { samples: 0, ..hello(1, None) }, Refusal::NoSamples),
    ];
    for (hello, refusal) in cases {
        let mut bench = Bench::new(policy(1));
        let actions = bench.greets(1, hello);
        assert_eq!(actions, refused(bench.peer(1), refusal));
        assert_eq!(bench.coordinator.status(bench.now).known, 0, "it is not known after that");
    }
}

#[test]
fn a_second_hello_breaks_the_protocol() {
    let mut bench = Bench::new(policy(2));
    bench.joins(1);
    let actions = bench.says(1, ToServer::Hello(hello(1, None)));
    let refusal = Refusal::Protocol("it said hello twice on one connection".to_owned());
    assert_eq!(actions, refused(bench.peer(1), refusal));
    assert_eq!(bench.coordinator.status(bench.now).connected, 0);
}

#[test]
fn nothing_more_is_heard_on_a_connection_that_the_coordinator_has_done_with() {
    type End = fn(&mut Bench);
    let silent = Duration::from_hours(1);
    let ends: [(&str, End); 4] = [
        ("a goodbye", |bench| drop(bench.says(1, ToServer::Goodbye))),
        ("a second hello", |bench| drop(bench.says(1, ToServer::Hello(hello(1, None))))),
        ("silence", |bench| drop(bench.at(Duration::from_hours(1)))),
        ("revoked", |bench| drop(bench.give(Event::Revoked { client: client(1) }))),
    ];
    for (how, end) in ends {
        let mut bench = Bench::open(RoundPolicy { connection_timeout: silent, ..policy(2) }, 2);
        bench.now = Duration::from_secs(1);
        bench.says(2, ToServer::Heartbeat(Progress::default()));
        let (peer, victim) = (bench.peer(1), bench.peer(2));
        end(&mut bench);
        for of in [2, 1] {
            let message = ToServer::Hello(hello(of, None));
            let actions = bench.give(Event::Message { peer, message });
            assert_eq!(actions, [Action::Disconnect { peer }], "after {how}, as {of}");
        }
        assert_eq!(bench.coordinator.connections().get(&victim), Some(&client(2)), "after {how}");
        assert_eq!(bench.coordinator.connections().len(), 1, "after {how}");
    }
}

#[test]
fn an_update_without_a_payload_breaks_the_protocol() {
    let mut bench = Bench::open(policy(2), 2);
    let header = shared::message::UpdateHeader { round: 1, report: report(1) };
    let actions = bench.says(1, ToServer::Update(header));
    let refusal = Refusal::Protocol("it sent an update without a payload".to_owned());
    assert_eq!(actions, refused(bench.peer(1), refusal));
    assert_eq!(bench.coordinator.status(bench.now).connected, 1);
}

#[test]
fn a_message_before_hello_ends_the_connection() {
    let messages = [
        ToServer::Heartbeat(Progress::default()),
        ToServer::Failed { round: 1, reason: String::new() },
        ToServer::Goodbye,
    ];
    for message in messages {
        let mut bench = Bench::new(policy(1));
        let actions = bench.give(Event::Message { peer: PeerId(7), message });
        assert_eq!(actions, [Action::Disconnect { peer: PeerId(7) }]);
    }
}

#[test]
fn a_second_connection_takes_over() {
    let mut bench = Bench::open(policy(2), 2);
    let old = bench.peer(1);
    let actions = bench.joins_holding(1, spec().run, 1);
    let mut expected = refused(old, Refusal::Replaced).to_vec();
    expected.push(welcome(bench.peer(1), Some(1)));
    assert_eq!(actions, expected);
    // What still comes from the old one does not disturb the new one.
    let upload = UploadId(50);
    assert_eq!(bench.give(Event::Uploaded(arrival(old, 1, report(1), upload))), [Action::Drop { upload }]);
    assert_eq!(bench.give(Event::Disconnected { peer: old }), []);
    assert_eq!(bench.coordinator.status(bench.now).connected, 2);
    let accepted = bench.delivers(1, 1);
    assert_eq!(accepted, [bench.accepted(1, 1)]);
}

#[test]
fn where_several_servers_serve_the_run_the_former_connection_is_not_refused() {
    let mut bench = Bench::open(RoundPolicy { receipts_at_close: true, ..policy(2) }, 2);
    let live = bench.peer(1);
    // A server that was away passes on what the device said before it went to another one.
    let actions = bench.joins_holding(1, spec().run, 1);
    assert_eq!(actions, [Action::Disconnect { peer: live }, welcome(bench.peer(1), Some(1))]);
    bench.leaves(1);
    // It comes again.
    assert_eq!(bench.joins_holding(1, spec().run, 1), [welcome(bench.peer(1), Some(1))]);
}

#[test]
fn a_hello_that_was_overtaken_does_not_refuse_the_device() {
    let mut bench = Bench::open(policy(2), 2);
    let old = PeerId(bench.next_peer);
    bench.next_peer += 1;
    bench.leaves(1);
    bench.joins(1);
    let newer = bench.peer(1);
    // It was looked up for longer than the one after it, and its device has given it up.
    let message = ToServer::Hello(hello(1, None));
    assert_eq!(bench.give(Event::Message { peer: old, message }), [Action::Disconnect { peer: old }]);
    assert_eq!(bench.coordinator.connections().get(&newer), Some(&client(1)));
    let accepted = bench.delivers(1, 1);
    assert_eq!(accepted, [bench.accepted(1, 1)]);
}

#[test]
fn a_member_that_holds_the_task_is_not_sent_it_again() {
    let mut bench = Bench::open(policy(2), 2);
    bench.leaves(1);
    let actions = bench.joins_holding(1, spec().run, 1);
    assert_eq!(actions, [welcome(bench.peer(1), Some(1))]);
}

#[test]
fn a_member_that_holds_anything_else_is_sent_the_task() {
    let other_run = RunId::from_bytes([1; 8]);
    let held = [None, Some((spec().run, 0)), Some((spec().run, 2)), Some((other_run, 1))];
    for held in held {
        let mut bench = Bench::open(policy(2), 2);
        bench.leaves(1);
        let holds = held.map(|(run, round)| TaskId { run, round });
        let actions = bench.greets(1, hello(1, holds));
        assert_eq!(actions, [welcome(bench.peer(1), Some(1)), bench.task(1, 1)], "{held:?}");
    }
}

#[test]
fn a_member_whose_receipt_was_lost_is_told_that_its_update_counts_or_that_nothing_is_wanted() {
    let mut bench = Bench::open(policy(3), 3);
    bench.uploads(1, 1, report(1));
    bench.leaves(1);
    bench.folded(1, 1, Ok(()));
    let accepted = bench.joins_holding(1, spec().run, 1);
    let receipt = receipt(bench.peer(1), 1, Verdict::Accepted);
    assert_eq!(accepted, [receipt, welcome(bench.peer(1), None)], "it was accepted");
    bench.uploads(2, 1, TrainReport { samples: 1, ..report(2) });
    bench.leaves(2);
    let rejected = bench.joins_holding(2, spec().run, 1);
    assert_eq!(rejected, [welcome(bench.peer(2), None)], "it was rejected");
}

#[test]
fn a_member_keeps_its_update_until_it_is_folded() {
    for holds in [Some(TaskId { run: spec().run, round: 1 }), None] {
        let mut bench = Bench::open(policy(3), 3);
        bench.uploads(1, 1, report(1));
        bench.leaves(1);
        let back = bench.greets(1, hello(1, holds));
        assert_eq!(back, [welcome(bench.peer(1), Some(1))], "wanted, and no task to train again: {holds:?}");
        assert_eq!(bench.folded(1, 1, Ok(())), [bench.accepted(1, 1)], "now it may forget it");
    }
}

#[test]
fn a_member_keeps_its_update_while_a_round_is_opened_again() {
    let mut bench = Bench::open(RoundPolicy { min: 2, ..policy(2) }, 2);
    bench.greets(3, Hello { samples: 10, ..hello(3, None) });
    bench.uploads(1, 1, report(1));
    let recruits = bench.fails(2, 1);
    assert_eq!(recruits, [], "nothing moves while an update is folded");
    // With client 1's update accepted the round is opened again for client 3.
    let again = bench.folded(1, 1, Ok(()));
    assert!(matches!(again[..], [_, Action::Open(_)]), "{again:?}");
    let late = bench.uploads(2, 1, report(2));
    assert!(matches!(late[..], [Action::Fold { .. }]), "{late:?}");
    let back = bench.joins_holding(2, spec().run, 1);
    assert_eq!(back.last(), Some(&welcome(bench.peer(2), Some(1))));
}

#[test]
fn a_newcomer_in_an_open_round_waits_for_the_next() {
    let mut bench = Bench::open(policy(1), 1);
    let actions = bench.joins(2);
    assert_eq!(actions, [welcome(bench.peer(2), None)]);
    let end = bench.delivers(1, 1);
    assert_eq!(end.len(), 2, "accepted, close: {end:?}");
    assert_eq!(bench.closed(1), [Action::Open(opening(2, &[1, 2], &[1, 2]))]);
}

#[test]
fn silence_disconnects_and_the_round_goes_on() {
    let connection_timeout = Duration::from_secs(15);
    let mut bench = Bench::open(RoundPolicy { connection_timeout, ..policy(2) }, 2);
    bench.now = Duration::from_secs(10);
    bench.delivers(1, 1);
    assert_eq!(bench.coordinator.deadline(bench.now), Some(connection_timeout));
    assert_eq!(bench.at(just_before(connection_timeout)), []);
    let actions = bench.at(connection_timeout);
    let lost = Tally { lost: 1, ..tally(2, 1, WaitedFor::Cohort) };
    assert_eq!(
        actions,
        [Action::Disconnect { peer: bench.peer(2) }, Action::Close { round: 1, tally: lost }]
    );
    // It knows nothing of it yet: it is not refused, so that it comes back.
    let heartbeat = bench.says(2, ToServer::Heartbeat(Progress::default()));
    assert_eq!(heartbeat, [Action::Disconnect { peer: bench.peer(2) }]);
}

#[test]
fn every_message_is_a_sign_of_life() {
    let connection_timeout = Duration::from_secs(15);
    let mut bench = Bench::open(RoundPolicy { connection_timeout, ..policy(2) }, 2);
    bench.now = Duration::from_secs(10);
    bench.says(1, ToServer::Heartbeat(Progress::default()));
    bench.uploads(2, 1, TrainReport { samples: 1, ..report(2) });
    assert_eq!(bench.coordinator.deadline(bench.now), Some(Duration::from_secs(25)));
    assert_eq!(bench.at(just_before(Duration::from_secs(25))), []);
    assert_eq!(bench.coordinator.status(bench.now).connected, 2);
}

#[test]
fn silence_is_noticed_in_every_state() {
    let connection_timeout = Duration::from_secs(15);
    let quick = RoundPolicy { connection_timeout, ..policy(1) };
    let mut gathering = Bench::new(RoundPolicy { start: 2, ..quick });
    gathering.joins(1);
    let mut opening = Bench::new(quick);
    opening.joins(1);
    let mut closing = Bench::open(quick, 1);
    closing.delivers(1, 1);
    for (state, mut bench) in [("gathering", gathering), ("opening", opening), ("closing", closing)] {
        assert_eq!(bench.coordinator.deadline(bench.now), Some(connection_timeout), "{state}");
        assert_eq!(bench.at(connection_timeout), [Action::Disconnect { peer: bench.peer(1) }], "{state}");
    }
}

#[test]
fn stop_disconnects_everyone_in_every_state() {
    let mut gathering = Bench::new(policy(2));
    gathering.joins(1);
    let mut opening = Bench::new(policy(1));
    opening.joins(1);
    let open = Bench::open(policy(1), 1);
    let mut closing = Bench::open(policy(1), 1);
    closing.delivers(1, 1);
    let benches = [("gathering", gathering), ("opening", opening), ("open", open), ("closing", closing)];
    for (state, mut bench) in benches {
        let expected = [Action::Disconnect { peer: bench.peer(1) }, Action::Finish(Outcome::Stopped)];
        assert_eq!(bench.give(Event::Stop), expected, "{state}");
        assert_eq!(bench.give(Event::Stop), [], "{state}: once");
        assert_eq!(
            bench.coordinator.deadline(bench.now).filter(|_| bench.status() != "the run is over"),
            None
        );
    }
}

#[test]
fn a_finished_coordinator_only_drops_uploads() {
    let mut bench = Bench::open(policy(2), 2);
    bench.uploads(1, 1, report(1));
    bench.give(Event::Stop);
    assert_eq!(bench.joins(3), []);
    assert_eq!(bench.folded(1, 1, Ok(())), []);
    assert_eq!(bench.opened(1), []);
    assert_eq!(bench.closed(1), []);
    assert_eq!(bench.at(TIMEOUT * 100), []);
    assert_eq!(bench.uploads(2, 1, report(2)), [Action::Drop { upload: UploadId(2) }]);
    assert_eq!(bench.coordinator.closed(), 0);
}

#[test]
fn who_waits_for_its_turn_to_upload_is_not_lost() {
    let connection_timeout = Duration::from_secs(10);
    let mut bench = Bench::open(RoundPolicy { connection_timeout, ..policy(1) }, 1);
    bench.at(Duration::from_secs(9));
    let peer = bench.peer(1);
    assert_eq!(bench.give(Event::Alive { peer }), []);
    assert_eq!(bench.at(just_before(Duration::from_secs(19))), []);
    assert_eq!(bench.at(Duration::from_secs(19)), [Action::Disconnect { peer }]);
}

/// A client of a crowd.
fn passer(number: usize) -> ClientId {
    let mut id = [0xff; 16];
    id[8..].copy_from_slice(&(number as u64).to_le_bytes());
    ClientId::from_bytes(id)
}

/// It says hello, and goes again unless it `stays`.
fn passes(coordinator: &mut Coordinator, number: usize, stays: bool) -> Vec<Action> {
    let (peer, now) = (PeerId(number as u64), Duration::from_secs(number as u64));
    let hello = Hello { client: passer(number), ..hello(1, None) };
    coordinator.handle(now, Event::Message { peer, message: ToServer::Hello(hello) });
    let actions = std::iter::from_fn(|| coordinator.poll()).collect();
    if !stays {
        coordinator.handle(now, Event::Disconnected { peer });
    }
    actions
}

#[test]
fn the_roster_ends_and_whoever_is_away_longest_goes_first() {
    const MORE: usize = 20;
    let policy = RoundPolicy { connection_timeout: Duration::from_secs(1 << 30), ..policy(3) };
    let mut coordinator = Coordinator::new(spec(), policy, Resume::default(), Duration::ZERO);
    // The first one stays, all others only look in.
    for number in 0..MAX_ROSTER + MORE {
        let welcomed = passes(&mut coordinator, number, number == 0);
        assert!(
            matches!(welcomed[0], Action::Send { message: ToClient::Welcome { .. }, .. }),
            "{welcomed:?}"
        );
        let known = coordinator.status(Duration::ZERO).known;
        assert_eq!(known, (number + 1).min(MAX_ROSTER), "{number}");
    }
    let here_last = || (MORE + 1..MAX_ROSTER + MORE).chain([0]).map(passer).collect::<BTreeSet<_>>();
    assert!(coordinator.roster().into_keys().collect::<BTreeSet<_>>() == here_last());
    // A known client comes back without another one's leaving.
    passes(&mut coordinator, MAX_ROSTER + MORE - 1, false);
    assert!(coordinator.roster().into_keys().collect::<BTreeSet<_>>() == here_last());
}

#[test]
fn whoever_is_asked_keeps_its_place_however_long_it_is_away() {
    let policy = RoundPolicy { connection_timeout: Duration::from_secs(1 << 30), ..policy(1) };
    let mut coordinator = Coordinator::new(spec(), policy, Resume::default(), Duration::ZERO);
    passes(&mut coordinator, 0, false);
    coordinator.handle(Duration::ZERO, Event::Opened { round: 1 });
    for number in 1..=MAX_ROSTER {
        passes(&mut coordinator, number, false);
    }
    let roster = coordinator.roster();
    assert_eq!(roster.len(), MAX_ROSTER);
    assert!(roster.contains_key(&passer(0)) && !roster.contains_key(&passer(1)));
}
