//! The coordinator: the server's protocol state machine.
//!
//! It does no I/O and has no clock: messages, outcomes of durable steps and `now` (time since any fixed moment) go in through
//! [`Coordinator::handle`], [`Action`]s come out of [`Coordinator::poll`]. The driver carries the actions out and reports back.
//! Tests drive the same machine in memory with virtual time.
//!
//! # States and transitions
//!
//! | in state | on | if | goes to | and does |
//! |---|---|---|---|---|
//! | `Gathering` | hello, time | enough clients are connected | `Opening` | samples the cohort among those that are no stragglers ([`OutstandingTask`]), `Open` |
//! | `Opening` | opened | | `Open` | `Broadcast` to every connected member |
//! | any | hello | it does not fit the run | same | refused, `Disconnect` |
//! | any | hello | no place on the [roster](MAX_ROSTER) | same | `Disconnect`: it may come again |
//! | any | hello | the client is here already | same | the older connection is refused, `Disconnect` |
//! | any | hello | the client is here already, on a newer connection | same | `Disconnect` |
//! | any | a second hello, an update without payload | | same | refused, `Disconnect` |
//! | any | anything else before the hello, or anything after a goodbye or a `Disconnect` | | same | `Disconnect` |
//! | any | hello, revoked | the [roster](MAX_ROSTER) has changed since it was last saved | same | `SaveRoster`, one at a time; an opening saves it as well |
//! | any | goodbye, disconnected | | same | the client is away |
//! | any | declined | | same | as if it were revoked: it cannot take part in this run |
//! | `Open` | update | in the cohort, first, samples as declared | `Open` | `Fold` |
//! | `Open` | update | the member's first is being folded | `Open` | `Drop`; the receipt comes when that one is durable |
//! | `Open` | update | anything else | `Open` | `Drop`, receipt: rejected or discarded (with other servers: see below) |
//! | `Open` | folded | the payload was fine | `Open` | receipt: accepted |
//! | `Open` | folded | it was not | `Open` | receipt: rejected |
//! | `Open` | folded | the payload was fine, and receipts wait ([`RoundPolicy::receipts_at_close`], hidden updates) | `Open` | nothing: the receipt comes when the round has closed |
//! | `Open`, `Closing` | hello, update | the client's update is accepted and has no receipt yet | same | welcome: still wanted, so kept; `Drop` |
//! | `Open` | lost | the machine that was to fold it has it no more | `Open` | wanted again, `Disconnect`: the client offers it when it is back |
//! | `Opening` | update, folded | the round was open before | `Opening` | as in `Open` |
//! | `Open`, `Opening` | failed | a member that was asked | same | not waited for; an update still counts |
//! | `Open`, `Opening` | not now | a member that was asked | same | not waited for; an update still counts |
//! | `Open` | time | the round needs such a member, [`INELIGIBLE_RETRY`] after it said so | same | `Broadcast` to it again |
//! | `Open`, `Opening` | disconnected | a member that said not now | same | waited for and asked when it is back, like any other |
//! | `Open`, `Opening` | hello | a member whose update is being folded | same | welcome: still wanted, so kept; no `Broadcast` |
//! | `Open`, `Opening` | hello | a member without an update | same | welcome, `Broadcast` unless the client holds the task |
//! | `Open` after the last round of training | hello | its time is not over | `Opening` | asks the newcomer as well, `Open` again |
//! | `Open` | any | `max-updates` (or all) accepted | `Closing` | `Close` |
//! | `Open` | any | `min-wait` over, `min-updates` accepted, no connected member pending | `Closing` | `Close` |
//! | `Open` after a restart | any | the same, and `reconnect-grace` over or no member away | `Closing` | `Close` |
//! | `Open` | time | `timeout` over, `min-updates` accepted, and no member is at work or those at work may be cut short | `Closing` | `Close` |
//! | `Open` | any | `min-updates` is out of reach of the present members | `Opening` | recruits replacements, `Open` again |
//! | `Open` | any | the same, no client left to ask or wait for | `Closing` | `Close` as void: the model stays |
//! | `Open` | time | the same, only absent members to wait for, `timeout` over again, clients for another round here | `Closing` | `Close` as void |
//! | `Closing` | closed | rounds remain | `Gathering` | after a void round: a pause, and one round more; [`VOID_ALARM`] in a row: `Alarm` |
//! | `Gathering` during a pause | hello | the client is new on the roster | same | the pause is over: this device may be able to train |
//! | restart | | the decision to close was durable, its updates are | `Closing` | `Close` with the same tally |
//! | restart | | it was, and some of its updates were lost | `Open` | wants those and no others |
//! | restart | | a round was open | `Open` | wants what is not in |
//! | restart | | all rounds are closed, or the [limit](RoundPolicy::failure_limit) of void rounds in a row is reached | `Finished` | `Finish`: with progress or without |
//! | restart | | none was | `Gathering` | waits up to `reconnect-grace` for the known clients |
//! | `Closing` | closed | it was the last round of training, and clients have work after it | `Gathering` | the closing round is for all of them: waits up to `reconnect-grace` for those that are away |
//! | `Gathering` | time | that is for the closing round, and no client has connected for `timeout` | `Finished` | `Finish` |
//! | `Closing` | closed | training ends early: it is enough | | as after the last round of training |
//! | `Closing` | closed | it was the last round | `Finished` | `Finished` to all, `Finish` |
//! | `Closing` | closed | the [limit](RoundPolicy::failure_limit) of void rounds in a row is reached | `Finished` | the same, with the reasons |
//! | `Gathering` | update of no round yet | no other server may lead the run | same | `Drop`, receipt: rejected |
//! | `Closing` | update of this round | late ones do not count, and no other server may lead the run | same | `Drop`, receipt: discarded (late) |
//! | `Gathering` | update of the next round | other servers may lead the run | same | the update waits for that round to be opened: another server has opened it before |
//! | any | update that may count in the next round to close | other servers may lead the run, and it is not folded | same | `Drop`; the receipt comes when that round has closed |
//! | any | hello | it holds what may count in the next round to close, and other servers may lead the run | same | welcome: wanted, so kept |
//! | `Opening` | opened | an update of a member was dropped, and its verdict waits | `Open` | `Disconnect`: it offers it again, or takes the task |
//! | any | hello | another server may lead the run already | same | the hello waits until that is known, for five seconds at most: `Disconnect` |
//! | any | hello | it holds what was trained for a later round than the next, or would be dropped for the next | same | the same, until the store was asked after it came |
//! | any | update of a closed round | it is not owed ([`OutstandingTask`]), or too late | same | `Drop`, receipt: discarded (late) |
//! | `Open`, `Opening` | update of a closed round | it is owed | same | `Fold`; receipt as above |
//! | `Closing`, `Gathering` | update of a closed or the closing round | it is owed | same | the update waits for the next round to be opened |
//! | any | hello | it holds what it owes | same | welcome: wanted |
//! | any | hello | it holds what has counted last of it | same | receipt: accepted, which it may have missed; welcome |
//! | any | hello | its clients keep state (`ledger`) | same | which it must have; welcome |
//! | any | client state | not what it must be | same | `StateDiffers` |
//! | any | revoked | | same | `Disconnect`; the client leaves the roster, and is not waited for |
//! | any | silence for `connection_timeout` | | same | `Disconnect` |
//! | any | stalled | | same | times are later by this duration; in `Open` as when resumed |
//! | `Gathering` | held | | same | opens no round, until it is no longer held |
//! | any | paused | | same | neither opens nor closes a round |
//! | any | resumed | | same | times go on where they were; in `Open` away members are waited for, as after a restart |
//! | any | time | another server may lead the run already | same | as if paused, until it is known that none does; devices that were sent away meanwhile are waited for, as after a restart |
//! | any | stop | | `Finished` | `Disconnect` all, `Finish` |
//! | `Finished` | update | | same | `Drop` |
//!
//! A client that disappears costs the round its update and nothing else: the round closes without it as soon as `min-wait` has
//! passed and `min-updates` is met. The client may reconnect at any time and resumes where it was.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod arrivals;
mod cohort;
mod dismissed;
mod event;
mod greetings;
mod late;
mod ledger;
mod open_round;
mod participations;
mod pauses;
mod progression;
mod receipts;
mod roster;
mod secure;
mod state;
mod status;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use shared::id::ClientId;
use shared::message::{CountedUpdate, Rejection, ToClient, ToServer, Verdict};
use shared::spec::{RunSpec, SpecText};

