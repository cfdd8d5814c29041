//! What follows the last round of training, and training that ends early.

use shared::spec::Evaluation;

use super::*;

const TESTS: TaskKind = TaskKind { train: false, evaluate: true, personalise: false };

/// Of three rounds of training two are closed; the clients test the last model.
fn tested() -> Bench {
    let spec = RunSpec { evaluate: Evaluation { on_clients_every: 2, ..Evaluation::default() }, ..spec() };
    Bench::with(spec, RoundPolicy { fraction: 0.5, max: Some(1), ..policy(1) }, after_two())
}

fn after_two() -> Resume {
    Resume { closed: 2, ..Resume::default() }
}

fn opened_for(actions: &[Action]) -> Option<(u32, TaskKind, usize)> {
    actions.iter().find_map(|action| match action {
        Action::Open(opening) => Some((opening.round, opening.work, opening.cohort.len())),
        _ => None,
    })
}

#[test]
fn the_closing_round_is_for_everybody_and_waits_for_everybody() {
    let mut bench = tested();
    bench.joins(1);
    bench.opened(3);
    bench.joins(2);
    bench.delivers(1, 3);
    // Round 2's model was tested by those who trained in round 3; the last one is tested by all.
    let closing = bench.closed(3);
    assert_eq!(opened_for(&closing), Some((4, TESTS, 2)));
    bench.opened(4);
    // Neither `round.fraction` nor `round.max-updates` holds for it.
    assert_eq!(bench.delivers(1, 4), [bench.accepted(1, 4)]);
    let end = bench.delivers(2, 4);
    assert_eq!(end, [bench.accepted(2, 4), close(4, tally(2, 2, WaitedFor::Cohort))]);
    assert_eq!(bench.closed(4).last(), Some(&Action::Finish(Outcome::Completed)));
}

#[test]
fn whoever_has_just_lost_its_connection_is_waited_for_before_the_closing_round() {
    let ended = |bench: &mut Bench| {
        bench.joins(1);
        bench.opened(3);
        bench.joins(2);
        bench.leaves(2);
        bench.delivers(1, 3);
        bench.closed(3)
    };
    let mut bench = tested();
    assert_eq!(ended(&mut bench), [], "client 2 was here a moment ago");
    assert_eq!(bench.status(), "waiting for clients: 1 of 2 connected");
    assert_eq!(opened_for(&bench.joins(2)), Some((4, TESTS, 2)));
    let mut bench = tested();
    ended(&mut bench);
    assert_eq!(bench.at(just_before(RECONNECT_GRACE)), []);
    assert_eq!(opened_for(&bench.at(RECONNECT_GRACE)), Some((4, TESTS, 1)), "nor for longer than that");
}

/// A device that makes its own model in that round would otherwise never have one.
#[test]
fn whoever_comes_while_the_closing_round_is_open_is_asked_as_well() {
    let open = || {
        let mut bench = tested();
        bench.joins(1);
        bench.opened(3);
        bench.delivers(1, 3);
        assert_eq!(opened_for(&bench.closed(3)), Some((4, TESTS, 1)));
        bench
    };
    let welcomed = |action: &Action| {
        matches!(action, Action::Send { message: ToClient::Welcome { wants: None, .. }, .. })
    };
    let mut bench = open();
    let early = bench.joins(2);
    assert!(matches!(&early[..], [only] if welcomed(only)), "the opening is not durable yet: {early:?}");
    let again = bench.opened(4);
    assert_eq!(again[0], bench.task(1, 4));
    assert_eq!(opened_for(&again), Some((4, TESTS, 2)));
    assert_eq!(bench.opened(4), [bench.task(2, 4)]);
    assert_eq!(bench.delivers(1, 4), [bench.accepted(1, 4)]);
    let last = bench.joins(3);
    assert_eq!((welcomed(&last[0]), opened_for(&last)), (true, Some((4, TESTS, 3))));
    bench.opened(4);
    bench.delivers(3, 4);
    let back = bench.joins(3);
    assert!(back.last().is_some_and(welcomed), "once: {back:?}");
    let end = bench.delivers(2, 4);
    assert_eq!(end, [bench.accepted(2, 4), close(4, tally(3, 3, WaitedFor::Cohort))]);

    // Clients that keep connecting give no other client more time.
    let mut bench = open();
    bench.opened(4);
    bench.at(TIMEOUT / 2);
    bench.joins(2);
    bench.opened(4);
    bench.delivers(2, 4);
    bench.at(just_before(TIMEOUT));
    let end = bench.at(TIMEOUT);
    assert_eq!(end.last(), Some(&close(4, tally(2, 1, WaitedFor::MaxTime))), "the first one never answers");

    // Nor does it keep a round open whose time is over.
    let mut bench = open();
    bench.opened(4);
    bench.uploads(1, 4, report(1));
    assert_eq!(bench.at(TIMEOUT), [], "the update is being looked into");
    let late = bench.joins(2);
    assert!(matches!(&late[..], [only] if welcomed(only)), "{late:?}");
    let end = bench.folded(1, 4, Ok(()));
    assert_eq!(end.last(), Some(&close(4, tally(1, 1, WaitedFor::Cohort))));
}

