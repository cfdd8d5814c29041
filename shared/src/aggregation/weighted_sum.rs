//! The sum of a round's updates under any of the [`Weights`].

use std::collections::BTreeMap;

use models::params::{IntegerSet, ParamSet};

use super::clipping::Clip;
use super::exact_sum::{CHUNK, EmptySum, ExactSum, MergeError};
use super::weights::{MAX_LOSS, SMALL_LOSS, Weights, whole_loss};
use super::{Private, Scale, Template};
use crate::record::{Record, RecordError, ToRecord};

/// The sum of a round's updates with any weights: mergeable, and independent of their order.
///
/// Weights by loss need every loss before any of them is known, and yet no update is kept: with two sums,
///
/// ```text
/// w_k = (1 - l_k / sum l) / (m - 1)
/// sum w_k psi_k = (sum psi_k - (sum l_k psi_k) / (sum l)) / (m - 1)
/// ```
///
/// where the `l_k` are whole numbers, so that both sums are exact. The resolution of a sum is shared out by the largest weight,
/// and of small losses a sum with room for the largest would keep nothing: the second sum is in two parts, of small and of
/// large losses, each of which exists once a client has such a loss. As a rule that is one.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedSum {
    /// `sum weight_k psi_k`.
    terms: ExactSum,
    /// `sum l_k psi_k`, if weights are by loss, by the largest `l_k` that a part has room for.
    by_loss: Option<BTreeMap<u64, ExactSum>>,
    /// The weights of these parts while they are [hidden](Self::hide): modulo 2^64, in the order of the parts.
    hidden: [i64; 2],
    /// The number of clipped terms that were within the bound, and lost nothing.
    within: u64,
}

/// What the parts by loss have room for.
const ROOMS: [u64; 2] = [SMALL_LOSS, MAX_LOSS];

impl WeightedSum {
    /// The empty sum for updates shaped like `template`.
    #[must_use]
    pub fn new(template: &Template, scale: Scale, weights: Weights) -> Self {
        let by_loss = matches!(weights, Weights::Loss).then(BTreeMap::new);
        Self { terms: ExactSum::new(template, scale), by_loss, hidden: [0; 2], within: 0 }
    }

    /// Adds an update with its weight ([`Weights::of`]) and its training loss. Says whether it counts: under weights by
    /// loss one without a loss (NaN, infinite, negative) is left out.
    ///
    /// # Panics
    /// As [`ExactSum::add`].
    pub fn add(&mut self, params: &ParamSet, weight: u64, loss: f64) -> bool {
        self.add_scaled(params, weight, loss, |_| 1.0)
    }

    /// [`add`](Self::add) of an update that is shortened to the bound if it is longer
    /// ([`Rule::ClippedMean`](super::Rule::ClippedMean)).
    ///
    /// # Panics
    /// As [`ExactSum::add`].
    pub fn add_clipped(&mut self, params: &ParamSet, weight: u64, loss: f64, clip: Clip<'_>) -> bool {
        let factor = clip.factor(params);
        self.within += u64::from(factor >= 1.0);
        self.add_scaled(params, weight, loss, |tensor| if clip.clips(tensor) { factor } else { 1.0 })
    }

    fn add_scaled(
        &mut self,
        params: &ParamSet,
        weight: u64,
        loss: f64,
        factor: impl Fn(&str) -> f64,
    ) -> bool {
        if let Some(by_loss) = &mut self.by_loss {
            let Some(loss) = whole_loss(loss) else { return false };
            let room = if loss <= SMALL_LOSS { SMALL_LOSS } else { MAX_LOSS };
            let empty = || self.terms.emptied(self.terms.scale().with_max_weight(room));
            // Nothing times anything is nothing.
            if loss > 0 {
                by_loss.entry(room).or_insert_with(empty).add_scaled(params, loss, &factor);
            }
        }
        self.terms.add_scaled(params, weight, factor);
        true
    }

