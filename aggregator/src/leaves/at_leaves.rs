//! What the root's disk worker asks of the leaves. It waits for their answers, as it waits for a disk.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use models::Limits;
use shared::id::ClientId;
use shared::message::Rejection;
use shared::record::Record;

use super::answers::{Answer, Answers, NoAnswer};
use super::hub::Hub;
use super::keeper::Keeper;
use super::link::check_length;
use super::message::{Frame, ToLeaf};
use crate::coordinator::Agreement;
use crate::run::directory::RunDirectory;
use crate::run::{HeldUpdate, LeafUpload, Lease, Leaves, LeavesError, Part, RoundAtLeaves};

/// How long a leaf that has updates of the open round is waited for: after a crash it is back with them in a moment.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether this process still has the run.
const LOOK: Duration = Duration::from_millis(100);

/// The leaves of one epoch of the root.
#[derive(Debug)]
pub struct AtLeaves {
    hub: Hub,
    answers: Box<dyn Answers>,
    keeper: Keeper,
    lease: Option<Lease>,
    links: BTreeMap<u64, Linked>,
    /// The open round.
    round: u32,
    /// Rounds that are over for good.
    closed: u32,
}

/// A leaf that is here.
#[derive(Debug)]
struct Linked {
    leaf: String,
    /// The round that it has open.
    opened: u32,
    /// Whose updates it has accepted in it.
    held: BTreeSet<ClientId>,
}

type Outcome = Option<Result<HeldUpdate, Rejection>>;

impl AtLeaves {
    /// Those that are linked to `hub`, whose words come out of `answers`.
    #[must_use]
    pub fn new(hub: Hub, answers: Box<dyn Answers>, keeper: Keeper) -> Self {
        Self { hub, answers, keeper, lease: None, links: BTreeMap::new(), round: 0, closed: 0 }
    }

    /// The same for a root whose driver looks at its lease.
    #[must_use]
    pub fn under(self, lease: Lease) -> Self {
        Self { lease: Some(lease), ..self }
    }

    /// The next answer. `None` when it is late.
    fn next(&mut self, deadline: Option<Duration>) -> Result<Option<Answer>, LeavesError> {
        loop {
            self.keeper.still_leads()?;
            let left = deadline.map(|deadline| deadline.saturating_sub(self.answers.now()));
            match self.answers.next(left.map_or(LOOK, |left| left.min(LOOK))) {
                Ok(answer) => return Ok(Some(answer)),
                Err(NoAnswer::Late) if left.is_some_and(|left| left.is_zero()) => return Ok(None),
                Err(NoAnswer::Late) => {}
                Err(NoAnswer::Ended) => return Err(LeavesError::Stopped),
            }
        }
    }

    /// Takes note of what was said meanwhile.
    fn catch_up(&mut self) {
        while let Ok(answer) = self.answers.next(Duration::ZERO) {
            self.note(answer);
        }
    }

    /// Takes note of leaves that come and go. Gives what else was said.
    fn note(&mut self, answer: Answer) -> Option<Answer> {
        match answer {
            Answer::Joined { link, leaf } => {
                // One that was killed is back before its former link is seen to be broken.
                self.links.insert(link, Linked { leaf, opened: 0, held: BTreeSet::new() });
            }
            Answer::Left { link } => {
                self.links.remove(&link);
                return Some(Answer::Left { link });
            }
            Answer::Opened { link, round, held } if round == self.round => {
                if let Some(linked) = self.links.get_mut(&link) {
                    linked.opened = round;
                    linked.held = held.iter().map(|held| held.client).collect();
                }
                return Some(Answer::Opened { link, round, held });
            }
            Answer::Opened { .. } => {}
            answer => return Some(answer),
        }
        None
    }

    /// The leaves of which the store says that they live and that have not said what they have.
    fn silent(&mut self) -> Result<BTreeSet<String>, LeavesError> {
        let mut silent = self.keeper.living()?;
        for linked in self.links.values().filter(|linked| linked.opened == self.round) {
            silent.remove(&linked.leaf);
        }
        Ok(silent)
    }

