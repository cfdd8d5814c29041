//! The arithmetic of parameter sets: a few small verbs, paired by name, from which the algorithms are written.

use std::collections::BTreeMap;
use std::mem;

use super::{Array, ParamSet};

/// Two parameter sets that should have the same tensors do not; names the first tensor, in name order, that differs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tensor `{tensor}` {kind}")]
pub struct Mismatch {
    /// The name of the tensor.
    pub tensor: String,
    /// How the other set departs from the expected one.
    pub kind: MismatchKind,
}

/// How a tensor of a found set departs from the expected set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MismatchKind {
    /// The expected set has it, the found one does not.
    #[error("is missing")]
    Missing,
    /// The found set has it, the expected one does not.
    #[error("is not one of the expected tensors")]
    Extra,
    /// Both have it, with different shapes.
    #[error("has the shape {found:?} instead of {expected:?}")]
    Shape {
        /// The shape in the expected set.
        expected: Vec<usize>,
        /// The shape in the found set.
        found: Vec<usize>,
    },
}

impl Mismatch {
    pub(crate) fn missing(tensor: &str) -> Self {
        Self { tensor: tensor.to_owned(), kind: MismatchKind::Missing }
    }

    pub(crate) fn extra(tensor: &str) -> Self {
        Self { tensor: tensor.to_owned(), kind: MismatchKind::Extra }
    }

    pub(crate) fn shape(tensor: &str, expected: &[usize], found: &[usize]) -> Self {
        let kind = MismatchKind::Shape { expected: expected.to_vec(), found: found.to_vec() };
        Self { tensor: tensor.to_owned(), kind }
    }
}

impl ParamSet {
    /// A set of the same names and shapes, all zero.
    #[must_use]
    pub fn zeros_like(&self) -> Self {
        self.iter().map(|(name, array)| (name.to_owned(), Array::zeros(array.shape()))).collect()
    }

    /// Checks that `found` has exactly the names and shapes of this set, which is the expected one.
    ///
    /// # Errors
    /// [`Mismatch`] for the first tensor, in name order, that differs.
    pub fn check_same_layout(&self, found: &Self) -> Result<(), Mismatch> {
        let mut expected = self.iter().peekable();
        let mut others = found.iter().peekable();
        loop {
            match (expected.peek(), others.peek()) {
                (None, None) => return Ok(()),
                (Some((name, _)), None) => return Err(Mismatch::missing(name)),
                (None, Some((name, _))) => return Err(Mismatch::extra(name)),
                (Some((name, _)), Some((other, _))) if name < other => return Err(Mismatch::missing(name)),
                (Some((name, _)), Some((other, _))) if name > other => return Err(Mismatch::extra(other)),
                (Some((name, array)), Some((_, other))) => {
                    if array.shape() != other.shape() {
                        return Err(Mismatch::shape(name, array.shape(), other.shape()));
                    }
                    expected.next();
                    others.next();
                }
            }
        }
    }

    /// `self += other`.
    ///
    /// # Errors
    /// [`Mismatch`] if the layouts differ; the set is then unchanged.
    pub fn add(&mut self, other: &Self) -> Result<(), Mismatch> {
        self.combine(other, |own, other| own + other)
    }

    /// `self += factor * other`.
    ///
    /// # Errors
    /// [`Mismatch`] if the layouts differ; the set is then unchanged.
    pub fn add_scaled(&mut self, factor: f32, other: &Self) -> Result<(), Mismatch> {
        self.combine(other, |own, other| own + factor * other)
    }

    /// `self *= factor`.
    pub fn scale(&mut self, factor: f32) {
        for (_, array) in self.iter_mut() {
            for value in array.values_mut() {
                *value *= factor;
            }
        }
    }

    /// `self - base`: what was learned since `base`. In this set's own memory: clone it to keep it.
    ///
    /// # Errors
    /// [`Mismatch`] if the layouts differ, seen from `base` as the expected one.
    pub fn difference(mut self, base: &Self) -> Result<Self, Mismatch> {
        base.check_same_layout(&self)?;
        self.combine(base, |own, base| own - base)?;
        Ok(self)
    }

    /// The Euclidean distance between two sets seen as one long vector each, summed in `f64` in name order.
    ///
    /// # Errors
    /// [`Mismatch`] if the layouts differ.
    pub fn distance(&self, other: &Self) -> Result<f64, Mismatch> {
        self.check_same_layout(other)?;
        let mut sum = 0.0f64;
        for ((_, own), (_, other)) in self.iter().zip(other) {
            for (&a, &b) in own.values().iter().zip(other.values()) {
                let difference = f64::from(a) - f64::from(b);
                sum += difference * difference;
            }
        }
        Ok(sum.sqrt())
    }

