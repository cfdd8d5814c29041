//! Updates of a round that has not closed, where receipts wait for that: another server may come to lead the run and close the round with
//! updates that do not count here.

use crate::round::Lateness;

use super::*;

fn late(bench: &Bench, n: u8, round: u32) -> Action {
    receipt(bench.peer(n), round, Verdict::Discarded(Discard::Late))
}

/// Round 1 has the one update that it may have, client 1's, and is being closed.
fn closing() -> Bench {
    let mut bench = Bench::open(RoundPolicy { max: Some(1), ..several(2) }, 2);
    let last = bench.delivers(1, 1);
    assert!(matches!(last[..], [Action::Close { .. }]), "{last:?}");
    bench
}

#[test]
fn an_update_that_a_closing_round_does_without_is_discarded_when_it_has_closed() {
    let mut bench = closing();
    let arrived = bench.uploads(2, 1, report(2));
    assert_eq!(arrived, [Action::Drop { upload: UploadId(2) }], "no receipt yet");
    let after = bench.closed(1);
    assert_eq!(after[..2], [bench.accepted(1, 1), late(&bench, 2, 1)]);
}

#[test]
fn a_device_that_holds_such_an_update_keeps_it_until_the_round_has_closed() {
    let mut bench = closing();
    bench.leaves(2);
    assert_eq!(bench.joins_holding(2, spec().run, 1), [welcome(bench.peer(2), Some(1))]);
    bench.leaves(2);
    bench.closed(1);
    assert_eq!(
        bench.joins_holding(2, spec().run, 1),
        [welcome(bench.peer(2), None)],
        "now it does not count"
    );
}

#[test]
fn a_verdict_that_waits_goes_to_the_connection_that_is_there_and_is_counted_once() {
    let mut bench = closing();
    bench.uploads(2, 1, report(2));
    bench.leaves(2);
    bench.joins_holding(2, spec().run, 1);
    assert_eq!(bench.uploads(2, 1, report(2)), [Action::Drop { upload: UploadId(3) }]);
    let after = bench.closed(1);
    assert_eq!(after[..2], [bench.accepted(1, 1), late(&bench, 2, 1)]);
    bench.opened(2);
    let closes = bench.delivers(1, 2);
    let expected = Tally { discarded: 1, ..tally(2, 1, WaitedFor::Count) };
    assert_eq!(closes, [close(2, expected)], "{closes:?}");

    let mut bench = closing();
    bench.uploads(2, 1, report(2));
    bench.leaves(2);
    let after = bench.closed(1);
    assert!(!after.contains(&late(&bench, 2, 1)), "the device is away: {after:?}");
}

#[test]
fn a_late_update_that_another_server_may_have_is_discarded_when_the_round_has_closed() {
    let lateness = Lateness { rounds: 1, power: 0.5 };
    let mut bench = Bench::open(RoundPolicy { max: Some(1), late: Some(lateness), ..several(3) }, 3);
    bench.delivers(1, 1);
    bench.closed(1);
    bench.opened(2);
    bench.delivers(1, 2);
    // Round 2 is being closed, in which clients 2 and 3 might have counted with what they have trained for round 1.
    let arrived = bench.uploads(2, 1, report(2));
    assert_eq!(arrived, [Action::Drop { upload: UploadId(3) }], "no receipt yet");
    bench.leaves(3);
    assert_eq!(bench.joins_holding(3, spec().run, 1), [welcome(bench.peer(3), Some(1))], "kept");
    let after = bench.closed(2);
    assert!(after.contains(&late(&bench, 2, 1)), "{after:?}");
    // A round that has asked the device counts nothing older of it, and does not wait for a receipt of itself.
    bench.opened(3);
    let older = bench.uploads(1, 2, report(1));
    assert_eq!(older, [Action::Drop { upload: UploadId(4) }, late(&bench, 1, 2)]);
}

#[test]
fn a_round_that_another_server_has_opened_before_takes_in_what_was_trained_for_it() {
    let mut bench = Bench::new(several(2));
    assert_eq!(bench.joins_holding(1, spec().run, 1), [welcome(bench.peer(1), Some(1))], "no round is open");
    assert_eq!(bench.uploads(1, 1, report(1)), [], "it waits for the round");
    let opens = bench.joins(2);
    let fold = Action::Fold { round: 1, client: client(1), upload: UploadId(1) };
    assert_eq!(opens[1..], [Action::Open(opening(1, &[1, 2], &[1, 2])), fold]);
}

