//! The table of the connection: delays, heart-beats, and how a session ends.

use shared::memory::estimate;
use shared::message::TaskKind;
use shared::message::positional::PositionalSpec;
use shared::spec::SpecError;

use super::super::backoff::{FIRST_DELAY, LASTING};
use super::*;
use crate::allowance::{Allowance, TooLarge};

#[test]
fn reconnect_delays_double_up_to_a_bound_and_are_jittered() {
    let mut bench = Bench::new(None);
    let mut full = FIRST_DELAY;
    let mut fractions = Vec::new();
    for _ in 0..40 {
        assert_eq!(bench.cut(), []);
        let delay = bench.reconnects();
        assert!(delay >= full / 2 && delay < full, "{delay:?} of {full:?}");
        fractions.push((delay.as_secs_f64() / full.as_secs_f64() * 1000.0) as u32);
        full = (full * 2).min(MAX_DELAY);
    }
    assert_eq!(full, MAX_DELAY);
    fractions.sort_unstable();
    fractions.dedup();
    assert!(fractions.len() > 20, "delays vary: {fractions:?}");
}

#[test]
fn two_devices_do_not_come_back_together() {
    let delay = |id| {
        let device = DeviceProfile { client: ClientId::from_bytes([id; 16]), ..device() };
        let mut bench = Bench { session: Session::new(device, None, Duration::ZERO), now: Duration::ZERO };
        bench.drain();
        bench.cut();
        bench.reconnects()
    };
    assert_ne!(delay(1), delay(2));
    assert_eq!(delay(1), delay(1), "the same device, the same bytes");
}

#[test]
fn what_is_left_out_is_said_after_every_welcome() {
    for samples in [0, 12] {
        let device = DeviceProfile { skipped: samples, ..device() };
        let mut session = Session::new(device, None, Duration::ZERO);
        for _ in 0..2 {
            session.handle(Duration::ZERO, Event::Connected);
            while session.poll().is_some() {}
            let welcome = ToClient::Welcome { spec: SpecText::of(&spec(1)), wants: None };
            session.handle(Duration::ZERO, Event::Message(welcome));
            assert_eq!(session.poll(), Some(Action::Send(ToServer::SkippedSamples { samples })));
            assert_eq!(session.poll(), Some(heartbeat(None, 0, 0)));
        }
    }
}

#[test]
fn a_welcome_resets_the_delay() {
    let mut bench = Bench::new(None);
    for _ in 0..8 {
        bench.cut();
        bench.reconnects();
    }
    bench.give(Event::Connected);
    bench.cut();
    assert!(bench.reconnects() > Duration::from_secs(10), "a connection alone proves nothing");
    bench.give(Event::Connected);
    bench.welcome(1, None);
    bench.cut();
    assert!(bench.reconnects() < FIRST_DELAY);
}

#[test]
fn a_server_that_welcomes_and_then_cuts_is_asked_ever_less_often() {
    let mut bench = Bench::joined();
    let mut full = FIRST_DELAY;
    for _ in 0..8 {
        bench.cut();
        let delay = bench.reconnects();
        assert!(delay >= full / 2 && delay < full, "{delay:?} of {full:?}");
        full = (full * 2).min(MAX_DELAY);
        bench.give(Event::Connected);
        bench.welcome(1, None);
    }
    bench.at(bench.now + LASTING);
    bench.cut();
    assert!(bench.reconnects() < FIRST_DELAY, "that was the network");
}

#[test]
fn an_update_that_is_cut_off_time_and_again_is_offered_ever_less_often() {
    let mut bench = Bench::holding(1);
    let mut longest = Duration::ZERO;
    for _ in 0..8 {
        bench.cut();
        longest = longest.max(bench.reconnects());
        bench.give(Event::Connected);
        assert_eq!(bench.welcome(1, Some(1)).first(), Some(&upload(1)));
    }
    assert!(longest > Duration::from_secs(10), "{longest:?}");
    bench.at(bench.now + LASTING);
    bench.cut();
    assert!(bench.reconnects() < FIRST_DELAY, "that was the network");
}

#[test]
fn an_address_that_does_not_admit_the_device_leads_to_the_next_one_at_once() {
    let rest = [Action::Connect(Pass::Rest)];
    let mut bench = Bench::greeting(None);
    assert_eq!(bench.cut_with(true), rest);
    assert_eq!(bench.session.next_attempt(bench.now), Some(Duration::ZERO));
    bench.give(Event::Connected);
    assert_eq!(bench.cut_with(true), rest);
    // That attempt finds no other: all were tried.
    assert_eq!(bench.cut(), []);
    let delay = bench.session.next_attempt(bench.now).expect("it comes again");
    assert!(delay < FIRST_DELAY, "other addresses do not lengthen the delay: {delay:?}");
    assert_eq!(bench.reconnects(), delay);
}

