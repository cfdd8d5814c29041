//! Any events, in any order.

use proptest::prelude::*;

use crate::round::Lateness;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// Client says hello on a new connection, holding the task of that many rounds ago, if any.
    Hello(u8, Option<u32>),
    Disconnect(u8),
    Revoked(u8),
    Heartbeat(u8),
    Fails(u8),
    NotNow(u8),
    /// An update for the newest round plus this, less one; honest or not.
    Upload(u8, u32, bool),
    /// The oldest or the newest fold ends; well or not.
    Folded(bool, bool),
    Opened(u32),
    Closed(u32),
    /// Time passes until just before the next deadline, then until the deadline.
    Deadline,
    Pause,
    /// The driver handles nothing for this number of seconds.
    Stalled(u64),
    Stop,
}

fn op() -> impl Strategy<Value = Op> {
    let n = 1_u8..=4;
    prop_oneof![
        6 => (n.clone(), prop::option::of(0_u32..3)).prop_map(|(n, ago)| Op::Hello(n, ago)),
        2 => n.clone().prop_map(Op::Disconnect),
        1 => n.clone().prop_map(Op::Revoked),
        1 => n.clone().prop_map(Op::Heartbeat),
        2 => n.clone().prop_map(Op::Fails),
        2 => n.clone().prop_map(Op::NotNow),
        8 => (n, prop_oneof![3 => Just(0_u32), 8 => Just(1), 1 => Just(2)], prop::bool::weighted(0.9))
            .prop_map(|(n, round, honest)| Op::Upload(n, round, honest)),
        6 => (any::<bool>(), prop::bool::weighted(0.8)).prop_map(|(oldest, fine)| Op::Folded(oldest, fine)),
        5 => (0_u32..2).prop_map(Op::Opened),
        5 => (0_u32..2).prop_map(Op::Closed),
        3 => Just(Op::Deadline),
        1 => Just(Op::Pause),
        1 => (3_u64..200).prop_map(Op::Stalled),
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    (prop::collection::vec(op(), 1..120), prop::bool::weighted(0.2)).prop_map(|(mut ops, stop)| {
        if stop {
            let middle = ops.len() / 2;
            ops.insert(middle, Op::Stop);
        }
        ops
    })
}

fn any_policy() -> impl Strategy<Value = RoundPolicy> {
    let late = prop::option::of((1_u32..=3).prop_map(|rounds| Lateness { rounds, power: 0.5 }));
    let counts = (1_usize..=3, prop::option::of(0_usize..2), 1_usize..=3, 0.0..=1.0_f64, late);
    (counts, prop_oneof![Just(0_u64), Just(20), Just(100)], prop_oneof![Just(15_u64), Just(1000)]).prop_map(
        |((min, above, start, fraction, late), min_wait, connection_timeout)| RoundPolicy {
            fraction,
            min,
            max: above.map(|above| min + above),
            min_wait: Duration::from_secs(min_wait),
            connection_timeout: Duration::from_secs(connection_timeout),
            late,
            eligibility: Eligibility::default(),
            ..policy(start)
        },
    )
}

/// What the driver would know, and what must hold of the actions it is given.
struct Ledger {
    uploads: BTreeSet<u64>,
    /// Round, whose, and the round of the training.
    folding: Vec<(u32, ClientId, u32)>,
    /// Uploads that a coordinator for which late ones count may keep until a round opens.
    waiting: BTreeSet<u64>,
    /// Whose updates are in, by the round of their training.
    taken: BTreeSet<(ClientId, u32)>,
    /// The rounds that uploads were trained in.
    trained: BTreeMap<u64, u32>,
    opening: Option<u32>,
    closing: Option<(u32, bool)>,
    opened: BTreeMap<u32, BTreeSet<ClientId>>,
    asked: BTreeSet<(PeerId, u32)>,
    /// Connections of clients that may not take part any more.
    revoked: BTreeSet<PeerId>,
    finished: bool,
}

impl Ledger {
    fn new() -> Self {
        Self {
            uploads: BTreeSet::new(),
            folding: Vec::new(),
            waiting: BTreeSet::new(),
            taken: BTreeSet::new(),
            trained: BTreeMap::new(),
            opening: None,
            closing: None,
            opened: BTreeMap::new(),
            asked: BTreeSet::new(),
            revoked: BTreeSet::new(),
            finished: false,
        }
    }

    fn give_away(&mut self, upload: UploadId) {
        let known = self.uploads.remove(&upload.0) || self.waiting.remove(&upload.0);
        assert!(known, "upload {upload:?} is given away once");
    }

    fn take(&mut self, actions: Vec<Action>, closed: u32, policy: &RoundPolicy) {
        for action in actions {
            assert!(!self.finished || matches!(action, Action::Drop { .. }), "after the end: {action:?}");
            match action {
                Action::Fold { round, client, upload } => {
                    self.give_away(upload);
                    let trained = self.trained[&upload.0];
                    let late = policy
                        .late
                        .and_then(|late| late.staleness(trained, round))
                        .is_some_and(|late| late > 0);
                    assert!(late || trained == round, "trained in {trained}, folded in {round}");
                    assert_ne!(
                        self.opened[&round].contains(&client),
                        late,
                        "members, and those behind, are folded"
                    );
                    assert!(self.closing.is_none(), "nothing is folded into a closing round");
                    self.folding.push((round, client, trained));
                }
                Action::Drop { upload } => self.give_away(upload),
                Action::Open(opening) => {
                    assert_eq!(opening.round, closed + 1, "one round after the other");
                    assert!(self.opening.replace(opening.round).is_none() && self.closing.is_none());
                    let members: BTreeSet<_> = opening.cohort.keys().copied().collect();
                    let before = self.opened.insert(opening.round, members).unwrap_or_default();
                    let now = &self.opened[&opening.round];
                    let grows = before.len() < now.len() || policy.late.is_some();
                    assert!(before.is_subset(now) && grows, "a cohort only grows");
                }
                Action::Broadcast { peer, round } => {
                    assert_eq!(round, closed + 1);
                    assert!(!self.revoked.contains(&peer), "no revoked client is asked");
                    assert!(self.asked.insert((peer, round)), "once per connection and round");
                }
                Action::Close { round, tally } => {
                    assert_eq!(round, closed + 1);
                    assert!(self.folding.is_empty(), "what is being folded is waited for");
                    assert!(self.closing.replace((round, tally.void)).is_none() && self.opening.is_none());
                    assert_eq!(tally.sampled, self.opened[&round].len());
                    let in_time = tally.accepted - tally.late;
                    assert!(in_time + tally.failed + tally.lost <= tally.sampled, "{tally:?}");
                    assert_eq!(tally.void, tally.accepted < policy.min, "{tally:?}");
                }
                Action::Finish(_) => self.finished = true,
                Action::Send { peer, .. } => assert!(!self.revoked.contains(&peer), "nor told anything"),
                Action::Disconnect { .. }
                | Action::Alarm { .. }
                | Action::StateDiffers { .. }
                | Action::Outgrown { .. }
                | Action::SaveRoster(_) => {}
                Action::Agree { .. } | Action::Decide { .. } | Action::Unmask { .. } => {
                    panic!("nothing is hidden in these runs")
                }
            }
        }
    }
}

/// The driver handles nothing for this duration.
fn stalls(bench: &mut Bench, by: Duration) -> Vec<Action> {
    let connected = bench.coordinator.status(bench.now).connected;
    bench.now += by;
    let actions = bench.give(Event::Stalled { by });
    assert_eq!(bench.coordinator.status(bench.now).connected, connected, "no client is lost by it");
    actions
}

fn play(policy: RoundPolicy, ops: &[Op]) {
    let mut bench = Bench::new(policy);
    let mut ledger = Ledger::new();
    for &op in ops {
        let closed = bench.coordinator.closed();
        let newest = closed + u32::from(ledger.opened.contains_key(&(closed + 1)));
        let mut closes = false;
        let actions = match op {
            Op::Hello(n, ago) => {
                let held = ago.map(|ago| TaskId { run: spec().run, round: newest.saturating_sub(ago) });
                bench.greets(n, hello(n, held))
            }
            Op::Stop => bench.give(Event::Stop),
            Op::Disconnect(n) if bench.peers.contains_key(&n) => bench.leaves(n),
            Op::Revoked(n) => {
                ledger.revoked.extend(bench.peers.get(&n));
                let known = bench.coordinator.status(bench.now).known;
                let was_known = bench.coordinator.members.contains_key(&client(n));
                let actions = bench.give(Event::Revoked { client: client(n) });
                let now_known = bench.coordinator.status(bench.now).known;
                assert_eq!(now_known, known - usize::from(was_known && !ledger.finished), "it is forgotten");
                actions
            }
            Op::Heartbeat(n) if bench.peers.contains_key(&n) => {
                bench.says(n, ToServer::Heartbeat(Progress { round: Some(newest), done: 1, total: 2 }))
            }
            Op::Fails(n) if bench.peers.contains_key(&n) => bench.fails(n, newest),
            Op::NotNow(n) if bench.peers.contains_key(&n) => {
                // It may be asked again on the same connection.
                ledger.asked.remove(&(bench.peer(n), newest));
                let reason = shared::eligibility::Ineligible::Battery;
                bench.says(n, ToServer::Ineligible { round: newest, reason })
            }
            Op::Upload(n, round, honest) if bench.peers.contains_key(&n) => {
                ledger.uploads.insert(bench.next_upload + 1);
                let report = TrainReport { samples: samples(n) + u64::from(!honest), ..report(n) };
                let trained = (newest + round).saturating_sub(1);
                ledger.trained.insert(bench.next_upload + 1, trained);
                bench.uploads(n, trained, report)
            }
            Op::Folded(oldest, fine) if !ledger.folding.is_empty() => {
                let index = if oldest { 0 } else { ledger.folding.len() - 1 };
                let (round, client, trained) = ledger.folding.remove(index);
                assert!(
                    !fine || ledger.taken.insert((client, trained)),
                    "{client:?} counts twice for {trained}"
                );
                let outcome =
                    if fine { Ok(FINGERPRINT) } else { Err(Rejection::NotFinite { tensor: "w".to_owned() }) };
                bench.give(Event::Folded { round, client, outcome })
            }
            Op::Opened(off) => {
                let round = ledger.opening.take_if(|_| off == 0).unwrap_or(closed + 1 + off);
                bench.opened(round)
            }
            Op::Closed(off) => {
                closes = off == 0 && ledger.closing.take().is_some() && !ledger.finished;
                bench.closed(closed + 1 + off)
            }
            Op::Deadline => {
                let Some(deadline) = bench.coordinator.deadline(bench.now) else {
                    assert_eq!(
                        bench.at(bench.now + Duration::from_secs(1_000_000)),
                        [],
                        "time alone matters"
                    );
                    continue;
                };
                assert!(deadline > bench.now, "a deadline that is over is a busy loop");
                if just_before(deadline) > bench.now {
                    assert_eq!(bench.at(just_before(deadline)), [], "time alone matters before the deadline");
                }
                bench.at(deadline)
            }
            Op::Pause => bench.at(bench.now + MILLISECOND),
            Op::Stalled(seconds) => stalls(&mut bench, Duration::from_secs(seconds)),
            _ => continue,
        };
        assert_eq!(bench.coordinator.closed(), closed + u32::from(closes), "{op:?}");
        ledger.take(actions, bench.coordinator.closed(), &policy);
        let kept = std::mem::take(&mut ledger.uploads);
        assert!(kept.is_empty() || policy.late.is_some(), "an upload is folded or dropped at once");
        ledger.waiting.extend(kept);
        assert!(!ledger.finished || ledger.waiting.is_empty(), "what waits is dropped in the end");
        let status = bench.coordinator.status(bench.now);
        assert!(!status.to_string().is_empty() && status.connected <= status.known);
        if let WaitingFor::Updates { accepted, cohort, members, .. } = status.waiting_for {
            let (away, connected): (Vec<_>, Vec<_>) =
                members.iter().partition(|member| member.activity == Activity::Away);
            let working = connected.iter().filter(|member| !member.late);
            assert!(policy.late.is_some() || accepted + working.count() + away.len() <= cohort);
            // Of a revoked client only the end of its current work is waited for.
            let folding = |client: &ClientId| ledger.folding.iter().any(|(_, whose, _)| whose == client);
            let known = |client: &ClientId| bench.coordinator.members.contains_key(client);
            assert!(away.iter().all(|member| known(&member.client) || folding(&member.client)));
        }
        let later = bench.coordinator.deadline(bench.now);
        assert!(later.is_none_or(|moment| moment > bench.now));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_events_keeps_the_books_straight(policy in any_policy(), ops in ops()) {
        play(policy, &ops);
    }
}