    /// The Euclidean norm of the set seen as one long vector, summed in `f64` in name order.
    #[must_use]
    pub fn l2_norm(&self) -> f64 {
        let mut sum = 0.0f64;
        for (_, array) in self {
            for &value in array.values() {
                sum += f64::from(value) * f64::from(value);
            }
        }
        sum.sqrt()
    }

    /// The largest absolute value, 0 for a set without values. NaN is ignored: ask [`ParamSet::first_non_finite`].
    #[must_use]
    pub fn max_abs(&self) -> f32 {
        self.iter().flat_map(|(_, array)| array.values()).fold(0.0, |max, value| max.max(value.abs()))
    }

    /// The name of the first tensor, in name order, that holds a NaN or an infinity.
    #[must_use]
    pub fn first_non_finite(&self) -> Option<&str> {
        self.iter()
            .find(|(_, array)| !array.values().iter().all(|value| value.is_finite()))
            .map(|(name, _)| name)
    }

    /// The tensors whose names begin with `prefix`, under their full names. Give the dot, as in `head.`.
    #[must_use]
    pub fn select(&self, prefix: &str) -> Self {
        self.iter()
            .filter(|(name, _)| name.starts_with(prefix))
            .map(|(name, array)| (name.to_owned(), array.clone()))
            .collect()
    }

    /// Replaces the tensors that `other` names, and leaves the rest alone.
    ///
    /// # Errors
    /// [`Mismatch`] if `other` names a tensor that is not here or has another shape; the set is then unchanged.
    pub fn overlay(&mut self, other: Self) -> Result<(), Mismatch> {
        for (name, array) in &other {
            let own = self.get(name).ok_or_else(|| Mismatch::extra(name))?;
            if own.shape() != array.shape() {
                return Err(Mismatch::shape(name, own.shape(), array.shape()));
            }
        }
        self.arrays.extend(other);
        Ok(())
    }

    /// Puts the tensors of `other` in under `prefix` and their names: a second set beside the first. What has such a
    /// name already is replaced.
    pub fn insert_under(&mut self, prefix: &str, other: Self) {
        self.arrays.extend(other.into_iter().map(|(name, array)| (format!("{prefix}{name}"), array)));
    }

    /// Takes out the tensors whose names begin with `prefix`, and names them without it: what
    /// [`ParamSet::insert_under`] has put in.
    #[must_use]
    pub fn take_under(&mut self, prefix: &str) -> Self {
        let (under, rest): (BTreeMap<String, Array>, _) =
            mem::take(&mut self.arrays).into_iter().partition(|(name, _)| name.starts_with(prefix));
        self.arrays = rest;
        under.into_iter().map(|(name, array)| (name[prefix.len()..].to_owned(), array)).collect()
    }

