//! Devices that are not in a state to train.

use shared::eligibility::{Eligibility, Ineligible};

use super::*;

impl Bench {
    fn not_now(&mut self, n: u8, round: u32) -> Vec<Action> {
        self.says(n, ToServer::Ineligible { round, reason: Ineligible::Battery })
    }
}

#[test]
fn a_member_that_cannot_now_costs_the_round_nothing_and_is_no_failure() {
    let mut bench = Bench::open(policy(3), 3);
    assert_eq!(bench.not_now(3, 1), []);
    bench.delivers(1, 1);
    let last = bench.delivers(2, 1);
    let expected = Tally { not_now: 1, ..tally(3, 2, WaitedFor::Cohort) };
    assert_eq!(last, [bench.accepted(2, 1), close(1, expected)]);
    let drawn = |actions: &[Action]| match actions {
        [Action::Open(opening)] => opening.cohort.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(drawn(&bench.closed(1)), 2, "it is left alone for a while");
    bench.opened(2);
    bench.delivers(1, 2);
    bench.delivers(2, 2);
    bench.now += INELIGIBLE_RETRY;
    assert_eq!(drawn(&bench.closed(2)), 3, "and asked again then");
}

#[test]
fn whoever_says_hello_is_told_what_is_asked_of_it_before_the_welcome() {
    let eligibility = Eligibility { max_temperature: 70, ..Eligibility::default() };
    let mut bench = Bench::new(RoundPolicy { eligibility, ..policy(2) });
    let said = bench.joins(1);
    let told = Action::Send { peer: bench.peer(1), message: ToClient::Conditions(eligibility) };
    assert_eq!(said[0], told);
    assert!(matches!(said[1], Action::Send { message: ToClient::Welcome { .. }, .. }), "{said:?}");
}

#[test]
fn it_may_change_its_mind() {
    let mut bench = Bench::open(policy(2), 2);
    bench.not_now(2, 1);
    bench.delivers(2, 1);
    let last = bench.delivers(1, 1);
    assert_eq!(last[1..], [close(1, tally(2, 2, WaitedFor::Cohort))]);
}

#[test]
fn somebody_else_is_asked_where_the_round_needs_one() {
    let mut bench = Bench::open(RoundPolicy { fraction: 0.5, min: 2, ..policy(4) }, 4);
    let drawn: Vec<u8> = (1..=4)
        .filter(|&n| {
            let State::Open { round } = &bench.coordinator.state else { panic!("it is open") };
            round.stage(client(n)).is_some()
        })
        .collect();
    assert_eq!(drawn.len(), 2);
    let again = bench.not_now(drawn[0], 1);
    assert!(matches!(&again[..], [Action::Open(opening)] if opening.cohort.len() == 3), "{again:?}");
}

#[test]
fn a_round_that_nobody_can_train_in_now_waits_and_asks_again() {
    let mut bench = Bench::open(policy(2), 2);
    bench.not_now(1, 1);
    bench.now += MILLISECOND;
    assert_eq!(bench.not_now(2, 1), [], "it is not void: nothing went wrong");
    assert_eq!(bench.coordinator.deadline(bench.now), Some(INELIGIBLE_RETRY));
    assert_eq!(bench.at(just_before(INELIGIBLE_RETRY)), []);
    assert_eq!(bench.at(INELIGIBLE_RETRY + MILLISECOND), [bench.task(1, 1), bench.task(2, 1)]);
    bench.not_now(1, 1);
    let last = bench.delivers(2, 1);
    let expected = Tally { not_now: 1, ..tally(2, 1, WaitedFor::Cohort) };
    assert_eq!(last[1..], [close(1, expected)]);
}

#[test]
fn the_status_tells_who_cannot_and_why() {
    let mut bench = Bench::open(policy(3), 3);
    bench.not_now(2, 1);
    let said = bench.status();
    let expected = format!(
        "round 1: 0 of 3 updates in, 2 at work ({}, ...), 1 not in a state to train ({}: {})",
        client(1).short(),
        client(2).short(),
        Ineligible::Battery
    );
    assert_eq!(said, expected);
    bench.leaves(2);
    assert!(!bench.status().contains("not in a state"), "it is not waited for: {}", bench.status());
}

#[test]
fn whoever_leaves_after_it_said_so_is_waited_for_and_asked_when_it_is_back() {
    let mut bench = Bench::open(RoundPolicy { min: 2, ..policy(2) }, 2);
    bench.not_now(1, 1);
    bench.not_now(2, 1);
    bench.leaves(1);
    assert_eq!(bench.leaves(2), [], "nothing went wrong: the round is not void");
    let joined = bench.joins(1);
    assert_eq!(joined, [welcome(bench.peer(1), Some(1)), bench.task(1, 1)]);
}

#[test]
fn whoever_comes_back_before_its_old_connection_is_gone_is_asked_as_well() {
    let mut bench = Bench::open(policy(2), 2);
    bench.not_now(1, 1);
    let joined = bench.joins(1);
    assert_eq!(joined[2..], [welcome(bench.peer(1), Some(1)), bench.task(1, 1)]);
}

#[test]
fn each_is_left_alone_for_as_long() {
    let mut bench = Bench::open(RoundPolicy { min: 2, ..policy(2) }, 2);
    bench.not_now(1, 1);
    bench.now += MILLISECOND;
    bench.not_now(2, 1);
    assert_eq!(bench.at(INELIGIBLE_RETRY), [bench.task(1, 1)]);
    assert_eq!(bench.at(INELIGIBLE_RETRY + MILLISECOND), [bench.task(2, 1)]);
}

#[test]
fn a_closing_round_does_not_wait_for_them_beyond_its_time() {
    let mut spec = spec();
    (spec.rounds, spec.evaluate.on_clients_every) = (1, 1);
    let mut bench = Bench::with(spec, policy(1), Resume::default());
    bench.joins(1);
    bench.opened(1);
    bench.delivers(1, 1);
    bench.closed(1);
    bench.opened(2);
    bench.not_now(1, 2);
    assert_eq!(bench.at(INELIGIBLE_RETRY), [bench.task(1, 2)]);
    bench.not_now(1, 2);
    let over = bench.at(TIMEOUT);
    assert!(matches!(over[..], [Action::Close { round: 2, .. }]), "{over:?}");
}
