//! Another server of the run has left, and its devices come again.

use super::*;

/// Three devices of which one has delivered, and two were at a server that has left.
fn without_two(policy: RoundPolicy) -> Bench {
    let mut bench = Bench::open(policy, 3);
    bench.delivers(1, 1);
    assert_eq!(bench.give(Event::ServerLeft), []);
    for device in [2, 3] {
        assert_eq!(bench.leaves(device), [], "it comes again");
    }
    bench
}

#[test]
fn a_round_waits_for_them() {
    let mut bench = without_two(RoundPolicy { min: 1, ..policy(3) });
    assert_eq!(bench.at(just_before(RECONNECT_GRACE)), []);
    bench.joins(2);
    assert_eq!(bench.delivers(2, 1)[0], bench.accepted(2, 1));
    // The other one has stayed away.
    let end = bench.at(RECONNECT_GRACE);
    assert_eq!(end, [close(1, Tally { lost: 1, ..tally(3, 2, WaitedFor::Cohort) })]);
}

#[test]
fn the_next_round_opens_with_them() {
    let mut bench = without_two(RoundPolicy { min: 1, ..policy(3) });
    bench.joins(2);
    bench.delivers(2, 1);
    bench.joins(3);
    let end = bench.delivers(3, 1);
    assert!(end.contains(&close(1, tally(3, 3, WaitedFor::Cohort))), "{end:?}");
    bench.give(Event::ServerLeft);
    bench.leaves(3);
    assert_eq!(bench.closed(1), [], "a device comes again");
    let [Action::Open(opening)] = &bench.joins(3)[1..] else { panic!("it is back") };
    assert_eq!(opening.cohort.len(), 3);
}
