//! Cohort sampling: the members of a round, and replacements for members that are lost.

use std::collections::BTreeMap;
use std::time::Duration;

use shared::id::ClientId;
use shared::message::TaskKind;
use shared::seed::sample_without_replacement;

use super::open_round::{KeyExchange, OpenRound, Otherwise};
use super::{Action, Coordinator, Opening, State};
use crate::round::{SampleCap, WaitedFor};

impl Coordinator {
    /// Whether it said a short while ago that it was not in a state to train. To ask it costs it the model's way there.
    pub(super) fn rests(&self, client: ClientId, now: Duration) -> bool {
        self.members.get(&client).and_then(|member| member.unready).is_some_and(|until| now < until)
    }

    /// The connected clients among which a cohort for this work is drawn at `now`. To train: without those that are behind, and
    /// without those that rest, if that leaves `needed`.
    pub(super) fn ready(&self, work: TaskKind, now: Duration, needed: usize) -> Vec<(ClientId, u64)> {
        if !work.train {
            return self.present().collect();
        }
        let free: Vec<_> = self.present().filter(|(client, _)| self.behind(*client).is_none()).collect();
        let ready: Vec<_> = free.iter().copied().filter(|(client, _)| !self.rests(*client, now)).collect();
        if ready.len() >= needed.max(1) { ready } else { free }
    }

    /// The cohort of this round.
    fn draw(&self, number: u32, work: TaskKind, now: Duration) -> BTreeMap<ClientId, u64> {
        let policy = self.policy.of(work);
        if let Some(poisson) = policy.poisson {
            // Nothing else decides whom a private round asks.
            let asks = poisson.of_round(number);
            return self
                .present()
                .filter(|(client, _)| asks(*client) && self.may_take_part(*client))
                .collect();
        }
        let present = self.ready(work, now, policy.min);
        // Those that are behind are at work as well.
        let behind = if work.train { self.connected_stragglers() } else { 0 };
        let share = policy.cohort(present.len() + behind).max(policy.min.min(present.len() + behind));
        let size = share.saturating_sub(behind).min(present.len());
        let mut rng = self.spec.root_seed().derive_numbered("cohort", u64::from(number)).rng();
        let drawn = sample_without_replacement(present.len(), size, &mut rng);
        drawn.into_iter().map(|index| present[index]).collect()
    }

    pub(super) fn open(&mut self, now: Duration, work: TaskKind) {
        let number = self.closed + 1;
        let cohort = self.draw(number, work, now);
        for client in cohort.keys() {
            // Its task is too old to count.
            self.members.entry(*client).and_modify(|member| member.owes = None);
        }
        let (roster, owed, counted) = (self.roster(), self.owed(), self.counted());
        self.memory.outdated = false;
        let used = roster.values().map(|&samples| self.spec.samples_in(number, samples));
        let sample_cap = if work.train { self.policy.weight_bounds.cap(used) } else { SampleCap::NONE };
        let ledger = self.ledger.entries();
        let participations = self.participations.clone();
        let opening = Opening {
            round: number,
            work,
            cohort,
            roster,
            sample_cap,
            owed,
            counted,
            ledger,
            participations,
            exchange: 0,
        };
        self.count_participations(&opening);
        self.state = State::Opening {
            round: OpenRound::new(opening.clone(), self.policy, &self.spec, now),
            since: now,
        };
        self.actions.push_back(Action::Open(opening));
        self.offer_deferred(now);
    }

    /// Adds up to `wanted` connected clients to the cohort of the open round.
    pub(super) fn recruit(&mut self, now: Duration, wanted: usize, otherwise: Otherwise) {
        let State::Open { round } = &self.state else { return };
        let members = &self.members;
        // A device takes part in a private round if it was drawn for it, and not because another one is away.
        let replaces = self.policy.poisson.is_none() || !round.opening.work.train;
        // Masks are agreed among those that were there.
        let replaces = replaces && round.exchange.as_ref().is_none_or(KeyExchange::is_open);
        let mut candidates: Vec<(ClientId, u64)> = members
            .iter()
            .filter(|(client, member)| {
                replaces
                    && member.link.is_some()
                    && round.stage(**client).is_none()
                    && !round.has_late(**client)
                    && self.behind(**client).is_none()
                    && round.fits_scale(member.samples)
            })
            .map(|(client, member)| (*client, member.samples))
            .collect();
        let ready = |(client, _): &(ClientId, u64)| !self.rests(*client, now);
        if candidates.iter().filter(|candidate| ready(candidate)).count() >= wanted {
            candidates.retain(ready);
        }
        let State::Open { round } = &mut self.state else { return };
        if candidates.is_empty() {
            if let Some(again) = round.ask_again(now) {
                // Nothing went wrong: they train once they can.
                let (number, peers) =
                    (round.number(), again.iter().filter_map(|client| members.get(client)?.link));
                self.actions.extend(peers.map(|link| Action::Broadcast { peer: link.peer, round: number }));
                round.look_again(now);
            } else if otherwise == Otherwise::Void
                // No other device can take its place, and those that are there have had their time twice.
                || round.exchange.is_some() && round.is_short_handed(now)
                || otherwise == Otherwise::VoidIfEnoughAreHere && self.peers.len() >= round.least()
            {
                self.close(now, true, WaitedFor::MinCount);
            } else {
                round.look_again(now);
            }
            return;
        }
        let label = self.spec.root_seed().derive_numbered("replacements", u64::from(round.number()));
        let mut rng = label.derive_numbered("after", round.cohort_len() as u64).rng();
        let drawn = sample_without_replacement(candidates.len(), wanted.min(candidates.len()), &mut rng);
        let drawn: Vec<_> = drawn.into_iter().map(|index| candidates[index]).collect();
        round.begin_anew(now);
        self.enlarge(now, drawn);
    }

    /// A round after the last of training is for all clients: one that connects while it is open is asked as well, and has the rest
    /// of its time: further clients do not extend it. Returns whether any client was asked.
    pub(super) fn ask_latecomers(&mut self, now: Duration) -> bool {
        let State::Open { round } = &self.state else { return false };
        if round.opening.work.train || round.is_overdue(now) {
            return false;
        }
        let latecomers: Vec<_> =
            self.present().filter(|(client, _)| round.stage(*client).is_none()).collect();
        let any = !latecomers.is_empty();
        if any {
            self.enlarge(now, latecomers);
        }
        any
    }

    /// The open round opens again, with more members.
    fn enlarge(&mut self, now: Duration, recruits: Vec<(ClientId, u64)>) {
        // A member of a cohort is known; the opening itself keeps the roster that it began with.
        self.save_roster();
        let State::Open { mut round } = std::mem::replace(&mut self.state, State::Finished) else { return };
        round.extend(recruits);
        self.actions.push_back(Action::Open(round.opening.clone()));
        self.state = State::Opening { round, since: now };
    }
}
