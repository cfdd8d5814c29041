//! Where several servers serve a run, one answers and decides only while no other one may lead.

use super::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The store was asked five seconds before this one.
fn lease(until: u64) -> Event {
    Event::Leads { asked: seconds(until.saturating_sub(5)), until: seconds(until) }
}

/// It is not told yet that it leads.
fn begins(policy: RoundPolicy, resume: Resume) -> Bench {
    let mut bench = Bench::new(policy);
    bench.coordinator = Coordinator::new(spec(), policy, resume, bench.now);
    bench
}

/// Two of three clients have delivered; the lease is over in five seconds.
fn two_of_three() -> Bench {
    let mut bench = begins(RoundPolicy { min: 2, ..several(3) }, Resume::default());
    bench.give(lease(5));
    for n in 1..=3 {
        bench.joins(n);
    }
    bench.opened(1);
    bench.delivers(1, 1);
    bench.delivers(2, 1);
    bench
}

/// The same, and the third one has left.
fn without_one() -> Bench {
    let mut bench = two_of_three();
    bench.give(Event::ServerLeft);
    bench.leaves(3);
    bench
}

#[test]
fn a_hello_waits_until_no_other_server_leads_for_sure() {
    let mut bench = begins(several(1), Resume::default());
    bench.give(lease(5));
    assert_eq!(bench.joins(1)[0], welcome(bench.peer(1), None), "it leads");
    bench.at(seconds(5));
    assert_eq!(bench.joins(2), [], "another one may lead");
    assert_eq!(bench.joins(3), []);
    bench.leaves(3);
    assert_eq!(bench.give(lease(4)), [], "the store has not answered since");
    let answered = bench.give(lease(9));
    assert_eq!(answered, [welcome(bench.peer(2), None)], "client 3 has left");
    bench.at(seconds(9));
    assert_eq!(bench.joins(3), []);
    assert_eq!(bench.joins(4), []);
    let revoked = bench.give(Event::Revoked { client: client(4) });
    assert_eq!(revoked, [Action::Disconnect { peer: bench.peer(4) }]);
    assert_eq!(bench.coordinator.deadline(bench.now), Some(seconds(14)));
    let given_up = bench.at(seconds(14));
    assert_eq!(given_up, [Action::Disconnect { peer: bench.peer(3) }], "it tries another server");
}

#[test]
fn one_who_waits_says_nothing_else() {
    for message in [ToServer::Hello(hello(1, None)), ToServer::Goodbye] {
        let mut bench = begins(several(1), Resume::default());
        assert_eq!(bench.joins(1), []);
        assert_eq!(bench.says(1, message), [Action::Disconnect { peer: bench.peer(1) }]);
        assert_eq!(bench.give(lease(5)), [], "its hello is forgotten");
    }
}

/// It stood still longer than its clock knows, and another one has led.
#[test]
fn a_device_with_the_task_of_a_round_unheard_of_waits_until_the_store_was_asked() {
    let mut bench = begins(several(2), Resume::default());
    bench.give(lease(8));
    bench.at(seconds(4));
    assert_eq!(bench.joins_holding(1, spec().run, 1)[0], welcome(bench.peer(1), Some(1)), "the next round's");
    assert_eq!(bench.joins_holding(2, spec().run, 2), [], "two rounds ahead");
    assert_eq!(bench.give(lease(9)), [], "asked when it came, at the latest");
    let answered = bench.give(lease(10));
    assert_eq!(answered[0], welcome(bench.peer(2), None), "this server leads: the store was set back");
}

#[test]
fn an_open_round_waits_for_those_that_got_no_answer() {
    let mut bench = without_one();
    bench.at(seconds(10));
    assert_eq!(bench.joins_holding(3, spec().run, 1), [], "its hello waits");
    let sent_away = bench.at(seconds(15));
    assert_eq!(sent_away, [Action::Disconnect { peer: bench.peer(3) }]);
    for later in [RECONNECT_GRACE, TIMEOUT, TIMEOUT * 2] {
        assert_eq!(bench.at(later), [], "nothing is decided");
    }
    assert_eq!(bench.give(Event::Leads { asked: bench.now, until: Duration::MAX }), []);
    let over = TIMEOUT * 2 + RECONNECT_GRACE;
    assert_eq!(bench.coordinator.deadline(bench.now), Some(over));
    assert_eq!(bench.at(just_before(over)), [], "it is waited for, as after a restart");
    let lost = Tally { lost: 1, ..tally(3, 2, WaitedFor::Cohort) };
    assert_eq!(bench.at(over), [close(1, lost)]);
}

