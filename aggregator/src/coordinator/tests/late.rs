//! Updates that come after their round.

use crate::round::Lateness;

use super::*;

const LATENESS: Lateness = Lateness { rounds: 2, power: 0.5 };

/// Rounds close with one update, and late ones count.
fn keeping(start: usize) -> RoundPolicy {
    RoundPolicy { max: Some(1), late: Some(LATENESS), ..policy(start) }
}

fn owed(of: &[(u8, u32)]) -> BTreeMap<ClientId, OutstandingTask> {
    of.iter().map(|&(n, round)| (client(n), OutstandingTask { round, samples: samples(n) })).collect()
}

fn drawn(actions: &[Action]) -> &Opening {
    match actions {
        [Action::Open(opening), ..] => opening,
        other => panic!("{other:?}"),
    }
}

fn fold(n: u8, round: u32, upload: u64) -> Action {
    Action::Fold { round, client: client(n), upload: UploadId(upload) }
}

impl Bench {
    /// Round 1 is closed with client 1's update, while client 2 is still at work.
    fn behind() -> Self {
        let mut bench = Self::open(keeping(2), 2);
        bench.delivers(1, 1);
        bench
    }

    /// Round 2 is open, and client 3's update of round 1 is being folded. Receipts come when the round has closed.
    fn late_where_receipts_wait() -> Self {
        let lateness = RoundPolicy { max: Some(2), late: Some(LATENESS), ..policy(3) };
        let mut bench = Self::open(RoundPolicy { receipts_at_close: true, ..lateness }, 3);
        bench.delivers(1, 1);
        bench.delivers(2, 1);
        bench.closed(1);
        bench.opened(2);
        bench.uploads(3, 1, report(3));
        bench
    }
}

#[test]
fn a_client_that_is_behind_is_left_at_work_and_counts_when_it_comes() {
    let mut bench = Bench::behind();
    let next = bench.closed(1);
    let opening = drawn(&next);
    assert_eq!((opening.round, &opening.cohort), (2, &shares(&[1])), "client 2 is not called off");
    assert_eq!(opening.owed, owed(&[(2, 1)]));
    bench.opened(2);
    assert_eq!(bench.uploads(2, 1, report(2)), [fold(2, 2, 2)]);
    let last = bench.folded(2, 2, Ok(()));
    let expected = Tally { late: 1, ..tally(1, 1, WaitedFor::Count) };
    assert_eq!(last, [bench.accepted(2, 1), close(2, expected)], "the receipt is for what it has trained");
    let next = bench.closed(2);
    assert_eq!(drawn(&next).cohort, shares(&[2]), "client 1 is behind now");
    assert_eq!(drawn(&next).owed, owed(&[(1, 2)]));
}

#[test]
fn between_two_rounds_a_late_update_waits() {
    let mut bench = Bench::behind();
    assert_eq!(bench.uploads(2, 1, report(2)), [], "round 1 is closing");
    let next = bench.closed(1);
    drawn(&next);
    assert_eq!(next[1..], [fold(2, 2, 2)]);
    assert_eq!(bench.folded(2, 2, Ok(())), [bench.accepted(2, 1)]);
    let last = bench.opened(2);
    assert_eq!(last[1..], [close(2, Tally { late: 1, ..tally(1, 1, WaitedFor::Count) })]);
}

#[test]
fn what_waits_is_dropped_if_its_client_is_gone_or_the_run_ends() {
    let mut bench = Bench::behind();
    bench.uploads(2, 1, report(2));
    assert_eq!(bench.leaves(2), [Action::Drop { upload: UploadId(2) }]);

    let mut bench = Bench::behind();
    bench.uploads(2, 1, report(2));
    let last = bench.give(Event::Stop);
    assert!(last.contains(&Action::Drop { upload: UploadId(2) }), "{last:?}");
}

