//! Updates of parameters in one pass, and the sums over parameters that methods need.
//!
//! Each value is computed by itself, so long ones are divided among threads without changing a bit.

use pulp::Arch;
use rayon::prelude::*;

/// Values per task: some ten microseconds, from memory.
const TASK: usize = 1 << 16;

/// `w <- w - rate (g + decay w)`.
pub(crate) fn descend(w: &mut [f32], g: &[f32], rate: f32, decay: f32) {
    if decay == 0.0 {
        each(w, g, |w, g| *w -= rate * g);
    } else {
        each(w, g, |w, g| *w -= rate * (g + decay * *w));
    }
}

/// `v <- momentum v + (g + decay w)`, then `w <- w - rate v`.
pub(crate) fn descend_with_momentum(
    w: &mut [f32],
    v: &mut [f32],
    g: &[f32],
    rate: f32,
    momentum: f32,
    decay: f32,
) {
    assert!(w.len() == v.len() && w.len() == g.len());
    let arch = Arch::new();
    let part = |w: &mut [f32], v: &mut [f32], g: &[f32]| {
        arch.dispatch(
            #[inline(always)]
            || {
                for ((w, v), g) in w.iter_mut().zip(v).zip(g) {
                    *v = momentum * *v + (g + decay * *w);
                    *w -= rate * *v;
                }
            },
        );
    };
    if w.len() < 2 * TASK {
        part(w, v, g);
    } else {
        let tasks = w.par_chunks_mut(TASK).zip(v.par_chunks_mut(TASK)).zip(g.par_chunks(TASK));
        tasks.for_each(|((w, v), g)| part(w, v, g));
    }
}

/// `y <- y + factor x`.
pub(crate) fn add_multiple(y: &mut [f32], factor: f32, x: &[f32]) {
    each(y, x, |y, x| *y += factor * x);
}

/// Applies `f` to all pairs of values.
#[inline(always)]
fn each(y: &mut [f32], x: &[f32], f: impl Fn(&mut f32, f32) + Sync) {
    assert_eq!(y.len(), x.len());
    let arch = Arch::new();
    let part = |y: &mut [f32], x: &[f32]| {
        arch.dispatch(
            #[inline(always)]
            || y.iter_mut().zip(x).for_each(|(y, x)| f(y, *x)),
        );
    };
    if y.len() < 2 * TASK {
        part(y, x);
    } else {
        y.par_chunks_mut(TASK).zip(x.par_chunks(TASK)).for_each(|(y, x)| part(y, x));
    }
}

/// The sum of the products of two vectors' values, in `f64`.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    Arch::new().dispatch(
        #[inline(always)]
        || {
            const LANES: usize = 32;
            let mut partial = [0.0f64; LANES];
            let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
            for (a, b) in a.iter().zip(b) {
                for lane in 0..LANES {
                    partial[lane] += f64::from(a[lane]) * f64::from(b[lane]);
                }
            }
            let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            partial.iter().sum::<f64>() + rest
        },
    )
}

/// The sum of the squares of a vector's values, in `f64`.
pub(crate) fn sum_of_squares(a: &[f32]) -> f64 {
    dot(a, a)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::reference::noise;

    /// From nothing to more than one task.
    const LENGTHS: [usize; 5] = [0, 1, 31, 1000, 2 * TASK + 5];

    #[test]
    fn updates_are_those_of_the_formulas() {
        let (rate, momentum, decay) = (0.1, 0.9, 0.01);
        for length in LENGTHS {
            let (w, v, g) = (noise(length, 1), noise(length, 2), noise(length, 3));
            let mut plain = w.clone();
            descend(&mut plain, &g, rate, 0.0);
            let mut decayed = w.clone();
            descend(&mut decayed, &g, rate, decay);
            let (mut moved, mut velocity) = (w.clone(), v.clone());
            descend_with_momentum(&mut moved, &mut velocity, &g, rate, momentum, decay);
            let mut sum = w.clone();
            add_multiple(&mut sum, -2.0, &g);
            for i in 0..length {
                assert_eq!(plain[i], w[i] - rate * g[i]);
                assert_eq!(decayed[i], w[i] - rate * (g[i] + decay * w[i]));
                let expected = momentum * v[i] + (g[i] + decay * w[i]);
                assert_eq!(velocity[i], expected);
                assert_eq!(moved[i], w[i] - rate * expected);
                assert_eq!(sum[i], w[i] - 2.0 * g[i]);
            }
        }
    }

    #[test]
    fn sums_are_in_f64() {
        for length in LENGTHS {
            let (a, b) = (noise(length, 1), noise(length, 2));
            let expected: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            assert!((dot(&a, &b) - expected).abs() <= 1e-12 * length as f64);
        }
        // In f32, the ones would vanish beside the first.
        let mut a = vec![1.0f32; 101];
        a[0] = 1e5;
        assert_eq!(sum_of_squares(&a), 1e10 + 100.0);
    }
}
