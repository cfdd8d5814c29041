//! The session, driven by hand: what goes in, and exactly what comes out.

use proptest::prelude::*;
use shared::id::RunId;

use super::*;

const NANOSECOND: Duration = Duration::from_nanos(1);
const HEARTBEAT: Duration = Duration::from_secs(5);

fn spec(run: u8) -> Box<RunSpec> {
    Box::new(RunSpec { run: RunId::from_bytes([run; 8]), heartbeat: HEARTBEAT, ..RunSpec::example("fedavg") })
}

fn held(run: u8, round: u32) -> Held {
    Held { run: RunId::from_bytes([run; 8]), round }
}

fn report() -> TrainReport {
    TrainReport { samples: 10, steps: 3, loss: 0.5, duration: Duration::from_secs(2) }
}

fn device() -> Device {
    Device { client: ClientId::from_bytes([1; 16]), samples: 10, shape: vec![1, 2, 2], classes: 2 }
}

fn hello(holds: Option<Held>) -> Action {
    let software = concat!("edge-client ", env!("CARGO_PKG_VERSION")).to_owned();
    let Device { client, samples, shape, classes } = device();
    Action::Send(ToServer::Hello(Hello { client, software, samples, shape, classes, holds }))
}

fn heartbeat(round: Option<u32>, done: u64, total: u64) -> Action {
    Action::Send(ToServer::Heartbeat(Progress { round, done, total }))
}

fn upload(round: u32) -> Action {
    Action::Upload(UpdateHeader { round, report: report() })
}

fn train(run: u8, round: u32) -> Action {
    Action::Train { round, spec: spec(run) }
}

fn forget(round: u32, verdict: Option<Verdict>) -> Action {
    Action::Forget { round, verdict }
}

fn failed(round: u32) -> Action {
    Action::Send(ToServer::Failed { round, reason: "out of memory".to_owned() })
}

/// A session and its clock.
struct Bench {
    session: Session,
    now: Duration,
}

impl Bench {
    /// A session that is about to connect.
    fn new(holding: Option<Held>) -> Self {
        let held = holding.map(|held| (held, report()));
        let mut bench = Self { session: Session::new(device(), held, Duration::ZERO), now: Duration::ZERO };
        assert_eq!(bench.drain(), [Action::Connect]);
        bench
    }

    /// A session that said hello.
    fn greeting(holding: Option<Held>) -> Self {
        let mut bench = Self::new(holding);
        assert_eq!(bench.give(Event::Connected), [hello(holding)]);
        bench
    }

    /// A session that takes part in run 1.
    fn joined() -> Self {
        let mut bench = Self::greeting(None);
        assert_eq!(bench.welcome(1, None), [heartbeat(None, 0, 0)]);
        bench
    }

    /// A session that trains in `round` of run 1.
    fn training(round: u32) -> Self {
        let mut bench = Self::joined();
        assert_eq!(bench.task(round), [train(1, round)]);
        bench
    }

    /// A session that has sent its update of `round` of run 1.
    fn holding(round: u32) -> Self {
        let mut bench = Self::training(round);
        assert_eq!(bench.trained(round), [upload(round)]);
        bench
    }

