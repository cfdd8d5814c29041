//! Updates of a round that has not closed, where receipts wait for that: another server may come to lead the run and close the round with
//! updates that do not count here.

use super::*;

fn waiting(start: usize) -> RoundPolicy {
    RoundPolicy { receipts_at_close: true, ..policy(start) }
}

fn late(bench: &Bench, n: u8, round: u32) -> Action {
    receipt(bench.peer(n), round, Verdict::Discarded(Discard::Late))
}

/// Round 1 has the one update that it may have, client 1's, and is being closed.
fn closing() -> Bench {
    let mut bench = Bench::open(RoundPolicy { max: Some(1), ..waiting(2) }, 2);
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
fn nothing_is_told_of_a_dropped_update_whose_connection_has_ended() {
    let mut bench = closing();
    bench.uploads(2, 1, report(2));
    bench.leaves(2);
    let after = bench.closed(1);
    assert!(!after.contains(&late(&bench, 2, 1)), "{after:?}");
}

#[test]
fn a_round_that_another_server_has_opened_before_takes_in_what_was_trained_for_it() {
    let mut bench = Bench::new(waiting(2));
    assert_eq!(bench.joins_holding(1, spec().run, 1), [welcome(bench.peer(1), Some(1))], "no round is open");
    assert_eq!(bench.uploads(1, 1, report(1)), [], "it waits for the round");
    let opens = bench.joins(2);
    let fold = Action::Fold { round: 1, client: client(1), upload: UploadId(1) };
    assert_eq!(opens[1..], [Action::Open(opening(1, &[1, 2], &[1, 2])), fold]);
}

#[test]
fn a_device_keeps_what_it_has_trained_for_a_round_that_is_being_opened() {
    let mut bench = Bench::new(waiting(2));
    bench.joins(1);
    bench.joins(2);
    bench.leaves(1);
    assert_eq!(bench.joins_holding(1, spec().run, 1), [welcome(bench.peer(1), Some(1))]);
}

#[test]
fn a_device_that_is_recruited_after_its_update_was_dropped_comes_again_with_it() {
    let one_of_two = RoundPolicy { fraction: 0.5, min_wait: TIMEOUT, ..waiting(2) };
    let mut bench = Bench::open(one_of_two, 2);
    let member =
        (1..=2).find(|n| bench.coordinator.state.round().unwrap().stage(client(*n)).is_some()).unwrap();
    let other = 3 - member;
    let arrived = bench.uploads(other, 1, report(other));
    assert_eq!(arrived, [Action::Drop { upload: UploadId(1) }], "it is no member, and is not told so");
    // Nobody else can deliver.
    let recruits = bench.fails(member, 1);
    assert!(matches!(recruits[..], [Action::Open(_)]), "{recruits:?}");
    assert_eq!(bench.opened(1), [Action::Disconnect { peer: bench.peer(other) }]);
    assert_eq!(bench.joins_holding(other, spec().run, 1), [welcome(bench.peer(other), Some(1))]);
    let arrived = bench.uploads(other, 1, report(other));
    assert_eq!(arrived, [Action::Fold { round: 1, client: client(other), upload: UploadId(2) }]);
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
