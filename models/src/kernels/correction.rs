//! Corrected updates of parameters, in one pass over memory.
//!
//! Each value is computed by itself, so long ones are divided among threads without changing a bit.

use rayon::prelude::*;

use super::update;
use super::vectorised::vectorised;

/// Values per task: some ten microseconds, from memory.
const TASK: usize = 1 << 16;

/// Values that are corrected and then stepped while the first-level cache has them.
const BLOCK: usize = 1 << 11;

/// What is added to the gradient of the values `w`: `pull (w - anchor) + shift`, without what is absent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Correction<'a> {
    pub(crate) anchor: Option<(f32, &'a [f32])>,
    pub(crate) shift: Option<&'a [f32]>,
}

impl<'a> Correction<'a> {
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

    /// `w <- w - rate (pull (w - anchor) + shift)`: the correction's share of a plain step.
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

/// The correction's share of a plain step of all of `w`; the gradient's is made elsewhere.
pub(crate) fn step(w: &mut [f32], rate: f32, correction: Correction<'_>) {
    if w.len() < 2 * TASK {
        correction.step(w, rate);
    } else {
        let tasks = w.par_chunks_mut(TASK).enumerate();
        tasks.for_each(|(task, w)| correction.part(task * TASK, w.len()).step(w, rate));
    }
}

/// A step along `scale g` and the correction, which are left in `g`: as [`update::descend`], or as
/// [`update::descend_with_momentum`] if there is a velocity `v`; it is empty if not.
pub(crate) fn descend(
    w: &mut [f32],
    v: &mut [f32],
    g: &mut [f32],
    [rate, momentum, decay, scale]: [f32; 4],
    correction: Correction<'_>,
) {
    assert!(w.len() == g.len() && (v.is_empty() || v.len() == w.len()));
    let part = |start: usize, w: &mut [f32], v: &mut [f32], g: &mut [f32]| {
        for block in 0..w.len().div_ceil(BLOCK) {
            let place = block * BLOCK..w.len().min((block + 1) * BLOCK);
            let (w, g) = (&mut w[place.clone()], &mut g[place.clone()]);
            correction.part(start + place.start, w.len()).add_to(g, w, scale);
            if v.is_empty() {
                update::descend(w, g, rate, decay);
            } else {
                update::descend_with_momentum(w, &mut v[place], g, rate, momentum, decay);
            }
        }
    };
    if w.len() < 2 * TASK {
        part(0, w, v, g);
    } else if v.is_empty() {
        let tasks = w.par_chunks_mut(TASK).zip(g.par_chunks_mut(TASK)).enumerate();
        tasks.for_each(|(task, (w, g))| part(task * TASK, w, &mut [], g));
    } else {
        let tasks = w.par_chunks_mut(TASK).zip(v.par_chunks_mut(TASK)).zip(g.par_chunks_mut(TASK));
        tasks.enumerate().for_each(|(task, ((w, v), g))| part(task * TASK, w, v, g));
    }
}

/// The sum of the squares, in an order that does not depend on threads or instructions.
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
    if values.len() < 2 * TASK {
        return values.chunks(TASK).map(task).sum();
    }
    let sums: Vec<f64> = values.par_chunks(TASK).map(task).collect();
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::reference::noise;

    /// From nothing to more than one task.
    const LENGTHS: [usize; 6] = [0, 1, 31, 5000, TASK + 3, 2 * TASK + 5];

    #[test]
    fn corrected_updates_are_those_of_the_formulas() {
        let (rate, momentum, decay, scale, pull) = (0.1, 0.9, 0.01, 0.5, 0.3);
        for length in LENGTHS {
            let [w, v, g, a, s] = [1, 2, 3, 4, 5].map(|seed| noise(length, seed));
            for which in 0..4 {
                let correction = Correction {
                    anchor: (which & 1 == 1).then_some((pull, &a[..])),
                    shift: (which & 2 == 2).then_some(&s[..]),
                };
                let added = |i: usize| {
                    let anchored = correction.anchor.map_or(0.0, |(pull, a)| pull * (w[i] - a[i]));
                    anchored + correction.shift.map_or(0.0, |s| s[i])
                };
                let mut stepped = w.clone();
                step(&mut stepped, rate, correction);
                let (mut plain, mut plain_g) = (w.clone(), g.clone());
                descend(&mut plain, &mut [], &mut plain_g, [rate, 0.0, decay, scale], correction);
                let (mut moved, mut velocity, mut moved_g) = (w.clone(), v.clone(), g.clone());
                let settings = [rate, momentum, decay, scale];
                descend(&mut moved, &mut velocity, &mut moved_g, settings, correction);
                for i in 0..length {
                    let close = |found: f32, expected: f32| {
                        assert!((found - expected).abs() < 1e-6, "{which} {length} {i}: {found} {expected}");
                    };
                    close(stepped[i], w[i] - rate * added(i));
                    let gradient = scale * g[i] + added(i);
                    close(plain_g[i], gradient);
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
