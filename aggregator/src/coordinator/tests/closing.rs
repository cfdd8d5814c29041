//! When a round closes, how, and what comes after.

use super::*;

#[test]
fn all_accepted_closes() {
    let mut bench = Bench::open(policy(2), 2);
    let first = bench.delivers(1, 1);
    assert_eq!(first, [bench.accepted(1, 1)]);
    let second = bench.delivers(2, 1);
    assert_eq!(second, [bench.accepted(2, 1), close(1, tally(2, 2, WaitedFor::Cohort))]);
}

#[test]
fn count_max_closes_although_others_are_at_work() {
    let mut bench = Bench::open(RoundPolicy { max: Some(2), min_wait: TIMEOUT / 2, ..policy(3) }, 3);
    assert_eq!(bench.delivers(1, 1).len(), 1, "one is not enough");
    let second = bench.delivers(2, 1);
    assert_eq!(second[1..], [close(1, tally(3, 2, WaitedFor::Count))]);
}

#[test]
fn a_round_does_not_close_before_what_it_folds_is_folded() {
    let mut bench = Bench::open(RoundPolicy { max: Some(1), ..policy(3) }, 3);
    bench.uploads(1, 1, report(1));
    bench.uploads(2, 1, report(2));
    assert_eq!(bench.folded(1, 1, Ok(())), [bench.accepted(1, 1)]);
    let second = bench.folded(2, 1, Ok(()));
    assert_eq!(second[1..], [close(1, tally(3, 2, WaitedFor::Count))], "both are durable, so both count");
}

#[test]
fn time_min_over_closes_without_the_members_that_left() {
    let min_wait = Duration::from_secs(20);
    let mut bench = Bench::open(RoundPolicy { min_wait, ..policy(2) }, 2);
    bench.leaves(2);
    bench.delivers(1, 1);
    assert_eq!(bench.coordinator.deadline(bench.now), Some(min_wait));
    assert_eq!(bench.at(just_before(min_wait)), []);
    let lost = Tally { lost: 1, ..tally(2, 1, WaitedFor::MinTime) };
    assert_eq!(bench.at(min_wait), [close(1, lost)]);
}

#[test]
fn time_min_does_not_close_while_a_connected_member_works() {
    let min_wait = Duration::from_secs(20);
    let mut bench = Bench::open(RoundPolicy { min_wait, ..policy(2) }, 2);
    bench.delivers(1, 1);
    assert_eq!(bench.at(min_wait), []);
    let lost = Tally { lost: 1, ..tally(2, 1, WaitedFor::MinTime) };
    assert_eq!(bench.leaves(2), [close(1, lost)]);
}

#[test]
fn without_time_min_a_member_that_leaves_is_not_waited_for() {
    let mut bench = Bench::open(policy(2), 2);
    bench.delivers(1, 1);
    let lost = Tally { lost: 1, ..tally(2, 1, WaitedFor::Cohort) };
    assert_eq!(bench.says(2, ToServer::Goodbye), [close(1, lost)]);
}

#[test]
fn time_max_closes_with_count_min() {
    let mut bench = Bench::open(RoundPolicy { min: 2, ..policy(3) }, 3);
    bench.delivers(1, 1);
    bench.delivers(2, 1);
    assert_eq!(bench.coordinator.deadline(bench.now), Some(TIMEOUT));
    assert_eq!(bench.at(just_before(TIMEOUT)), []);
    assert_eq!(bench.at(TIMEOUT), [close(1, tally(3, 2, WaitedFor::MaxTime))]);
}

#[test]
fn members_at_work_are_not_cut_off_where_that_is_not_wanted() {
    let mut bench = Bench::open(RoundPolicy { cuts_short: false, ..policy(2) }, 2);
    bench.delivers(1, 1);
    assert_eq!(bench.at(TIMEOUT), []);
    assert_eq!(bench.at(10 * TIMEOUT), [], "however long it takes");
    let second = bench.delivers(2, 1);
    assert_eq!(second[1..], [close(1, tally(2, 2, WaitedFor::Cohort))]);

    let mut bench = Bench::open(RoundPolicy { cuts_short: false, ..policy(1) }, 1);
    bench.greets(2, Hello { samples: 10, ..hello(2, None) });
    bench.leaves(1);
    let actions = bench.at(TIMEOUT);
    let replaced = matches!(&actions[..], [Action::Open(again)] if again.cohort.len() == 2);
    assert!(replaced, "one that is away is replaced as ever: {actions:?}");
    bench.opened(1);
    assert_eq!(bench.at(10 * TIMEOUT), []);
}

