//! Which clients' models help others, and whom they help.

use std::collections::BTreeMap;

use models::params::ParamSet;
use models::{Batch, Mode, ModelError, Network, pseudo_label};

use crate::algorithm::{Client, Round, TrainError};
use crate::id::ClientId;
use crate::record::{Record, RecordError, ToRecord};
use crate::seed::{Seed, standard_normal};
use crate::spec::RunSpec;

/// Prefix of the names of a helper's tensors; then come its tag in sixteen hexadecimal digits and a dot.
const HELPER: &str = "helper.";

/// Pseudonym of a client in one round: the client knows its own, and it reveals nothing to a party that does not know the id. Drawn at
/// random, so that those with the smallest tags are a sample of the cohort.
type Tag = u64;

/// What tags of a round are drawn from.
fn tags(spec: &RunSpec, round: u32) -> Seed {
    spec.root_seed().derive_numbered("helpers of round", u64::from(round))
}

fn tag(tags: &Seed, client: ClientId) -> Tag {
    let drawn = tags.derive_bytes("client", client.as_bytes());
    drawn.as_bytes().iter().take(8).fold(0, |tag, &byte| tag << 8 | Tag::from(byte))
}

/// What helpers are picked from: the part that each of a few clients has trained.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Bank {
    /// The round that they are of; 0 without any.
    round: u32,
    psi: BTreeMap<Tag, ParamSet>,
}

impl Bank {
    pub(super) fn is_empty(&self) -> bool {
        self.psi.is_empty()
    }

    /// The networks of the `most` helpers whose outputs for the fixed image are nearest to these, the nearest first. One's own
    /// model is no helper, and neither is one that computes no numbers: clients send what they like.
    pub(super) fn nearest(
        &self,
        sigma: &ParamSet,
        client: &Client<'_>,
        image: &FixedImage,
        outputs: &[f32],
        most: usize,
    ) -> Result<Vec<Network>, TrainError> {
        let spec = client.spec;
        let own = client.id.map(|id| tag(&tags(spec, self.round), id));
        let mut nearest: Vec<(f64, Network)> = Vec::new();
        for (_, psi) in self.psi.iter().filter(|(tag, _)| Some(**tag) != own) {
            let mut theta = sigma.clone();
            theta.add(psi).map_err(|mismatch| TrainError::Broadcast(mismatch.to_string()))?;
            let mut network = Network::new(&spec.architecture, &*client.start(&theta)?, client.device)?;
            let distance = squared_distance(&image.seen_by(&mut network)?, outputs);
            if distance.is_finite() {
                let at = nearest.partition_point(|(other, _)| *other <= distance);
                nearest.insert(at, (distance, network));
                nearest.truncate(most);
            }
        }
        Ok(nearest.into_iter().map(|(_, network)| network).collect())
    }
}

fn squared_distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum()
}

/// What stands for a client in this round.
pub(super) fn tag_of(round: &Round<'_>, client: ClientId) -> Tag {
    tag(&tags(round.spec, round.number), client)
}

/// Candidates for the next bank: of the clients whose updates have arrived, those with the smallest tags, in any order of arrival.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Candidates(BTreeMap<Tag, ParamSet>);

impl Candidates {
    pub(super) fn add(&mut self, client: Tag, delta: ParamSet, most: u32) {
        self.0.insert(client, delta);
        self.shorten(most);
    }

    pub(super) fn merge(&mut self, other: Self, most: u32) {
        self.0.extend(other.0);
        self.shorten(most);
    }

    fn shorten(&mut self, most: u32) {
        while self.0.len() > most as usize {
            self.0.pop_last();
        }
    }

    /// The bank of what they have trained from this `psi` on. Buffers that they have kept to themselves stay as in `psi`.
    pub(super) fn trained_from(self, psi: &ParamSet, round: u32) -> Bank {
        let sum = |(tag, delta): (Tag, ParamSet)| {
            let mut psi_k = psi.clone();
            for (name, array) in psi_k.iter_mut() {
                let moved = delta.get(name).map_or(&[][..], |moved| moved.values());
                array.values_mut().iter_mut().zip(moved).for_each(|(value, moved)| *value += moved);
            }
            (tag, psi_k)
        };
        Bank { round, psi: self.0.into_iter().map(sum).collect() }
    }
}

/// The helpers' tensors under their tags, and the round.
impl ToRecord for Bank {
    fn into_record(self) -> Record {
        let tensors = under_tags(self.psi);
        if tensors.is_empty() { Record::default() } else { Record::with_scalars(tensors, &self.round) }
    }

    fn from_record(record: Record) -> Result<Self, RecordError> {
        if record == Record::default() {
            return Ok(Self::default());
        }
        Ok(Self { round: record.scalars("a bank of helpers")?, psi: by_tag(record.tensors)? })
    }
}

/// The updates' tensors under their tags.
impl ToRecord for Candidates {
    fn into_record(self) -> Record {
        under_tags(self.0).into_record()
    }

