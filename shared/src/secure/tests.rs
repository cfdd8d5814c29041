//! Whole exchanges in memory: who is lost when, and what the server can tell.

mod measured;

use std::collections::{BTreeMap, BTreeSet};

use models::params::IntegerFormat;
use rand::Rng as _;

use super::*;
use crate::id::{ClientId, RunId};
use crate::identity::SecretKey;
use crate::seed::Seed;

/// Values of an update.
const VALUES: usize = 50;

/// An exchange, with the updates that its members have masked.
struct Round {
    exchange: Exchange,
    parties: BTreeMap<ClientId, Party>,
    members: BTreeMap<ClientId, Advertised>,
    neighbours: BTreeMap<ClientId, Vec<ClientId>>,
    /// What each has received of each neighbour.
    sealed: BTreeMap<ClientId, BTreeMap<ClientId, Sealed>>,
    masked: BTreeMap<ClientId, Vec<i64>>,
}

const SHARE: f64 = 0.55;
const TERMS: [u8; 32] = [7; 32];

impl Round {
    /// Of this number of devices; `silent` of them are lost before they share, by position.
    fn new(members: usize, silent: &[usize], update: impl Fn(usize) -> Vec<i64>) -> Self {
        let exchange = Exchange { run: RunId::from_bytes([1; 8]), round: 3, attempt: 0 };
        let identity = |index: usize| {
            SecretKey::from_bytes(*Seed::root(9).derive_numbered("key", index as u64).as_bytes())
        };
        let mut order: Vec<_> =
            (0..members).map(|index| (identity(index).public().client(), index)).collect();
        order.sort_unstable();
        let party = |(client, index): &(ClientId, usize)| {
            let secret = *Seed::root(5).derive_numbered("party", *index as u64).as_bytes();
            (*client, Party::new(exchange, *client, PartySecret::new(secret)))
        };
        let parties: BTreeMap<_, _> = order.iter().map(party).collect();
        let said: BTreeMap<_, _> = order
            .iter()
            .map(|(client, index)| (*client, parties[client].advertise(&identity(*index))))
            .collect();
        let graph = graph::neighbours(members, graph::degree(members, SHARE), &Seed::root(2));
        let named = |places: &Vec<usize>| places.iter().map(|place| order[*place].0).collect::<Vec<_>>();
        let all: BTreeMap<_, _> =
            order.iter().zip(&graph).map(|((client, _), places)| (*client, named(places))).collect();
        let silent: BTreeSet<_> = order
            .iter()
            .enumerate()
            .filter(|(place, _)| silent.contains(place))
            .map(|(_, it)| it.0)
            .collect();
        let mut sealed: BTreeMap<ClientId, BTreeMap<ClientId, Sealed>> = BTreeMap::new();
        for (client, neighbours) in all.iter().filter(|(client, _)| !silent.contains(client)) {
            let neighbours: Vec<_> = neighbours.iter().map(|neighbour| said[neighbour]).collect();
            for (to, shares) in parties[client].shares(&neighbours, SHARE).expect("keys of members") {
                sealed.entry(to).or_default().insert(*client, shares);
            }
        }
        let members: BTreeMap<_, _> =
            said.into_iter().filter(|(client, _)| !silent.contains(client)).collect();
        let mut masked = BTreeMap::new();
        for (client, index) in order.iter().filter(|(client, _)| members.contains_key(client)) {
            let present = all[client].iter().filter_map(|neighbour| members.get(neighbour));
            let masks = parties[client].masks(present, &TERMS).expect("keys of members");
            let mut values = update(*index);
            mask::apply(&masks, vec![(IntegerFormat::I64, &mut values)]);
            masked.insert(*client, values);
        }
        Self { exchange, parties, members, neighbours: all, sealed, masked }
    }

