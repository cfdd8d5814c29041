//! `Open`: every update is exactly one of accepted, rejected and discarded.

use super::*;

fn dropped(bench: &Bench, n: u8, round: u32, verdict: Verdict) -> [Action; 2] {
    [Action::Drop { upload: UploadId(bench.next_upload) }, receipt(bench.peer(n), round, verdict)]
}

#[test]
fn the_first_update_of_a_member_is_folded() {
    let mut bench = Bench::open(policy(2), 2);
    let actions = bench.uploads(1, 1, report(1));
    let fold = Action::Fold { round: 1, client: client(1), upload: UploadId(1) };
    assert_eq!(actions, [fold]);
}

#[test]
fn a_folded_update_gets_its_receipt() {
    let mut bench = Bench::open(policy(3), 3);
    bench.uploads(1, 1, report(1));
    let fine = bench.folded(1, 1, Ok(()));
    assert_eq!(fine, [bench.accepted(1, 1)]);
    bench.uploads(2, 1, report(2));
    let rejection = Rejection::NotFinite { tensor: "head.fc.weight".to_owned() };
    let unbelievable = bench.folded(2, 1, Err(rejection.clone()));
    assert_eq!(unbelievable, [receipt(bench.peer(2), 1, Verdict::Rejected(rejection))]);
    let end = bench.delivers(3, 1);
    let tally = Tally { rejected: 1, ..tally(3, 2, WaitedFor::Cohort) };
    assert_eq!(end[1..], [Action::Close { round: 1, tally }]);
}

#[test]
fn the_receipt_of_a_member_that_left_is_sent_when_it_is_back() {
    let mut bench = Bench::open(policy(2), 2);
    bench.uploads(1, 1, report(1));
    bench.leaves(1);
    assert_eq!(bench.folded(1, 1, Ok(())), []);
    let back = bench.joins_holding(1, spec().run, 1);
    assert_eq!(back, [bench.accepted(1, 1), welcome(bench.peer(1), None)], "it may forget the update");
}

#[test]
fn an_update_from_outside_the_cohort_is_rejected() {
    let mut bench = Bench::open(policy(2), 2);
    bench.joins(3);
    let actions = bench.uploads(3, 1, report(3));
    assert_eq!(actions, dropped(&bench, 3, 1, Verdict::Rejected(Rejection::NotInCohort { round: 1 })));
}

#[test]
fn what_arrives_between_rounds_counts_in_the_next_tally() {
    let mut bench = Bench::open(RoundPolicy { max: Some(1), min: 1, ..policy(3) }, 3);
    bench.delivers(1, 1);
    bench.uploads(2, 1, report(2));
    bench.closed(1);
    bench.opened(2);
    let end = bench.delivers(1, 2);
    let tally = Tally { discarded: 1, ..tally(3, 1, WaitedFor::Count) };
    assert_eq!(end.last(), Some(&Action::Close { round: 2, tally }));
}

#[test]
fn an_update_of_a_closed_round_is_discarded_in_every_state() {
    let late = Verdict::Discarded(Discard::Late);
    let mut bench = Bench::open(RoundPolicy { max: Some(1), min: 1, ..policy(3) }, 3);
    bench.delivers(1, 1);
    // Closing.
    let actions = bench.uploads(2, 1, report(2));
    assert_eq!(actions, dropped(&bench, 2, 1, late.clone()));
    // Opening.
    assert!(matches!(bench.closed(1)[..], [Action::Open(_)]));
    let actions = bench.uploads(2, 1, report(2));
    assert_eq!(actions, dropped(&bench, 2, 1, late.clone()));
    // Open.
    bench.opened(2);
    let actions = bench.uploads(2, 1, report(2));
    assert_eq!(actions, dropped(&bench, 2, 1, late.clone()));
    // Gathering: after the close no client is left that could be asked.
    bench.leaves(2);
    bench.leaves(3);
    bench.delivers(1, 2);
    bench.says(1, ToServer::Goodbye);
    assert_eq!(bench.closed(2), []);
    let stranger = Event::Uploaded(arrival(PeerId(99), 2, report(1), UploadId(99)));
    assert_eq!(
        bench.give(stranger),
        [Action::Drop { upload: UploadId(99) }],
        "no receipt: its client is unknown"
    );
}

#[test]
fn an_update_of_a_future_round_is_rejected_with_the_newest_round() {
    let unknown = |round, current| Verdict::Rejected(Rejection::UnknownRound { round, current });
    let mut bench = Bench::new(policy(2));
    bench.joins(1);
    let actions = bench.uploads(1, 1, report(1));
    assert_eq!(actions, dropped(&bench, 1, 1, unknown(1, 0)), "gathering: no round was ever opened");
    bench.joins(2);
    bench.opened(1);
    let actions = bench.uploads(1, 2, report(1));
    assert_eq!(actions, dropped(&bench, 1, 2, unknown(2, 1)), "round 1 is open");
    bench.delivers(1, 1);
    bench.delivers(2, 1);
    let actions = bench.uploads(1, 2, report(1));
    assert_eq!(actions, dropped(&bench, 1, 2, unknown(2, 1)), "round 1 is closing");
}

