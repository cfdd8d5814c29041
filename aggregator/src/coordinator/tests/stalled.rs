//! A driver that was kept from attending to anything.

use super::*;

const STALL: Duration = Duration::from_mins(1);

fn stalls(bench: &mut Bench) -> Vec<Action> {
    bench.now += STALL;
    bench.give(Event::Stalled { by: STALL })
}

#[test]
fn nobody_is_lost_for_what_the_driver_did_not_hear() {
    let mut bench = Bench::open(RoundPolicy { connection_timeout: Duration::from_secs(15), ..policy(2) }, 2);
    bench.now = Duration::from_secs(10);
    assert_eq!(bench.says(1, ToServer::Heartbeat(Progress::default())), []);
    assert_eq!(stalls(&mut bench), []);
    assert_eq!(bench.coordinator.status(bench.now).connected, 2);
    // What is left of their time begins again.
    let silent = bench.now + Duration::from_secs(5);
    assert_eq!(bench.coordinator.deadline(bench.now), Some(silent));
    let peer = bench.peer(2);
    assert_eq!(bench.at(silent), [Action::Disconnect { peer }]);
    assert_eq!(bench.coordinator.status(bench.now).connected, 1);
}

#[test]
fn nobody_is_heard_later_than_now() {
    let mut bench = Bench::open(RoundPolicy { connection_timeout: Duration::from_secs(15), ..policy(1) }, 1);
    bench.now = STALL / 2;
    bench.give(Event::Stalled { by: STALL });
    assert_eq!(bench.coordinator.deadline(bench.now), Some(bench.now + Duration::from_secs(15)));
}

#[test]
fn a_round_whose_time_ran_out_meanwhile_takes_in_what_has_come() {
    let mut bench = Bench::open(policy(3), 3);
    bench.delivers(1, 1);
    bench.now = TIMEOUT / 10 * 7;
    assert_eq!(stalls(&mut bench), []);
    assert_eq!(bench.delivers(2, 1), [bench.accepted(2, 1)], "it has come long ago");
    // Its connection was lost in the stall as well, so it is waited for.
    assert_eq!(bench.leaves(3), []);
    let over = TIMEOUT / 10 * 7 + STALL + RECONNECT_GRACE;
    assert_eq!(bench.at(just_before(over)), []);
    assert_eq!(bench.at(over), [close(1, Tally { lost: 1, ..tally(3, 2, WaitedFor::Cohort) })]);
}

#[test]
fn the_time_of_a_pause_is_made_good_once() {
    let mut bench = Bench::open(RoundPolicy { min: 2, ..policy(3) }, 3);
    bench.delivers(1, 1);
    bench.delivers(2, 1);
    bench.give(Event::Paused);
    stalls(&mut bench);
    bench.give(Event::Resumed);
    let over = STALL + TIMEOUT;
    assert_eq!(bench.at(just_before(over)), []);
    assert_eq!(bench.at(over), [close(1, tally(3, 2, WaitedFor::MaxTime))]);
}
