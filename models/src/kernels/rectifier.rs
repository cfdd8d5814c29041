//! Rectifiers that are part of the layer before them.
//!
//! NaN is kept, and the slope at a kink is 0, as in `PyTorch`. Whether a gradient passes is seen from the output, so that the
//! values in front of the rectifier are not stored.

use rayon::prelude::*;

use super::vectorised::vectorised;

/// Values per task: about twenty microseconds of work.
const TASK_VALUES: usize = 1 << 16;

/// `min(max(x, 0), ceiling)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rectifier {
    /// Without a ceiling.
    Relu,
    /// With a ceiling of 6.
    Relu6,
}

impl Rectifier {
    #[inline(always)]
    fn ceiling(self) -> f32 {
        match self {
            Self::Relu => f32::INFINITY,
            Self::Relu6 => 6.0,
        }
    }

    /// The function of one value.
    #[inline(always)]
    pub(crate) fn value(self, x: f32) -> f32 {
        let x = if x < 0.0 { 0.0 } else { x };
        if x > self.ceiling() { self.ceiling() } else { x }
    }

    /// The gradient with respect to the input where the output is `y` and the gradient with respect to it `dy`.
    #[inline(always)]
    pub(crate) fn slope(self, dy: f32, y: f32) -> f32 {
        if y > 0.0 && y < self.ceiling() { dy } else { 0.0 }
    }

    /// `dy` times the slopes at the outputs `y`, in place.
    pub(crate) fn backward(self, dy: &mut [f32], y: &[f32]) {
        in_tasks(dy, [y, y], |dy, [y, _]| {
            vectorised(
                #[inline(always)]
                || dy.iter_mut().zip(y).for_each(|(dy, &y)| *dy = self.slope(*dy, y)),
            );
        });
    }
}

/// `y = a + b`, rectified if wanted.
pub(crate) fn sum(a: &[f32], b: &[f32], y: &mut [f32], rectifier: Option<Rectifier>) {
    in_tasks(y, [a, b], |y, [a, b]| match rectifier {
        None => add(a, b, y, |x| x),
        Some(Rectifier::Relu) => add(a, b, y, |x| Rectifier::Relu.value(x)),
        Some(Rectifier::Relu6) => add(a, b, y, |x| Rectifier::Relu6.value(x)),
    });
}

#[inline(always)]
fn add(a: &[f32], b: &[f32], y: &mut [f32], f: impl Fn(f32) -> f32) {
    vectorised(
        #[inline(always)]
        || {
            for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
                *y = f(a + b);
            }
        },
    );
}

/// Calls `f` with parts of all slices, which are as long as each other.
fn in_tasks(y: &mut [f32], [a, b]: [&[f32]; 2], f: impl Fn(&mut [f32], [&[f32]; 2]) + Sync) {
    assert!(y.len() == a.len() && y.len() == b.len());
    if y.len() < 2 * TASK_VALUES {
        return f(y, [a, b]);
    }
    let parts = y.par_chunks_mut(TASK_VALUES).zip(a.par_chunks(TASK_VALUES).zip(b.par_chunks(TASK_VALUES)));
    parts.for_each(|(y, (a, b))| f(y, [a, b]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::noise;

    #[test]
    fn ends_and_nan() {
        let inputs = [-1.0, 0.0, 2.0, 6.0, 7.0, f32::NAN];
        for (rectifier, expected) in [
            (Rectifier::Relu, [(0.0, 0.0), (0.0, 0.0), (2.0, 1.0), (6.0, 1.0), (7.0, 1.0)]),
            (Rectifier::Relu6, [(0.0, 0.0), (0.0, 0.0), (2.0, 1.0), (6.0, 0.0), (6.0, 0.0)]),
        ] {
            let both = |x: f32| (rectifier.value(x), rectifier.slope(1.0, rectifier.value(x)));
            assert_eq!(inputs[..5].iter().map(|&x| both(x)).collect::<Vec<_>>(), expected);
            let (value, slope) = both(inputs[5]);
            assert!(value.is_nan() && slope == 0.0);
        }
    }

    #[test]
    fn sums_and_gradients_of_every_length() {
        for count in [0, 1, 7, 100, 3 * TASK_VALUES + 5] {
            // Beyond the ceiling, too.
            let [a, b] = [1, 2].map(|seed| noise(count, seed).iter().map(|x| 9.0 * x).collect::<Vec<_>>());
            for rectifier in [None, Some(Rectifier::Relu), Some(Rectifier::Relu6)] {
                let (mut y, mut dy) = (vec![f32::NAN; count], noise(count, 3));
                sum(&a, &b, &mut y, rectifier);
                let Some(rectifier) = rectifier else {
                    assert!(y.iter().zip(a.iter().zip(&b)).all(|(&y, (a, b))| y == a + b));
                    continue;
                };
                assert!(y.iter().zip(a.iter().zip(&b)).all(|(&y, (a, b))| y == rectifier.value(a + b)));
                rectifier.backward(&mut dy, &y);
                assert!(
                    dy.iter()
                        .zip(noise(count, 3).iter().zip(&y))
                        .all(|(&dx, (&dy, &y))| dx == rectifier.slope(dy, y))
                );
            }
        }
    }
}
