//! After a restart: a round that was to be closed is closed as it was decided.

use super::*;

/// Round 2 had asked clients 1, 2 and 3, and was to close with 1 and 2 because its time was over.
fn decided(tally: Tally, accepted: &[u8]) -> Resume {
    let clients = |of: &[u8]| of.iter().map(|&n| client(n)).collect();
    let reopened = Reopened {
        opening: opening(2, &[1, 2, 3], &[1, 2, 3]),
        accepted: clients(accepted),
        late: BTreeMap::new(),
        closing: Some(Closing { contributors: clients(&[1, 2]), late: BTreeMap::new(), tally }),
        agreement: None,
        fingerprints: BTreeMap::new(),
    };
    Resume { closed: 1, ended: None, roster: shares(&[1, 2, 3]), open: Some(reopened), ..Resume::default() }
}

fn in_time() -> Tally {
    tally(3, 2, WaitedFor::MaxTime)
}

#[test]
fn a_decision_is_carried_out_before_anybody_comes() {
    let mut bench = Bench::resume(policy(3), decided(in_time(), &[1, 2]));
    assert_eq!(bench.drain(), [Action::Close { round: 2, tally: in_time() }]);
    assert_eq!(bench.status(), "round 2: writing to disk");
}

#[test]
fn a_straggler_does_not_get_into_a_round_that_is_decided() {
    let mut bench = Bench::resume(policy(3), decided(in_time(), &[1, 2]));
    bench.drain();
    let straggler = bench.joins_holding(3, spec().run, 2);
    assert_eq!(straggler, [welcome(bench.peer(3), None)]);
    let late = bench.uploads(3, 2, report(3));
    let verdict = Verdict::Discarded(Discard::Late);
    assert_eq!(late, [Action::Drop { upload: UploadId(1) }, receipt(bench.peer(3), 2, verdict)]);
}

#[test]
fn the_round_after_a_decided_one_waits_for_the_known_clients() {
    let mut bench = Bench::resume(policy(3), decided(in_time(), &[1, 2]));
    bench.joins(1);
    assert_eq!(bench.closed(2), [], "the restart has cut every connection");
    assert_eq!(bench.coordinator.deadline(bench.now), Some(RECONNECT_GRACE));
    bench.joins(2);
    assert_eq!(bench.at(just_before(RECONNECT_GRACE)), []);
    let all = bench.joins(3);
    assert_eq!(all[1..], [Action::Open(opening(3, &[1, 2, 3], &[1, 2, 3]))]);
}

#[test]
fn so_does_the_round_after_one_that_a_restart_interrupted() {
    let reopened = Reopened {
        opening: opening(2, &[1, 2, 3], &[1, 2, 3]),
        accepted: [1, 2].map(client).into(),
        late: BTreeMap::new(),
        closing: None,
        agreement: None,
        fingerprints: BTreeMap::new(),
    };
    let resume = Resume {
        closed: 1,
        ended: None,
        roster: shares(&[1, 2, 3]),
        open: Some(reopened),
        ..Resume::default()
    };
    let mut bench = Bench::resume(policy(3), resume);
    bench.joins(3);
    bench.delivers(3, 2);
    assert_eq!(bench.closed(2), [], "clients 1 and 2 are on their way");
    assert_eq!(bench.at(RECONNECT_GRACE), [Action::Open(opening(3, &[3], &[1, 2, 3]))]);
}

#[test]
fn without_one_of_its_updates_a_decision_waits_for_that_one_and_no_other() {
    let mut bench = Bench::resume(policy(3), decided(in_time(), &[1]));
    assert_eq!(bench.drain(), []);
    let straggler = bench.joins_holding(3, spec().run, 2);
    assert_eq!(straggler, [welcome(bench.peer(3), None)]);
    let late = bench.uploads(3, 2, report(3));
    let verdict = Verdict::Discarded(Discard::Late);
    assert_eq!(late, [Action::Drop { upload: UploadId(1) }, receipt(bench.peer(3), 2, verdict)]);
    let wanted = bench.joins(2);
    assert_eq!(wanted, [welcome(bench.peer(2), Some(2)), bench.task(2, 2)]);
    let end = bench.delivers(2, 2);
    let tally = Tally { discarded: 1, ..tally(3, 2, WaitedFor::Cohort) };
    assert_eq!(end, [bench.accepted(2, 2), Action::Close { round: 2, tally }]);
}

#[test]
fn a_void_round_needs_none_of_its_updates() {
    let void = Tally { void: true, ..tally(3, 2, WaitedFor::MinCount) };
    let mut bench = Bench::resume(policy(3), decided(void, &[]));
    assert_eq!(bench.drain(), [Action::Close { round: 2, tally: void }]);
}

#[test]
fn a_last_round_that_was_decided_ends_the_run() {
    let mut resume = decided(in_time(), &[1, 2]);
    resume.closed = 2;
    if let Some(reopened) = &mut resume.open {
        reopened.opening.round = 3;
    }
    let mut bench = Bench::resume(policy(3), resume);
    bench.drain();
    assert_eq!(bench.closed(3), [Action::Finish(Outcome::Completed)]);
}

#[test]
fn a_void_last_round_says_where_its_reasons_are() {
    let void = Tally { void: true, ..tally(3, 2, WaitedFor::MinCount) };
    let one = RunSpec { rounds: 1, ..spec() };
    let policy = |start| RoundPolicy { max_failed: Some(1), ..policy(start) };
    let mut resume = decided(void, &[1, 2]);
    resume.closed = 0;
    if let Some(reopened) = &mut resume.open {
        reopened.opening.round = 1;
    }
    let mut bench = Bench::with(one, policy(3), resume);
    bench.drain();
    let end = bench.closed(1);
    let [Action::Finish(Outcome::NoProgress { rounds: 1, reasons })] = &end[..] else { panic!("{end:?}") };
    assert!(reasons.join("").contains("was restarted"), "{reasons:?}");
}

