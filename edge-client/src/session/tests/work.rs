//! The table of the work: tasks, updates, receipts, and what survives a connection.

use shared::aggregation::{DeviceNoise, Template};
use shared::privacy::device_noise;

use super::*;
use crate::task::PrivateOnly;

#[test]
fn a_task_is_trained_uploaded_and_forgotten_with_its_receipt() {
    let mut bench = Bench::training(1);
    assert_eq!(bench.session.activity(), &Activity::Training(held(1, 1)));
    assert_eq!(bench.trained(1), [upload(1)]);
    assert_eq!(bench.session.activity(), &Activity::Holding(held(1, 1)));
    let receipt = |round| ToClient::Receipt { round, verdict: Verdict::Accepted };
    assert_eq!(bench.hears(receipt(2)), [], "not the update that is held");
    assert_eq!(bench.hears(receipt(1)), [forget(1, Some(Verdict::Accepted))]);
    assert_eq!(bench.session.activity(), &Activity::Idle);
    assert_eq!(bench.hears(receipt(1)), [], "once");
}

/// If the run ends while the device makes its personal model, the device finishes that first, with or without the server.
#[test]
fn a_personal_model_is_finished_though_the_run_is_over() {
    let personalising = |work| {
        let mut bench = Bench::joined();
        let task = ToClient::Task { round: 4, work };
        assert_eq!(bench.hears(task), [Action::Train { round: 4, work, spec: spec(1) }]);
        bench
    };
    let alone = TaskKind { train: false, evaluate: true, personalise: true };
    let finished = ToClient::Finished { rounds: 3 };
    let end = [Action::Disconnect, Action::Finish(SessionEnd::Completed { rounds: 3 })];
    let mut here = personalising(alone);
    assert_eq!(here.hears(finished.clone()), []);
    assert_eq!(here.trained(4), [&[forget(4, None)], &end[..]].concat());
    let leaving = || {
        let mut bench = personalising(alone);
        assert_eq!(bench.hears(finished.clone()), []);
        assert_eq!(
            (bench.session.deadline(), bench.session.activity()),
            (None, &Activity::Training(held(1, 4)))
        );
        for event in [
            Event::Disconnected { reason: "closed".to_owned(), elsewhere: false },
            Event::Tick,
            Event::Message(finished.clone()),
            Event::Message(ToClient::Task { round: 5, work: TaskKind::TRAIN }),
        ] {
            assert_eq!(bench.give(event), []);
        }
        bench
    };
    // The server has disconnected by now.
    assert_eq!(leaving().trained(4), [forget(4, None), end[1].clone()]);
    assert_eq!(leaving().fails(4), end[1..]);
    assert_eq!(leaving().give(Event::Stop), [Action::Cancel, Action::Finish(SessionEnd::Stopped)]);
    // What others were to learn from is of no use any more.
    let mut shared = personalising(TaskKind { train: true, ..alone });
    assert_eq!(shared.hears(finished), [&[Action::Cancel], &end[..]].concat());
}

#[test]
fn a_task_before_the_welcome_is_kept_until_it() {
    let mut bench = Bench::greeting(None);
    assert_eq!(bench.task(1), []);
    assert_eq!(bench.welcome(1, Some(1)), [train(1, 1), heartbeat(Some(1), 0, 0)]);
}

#[test]
fn of_two_tasks_before_the_welcome_the_newer_is_kept() {
    let mut bench = Bench::greeting(None);
    bench.task(3);
    bench.task(2);
    assert_eq!(bench.welcome(1, Some(3)), [train(1, 3), heartbeat(Some(3), 0, 0)]);
}

#[test]
fn an_early_task_dies_with_its_connection() {
    let mut bench = Bench::greeting(None);
    bench.task(1);
    assert_eq!(bench.comes_back(), [hello(None)]);
    assert_eq!(bench.welcome(1, Some(1)), [heartbeat(None, 0, 0)]);
}

#[test]
fn a_newer_task_replaces_the_one_in_training() {
    let mut bench = Bench::training(1);
    assert_eq!(bench.task(2), [Action::Cancel, train(1, 2)]);
    assert_eq!(bench.trained(1), [], "the cancelled one may have finished all the same");
    assert_eq!(bench.fails(1), []);
    assert_eq!(bench.trained(2), [upload(2)]);
}