#[test]
fn rounds_of_training_ask_for_tests_as_often_as_configured() {
    let spec = RunSpec {
        rounds: 6,
        evaluate: Evaluation { on_clients_every: 2, ..Evaluation::default() },
        ..spec()
    };
    let works: Vec<TaskKind> = (0..=7).map_while(|closed| spec.work_after(closed, 6)).collect();
    let tests = TaskKind { evaluate: true, ..TaskKind::TRAIN };
    // Models 2 and 4 in the rounds after them, and the last.
    assert_eq!(
        works,
        [TaskKind::TRAIN, TaskKind::TRAIN, tests, TaskKind::TRAIN, tests, TaskKind::TRAIN, TESTS]
    );
    assert_eq!(RunSpec::example("fedavg").work_after(3, 3), None);
}

#[test]
fn enough_ends_the_training_before_all_rounds_are_over() {
    let mut bench = Bench::open(policy(1), 1);
    bench.delivers(1, 1);
    let end = bench.give(Event::Closed { round: 1, void: false, enough: true });
    assert_eq!(end.last(), Some(&Action::Finish(Outcome::Completed)));
    // The last model is tested all the same, also by a process that did not see it end.
    for resume in [Resume { closed: 1, ended: Some(1), ..Resume::default() }, after_two()] {
        let early = resume.ended.is_some();
        let spec =
            RunSpec { evaluate: Evaluation { on_clients_every: 1, ..Evaluation::default() }, ..spec() };
        let mut bench = Bench::with(spec, policy(1), resume);
        let opened = opened_for(&bench.joins(1)).expect("a round opens");
        assert_eq!((opened.0, opened.1.train), if early { (2, false) } else { (3, true) });
    }
}

#[test]
fn nobody_is_waited_for_for_ever_when_training_is_over() {
    let mut bench = tested();
    bench.joins(1);
    bench.opened(3);
    bench.delivers(1, 3);
    bench.leaves(1);
    assert_eq!(bench.closed(3), []);
    assert_eq!(bench.at(RECONNECT_GRACE), []);
    let given_up = bench.coordinator.deadline(bench.now).expect("a moment");
    assert_eq!(given_up, bench.coordinator.policy.timeout);
    assert_eq!(bench.at(just_before(given_up)), []);
    assert_eq!(bench.at(given_up), [Action::Finish(Outcome::Completed)]);
}

#[test]
fn the_time_for_which_testers_are_waited_for_stands_still_while_there_is_no_room() {
    let mut bench = tested();
    bench.joins(1);
    bench.opened(3);
    bench.delivers(1, 3);
    bench.leaves(1);
    bench.closed(3);
    bench.now = TIMEOUT / 2;
    bench.give(Event::Paused);
    bench.now = 3 * TIMEOUT;
    assert_eq!(bench.give(Event::Resumed), [], "no client could connect meanwhile");
    let given_up = 3 * TIMEOUT + TIMEOUT / 2;
    assert_eq!(bench.at(just_before(given_up)), []);
    assert_eq!(bench.at(given_up), [Action::Finish(Outcome::Completed)]);
}

#[test]
fn tests_that_nobody_could_make_do_not_spoil_the_run() {
    let mut bench = tested();
    bench.joins(1);
    bench.opened(3);
    bench.joins(2);
    bench.delivers(1, 3);
    bench.closed(3);
    bench.opened(4);
    bench.fails(1, 4);
    let end = bench.fails(2, 4);
    let void = Tally { failed: 2, void: true, ..tally(2, 0, WaitedFor::MinCount) };
    assert_eq!(end, [close(4, void)]);
    assert_eq!(bench.closed(4).last(), Some(&Action::Finish(Outcome::Completed)));
}

#[test]
fn one_good_round_of_training_is_enough_however_the_tests_go() {
    let spec = RunSpec {
        rounds: 1,
        evaluate: Evaluation { on_clients_every: 1, ..Evaluation::default() },
        ..spec()
    };
    let mut bench = Bench::with(spec, policy(1), Resume::default());
    bench.joins(1);
    bench.opened(1);
    bench.delivers(1, 1);
    assert_eq!(opened_for(&bench.closed(1)), Some((2, TESTS, 1)));
    bench.opened(2);
    bench.fails(1, 2);
    assert_eq!(bench.closed(2).last(), Some(&Action::Finish(Outcome::Completed)), "not fruitless");
}

#[test]
fn a_closing_round_that_everybody_has_left_ends_with_its_time() {
    let mut bench = tested();
    bench.joins(1);
    bench.opened(3);
    bench.delivers(1, 3);
    bench.closed(3);
    bench.opened(4);
    assert_eq!(bench.leaves(1), []);
    let given_up = bench.coordinator.deadline(bench.now).expect("a moment");
    let void = Tally { lost: 1, void: true, ..tally(1, 0, WaitedFor::MinCount) };
    assert_eq!(bench.at(given_up), [close(4, void)]);
    assert_eq!(bench.closed(4).last(), Some(&Action::Finish(Outcome::Completed)));
}

#[test]
fn after_a_restart_the_closing_round_needs_no_more_clients_than_without() {
    let spec = RunSpec { evaluate: Evaluation { on_clients_every: 1, ..Evaluation::default() }, ..spec() };
    let resume = Resume { closed: 3, roster: shares(&[1, 2, 3]), ..Resume::default() };
    let mut bench = Bench::with(spec, RoundPolicy { min: 3, ..policy(3) }, resume);
    assert_eq!(bench.joins(1).len(), 1, "the others may come back yet");
    assert_eq!(opened_for(&bench.at(RECONNECT_GRACE)), Some((4, TESTS, 1)));
}
