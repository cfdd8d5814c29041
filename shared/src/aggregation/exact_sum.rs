//! Exact weighted sums of parameter sets.
//!
//! Floating-point addition depends on the order of its terms; the order in which updates arrive is chance.
//! So every weighted value is rounded once to a fixed-point integer and only integers are added: the sum is
//! bitwise the same for any arrival order, any number of threads and any merging of partial sums. Integers
//! are also what secure aggregation adds.

use models::params::{Array, IntegerSet, Integers, ParamSet};
use models::vectorised;

use super::{Scale, Template};
use crate::record::{Record, RecordError, ToRecord};

/// Values are rounded with the classic `x + 1.5 * 2^52` trick, which is exact below [`MAX_TERM_BITS`](super::scale::MAX_TERM_BITS) and
/// needs no float-to-integer instruction, so that the loop vectorises on every target.
///
/// `1.5 * 2^52`: adding it leaves the rounded integer in the low mantissa bits.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

/// Values of a mean that are made at once: they stay in the first-level cache.
pub(super) const CHUNK: usize = 4096;

/// A weighted sum of parameter sets that forgets the order of its terms.
#[derive(Clone, Debug, PartialEq)]
pub struct ExactSum {
    scale: Scale,
    sums: IntegerSet,
    weight: u128,
    terms: u64,
}

/// Why partial sums cannot be added.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MergeError {
    /// They were begun for different rounds, models or settings.
    #[error("the partial sums are of different rounds or models: {of}")]
    Different {
        /// What differs: the scale, a tensor, or another part.
        of: String,
    },
    /// Together they have more than the round's scale has room for, so one of them holds what no checked updates sum up to.
    #[error("the partial sums of tensor `{tensor}` exceed the scale of the round")]
    Overflow {
        /// The tensor.
        tensor: String,
    },
}

/// The mean of nothing was asked for.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("no update with a positive weight was accepted, so there is nothing to average")]
pub struct EmptySum;

impl ExactSum {
    /// The empty sum for parameter sets shaped like `template`.
    #[must_use]
    pub fn new(template: &Template, scale: Scale) -> Self {
        let sums = template.iter().map(|(name, shape)| (name.to_owned(), Integers::zeros(shape))).collect();
        Self { scale, sums, weight: 0, terms: 0 }
    }

    /// Adds `weight * params`.
    ///
    /// # Panics
    /// If `params` does not fit the template or exceeds the scale's bounds: [`Template::check`] and
    /// [`Scale`] are consulted before an update is believed, so this is our bug and never a peer's.
    pub fn add(&mut self, params: &ParamSet, weight: u64) {
        self.add_scaled(params, weight, |_| 1.0);
    }

    /// Adds `weight * params`, each tensor scaled by what `factor` gives for its name, from 0 to 1.
    ///
    /// # Panics
    /// As [`add`](Self::add).
    pub(super) fn add_scaled(&mut self, params: &ParamSet, weight: u64, factor: impl Fn(&str) -> f64) {
        assert!(weight <= self.scale.max_weight(), "weights are checked before folding");
        let unit = weight as f64 / self.scale.resolution();
        for (name, sum) in &mut self.sums {
            let sum = sum.values_mut();
            let values = params.get(name).expect("layout is checked before folding").values();
            assert_eq!(values.len(), sum.len(), "shape of {name} is checked before folding");
            add_rounded(sum, values, unit * factor(name));
        }
        self.weight += u128::from(weight);
        self.terms += 1;
    }

