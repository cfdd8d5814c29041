//! No room on this machine's disk: time stands still for the open round.

use super::*;

#[test]
fn a_paused_round_neither_closes_nor_loses_its_time() {
    let mut bench = Bench::open(RoundPolicy { min: 2, ..policy(3) }, 3);
    bench.delivers(1, 1);
    bench.delivers(2, 1);
    bench.now = TIMEOUT / 2;
    assert_eq!(bench.give(Event::Paused), []);
    assert_eq!(bench.give(Event::Paused), [], "it is paused once");
    assert!(bench.coordinator.status(bench.now).paused);
    assert_eq!(bench.leaves(3), [], "whose update could not be written down");
    assert_eq!(bench.at(2 * TIMEOUT), []);
    assert_eq!(bench.give(Event::Resumed), [], "it is waited for, as after a restart");
    let over = 2 * TIMEOUT + RECONNECT_GRACE;
    assert_eq!(bench.coordinator.deadline(bench.now), Some(over));
    assert_eq!(bench.at(just_before(over)), []);
    let lost = Tally { lost: 1, ..tally(3, 2, WaitedFor::Cohort) };
    assert_eq!(bench.at(over), [close(1, lost)]);
}

#[test]
fn what_is_left_of_its_time_begins_again() {
    let mut bench = Bench::open(RoundPolicy { min: 2, ..policy(3) }, 3);
    bench.delivers(1, 1);
    bench.delivers(2, 1);
    bench.now = TIMEOUT / 4;
    bench.give(Event::Paused);
    bench.now = TIMEOUT * 3;
    bench.give(Event::Resumed);
    let over = TIMEOUT * 3 + TIMEOUT / 4 * 3;
    assert_eq!(bench.at(just_before(over)), []);
    assert_eq!(bench.at(over), [close(1, tally(3, 2, WaitedFor::MaxTime))]);
}

#[test]
fn the_pause_after_a_void_round_is_not_cut_short() {
    let mut bench = Bench::open(policy(1), 1);
    bench.fails(1, 1);
    bench.closed(1);
    bench.give(Event::Paused);
    bench.now = TIMEOUT;
    assert_eq!(bench.give(Event::Resumed), []);
    assert_eq!(bench.coordinator.deadline(bench.now), Some(TIMEOUT + VOID_PAUSE));
}

/// Or the next round would be as far away as the disk was full before it.
#[test]
fn a_gathering_that_began_in_a_pause_has_lost_the_rest_of_it() {
    let mut bench = Bench::open(policy(1), 1);
    bench.fails(1, 1);
    bench.give(Event::Paused);
    bench.now = TIMEOUT;
    bench.closed(1);
    let rest = Duration::from_millis(300);
    bench.now += rest;
    assert_eq!(bench.give(Event::Resumed), []);
    assert_eq!(bench.coordinator.deadline(bench.now), Some(TIMEOUT + VOID_PAUSE + rest));
}

#[test]
fn no_round_opens_while_it_is_paused() {
    let mut bench = Bench::new(policy(1));
    bench.give(Event::Paused);
    assert!(!bench.joins(1).iter().any(|action| matches!(action, Action::Open(_))));
    assert_eq!(bench.give(Event::Resumed), [Action::Open(opening(1, &[1], &[1]))]);
}

#[test]
fn on_request_no_new_round_opens_and_the_open_one_goes_on() {
    let mut bench = Bench::open(policy(1), 1);
    assert_eq!(bench.give(Event::Held(true)), []);
    bench.delivers(1, 1);
    assert_eq!(bench.closed(1), [], "round 2 is held back");
    assert!(bench.status().contains("PAUSED on request"), "{}", bench.status());
    assert_eq!(bench.coordinator.connections().len(), 1, "the device stays");
    assert!(matches!(bench.give(Event::Held(false))[..], [Action::Open(_)]));
}