#[test]
fn a_newer_task_replaces_the_held_update() {
    let mut bench = Bench::holding(1);
    assert_eq!(bench.task(2), [forget(1, None), train(1, 2)]);
}

#[test]
fn the_same_or_an_older_task_changes_nothing() {
    for mut bench in [Bench::training(2), Bench::holding(2)] {
        let work = bench.session.activity().clone();
        assert_eq!(bench.task(2), []);
        assert_eq!(bench.task(1), []);
        assert_eq!(bench.session.activity(), &work);
    }
}

#[test]
fn a_failure_is_said_at_once_when_joined() {
    let mut bench = Bench::training(1);
    assert_eq!(bench.fails(1), [failed(1)]);
    assert_eq!(bench.session.activity(), &Activity::Idle);
}

#[test]
fn a_failure_fits_into_a_message_however_long_its_reason() {
    let outcome = Err(Failure::new(Blame::Server, "x".repeat(1_000_000)));
    let actions = Bench::training(1).give(Event::Trained { round: 1, outcome, keeps: false });
    let [Action::Send(message)] = &actions[..] else { panic!("{actions:?}") };
    assert!(shared::frame::encode(message, 0).len() < 1000);
}

#[test]
fn a_permanent_failure_ends_the_session() {
    let failure = Failure { permanent: true, ..Failure::new(Blame::Owner, "out of memory") };
    let fails = Event::Trained { round: 1, outcome: Err(failure.clone()), keeps: false };
    let finish = Action::Finish(SessionEnd::Unfit(failure));
    let actions = Bench::training(1).give(fails.clone());
    assert_eq!(actions, [failed(1), Action::Send(ToServer::Goodbye), Action::Disconnect, finish.clone()]);
    let mut apart = Bench::training(1);
    apart.cut();
    assert_eq!(apart.give(fails), [finish]);
}

#[test]
fn a_round_too_many_for_what_its_owner_asks_of_privacy_is_not_trained_in() {
    let mut spec = RunSpec::clone(&spec(1));
    let noise = DeviceNoise { clip: 1.0, noise: 5.0, devices: 10, over: 10, values: 15 };
    let parameters = spec.architecture.parameter_specs().expect("a network that there is");
    let values = Template::of_updates(parameters, spec.aggregation.buffers).parameters() as u64;
    let noise = DeviceNoise { values, ..noise };
    (spec.secure.enabled, spec.secure.min_devices, spec.device_noise) = (true, 10, Some(noise));
    // Three rounds are planned, and four are within it.
    let epsilon = device_noise(&noise, 4).epsilon(1e-5) + 1e-9;
    let mut bench = Bench::greeting(None);
    bench.session.device.private_only = Some(PrivateOnly { epsilon, delta: 1e-5 });
    bench.hears(ToClient::Welcome { spec: SpecText::of(&spec), wants: None });
    for round in [1, 4] {
        assert!(matches!(
            bench.task(round)[..],
            [Action::Train { .. }] | [Action::Cancel, Action::Train { .. }]
        ));
    }
    let actions = bench.task(5);
    let Some(Action::Finish(SessionEnd::Unfit(failure))) = actions.last() else { panic!("{actions:?}") };
    assert!(failure.permanent && failure.reason.contains("5 rounds of this run"), "{failure:?}");
    let told = |action: &Action| matches!(action, Action::Send(ToServer::Failed { round: 5, .. }));
    assert!(actions.iter().any(told), "{actions:?}");
    assert!(!actions.iter().any(|action| matches!(action, Action::Train { .. })), "{actions:?}");
}

#[test]
fn a_failure_without_a_connection_shows_in_the_next_hello() {
    let mut bench = Bench::training(1);
    bench.cut();
    assert_eq!(bench.fails(1), []);
    bench.reconnects();
    assert_eq!(bench.give(Event::Connected), [hello(None)]);
}

