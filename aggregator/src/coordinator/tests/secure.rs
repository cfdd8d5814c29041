//! Rounds whose updates are hidden: who is told what, who may be lost when, and when receipts are sent.

use shared::identity::SecretKey;
use shared::message::{SecureAnswer, SecureStep};
use shared::secure::{Advertised, Exchange, Party, PartySecret, Recovery, Sealed};
use shared::spec::SecureAggregation;

use super::*;
use crate::coordinator::{Agreement, Closing, Reopened, Revealed};

const PATIENCE: Duration = Duration::from_secs(30);

/// The steps at which a device may fall silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Silent {
    Keys,
    Shares,
    Update,
    Reveal,
}

/// A device that takes part in exchanges.
struct Member {
    key: SecretKey,
    peer: PeerId,
    party: Option<Party>,
    neighbours: Vec<Advertised>,
    present: Vec<(ClientId, Sealed)>,
    silent: Option<Silent>,
}

/// A coordinator and its devices, which answer at once.
struct Hiding {
    coordinator: Coordinator,
    now: Duration,
    members: BTreeMap<ClientId, Member>,
    uploads: u64,
    /// What was made durable of the open round.
    opening: Option<Opening>,
    agreement: Option<Agreement>,
    decided: Option<Tally>,
    /// Decisions are not durable until the test says so.
    slow: bool,
    accepted: BTreeSet<ClientId>,
    unmasked: Option<(Tally, Revealed)>,
    closed: Option<Tally>,
    receipts: BTreeMap<ClientId, Verdict>,
    attempts: BTreeSet<u32>,
}

fn secure() -> RunSpec {
    let secure = SecureAggregation { enabled: true, min_devices: 3, ..SecureAggregation::default() };
    RunSpec { secure, ..spec() }
}

fn key(n: u8) -> SecretKey {
    SecretKey::from_bytes([n; 32])
}

fn id(n: u8) -> ClientId {
    key(n).public().client()
}

impl Hiding {
    /// Devices 1 to `devices`, of which some fall silent.
    fn new(devices: u8, silent: &[(u8, Silent)]) -> Self {
        let mut hiding = Self::resumed(devices, silent, Resume::default());
        hiding.greet();
        hiding
    }

    fn resumed(devices: u8, silent: &[(u8, Silent)], resume: Resume) -> Self {
        let policy = RoundPolicy { min: 3, start: devices.into(), ..policy(1) };
        let member = |n: u8| {
            let silent = silent.iter().find(|(device, _)| *device == n).map(|(_, silent)| *silent);
            let peer = PeerId(n.into());
            (
                id(n),
                Member {
                    key: key(n),
                    peer,
                    party: None,
                    neighbours: Vec::new(),
                    present: Vec::new(),
                    silent,
                },
            )
        };
        Self {
            coordinator: Coordinator::new(secure(), policy, resume, Duration::ZERO),
            now: Duration::ZERO,
            members: (1..=devices).map(member).collect(),
            uploads: 0,
            opening: None,
            agreement: None,
            decided: None,
            slow: false,
            accepted: BTreeSet::new(),
            unmasked: None,
            closed: None,
            receipts: BTreeMap::new(),
            attempts: BTreeSet::new(),
        }
    }

    fn greet(&mut self) {
        let holding = self.accepted.clone();
        let peers: Vec<_> = self.members.iter().map(|(client, member)| (*client, member.peer)).collect();
        for (client, peer) in peers {
            let holds = holding.contains(&client).then(|| TaskId { run: secure().run, round: 1 });
            let hello = Hello { client, samples: 10, ..hello(1, holds) };
            self.give(Event::Message { peer, message: ToServer::Hello(hello) });
        }
    }

    fn give(&mut self, event: Event) {
        self.coordinator.handle(self.now, event);
        while let Some(action) = self.coordinator.poll() {
            self.act(action);
        }
    }