use crate::round::RoundPolicy;
use dismissed::Dismissed;
use greetings::Greetings;
use ledger::Ledger;
use open_round::OpenRound;
use pauses::Pauses;
use receipts::Withheld;
use roster::{Connection, Member, RosterSync};
use state::State;

pub use arrivals::MAX_SAMPLES;
pub use event::{
    Action, Agreement, Arrival, Closing, Event, Opening, Outcome, OutstandingTask, Participations, PeerId,
    Reopened, Resume, Revealed, RosterSnapshot, UploadId,
};
pub use open_round::{INELIGIBLE_RETRY, MAX_ATTEMPTS};
pub use participations::participations_after;
pub use progression::{MAX_VOID_PAUSE, VOID_ALARM};
pub use roster::MAX_ROSTER;
pub use status::{Activity, Awaited, Load, Status, WaitingFor};

/// In place of the reasons for a void round that an earlier process has decided.
const RESTARTED: &str =
    "the aggregator was restarted while the round closed: the reasons are in its earlier output";

/// The server's protocol state machine.
#[derive(Debug)]
pub struct Coordinator {
    spec: RunSpec,
    /// The specification as devices are told it.
    text: SpecText,
    policy: RoundPolicy,
    members: BTreeMap<ClientId, Member>,
    memory: RosterSync,
    ledger: Ledger,
    /// The operator knows that more clients are known than the private run is for.
    outgrown: bool,
    participations: Participations,
    /// One entry for every member that is connected.
    peers: BTreeMap<PeerId, ClientId>,
    /// The same connections by when they were last heard: the next to time out is the first.
    heard: BTreeSet<(Duration, PeerId)>,
    dismissed: Dismissed,
    closed: u32,
    /// The last round of training: that of the specification, as many later as rounds were void, or an earlier one after early
    /// stopping.
    last: u32,
    /// Void rounds of training so far.
    failed: u32,
    /// Void rounds in a row in this process. A restart begins anew: the operator may have changed something.
    void: u32,
    /// Void rounds right before those, of earlier processes.
    void_before: u32,
    /// Until then, clients that were known before a restart are waited for: the restart has disconnected them.
    grace_until: Duration,
    /// Updates that arrived between rounds, for the next round's tally.
    stray_rejected: usize,
    stray_discarded: usize,
    pauses: Pauses,
    /// The operator has asked that no new round be opened.
    held: bool,
    /// When the state can next change by time alone, as of the last event.
    due: Option<Duration>,
    /// Late updates that arrived between two rounds, at most one per client.
    deferred: BTreeMap<ClientId, Arrival>,
    withheld: BTreeMap<ClientId, Withheld>,
    greetings: Greetings,
    state: State,
    actions: VecDeque<Action>,
}

