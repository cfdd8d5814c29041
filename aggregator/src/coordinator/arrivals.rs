//! Handling of messages from clients: hellos, heartbeats, updates.

use std::time::Duration;

use shared::eligibility::Eligibility;
use shared::message::{
    Discard, Hello, Progress, Refusal, Rejection, ToClient, ToServer, UpdateHeader, Verdict,
};
use shared::spec::{LabelsAt, Reading};

use super::open_round::{MemberState, Offer};
use super::receipts::Withheld;
use super::{Action, Arrival, Connection, Coordinator, INELIGIBLE_RETRY, Member, PeerId, State};

/// The greatest number of samples that a client may declare, used or skipped. The resolution of the sums follows the largest
/// weight: without a limit, one absurd claim would round every update to nothing. With this one it stays below 1e-5.
pub const MAX_SAMPLES: u64 = 1 << 32;
/// Axes of a wrong sample shape that are repeated in the refusal.
const MAX_AXES: usize = 8;

impl Coordinator {
    pub(super) fn message(&mut self, now: Duration, peer: PeerId, message: ToServer) {
        let known = self.peers.get(&peer).copied();
        let Some(client) = known else {
            match message {
                ToServer::Hello(hello) if !self.dismissed.contains(peer) && !self.greetings.has(peer) => {
                    self.greet(now, peer, (now, hello));
                }
                // It broke the protocol, or was timed out and does not know it yet: no reason to refuse it for good.
                _ => {
                    self.greetings.remove(peer);
                    self.disconnect(peer);
                }
            }
            return;
        };
        self.heard(now, client);
        match message {
            ToServer::Hello(_) => {
                self.breaks_protocol(peer, "it said hello twice on one connection".to_owned());
            }
            ToServer::Heartbeat(progress) => {
                if let Some(link) = self.members.get_mut(&client).and_then(|member| member.link.as_mut()) {
                    if progress.round.is_none() {
                        link.trained = link.progress.round.or(link.trained);
                    }
                    link.progress = progress;
                }
            }
            ToServer::Failed { round, reason } => {
                self.owes_no_more(client, round);
                if let Some(open) = self.state.round_numbered(round) {
                    open.failed(client, reason);
                }
            }
            ToServer::Ineligible { round, reason } => {
                self.owes_no_more(client, round);
                if let Some(member) = self.members.get_mut(&client) {
                    member.unready = Some(now + INELIGIBLE_RETRY);
                }
                if let Some(open) = self.state.round_numbered(round) {
                    open.not_now(client, reason, now);
                }
            }
            ToServer::Goodbye => {
                self.forget(peer);
                self.dismissed.insert(peer);
            }
            ToServer::Declined { .. } => {
                // It takes no part in this run: neither this round nor a restarted server waits for it.
                self.revoked(client);
            }
            ToServer::SkippedSamples { samples } if samples > MAX_SAMPLES => {
                let claim =
                    format!("it says that it leaves out {samples} samples, more than a device can have");
                self.breaks_protocol(peer, claim);
            }
            ToServer::ClientState { after } => self.compare_state(client, after),
            ToServer::Secure { round, attempt, answer } => {
                self.secure_answer(peer, client, (round, attempt), *answer);
            }
            // The first two are for people alone; the driver answers to the others.
            ToServer::SkippedSamples { .. }
            | ToServer::Untested { .. }
            | ToServer::WantsFrozen { .. }
            | ToServer::Base { .. } => {}
            // The transport handles these, before the hello or with a payload.
            ToServer::Redeem(_) | ToServer::ResumePoint(_) | ToServer::UpdateRest { .. } => {
                let what =
                    "it said after its hello what belongs before it, or without a payload what has one";
                self.breaks_protocol(peer, what.to_owned());
            }
            ToServer::Update(_) => {
                self.breaks_protocol(peer, "it sent an update without a payload".to_owned());
            }
        }
    }

    /// Refuses a client that has said `what` it may not say.
    pub(super) fn breaks_protocol(&mut self, peer: PeerId, what: String) {
        self.refuse(peer, Refusal::Protocol(what));
        self.forget(peer);
    }