    fn at(&mut self, now: Duration) {
        self.now = now;
        self.give(Event::Tick);
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Send { peer, message: ToClient::Secure { round, attempt, step } } => {
                self.attempts.insert(attempt);
                let Some(answer) = self.answer(peer, (round, attempt), *step) else { return };
                let message = ToServer::Secure { round, attempt, answer: Box::new(answer) };
                self.give(Event::Message { peer, message });
                self.upload(peer, round);
            }
            Action::Send { peer, message: ToClient::Receipt { verdict, .. } } => {
                let client = self.client(peer);
                self.receipts.insert(client, verdict);
            }
            Action::Open(opening) => {
                let round = opening.round;
                self.opening = Some(opening);
                self.give(Event::Opened { round });
            }
            Action::Agree { round, agreement } => {
                self.agreement = Some(*agreement);
                self.give(Event::Agreed { round });
            }
            Action::Fold { round, client, .. } => {
                self.accepted.insert(client);
                self.give(Event::Folded { round, client, outcome: Ok(7) });
            }
            Action::Decide { round, tally } => {
                self.decided = Some(tally);
                if !self.slow {
                    self.give(Event::Decided { round });
                }
            }
            Action::Unmask { tally, revealed, .. } => self.unmasked = Some((tally, revealed)),
            Action::Close { tally, .. } => self.closed = Some(tally),
            Action::SaveRoster(_) => self.give(Event::RosterSaved),
            _ => {}
        }
    }

    fn client(&self, peer: PeerId) -> ClientId {
        *self.members.iter().find(|(_, member)| member.peer == peer).expect("a member").0
    }

    fn answer(
        &mut self,
        peer: PeerId,
        (round, attempt): (u32, u32),
        step: SecureStep,
    ) -> Option<SecureAnswer> {
        let client = self.client(peer);
        let exchange = Exchange { run: secure().run, round, attempt };
        let member = self.members.get_mut(&client).expect("a member");
        let silent = |step: Silent| member.silent.is_some_and(|from| step >= from);
        match step {
            SecureStep::Advertise if silent(Silent::Keys) => None,
            SecureStep::Advertise => {
                let secret = *shared::seed::Seed::root(attempt.into())
                    .derive_bytes("party", client.as_bytes())
                    .as_bytes();
                let party = Party::new(exchange, client, PartySecret::new(secret));
                let said = party.advertise(&member.key);
                member.party = Some(party);
                Some(SecureAnswer::Keys(said))
            }
            SecureStep::Neighbours { .. } if silent(Silent::Shares) => None,
            SecureStep::Neighbours { neighbours, .. } => {
                member.neighbours = neighbours;
                let shares = member.party.as_ref()?.shares(&member.neighbours, secure().secure.threshold);
                Some(SecureAnswer::Shares(shares.expect("keys of members")))
            }
            SecureStep::Mask { present, .. } => {
                member.present = present;
                None
            }
            SecureStep::Reveal { .. } if silent(Silent::Reveal) => None,
            SecureStep::Reveal { counted, missing } => {
                let of: BTreeSet<_> = member.present.iter().map(|(from, _)| *from).collect();
                let asked: BTreeSet<_> = counted.iter().chain(&missing).copied().collect();
                assert_eq!(of, asked, "one of two secrets of each");
                let party = member.party.as_ref()?;
                let own = party.own_share(member.neighbours.len(), secure().secure.threshold);
                let opened = member.present.iter().map(|(from, sealed)| {
                    let said =
                        member.neighbours.iter().find(|said| said.client() == *from).expect("a neighbour");
                    let [own, masking] = party.open(said, sealed).expect("sealed for it");
                    (*from, if counted.contains(from) { own } else { masking })
                });
                Some(SecureAnswer::Revealed(opened.chain([(client, own)]).collect()))
            }
        }
    }

    /// All members that were told to send an update do.
    fn upload(&mut self, _: PeerId, round: u32) {
        let told: Vec<_> = self
            .members
            .iter_mut()
            .filter(|(_, member)| {
                !member.present.is_empty() && member.silent.is_none_or(|from| from > Silent::Update)
            })
            .map(|(client, member)| (*client, member.peer))
            .collect();
        for (client, peer) in told {
            if self.accepted.contains(&client) {
                continue;
            }
            self.uploads += 1;
            let report = TrainReport { samples: 10, ..TrainReport::default() };
            self.give(Event::Uploaded(arrival(peer, round, report, UploadId(self.uploads))));
        }
    }

    /// What the server is left to take away of the sum.
    fn masks(&self) -> usize {
        let (_, revealed) = self.unmasked.as_ref().expect("the masks can be taken away");
        let agreement = self.agreement.as_ref().expect("it was durable");
        let recovery = Recovery {
            exchange: Exchange { run: secure().run, round: 1, attempt: agreement.attempt },
            terms: &[0; 32],
            members: &agreement.members(),
            neighbours: &agreement.neighbours,
            share: secure().secure.threshold,
        };
        let counted: Vec<_> = self.accepted.iter().copied().collect();
        recovery.masks(&counted, revealed).expect("what was revealed is right").len()
    }
}