    fn drain(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.session.poll()).collect()
    }

    fn give(&mut self, event: Event) -> Vec<Action> {
        self.session.handle(self.now, event);
        self.drain()
    }

    fn at(&mut self, now: Duration) -> Vec<Action> {
        self.now = now;
        self.give(Event::Tick)
    }

    fn hears(&mut self, message: ToClient) -> Vec<Action> {
        self.give(Event::Message(message))
    }

    fn welcome(&mut self, run: u8, wants: Option<u32>) -> Vec<Action> {
        self.hears(ToClient::Welcome { spec: spec(run), wants })
    }

    fn task(&mut self, round: u32) -> Vec<Action> {
        self.hears(ToClient::Task { round })
    }

    fn trained(&mut self, round: u32) -> Vec<Action> {
        self.give(Event::Trained { round, outcome: Ok(report()) })
    }

    fn fails(&mut self, round: u32) -> Vec<Action> {
        self.give(Event::Trained { round, outcome: Err("out of memory".to_owned()) })
    }

    fn cut(&mut self) -> Vec<Action> {
        self.give(Event::Disconnected { reason: "the network is gone".to_owned() })
    }

    /// Waits until the session connects again, and gives how long that took.
    fn reconnects(&mut self) -> Duration {
        let before = self.now;
        let moment = self.session.deadline().expect("a moment to connect again");
        assert_eq!(self.at(moment - NANOSECOND), [], "not before its moment");
        assert_eq!(self.at(moment), [Action::Connect]);
        assert_eq!(self.session.deadline(), None, "connecting takes as long as it takes");
        moment - before
    }

    /// Is cut off, comes back and says hello, which is given.
    fn comes_back(&mut self) -> Vec<Action> {
        assert_eq!(self.cut(), []);
        self.reconnects();
        self.give(Event::Connected)
    }
}

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
        full = (full * 2).min(LONGEST_DELAY);
    }
    assert_eq!(full, LONGEST_DELAY);
    fractions.sort_unstable();
    fractions.dedup();
    assert!(fractions.len() > 20, "delays vary: {fractions:?}");
}

#[test]
fn two_devices_do_not_come_back_together() {
    let delay = |id| {
        let device = Device { client: ClientId::from_bytes([id; 16]), ..device() };
        let mut bench = Bench { session: Session::new(device, None, Duration::ZERO), now: Duration::ZERO };
        bench.drain();
        bench.cut();
        bench.reconnects()
    };
    assert_ne!(delay(1), delay(2));
    assert_eq!(delay(1), delay(1), "the same device, the same bytes");
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
    assert_eq!(bench.at(HEARTBEAT - NANOSECOND), []);
    assert_eq!(bench.at(HEARTBEAT), [heartbeat(Some(1), 2, 9)]);
    assert_eq!(bench.at(HEARTBEAT * 2 - NANOSECOND), []);
    assert_eq!(bench.trained(1), [upload(1)]);
    // A tick that comes late delays the next heart-beat, it does not make several at once.
    assert_eq!(bench.at(HEARTBEAT * 4), [heartbeat(None, 0, 0)]);
    assert_eq!(bench.session.deadline(), Some(HEARTBEAT * 5));
}

#[test]
fn no_heartbeat_interval_overflows_the_clock() {
    let mut bench = Bench::greeting(None);
    let endless = Box::new(RunSpec { heartbeat: Duration::MAX, ..*spec(1) });
    bench.now = Duration::from_secs(1);
    let actions = bench.hears(ToClient::Welcome { spec: endless, wants: None });
    assert_eq!(actions, [heartbeat(None, 0, 0)]);
}

#[test]
fn a_task_is_trained_uploaded_and_forgotten_with_its_receipt() {
    let mut bench = Bench::training(1);
    assert_eq!(bench.session.work(), &Work::Training(held(1, 1)));
    assert_eq!(bench.trained(1), [upload(1)]);
    assert_eq!(bench.session.work(), &Work::Holding(held(1, 1)));
    let receipt = |round| ToClient::Receipt { round, verdict: Verdict::Accepted };
    assert_eq!(bench.hears(receipt(2)), [], "not the update that is held");
    assert_eq!(bench.hears(receipt(1)), [forget(1, Some(Verdict::Accepted))]);
    assert_eq!(bench.session.work(), &Work::Idle);
    assert_eq!(bench.hears(receipt(1)), [], "once");
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
        let work = bench.session.work().clone();
        assert_eq!(bench.task(2), []);
        assert_eq!(bench.task(1), []);
        assert_eq!(bench.session.work(), &work);
    }
}

#[test]
fn a_failure_is_said_at_once_when_joined() {
    let mut bench = Bench::training(1);
    assert_eq!(bench.fails(1), [failed(1)]);
    assert_eq!(bench.session.work(), &Work::Idle);
}