#[test]
fn no_update_counts_twice() {
    let mut bench = Bench::behind();
    bench.closed(1);
    bench.opened(2);
    let over = |bench: &Bench, n: u8| receipt(bench.peer(n), 1, Verdict::Discarded(Discard::Late));
    let again = bench.uploads(1, 1, report(1));
    assert_eq!(again, [Action::Drop { upload: UploadId(2) }, over(&bench, 1)], "it was in time");
    bench.uploads(2, 1, report(2));
    let again = bench.uploads(2, 1, report(2));
    assert_eq!(again, [Action::Drop { upload: UploadId(4) }], "one receipt for both");
    bench.folded(2, 2, Ok(()));
    bench.closed(2);
    bench.opened(3);
    let again = bench.uploads(2, 1, report(2));
    assert_eq!(again, [Action::Drop { upload: UploadId(5) }, over(&bench, 2)]);
}

#[test]
fn one_that_is_too_late_is_discarded_and_its_client_is_asked_anew() {
    let mut bench = Bench::open(keeping(3), 3);
    bench.delivers(1, 1);
    for round in 2..=3 {
        bench.closed(round - 1);
        bench.opened(round);
        if round == 2 {
            bench.delivers(1, 2);
        } else {
            bench.uploads(2, 1, report(2));
            bench.folded(2, 3, Ok(()));
        }
    }
    // Three rounds were planned, and the last one closes: nothing counts any more.
    let late = receipt(bench.peer(3), 1, Verdict::Discarded(Discard::Late));
    assert_eq!(bench.uploads(3, 1, report(3)).last(), Some(&late));

    let strict = Lateness { rounds: 1, ..LATENESS };
    let mut bench = Bench::open(RoundPolicy { late: Some(strict), ..keeping(2) }, 2);
    bench.delivers(1, 1);
    bench.closed(1);
    bench.opened(2);
    bench.delivers(1, 2);
    let next = bench.closed(2);
    assert_eq!(drawn(&next).cohort, shares(&[1, 2]), "its update would be two rounds late");
    bench.opened(3);
    let late = receipt(bench.peer(2), 1, Verdict::Discarded(Discard::Late));
    assert_eq!(bench.uploads(2, 1, report(2)).last(), Some(&late));
}

#[test]
fn whoever_comes_back_with_an_earlier_task_is_wanted() {
    let run = spec().run;
    let mut bench = Bench::behind();
    bench.closed(1);
    bench.opened(2);
    let joined = bench.joins_holding(2, run, 1);
    assert_eq!(joined.last(), Some(&welcome(bench.peer(2), Some(1))), "and sent no task");
    let mut lost = Bench::behind();
    lost.leaves(2);
    let joined = lost.joins_holding(2, run, 1);
    assert_eq!(joined.last(), Some(&welcome(lost.peer(2), Some(1))), "while the round closes, too");
    let next = lost.closed(1);
    assert_eq!(drawn(&next).cohort, shares(&[1]));
    let joined = lost.joins(2);
    assert_eq!(joined.last(), Some(&welcome(lost.peer(2), None)), "it has lost what it was at");
}

#[test]
fn a_round_waits_for_those_that_are_behind_and_never_for_nobody() {
    // The buffer holds two, and two are at work at any time.
    let policy = RoundPolicy { min: 2, max: Some(2), ..keeping(3) };
    let mut bench = Bench::open(policy, 3);
    bench.delivers(1, 1);
    bench.delivers(2, 1);
    let next = bench.closed(1);
    assert_eq!(drawn(&next).cohort, shares(&[1, 2]));
    bench.opened(2);
    bench.fails(1, 2);
    assert_eq!(bench.fails(2, 2), [], "one of the two that are wanted is still to come: more time for it");
    let said = bench.status();
    assert!(said.starts_with("round 2: 0 of 2 updates in, 1 at an earlier round ("), "{said}");
    bench.leaves(3);
    assert!(bench.coordinator.poll().is_none(), "a break in its network costs the round nothing");
    let run = spec().run;
    assert_eq!(bench.joins_holding(3, run, 1).last(), Some(&welcome(bench.peer(3), Some(1))));
    assert_eq!(bench.uploads(3, 1, report(3)), [fold(3, 2, 3)]);
    let last = bench.folded(3, 2, Ok(()));
    let Some(Action::Close { tally: found, .. }) = last.last() else { panic!("{last:?}") };
    assert!(found.void, "one update, and no client left to ask or wait for: {found:?}");
}