/// What it keeps for the next round it may keep only if it knows.
#[test]
fn a_client_that_has_missed_its_receipt_is_given_it_when_it_comes_back() {
    let told = |bench: &Bench, round| {
        [receipt(bench.peer(1), round, Verdict::Accepted), welcome(bench.peer(1), None)]
    };
    let mut bench = Bench::open(policy(3), 3);
    bench.delivers(1, 1);
    bench.leaves(1);
    let back = bench.joins_holding(1, spec().run, 1);
    assert_eq!(back, told(&bench, 1), "the round is open");
    bench.delivers(2, 1);
    bench.leaves(1);
    bench.leaves(3);
    let unaware = Opening { counted: [(client(1), 1)].into(), ..opening(2, &[2], &[1, 2, 3]) };
    assert_eq!(bench.closed(1)[..], [Action::Open(unaware)], "and is over");
    let back = bench.joins_holding(1, spec().run, 1);
    assert_eq!(back, told(&bench, 1));
    let straggler = bench.joins_holding(3, spec().run, 1);
    assert_eq!(straggler, [welcome(bench.peer(3), None)], "it is not part of the round");
    bench.opened(2);
    bench.leaves(1);
    bench.leaves(3);
    let round_2 = bench.delivers(2, 2);
    assert_eq!(round_2[1..], [close(2, tally(1, 1, WaitedFor::Cohort))]);
    let next = bench.closed(2);
    assert!(
        matches!(&next[..], [Action::Open(opening)] if opening.counted == [(client(1), 1)].into()),
        "{next:?}"
    );
    let back = bench.joins_holding(1, spec().run, 1);
    assert_eq!(back, told(&bench, 1), "however long ago that was");
    bench.leaves(1);
    assert_eq!(bench.joins(1), [welcome(bench.peer(1), None)]);
    bench.leaves(1);
    assert_eq!(bench.joins_holding(1, spec().run, 1), [welcome(bench.peer(1), None)], "it knew by then");
    bench.leaves(1);
    let another = bench.joins_holding(1, RunId::from_bytes([77; 8]), 1);
    assert_eq!(another, [welcome(bench.peer(1), None)], "of another run");

    let counted = [(client(1), 1)].into();
    let resume = Resume { closed: 1, roster: shares(&[1, 2, 3]), counted, ..Resume::default() };
    let mut bench = Bench::resume(policy(3), resume);
    let back = bench.joins_holding(1, spec().run, 1);
    assert_eq!(back, told(&bench, 1), "another process was notified of it");
}

/// Three rounds of training are closed, the last `void` of them void.
fn all_closed(void: u32) -> Resume {
    Resume { closed: 3, void, failed: void, roster: shares(&[1]), ..Resume::default() }
}

#[test]
fn a_run_that_came_to_nothing_is_no_completed_one_after_a_restart() {
    let policy = |start| RoundPolicy { max_failed: Some(3), ..policy(start) };
    let mut bench = Bench::resume(policy(1), all_closed(3));
    let end = bench.drain();
    let [Action::Finish(Outcome::NoProgress { rounds: 3, reasons })] = &end[..] else { panic!("{end:?}") };
    assert!(reasons.join("").contains("was restarted"), "{reasons:?}");
    let mut bench = Bench::resume(policy(1), all_closed(2));
    assert_eq!(bench.drain(), [], "one round went well, and there are two more");
    let mut bench = Bench::resume(policy(1), all_closed(0));
    assert_eq!(bench.drain(), [Action::Finish(Outcome::Completed)], "all went well");
    // There is nothing to test either.
    let spec = RunSpec {
        evaluate: shared::spec::Evaluation { on_clients_every: 1, ..shared::spec::Evaluation::default() },
        ..spec()
    };
    let mut bench = Bench::with(spec, policy(1), all_closed(3));
    assert!(matches!(bench.drain()[..], [Action::Finish(Outcome::NoProgress { .. })]));
}

#[test]
fn void_rounds_of_before_a_restart_count_in_the_end_and_lengthen_no_pause() {
    let resume = |closed, void| Resume { closed, void, failed: void, ..Resume::default() };
    let policy = |start| RoundPolicy { max_failed: Some(3), ..policy(start) };
    let mut bench = Bench::resume(policy(1), resume(1, 1));
    bench.joins(1);
    for round in 2..=3 {
        bench.opened(round);
        bench.fails(1, round);
        let end = bench.closed(round);
        if round == 2 {
            assert_eq!(
                bench.coordinator.deadline(bench.now),
                Some(VOID_PAUSE),
                "the operator changed something"
            );
            bench.at(VOID_PAUSE);
        } else {
            let Some(Action::Finish(outcome)) = end.last() else { panic!("{end:?}") };
            assert!(matches!(outcome, Outcome::NoProgress { rounds: 3, .. }), "{outcome:?}");
        }
    }
    // A good round forgives those of before as well.
    let mut bench = Bench::resume(policy(1), resume(1, 1));
    bench.joins(1);
    bench.opened(2);
    bench.delivers(1, 2);
    bench.closed(2);
    bench.opened(3);
    bench.fails(1, 3);
    assert_eq!(bench.closed(3), [], "there is a pause");
}
