//! The durable steps of the fuzzed coordinator, and what is left of them when it dies.

use std::collections::BTreeMap;

use aggregator::coordinator::{Agreement, Closing, Coordinator, Event, Reopened, Revealed};
use shared::id::ClientId;
use shared::message::Rejection;
use shared::secure::{Exchange, Recovery, Share};

use super::{DEVICES, Device, Driver, Step, TERMS};

impl Driver {
    pub(in super::super) fn step(&mut self, fine: bool) {
        if let Some(step) = self.steps.pop_front() {
            let event = self.make(step, fine);
            self.give(event);
        }
    }

    fn open(&mut self) -> &mut Reopened {
        self.disk.open.as_mut().expect("a round is open")
    }

    fn make(&mut self, step: Step, fine: bool) -> Event {
        match step {
            Step::Open(opening) => {
                let round = opening.round;
                let before = self.disk.open.take().map(|open| open.accepted).unwrap_or_default();
                assert!(before.is_empty(), "no one joins once updates are there");
                self.disk.roster.clone_from(&opening.roster);
                self.disk.open = Some(Reopened {
                    opening,
                    accepted: before,
                    late: BTreeMap::new(),
                    closing: None,
                    agreement: None,
                    fingerprints: BTreeMap::new(),
                });
                Event::Opened { round }
            }
            Step::SaveRoster(known) => {
                self.disk.roster = known.roster;
                Event::RosterSaved
            }
            Step::Fold(round, client) if fine => {
                self.open().accepted.insert(client);
                self.open().fingerprints.insert(client, 7);
                Event::Folded { round, client, outcome: Ok(7) }
            }
            Step::Fold(round, client) => {
                let outcome = Err(Rejection::NotFinite { tensor: "w".to_owned() });
                Event::Folded { round, client, outcome }
            }
            Step::Agree(round, agreement) => {
                assert!(self.open().agreement.is_none(), "agreed once");
                self.open().agreement = Some(agreement);
                Event::Agreed { round }
            }
            Step::Decide(round, tally) => {
                let open = self.open();
                let contributors = open.accepted.clone();
                assert!(contributors.len() >= 3, "a sum of fewer is not learned");
                open.closing = Some(Closing { contributors, late: BTreeMap::new(), tally });
                Event::Decided { round }
            }
            Step::Close(round) => self.close(round, true),
            Step::Unmask(round, revealed) => {
                let learned = self.unmask(round, &revealed);
                self.close(round, !learned)
            }
        }
    }

    fn close(&mut self, round: u32, void: bool) -> Event {
        self.voids += usize::from(void);
        self.disk.void = if void { self.disk.void + 1 } else { 0 };
        self.disk.failed += u32::from(void);
        self.disk.closed = round;
        self.disk.open = None;
        Event::Closed { round, void, enough: false }
    }

    /// Takes the masks away by what was revealed. They are those of honest devices, or there are none.
    fn unmask(&mut self, round: u32, revealed: &Revealed) -> bool {
        let open = self.disk.open.as_ref().expect("a round is open");
        let agreement = open.agreement.as_ref().expect("it was agreed on");
        let counted: Vec<_> = open.closing.iter().flat_map(|it| it.contributors.iter().copied()).collect();
        let exchange = Exchange { run: self.spec.run, round, attempt: agreement.attempt };
        let (members, share) = (agreement.members(), self.spec.secure.threshold);
        let recovery =
            Recovery { exchange, terms: &TERMS, members: &members, neighbours: &agreement.neighbours, share };
        let Ok(masks) = recovery.masks(&counted, revealed) else {
            self.kept_secret += 1;
            return false;
        };
        let honest = recovery.masks(&counted, &self.honest(agreement, &counted, exchange));
        assert_eq!(Ok(masks), honest, "other masks than those that devices have added");
        self.unmasked += 1;
        true
    }

    /// What all holders would reveal if none had lied or was lost.
    fn honest(&self, agreement: &Agreement, counted: &[ClientId], exchange: Exchange) -> Revealed {
        let mut revealed = Revealed::new();
        let share = self.spec.secure.threshold;
        let device = |client: &ClientId| (0..DEVICES).find(|device| self.client(*device) == *client);
        for (of, _) in agreement.members() {
            let party = self.party(device(&of).expect("a device"), exchange.round, exchange.attempt);
            let near = &agreement.neighbours[&of];
            let said: Vec<_> = near.iter().map(|client| agreement.advertised[client]).collect();
            let sealed = party.shares(&said, share).expect("keys of members");
            let own = Share { at: 1, values: party.own_share(near.len(), share) };
            let shares = revealed.entry(of).or_default();
            shares.extend(counted.contains(&of).then_some(own));
            for (place, (holder, sealed)) in sealed.iter().enumerate() {
                let holder = self.party(device(holder).expect("a device"), exchange.round, exchange.attempt);
                let Ok([own, key]) = holder.open(&agreement.advertised[&of], sealed) else { continue };
                let values = if counted.contains(&of) { own } else { key };
                shares.push(Share { at: place as u8 + 2, values });
            }
        }
        revealed
    }

    pub(in super::super) fn restarts(&mut self, durable: u8) {
        let mut steps = std::mem::take(&mut self.steps);
        let durable = usize::from(durable) % (steps.len() + 1);
        for step in steps.drain(..durable) {
            self.make(step, true);
        }
        if let Some(open) = &mut self.disk.open {
            // The exchange of a process that has died is not gone on with before it is agreed on.
            open.opening.exchange += 8;
        }
        self.devices.iter_mut().for_each(Device::leave);
        self.uploads.clear();
        self.finished = false;
        self.coordinator = Coordinator::new(self.spec.clone(), self.policy, self.disk.clone(), self.now);
        self.give(Event::Tick);
    }
}