/// The two updates that the round needs: one is in, the other's device is at work for round 1 when the aggregator is killed.
#[test]
fn a_restart_voids_no_round_that_waits_for_those_that_are_behind() {
    let reopened = Reopened {
        opening: Opening { owed: owed(&[(3, 1)]), ..opening(2, &[1], &[1, 3]) },
        accepted: [client(1)].into(),
        late: BTreeMap::new(),
        closing: None,
        agreement: None,
        fingerprints: BTreeMap::new(),
    };
    let resume = Resume {
        closed: 1,
        roster: shares(&[1, 3]),
        owed: owed(&[(3, 1)]),
        open: Some(reopened),
        ..Resume::default()
    };
    let mut bench = Bench::resume(RoundPolicy { min: 2, max: Some(2), ..keeping(2) }, resume);
    assert_eq!(bench.drain(), [], "no client can be back yet");
    bench.joins(1);
    assert_eq!(bench.at(RECONNECT_GRACE), []);
    bench.joins_holding(3, spec().run, 1);
    bench.uploads(3, 1, report(3));
    let last = bench.folded(3, 2, Ok(()));
    let expected = Tally { late: 1, ..tally(1, 2, WaitedFor::Cohort) };
    assert_eq!(last, [bench.accepted(3, 1), close(2, expected)]);
}

#[test]
fn a_void_round_says_why_late_updates_were_rejected() {
    let mut bench = Bench::open(RoundPolicy { min: 2, max: Some(2), ..keeping(3) }, 3);
    bench.delivers(1, 1);
    bench.delivers(2, 1);
    bench.closed(1);
    bench.opened(2);
    bench.uploads(3, 1, TrainReport { samples: 1, ..report(3) });
    let State::Open { round } = &bench.coordinator.state else { panic!("it is open") };
    let reasons = round.reasons();
    assert!(reasons.len() == 1 && reasons[0].contains("declared 30 samples"), "{reasons:?}");
}

#[test]
fn the_closing_round_is_for_those_that_are_behind_and_that_rest_as_well() {
    let mut spec = spec();
    (spec.rounds, spec.evaluate.on_clients_every) = (1, 1);
    let mut bench = Bench::with(spec, keeping(3), Resume::default());
    for n in 1..=3 {
        bench.joins(n);
    }
    bench.opened(1);
    bench.says(3, ToServer::Ineligible { round: 1, reason: shared::eligibility::Ineligible::Battery });
    bench.delivers(1, 1);
    let next = bench.closed(1);
    let tests = drawn(&next);
    assert_eq!((tests.work.train, tests.cohort.len()), (false, 3), "{tests:?}");
}

#[test]
fn nobody_sends_what_it_was_not_asked_for_and_nobody_is_behind_by_its_own_word() {
    let mut bench = Bench::open(RoundPolicy { fraction: 0.5, ..keeping(4) }, 4);
    let asked: Vec<u8> = (1..=4)
        .filter(|&n| {
            let State::Open { round } = &bench.coordinator.state else { panic!("it is open") };
            round.stage(client(n)).is_some()
        })
        .collect();
    bench.delivers(asked[0], 1);
    bench.closed(1);
    bench.opened(2);
    let stranger = (1..=4).find(|n| !asked.contains(n)).expect("two were not drawn");
    let run = spec().run;
    let State::Open { round } = &bench.coordinator.state else { panic!("it is open") };
    let wants = round.stage(client(stranger)).map(|_| 2);
    let joined = bench.joins_holding(stranger, run, 1);
    assert!(joined.contains(&welcome(bench.peer(stranger), wants)), "{joined:?}");
    let late = receipt(bench.peer(stranger), 1, Verdict::Discarded(Discard::Late));
    assert_eq!(bench.uploads(stranger, 1, report(stranger)).last(), Some(&late));
    assert_eq!(bench.coordinator.behind(client(stranger)), None);
}