#[test]
fn a_device_keeps_what_it_has_trained_for_a_round_that_is_being_opened() {
    let mut bench = Bench::new(several(2));
    bench.joins(1);
    bench.joins(2);
    bench.leaves(1);
    assert_eq!(bench.joins_holding(1, spec().run, 1), [welcome(bench.peer(1), Some(1))]);
}

#[test]
fn a_device_that_is_recruited_after_its_update_was_dropped_comes_again_with_it() {
    let one_of_two = RoundPolicy { fraction: 0.5, ..several(2) };
    let mut bench = Bench::open(one_of_two, 2);
    let member =
        (1..=2).find(|n| bench.coordinator.state.round().unwrap().stage(client(*n)).is_some()).unwrap();
    let other = 3 - member;
    let arrived = bench.uploads(other, 1, report(other));
    assert_eq!(arrived, [Action::Drop { upload: UploadId(1) }], "it is no member, and is not told so");
    // No other device can deliver.
    let recruits = bench.fails(member, 1);
    assert!(matches!(recruits[..], [Action::Open(_)]), "{recruits:?}");
    assert_eq!(bench.opened(1), [Action::Disconnect { peer: bench.peer(other) }]);
    assert_eq!(bench.joins_holding(other, spec().run, 1), [welcome(bench.peer(other), Some(1))]);
    let closes = bench.delivers(other, 1);
    let expected = Tally { failed: 1, ..tally(2, 1, WaitedFor::Cohort) };
    assert_eq!(closes, [close(1, expected)], "it was not rejected after all");
}

#[test]
fn an_update_that_was_rejected_for_what_it_is_is_not_wanted_again() {
    let mut bench = Bench::open(several(2), 2);
    bench.uploads(1, 1, report(1));
    bench.leaves(1);
    assert_eq!(
        bench.folded(1, 1, Err(Rejection::NotFinite { tensor: "w".to_owned() })),
        [],
        "the device is away"
    );
    assert_eq!(bench.joins_holding(1, spec().run, 1), [], "another server may have another one of it");
    bench.now += MILLISECOND;
    let answered = bench.give(Event::Leads { asked: bench.now, until: Duration::MAX });
    assert_eq!(answered, [welcome(bench.peer(1), None)]);
    let closes = bench.delivers(2, 1);
    assert_eq!(closes, [close(1, Tally { rejected: 1, ..tally(2, 1, WaitedFor::Cohort) })], "it counts once");
}

#[test]
fn nor_is_a_late_one() {
    let lateness = Lateness { rounds: 2, power: 0.5 };
    let mut bench = Bench::open(RoundPolicy { max: Some(1), late: Some(lateness), ..several(2) }, 2);
    bench.delivers(1, 1);
    bench.closed(1);
    bench.opened(2);
    let fold = bench.uploads(2, 1, report(2));
    assert!(matches!(fold[..], [Action::Fold { .. }]), "{fold:?}");
    bench.leaves(2);
    bench.folded(2, 2, Err(Rejection::NotFinite { tensor: "w".to_owned() }));
    assert_eq!(bench.joins_holding(2, spec().run, 1), [welcome(bench.peer(2), None)]);
}

/// A root that died has closed the round with it, and the receipt was lost: the next one knows who owes an update, and not of whom each came.
#[test]
fn an_update_that_its_device_does_not_owe_is_not_judged_again() {
    let lateness = Lateness { rounds: 2, power: 0.5 };
    let policy = RoundPolicy { late: Some(lateness), ..several(3) };
    let owed = BTreeMap::from([(client(2), OutstandingTask { round: 1, samples: samples(2) })]);
    let resume = Resume { closed: 2, roster: shares(&[1, 2, 3]), owed, ..Resume::default() };
    let mut bench = Bench::resume(policy, resume);
    assert_eq!(bench.joins_holding(1, spec().run, 1), [welcome(bench.peer(1), None)]);
    assert_eq!(bench.joins_holding(2, spec().run, 1), [welcome(bench.peer(2), Some(1))]);
}

#[test]
fn without_other_servers_all_of_that_is_told_at_once() {
    let mut bench = Bench::open(RoundPolicy { max: Some(1), ..policy(2) }, 2);
    bench.delivers(1, 1);
    let arrived = bench.uploads(2, 1, report(2));
    assert_eq!(arrived, [Action::Drop { upload: UploadId(2) }, late(&bench, 2, 1)]);
    bench.leaves(2);
    assert_eq!(bench.joins_holding(2, spec().run, 1), [welcome(bench.peer(2), None)]);
}
