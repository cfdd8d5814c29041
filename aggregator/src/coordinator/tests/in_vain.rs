//! Rounds that wait for clients that do not come back, while others could make another one.

use crate::round::Lateness;

use super::*;

fn void(of: Tally) -> Action {
    close(1, Tally { void: true, ..of })
}

#[test]
fn whoever_comes_in_place_of_a_lost_client_gets_a_round_although_it_weighs_more() {
    let mut bench = Bench::open(policy(1), 1);
    bench.leaves(1);
    assert_eq!(bench.joins(2), [welcome(bench.peer(2), None)], "the sums have no room for its samples");
    assert_eq!(bench.at(TIMEOUT), [], "client 1 has more time");
    assert_eq!(bench.at(just_before(2 * TIMEOUT)), []);
    assert_eq!(bench.at(2 * TIMEOUT), [void(Tally { lost: 1, ..tally(1, 0, WaitedFor::MinCount) })]);
    bench.closed(1);
    let after = bench.now + VOID_PAUSE;
    assert_eq!(bench.at(after), [Action::Open(opening(2, &[2], &[1, 2]))], "with a scale of its own");
}

#[test]
fn so_it_is_after_a_restart() {
    let reopened = Reopened {
        opening: opening(1, &[1], &[1]),
        accepted: BTreeSet::new(),
        late: BTreeMap::new(),
        closing: None,
        agreement: None,
        fingerprints: BTreeMap::new(),
    };
    let resume = Resume { roster: shares(&[1]), open: Some(reopened), ..Resume::default() };
    let mut bench = Bench::resume(policy(1), resume);
    bench.joins(2);
    assert_eq!(bench.at(TIMEOUT), []);
    assert_eq!(bench.at(2 * TIMEOUT), [void(Tally { lost: 1, ..tally(1, 0, WaitedFor::MinCount) })]);
}

#[test]
fn those_that_failed_are_asked_in_another_round_if_the_rest_does_not_come_back() {
    let mut bench = Bench::open(RoundPolicy { min: 2, ..policy(3) }, 3);
    bench.fails(1, 1);
    bench.delivers(2, 1);
    bench.leaves(3);
    assert_eq!(bench.at(TIMEOUT), []);
    let of = Tally { failed: 1, lost: 1, ..tally(3, 1, WaitedFor::MinCount) };
    assert_eq!(bench.at(2 * TIMEOUT), [void(of)]);
}

#[test]
fn without_enough_clients_for_another_round_it_waits_on() {
    let mut bench = Bench::open(RoundPolicy { min: 2, ..policy(2) }, 2);
    bench.delivers(1, 1);
    bench.leaves(2);
    for windows in 1..=4 {
        assert_eq!(bench.at(windows * TIMEOUT), [], "the update that is in is worth more than a void round");
    }
    bench.joins(3);
    assert_eq!(bench.at(just_before(5 * TIMEOUT)), []);
    let of = Tally { lost: 1, ..tally(2, 1, WaitedFor::MinCount) };
    assert_eq!(bench.at(5 * TIMEOUT), [void(of)]);
}

#[test]
fn somebody_at_work_is_waited_for_however_long_it_takes() {
    let mut bench = Bench::open(RoundPolicy { min: 2, ..policy(3) }, 3);
    bench.fails(1, 1);
    bench.leaves(2);
    for windows in 1..=4 {
        assert_eq!(bench.at(windows * TIMEOUT), []);
    }
    assert_eq!(bench.delivers(3, 1), [bench.accepted(3, 1)], "its time is over at the end of the window");
    let of = Tally { failed: 1, lost: 1, ..tally(3, 1, WaitedFor::MinCount) };
    assert_eq!(bench.at(5 * TIMEOUT), [void(of)]);
}

#[test]
fn a_client_that_owes_an_update_and_has_vanished_does_not_keep_a_round_open() {
    let late = Some(Lateness { rounds: 2, power: 0.5 });
    let mut bench = Bench::open(RoundPolicy { max: Some(1), late, ..policy(2) }, 2);
    bench.delivers(1, 1);
    bench.closed(1);
    bench.opened(2);
    bench.leaves(2);
    assert_eq!(bench.fails(1, 2), []);
    assert_eq!(bench.at(TIMEOUT), []);
    let end = bench.at(2 * TIMEOUT);
    let [Action::Close { round: 2, tally }] = end[..] else { panic!("{end:?}") };
    assert!(tally.void && tally.failed == 1, "{tally:?}");
}
