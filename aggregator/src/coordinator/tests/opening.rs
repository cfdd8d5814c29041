//! `Gathering` and `Opening`: whom a round asks, and when.

use super::*;

#[test]
fn gathering_opens_once_enough_clients_are_connected() {
    let mut bench = Bench::new(policy(3));
    let first = bench.joins(1);
    assert_eq!(first, [welcome(bench.peer(1), None)]);
    let second = bench.joins(2);
    assert_eq!(second, [welcome(bench.peer(2), None)]);
    // One that left does not count.
    assert_eq!(bench.leaves(1), []);
    let third = bench.joins(3);
    assert_eq!(third, [welcome(bench.peer(3), None)]);
    let again = bench.joins(1);
    assert_eq!(again, [welcome(bench.peer(1), None), Action::Open(opening(1, &[1, 2, 3], &[1, 2, 3]))]);
}

#[test]
fn later_rounds_need_no_more_than_count_min() {
    let mut bench = Bench::open(RoundPolicy { min: 2, ..policy(3) }, 3);
    for n in 1..=3 {
        bench.delivers(n, 1);
    }
    bench.leaves(1);
    bench.leaves(2);
    assert_eq!(bench.closed(1), [], "one of two");
    let back = bench.joins(2);
    // Client 1 has not come back yet to say that it knows of its receipt.
    let opening = Opening { counted: [(client(1), 1)].into(), ..opening(2, &[2, 3], &[1, 2, 3]) };
    assert_eq!(back, [welcome(bench.peer(2), None), Action::Open(opening)]);
}

/// The cohort of round 1, which opens when all of these have come.
fn cohort_among(hellos: &[Hello], policy: RoundPolicy, spec: RunSpec) -> Vec<ClientId> {
    let policy = RoundPolicy { start: hellos.len(), ..policy };
    let mut coordinator = Coordinator::new(spec, policy, Resume::default(), Duration::ZERO);
    for (peer, hello) in (1..).map(PeerId).zip(hellos) {
        let message = ToServer::Hello(hello.clone());
        coordinator.handle(Duration::ZERO, Event::Message { peer, message });
    }
    let opened = std::iter::from_fn(|| coordinator.poll()).find_map(|action| match action {
        Action::Open(opening) => Some(opening),
        _ => None,
    });
    opened.expect("all have come").cohort.into_keys().collect()
}

/// The cohort of round 1 with six clients.
fn cohort_of_six(policy: RoundPolicy, spec: RunSpec) -> Vec<ClientId> {
    let hellos: Vec<Hello> = (1..=6).map(|n| hello(n, None)).collect();
    cohort_among(&hellos, policy, spec)
}

/// `fedavg-interpolation` mixes the models of two clients that have no sample in common: seeds 1 and 2, 3 and 4, 5 and 6 draw others.
#[test]
fn one_of_a_hundred_is_drawn_by_the_seed() {
    let drawn = (1..=6).map(|seed| {
        let spec = RunSpec { seed, ..spec() };
        let client = |index| ClientId::virtual_client(index, &spec.root_seed());
        let hellos: Vec<Hello> =
            (0..100).map(|index| Hello { client: client(index), ..hello(1, None) }).collect();
        let cohort = cohort_among(&hellos, RoundPolicy { fraction: 0.0, ..policy(100) }, spec);
        assert_eq!(cohort.len(), 1);
        hellos.iter().position(|hello| hello.client == cohort[0]).expect("it is one of them")
    });
    assert!(drawn.eq([29, 93, 7, 95, 50, 89]));
}

#[test]
fn the_cohort_is_a_seeded_sample_of_the_wanted_fraction() {
    let half = RoundPolicy { fraction: 0.5, ..policy(6) };
    let cohort = cohort_of_six(half, spec());
    assert_eq!(cohort.len(), 3);
    assert_eq!(cohort_of_six(half, spec()), cohort, "the same seed");
    let others = (2..12).map(|seed| cohort_of_six(half, RunSpec { seed, ..spec() }));
    assert!(others.collect::<BTreeSet<_>>().len() > 3, "other seeds");
    assert_eq!(cohort_of_six(RoundPolicy { fraction: 0.0, ..half }, spec()).len(), 1, "C = 0 is one client");
    let enough = RoundPolicy { fraction: 0.0, min: 4, ..half };
    assert_eq!(cohort_of_six(enough, spec()).len(), 4, "a smaller cohort could never deliver count.min");
}

#[test]
fn opened_broadcasts_to_every_connected_member() {
    let mut bench = Bench::new(policy(3));
    for n in 1..=3 {
        bench.joins(n);
    }
    bench.leaves(2);
    // Not in the cohort: it came too late.
    bench.joins(4);
    assert_eq!(bench.opened(2), [], "not the round that is opening");
    let asked = bench.opened(1);
    assert_eq!(asked, [bench.task(1, 1), bench.task(3, 1)]);
    assert_eq!(bench.opened(1), [], "once is enough");
    let back = bench.joins(2);
    assert_eq!(back, [welcome(bench.peer(2), Some(1)), bench.task(2, 1)]);
}

