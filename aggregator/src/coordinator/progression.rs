//! The progression of a run: from round to round, with pauses after void ones, to its end.

use std::time::Duration;

use shared::message::ToClient;

use super::open_round::Next;
use super::{Action, Coordinator, Outcome, RESTARTED, State};
use crate::round::WaitedFor;

/// From this many void rounds in a row on, the operator is warned after each, since something is wrong with all clients; at
/// growing intervals where no pause separates the rounds.
pub const VOID_ALARM: u32 = 3;
/// Why a round is void whose updates were hidden and came to no sum.
const NO_SUM: &str = "the sum of the hidden updates is none that honest devices add up to: at least one device sent something else than \
                      its masked update, and which one cannot be told";
/// The longest pause after a void round.
pub const MAX_VOID_PAUSE: Duration = Duration::from_mins(1);

impl Coordinator {
    pub(super) fn after_close(&mut self, now: Duration, (number, turned_void): (u32, bool), enough: bool) {
        let State::Closing { void, reasons, contributors, .. } = &mut self.state else { return };
        if number != self.closed + 1 {
            return;
        }
        if turned_void && !std::mem::replace(void, true) {
            reasons.push(NO_SUM.to_owned());
        }
        let (void, reasons) = (*void, std::mem::take(reasons));
        let contributors = std::mem::take(contributors);
        // A void closing round, which only tests the model, does not count.
        let trained = number <= self.last;
        self.send_receipts((void, trained), contributors);
        if trained && void {
            // It does not use up the run: there is a round more.
            self.failed = self.failed.saturating_add(1);
            self.last = self.last.saturating_add(1);
        }
        if trained {
            (self.void, self.void_before) = if void { (self.void + 1, self.void_before) } else { (0, 0) };
        }
        self.closed = number;
        self.send_withheld();
        if enough {
            self.last = self.last.min(number);
        }
        if trained && self.is_fruitless() {
            self.dismiss(Outcome::NoProgress { rounds: self.void + self.void_before, reasons });
        } else if let Some(work) = self.spec.work_after(self.closed, self.last) {
            let pause = self.pause();
            // Without pauses there would be an alarm at every moment.
            let rare = !self.policy.void_pause.is_zero() || self.void.is_power_of_two();
            if self.void == VOID_ALARM || self.void > VOID_ALARM && rare {
                self.actions.push_back(Action::Alarm { rounds: self.void, reasons, pause });
            }
            // The closing round is for all clients: those that were just disconnected have time to reconnect.
            let known_until = if work.train { now } else { now + self.policy.reconnect_grace };
            self.state = State::Gathering {
                since: now,
                need: self.policy.of(work).min,
                known_until: self.grace_until.max(known_until),
                pause_until: now + pause,
            };
        } else {
            self.dismiss(Outcome::Completed);
        }
    }

    /// Whether as many rounds in a row were void as may be.
    fn is_fruitless(&self) -> bool {
        self.void.saturating_add(self.void_before) >= self.policy.failure_limit(self.spec.rounds)
    }

    /// The pause after the void rounds so far: it doubles with each in a row.
    fn pause(&self) -> Duration {
        match self.void {
            0 => Duration::ZERO,
            void => (self.policy.void_pause * 2u32.saturating_pow((void - 1).min(16))).min(MAX_VOID_PAUSE),
        }
    }

    /// Advances as far as the state allows. Called after every event except heartbeats, so that no condition is missed.
    pub(super) fn settle(&mut self, now: Duration) {
        if self.pauses.are_any() || self.ask_latecomers(now) || !self.advance_exchange(now) {
            return;
        }
        match &self.state {
            State::Gathering { since, need, known_until, pause_until } => {
                if self.is_fruitless() {
                    // An earlier process has closed the last of them.
                    let (rounds, reasons) = (self.void + self.void_before, vec![RESTARTED.to_owned()]);
                    self.dismiss(Outcome::NoProgress { rounds, reasons });
                    return;
                }
                let connected = self.peers.len();
                let all_back = connected == self.members.len();
                if self.is_used_up() {
                    self.last = self.last.min(self.closed);
                }
                let Some(work) = self.spec.work_after(self.closed, self.last) else {
                    self.dismiss(Outcome::Completed);
                    return;
                };
                if !work.train && connected == 0 && now >= *since + self.policy.timeout {
                    // The model is complete, and no client has come to test it.
                    self.dismiss(Outcome::Completed);
                } else if !self.held
                    && connected >= (*need).max(1)
                    && (!work.train || self.any_may_take_part())
                    && (all_back || now >= *known_until)
                    && now >= *pause_until
                {
                    self.open(now, work);
                }
            }
            State::Open { round } => {
                match round.next(now, |client| self.is_here(client), || self.stragglers_of(round)) {
                    Next::Wait => {}
                    Next::Close(waited_for) => self.close(now, false, waited_for),
                    Next::Recruit { wanted, otherwise } => self.recruit(now, wanted, otherwise),
                }
            }
            State::Opening { .. } | State::Closing { .. } | State::Finished => {}
        }
    }

    pub(super) fn close(&mut self, now: Duration, void: bool, waited_for: WaitedFor) {
        let State::Open { round } = &self.state else { return };
        let void = void || round.is_bound_otherwise();
        let mut tally = round.tally(void, waited_for, |client| self.is_here(client));
        tally.rejected += std::mem::take(&mut self.stray_rejected);
        tally.discarded += std::mem::take(&mut self.stray_discarded);
        if !void && round.exchange.is_some() {
            self.decide(tally);
            return;
        }
        let (reasons, contributors) = (round.reasons(), round.contributors());
        self.leave_behind();
        let State::Open { round } = &self.state else { return };
        self.actions.push_back(Action::Close { round: round.number(), tally });
        self.state = State::Closing { since: now, void, reasons, contributors };
    }

    fn dismiss(&mut self, outcome: Outcome) {
        for peer in self.connected_peers() {
            self.send(peer, ToClient::Finished { rounds: self.trained() });
            self.actions.push_back(Action::Disconnect { peer });
        }
        self.finish(outcome);
    }

    pub(super) fn finish(&mut self, outcome: Outcome) {
        self.drop_deferred();
        self.state = State::Finished;
        self.actions.push_back(Action::Finish(outcome));
    }
}
