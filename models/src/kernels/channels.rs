//! Means and factors of channels: what squeeze-and-excitation does with planes of `pixels` values each.
//!
//! Every plane is a task of its own, and sums have one order, so that results do not depend on threads.

use rayon::prelude::*;

use super::normalisation::plane::{for_each, gradient_sums, sum};

/// The mean of each plane of `x`.
pub(crate) fn means(x: &[f32], means: &mut [f32], pixels: usize) {
    assert_eq!(x.len(), means.len() * pixels);
    for_each(means.par_iter_mut().zip(x.par_chunks_exact(pixels)), x.len(), |_, (mean, x)| {
        *mean = (sum(x, |x| x) / pixels as f64) as f32;
    });
}

/// `y = x factor` with the factor of each plane.
pub(crate) fn scale(x: &[f32], factors: &[f32], y: &mut [f32], pixels: usize) {
    assert!(x.len() == factors.len() * pixels && y.len() == x.len());
    let planes = y.par_chunks_exact_mut(pixels).zip(x.par_chunks_exact(pixels)).zip(factors.par_iter());
    for_each(planes, x.len(), |_, ((y, x), factor)| {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = x * factor);
    });
}

/// The sum over each plane of `a b`.
pub(crate) fn products(a: &[f32], b: &[f32], sums: &mut [f32], pixels: usize) {
    assert!(a.len() == sums.len() * pixels && b.len() == a.len());
    let planes = sums.par_iter_mut().zip(a.par_chunks_exact(pixels)).zip(b.par_chunks_exact(pixels));
    for_each(planes, a.len(), |_, ((total, a), b)| *total = gradient_sums(a, b, 0.0)[1] as f32);
}

/// Adds to each value of a plane a `pixels`-th of the plane's gradient: the way back through [`means`].
pub(crate) fn add_mean_gradient(gradients: &[f32], dx: &mut [f32], pixels: usize) {
    assert_eq!(dx.len(), gradients.len() * pixels);
    let values = dx.len();
    for_each(dx.par_chunks_exact_mut(pixels).zip(gradients.par_iter()), values, |_, (dx, gradient)| {
        let share = gradient / pixels as f32;
        for dx in dx.iter_mut() {
            *dx += share;
        }
    });
}

#[cfg(test)]
#[allow(clippy::needless_range_loop)] // Planes by their number.
mod tests {
    use super::*;
    use crate::kernels::noise;

    #[test]
    fn means_factors_and_the_ways_back() {
        for (planes, pixels) in [(1, 1), (3, 5), (2, 16), (7, 49), (300, 1000)] {
            let (x, dy, factors) = (noise(planes * pixels, 1), noise(planes * pixels, 2), noise(planes, 3));
            let (mut mean, mut product) = (vec![f32::NAN; planes], vec![f32::NAN; planes]);
            let mut y = vec![f32::NAN; x.len()];
            means(&x, &mut mean, pixels);
            products(&x, &dy, &mut product, pixels);
            scale(&x, &factors, &mut y, pixels);
            for plane in 0..planes {
                let range = plane * pixels..(plane + 1) * pixels;
                let values = || x[range.clone()].iter().map(|&x| f64::from(x));
                let expected = values().sum::<f64>() / pixels as f64;
                assert!((f64::from(mean[plane]) - expected).abs() < 1e-6, "{} {expected}", mean[plane]);
                let expected: f64 = values().zip(&dy[range.clone()]).map(|(x, &dy)| x * f64::from(dy)).sum();
                assert!((f64::from(product[plane]) - expected).abs() < 1e-6 * pixels as f64);
                assert!(y[range.clone()].iter().zip(&x[range]).all(|(y, x)| *y == x * factors[plane]));
            }
            let mut dx = dy.clone();
            add_mean_gradient(&factors, &mut dx, pixels);
            for (index, (dx, dy)) in dx.iter().zip(&dy).enumerate() {
                assert_eq!(*dx, dy + factors[index / pixels] / pixels as f32);
            }
        }
    }

    #[test]
    fn threads_do_not_show() {
        let (x, y) = (noise(64 * 5000, 1), noise(64 * 5000, 2));
        let bits = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut sums = [0.0; 64];
            pool.install(|| products(&x, &y, &mut sums, 5000));
            sums.map(f32::to_bits)
        };
        let one = bits(1);
        assert!([2, 3].into_iter().all(|threads| bits(threads) == one));
    }
}