    /// What leaves have of a round that was open before.
    fn gather(&mut self) -> Result<Vec<HeldUpdate>, LeavesError> {
        let deadline = self.answers.now() + PATIENCE;
        let mut found: BTreeMap<ClientId, HeldUpdate> = BTreeMap::new();
        while !self.silent()?.is_empty() {
            // One that dies meanwhile is not living for much longer.
            let until = deadline.min(self.answers.now() + Duration::from_secs(1));
            match self.next(Some(until))? {
                Some(answer) => {
                    if let Some(Answer::Opened { held, .. }) = self.note(answer) {
                        for held in held {
                            found.entry(held.client).or_insert(held);
                        }
                    }
                }
                None if self.answers.now() >= deadline => break,
                None => {}
            }
        }
        // What only a leaf had that has left again is asked for once more.
        found.retain(|client, _| self.links.values().any(|linked| linked.held.contains(client)));
        Ok(found.into_values().collect())
    }

    /// Which leaf has the update of each of these clients. Gives how many have none.
    fn holders(&self, clients: &BTreeSet<ClientId>) -> (BTreeMap<u64, BTreeSet<ClientId>>, usize) {
        let (mut holders, mut missing): (BTreeMap<u64, BTreeSet<ClientId>>, _) = (BTreeMap::new(), 0);
        for client in clients {
            let has = |linked: &Linked| linked.opened == self.round && linked.held.contains(client);
            match self.links.iter().find(|(_, linked)| has(linked)) {
                Some((link, _)) => _ = holders.entry(*link).or_default().insert(*client),
                None => missing += 1,
            }
        }
        (holders, missing)
    }

    fn decode(&self, link: u64, sum: &Bytes) -> Result<Record, LeavesError> {
        let limits = Limits { max_bytes: sum.len() as u64, ..Limits::default() };
        Record::read_with_integers(&mut &sum[..], limits).map_err(|error| LeavesError::Faulty {
            leaf: self.links.get(&link).map_or_else(String::new, |linked| linked.leaf.clone()),
            what: format!("sends sums that are none ({error})"),
        })
    }
}

impl Leaves for AtLeaves {
    fn open(&mut self, round: RoundAtLeaves<'_>) -> Result<Vec<HeldUpdate>, LeavesError> {
        let RoundAtLeaves { opening, failed, clip, broadcast, agreement, resumes } = round;
        let parts = broadcast.parts().map(Part::read).collect::<Result<Vec<_>, _>>();
        let parts = parts.map_err(|error| LeavesError::Store(error.into()))?;
        let differences = parts[1..].iter().map(|part| part.len() as u64).collect();
        let payload = if let [model] = &parts[..] { model.clone() } else { parts.concat().into() };
        let round = opening.round;
        let opening = serde_json::to_string(opening).expect("ids, counts and names are JSON").into();
        let agreement = agreement.map(|agreement| Box::new(agreement.outline()));
        let digest = broadcast.digest;
        let message = ToLeaf::Open { round, opening, failed, clip, agreement, digest, differences };
        check_length(&message).map_err(|error| LeavesError::NotNotified { round, why: error.to_string() })?;
        self.catch_up();
        if self.round != round {
            self.links.values_mut().for_each(|linked| linked.held.clear());
        }
        self.round = round;
        self.hub.open(Frame { message, payload });
        if resumes { self.gather() } else { Ok(Vec::new()) }
    }

    fn agreed(&mut self, round: u32, agreement: &Agreement) {
        self.hub.agreed(round, &agreement.outline());
    }