    /// Adds another partial sum of the same round.
    ///
    /// # Errors
    /// [`MergeError`] if the two do not belong together. The sum must not be used any more after [`MergeError::Overflow`].
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        if self.scale != other.scale {
            return Err(MergeError::Different { of: "the fixed-point scale".to_owned() });
        }
        self.check_same_layout(other)?;
        for ((tensor, into), from) in self.sums.iter_mut().zip(other.sums.values()) {
            if add_checked(into.values_mut(), from.values()) {
                return Err(MergeError::Overflow { tensor: tensor.clone() });
            }
        }
        self.weight = self.weight.saturating_add(other.weight);
        self.terms = self.terms.saturating_add(other.terms);
        Ok(())
    }

    /// Whether both have the same tensors.
    pub(super) fn check_same_layout(&self, other: &Self) -> Result<(), MergeError> {
        let layout = |sums: &IntegerSet| -> Vec<(String, Vec<usize>)> {
            sums.iter().map(|(name, sum)| (name.clone(), sum.shape().to_vec())).collect()
        };
        let (own, others) = (layout(&self.sums), layout(&other.sums));
        let differs = own.iter().zip(&others).find(|(own, other)| own != other).map(|(own, _)| own);
        match differs.or_else(|| own.get(others.len())).or_else(|| others.get(own.len())) {
            None => Ok(()),
            Some((tensor, _)) => Err(MergeError::Different { of: format!("tensor `{tensor}`") }),
        }
    }

    /// The whole numbers themselves, tensor by tensor: what secure aggregation hides. They add up modulo 2^64.
    pub(crate) fn numbers(&mut self) -> impl Iterator<Item = (&str, &mut [i64])> {
        self.sums.iter_mut().map(|(name, sum)| (name.as_str(), sum.values_mut()))
    }

    /// The first tensor with a sum that no checked updates of this number of devices add up to.
    pub(crate) fn first_impossible(&self, terms: u64) -> Option<&str> {
        // Every term is rounded by half a unit at most.
        let each = self.scale.largest_term() + 0.5;
        let bound = terms as f64 * each * (1.0 + f64::EPSILON * 4.0);
        let fits = |sum: &Integers| sum.values().iter().all(|&sum| sum.unsigned_abs() as f64 <= bound);
        self.sums.iter().find(|(_, sum)| !fits(sum)).map(|(name, _)| name.as_str())
    }

    /// Takes the sum of the weights out.
    pub(super) fn take_weight(&mut self) -> u128 {
        std::mem::take(&mut self.weight)
    }

    /// Adds to the sum of the weights.
    pub(super) fn add_weight(&mut self, weight: u128) {
        self.weight = self.weight.saturating_add(weight);
    }

    /// Number of contributions.
    #[must_use]
    pub fn terms(&self) -> u64 {
        self.terms
    }

    /// Gives the weighted mean to `visit`, tensor by tensor in the order of their names and each in chunks: its name, the
    /// offset of the chunk's first value, the values. Each tensor's sum is freed when it is done: with large models it is
    /// memory that counts.
    pub fn each_mean(self, visit: impl FnMut(&str, usize, &[f32])) -> Result<(), EmptySum> {
        let unit = self.unit()?;
        self.each_multiple(unit, visit);
        Ok(())
    }

    /// The same of the sum that `change` has made another one of, over a number that stands for the weights: also of no update at all.
    pub(super) fn each_share(
        mut self,
        change: impl FnOnce(&mut IntegerSet, Scale),
        over: f64,
        visit: impl FnMut(&str, usize, &[f32]),
    ) {
        change(&mut self.sums, self.scale);
        let unit = self.resolution() / over;
        self.each_multiple(unit, visit);
    }

    /// Gives `unit` times the sum to `visit`.
    fn each_multiple(self, unit: f64, mut visit: impl FnMut(&str, usize, &[f32])) {
        let mut mean = Vec::with_capacity(CHUNK);
        for (name, sum) in self.sums {
            for (index, totals) in sum.values().chunks(CHUNK).enumerate() {
                mean.clear();
                mean.extend(totals.iter().map(|&total| (total as f64 * unit) as f32));
                visit(&name, index * CHUNK, &mean);
            }
        }
    }

    /// What the sum and `others`, of the same template, are tensor by tensor.
    pub(super) fn beside(self, others: Vec<Self>) -> impl Iterator<Item = (String, Integers, Vec<Integers>)> {
        let mut others: Vec<_> = others.into_iter().map(|other| other.sums.into_values()).collect();
        self.sums.into_iter().map(move |(name, sum)| {
            let next = others
                .iter_mut()
                .map(|other| other.next().expect("sums of one template have as many tensors"));
            (name, sum, next.collect())
        })
    }

    /// The empty sum of the same template in another scale.
    pub(super) fn emptied(&self, scale: Scale) -> Self {
        let empty = |(name, sum): (&String, &Integers)| (name.clone(), Integers::zeros(sum.shape()));
        Self { scale, sums: self.sums.iter().map(empty).collect(), weight: 0, terms: 0 }
    }

    /// The sum of the weights.
    #[must_use]
    pub fn weight(&self) -> u128 {
        self.weight
    }

    /// The fixed-point format.
    pub(super) fn scale(&self) -> Scale {
        self.scale
    }

    /// One unit of the sum in terms of `value * weight`.
    pub(super) fn resolution(&self) -> f64 {
        self.scale.resolution()
    }

    /// What one unit of the sum is worth in the mean.
    fn unit(&self) -> Result<f64, EmptySum> {
        if self.weight == 0 {
            return Err(EmptySum);
        }
        Ok(self.scale.resolution() / self.weight as f64)
    }

    /// The weighted mean, consuming the sum tensor by tensor.
    pub fn mean(self) -> Result<ParamSet, EmptySum> {
        let unit = self.unit()?;
        let mut mean = ParamSet::new();
        for (name, sum) in self.sums {
            let (shape, sum) = sum.into_parts();
            let values = sum.iter().map(|&total| (total as f64 * unit) as f32).collect();
            mean.insert(&name, Array::new(shape, values).expect("the sum has the template's shape"));
        }
        Ok(mean)
    }
}