#[test]
fn a_failure_fits_into_a_message_however_long_its_reason() {
    let outcome = Err("x".repeat(1_000_000));
    let actions = Bench::training(1).give(Event::Trained { round: 1, outcome });
    let [Action::Send(message)] = &actions[..] else { panic!("{actions:?}") };
    assert!(shared::frame::encode(message, 0).len() < 1000);
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
    assert_eq!(bench.session.work(), &Work::Idle);
}

#[test]
fn training_outlives_the_connection() {
    let mut bench = Bench::training(1);
    bench.cut();
    assert_eq!(bench.session.work(), &Work::Training(held(1, 1)));
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
        assert_eq!(training.session.work(), &Work::Idle);
        assert_eq!(training.trained(1), [], "nobody waits for it");
    }
}

#[test]
fn a_new_run_begins_its_rounds_anew() {
    let mut bench = Bench::holding(5);
    bench.comes_back();
    bench.welcome(2, Some(1));
    assert_eq!(bench.task(1), [train(2, 1)], "round 5 was another run's");
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
        assert_eq!(actions.last(), Some(&Action::Finish(Outcome::Stopped)), "{state}");
        assert_eq!(bench.session.deadline(), None, "{state}");
        for event in [Event::Stop, Event::Connected, Event::Tick] {
            assert_eq!(bench.give(event), [], "{state}: nothing happens after the end");
        }
    }
}

#[test]
fn stop_cancels_training_and_keeps_a_finished_update_for_later() {
    let end = [Action::Disconnect, Action::Finish(Outcome::Stopped)];
    let goodbye = Action::Send(ToServer::Goodbye);
    let training = Bench::training(1).give(Event::Stop);
    assert_eq!(training, [&[goodbye.clone(), Action::Cancel], &end[..]].concat());
    let mut bench = Bench::holding(1);
    assert_eq!(bench.give(Event::Stop), [&[goodbye], &end[..]].concat());
    assert_eq!(bench.session.work(), &Work::Holding(held(1, 1)));
}

#[test]
fn refused_ends_the_session_and_keeps_a_finished_update() {
    let mut bench = Bench::greeting(Some(held(1, 1)));
    let actions = bench.hears(ToClient::Refused(Refusal::NoSamples));
    assert_eq!(actions, [Action::Disconnect, Action::Finish(Outcome::Refused(Refusal::NoSamples))]);
    assert_eq!(bench.session.work(), &Work::Holding(held(1, 1)));
    let replaced = Bench::training(1).hears(ToClient::Refused(Refusal::Replaced));
    let finish = Action::Finish(Outcome::Refused(Refusal::Replaced));
    assert_eq!(replaced, [Action::Cancel, Action::Disconnect, finish]);
}

#[test]
fn finished_ends_the_session_and_lets_go_of_everything() {
    let end = [Action::Disconnect, Action::Finish(Outcome::Completed { rounds: 3 })];
    let finished = ToClient::Finished { rounds: 3 };
    assert_eq!(Bench::joined().hears(finished.clone()), end);
    assert_eq!(Bench::greeting(None).hears(finished.clone()), end);
    assert_eq!(Bench::training(3).hears(finished.clone()), [&[Action::Cancel], &end[..]].concat());
    assert_eq!(Bench::holding(3).hears(finished), [&[forget(3, None)], &end[..]].concat());
}

/// What the driver would know, and what must hold of the actions it is given.
#[derive(Default)]
struct Books {
    connecting: bool,
    connected: bool,
    welcomed: bool,
    training: Option<u32>,
    holding: Option<u32>,
    finished: bool,
}

