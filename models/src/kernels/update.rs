//! Steps of the optimiser, in one pass over the parameters.
//!
//! Each value is computed by itself, so that dividing long slices among threads changes no bit.

use rayon::prelude::*;

use super::vectorised::vectorised;

/// Values per task: about ten microseconds if they come from memory.
const TASK_VALUES: usize = 1 << 16;

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
    let part = |w: &mut [f32], v: &mut [f32], g: &[f32]| {
        vectorised(
            #[inline(always)]
            || {
                for ((w, v), g) in w.iter_mut().zip(v.iter_mut()).zip(g) {
                    *v = momentum * *v + (g + decay * *w);
                    *w -= rate * *v;
                }
            },
        );
    };
    if w.len() < 2 * TASK_VALUES {
        part(w, v, g);
    } else {
        let tasks =
            w.par_chunks_mut(TASK_VALUES).zip(v.par_chunks_mut(TASK_VALUES)).zip(g.par_chunks(TASK_VALUES));
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
    let part = |y: &mut [f32], x: &[f32]| {
        vectorised(
            #[inline(always)]
            || y.iter_mut().zip(x).for_each(|(y, x)| f(y, *x)),
        );
    };
    if y.len() < 2 * TASK_VALUES {
        part(y, x);
    } else {
        y.par_chunks_mut(TASK_VALUES).zip(x.par_chunks(TASK_VALUES)).for_each(|(y, x)| part(y, x));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::reference::noise;

    /// From nothing to more than one task.
    const LENGTHS: [usize; 5] = [0, 1, 31, 1000, 2 * TASK_VALUES + 5];

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
}
