//! Steps of the optimiser with a correction of the gradient, in one pass over the parameters.
//!
//! Each value is computed by itself, so that dividing long slices among threads changes no bit.

use std::ops::Range;

use rayon::prelude::*;

use super::update::{self, Moments, Step, TASK_VALUES};
use super::vectorised::vectorised;

/// Values per block, which the first-level cache holds from the correction to the step.
const BLOCK_VALUES: usize = 1 << 11;

/// The correction of the gradient of the values `w`: `pull (w - anchor) + shift`, of which either may be absent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CorrectionSlices<'a> {
    pub(crate) anchor: Option<(f32, &'a [f32])>,
    pub(crate) shift: Option<&'a [f32]>,
}

impl<'a> CorrectionSlices<'a> {
    pub(crate) fn is_none(&self) -> bool {
        self.anchor.is_none() && self.shift.is_none()
    }

    fn part(&self, start: usize, length: usize) -> Self {
        let part = |values: &'a [f32]| &values[start..start + length];
        Self { anchor: self.anchor.map(|(pull, anchor)| (pull, part(anchor))), shift: self.shift.map(part) }
    }

    /// `g <- scale g + pull (w - anchor) + shift`.
    fn add_to(&self, g: &mut [f32], w: &[f32], scale: f32) {
        match *self {
            Self { anchor: None, shift: None } => vectorised(
                #[inline(always)]
                || g.iter_mut().for_each(|g| *g *= scale),
            ),
            Self { anchor: Some((pull, anchor)), shift: None } => vectorised(
                #[inline(always)]
                || {
                    for ((g, w), a) in g.iter_mut().zip(w).zip(anchor) {
                        *g = scale * *g + pull * (w - a);
                    }
                },
            ),
            Self { anchor: None, shift: Some(shift) } => vectorised(
                #[inline(always)]
                || g.iter_mut().zip(shift).for_each(|(g, s)| *g = scale * *g + s),
            ),
            Self { anchor: Some((pull, anchor)), shift: Some(shift) } => vectorised(
                #[inline(always)]
                || {
                    for (((g, w), a), s) in g.iter_mut().zip(w).zip(anchor).zip(shift) {
                        *g = scale * *g + pull * (w - a) + s;
                    }
                },
            ),
        }
    }

    /// `w <- w - rate (pull (w - anchor) + shift)`: the part of a plain step that the correction adds.
    fn step(&self, w: &mut [f32], rate: f32) {
        match *self {
            Self { anchor: None, shift: None } => {}
            Self { anchor: Some((pull, anchor)), shift: None } => vectorised(
                #[inline(always)]
                || w.iter_mut().zip(anchor).for_each(|(w, a)| *w -= rate * (pull * (*w - a))),
            ),
            Self { anchor: None, shift: Some(shift) } => vectorised(
                #[inline(always)]
                || w.iter_mut().zip(shift).for_each(|(w, s)| *w -= rate * s),
            ),
            Self { anchor: Some((pull, anchor)), shift: Some(shift) } => vectorised(
                #[inline(always)]
                || {
                    for ((w, a), s) in w.iter_mut().zip(anchor).zip(shift) {
                        *w -= rate * (pull * (*w - a) + s);
                    }
                },
            ),
        }
    }
}

/// The part of a plain step that the correction adds; the caller subtracts the gradient's part.
pub(crate) fn step(w: &mut [f32], rate: f32, correction: CorrectionSlices<'_>) {
    if w.len() < 2 * TASK_VALUES {
        correction.step(w, rate);
    } else {
        let tasks = w.par_chunks_mut(TASK_VALUES).enumerate();
        tasks.for_each(|(task, w)| correction.part(task * TASK_VALUES, w.len()).step(w, rate));
    }
}