#[test]
fn a_round_loses_no_time_while_another_server_may_lead() {
    let mut bench = two_of_three();
    // A stall of 40 seconds, whose last 35 are after the lease, and the disk is full in the middle of it.
    bench.now = seconds(40);
    bench.give(Event::Stalled { by: seconds(40) });
    bench.give(Event::Paused);
    bench.give(Event::Leads { asked: seconds(40), until: Duration::MAX });
    bench.now = seconds(50);
    bench.give(Event::Resumed);
    let over = TIMEOUT + seconds(50);
    assert_eq!(bench.at(just_before(over)), []);
    assert_eq!(bench.at(over), [close(1, tally(3, 2, WaitedFor::MaxTime))]);
}

#[test]
fn a_lapse_in_which_no_device_was_sent_away_costs_no_wait() {
    let mut bench = without_one();
    bench.at(seconds(6));
    assert!(bench.status().starts_with("PAUSED until the database says that this server leads; round 1"));
    bench.at(seconds(9));
    assert_eq!(bench.give(Event::Leads { asked: bench.now, until: Duration::MAX }), []);
    assert!(bench.status().starts_with("round 1"), "{}", bench.status());
    // Client 3 is waited for because its server has left, and for the four seconds of the lapse more.
    let over = RECONNECT_GRACE + seconds(4);
    assert_eq!(bench.at(just_before(over)), []);
    assert_eq!(bench.at(over).len(), 1, "the round closes");
}

#[test]
fn a_lease_that_was_renewed_before_anything_happened_has_not_lapsed() {
    let mut bench = without_one();
    bench.now = seconds(6);
    bench.give(lease(10));
    let over = RECONNECT_GRACE;
    bench.give(Event::Leads { asked: bench.now, until: Duration::MAX });
    assert_eq!(bench.at(just_before(over)), []);
    assert_eq!(bench.at(over).len(), 1, "the round closes");
}

#[test]
fn lapses_again_and_again_do_not_keep_a_round_from_opening() {
    let known = Resume { closed: 1, roster: shares(&[1, 2, 3]), ..Resume::default() };
    let mut bench = begins(several(2), known);
    bench.give(lease(5));
    bench.joins(1);
    bench.joins(2);
    // An unknown device comes in each lapse of six seconds, and is sent away; client 3 stays away.
    for cycle in 0..3 {
        let begun = 5 + 16 * cycle;
        bench.at(seconds(begun));
        bench.joins(4);
        bench.at(seconds(begun + 6));
        assert_eq!(bench.give(lease(begun + 16)), [], "cycle {cycle}");
    }
    // 30 seconds without the three lapses.
    bench.give(Event::Leads { asked: seconds(43), until: Duration::MAX });
    assert_eq!(bench.at(just_before(seconds(48))), []);
    assert!(matches!(bench.at(seconds(48))[..], [Action::Open(_)]));
}

#[test]
fn a_full_disk_is_made_good_once_whatever_the_database_says_meanwhile() {
    let known = Resume { closed: 1, roster: shares(&[1, 2]), ..Resume::default() };
    let mut bench = begins(several(1), known);
    bench.give(Event::Leads { asked: bench.now, until: Duration::MAX });
    bench.joins(1);
    bench.give(Event::Paused);
    for later in 1..=100 {
        bench.now = seconds(later);
        bench.give(Event::Leads { asked: bench.now, until: Duration::MAX });
    }
    bench.give(Event::Resumed);
    let over = seconds(100) + RECONNECT_GRACE;
    assert_eq!(bench.at(just_before(over)), []);
    assert!(matches!(bench.at(over)[..], [Action::Open(_)]));
}

#[test]
fn no_round_opens_without_those_that_got_no_answer() {
    let known = Resume { closed: 1, roster: shares(&[1, 2]), ..Resume::default() };
    let mut bench = begins(several(2), known);
    bench.give(lease(5));
    bench.joins(1);
    for later in [seconds(10), RECONNECT_GRACE] {
        bench.at(later);
        assert_eq!(bench.joins(2), []);
    }
    let later = RECONNECT_GRACE + seconds(5);
    assert_eq!(bench.at(later), [Action::Disconnect { peer: bench.peer(2) }]);
    assert_eq!(bench.give(Event::Leads { asked: later, until: Duration::MAX }), []);
    // And for as long as the lease had lapsed.
    assert_eq!(bench.coordinator.deadline(bench.now), Some(seconds(60)));
    let opens = bench.joins(2);
    assert_eq!(opens[1..], [Action::Open(opening(2, &[1, 2], &[1, 2]))]);
}
