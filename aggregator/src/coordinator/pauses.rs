//! Times that are left out of account: those in which nothing may be decided, and stalls of this process.

use std::time::Duration;

use super::{Coordinator, State};

/// Whether rounds may be opened and closed. They may not while the disk is full, nor while another server may lead the run: devices that
/// come then get no answer, and would be taken for away.
#[derive(Debug)]
pub(super) struct Pauses {
    /// The disk is full.
    disk_full: bool,
    /// Since when they may not be, for either reason.
    since: Option<Duration>,
    /// Devices were disconnected meanwhile.
    cut_off: bool,
}

impl Pauses {
    /// Of a server that is the only one, or has to be told that it leads.
    pub(super) fn new(alone: bool, now: Duration) -> Self {
        Self { disk_full: false, since: Some(now).filter(|_| !alone), cut_off: false }
    }

    /// Whether nothing is decided.
    pub(super) fn are_any(&self) -> bool {
        self.since.is_some()
    }

    /// Whether the disk is full.
    pub(super) fn is_disk_full(&self) -> bool {
        self.disk_full
    }

    /// A device whose hello has waited was sent away.
    pub(super) fn have_cut_off(&mut self) {
        self.cut_off = true;
    }
}

impl Coordinator {
    /// Whether nothing is decided at `now`: the disk is full, or another server may lead the run.
    #[must_use]
    pub fn is_paused(&self, now: Duration) -> bool {
        self.pauses.are_any() || !self.greetings.may_be_answered(now)
    }

    /// Another server may lead from the moment on until which none could.
    pub(super) fn pause_unless_it_leads(&mut self, now: Duration) {
        if let Some(lapsed) = self.greetings.lapsed(now) {
            self.pauses.since.get_or_insert(lapsed);
        }
    }

    pub(super) fn disk_is_full(&mut self, now: Duration) {
        (self.pauses.disk_full, self.pauses.cut_off) = (true, true);
        self.pauses.since.get_or_insert(now);
        self.reject_deferred();
    }

    pub(super) fn disk_has_room(&mut self, now: Duration) {
        self.pauses.disk_full = false;
        self.end_pause(now);
    }

    /// Leaves the time of the pause out of account if there is no reason for it any more, and waits for clients that were disconnected
    /// meanwhile, as after a restart.
    pub(super) fn end_pause(&mut self, now: Duration) {
        if self.pauses.disk_full || !self.greetings.may_be_answered(now) {
            return;
        }
        let Some(since) = self.pauses.since.take() else { return };
        // A state that began during the pause has lost less.
        let since = match self.state {
            State::Gathering { since: began, .. } => since.max(began),
            _ => since,
        };
        self.postpone(now, now.saturating_sub(since));
        if std::mem::take(&mut self.pauses.cut_off) {
            self.wait_for_those_cut_off(now);
        }
    }

    /// Leaves the time of a stall of the driver out of account.
    pub(super) fn stalled(&mut self, now: Duration, by: Duration) {
        self.shift_heard(now, by);
        // The time of a pause is added when it ends.
        let paused = self.pauses.since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        let rest = by.saturating_sub(paused);
        if !rest.is_zero() {
            self.postpone(now, rest);
            self.give_grace(now);
        }
    }

    /// Waits for the devices of a server that has left, or that were sent away in a pause, as for all after a restart.
    pub(super) fn wait_for_those_cut_off(&mut self, now: Duration) {
        self.grace_until = now + self.policy.reconnect_grace;
        if let State::Gathering { since, known_until, .. } = &mut self.state
            && !self.members.is_empty()
        {
            // From the beginning, so that what happens again and again does not keep the round from opening.
            *known_until = (*since + self.policy.reconnect_grace).max(*known_until);
        }
        self.give_grace(now);
    }

    /// The open round waits for members that are away.
    fn give_grace(&mut self, now: Duration) {
        if let Some(round) = self.state.round_mut() {
            round.wait_for_those_away(now + self.policy.reconnect_grace);
        }
    }

    /// Shifts all times of the state by `by`.
    fn postpone(&mut self, now: Duration, by: Duration) {
        match &mut self.state {
            State::Open { round } | State::Opening { round, .. } => round.postpone(now, by),
            State::Gathering { since, known_until, pause_until, .. } => {
                for moment in [since, known_until, pause_until] {
                    *moment += by;
                }
            }
            State::Closing { .. } | State::Finished => {}
        }
    }
}