#[test]
fn an_update_that_is_cut_off_is_offered_at_the_next_address_at_once() {
    let mut bench = Bench::holding(1);
    assert_eq!(bench.cut_with(true), [Action::Connect(Pass::Rest)]);
    assert_eq!(bench.give(Event::Connected), [hello(Some(held(1, 1)))]);
    bench.welcome(1, Some(1));
    assert_eq!(bench.cut(), [], "all were tried");
    bench.reconnects();
    bench.give(Event::Connected);
    bench.welcome(1, Some(1));
    bench.at(bench.now + LASTING);
    assert_eq!(bench.cut_with(true), [], "that was the network: the last address comes first");
    assert!(bench.reconnects() < FIRST_DELAY);
}

#[test]
fn a_device_that_waits_for_approval_or_has_lost_its_connection_begins_again_with_the_last_address() {
    let mut waiting = Bench::greeting(None);
    waiting.hears(ToClient::Refused(Refusal::Pending { client: device().client }));
    for mut bench in [waiting, Bench::joined(), Bench::training(1)] {
        assert_eq!(bench.cut_with(true), []);
        bench.reconnects();
    }
}

#[test]
fn hearing_twice_that_the_connection_is_gone_does_not_move_the_moment() {
    let mut bench = Bench::joined();
    bench.cut();
    let moment = bench.session.deadline();
    assert_eq!(bench.cut(), []);
    assert_eq!(bench.session.deadline(), moment);
}

#[test]
fn heartbeats_keep_their_cadence_and_tell_the_progress() {
    let mut bench = Bench::training(1);
    assert_eq!(bench.session.deadline(), Some(HEARTBEAT));
    bench.give(Event::Progressed(Progress { round: Some(1), done: 2, total: 9 }));
    assert_eq!(bench.at(just_before(HEARTBEAT)), []);
    assert_eq!(bench.at(HEARTBEAT), [heartbeat(Some(1), 2, 9)]);
    assert_eq!(bench.at(just_before(HEARTBEAT * 2)), []);
    assert_eq!(bench.trained(1), [upload(1)]);
    // A tick that comes late delays the next heart-beat, it does not make several at once.
    assert_eq!(bench.at(HEARTBEAT * 4), [heartbeat(None, 0, 0)]);
    assert_eq!(bench.session.deadline(), Some(HEARTBEAT * 5));
}

#[test]
fn no_heartbeat_interval_overflows_the_clock() {
    let mut bench = Bench::greeting(None);
    let endless = RunSpec { heartbeat: Duration::MAX, ..RunSpec::clone(&spec(1)) };
    bench.now = Duration::from_secs(1);
    let actions = bench.hears(ToClient::Welcome { spec: SpecText::of(&endless), wants: None });
    assert_eq!(actions, [heartbeat(None, 0, 0)]);
}