#[test]
fn time_max_with_fewer_than_count_min_waits_on_and_closes_at_count_min() {
    let mut bench = Bench::open(RoundPolicy { min: 2, ..policy(3) }, 3);
    bench.delivers(1, 1);
    assert_eq!(bench.at(TIMEOUT), [], "no client can be recruited, two are at work");
    assert_eq!(bench.coordinator.deadline(bench.now), Some(2 * TIMEOUT), "it looks again");
    assert_eq!(bench.at(2 * TIMEOUT), []);
    let second = bench.delivers(2, 1);
    assert_eq!(second[1..], [close(1, tally(3, 2, WaitedFor::MinCount))]);
}

#[test]
fn time_max_waits_for_members_that_are_away() {
    let mut bench = Bench::open(policy(1), 1);
    bench.leaves(1);
    assert_eq!(bench.at(TIMEOUT), []);
    let back = bench.joins_holding(1, spec().run, 1);
    assert_eq!(back, [welcome(bench.peer(1), Some(1))]);
    let end = bench.delivers(1, 1);
    assert_eq!(end[1..], [close(1, tally(1, 1, WaitedFor::Cohort))]);
}

#[test]
fn replacements_are_recruited_once_count_min_is_out_of_reach() {
    let mut bench = Bench::open(RoundPolicy { min: 2, ..policy(3) }, 3);
    // Client 9 would weigh more than the round's sums were agreed for.
    bench.joins(9);
    let light = |n| Hello { samples: 30, ..hello(n, None) };
    bench.greets(4, light(4));
    bench.delivers(1, 1);
    assert_eq!(bench.fails(2, 1), [], "client 3 suffices");
    bench.now = TIMEOUT / 2;
    let actions = bench.fails(3, 1);
    let mut again = opening(1, &[1, 2, 3], &[1, 2, 3]);
    again.cohort.insert(client(4), 30);
    assert_eq!(actions, [Action::Open(again)]);
    let asked = bench.opened(1);
    assert_eq!(asked, [bench.task(4, 1)], "the others were asked before");
    assert_eq!(bench.coordinator.deadline(bench.now), Some(bench.now + TIMEOUT), "a window of its own");
    bench.uploads(4, 1, TrainReport { samples: 30, ..report(4) });
    let end = bench.folded(4, 1, Ok(()));
    let tally = Tally { failed: 2, ..tally(4, 2, WaitedFor::Cohort) };
    assert_eq!(end[1..], [close(1, tally)], "client 1's update is kept");
}