/// A step along `scale g` plus the correction.
pub(crate) fn descend(
    w: &mut [f32],
    moments: Moments<'_>,
    g: &[f32],
    step: &Step,
    scale: f32,
    correction: CorrectionSlices<'_>,
) {
    update::divide(0, w, moments, g, &|start, w, [first, second], g| {
        let mut corrected = [0.0; BLOCK_VALUES];
        for block in 0..w.len().div_ceil(BLOCK_VALUES) {
            let place = block * BLOCK_VALUES..w.len().min((block + 1) * BLOCK_VALUES);
            let (w, corrected) = (&mut w[place.clone()], &mut corrected[..place.len()]);
            corrected.copy_from_slice(&g[place.clone()]);
            correction.part(start + place.start, w.len()).add_to(corrected, w, scale);
            step.take(w, [part(first, &place), part(second, &place)], corrected);
        }
    });
}

/// The part of values that may be absent.
fn part<'a>(values: &'a mut [f32], place: &Range<usize>) -> &'a mut [f32] {
    if values.is_empty() { values } else { &mut values[place.clone()] }
}

/// The sum of the squares, in an order that does not depend on the threads or the instruction set.
pub(crate) fn squares(values: &[f32]) -> f64 {
    let task = |values: &[f32]| {
        vectorised(
            #[inline(always)]
            || {
                let mut sums = [0.0f64; 16];
                let (lanes, rest) = values.as_chunks::<16>();
                for lane in lanes {
                    for (sum, value) in sums.iter_mut().zip(lane) {
                        *sum += f64::from(*value) * f64::from(*value);
                    }
                }
                for (sum, value) in sums.iter_mut().zip(rest) {
                    *sum += f64::from(*value) * f64::from(*value);
                }
                sums.iter().sum::<f64>()
            },
        )
    };
    if values.len() < 2 * TASK_VALUES {
        return values.chunks(TASK_VALUES).map(task).sum();
    }
    let sums: Vec<f64> = values.par_chunks(TASK_VALUES).map(task).collect();
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::reference::noise;

    /// From nothing to more than one task.
    const LENGTHS: [usize; 6] = [0, 1, 31, 5000, TASK_VALUES + 3, 2 * TASK_VALUES + 5];

    #[test]
    fn corrected_updates_are_those_of_the_formulas() {
        let (rate, momentum, decay, scale, pull) = (0.1, 0.9, 0.01, 0.5, 0.3);
        for length in LENGTHS {
            let [w, v, g, a, s] = [1, 2, 3, 4, 5].map(|seed| noise(length, seed));
            for which in 0..4 {
                let correction = CorrectionSlices {
                    anchor: (which & 1 == 1).then_some((pull, &a[..])),
                    shift: (which & 2 == 2).then_some(&s[..]),
                };
                let added = |i: usize| {
                    let anchored = correction.anchor.map_or(0.0, |(pull, a)| pull * (w[i] - a[i]));
                    anchored + correction.shift.map_or(0.0, |s| s[i])
                };
                let mut stepped = w.clone();
                step(&mut stepped, rate, correction);
                let mut plain = w.clone();
                let simple = Step::Plain { rate, decay };
                descend(&mut plain, [&mut [], &mut []], &g, &simple, scale, correction);
                let (mut moved, mut velocity) = (w.clone(), v.clone());
                let momentous = Step::Momentum { rate, momentum, decay };
                descend(&mut moved, [&mut velocity, &mut []], &g, &momentous, scale, correction);
                for i in 0..length {
                    let close = |found: f32, expected: f32| {
                        assert!((found - expected).abs() < 1e-6, "{which} {length} {i}: {found} {expected}");
                    };
                    close(stepped[i], w[i] - rate * added(i));
                    let gradient = scale * g[i] + added(i);
                    close(plain[i], w[i] - rate * (gradient + decay * w[i]));
                    let expected = momentum * v[i] + gradient + decay * w[i];
                    close(velocity[i], expected);
                    close(moved[i], w[i] - rate * expected);
                }
            }
        }
    }

    #[test]
    fn squares_are_summed_in_one_order() {
        for length in LENGTHS {
            let values = noise(length, 1);
            let expected: f64 = values.iter().map(|&value| f64::from(value) * f64::from(value)).sum();
            let sums = [1, 2, 3].map(|threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| squares(&values)).to_bits()
            });
            assert_eq!(sums, [sums[0]; 3]);
            assert!((f64::from_bits(sums[0]) - expected).abs() <= 1e-12 * expected);
        }
    }
}