/// The accumulators under their tensors' names; scale, weight and number of terms as scalars.
impl ToRecord for ExactSum {
    fn into_record(self) -> Record {
        let Self { scale, sums, weight, terms } = self;
        Record { integers: sums, ..Record::with_scalars(ParamSet::new(), &(scale, weight, terms)) }
    }

    fn from_record(record: Record) -> Result<Self, RecordError> {
        const EXPECTED: &str = "an exact sum";
        let (scale, weight, terms) = record.scalars(EXPECTED)?;
        if !record.tensors.is_empty() {
            return Err(RecordError::Incomplete { expected: EXPECTED });
        }
        Ok(Self { scale, sums: record.integers, weight, terms })
    }
}

/// `into[i] += from[i]`; says whether any sum has overflowed.
fn add_checked(into: &mut [i64], from: &[i64]) -> bool {
    vectorised(
        #[inline(always)]
        || {
            // The sign bit of this is set where both terms have a sign that their sum does not have.
            let mut overflow = 0;
            for (into, &from) in into.iter_mut().zip(from) {
                let sum = into.wrapping_add(from);
                overflow |= (sum ^ *into) & (sum ^ from);
                *into = sum;
            }
            overflow < 0
        },
    )
}

/// `sum[i] += round(values[i] * factor)`, the aggregator's one hot loop.
fn add_rounded(sum: &mut [i64], values: &[f32], factor: f64) {
    vectorised(
        #[inline(always)]
        || {
            for (total, &value) in sum.iter_mut().zip(values) {
                let rounded = (f64::from(value) * factor + ROUNDER).to_bits().cast_signed();
                *total = total.wrapping_add(rounded.wrapping_sub(ROUNDER.to_bits().cast_signed()));
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(values: &[f32]) -> ParamSet {
        let mut params = ParamSet::new();
        params.insert("w", Array::new(vec![values.len()], values.to_vec()).expect("one axis"));
        params
    }

    fn empty(width: usize, scale: Scale) -> ExactSum {
        ExactSum::new(&Template::of(&set(&vec![0.0; width])), scale)
    }

    #[test]
    fn the_mean_of_hand_made_terms() {
        let mut sum = empty(2, Scale::agree(16.0, 3, 2));
        sum.add(&set(&[1.0, -8.0]), 1);
        sum.add(&set(&[5.0, 16.0]), 3);
        assert_eq!(sum.terms(), 2);
        assert_eq!(sum.mean().expect("weights are positive"), set(&[4.0, 10.0]));
    }

    #[test]
    fn the_mean_of_nothing_is_an_error() {
        assert_eq!(empty(1, Scale::agree(1.0, 1, 1)).mean(), Err(EmptySum));
        let mut weightless = empty(1, Scale::agree(1.0, 1, 1));
        weightless.add(&set(&[1.0]), 0);
        assert_eq!(weightless.mean(), Err(EmptySum));
    }

    #[test]
    fn the_mean_in_chunks_is_the_mean() {
        let values: Vec<f32> = (0..2 * CHUNK + 5).map(|i| i as f32 * 0.37 - 900.0).collect();
        let mut sum = empty(values.len(), Scale::agree(4096.0, 3, 2));
        sum.add(&set(&values), 1);
        sum.add(&set(&vec![5.0; values.len()]), 3);
        let mean = sum.clone().mean().expect("weights are positive");
        let (mut found, mut offsets) = (Vec::new(), Vec::new());
        let visit = |name: &str, offset: usize, chunk: &[f32]| {
            assert_eq!(name, "w");
            offsets.push(offset);
            found.extend_from_slice(chunk);
        };
        sum.each_mean(visit).expect("weights are positive");
        assert_eq!(found, mean.get("w").expect("one tensor").values());
        assert_eq!(offsets, [0, CHUNK, 2 * CHUNK]);
        let nothing = empty(2, Scale::agree(1.0, 1, 1)).each_mean(|_, _, _| panic!("there is no mean"));
        assert_eq!(nothing, Err(EmptySum));
    }

    #[test]
    fn sums_that_do_not_belong_together_are_not_merged() {
        let scale = Scale::agree(1.0, 1, 4);
        let different = |of: &str| Err(MergeError::Different { of: of.to_owned() });
        assert_eq!(empty(1, scale).merge(&empty(2, scale)), different("tensor `w`"));
        assert_eq!(
            empty(1, scale).merge(&empty(1, Scale::agree(2.0, 1, 4))),
            different("the fixed-point scale")
        );
        let other = ExactSum { sums: IntegerSet::new(), ..empty(1, scale) };
        assert_eq!(empty(1, scale).merge(&other), different("tensor `w`"));
        assert_eq!(other.clone().merge(&empty(1, scale)), different("tensor `w`"));
        for extreme in [i64::MAX, i64::MIN] {
            let mut sum = empty(3, scale);
            sum.sums.get_mut("w").expect("its tensor").values_mut()[1] = extreme;
            assert_eq!(sum.clone().merge(&empty(3, scale)), Ok(()));
            let overflow = MergeError::Overflow { tensor: "w".to_owned() };
            assert_eq!(sum.clone().merge(&sum), Err(overflow));
        }
    }

    #[test]
    fn extreme_terms_do_not_overflow() {
        let terms = 5000;
        let scale = Scale::agree(1024.0, 1 << 20, terms);
        let mut sum = empty(2, scale);
        for _ in 0..terms {
            sum.add(&set(&[1024.0, -1024.0]), 1 << 20);
        }
        assert_eq!(sum.mean().expect("weights are positive"), set(&[1024.0, -1024.0]));
    }

    proptest! {
        #[test]
        fn any_order_and_any_merging_give_the_same_bits(
            terms in prop::collection::vec((prop::array::uniform3(-1024f32..1024.0), 0u64..5000), 1..40),
            cut in any::<prop::sample::Index>(),
            seed in any::<u64>(),
        ) {
            let scale = Scale::agree(1024.0, 5000, terms.len());
            let mut forward = empty(3, scale);
            for (values, weight) in &terms {
                forward.add(&set(values), *weight);
            }
            let mut shuffled = terms.clone();
            crate::seed::shuffle(&mut shuffled, &mut crate::seed::Seed::root(seed).rng());
            let (left, right) = shuffled.split_at(cut.index(terms.len()));
            let mut merged = empty(3, scale);
            let mut other = empty(3, scale);
            for (values, weight) in left {
                merged.add(&set(values), *weight);
            }
            for (values, weight) in right {
                other.add(&set(values), *weight);
            }
            merged.merge(&other).expect("sums of one round");
            prop_assert_eq!(&merged, &forward);
        }

        #[test]
        fn the_mean_is_the_real_mean_to_f32_precision(
            terms in prop::collection::vec((-2f32..2.0, 1u64..5000), 1..40),
        ) {
            let mut sum = empty(1, Scale::agree(1024.0, 5000, terms.len()));
            for (value, weight) in &terms {
                sum.add(&set(&[*value]), *weight);
            }
            let total: f64 = terms.iter().map(|(_, w)| *w as f64).sum();
            let mean: f64 = terms.iter().map(|(v, w)| f64::from(*v) * *w as f64).sum::<f64>() / total;
            let got = sum.mean().expect("weights are positive");
            let got = f64::from(got.get("w").expect("one tensor").values()[0]);
            prop_assert!((got - mean).abs() <= 1e-9 + mean.abs() * 1e-7, "{} against {}", got, mean);
        }
    }
}