impl Books {
    fn take(&mut self, actions: Vec<Action>) {
        for action in actions {
            assert!(!self.finished, "after the end: {action:?}");
            match action {
                Action::Connect => {
                    assert!(!self.connected && !self.connecting, "one connection at a time");
                    self.connecting = true;
                }
                Action::Send(ToServer::Hello(_)) => {
                    assert!(self.connected && !self.welcomed, "hello comes first")
                }
                Action::Send(message) => {
                    assert!(self.connected && self.welcomed, "{message:?} before the welcome")
                }
                Action::Upload(header) => {
                    assert!(self.connected && self.welcomed);
                    assert_eq!(self.holding, Some(header.round));
                }
                Action::Train { round, .. } => {
                    assert!(
                        self.connected && self.welcomed && self.training.is_none() && self.holding.is_none()
                    );
                    self.training = Some(round);
                }
                Action::Cancel => assert!(self.training.take().is_some()),
                Action::Forget { round, .. } => assert_eq!(self.holding.take(), Some(round)),
                Action::Disconnect => assert!(self.connected),
                Action::Finish(_) => self.finished = true,
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// The attempt to connect ends; well or not.
    Connects(bool),
    Cut,
    Hears(ToClient),
    Trained(u32, bool),
    Lost(u32),
    Progressed(u32),
    Deadline,
    Stop,
}

fn op() -> impl Strategy<Value = Op> {
    let round = || 1_u32..4;
    let welcome = (1_u8..3, prop::option::of(round()))
        .prop_map(|(run, wants)| Op::Hears(ToClient::Welcome { spec: spec(run), wants }));
    let task = round().prop_map(|round| Op::Hears(ToClient::Task { round }));
    let receipt =
        round().prop_map(|round| Op::Hears(ToClient::Receipt { round, verdict: Verdict::Accepted }));
    let end = prop_oneof![
        Just(Op::Stop),
        Just(Op::Hears(ToClient::Refused(Refusal::Replaced))),
        Just(Op::Hears(ToClient::Finished { rounds: 3 })),
    ];
    prop_oneof![
        100 => prop::bool::weighted(0.8).prop_map(Op::Connects),
        40 => Just(Op::Cut),
        80 => welcome,
        80 => task,
        30 => receipt,
        80 => (round(), prop::bool::weighted(0.7)).prop_map(|(round, fine)| Op::Trained(round, fine)),
        10 => round().prop_map(Op::Lost),
        10 => round().prop_map(Op::Progressed),
        60 => Just(Op::Deadline),
        2 => end,
    ]
}

fn play(holding: Option<Held>, ops: Vec<Op>) {
    let mut bench = Bench::new(holding);
    let mut books = Books { connecting: true, holding: holding.map(|held| held.round), ..Books::default() };
    for op in ops {
        let actions = match op {
            Op::Connects(fine) if books.connecting => {
                (books.connecting, books.connected, books.welcomed) = (false, fine, false);
                if fine { bench.give(Event::Connected) } else { bench.cut() }
            }
            Op::Cut if books.connected => {
                books.connected = false;
                bench.cut()
            }
            Op::Hears(message) if books.connected => {
                books.welcomed |= matches!(message, ToClient::Welcome { .. });
                bench.hears(message)
            }
            Op::Trained(round, fine) => {
                if !books.finished && books.training == Some(round) {
                    books.training = None;
                    books.holding = fine.then_some(round);
                }
                if fine { bench.trained(round) } else { bench.fails(round) }
            }
            Op::Lost(round) => bench.give(Event::Lost { round, reason: "a bad block".to_owned() }),
            Op::Progressed(round) => {
                bench.give(Event::Progressed(Progress { round: Some(round), done: 1, total: 2 }))
            }
            Op::Deadline => match bench.session.deadline() {
                None => {
                    assert!(books.finished || books.connecting || !books.welcomed, "the clock is needed");
                    continue;
                }
                Some(moment) => {
                    assert!(moment > bench.now, "a deadline that is over is a busy loop");
                    assert_eq!(bench.at(moment - NANOSECOND), [], "time alone matters before the deadline");
                    let actions = bench.at(moment);
                    assert_eq!(actions.len(), 1, "connect or heart-beat");
                    actions
                }
            },
            Op::Stop => bench.give(Event::Stop),
            _ => continue,
        };
        books.take(actions);
        let (training, holding) = match bench.session.work() {
            Work::Idle => (None, None),
            Work::Training(held) => (Some(held.round), None),
            Work::Holding(held) => (None, Some(held.round)),
        };
        assert_eq!((books.training, books.holding), (training, holding));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_events_keeps_the_books_straight(
        holding in prop::option::of((1_u8..3, 1_u32..4)),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        play(holding.map(|(run, round)| held(run, round)), ops);
    }
}