    fn recovery(&self) -> Recovery<'_> {
        let Self { exchange, members, neighbours, .. } = self;
        Recovery { exchange: *exchange, terms: &TERMS, members, neighbours, share: SHARE }
    }

    /// What a member reveals where these count.
    fn reveal(&self, client: ClientId, counted: &[ClientId]) -> Vec<(ClientId, Share)> {
        let party = &self.parties[&client];
        let own = party.own_share(self.neighbours[&client].len(), SHARE);
        let mut revealed = vec![(client, Share { at: 1, values: own })];
        for (from, sealed) in self.sealed.get(&client).into_iter().flatten() {
            let [own, masking] = party.open(&self.members[from], sealed).expect("sealed for it");
            let place = self.neighbours[from].binary_search(&client).expect("a neighbour");
            let values = if counted.contains(from) { own } else { masking };
            revealed.push((*from, Share { at: place as u8 + 2, values }));
        }
        revealed
    }

    /// The sum, where these count and those of them answer that are not among the lost.
    fn sum(&self, counted: &[ClientId], lost: &[ClientId]) -> Result<Vec<i64>, RecoveryError> {
        let mut shares: BTreeMap<ClientId, Vec<Share>> = BTreeMap::new();
        for client in counted.iter().filter(|client| !lost.contains(client)) {
            for (of, share) in self.reveal(*client, counted) {
                shares.entry(of).or_default().push(share);
            }
        }
        let masks = self.recovery().masks(counted, &shares)?;
        let mut sum = vec![0_i64; VALUES];
        for values in counted.iter().map(|client| &self.masked[client]) {
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.wrapping_add(*value));
        }
        let taken: Vec<_> = masks.into_iter().map(Mask::opposite).collect();
        mask::apply(&taken, vec![(IntegerFormat::I64, &mut sum)]);
        Ok(sum)
    }
}

fn update(index: usize) -> Vec<i64> {
    (-7..43).map(|value| i32::try_from(index).expect("few") * 1000 + value).map(i64::from).collect()
}

/// The sum of the updates of these, by their keys' order.
fn plain(round: &Round, counted: &[ClientId]) -> Vec<i64> {
    let identity =
        |index: usize| SecretKey::from_bytes(*Seed::root(9).derive_numbered("key", index as u64).as_bytes());
    let mut sum = vec![0; VALUES];
    for index in
        (0..round.parties.len()).filter(|index| counted.contains(&identity(*index).public().client()))
    {
        sum.iter_mut().zip(update(index)).for_each(|(sum, value)| *sum += value);
    }
    sum
}

#[test]
fn the_sum_is_that_of_the_plain_updates_whoever_is_lost_when() {
    lose_some(&[2, 3, 10, 100]);
}

/// As [`the_sum_is_that_of_the_plain_updates_whoever_is_lost_when`].
#[test]
#[ignore = "minutes; with --ignored in a release build"]
fn the_sum_of_a_thousand_devices_is_that_of_their_plain_updates() {
    lose_some(&[1000]);
}

/// None, or three tenths of the devices fall silent before they share, before they send an update, or before they reveal.
fn lose_some(federations: &[usize]) {
    for &members in federations {
        let some = members * 3 / 10;
        let first: Vec<usize> = (0..some).collect();
        for silent in [&[][..], &first] {
            let round = Round::new(members, silent, update);
            let all: Vec<_> = round.members.keys().copied().collect();
            assert_eq!(round.sum(&all, &[]).expect("all answer"), plain(&round, &all));
            if !silent.is_empty() {
                continue;
            }
            let counted = &all[some..];
            assert_eq!(round.sum(counted, &[]).expect("enough answer"), plain(&round, counted), "{members}");
            assert_eq!(
                round.sum(&all, &all[..some]).expect("enough answer"),
                plain(&round, &all),
                "{members}"
            );
        }
    }
}

#[test]
fn with_too_few_answers_there_is_no_sum() {
    let round = Round::new(10, &[], update);
    let all: Vec<_> = round.members.keys().copied().collect();
    // Six of ten holders are needed.
    assert!(round.sum(&all, &all[..4]).is_ok());
    let refused = round.sum(&all, &all[..5]).unwrap_err();
    assert!(matches!(refused, RecoveryError::TooFew { found: 5, needed: 6, .. }), "{refused}");
}

#[test]
fn a_wrong_answer_is_found_out_and_left_out() {
    let round = Round::new(10, &[], update);
    let all: Vec<_> = round.members.keys().copied().collect();
    let counted = &all[1..];
    let mut shares: BTreeMap<ClientId, Vec<Share>> = BTreeMap::new();
    for client in counted {
        for (of, share) in round.reveal(*client, counted) {
            shares.entry(of).or_default().push(share);
        }
    }
    let masks = round.recovery().masks(counted, &shares).expect("all are right");
    for of in [all[0], all[5]] {
        let mut wrong = shares.clone();
        wrong.get_mut(&of).expect("answers")[2].values[9] ^= 1;
        assert_eq!(round.recovery().masks(counted, &wrong).as_ref(), Ok(&masks));
        wrong.get_mut(&of).expect("answers").truncate(6);
        assert_eq!(round.recovery().masks(counted, &wrong), Err(RecoveryError::Wrong { of }));
    }
}