#[test]
fn what_waits_makes_room_when_the_disk_is_full_and_comes_again() {
    let mut bench = Bench::behind();
    bench.uploads(2, 1, report(2));
    let peer = bench.peer(2);
    let paused = bench.give(Event::Paused);
    assert_eq!(paused, [Action::Drop { upload: UploadId(2) }, Action::Disconnect { peer }]);
    bench.give(Event::Resumed);
    let joined = bench.joins_holding(2, spec().run, 1);
    assert_eq!(joined.last(), Some(&welcome(bench.peer(2), Some(1))), "it is offered again");
}

#[test]
fn after_a_restart_the_books_are_those_of_before() {
    let reopened = Reopened {
        opening: Opening { owed: owed(&[(2, 1), (3, 1)]), ..opening(2, &[1], &[1, 2, 3]) },
        accepted: [client(2)].into(),
        late: [(client(2), 1)].into(),
        closing: None,
        agreement: None,
        fingerprints: BTreeMap::new(),
    };
    let resume = Resume {
        closed: 1,
        roster: shares(&[1, 2, 3]),
        owed: owed(&[(3, 1)]),
        open: Some(reopened),
        ..Resume::default()
    };
    let mut bench = Bench::resume(RoundPolicy { min: 2, max: None, ..keeping(3) }, resume);
    let run = spec().run;
    let welcomed = |bench: &mut Bench, n, held| bench.joins_holding(n, run, held).first().cloned();
    assert_eq!(welcomed(&mut bench, 2, 1), Some(welcome(bench.peer(2), None)), "its update is in");
    assert_eq!(welcomed(&mut bench, 3, 1), Some(welcome(bench.peer(3), Some(1))), "it is behind");
    bench.joins(1);
    let last = bench.delivers(1, 2);
    assert_eq!(last[1..], [close(2, Tally { late: 1, ..tally(1, 2, WaitedFor::Cohort) })]);
}

#[test]
fn where_late_updates_do_not_count_nothing_of_this_happens() {
    let mut bench = Bench::open(RoundPolicy { late: None, ..keeping(2) }, 2);
    bench.delivers(1, 1);
    let late = receipt(bench.peer(2), 1, Verdict::Discarded(Discard::Late));
    assert_eq!(bench.uploads(2, 1, report(2)), [Action::Drop { upload: UploadId(2) }, late]);
    let next = bench.closed(1);
    assert_eq!(drawn(&next).cohort, shares(&[1, 2]));
    assert_eq!(drawn(&next).owed, owed(&[]));
}

#[test]
fn where_receipts_wait_a_late_update_is_kept_until_the_round_has_closed() {
    let mut bench = Bench::late_where_receipts_wait();
    assert_eq!(bench.folded(3, 2, Ok(())), [], "it counts when round 2 has closed");
    bench.leaves(3);
    assert_eq!(
        bench.joins_holding(3, spec().run, 1),
        [welcome(bench.peer(3), Some(1))],
        "the device keeps it"
    );
    let again = bench.uploads(3, 1, report(3));
    assert!(matches!(again[..], [Action::Drop { .. }]), "{again:?}");
    let closes = bench.delivers(1, 2);
    assert!(matches!(closes[..], [Action::Close { round: 2, .. }]), "{closes:?}");
    assert_eq!(bench.joins_holding(3, spec().run, 1).last(), Some(&welcome(bench.peer(3), Some(1))));
    let receipts = bench.closed(2);
    assert!(
        receipts.contains(&bench.accepted(3, 1)) && receipts.contains(&bench.accepted(1, 2)),
        "{receipts:?}"
    );
}

#[test]
fn where_receipts_wait_a_late_update_that_is_lost_is_taken_again() {
    let mut bench = Bench::late_where_receipts_wait();
    bench.give(Event::Lost { round: 2, client: client(3) });
    assert_eq!(bench.joins_holding(3, spec().run, 1), [welcome(bench.peer(3), Some(1))]);
    let again = bench.uploads(3, 1, report(3));
    assert!(matches!(again[..], [Action::Fold { round: 2, .. }]), "{again:?}");
}