#[test]
fn a_round_is_closed_with_what_was_revealed_and_receipts_come_after_that() {
    let mut round = Hiding::new(5, &[]);
    assert_eq!(round.decided, Some(tally(5, 5, WaitedFor::Cohort)));
    assert_eq!(round.masks(), 5);
    assert_eq!((round.accepted.len(), round.receipts.len()), (5, 0), "no one has learned from them yet");
    round.give(Event::Closed { round: 1, void: false, enough: false });
    assert!(
        round.receipts.len() == 5 && round.receipts.values().all(|verdict| *verdict == Verdict::Accepted)
    );
}

#[test]
fn a_round_goes_on_without_those_that_fall_silent_at_any_step() {
    for silent in [Silent::Keys, Silent::Shares, Silent::Update, Silent::Reveal] {
        let mut round = Hiding::new(6, &[(2, silent), (4, silent)]);
        let waited = match silent {
            Silent::Keys | Silent::Shares => PATIENCE,
            Silent::Update => TIMEOUT,
            // Further answers are waited for a moment.
            Silent::Reveal => Duration::from_secs(2),
        };
        round.at(just_before(waited));
        assert_eq!(round.unmasked, None, "{silent:?}");
        round.at(waited);
        let counted = if silent == Silent::Reveal { 6 } else { 4 };
        assert_eq!(round.accepted.len(), counted, "{silent:?}");
        // One mask of each that counts, and those that the missing ones share with them.
        let missing = if silent == Silent::Update { 2 * 4 } else { 0 };
        assert_eq!(round.masks(), counted + missing, "{silent:?}");
    }
}

#[test]
fn a_round_that_too_few_see_through_is_void_and_none_of_its_updates_counts() {
    // Four of six holders are needed, and three answer.
    let mut round = Hiding::new(6, &[(1, Silent::Reveal), (2, Silent::Reveal), (3, Silent::Reveal)]);
    round.at(just_before(TIMEOUT));
    assert_eq!((round.closed, round.unmasked.is_some()), (None, false));
    round.at(TIMEOUT);
    assert!(round.closed.is_some_and(|tally| tally.void) && round.unmasked.is_none());
    round.give(Event::Closed { round: 1, void: true, enough: false });
    let void = Verdict::Discarded(Discard::Void);
    assert!(round.receipts.len() == 6 && round.receipts.values().all(|verdict| *verdict == void));
}