#[test]
fn time_max_recruits_as_many_as_are_missing() {
    let mut bench = Bench::open(RoundPolicy { min: 2, ..policy(2) }, 2);
    for n in 4..=6 {
        bench.greets(n, Hello { samples: 10, ..hello(n, None) });
    }
    bench.delivers(1, 1);
    assert_eq!(bench.at(just_before(TIMEOUT)), []);
    let actions = bench.at(TIMEOUT);
    let [Action::Open(again)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!((again.round, again.cohort.len()), (1, 3), "one is missing");
    assert!(again.cohort.contains_key(&client(2)), "the slow one stays a member");
    bench.opened(1);
    let slow = bench.delivers(2, 1);
    assert_eq!(slow[1..], [close(1, tally(3, 2, WaitedFor::MinCount))]);
}

#[test]
fn a_member_that_is_away_is_waited_for_until_time_max_before_it_is_replaced() {
    let mut bench = Bench::open(policy(1), 1);
    bench.greets(2, Hello { samples: 10, ..hello(2, None) });
    assert_eq!(bench.leaves(1), []);
    assert_eq!(bench.at(just_before(TIMEOUT)), []);
    let actions = bench.at(TIMEOUT);
    assert!(matches!(&actions[..], [Action::Open(again)] if again.cohort.len() == 2), "{actions:?}");
}

#[test]
fn nobody_left_to_ask_or_wait_for_closes_as_void() {
    let mut bench = Bench::open(RoundPolicy { min: 2, ..policy(2) }, 2);
    bench.fails(1, 1);
    let end = bench.delivers(2, 1);
    let void = Tally { failed: 1, void: true, ..tally(2, 1, WaitedFor::MinCount) };
    assert_eq!(end[1..], [close(1, void)]);
    assert_eq!(bench.closed(1), [], "not at once");
    assert_eq!(bench.status(), "pausing after a round without enough acceptable updates: 1 s left");
    let after = bench.now + Duration::from_secs(1);
    assert_eq!(bench.coordinator.deadline(bench.now), Some(after));
    assert_eq!(bench.at(just_before(after)), []);
    assert_eq!(bench.at(after), [Action::Open(opening(2, &[1, 2], &[1, 2]))], "the next round may go better");
}

#[test]
fn nobody_left_to_ask_but_somebody_to_wait_for_waits() {
    let mut bench = Bench::open(RoundPolicy { min: 2, ..policy(2) }, 2);
    assert_eq!(bench.fails(1, 1), [], "client 2 is at work");
    assert_eq!(bench.at(TIMEOUT), []);
    // A newcomer is asked as soon as it comes.
    let newcomer = bench.greets(3, Hello { samples: 10, ..hello(3, None) });
    assert!(matches!(&newcomer[..], [_, Action::Open(again)] if again.cohort.len() == 3), "{newcomer:?}");
}

#[test]
fn closed_leads_to_the_next_round() {
    let mut bench = Bench::open(policy(2), 2);
    bench.delivers(1, 1);
    bench.delivers(2, 1);
    assert_eq!(bench.coordinator.closed(), 0);
    assert_eq!(bench.closed(1), [Action::Open(opening(2, &[1, 2], &[1, 2]))]);
    assert_eq!(bench.coordinator.closed(), 1);
}

#[test]
fn closed_leads_to_gathering_when_clients_are_missing() {
    let mut bench = Bench::open(policy(1), 1);
    bench.delivers(1, 1);
    bench.leaves(1);
    assert_eq!(bench.closed(1), []);
    assert_eq!(bench.status(), "waiting for clients: 0 of 1 connected");
}

#[test]
fn a_close_that_was_not_asked_for_changes_nothing() {
    let mut bench = Bench::open(policy(2), 2);
    assert_eq!(bench.closed(1), []);
    assert_eq!(bench.coordinator.closed(), 0);
    bench.delivers(1, 1);
    bench.delivers(2, 1);
    assert_eq!(bench.closed(2), [], "not the round that closes");
    assert_eq!(bench.coordinator.closed(), 0);
    assert!(matches!(bench.closed(1)[..], [Action::Open(_)]));
}

#[test]
fn the_last_round_finishes_the_run() {
    let resume = Resume { closed: 2, ..Resume::default() };
    let mut bench = Bench::resume(policy(2), resume);
    bench.joins(1);
    bench.joins(2);
    bench.opened(3);
    bench.delivers(1, 3);
    bench.delivers(2, 3);
    let farewell = |n| {
        let peer = bench.peer(n);
        [Action::Send { peer, message: ToClient::Finished { rounds: 3 } }, Action::Disconnect { peer }]
    };
    let mut expected = [farewell(1), farewell(2)].concat();
    expected.push(Action::Finish(Outcome::Completed));
    assert_eq!(bench.closed(3), expected);
    assert_eq!(bench.status(), "the run is over");
}

/// Client 1 cannot train in any of `rounds` rounds; gives what each close leads to, up to the end of its pause.
fn fruitless(bench: &mut Bench, rounds: std::ops::RangeInclusive<u32>) -> Vec<Vec<Action>> {
    let close_void = |bench: &mut Bench, round| {
        bench.opened(round);
        let end = bench.fails(1, round);
        let void = Tally { failed: 1, void: true, ..tally(1, 0, WaitedFor::MinCount) };
        assert_eq!(end, [close(round, void)]);
        let closed = bench.closed(round);
        if let Some(pause) = bench.coordinator.deadline(bench.now).filter(|_| bench.coordinator.closed() < 9)
        {
            assert_eq!(bench.at(just_before(pause)), []);
            assert!(matches!(bench.at(pause)[..], [Action::Open(_)]));
        }
        closed
    };
    rounds.map(|round| close_void(bench, round)).collect()
}

fn long_bench() -> Bench {
    let policy = RoundPolicy { max_failed: Some(9), ..policy(1) };
    let mut bench = Bench::with(RunSpec { rounds: 2, ..spec() }, policy, Resume::default());
    bench.joins(1);
    bench
}

fn alarm(rounds: u32, seconds: u64) -> Vec<Action> {
    let reasons = vec![format!("{}: failed: out of memory", client(1).short())];
    vec![Action::Alarm { rounds, reasons, pause: Duration::from_secs(seconds) }]
}

#[test]
fn void_rounds_in_a_row_come_slower_and_slower_and_are_told() {
    let mut bench = long_bench();
    let mut told = fruitless(&mut bench, 1..=9);
    let last = told.pop().unwrap();
    let expected =
        [vec![], vec![], alarm(3, 4), alarm(4, 8), alarm(5, 16), alarm(6, 32), alarm(7, 60), alarm(8, 60)];
    assert_eq!(told, expected);
    assert_eq!(bench.now, Duration::from_secs(1 + 2 + 4 + 8 + 16 + 32 + 60 + 60));
    let reasons = vec![format!("{}: failed: out of memory", client(1).short())];
    let finish = Action::Finish(Outcome::NoProgress { rounds: 9, reasons });
    assert_eq!(last.last(), Some(&finish), "nine in a row, which do not count as rounds of the run");
    assert_eq!(last.len(), 3, "finished, disconnect, finish: {last:?}");
}

#[test]
fn without_a_pause_the_next_round_opens_at_once_and_alarms_grow_rare() {
    let impatient = RoundPolicy { void_pause: Duration::ZERO, max_failed: Some(9), ..policy(1) };
    let mut bench = Bench::with(RunSpec { rounds: 9, ..spec() }, impatient, Resume::default());
    bench.joins(1);
    let alarmed = |round: &u32| {
        bench.opened(*round);
        bench.fails(1, *round);
        let next = bench.closed(*round);
        assert!(next.iter().any(|action| matches!(action, Action::Open(_))), "{next:?}");
        next.iter().any(|action| matches!(action, Action::Alarm { .. }))
    };
    assert_eq!((1..=8).filter(alarmed).collect::<Vec<_>>(), [3, 4, 8]);
    assert_eq!(bench.now, Duration::ZERO);
}

#[test]
fn a_good_round_forgives_the_void_ones() {
    let mut bench = long_bench();
    fruitless(&mut bench, 1..=3);
    bench.opened(4);
    bench.delivers(1, 4);
    assert!(matches!(bench.closed(4)[..], [Action::Open(_)]), "no pause after a good round");
    let told = fruitless(&mut bench, 5..=8);
    assert_eq!(told[..4], [vec![], vec![], alarm(3, 4), alarm(4, 8)]);
    bench.opened(9);
    bench.delivers(1, 9);
    assert_eq!(bench.closed(9).last(), Some(&Action::Finish(Outcome::Completed)), "the second of two rounds");
}

#[test]
fn the_reasons_name_rejections_too() {
    let mut bench = long_bench();
    fruitless(&mut bench, 1..=2);
    bench.opened(3);
    bench.uploads(1, 3, report(1));
    bench.folded(1, 3, Err(Rejection::Malformed { reason: "not a record".to_owned() }));
    let end = bench.closed(3);
    let Some(Action::Alarm { reasons, .. }) = end.last() else { panic!("{end:?}") };
    assert_eq!(
        reasons[..],
        [format!("{}: rejected: the payload does not decode: not a record", client(1).short())]
    );
}

#[test]
fn rounds_without_a_result_do_not_use_up_the_run() {
    let mut bench = Bench::with(RunSpec { rounds: 2, ..spec() }, policy(1), Resume::default());
    bench.joins(1);
    fruitless(&mut bench, 1..=5);
    let status = bench.coordinator.status(bench.now);
    assert_eq!((status.closed, status.failed, status.rounds), (5, 5, 7));
    for round in 6..=7 {
        bench.opened(round);
        bench.delivers(1, round);
        let end = bench.closed(round);
        let over = end.last() == Some(&Action::Finish(Outcome::Completed));
        assert_eq!(over, round == 7, "{end:?}");
    }
}

#[test]
fn a_device_that_was_never_here_ends_the_pause_of_those_that_fail() {
    let mut bench = long_bench();
    fruitless(&mut bench, 1..=4);
    bench.opened(5);
    bench.fails(1, 5);
    bench.closed(5);
    assert!(bench.coordinator.deadline(bench.now).is_some_and(|end| end > bench.now), "a pause");
    bench.leaves(1);
    bench.joins(1);
    assert!(bench.coordinator.deadline(bench.now).is_some_and(|end| end > bench.now), "the same device");
    let actions = bench.joins(2);
    assert!(matches!(actions.last(), Some(Action::Open(_))), "{actions:?}");
}

#[test]
fn a_device_that_declines_is_not_waited_for() {
    let mut bench = Bench::open(policy(2), 2);
    let peer = bench.peer(2);
    let reason = "its classes are others".to_owned();
    bench.says(2, ToServer::Declined { reason });
    assert!(bench.coordinator.known().all(|known| known != client(2)), "{peer:?}");
    let end = bench.delivers(1, 1);
    assert!(matches!(end.last(), Some(Action::Close { round: 1, .. })), "{end:?}");
}