#[test]
fn a_failure_between_hello_and_welcome_is_said_after_the_welcome() {
    let during_hello = || {
        let mut bench = Bench::training(1);
        assert_eq!(bench.comes_back(), [hello(Some(held(1, 1)))]);
        assert_eq!(bench.fails(1), []);
        bench
    };
    // The server believes the hello: it would wait for this update.
    assert_eq!(during_hello().welcome(1, Some(1)), [failed(1), heartbeat(None, 0, 0)]);
    // It sends the task of another round or run by itself, or wants nothing.
    assert_eq!(during_hello().welcome(1, Some(2)), [heartbeat(None, 0, 0)]);
    assert_eq!(during_hello().welcome(2, Some(1)), [heartbeat(None, 0, 0)]);
    assert_eq!(during_hello().welcome(1, None), [heartbeat(None, 0, 0)]);
    // A hello that came after it says so itself.
    let mut twice = during_hello();
    assert_eq!(twice.comes_back(), [hello(None)]);
    assert_eq!(twice.welcome(1, Some(1)), [heartbeat(None, 0, 0)]);
}

#[test]
fn a_lost_update_is_forgotten_and_said_to_have_failed() {
    let lost = |round| Event::Lost { round, reason: "out of memory".to_owned() };
    let mut bench = Bench::holding(1);
    assert_eq!(bench.give(lost(2)), [], "not the one that is held");
    assert_eq!(bench.give(lost(1)), [forget(1, None), failed(1)]);
    assert_eq!(bench.session.activity(), &Activity::Idle);
}

#[test]
fn training_outlives_the_connection() {
    let mut bench = Bench::training(1);
    bench.cut();
    assert_eq!(bench.session.activity(), &Activity::Training(held(1, 1)));
    bench.reconnects();
    assert_eq!(bench.give(Event::Connected), [hello(Some(held(1, 1)))]);
    bench.give(Event::Progressed(Progress { round: Some(1), done: 4, total: 9 }));
    assert_eq!(bench.welcome(1, Some(1)), [heartbeat(Some(1), 4, 9)]);
    assert_eq!(bench.trained(1), [upload(1)]);
}

#[test]
fn an_update_that_was_finished_without_a_connection_is_sent_when_joined_again() {
    let mut bench = Bench::training(1);
    bench.cut();
    assert_eq!(bench.trained(1), []);
    bench.reconnects();
    assert_eq!(bench.give(Event::Connected), [hello(Some(held(1, 1)))]);
    assert_eq!(bench.welcome(1, Some(1)), [upload(1), heartbeat(None, 0, 0)]);
}

#[test]
fn an_update_that_was_finished_between_hello_and_welcome_is_sent_after_the_welcome() {
    let mut bench = Bench::training(1);
    bench.comes_back();
    assert_eq!(bench.trained(1), []);
    assert_eq!(bench.welcome(1, Some(1)), [upload(1), heartbeat(None, 0, 0)]);
}

#[test]
fn an_update_without_a_receipt_is_sent_again_while_it_is_wanted() {
    let mut bench = Bench::holding(1);
    assert_eq!(bench.comes_back(), [hello(Some(held(1, 1)))]);
    assert_eq!(bench.welcome(1, Some(1)), [upload(1), heartbeat(None, 0, 0)]);
}

#[test]
fn an_update_from_an_earlier_process_is_offered() {
    let mut bench = Bench::greeting(Some(held(1, 3)));
    assert_eq!(bench.welcome(1, Some(3)), [upload(3), heartbeat(None, 0, 0)]);
}

#[test]
fn what_the_welcome_does_not_want_is_let_go() {
    // Another round, no round, and the same round of another run.
    for (run, wants) in [(1, Some(2)), (1, None), (2, Some(1))] {
        let mut holding = Bench::holding(1);
        holding.comes_back();
        assert_eq!(holding.welcome(run, wants), [forget(1, None), heartbeat(None, 0, 0)], "{run} {wants:?}");
        let mut training = Bench::training(1);
        training.comes_back();
        assert_eq!(training.welcome(run, wants), [Action::Cancel, heartbeat(None, 0, 0)], "{run} {wants:?}");
        assert_eq!(training.session.activity(), &Activity::Idle);
        assert_eq!(training.trained(1), [], "no result is awaited");
    }
}

#[test]
fn a_new_run_begins_its_rounds_anew() {
    let mut bench = Bench::holding(5);
    bench.comes_back();
    bench.welcome(2, Some(1));
    assert_eq!(bench.task(1), [train(2, 1)], "round 5 was another run's");
}