#[test]
fn secrets_that_are_asked_for_in_a_pause_are_waited_for_once() {
    let silent = [1, 2, 3].map(|n| (n, Silent::Reveal));
    let mut round = Hiding { slow: true, ..Hiding::resumed(6, &silent, Resume::default()) };
    round.greet();
    round.give(Event::Paused);
    round.at(10 * TIMEOUT);
    round.give(Event::Decided { round: 1 });
    round.at(11 * TIMEOUT);
    round.give(Event::Resumed);
    round.at(just_before(12 * TIMEOUT));
    assert_eq!(round.closed, None);
    round.at(12 * TIMEOUT);
    assert!(round.closed.is_some_and(|tally| tally.void), "too few have answered");
}

#[test]
fn a_device_that_comes_back_while_the_round_closes_keeps_its_update() {
    let mut round = Hiding::new(4, &[]);
    assert!(round.unmasked.is_some(), "it closes");
    let (client, peer) = (id(2), PeerId(20));
    let hello = Hello { client, samples: 10, ..hello(1, Some(TaskId { run: secure().run, round: 1 })) };
    round.members.get_mut(&client).expect("a member").peer = peer;
    round.coordinator.handle(round.now, Event::Message { peer, message: ToServer::Hello(hello) });
    let mut wants = None;
    while let Some(action) = round.coordinator.poll() {
        if let Action::Send { message: ToClient::Welcome { wants: wanted, .. }, .. } = action {
            wants = Some(wanted);
        }
    }
    assert_eq!(wants, Some(Some(1)), "it would forget an update that is not wanted, with its client state");
    // What it sends again is dropped, and the receipt comes when the round has closed.
    let report = TrainReport { samples: 10, ..TrainReport::default() };
    round.give(Event::Uploaded(arrival(peer, 1, report, UploadId(99))));
    assert_eq!(round.receipts.get(&client), None);
    round.give(Event::Closed { round: 1, void: false, enough: false });
    assert_eq!(round.receipts.get(&client), Some(&Verdict::Accepted));
}

#[test]
fn a_sum_that_turns_out_to_be_none_is_a_void_round() {
    let mut round = Hiding::new(4, &[]);
    round.give(Event::Closed { round: 1, void: true, enough: false });
    assert!(round.receipts.values().all(|verdict| *verdict == Verdict::Discarded(Discard::Void)));
    let status = round.coordinator.status(round.now);
    assert_eq!((status.failed, status.rounds), (1, secure().rounds + 1));
}

#[test]
fn an_exchange_in_which_too_few_stay_begins_again_and_not_for_ever() {
    let mut round = Hiding::new(5, &[(1, Silent::Shares), (2, Silent::Shares), (3, Silent::Shares)]);
    for attempt in 0..MAX_ATTEMPTS {
        assert_eq!(round.attempts.last(), Some(&attempt));
        assert_eq!(round.closed, None);
        let later = round.now + PATIENCE;
        round.at(later);
    }
    assert!(round.closed.is_some_and(|tally| tally.void) && round.accepted.is_empty());
}

#[test]
fn what_was_not_asked_for_or_is_signed_by_another_is_refused() {
    let exchange = Exchange { run: secure().run, round: 1, attempt: 0 };
    let foreign = Party::new(exchange, id(2), PartySecret::new([9; 32])).advertise(&key(3));
    let answers =
        [SecureAnswer::Keys(foreign), SecureAnswer::Keys(Advertised { sealing: [1; 32], ..foreign })];
    for answer in answers {
        let mut round = Hiding::new(4, &[(1, Silent::Keys)]);
        let message = ToServer::Secure { round: 1, attempt: 0, answer: Box::new(answer) };
        round.give(Event::Message { peer: PeerId(1), message });
        assert_eq!(round.coordinator.status(Duration::ZERO).connected, 3, "it was disconnected");
    }
    let mut round = Hiding::new(4, &[(1, Silent::Shares)]);
    let message =
        ToServer::Secure { round: 1, attempt: 0, answer: Box::new(SecureAnswer::Shares(Vec::new())) };
    round.give(Event::Message { peer: PeerId(1), message });
    assert_eq!(round.coordinator.status(Duration::ZERO).connected, 3);
    // Of another attempt: it has come late.
    let mut round = Hiding::new(4, &[(1, Silent::Keys)]);
    let message =
        ToServer::Secure { round: 1, attempt: 7, answer: Box::new(SecureAnswer::Shares(Vec::new())) };
    round.give(Event::Message { peer: PeerId(1), message });
    assert_eq!(round.coordinator.status(Duration::ZERO).connected, 4);
}

