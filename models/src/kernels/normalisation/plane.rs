//! Sums over planes and affine functions of planes.
//!
//! Single precision is enough for the distances from the mean, but not for a mean that is much larger than the distances.
//! Distances are therefore taken from the mean rounded to single precision, and the rounding error of the mean is corrected
//! once per plane in double precision.

use rayon::prelude::*;

use crate::kernels::arch;

/// Values from which a pass over memory uses several threads: about 100 microseconds of work.
const MIN_PARALLEL_VALUES: usize = 1 << 18;

/// Partial sums.
const PARTS: usize = 16;

/// The sum of `f` over the values of a plane.
#[inline(always)]
pub(in crate::kernels) fn sum(x: &[f32], f: impl Fn(f32) -> f32) -> f64 {
    let (chunks, rest) = x.as_chunks::<PARTS>();
    let mut parts = [0.0f32; PARTS];
    for chunk in chunks {
        parts.iter_mut().zip(chunk).for_each(|(part, &x)| *part += f(x));
    }
    let rest: f64 = rest.iter().map(|&x| f64::from(f(x))).sum();
    parts.iter().map(|&part| f64::from(part)).sum::<f64>() + rest
}

/// Mean and biased variance of planes with `count` values in all.
#[inline(always)]
pub(super) fn moments<'a, I: Iterator<Item = &'a [f32]>>(planes: impl Fn() -> I, count: f64) -> [f64; 2] {
    let mean = planes().map(|plane| sum(plane, |x| x)).sum::<f64>() / count;
    let center = mean as f32;
    let squares = planes().map(|plane| sum(plane, |x| (x - center) * (x - center))).sum::<f64>();
    [mean, (squares / count - (mean - f64::from(center)).powi(2)).max(0.0)]
}

/// The sums over two planes of `dy` and of `dy (x - mean)`.
#[inline(always)]
pub(in crate::kernels) fn gradient_sums(x: &[f32], dy: &[f32], mean: f64) -> [f64; 2] {
    gradient_sums_through((x, dy, dy), mean, |dy, _| dy)
}

/// [`gradient_sums`] with `through(dy, y)` for each `dy`.
#[inline(always)]
pub(super) fn gradient_sums_through(
    (x, dy, y): (&[f32], &[f32], &[f32]),
    mean: f64,
    through: impl Fn(f32, f32) -> f32,
) -> [f64; 2] {
    let center = mean as f32;
    let ((x, x_rest), (dy, dy_rest)) = (x.as_chunks::<PARTS>(), dy.as_chunks::<PARTS>());
    let (y, y_rest) = y.as_chunks::<PARTS>();
    let (mut plain, mut weighted) = ([0.0f32; PARTS], [0.0f32; PARTS]);
    for ((x, dy), y) in x.iter().zip(dy).zip(y) {
        for part in 0..PARTS {
            let dy = through(dy[part], y[part]);
            plain[part] += dy;
            weighted[part] += dy * (x[part] - center);
        }
    }
    let total = |parts: [f32; PARTS]| parts.iter().map(|&part| f64::from(part)).sum::<f64>();
    let mut sums = [total(plain), total(weighted)];
    for ((&x, &dy), &y) in x_rest.iter().zip(dy_rest).zip(y_rest) {
        let dy = through(dy, y);
        sums[0] += f64::from(dy);
        sums[1] += f64::from(dy * (x - center));
    }
    sums[1] -= (mean - f64::from(center)) * sums[0];
    sums
}

/// `y = then(scale (x - mean) + offset)`.
#[inline(always)]
pub(super) fn affine_then(
    (x, y): (&[f32], &mut [f32]),
    mean: f64,
    scale: f64,
    offset: f32,
    then: impl Fn(f32) -> f32,
) {
    let center = mean as f32;
    let offset = (f64::from(offset) - scale * (mean - f64::from(center))) as f32;
    let scale = scale as f32;
    y.iter_mut().zip(x).for_each(|(y, &x)| *y = then(scale * (x - center) + offset));
}

/// `dx = scale through(dy, y) + slope (x - mean) + offset`.
#[inline(always)]
pub(super) fn combine_through(
    (x, dy, y): (&[f32], &[f32], &[f32]),
    dx: &mut [f32],
    mean: f64,
    [scale, slope, offset]: [f64; 3],
    through: impl Fn(f32, f32) -> f32,
) {
    let center = mean as f32;
    let offset = (offset - slope * (mean - f64::from(center))) as f32;
    let (scale, slope) = (scale as f32, slope as f32);
    for (((dx, &x), &dy), &y) in dx.iter_mut().zip(x).zip(dy).zip(y) {
        *dx = scale * through(dy, y) + slope * (x - center) + offset;
    }
}

/// Calls `f` with the index of each item, compiled for the CPU's vector instructions, on all threads if the items have
/// enough `values`. Each call processes one item alone, so that the result does not depend on the threads.
#[inline(always)]
pub(in crate::kernels) fn for_each<I: IndexedParallelIterator>(
    items: I,
    values: usize,
    f: impl Fn(usize, I::Item) + Sync + Send,
) {
    let arch = arch();
    let all = items.enumerate();
    let each = |(index, item)| {
        arch.dispatch(
            #[inline(always)]
            || f(index, item),
        );
    };
    if values < MIN_PARALLEL_VALUES {
        // One task.
        all.with_min_len(usize::MAX).for_each(each);
    } else {
        all.for_each(each);
    }
}