    /// Adds another partial sum of the same round.
    ///
    /// # Errors
    /// As [`ExactSum::merge`], and if one of them has weights by loss and the other has not.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        match (&mut self.by_loss, &other.by_loss) {
            (None, None) => {}
            (Some(into), Some(other)) => {
                for (&room, other) in other {
                    let empty = || self.terms.emptied(self.terms.scale().with_max_weight(room));
                    into.entry(room).or_insert_with(empty).merge(other)?;
                }
            }
            _ => return Err(MergeError::Different { of: "the weights".to_owned() }),
        }
        for (into, from) in self.hidden.iter_mut().zip(&other.hidden) {
            *into = into.wrapping_add(*from);
        }
        self.within = self.within.saturating_add(other.within);
        self.terms.merge(&other.terms)
    }

    /// The whole numbers that secure aggregation hides, tensor by tensor: the sums and, of weights by loss, those of the losses as
    /// well. Both parts are there then, for any losses.
    pub(crate) fn numbers(&mut self) -> Vec<(String, &mut [i64])> {
        let Self { terms, by_loss, hidden, .. } = self;
        if let Some(by_loss) = by_loss {
            for room in ROOMS {
                let empty = || terms.emptied(terms.scale().with_max_weight(room));
                by_loss.entry(room).or_insert_with(empty);
            }
        }
        let losses = by_loss.is_some().then(|| (LOSSES.to_owned(), &mut hidden[..]));
        let parts = by_loss.iter_mut().flatten().flat_map(|(room, sum)| {
            sum.numbers().map(move |(name, values)| (format!("{BY_LOSS}{room}.{name}"), values))
        });
        let parts: Vec<_> = parts.chain(losses).collect();
        let terms = terms.numbers().map(|(name, values)| (format!("{TERMS}{name}"), values));
        terms.chain(parts).collect()
    }

    /// Moves the losses to the [numbers](Self::numbers) that are hidden.
    pub(crate) fn hide(&mut self) {
        for (room, sum) in self.by_loss.iter_mut().flatten() {
            let part = ROOMS.iter().position(|known| known == room).expect("parts are made for these rooms");
            // At most 2^32.
            self.hidden[part] = self.hidden[part].wrapping_add(sum.take_weight() as i64);
        }
    }

    /// Moves the losses back, once nothing hides them. The error names a tensor whose sum no checked updates have.
    pub(crate) fn reveal(&mut self) -> Result<(), String> {
        let terms = self.terms.terms();
        for (part, hidden) in ROOMS.iter().zip(std::mem::take(&mut self.hidden)) {
            let possible =
                (0..=terms.saturating_mul(*part).min(i64::MAX as u64).cast_signed()).contains(&hidden);
            if !possible {
                return Err(LOSSES.to_owned());
            }
            if let Some(sum) = self.by_loss.as_mut().and_then(|by_loss| by_loss.get_mut(part)) {
                sum.add_weight(hidden.unsigned_abs().into());
            }
        }
        let mut all = std::iter::once(&self.terms).chain(self.by_loss.iter().flatten().map(|(_, sum)| sum));
        let impossible = all.find_map(|sum| sum.first_impossible(terms));
        impossible.map_or(Ok(()), |tensor| Err(tensor.to_owned()))
    }

    /// Gives the mean with noise to `visit`, as [`ExactSum::each_mean`] does a mean.
    ///
    /// # Panics
    /// If weights are by loss: what a device's loss does to the others' weights is not bounded.
    pub fn each_private_mean(self, private: Private<'_>, round: u32, visit: impl FnMut(&str, usize, &[f32])) {
        assert!(self.by_loss.is_none(), "a configuration with both is refused");
        let count = (self.within, self.terms.terms());
        let noise = |sums: &mut IntegerSet, scale| private.add_noise(sums, scale, round, count);
        self.terms.each_share(noise, private.mechanism.expected(), visit);
    }

    /// Gives the sum over this number to `visit`, as [`ExactSum::each_mean`] does a mean.
    ///
    /// # Panics
    /// If weights are by loss.
    pub fn each_share(self, over: f64, visit: impl FnMut(&str, usize, &[f32])) {
        assert!(self.by_loss.is_none(), "a configuration with both is refused");
        self.terms.each_share(|_, _| {}, over, visit);
    }

    /// Gives the weighted mean to `visit`, as [`ExactSum::each_mean`] does.
    pub fn each_mean(self, mut visit: impl FnMut(&str, usize, &[f32])) -> Result<(), EmptySum> {
        let by_loss: Vec<ExactSum> = self.by_loss.into_iter().flatten().map(|(_, sum)| sum).collect();
        let losses: u128 = by_loss.iter().map(ExactSum::weight).sum();
        if self.terms.terms() < 2 || losses == 0 {
            // The weights are those of the terms, all alike if they are by loss and there is nothing to tell them by.
            return self.terms.each_mean(visit);
        }
        let others = 1.0 / (self.terms.terms() - 1) as f64;
        let unit = self.terms.resolution();
        let loss_units: Vec<f64> = by_loss.iter().map(|part| part.resolution() / losses as f64).collect();
        let (mut sums, mut mean) = (Vec::with_capacity(CHUNK), Vec::with_capacity(CHUNK));
        for (name, sum, by_loss) in self.terms.beside(by_loss) {
            for (index, sum) in sum.values().chunks(CHUNK).enumerate() {
                let offset = index * CHUNK;
                sums.clear();
                sums.extend(sum.iter().map(|&sum| sum as f64 * unit));
                for (part, loss_unit) in by_loss.iter().zip(&loss_units) {
                    let part = &part.values()[offset..];
                    sums.iter_mut().zip(part).for_each(|(sum, &part)| *sum -= part as f64 * loss_unit);
                }
                mean.clear();
                mean.extend(sums.iter().map(|sum| (others * sum) as f32));
                visit(&name, offset, &mean);
            }
        }
        Ok(())
    }
}