    /// Replaces each value by `f(own, other's)`, after checking every name and shape.
    fn combine(&mut self, other: &Self, f: impl Fn(f32, f32) -> f32) -> Result<(), Mismatch> {
        self.check_same_layout(other)?;
        for ((_, own), (_, other)) in self.iter_mut().zip(other) {
            own.combine(other, &f);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(tensors: &[(&str, &[f32])]) -> ParamSet {
        tensors
            .iter()
            .map(|&(name, values)| (name.to_owned(), Array::new([values.len()], values.to_vec()).unwrap()))
            .collect()
    }

    #[test]
    fn verbs_do_what_their_formulas_say() {
        let a = set(&[("u", &[1.0, -2.0]), ("v", &[3.0])]);
        let b = set(&[("u", &[0.5, 4.0]), ("v", &[-1.0])]);
        let mut sum = a.clone();
        sum.add(&b).unwrap();
        assert_eq!(sum, set(&[("u", &[1.5, 2.0]), ("v", &[2.0])]));
        let mut axpy = a.clone();
        axpy.add_scaled(-2.0, &b).unwrap();
        assert_eq!(axpy, set(&[("u", &[0.0, -10.0]), ("v", &[5.0])]));
        let mut scaled = a.clone();
        scaled.scale(0.5);
        assert_eq!(scaled, set(&[("u", &[0.5, -1.0]), ("v", &[1.5])]));
        assert_eq!(a.clone().difference(&b).unwrap(), set(&[("u", &[0.5, -6.0]), ("v", &[4.0])]));
        assert_eq!(a.zeros_like(), set(&[("u", &[0.0, 0.0]), ("v", &[0.0])]));
        assert_eq!(a.max_abs(), 3.0);
    }

    #[test]
    fn norms_accumulate_in_f64() {
        assert_eq!(set(&[("u", &[3.0]), ("v", &[4.0])]).l2_norm(), 5.0);
        assert_eq!(set(&[("u", &[3.0])]).distance(&set(&[("u", &[-1.0])])).unwrap(), 4.0);
        // 2^24 + 1 ones would stop growing at 2^24 in f32, and 1e20 squared is infinite there.
        let ones = set(&[("u", &vec![1.0; (1 << 24) + 1])]);
        assert_eq!(ones.l2_norm().powi(2).round(), f64::from((1 << 24) + 1));
        assert!((set(&[("u", &[1e20, 1e20])]).l2_norm() / (1e20 * 2f64.sqrt()) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn a_mismatch_names_the_tensor_and_leaves_the_set_alone() {
        let a = set(&[("a", &[1.0]), ("c", &[1.0])]);
        let check = |found: &ParamSet| a.check_same_layout(found).unwrap_err();
        assert_eq!(check(&set(&[("a", &[1.0])])), Mismatch::missing("c"));
        assert_eq!(check(&set(&[("c", &[1.0])])), Mismatch::missing("a"));
        assert_eq!(check(&set(&[("a", &[1.0]), ("b", &[1.0]), ("c", &[1.0])])), Mismatch::extra("b"));
        assert_eq!(check(&set(&[("a", &[1.0]), ("c", &[1.0]), ("d", &[1.0])])), Mismatch::extra("d"));
        let wrong = set(&[("a", &[1.0]), ("c", &[1.0, 2.0])]);
        assert_eq!(check(&wrong), Mismatch::shape("c", &[1], &[2]));
        assert_eq!(check(&wrong).to_string(), "tensor `c` has the shape [2] instead of [1]");

        let mut kept = a.clone();
        assert!(kept.add(&wrong).is_err());
        assert!(kept.overlay(wrong).is_err());
        assert_eq!(kept.overlay(set(&[("a", &[5.0]), ("z", &[1.0])])), Err(Mismatch::extra("z")));
        assert_eq!(kept, a);
        // Seen from the base, which is the expected one.
        assert_eq!(set(&[("a", &[1.0])]).difference(&a), Err(Mismatch::missing("c")));
    }

    #[test]
    fn the_same_values_under_the_same_number_of_other_names_do_not_pair() {
        assert!(set(&[("a", &[1.0])]).add(&set(&[("b", &[1.0])])).is_err());
    }

    #[test]
    fn select_and_overlay_are_inverse() {
        let all = set(&[("extractor.w", &[1.0]), ("head.w", &[2.0]), ("header", &[3.0])]);
        let head = all.select("head.");
        assert_eq!(head, set(&[("head.w", &[2.0])]));
        let mut other = set(&[("extractor.w", &[7.0]), ("head.w", &[8.0]), ("header", &[9.0])]);
        other.overlay(head).unwrap();
        assert_eq!(other, set(&[("extractor.w", &[7.0]), ("head.w", &[2.0]), ("header", &[9.0])]));
    }

    #[test]
    fn a_set_under_a_prefix_comes_out_as_it_went_in() {
        let model = set(&[("a.w", &[1.0]), ("head.w", &[2.0]), ("z", &[3.0])]);
        let control = set(&[("", &[4.0]), ("a.w", &[5.0]), ("control.b", &[6.0])]);
        let mut both = model.clone();
        both.insert_under("control.", control.clone());
        let names: Vec<_> = both.names().collect();
        assert_eq!(names, ["a.w", "control.", "control.a.w", "control.control.b", "head.w", "z"]);
        assert_eq!(both.take_under("control."), control);
        assert_eq!(both, model);
        assert_eq!(both.take_under("control."), ParamSet::new());
        assert_eq!(both, model);
    }

    #[test]
    fn non_finite_values_are_found_by_name() {
        assert_eq!(set(&[("a", &[1.0]), ("b", &[f32::MAX])]).first_non_finite(), None);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(
                set(&[("a", &[1.0]), ("b", &[0.0, bad]), ("c", &[bad])]).first_non_finite(),
                Some("b")
            );
        }
    }
}