impl Coordinator {
    /// A coordinator that begins or continues a run at `now`.
    #[must_use]
    pub fn new(spec: RunSpec, policy: RoundPolicy, resume: Resume, now: Duration) -> Self {
        let ledger = Ledger::of(&spec, &resume);
        let members: BTreeMap<_, _> = resume
            .roster
            .into_iter()
            .map(|(client, samples)| {
                let owes = resume.owed.get(&client).copied();
                let counted = resume.counted.get(&client).copied();
                (client, Member { counted, ..Member::away(samples, owes, now) })
            })
            .collect();
        let grace_until = if members.is_empty() { now } else { now + policy.reconnect_grace };
        let last = resume.ended.unwrap_or_else(|| spec.rounds.saturating_add(resume.failed));
        let mut actions = VecDeque::new();
        let state = match resume.open {
            Some(reopened) => match reopened.decided() {
                // Its masks are still to be taken away.
                Some(closing) if closing.tally.void || reopened.agreement.is_none() => {
                    let (round, tally) = (reopened.opening.round, closing.tally);
                    actions.push_back(Action::Close { round, tally });
                    let (void, reasons) = (tally.void, vec![RESTARTED.to_owned()]);
                    let contributors = receipts::decided(round, closing, &reopened.fingerprints);
                    State::Closing { since: now, void, reasons, contributors }
                }
                _ => {
                    let known = |client: &ClientId| members.contains_key(client);
                    State::Open { round: OpenRound::resume(reopened, known, policy, &spec, now) }
                }
            },
            None => State::Gathering {
                since: now,
                need: match spec.work_after(resume.closed, last) {
                    Some(work) if !members.is_empty() && resume.closed > 0 => policy.of(work).min,
                    _ => policy.start,
                },
                known_until: grace_until,
                pause_until: now,
            },
        };
        let mut coordinator = Self {
            text: SpecText::of(&spec),
            spec,
            policy,
            members,
            memory: RosterSync::default(),
            ledger,
            outgrown: false,
            participations: resume.participations,
            peers: BTreeMap::new(),
            heard: BTreeSet::new(),
            dismissed: Dismissed::default(),
            closed: resume.closed,
            last,
            failed: resume.failed,
            void: 0,
            void_before: resume.void,
            grace_until,
            stray_rejected: 0,
            stray_discarded: 0,
            pauses: Pauses::new(!policy.receipts_at_close, now),
            held: false,
            due: None,
            deferred: BTreeMap::new(),
            withheld: BTreeMap::new(),
            greetings: Greetings::new(!policy.receipts_at_close, now),
            state,
            actions,
        };
        // An earlier process has said so of those that it knew.
        coordinator.outgrown = coordinator.outgrows().is_some();
        coordinator.settle(now);
        coordinator.due = coordinator.next_change(now);
        coordinator
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When, after `now`, the coordinator wants an [`Event::Tick`] at the latest. `now` is the time of the
    /// newest event: with a later one, a moment between the two would be missed.
    #[must_use]
    pub fn deadline(&self, now: Duration) -> Option<Duration> {
        // Clients that have timed out by `now` were dropped when the newest event was handled.
        let silence = self.heard.first().map(|(heard, _)| *heard + self.policy.connection_timeout);
        [silence, self.due, self.greetings.deadline()]
            .into_iter()
            .flatten()
            .filter(|moment| *moment > now)
            .min()
    }

    /// When, after `now`, the state can change by time alone.
    fn next_change(&self, now: Duration) -> Option<Duration> {
        match &self.state {
            _ if self.pauses.are_any() => None,
            State::Gathering { since, known_until, pause_until, .. } => {
                // For a closing round, clients are not waited for that long.
                let given_up = self.spec.work_after(self.closed, self.last).is_some_and(|work| !work.train);
                let given_up = if given_up { *since + self.policy.timeout } else { Duration::ZERO };
                [*known_until, *pause_until, given_up].into_iter().filter(|moment| *moment > now).min()
            }
            State::Open { round } => round.deadline(now),
            State::Opening { .. } | State::Closing { .. } | State::Finished => None,
        }
    }

    /// Rounds closed so far.
    #[must_use]
    pub fn closed(&self) -> u32 {
        self.closed
    }

    /// Rounds of training closed so far.
    #[must_use]
    pub fn trained(&self) -> u32 {
        self.closed.min(self.last)
    }

    /// Handles one event at `now`, which never goes back.
    pub fn handle(&mut self, now: Duration, event: Event) {
        if matches!(self.state, State::Finished) {
            if let Event::Uploaded(Arrival { upload, .. }) = event {
                self.actions.push_back(Action::Drop { upload });
            }
            return;
        }
        if !matches!(event, Event::Leads { .. }) {
            self.pause_unless_it_leads(now);
        }
        let idle = self.is_idle(&event);
        match event {
            Event::Message { peer, message } => self.message(now, peer, message),
            Event::Uploaded(update) => self.uploaded(now, update),
            Event::Alive { peer } => {
                if let Some(&client) = self.peers.get(&peer) {
                    self.heard(now, client);
                }
            }
            Event::Disconnected { peer } => {
                self.forget(peer);
                self.dismissed.remove(peer);
            }
            Event::ServerLeft => self.wait_for_those_cut_off(now),
            Event::Leads { asked, until } => self.leads(now, asked, until),
            Event::Revoked { client } => self.revoked(client),
            Event::Opened { round } => self.opened(round),
            Event::Folded { round, client, outcome } => self.folded(round, client, outcome),
            Event::Lost { round, client } => self.lost(round, client),
            Event::Agreed { round } => self.agreed(round),
            Event::Decided { round } => self.decided(now, round),
            Event::Closed { round, void, enough } => self.after_close(now, (round, void), enough),
            Event::RosterSaved => self.memory.under_way = self.memory.under_way.saturating_sub(1),
            Event::Paused => self.disk_is_full(now),
            Event::Resumed => self.disk_has_room(now),
            Event::Held(held) => self.held = held,
            Event::Stalled { by } => self.stalled(now, by),
            Event::Tick => {}
            Event::Stop => {
                for peer in self.connected_peers() {
                    self.actions.push_back(Action::Disconnect { peer });
                }
                self.finish(Outcome::Stopped);
                return;
            }
        }
        self.give_up_greetings(now);
        let lost = self.drop_silent(now);
        if !idle || lost || self.due.is_some_and(|due| now >= due) {
            self.settle(now);
            self.due = self.next_change(now);
            self.save_roster_in_time();
        }
    }

    /// Whether an event cannot change the state: a sign of life, or the end of an unknown connection. They come by the thousand,
    /// and whether the round may close takes a look at the whole cohort.
    fn is_idle(&self, event: &Event) -> bool {
        match event {
            Event::Message { peer, message: ToServer::Heartbeat(_) } | Event::Alive { peer } => {
                self.peers.contains_key(peer)
            }
            Event::Disconnected { peer } => !self.peers.contains_key(peer),
            Event::Leads { .. } => self.greetings.are_none() && !self.pauses.are_any(),
            _ => false,
        }
    }

    fn opened(&mut self, number: u32) {
        match std::mem::replace(&mut self.state, State::Finished) {
            State::Opening { mut round, .. } if round.number() == number => {
                let asked = round.ask();
                self.state = State::Open { round };
                for client in asked {
                    if let Some(link) = self.members.get(&client).and_then(|member| member.link) {
                        if self.withheld.contains_key(&client) {
                            // It holds an update of this round, as far as is known, and offers it when it comes again.
                            self.take_back(client, number);
                            self.forget(link.peer);
                            self.disconnect(link.peer);
                            continue;
                        }
                        self.actions.push_back(Action::Broadcast { peer: link.peer, round: number });
                    }
                    self.tell_secure(client);
                }
            }
            other => self.state = other,
        }
    }

    fn folded(&mut self, number: u32, client: ClientId, outcome: Result<u32, Rejection>) {
        let Some(round) = self.state.round_numbered(number) else { return };
        let (verdict, fingerprint) = match outcome {
            Ok(fingerprint) => (Verdict::Accepted, Some(fingerprint)),
            Err(rejection) => (Verdict::Rejected(rejection), None),
        };
        let trained = round.settled(client, &verdict);
        let (learned, waits) = (round.opening.work.train, round.receipts_wait());
        if let Some(fingerprint) = fingerprint.filter(|_| waits) {
            round.fingerprints.insert(client, fingerprint);
        }
        self.owes_no_more(client, trained);
        if waits && verdict == Verdict::Accepted {
            // It counts, and its receipt is sent, when the round has closed.
            return;
        }
        if verdict == Verdict::Accepted && learned {
            self.ledger.count(client, CountedUpdate { round: trained, fingerprint });
        }
        let Some(member) = self.members.get_mut(&client) else { return };
        if verdict == Verdict::Accepted {
            member.counted = Some(trained);
        }
        if let Some(link) = member.link {
            self.withheld.remove(&client);
            self.send(link.peer, ToClient::Receipt { round: trained, verdict });
        }
    }

    /// An update was lost before it was accepted. The client offers it again when it comes again, which it does at once.
    fn lost(&mut self, number: u32, client: ClientId) {
        let Some(round) = self.state.round_numbered(number) else { return };
        round.lost(client);
        if let Some(link) = self.members.get(&client).and_then(|member| member.link) {
            self.forget(link.peer);
            self.disconnect(link.peer);
        }
    }

    /// Whether a client is connected.
    fn is_here(&self, client: ClientId) -> bool {
        self.members.get(&client).is_some_and(|member| member.link.is_some())
    }

    fn send(&mut self, peer: PeerId, message: ToClient) {
        self.actions.push_back(Action::Send { peer, message });
    }
}

#[cfg(test)]
mod tests;