    fn accept(
        &mut self,
        round: u32,
        uploads: &[(ClientId, LeafUpload)],
    ) -> Result<Vec<Outcome>, LeavesError> {
        self.catch_up();
        let mut outcomes: Vec<Outcome> = vec![None; uploads.len()];
        let mut waits: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (place, (_, upload)) in uploads.iter().enumerate() {
            waits.entry(upload.link).or_default().push(place);
        }
        waits.retain(|link, places| {
            let uploads = places.iter().map(|place| (uploads[*place].0, uploads[*place].1.number)).collect();
            self.hub.tell(*link, ToLeaf::Accept { round, uploads })
        });
        while !waits.is_empty() {
            let Some(answer) = self.next(None)? else { continue };
            match self.note(answer) {
                Some(Answer::Left { link }) => _ = waits.remove(&link),
                Some(Answer::Accepted { link, round: of, outcomes: found }) if of == round => {
                    let Some(places) = waits.remove(&link) else { continue };
                    for (place, outcome) in places.into_iter().zip(found) {
                        if let (Some(Ok(held)), Some(linked)) = (&outcome, self.links.get_mut(&link)) {
                            linked.held.insert(held.client);
                        }
                        outcomes[place] = outcome;
                    }
                }
                _ => {}
            }
        }
        Ok(outcomes)
    }

    fn discard(&mut self, upload: LeafUpload) {
        // A leaf that has left has removed it.
        self.hub.tell(upload.link, ToLeaf::Discard { number: upload.number });
    }

    fn sums(&mut self, round: u32, clients: &BTreeSet<ClientId>) -> Result<Vec<Record>, LeavesError> {
        self.catch_up();
        let mut deadline = self.answers.now() + PATIENCE;
        let (mut missing, mut sums) = (clients.clone(), Vec::new());
        let mut asked: BTreeMap<u64, BTreeSet<ClientId>> = BTreeMap::new();
        while !missing.is_empty() {
            let under_way: BTreeSet<ClientId> = asked.values().flatten().copied().collect();
            let wanted = missing.difference(&under_way).copied().collect();
            let (holders, count) = self.holders(&wanted);
            for (link, clients) in holders {
                let message = ToLeaf::Sum { round, clients: clients.iter().copied().collect() };
                // One sum of a leaf at a time: each is of what it was asked for last.
                if !asked.contains_key(&link) && self.hub.tell(link, message) {
                    asked.insert(link, clients);
                    deadline = self.answers.now() + PATIENCE;
                }
            }
            let Some(answer) = self.next(asked.is_empty().then_some(deadline))? else {
                return Err(LeavesError::Lost { count });
            };
            match self.note(answer) {
                Some(Answer::Left { link }) => _ = asked.remove(&link),
                Some(Answer::Summed { link, round: of, sum }) if of == round => {
                    let Some(clients) = asked.remove(&link) else { continue };
                    match (sum, self.links.get_mut(&link)) {
                        (Some(sum), _) => {
                            sums.push(self.decode(link, &sum)?);
                            missing.retain(|client| !clients.contains(client));
                        }
                        (None, Some(linked)) => linked.held.retain(|client| !clients.contains(client)),
                        (None, None) => {}
                    }
                }
                _ => {}
            }
        }
        Ok(sums)
    }

    fn update(&mut self, round: u32, client: ClientId) -> Result<Bytes, LeavesError> {
        self.catch_up();
        let deadline = self.answers.now() + PATIENCE;
        let mut asked = None;
        loop {
            if asked.is_none() {
                let (holders, _) = self.holders(&BTreeSet::from([client]));
                let holder = holders.into_keys().next();
                asked = holder.filter(|link| self.hub.tell(*link, ToLeaf::Fetch { round, client }));
            }
            let Some(answer) = self.next(asked.is_none().then_some(deadline))? else {
                return Err(LeavesError::Lost { count: 1 });
            };
            match self.note(answer) {
                Some(Answer::Left { link }) if asked == Some(link) => asked = None,
                Some(Answer::Fetched { link, round: of, client: whose, update })
                    if (of, whose) == (round, client) =>
                {
                    if !update.is_empty() {
                        return Ok(update);
                    }
                    if let Some(linked) = self.links.get_mut(&link) {
                        linked.held.remove(&client);
                    }
                    asked = None;
                }
                _ => {}
            }
        }
    }

    fn keep(&mut self, directory: &RunDirectory, closed: u32) -> Result<(), LeavesError> {
        self.keeper.keep(directory, closed)?;
        if closed > self.closed {
            self.closed = closed;
            self.hub.closed(closed);
        }
        Ok(())
    }

    fn lease(&self) -> Option<Lease> {
        self.lease.clone()
    }
}