#[test]
fn a_device_that_is_not_in_a_state_to_train_says_so_and_takes_the_task_again() {
    let reason = Ineligible::Battery;
    let mut bench = Bench::training(1);
    assert_eq!(bench.give(Event::Ineligible { round: 2, reason }), [], "of another round");
    let said = Action::Send(ToServer::Ineligible { round: 1, reason });
    assert_eq!(bench.give(Event::Ineligible { round: 1, reason }), [said]);
    assert_eq!(*bench.session.activity(), Activity::Idle);
    assert_eq!(bench.task(1), [train(1, 1)]);

    let mut away = Bench::training(1);
    away.give(Event::Disconnected { reason: "gone".to_owned(), elsewhere: false });
    assert_eq!(
        away.give(Event::Ineligible { round: 1, reason }),
        [],
        "the next hello says that nothing is held"
    );
    assert_eq!(*away.session.activity(), Activity::Idle);
}

#[test]
fn what_is_asked_of_the_device_holds_for_one_connection() {
    let conditions = Eligibility { min_charge: 30, ..Eligibility::default() };
    let mut bench = Bench::training(1);
    bench.hears(ToClient::Conditions(conditions));
    assert_eq!(*bench.session.conditions(), conditions);
    bench.give(Event::Disconnected { reason: "gone".to_owned(), elsewhere: false });
    assert_eq!(*bench.session.conditions(), conditions, "until there is another");
    bench.give(Event::Connected);
    assert_eq!(*bench.session.conditions(), Eligibility::default());
}

#[test]
fn a_receipt_that_a_newer_task_has_overtaken_is_told_all_the_same() {
    let mut bench = Bench::holding(1);
    let actions = bench.task(2);
    assert_eq!(actions, [forget(1, None), train(1, 2)]);
    let receipt = ToClient::Receipt { round: 1, verdict: Verdict::Accepted };
    let told = Action::NotifyVerdict { round: 1, verdict: Verdict::Accepted };
    assert_eq!(bench.hears(receipt.clone()), [told]);
    assert_eq!(bench.hears(receipt), [], "once");
    assert_eq!(bench.session.activity(), &Activity::Training(held(1, 2)));
}

/// Until then it is not known which client state the task starts from.
#[test]
fn a_task_waits_for_the_receipt_of_an_update_that_the_algorithm_keeps_something_with() {
    let holding = || {
        let mut bench = Bench::training(1);
        let event = Event::Trained { round: 1, outcome: Ok(report()), keeps: true };
        assert_eq!(bench.give(event), [Action::Sync { round: 1 }]);
        assert_eq!(bench.give(Event::Synced { round: 1 }), [upload(1)]);
        assert_eq!(bench.task(3), []);
        assert_eq!(bench.task(2), [], "an older one that was overtaken");
        assert_eq!(bench.session.activity(), &Activity::Holding(held(1, 1)));
        bench
    };
    for verdict in [Verdict::Accepted, Verdict::Discarded(Discard::Late)] {
        let receipt = ToClient::Receipt { round: 1, verdict: verdict.clone() };
        assert_eq!(holding().hears(receipt), [forget(1, Some(verdict)), train(1, 3)]);
    }
    let lost = Event::Lost { round: 1, reason: "out of memory".to_owned() };
    assert_eq!(holding().give(lost), [forget(1, None), failed(1), train(1, 3)]);
    // What came on another connection comes again.
    let mut cut = holding();
    assert_eq!(cut.comes_back(), [hello(Some(held(1, 1)))]);
    assert_eq!(cut.welcome(1, Some(3)), [forget(1, None), heartbeat(None, 0, 0)]);
    assert_eq!(cut.task(3), [train(1, 3)]);
}

#[test]
fn a_server_that_has_counted_an_update_says_so_before_the_welcome() {
    let mut bench = Bench::holding(1);
    assert_eq!(bench.comes_back(), [hello(Some(held(1, 1)))]);
    let receipt = ToClient::Receipt { round: 1, verdict: Verdict::Accepted };
    assert_eq!(bench.hears(receipt), [forget(1, Some(Verdict::Accepted))]);
    assert_eq!(bench.task(2), []);
    assert_eq!(bench.welcome(1, Some(2)), [train(1, 2), heartbeat(Some(2), 0, 0)]);
}

