//! Rounds whose updates are hidden: what members are told, what they answer, and when the round may close.
//!
//! The exchange itself is in [`KeyExchange`](super::open_round::KeyExchange). The receipts of such a round [come when it has
//! closed](super::receipts): until then no one has learned from its updates.

use std::time::Duration;

use shared::id::ClientId;
use shared::message::{SecureAnswer, ToClient};

use super::open_round::{KeyExchange, MemberState, Moved, Phase};
use super::{Action, Coordinator, PeerId, State};
use crate::round::{Tally, WaitedFor};

impl Coordinator {
    /// A member answers a step of the exchange.
    pub(super) fn secure_answer(
        &mut self,
        peer: PeerId,
        client: ClientId,
        (number, attempt): (u32, u32),
        answer: SecureAnswer,
    ) {
        let round = self.state.round_numbered(number);
        let Some(round) = round.filter(|round| round.stage(client).is_some()) else { return };
        let accepted = round.has_accepted(client);
        let Some(exchange) = round.exchange.as_mut().filter(|exchange| exchange.attempt() == attempt) else {
            return;
        };
        let fine = match answer {
            SecureAnswer::Keys(said) => exchange.keys(client, said),
            SecureAnswer::Shares(shares) => exchange.shares(client, shares),
            SecureAnswer::Revealed(shares) => {
                if accepted {
                    exchange.reveals(client, &shares);
                }
                true
            }
        };
        if !fine {
            let what = "it answered in the exchange of keys what it was not asked for, or signed it with another key";
            self.breaks_protocol(peer, what.to_owned());
        }
    }

    /// Tells a member what the exchange asks of it now.
    pub(super) fn tell_secure(&mut self, client: ClientId) {
        let Some(link) = self.members.get(&client).and_then(|member| member.link) else { return };
        let Some(round) = self.state.round() else { return };
        let Some(attempt) = round.exchange.as_ref().map(KeyExchange::attempt) else { return };
        let number = round.number();
        for step in round.secure_steps(client, &self.spec) {
            self.send(link.peer, ToClient::Secure { round: number, attempt, step: Box::new(step) });
        }
    }

    /// Tells all members that may still be told anything.
    fn tell_all(&mut self) {
        let Some(round) = self.state.round() else { return };
        let members: Vec<_> = round.stages().map(|(client, _)| client).collect();
        for client in members {
            self.tell_secure(client);
        }
    }

    /// Moves the exchange of the open round on, as far as the answers allow. Says whether the round goes on as it is.
    pub(super) fn advance_exchange(&mut self, now: Duration) -> bool {
        let State::Open { round } = &mut self.state else { return true };
        let (number, least) = (round.number(), round.least());
        let members = &self.members;
        let is_here = |client: ClientId| members.get(&client).is_some_and(|member| member.link.is_some());
        let (waited_for, asked) = match &round.exchange {
            None => return true,
            Some(exchange) if matches!(exchange.phase, Phase::Revealing(_)) => {
                let awaited = |client: ClientId| exchange.awaits(client) && is_here(client);
                let mut accepted = round.stages().filter(|(_, stage)| **stage == MemberState::Accepted);
                (accepted.any(|(client, _)| awaited(client)), Vec::new())
            }
            Some(_) => (false, round.asked().iter().copied().collect()),
        };
        let Some(exchange) = &mut round.exchange else { return true };
        if let Phase::Revealing(tally) = exchange.phase {
            if exchange.is_revealed(now, waited_for) {
                self.close_hidden(now, tally);
            } else if now >= exchange.deadline {
                self.close_hidden(now, Tally { void: true, waited_for: WaitedFor::MaxTime, ..tally });
            }
            return false;
        }
        let seed = self.spec.root_seed();
        match exchange.advance(now, least, &asked, &seed) {
            None => true,
            Some(Moved::Tell) => {
                self.tell_all();
                true
            }
            Some(Moved::Store) => {
                let action =
                    Action::Agree { round: number, agreement: Box::new(exchange.agreement().clone()) };
                self.actions.push_back(action);
                false
            }
            Some(Moved::Failed) => {
                self.close(now, true, WaitedFor::MinCount);
                false
            }
        }
    }

    /// The agreement is durable: members may send masked updates, and the others are of no use.
    pub(super) fn agreed(&mut self, number: u32) {
        let Some(round) = self.state.round_numbered(number) else { return };
        let Some(exchange) = round.exchange.as_mut().filter(|exchange| exchange.phase == Phase::Storing)
        else {
            return;
        };
        exchange.phase = Phase::Agreed;
        let takes_part =
            exchange.agreement().sealed.keys().copied().collect::<std::collections::BTreeSet<_>>();
        round.miss(|client| !takes_part.contains(&client));
        self.tell_all();
    }

    /// Decides whose hidden updates count, instead of closing the round at once.
    pub(super) fn decide(&mut self, tally: Tally) {
        let State::Open { round } = &mut self.state else { return };
        let number = round.number();
        let Some(exchange) = &mut round.exchange else { return };
        exchange.phase = Phase::Deciding(tally);
        round.miss(|_| true);
        self.actions.push_back(Action::Decide { round: number, tally });
    }

    /// The decision is durable: those that count are asked to reveal.
    pub(super) fn decided(&mut self, now: Duration, number: u32) {
        let timeout = self.policy.timeout;
        let Some(round) = self.state.round_numbered(number) else { return };
        let Some(exchange) = &mut round.exchange else { return };
        let Phase::Deciding(tally) = exchange.phase else { return };
        (exchange.phase, exchange.deadline) = (Phase::Revealing(tally), now + timeout);
        self.tell_all();
    }

    /// Closes the round with what was revealed, or as void.
    fn close_hidden(&mut self, now: Duration, tally: Tally) {
        let State::Open { round } = &mut self.state else { return };
        let number = round.number();
        let mut reasons = round.reasons();
        if tally.void {
            reasons.push(
                "too few of the devices that sent an update stayed until its mask was taken away: the round has no result".to_owned(),
            );
        }
        let contributors = round.contributors();
        let revealed = round.exchange.as_mut().map(KeyExchange::take_revealed).unwrap_or_default();
        let close = Action::Close { round: number, tally };
        self.actions.push_back(if tally.void {
            close
        } else {
            Action::Unmask { round: number, tally, revealed }
        });
        self.state = State::Closing { since: now, void: tally.void, reasons, contributors };
    }
}