#[test]
fn an_update_sent_twice_is_discarded_whatever_became_of_the_first() {
    let duplicate = Verdict::Discarded(Discard::Duplicate);
    let mut bench = Bench::open(policy(4), 4);
    bench.uploads(1, 1, report(1));
    let folding = bench.uploads(1, 1, report(1));
    assert_eq!(
        folding,
        [Action::Drop { upload: UploadId(2) }],
        "the receipt waits until the first is durable"
    );
    assert_eq!(bench.folded(1, 1, Ok(())), [bench.accepted(1, 1)]);
    let accepted = bench.uploads(1, 1, report(1));
    assert_eq!(accepted, dropped(&bench, 1, 1, duplicate.clone()));
    bench.uploads(2, 1, report(2));
    bench.folded(2, 1, Err(Rejection::TooLarge { tensor: "w".to_owned(), found: 2000.0, limit: 1000.0 }));
    let rejected = bench.uploads(2, 1, report(2));
    assert_eq!(rejected, dropped(&bench, 2, 1, duplicate));
    bench.delivers(3, 1);
    let end = bench.delivers(4, 1);
    let tally = Tally { rejected: 1, discarded: 3, ..tally(4, 3, WaitedFor::Cohort) };
    assert_eq!(end[1..], [Action::Close { round: 1, tally }]);
}

#[test]
fn other_samples_than_declared_are_rejected() {
    let mut bench = Bench::open(policy(2), 2);
    let actions = bench.uploads(1, 1, TrainReport { samples: 11, ..report(1) });
    let rejection = Rejection::Samples { declared: 10, reported: 11 };
    assert_eq!(actions, dropped(&bench, 1, 1, Verdict::Rejected(rejection)));
    // It had its chance.
    let again = bench.uploads(1, 1, report(1));
    assert_eq!(again, dropped(&bench, 1, 1, Verdict::Discarded(Discard::Duplicate)));
}

#[test]
fn the_declaration_that_counts_is_the_one_the_round_was_opened_with() {
    let mut bench = Bench::open(policy(2), 2);
    bench.leaves(1);
    bench.greets(1, Hello { samples: 5, ..hello(1, None) });
    let actions = bench.uploads(1, 1, TrainReport { samples: 5, ..report(1) });
    let rejection = Rejection::Samples { declared: 10, reported: 5 };
    assert_eq!(actions, dropped(&bench, 1, 1, Verdict::Rejected(rejection)));
}

#[test]
fn a_loss_that_is_not_finite_or_negative_is_rejected() {
    // Weights by loss have no use for one, and an accepted update must count.
    for loss in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e-9] {
        let mut bench = Bench::open(policy(2), 2);
        let actions = bench.uploads(1, 1, TrainReport { loss, ..report(1) });
        // NaN equals nothing, so the verdict is compared in its parts.
        let [Action::Drop { upload: UploadId(1) }, Action::Send { peer, message }] = &actions[..] else {
            panic!("{actions:?}");
        };
        let ToClient::Receipt { round: 1, verdict: Verdict::Rejected(Rejection::Loss { loss: found }) } =
            message
        else {
            panic!("{message:?}");
        };
        assert_eq!((*peer, found.to_bits()), (bench.peer(1), loss.to_bits()));
    }
}

#[test]
fn an_update_on_a_forgotten_connection_is_dropped_without_a_word() {
    let mut bench = Bench::open(policy(2), 2);
    bench.leaves(1);
    assert_eq!(bench.uploads(1, 1, report(1)), [Action::Drop { upload: UploadId(1) }]);
}

#[test]
fn a_member_that_cannot_train_is_not_waited_for() {
    let mut bench = Bench::open(policy(2), 2);
    assert_eq!(bench.fails(1, 1), []);
    let end = bench.delivers(2, 1);
    let tally = Tally { failed: 1, ..tally(2, 1, WaitedFor::Cohort) };
    assert_eq!(end, [bench.accepted(2, 1), Action::Close { round: 1, tally }]);
}

#[test]
fn a_failure_in_another_round_changes_nothing() {
    let mut bench = Bench::open(policy(2), 2);
    bench.fails(1, 2);
    bench.delivers(2, 1);
    let end = bench.delivers(1, 1);
    assert_eq!(end[1..], [Action::Close { round: 1, tally: tally(2, 2, WaitedFor::Cohort) }]);
}

#[test]
fn an_update_after_a_failure_counts_all_the_same() {
    let mut bench = Bench::open(policy(2), 2);
    bench.fails(1, 1);
    let accepted = bench.delivers(1, 1);
    assert_eq!(accepted, [bench.accepted(1, 1)]);
}

/// Two of three members are needed and client 4 stands by; client 1 has failed and 4 is being recruited.
fn reopening() -> Bench {
    let mut bench = Bench::open(RoundPolicy { min: 3, ..policy(3) }, 3);
    bench.greets(4, Hello { samples: 10, ..hello(4, None) });
    let again = bench.fails(1, 1);
    assert!(matches!(&again[..], [Action::Open(opening)] if opening.cohort.len() == 4), "{again:?}");
    bench
}

#[test]
fn updates_are_taken_while_a_round_is_opened_again() {
    let mut bench = reopening();
    let actions = bench.uploads(2, 1, report(2));
    assert!(matches!(actions[..], [Action::Fold { round: 1, .. }]), "{actions:?}");
    assert_eq!(bench.folded(2, 1, Ok(())), [bench.accepted(2, 1)]);
    let asked = bench.opened(1);
    assert_eq!(asked, [bench.task(4, 1)]);
}

#[test]
fn a_failure_is_heard_while_a_round_is_opened_again() {
    let mut bench = reopening();
    assert_eq!(bench.fails(2, 1), []);
    // No client is left for client 2's place, so the round goes on with the two that are at work.
    let asked = bench.opened(1);
    assert_eq!(asked, [bench.task(4, 1)]);
    bench.delivers(3, 1);
    let fold = bench.uploads(4, 1, TrainReport { samples: 10, ..report(4) });
    assert!(matches!(fold[..], [Action::Fold { .. }]), "{fold:?}");
    let end = bench.folded(4, 1, Ok(()));
    let tally = Tally { failed: 2, void: true, ..tally(4, 2, WaitedFor::MinCount) };
    assert_eq!(end[1..], [Action::Close { round: 1, tally }]);
}