    fn from_record(record: Record) -> Result<Self, RecordError> {
        Ok(Self(by_tag(ParamSet::from_record(record)?)?))
    }
}

fn under_tags(sets: BTreeMap<Tag, ParamSet>) -> ParamSet {
    let mut tensors = ParamSet::new();
    for (tag, set) in sets {
        tensors.insert_under(&format!("{HELPER}{tag:016x}."), set);
    }
    tensors
}

fn by_tag(mut tensors: ParamSet) -> Result<BTreeMap<Tag, ParamSet>, RecordError> {
    let mut sets = BTreeMap::new();
    while !tensors.is_empty() {
        let first = tensors.names().next().and_then(|name| name.get(..HELPER.len() + 17));
        let prefix = first.unwrap_or_default().to_owned();
        let digits = prefix.strip_prefix(HELPER).and_then(|rest| rest.strip_suffix('.'));
        let tag = digits.and_then(|digits| Tag::from_str_radix(digits, 16).ok());
        let tag = tag.ok_or(RecordError::Incomplete { expected: "a set of helpers" })?;
        sets.insert(tag, tensors.take_under(&prefix));
    }
    Ok(sets)
}

/// One image of Gaussian noise, the same for all clients of a run: models with the same predictions on it are taken to be alike.
pub(super) struct FixedImage(Batch);

impl FixedImage {
    pub(super) fn of(spec: &RunSpec) -> Result<Self, TrainError> {
        let input = &spec.architecture.input;
        let mut rng = spec.root_seed().derive("fixed image").rng();
        let x = (0..input.iter().product()).map(|_| standard_normal(&mut rng) as f32).collect();
        Ok(Self(Batch::unlabelled(x, [&[1], &input[..]].concat())?))
    }

    /// The probabilities that a network gives it.
    pub(super) fn seen_by(&self, network: &mut Network) -> Result<Vec<f32>, ModelError> {
        network.forward(self.0.x(), self.0.shape(), Mode::Evaluation)?;
        let logits = network.logits();
        let mut probabilities = vec![0.0; logits.len()];
        pseudo_label::add_probabilities(logits, logits.len(), &mut probabilities);
        Ok(probabilities)
    }
}

#[cfg(test)]
mod tests {
    use models::params::Array;

    use super::*;

    fn set(value: f32) -> ParamSet {
        let mut set = ParamSet::new();
        set.insert("w", Array::new([1], vec![value]).expect("one axis"));
        set
    }

    #[test]
    fn a_bank_is_the_same_sample_of_the_cohort_in_any_order_and_however_it_is_merged() {
        let spec = RunSpec::example("fedmatch");
        let tag = |number: u8, round| tag(&tags(&spec, round), ClientId::from_bytes([number; 16]));
        let of = |numbers: &mut dyn Iterator<Item = u8>, most, round| {
            let mut candidates = Candidates::default();
            numbers.for_each(|number| candidates.add(tag(number, round), set(f32::from(number)), most));
            candidates
        };
        let bank = |candidates: Candidates| candidates.trained_from(&set(100.0), 11);
        let all = bank(of(&mut (0..20), 20, 11));
        let chosen = bank(of(&mut (0..20), 3, 11));
        assert_eq!((all.psi.len(), chosen.psi.len(), chosen.round), (20, 3, 11));
        assert!(chosen.psi.iter().eq(all.psi.iter().take(3)));
        assert_eq!(bank(of(&mut (0..20).rev(), 3, 11)), chosen);
        for split in 0..20 {
            let mut halves = of(&mut (0..split), 3, 11);
            let other = of(&mut (split..20), 3, 11).into_record();
            halves.merge(Candidates::from_record(other).expect("its own record"), 3);
            assert_eq!(bank(halves), chosen);
        }
        for (number, psi) in (0..20).map(|number| (number, &all.psi[&tag(number, 11)])) {
            assert_eq!(psi, &set(100.0 + f32::from(number)), "what this client has trained");
        }
        let later = of(&mut (0..20), 3, 21);
        assert_ne!(bank(later).psi, chosen.psi, "others in another round");
    }

    #[test]
    fn banks_leave_as_records_and_nothing_else_is_taken_for_one() {
        let psi = BTreeMap::from([(7, set(1.0)), (u64::MAX, set(2.0))]);
        for bank in [Bank::default(), Bank { round: 3, psi }] {
            assert_eq!(Bank::from_record(bank.clone().into_record()).expect("a bank"), bank);
        }
        for name in ["helper.w", "helper.00000000000000zz.w", "w", "helper.é0000000000000000.w"] {
            let mut tensors = ParamSet::new();
            tensors.insert(name, Array::zeros([1]));
            assert!(Bank::from_record(Record::with_scalars(tensors.clone(), &3_u32)).is_err(), "{name}");
            assert!(Bank::from_record(Record { tensors, ..Record::default() }).is_err(), "{name}");
        }
    }
}