/// The prefix of the terms in a record.
const TERMS: &str = "terms.";
/// The prefix of a part by loss, before the largest loss that it has room for.
const BY_LOSS: &str = "by-loss-";
/// The name of the sums of the losses among numbers that are hidden.
const LOSSES: &str = "losses";

impl ToRecord for WeightedSum {
    fn into_record(self) -> Record {
        let scalars = (self.by_loss.is_some(), self.within, self.hidden);
        let parts = self.by_loss.into_iter().flatten().map(|(room, sum)| (format!("{BY_LOSS}{room}."), sum));
        let parts = parts.chain([(TERMS.to_owned(), self.terms)]);
        Record::join(&scalars, parts.map(|(prefix, sum)| (prefix, sum.into_record())))
    }

    fn from_record(record: Record) -> Result<Self, RecordError> {
        const EXPECTED: &str = "a weighted sum";
        let incomplete = || RecordError::Incomplete { expected: EXPECTED };
        let ((by_loss, within, hidden), mut parts): ((bool, u64, [i64; 2]), _) = record.split(EXPECTED)?;
        let terms = ExactSum::from_record(parts.remove(TERMS).ok_or_else(incomplete)?)?;
        let mut sums = BTreeMap::new();
        for room in [SMALL_LOSS, MAX_LOSS] {
            let Some(part) = parts.remove(&format!("{BY_LOSS}{room}.")) else { continue };
            let part = ExactSum::from_record(part)?;
            let fits = part.scale() == terms.scale().with_max_weight(room);
            part.check_same_layout(&terms).ok().filter(|()| by_loss && fits).ok_or_else(incomplete)?;
            sums.insert(room, part);
        }
        if parts.is_empty() {
            Ok(Self { terms, by_loss: by_loss.then_some(sums), hidden, within })
        } else {
            Err(incomplete())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::params::Array;
    use proptest::prelude::*;

    fn set(values: &[f32]) -> ParamSet {
        let mut params = ParamSet::new();
        params.insert("w", Array::new(vec![values.len()], values.to_vec()).expect("one axis"));
        params
    }

    /// The mean of these terms, `(value, loss)`.
    fn by_loss(terms: &[(f32, f64)]) -> Result<f32, EmptySum> {
        let template = Template::of(&set(&[0.0]));
        let mut sum = WeightedSum::new(&template, Scale::agree(1000.0, 1, terms.len()), Weights::Loss);
        for &(value, loss) in terms {
            sum.add(&set(&[value]), 1, loss);
        }
        let mut mean = None;
        sum.each_mean(|_, _, values| mean = Some(values[0]))?;
        Ok(mean.expect("one value"))
    }

    /// The weight of each client, found by giving it alone the value 1.
    fn weights(losses: &[f64]) -> Vec<f32> {
        let weight = |k: usize| {
            let terms: Vec<_> =
                losses.iter().enumerate().map(|(j, &loss)| (f32::from(j == k), loss)).collect();
            by_loss(&terms).expect("terms")
        };
        (0..losses.len()).map(weight).collect()
    }

    #[test]
    fn weights_by_loss_are_those_of_the_paper() {
        // (1 - 1/6) / 2, (1 - 2/6) / 2, (1 - 3/6) / 2.
        for (found, expected) in weights(&[1.0, 2.0, 3.0]).iter().zip([5.0 / 12.0, 4.0 / 12.0, 3.0 / 12.0]) {
            assert!((found - expected as f32).abs() < 1e-7, "{found}, {expected}");
        }
        assert_eq!(weights(&[0.7; 4]), [0.25; 4], "equal losses are equal weights");
        assert_eq!(weights(&[0.0; 5]), [0.2; 5], "no losses are equal weights");
        assert_eq!(weights(&[3.0]), [1.0], "one client counts 1");
        assert_eq!(weights(&[0.0]), [1.0]);
        assert_eq!(weights(&[0.0, 5.0]), [1.0, 0.0], "of two, the other's loss counts");
    }

    #[test]
    fn small_losses_weigh_as_large_ones_do() {
        // A model that has learned all there is to learn, with the bounds of any other.
        for (losses, clients) in [(1e-6, 2), (1e-6, 10), (1e-7, 3), (0.003, 4)] {
            let value = 1e-5_f32;
            let mean = by_loss(&vec![(value, losses); clients]).expect("terms");
            assert!((mean / value - 1.0).abs() < 2e-3, "{losses}, {clients} clients: {mean}");
        }
        // (1 - 1/4) and (1 - 3/4); one of them small and the other large.
        for (unit, tolerance) in [(1e-5, 1e-3), (0.0019, 1e-4)] {
            let found = by_loss(&[(1e-3, unit), (0.0, 3.0 * unit)]).expect("terms");
            assert!((found / 0.75e-3 - 1.0).abs() < tolerance, "{unit}: {found}");
        }
    }

    #[test]
    fn who_has_no_loss_is_left_out() {
        let template = Template::of(&set(&[0.0]));
        for bad in [f64::NAN, f64::INFINITY, -1.0] {
            let mut sum = WeightedSum::new(&template, Scale::agree(1.0, 1, 2), Weights::Loss);
            assert!(!sum.add(&set(&[1.0]), 1, bad), "{bad}");
            assert_eq!(by_loss(&[(1.0, 1.0), (7.0, bad), (4.0, 2.0)]), by_loss(&[(1.0, 1.0), (4.0, 2.0)]));
            assert_eq!(by_loss(&[(1.0, bad)]), Err(EmptySum));
            // Other weights do not ask for the loss.
            let mut sum = WeightedSum::new(&template, Scale::agree(1.0, 1, 2), Weights::Uniform);
            assert!(sum.add(&set(&[1.0]), 1, bad));
        }
    }

    proptest! {
        #[test]
        fn weights_by_loss_sum_to_one_and_fall_with_the_loss(
            losses in prop::collection::vec(prop_oneof![0.0..300f64, 0.0..0.01], 2..12),
        ) {
            let weights = weights(&losses);
            let sum: f32 = weights.iter().sum();
            prop_assert!((sum - 1.0).abs() < 1e-5, "{sum}");
            for (a, &w_a) in losses.iter().zip(&weights) {
                for (b, &w_b) in losses.iter().zip(&weights) {
                    prop_assert!(a > b || w_a >= w_b - 1e-7, "{a}: {w_a}, {b}: {w_b}");
                }
            }
        }

        #[test]
        fn any_order_and_any_merging_give_the_same_bits(
            terms in prop::collection::vec((-1000f32..1000.0, prop_oneof![0.0..10f64, 0.0..0.01]), 2..30),
            cut in any::<prop::sample::Index>(),
            seed in any::<u64>(),
        ) {
            let template = Template::of(&set(&[0.0]));
            let empty = || WeightedSum::new(&template, Scale::agree(1000.0, 1, terms.len()), Weights::Loss);
            let mut forward = empty();
            for &(value, loss) in &terms {
                forward.add(&set(&[value]), 1, loss);
            }
            let mut shuffled = terms.clone();
            crate::seed::shuffle(&mut shuffled, &mut crate::seed::Seed::root(seed).rng());
            let (left, right) = shuffled.split_at(cut.index(terms.len()));
            let mut parts = [left, right].map(|part| {
                let mut sum = empty();
                for &(value, loss) in part {
                    sum.add(&set(&[value]), 1, loss);
                }
                sum
            });
            let [merged, other] = &mut parts;
            merged.merge(other).expect("sums of one round");
            let merged = WeightedSum::from_record(merged.clone().into_record()).expect("its own record");
            prop_assert_eq!(&merged, &forward);
        }
    }
}