    pub(super) fn hello(&mut self, now: Duration, peer: PeerId, hello: &Hello) {
        if hello.asks() {
            // The device comes again with what it has read.
            let reading = Reading::of(&self.spec).to_text();
            self.send(peer, ToClient::Samples { reading });
            self.disconnect(peer);
            return;
        }
        if let Err(refusal) = self.admissible(hello) {
            self.refuse(peer, refusal);
            return;
        }
        let client = hello.client;
        let previous = self.members.get(&client).and_then(|member| member.link);
        if previous.is_some_and(|previous| previous.peer > peer) {
            // The device has reconnected since. It is not refused: that would be for good.
            self.disconnect(peer);
            return;
        }
        if !self.has_place(client) {
            // Not refused: that would be for good.
            self.disconnect(peer);
            return;
        }
        let link =
            Some(Connection { peer, heard: now, progress: Progress::default(), trained: None, told: None });
        if let Some(previous) = previous {
            self.forget(previous.peer);
            if self.policy.receipts_at_close {
                // A server that was away may say late that the device was there. A refusal would be for good.
                self.disconnect(previous.peer);
            } else {
                self.refuse(previous.peer, Refusal::Replaced);
            }
        }
        let owes = self.still_owes(hello);
        let held = hello.holds.filter(|held| held.run == self.spec.run).map(|held| held.round);
        let known = self.members.get(&client);
        let counted = known.and_then(|member| member.counted).filter(|counted| held == Some(*counted));
        let unsettled = held.filter(|held| counted.is_none() && self.is_unsettled(client, *held));
        let unready = known.and_then(|member| member.unready);
        if known.is_none()
            && let State::Gathering { pause_until, .. } = &mut self.state
        {
            // The pause is for devices that have failed, and this one may be able to train.
            *pause_until = (*pause_until).min(now);
        }
        self.memory.outdated |= known.is_none_or(|member| member.samples != hello.samples);
        let member = Member { samples: hello.samples, link, seen: now, owes, counted, unready };
        self.members.insert(client, member);
        self.warn_if_outgrown();
        let owes = owes.map(|owed| owed.round).filter(|owed| self.counts_in(*owed, self.takes_in()));
        self.peers.insert(peer, client);
        self.heard.insert((now, peer));
        let open = self.state.round();
        let (wants, ask) = match open.and_then(|round| Some((round.number(), round.stage(client)?))) {
            Some((round, MemberState::Asked)) => (Some(round), true),
            // A client deletes an update that is not wanted, and this one is not durable yet.
            Some((round, MemberState::Folding)) => (Some(round), false),
            _ => (self.kept_of(client).or(owes).or(unsettled), false),
        };
        if self.policy.eligibility != Eligibility::default() {
            self.send(peer, ToClient::Conditions(self.policy.eligibility));
        }
        if let Some(round) = counted.filter(|counted| wants != Some(*counted)) {
            // The client keeps its state only after a receipt.
            self.send(peer, ToClient::Receipt { round, verdict: Verdict::Accepted });
        }
        let told = self.tell_counted(peer, client);
        if let Some(link) = self.members.get_mut(&client).and_then(|member| member.link.as_mut()) {
            link.told = told;
        }
        self.send(peer, ToClient::Welcome { spec: self.text.clone(), wants });
        if let Some(round) = wants.filter(|round| ask && held != Some(*round)) {
            self.actions.push_back(Action::Broadcast { peer, round });
        }
        self.tell_secure(client);
    }

    fn admissible(&self, hello: &Hello) -> Result<(), Refusal> {
        let architecture = &self.spec.architecture;
        let expected: Vec<u32> = self.spec.data.shape.iter().map(|&axis| axis as u32).collect();
        if hello.shape != expected {
            // The refusal repeats the declared shape to the client and the operator.
            if hello.shape.len() > MAX_AXES {
                let claim = format!(
                    "it declares samples of {} axes, of which at most {MAX_AXES} can be compared with the run's",
                    hello.shape.len()
                );
                return Err(Refusal::Protocol(claim));
            }
            return Err(Refusal::Shape { expected, found: hello.shape.clone() });
        }
        // If the labels of devices are not used, any or none are accepted.
        let labels_count = self.spec.data.labels == LabelsAt::Device;
        if labels_count && hello.classes == 0 && architecture.classes != 0 {
            return Err(Refusal::Unlabelled);
        }
        if labels_count && hello.classes as usize != architecture.classes {
            return Err(Refusal::Classes { expected: architecture.classes as u32, found: hello.classes });
        }
        if hello.samples > MAX_SAMPLES {
            let claim = format!("it declares {} samples, at most {MAX_SAMPLES} are believed", hello.samples);
            return Err(Refusal::Protocol(claim));
        }
        if let Some(bound) = self.policy.max_samples.filter(|bound| hello.samples > *bound) {
            return Err(Refusal::TooManySamples { declared: hello.samples, bound });
        }
        if hello.samples == 0 { Err(Refusal::NoSamples) } else { Ok(()) }
    }

    pub(super) fn uploaded(&mut self, now: Duration, update: Arrival) {
        let Arrival { peer, header, upload } = update;
        let UpdateHeader { round, report } = &header;
        let round = *round;
        let Some(&client) = self.peers.get(&peer) else {
            // The connection ended during the upload; the client offers the update again on its next one.
            self.actions.push_back(Action::Drop { upload });
            return;
        };
        self.heard(now, client);
        let next = self.takes_in();
        let unknown = |current| Offer::Settled(Verdict::Rejected(Rejection::UnknownRound { round, current }));
        let again = self.kept_of(client) == Some(round);
        let offer = match &mut self.state {
            // Its receipt comes when the round has closed.
            _ if again => Offer::Again,
            _ if round < next => self.offered_late(client, &header),
            State::Open { round: open } | State::Opening { round: open, .. } if round == next => {
                open.offer(client, report, |samples| self.spec.samples_in(round, samples))
            }
            // Another server has opened it before, and this one is about to.
            State::Gathering { .. } if self.policy.receipts_at_close && round == next => Offer::Wait,
            State::Gathering { .. } | State::Finished => unknown(self.closed),
            _ => unknown(self.closed + 1),
        };
        let is_stray = self.state.round().is_none();
        match offer {
            Offer::Fold => {
                self.take_back(client, round);
                self.actions.push_back(Action::Fold { round: next, client, upload });
            }
            Offer::Wait => self.defer(client, update),
            Offer::Again => {
                *self.counter(&Verdict::Discarded(Discard::Duplicate), is_stray) += 1;
                self.actions.push_back(Action::Drop { upload });
            }
            Offer::Settled(verdict) => {
                self.actions.push_back(Action::Drop { upload });
                let unsettled = self.is_unsettled(client, round);
                self.owes_no_more(client, round);
                if !unsettled {
                    *self.counter(&verdict, is_stray) += 1;
                    self.send(peer, ToClient::Receipt { round, verdict });
                } else if self.withheld.get(&client).is_none_or(|withheld| withheld.round != round) {
                    // What it offers again is judged once.
                    *self.counter(&verdict, is_stray) += 1;
                    self.withheld.insert(client, Withheld { round, verdict, is_stray });
                }
            }
        }
    }
}
