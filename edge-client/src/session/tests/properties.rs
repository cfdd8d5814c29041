//! Properties of the session under random events in any order.

use proptest::prelude::*;

use super::*;

fn counted() -> impl Strategy<Value = Option<CountedUpdate>> {
    let update = (1..4u32, prop::option::of(0..2u32));
    prop::option::of(update.prop_map(|(round, fingerprint)| CountedUpdate { round, fingerprint }))
}

/// What the driver would know, and what must hold of the actions it is given.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is one thing that the driver knows")]
struct Books {
    connecting: bool,
    connected: bool,
    welcomed: bool,
    training: Option<u32>,
    holding: Option<u32>,
    /// Whether the held update is not durable, and has client state.
    syncing: bool,
    finished: bool,
}

impl Books {
    fn take(&mut self, actions: Vec<Action>) {
        for action in actions {
            assert!(!self.finished, "after the end: {action:?}");
            match action {
                Action::Connect(_) => {
                    assert!(!self.connected && !self.connecting, "one connection at a time");
                    self.connecting = true;
                }
                Action::Read(_) | Action::HangUp => panic!("this device has read its samples"),
                Action::Send(ToServer::Hello(_)) => {
                    assert!(self.connected && !self.welcomed, "hello comes first");
                }
                Action::Send(message) => {
                    assert!(self.connected && self.welcomed, "{message:?} before the welcome");
                }
                Action::Upload(header) => {
                    assert!(self.connected && self.welcomed);
                    assert_eq!(self.holding, Some(header.round));
                    assert!(!self.syncing, "an update with client state is durable before it is sent");
                }
                Action::Train { round, .. } => {
                    assert!(
                        self.connected && self.welcomed && self.training.is_none() && self.holding.is_none()
                    );
                    self.training = Some(round);
                }
                Action::Cancel => assert!(self.training.take().is_some()),
                Action::Forget { round, .. } => {
                    assert_eq!(self.holding.take(), Some(round));
                    self.syncing = false;
                }
                Action::Sync { round } => {
                    assert_eq!(self.holding, Some(round));
                    self.syncing = true;
                }
                Action::LookUpState { .. } | Action::LookForTests { .. } => {
                    assert!(self.connected && self.welcomed);
                }
                Action::NotifyVerdict { .. } | Action::NotifyState { .. } => {}
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
    Cut(bool),
    Hears(ToClient),
    Trained(u32, bool),
    Lost(u32),
    Synced(u32),
    State(Option<CountedUpdate>),
    Progressed(u32),
    Deadline,
    Stop,
}

fn op() -> impl Strategy<Value = Op> {
    let round = || 1_u32..4;
    let welcome = (1_u8..3, prop::option::of(round()))
        .prop_map(|(run, wants)| Op::Hears(ToClient::Welcome { spec: SpecText::of(&spec(run)), wants }));
    let task = round().prop_map(|round| Op::Hears(ToClient::Task { round, work: TaskKind::TRAIN }));
    let receipt =
        round().prop_map(|round| Op::Hears(ToClient::Receipt { round, verdict: Verdict::Accepted }));
    let end = prop_oneof![
        Just(Op::Stop),
        Just(Op::Hears(ToClient::Refused(Refusal::Replaced))),
        Just(Op::Hears(ToClient::Finished { rounds: 3 })),
    ];
    prop_oneof![
        100 => prop::bool::weighted(0.8).prop_map(Op::Connects),
        40 => prop::bool::ANY.prop_map(Op::Cut),
        80 => welcome,
        80 => task,
        30 => receipt,
        80 => (round(), prop::bool::weighted(0.7)).prop_map(|(round, fine)| Op::Trained(round, fine)),
        10 => round().prop_map(Op::Lost),
        40 => round().prop_map(Op::Synced),
        10 => counted().prop_map(|update| Op::Hears(ToClient::Counted { update })),
        20 => counted().prop_map(Op::State),
        10 => round().prop_map(Op::Progressed),
        60 => Just(Op::Deadline),
        2 => end,
    ]
}

fn play(holding: Option<TaskId>, ops: Vec<Op>) {
    let mut bench = Bench::new(holding);
    let mut books = Books { connecting: true, holding: holding.map(|held| held.round), ..Books::default() };
    for op in ops {
        let actions = match op {
            Op::Connects(fine) if books.connecting => {
                (books.connecting, books.connected, books.welcomed) = (false, fine, false);
                if fine { bench.give(Event::Connected) } else { bench.cut() }
            }
            Op::Cut(elsewhere) if books.connected => {
                books.connected = false;
                bench.cut_with(elsewhere)
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
                let (keeps, report) = (round.is_multiple_of(2), Ok(report()));
                if fine {
                    bench.give(Event::Trained { round, outcome: report, keeps })
                } else {
                    bench.fails(round)
                }
            }
            Op::Synced(round) => {
                books.syncing &= books.holding != Some(round);
                bench.give(Event::Synced { round })
            }
            Op::State(after) => bench.give(Event::State { after }),
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
                    assert_eq!(bench.at(just_before(moment)), [], "time alone matters before the deadline");
                    let actions = bench.at(moment);
                    assert_eq!(actions.len(), 1, "connect or heart-beat");
                    actions
                }
            },
            Op::Stop => bench.give(Event::Stop),
            _ => continue,
        };
        books.take(actions);
        let (training, holding) = match bench.session.activity() {
            Activity::Idle => (None, None),
            Activity::Training(held) => (Some(held.round), None),
            Activity::Holding(held) => (None, Some(held.round)),
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