/// A session in each state of the connection, with a name.
fn connections() -> [(&'static str, Bench); 4] {
    let mut waiting = Bench::new(None);
    waiting.cut();
    [
        ("waiting", waiting),
        ("connecting", Bench::new(None)),
        ("greeting", Bench::greeting(None)),
        ("joined", Bench::joined()),
    ]
}

#[test]
fn stop_in_each_state_of_the_connection() {
    for (state, mut bench) in connections() {
        let expected = match state {
            "joined" => vec![Action::Send(ToServer::Goodbye), Action::Disconnect],
            "greeting" => vec![Action::Disconnect],
            _ => vec![],
        };
        let actions = bench.give(Event::Stop);
        assert_eq!(actions[..actions.len() - 1], expected, "{state}");
        assert_eq!(actions.last(), Some(&Action::Finish(SessionEnd::Stopped)), "{state}");
        assert_eq!(bench.session.deadline(), None, "{state}");
        for event in [Event::Stop, Event::Connected, Event::Tick] {
            assert_eq!(bench.give(event), [], "{state}: nothing happens after the end");
        }
    }
}

#[test]
fn stop_cancels_training_and_keeps_a_finished_update_for_later() {
    let end = [Action::Disconnect, Action::Finish(SessionEnd::Stopped)];
    let goodbye = Action::Send(ToServer::Goodbye);
    let training = Bench::training(1).give(Event::Stop);
    assert_eq!(training, [&[goodbye.clone(), Action::Cancel], &end[..]].concat());
    let mut bench = Bench::holding(1);
    assert_eq!(bench.give(Event::Stop), [&[goodbye], &end[..]].concat());
    assert_eq!(bench.session.activity(), &Activity::Holding(held(1, 1)));
}

#[test]
fn refused_ends_the_session_and_keeps_a_finished_update() {
    let mut bench = Bench::greeting(Some(held(1, 1)));
    let actions = bench.hears(ToClient::Refused(Refusal::NoSamples));
    assert_eq!(actions, [Action::Disconnect, Action::Finish(SessionEnd::Refused(Refusal::NoSamples))]);
    assert_eq!(bench.session.activity(), &Activity::Holding(held(1, 1)));
    let replaced = Bench::training(1).hears(ToClient::Refused(Refusal::Replaced));
    let finish = Action::Finish(SessionEnd::Refused(Refusal::Replaced));
    assert_eq!(replaced, [Action::Cancel, Action::Disconnect, finish]);
}

#[test]
fn finished_ends_the_session_and_lets_go_of_everything() {
    let end = [Action::Disconnect, Action::Finish(SessionEnd::Completed { rounds: 3 })];
    let finished = ToClient::Finished { rounds: 3 };
    assert_eq!(Bench::joined().hears(finished.clone()), end);
    assert_eq!(Bench::greeting(None).hears(finished.clone()), end);
    assert_eq!(Bench::training(3).hears(finished.clone()), [&[Action::Cancel], &end[..]].concat());
    assert_eq!(Bench::holding(3).hears(finished), [&[forget(3, None)], &end[..]].concat());
}

/// What a server of the version after this one may send.
#[test]
fn a_run_that_uses_an_unknown_key_is_declined_by_its_name_and_not_joined_again() {
    let mut bench = Bench::greeting(None);
    let newer = format!("{}\n[privacy]\nclip = 1.0\n", SpecText::of(&spec(1)).as_str());
    let actions = bench.hears(ToClient::Welcome { spec: newer.into(), wants: Some(3) });
    let unknown = SpecError::Unknown { key: "privacy.clip".to_owned() };
    assert_eq!(
        actions,
        [
            Action::Send(ToServer::Declined { reason: unknown.to_string() }),
            Action::Disconnect,
            Action::Finish(SessionEnd::Outdated(unknown)),
        ]
    );
    assert_eq!(bench.session.deadline(), None);
}

#[test]
fn a_run_that_the_device_has_no_memory_for_is_declined_with_the_figures() {
    let allowing = |bytes| {
        let memory = Some(Allowance { bytes, used: 1000, named: true });
        let device = DeviceProfile { memory, ..device() };
        let mut session = Session::new(device, None, Duration::ZERO);
        session.handle(Duration::ZERO, Event::Connected);
        let welcome = ToClient::Welcome { spec: SpecText::of(&spec(1)), wants: Some(3) };
        session.handle(Duration::ZERO, Event::Message(ToClient::Task { round: 3, work: TaskKind::TRAIN }));
        session.handle(Duration::ZERO, Event::Message(welcome));
        (std::iter::from_fn(|| session.poll()).skip(2).collect::<Vec<_>>(), session.deadline())
    };
    let round = estimate(&spec(1), device().samples).unwrap();
    let needed = 1000 + round.total();
    let refused = TooLarge { needed, allowed: needed - 1, round };
    let (actions, deadline) = allowing(needed - 1);
    assert_eq!(
        actions,
        [
            Action::Send(ToServer::Declined { reason: refused.to_string() }),
            Action::Disconnect,
            Action::Finish(SessionEnd::TooLarge(refused)),
        ]
    );
    assert_eq!(deadline, None, "it does not join again");
    let (actions, _) = allowing(needed);
    assert!(actions.iter().any(|action| matches!(action, Action::Train { .. })), "{actions:?}");
}

#[test]
fn a_run_with_the_classes_in_another_order_is_declined_before_any_round() {
    let names = |names: [&str; 2]| names.map(str::to_owned).to_vec();
    let mut run = RunSpec::clone(&spec(1));
    run.data.class_names = names(["cat", "dog"]);
    let device = DeviceProfile { class_names: names(["dog", "cat"]), ..device() };
    let mut session = Session::new(device, None, Duration::ZERO);
    session.handle(Duration::ZERO, Event::Connected);
    let welcome = ToClient::Welcome { spec: SpecText::of(&run), wants: None };
    session.handle(Duration::ZERO, Event::Message(welcome));
    let actions: Vec<_> = std::iter::from_fn(|| session.poll()).skip(2).collect();
    let [Action::Send(ToServer::Declined { reason }), Action::Disconnect, Action::Finish(end)] = &actions[..]
    else {
        panic!("{actions:?}")
    };
    assert!(reason.contains("the device's classes are dog, cat, and the run's cat, dog"), "{reason}");
    assert!(matches!(end, SessionEnd::Unfit(_)), "{end:?}");
    assert_eq!(session.deadline(), None, "it does not join again");
}

/// What a server of the version before this one sends.
#[test]
fn a_run_of_a_server_of_the_version_before_is_joined() {
    let mut text = Bench::greeting(None);
    let mut positional = Bench::greeting(None);
    let expected = text.hears(ToClient::Welcome { spec: SpecText::of(&spec(1)), wants: None });
    let spec = Box::new(PositionalSpec::of(&spec(1)).expect("fedavg is known"));
    assert_eq!(positional.hears(ToClient::PositionalWelcome { spec, wants: None }), expected);
    assert_eq!(positional.session.run(), text.session.run());
}