#[test]
fn a_member_that_reconnects_before_the_round_is_open_is_asked_once() {
    let mut bench = Bench::new(policy(1));
    bench.joins(1);
    let again = bench.joins(1);
    assert_eq!(
        again.last(),
        Some(&welcome(bench.peer(1), None)),
        "the opening is not durable yet: {again:?}"
    );
    let asked = bench.opened(1);
    assert_eq!(asked, [bench.task(1, 1)]);
}

fn after_two_rounds() -> Resume {
    Resume { closed: 2, ended: None, roster: shares(&[1, 2, 3]), open: None, ..Resume::default() }
}

#[test]
fn after_a_restart_the_known_clients_are_waited_for() {
    let mut bench = Bench::resume(policy(3), after_two_rounds());
    bench.joins(1);
    bench.joins(3);
    assert_eq!(bench.status(), "waiting for clients: 2 of 3 connected");
    let last = bench.joins(2);
    assert_eq!(last, [welcome(bench.peer(2), None), Action::Open(opening(3, &[1, 2, 3], &[1, 2, 3]))]);
}

#[test]
fn after_a_restart_the_known_clients_are_waited_for_no_longer_than_regather() {
    let mut bench = Bench::resume(policy(3), after_two_rounds());
    bench.joins(1);
    assert_eq!(bench.coordinator.deadline(bench.now), Some(RECONNECT_GRACE));
    assert_eq!(bench.at(just_before(RECONNECT_GRACE)), []);
    assert_eq!(bench.at(RECONNECT_GRACE), [Action::Open(opening(3, &[1], &[1, 2, 3]))]);
}

#[test]
fn after_regather_the_next_client_is_enough() {
    let mut bench = Bench::resume(policy(3), after_two_rounds());
    assert_eq!(bench.at(RECONNECT_GRACE), [], "no client is connected");
    let first = bench.joins(2);
    assert_eq!(first, [welcome(bench.peer(2), None), Action::Open(opening(3, &[2], &[1, 2, 3]))]);
}

#[test]
fn a_finished_run_that_is_resumed_finishes_at_once() {
    let mut bench = Bench::resume(policy(1), Resume { closed: 3, ..after_two_rounds() });
    assert_eq!(bench.drain(), [Action::Finish(Outcome::Completed)]);
}

fn reopened(accepted: &[u8]) -> Resume {
    let accepted = accepted.iter().map(|&n| client(n)).collect();
    Resume {
        open: Some(Reopened {
            opening: opening(3, &[1, 2], &[1, 2, 3]),
            accepted,
            late: BTreeMap::new(),
            closing: None,
            agreement: None,
            fingerprints: BTreeMap::new(),
        }),
        ..after_two_rounds()
    }
}

#[test]
fn a_round_that_was_open_goes_on_after_a_restart() {
    let mut bench = Bench::resume(policy(3), reopened(&[1]));
    assert_eq!(bench.drain(), []);
    let in_already = bench.joins(1);
    assert_eq!(in_already, [welcome(bench.peer(1), None)]);
    let still_wanted = bench.joins_holding(2, spec().run, 3);
    assert_eq!(still_wanted, [welcome(bench.peer(2), Some(3))]);
    let end = bench.delivers(2, 3);
    let close = Action::Close { round: 3, tally: tally(2, 2, WaitedFor::Cohort) };
    assert_eq!(end, [bench.accepted(2, 3), close]);
}

#[test]
fn a_restart_does_not_cost_an_open_round_the_updates_that_are_still_out() {
    // count.min is in, and time.min is zero: without the restart the round would be waiting for client 2 alone.
    let mut bench = Bench::resume(policy(3), reopened(&[1]));
    bench.joins(1);
    assert_eq!(bench.coordinator.deadline(bench.now), Some(RECONNECT_GRACE));
    assert_eq!(bench.at(just_before(RECONNECT_GRACE)), []);
    let lost = Tally { lost: 1, ..tally(2, 1, WaitedFor::Cohort) };
    assert_eq!(bench.at(RECONNECT_GRACE), [Action::Close { round: 3, tally: lost }]);
}

#[test]
fn after_a_restart_an_open_round_waits_no_longer_than_its_members_do() {
    let mut bench = Bench::resume(policy(3), reopened(&[1]));
    bench.joins(2);
    let failed = Tally { failed: 1, ..tally(2, 1, WaitedFor::Cohort) };
    assert_eq!(bench.fails(2, 3), [Action::Close { round: 3, tally: failed }]);
}

#[test]
fn a_round_that_was_complete_closes_after_a_restart() {
    let mut bench = Bench::resume(policy(3), reopened(&[1, 2]));
    assert_eq!(bench.drain(), [Action::Close { round: 3, tally: tally(2, 2, WaitedFor::Cohort) }]);
}