#[test]
fn an_update_with_client_state_is_sent_once_it_is_durable() {
    let syncing = || {
        let mut bench = Bench::training(1);
        let event = Event::Trained { round: 1, outcome: Ok(report()), keeps: true };
        assert_eq!(bench.give(event), [Action::Sync { round: 1 }]);
        assert_eq!(bench.session.activity(), &Activity::Holding(held(1, 1)));
        bench
    };
    let mut bench = syncing();
    assert_eq!(bench.give(Event::Synced { round: 2 }), [], "another one");
    assert_eq!(bench.give(Event::Synced { round: 1 }), [upload(1)]);
    assert_eq!(bench.give(Event::Synced { round: 1 }), [], "once");
    // The connection is lost meanwhile, and the next one is there before or after.
    let mut before = syncing();
    assert_eq!(before.comes_back(), [hello(Some(held(1, 1)))]);
    assert_eq!(before.welcome(1, Some(1)), [heartbeat(None, 0, 0)]);
    assert_eq!(before.give(Event::Synced { round: 1 }), [upload(1)]);
    let mut after = syncing();
    assert_eq!(after.comes_back(), [hello(Some(held(1, 1)))]);
    assert_eq!(after.give(Event::Synced { round: 1 }), []);
    assert_eq!(after.welcome(1, Some(1)), [upload(1), heartbeat(None, 0, 0)]);
    // It is not wanted any more; the sync may end all the same.
    let mut unwanted = syncing();
    assert_eq!(unwanted.comes_back(), [hello(Some(held(1, 1)))]);
    assert_eq!(unwanted.welcome(1, None), [forget(1, None), heartbeat(None, 0, 0)]);
    assert_eq!(unwanted.give(Event::Synced { round: 1 }), []);
    // The disk fails: the server hears that there is no update.
    let lost = Event::Lost { round: 1, reason: "out of memory".to_owned() };
    assert_eq!(syncing().give(lost), [forget(1, None), failed(1)]);
    // Stopping leaves it for the next process.
    let end = [Action::Send(ToServer::Goodbye), Action::Disconnect, Action::Finish(SessionEnd::Stopped)];
    assert_eq!(syncing().give(Event::Stop), end);
}

#[test]
fn client_state_is_told_and_a_difference_is_reported_once() {
    let look_up = Action::LookUpState { run: RunId::from_bytes([1; 8]) };
    let of = |round: u32| Some(CountedUpdate { round, fingerprint: Some(7) });
    let says = |after| Action::Send(ToServer::ClientState { after });
    let mut bench = Bench::greeting(None);
    let mut connection = |server, device| {
        assert_eq!(bench.hears(ToClient::Counted { update: server }), []);
        assert_eq!(bench.welcome(1, None), [look_up.clone(), heartbeat(None, 0, 0)]);
        let said = bench.give(Event::State { after: device });
        assert_eq!(bench.give(Event::State { after: device }), [], "once");
        bench.comes_back();
        said
    };
    for agreed in [None, of(3)] {
        assert_eq!(connection(agreed, agreed), [says(agreed)]);
    }
    let differs = |server, device| [says(device), Action::NotifyState { server, device }];
    assert_eq!(connection(of(3), of(9)), differs(of(3), of(9)));
    assert_eq!(connection(of(3), of(9)), [says(of(9))], "it is known");
    assert_eq!(connection(of(4), of(3)), differs(of(4), of(3)));
    assert_eq!(connection(of(4), None), differs(of(4), None));
    assert_eq!(connection(None, of(4)), differs(None, of(4)));
    let other = Some(CountedUpdate { round: 3, fingerprint: Some(8) });
    assert_eq!(connection(of(3), other), differs(of(3), other));
    // A server that does not say anything of it hears nothing.
    assert_eq!(bench.welcome(1, None), [heartbeat(None, 0, 0)]);
}

#[test]
fn the_receipt_before_the_welcome_is_settled_before_the_state_is_looked_up() {
    let mut bench = Bench::holding(1);
    assert_eq!(bench.comes_back(), [hello(Some(held(1, 1)))]);
    let receipt = ToClient::Receipt { round: 1, verdict: Verdict::Accepted };
    assert_eq!(bench.hears(receipt), [forget(1, Some(Verdict::Accepted))]);
    bench.hears(ToClient::Counted { update: Some(CountedUpdate { round: 1, fingerprint: None }) });
    let look_up = Action::LookUpState { run: RunId::from_bytes([1; 8]) };
    assert_eq!(bench.welcome(1, None), [look_up, heartbeat(None, 0, 0)]);
}