#[test]
fn what_the_server_stores_says_nothing_of_one_update() {
    // The server knows every masked update and passes every sealed share on. One of two chosen updates is masked: without answers,
    // the masked bytes are uniform for both, and differ from each other by nothing that is known.
    let first = |_: usize| vec![i64::MIN; VALUES];
    let second = |_: usize| vec![i64::MAX; VALUES];
    for update in [&first as &dyn Fn(usize) -> Vec<i64>, &second] {
        let round = Round::new(80, &[], update);
        let mut counts = [0_f64; 256];
        let bytes = round.masked.values().flatten().flat_map(|value| value.to_le_bytes());
        let mut all = 0.0;
        for byte in bytes {
            counts[byte as usize] += 1.0;
            all += 1.0;
        }
        let chi: f64 = counts.iter().map(|count| (count - all / 256.0).powi(2) / (all / 256.0)).sum();
        assert!((150.0..370.0).contains(&chi), "{chi}");
    }
    // Fewer shares than the threshold give another secret for every guess of the rest, so that no update fits better than another.
    let round = Round::new(10, &[], update);
    let all: Vec<_> = round.members.keys().copied().collect();
    let five: Vec<_> = all[1..6].iter().flat_map(|client| round.reveal(*client, &all)).collect();
    let of_first: Vec<_> = five.into_iter().filter(|(of, _)| *of == all[0]).map(|(_, share)| share).collect();
    let mut rng = Seed::root(4).rng();
    let mut found = BTreeSet::new();
    for _ in 0..1000 {
        let mut guess = Share { at: 200, values: [0; 32] };
        rng.fill_bytes(&mut guess.values);
        found.insert(shamir::combine(&[&of_first[..], &[guess]].concat()).expect("places differ"));
    }
    assert_eq!((of_first.len(), found.len()), (5, 1000));
}

#[test]
fn shares_open_for_the_one_that_they_are_sealed_for() {
    let round = Round::new(3, &[], update);
    let all: Vec<_> = round.members.keys().copied().collect();
    let sealed = &round.sealed[&all[0]][&all[1]];
    let open = |by: usize, from: usize, sealed: &Sealed| {
        round.parties[&all[by]].open(&round.members[&all[from]], sealed)
    };
    assert!(open(0, 1, sealed).is_ok());
    assert_eq!(open(2, 1, sealed), Err(PartyError::Sealed(all[1])));
    assert_eq!(open(0, 2, sealed), Err(PartyError::Sealed(all[2])));
    let none = Advertised { sealing: [0; 32], masking: [0; 32], ..round.members[&all[1]] };
    assert_eq!(round.parties[&all[0]].open(&none, sealed), Err(PartyError::Key(all[1])));
    assert_eq!(round.parties[&all[0]].masks([&none], &TERMS).err(), Some(PartyError::Key(all[1])));
    assert_eq!(round.parties[&all[0]].shares(&[none], SHARE).err(), Some(PartyError::Key(all[1])));
}

#[test]
fn masks_of_members_that_were_told_different_terms_do_not_cancel() {
    let mut round = Round::new(5, &[], update);
    let all: Vec<_> = round.members.keys().copied().collect();
    let first = all[0];
    let present = round.neighbours[&first].iter().map(|near| &round.members[near]);
    let masks = round.parties[&first].masks(present, &[8; 32]).expect("keys of members");
    let mut values = vec![0; VALUES];
    mask::apply(&masks, vec![(IntegerFormat::I64, &mut values)]);
    round.masked.insert(first, values);
    let sum = round.sum(&all, &[]).expect("all answer");
    let near = sum.iter().zip(plain(&round, &all)).filter(|(found, plain)| (**found - plain).abs() < 1 << 40);
    assert_eq!(near.count(), 0, "the sum hides all of the updates");
}

#[test]
fn nothing_secret_is_shown() {
    let secret = PartySecret::new([7; 32]);
    assert_eq!(format!("{secret:?}"), "PartySecret(..)");
}