/// What follows of a round after a restart, where `contributors` were decided on and the updates of `accepted` are there.
fn after_restart(
    before: &Hiding,
    contributors: Option<BTreeSet<ClientId>>,
    accepted: &BTreeSet<ClientId>,
) -> Hiding {
    let tally = before.decided.unwrap_or(tally(5, 5, WaitedFor::Cohort));
    let closing = contributors.map(|contributors| Closing { contributors, late: BTreeMap::new(), tally });
    let agreement = before.agreement.clone().expect("it was durable");
    let opening = before.opening.clone().expect("it was durable");
    let resume = Resume {
        roster: opening.roster.clone(),
        open: Some(Reopened {
            opening,
            accepted: accepted.clone(),
            late: BTreeMap::new(),
            closing,
            agreement: Some(agreement.clone()),
            fingerprints: accepted.iter().map(|client| (*client, 7)).collect(),
        }),
        ..Resume::default()
    };
    let mut after = Hiding::resumed(5, &[], resume);
    after.accepted.clone_from(accepted);
    // Devices keep their secrets.
    for (client, member) in &before.members {
        let exchange = Exchange { run: secure().run, round: 1, attempt: 0 };
        let secret = *shared::seed::Seed::root(0).derive_bytes("party", client.as_bytes()).as_bytes();
        after.members.get_mut(client).expect("the same").party =
            member.party.as_ref().map(|_| Party::new(exchange, *client, PartySecret::new(secret)));
    }
    after.agreement = Some(agreement);
    after
}

#[test]
fn after_a_restart_the_agreement_and_the_decision_stand() {
    for decided in [false, true] {
        let silent = if decided { Silent::Reveal } else { Silent::Update };
        let before = Hiding::new(5, &[(4, silent), (5, silent), (1, silent)]);
        assert_eq!(before.decided.is_some(), decided);
        let contributors = before.decided.map(|_| before.accepted.clone());
        let mut after = after_restart(&before, contributors, &before.accepted);
        after.greet();
        assert_eq!(after.accepted.len(), 5);
        assert_eq!(after.masks(), 5, "decided: {decided}");
        assert_eq!(after.attempts, [0].into());
    }
}

#[test]
fn after_a_restart_no_other_updates_count_than_was_decided() {
    let before = Hiding::new(5, &[(4, Silent::Reveal), (5, Silent::Reveal), (1, Silent::Reveal)]);
    let all: BTreeSet<ClientId> = (1..=5).map(id).collect();
    let four: BTreeSet<ClientId> = (1..=4).map(id).collect();
    // One more is there: it was on the disk of another server that was away.
    let mut after = after_restart(&before, Some(four.clone()), &all);
    after.accepted.clone_from(&four);
    after.greet();
    assert_eq!(
        (after.masks(), after.decided),
        (8, None),
        "the mask of each of four, and theirs with the fifth"
    );
    // One is missing, and its device stays away. Others may have been told by now that it counts.
    let mut after = after_restart(&before, Some(all), &four);
    after.members.remove(&id(5));
    after.greet();
    assert!(after.closed.is_none() && after.unmasked.is_none(), "it is waited for");
    after.at(RECONNECT_GRACE);
    assert!(after.closed.is_some_and(|tally| tally.void), "{:?}", after.closed);
    assert_eq!((after.decided, after.unmasked.is_none()), (None, true));
}
