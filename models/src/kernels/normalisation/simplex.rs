//! Cosines with the vertices of a regular simplex.
//!
//! The vertices of a simplex equiangular tight frame of `c` classes are the columns of `sqrt(c/(c-1)) (I - 1/c)`, of length 1 and
//! each at the cosine `-1/(c-1)` to every other. So the products of a row `u` with all of them are `sqrt(c/(c-1)) (u - mean(u))`.

use rayon::prelude::*;

use super::plane::for_each;

/// Added to the squares of lengths, so that the gradient of a row of zeros is finite.
pub(crate) const EPSILON: f64 = 1e-12;

/// `sqrt(c/(c-1))` of `c` classes, at least two.
pub(crate) fn vertex_scale(classes: usize) -> f64 {
    (classes as f64 / (classes as f64 - 1.0)).sqrt()
}

/// Gives each row of `classes` values its cosines with the vertices, times one factor for all rows.
#[derive(Debug)]
pub(crate) struct SimplexEtf {
    classes: usize,
    /// Of each row: one over its length, and in a backward pass its part of the gradient of the factor.
    rows: Vec<[f64; 2]>,
}

impl SimplexEtf {
    pub(crate) fn new(classes: usize) -> Self {
        Self { classes, rows: Vec::new() }
    }

    /// `y = weight sqrt(c/(c-1)) (u - mean(u))` with `u = x / sqrt(sum(x^2) + 1e-12)` for each row.
    pub(crate) fn forward(&mut self, weight: f32, x: &[f32], y: &mut [f32]) {
        let Self { classes, ref mut rows } = *self;
        assert!(y.len() == x.len());
        rows.resize(x.len() / classes, [0.0; 2]);
        let each = (y.par_chunks_exact_mut(classes), x.par_chunks_exact(classes), rows.par_iter_mut());
        for_each(each.into_par_iter(), x.len(), |_, (y, x, row)| {
            let inverse = 1.0 / (dot(x, x) + EPSILON).sqrt();
            row[0] = inverse;
            let (factor, mean) = (f64::from(weight) * vertex_scale(classes) * inverse, mean(x));
            y.iter_mut().zip(x).for_each(|(y, &x)| *y = (factor * (f64::from(x) - mean)) as f32);
        });
    }

    /// Propagates the gradient `dy` back, after a forward pass of the same `x`; the result is the gradient of the factor. With
    /// `g = sqrt(c/(c-1)) (dy - mean(dy))` and `s` one over the row's length, `dx = weight s (g - u sum(u g))`.
    pub(crate) fn backward(
        &mut self,
        weight: f32,
        (x, dy): (&[f32], &mut [f32]),
        dx: Option<&mut [f32]>,
    ) -> f32 {
        let Self { classes, ref mut rows } = *self;
        let scale = vertex_scale(classes);
        let along = (x.par_chunks_exact(classes), dy.par_chunks_exact_mut(classes), rows.par_iter_mut());
        for_each(along.into_par_iter(), x.len(), |_, (x, dy, row)| {
            let mean = mean(dy);
            for dy in dy.iter_mut() {
                *dy = (scale * (f64::from(*dy) - mean)) as f32;
            }
            row[1] = row[0] * dot(x, dy);
        });
        if let Some(dx) = dx {
            let each = (
                dx.par_chunks_exact_mut(classes),
                x.par_chunks_exact(classes),
                dy.par_chunks_exact(classes),
                rows.par_iter(),
            );
            for_each(each.into_par_iter(), x.len(), |_, (dx, x, dy, &[inverse, along])| {
                let (slope, factor) = ((inverse * along) as f32, (f64::from(weight) * inverse) as f32);
                for ((dx, &x), &dy) in dx.iter_mut().zip(x).zip(dy) {
                    *dx = factor * (dy - slope * x);
                }
            });
        }
        rows.iter().map(|row| row[1]).sum::<f64>() as f32
    }
}

/// In double precision, in one order.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

/// In double precision, in one order.
fn mean(row: &[f32]) -> f64 {
    row.iter().map(|&x| f64::from(x)).sum::<f64>() / row.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::noise;

    const WEIGHT: f32 = 3.5;

    /// Output, the gradient by x and that by the factor.
    fn run(x: &[f32], classes: usize) -> (Vec<f32>, Vec<f32>, f32) {
        let mut dy = noise(x.len(), 2);
        let (mut y, mut dx) = (vec![f32::NAN; x.len()], vec![f32::NAN; x.len()]);
        let mut simplex = SimplexEtf::new(classes);
        simplex.forward(WEIGHT, x, &mut y);
        let by_weight = simplex.backward(WEIGHT, (x, &mut dy), Some(&mut dx));
        (y, dx, by_weight)
    }

    #[test]
    fn vertices_have_length_one_and_equal_angles() {
        for classes in [2, 3, 10] {
            // The row of a vertex gives its cosines with all of them.
            for class in 0..classes {
                let at = |other| if other == class { 1.0 } else { 0.0 } - 1.0 / classes as f32;
                let vertex: Vec<f32> = (0..classes).map(at).collect();
                let (y, ..) = run(&vertex, classes);
                for (other, cosine) in y.iter().map(|y| y / WEIGHT).enumerate() {
                    let expected = if other == class { 1.0 } else { -1.0 / (classes as f32 - 1.0) };
                    assert!((cosine - expected).abs() < 1e-6, "{classes} {class} {other}: {cosine}");
                }
            }
        }
    }

    #[test]
    fn the_length_of_a_row_and_a_step_along_it_change_nothing() {
        for (rows, classes) in [(1, 2), (3, 17), (70, 16)] {
            let x = noise(rows * classes, 1);
            let longer: Vec<f32> = x.iter().map(|x| 4.0 * x).collect();
            let ((y, dx, by_weight), (same, ..)) = (run(&x, classes), run(&longer, classes));
            assert!(y.iter().zip(&same).all(|(a, b)| (a - b).abs() < 1e-5));
            for (x, dx) in x.chunks(classes).zip(dx.chunks(classes)) {
                assert!(dot(x, dx).abs() < 1e-4 * dot(dx, dx).sqrt().max(1e-3));
            }
            let expected = dot(&y, &noise(x.len(), 2)) / f64::from(WEIGHT);
            assert!((f64::from(by_weight) - expected).abs() < 1e-4 * (1.0 + expected.abs()), "{by_weight}");
        }
    }

    #[test]
    fn a_row_of_zeros_has_no_direction_and_a_finite_gradient() {
        let (y, dx, by_weight) = run(&[0.0; 4], 4);
        assert_eq!((y, by_weight), (vec![0.0; 4], 0.0));
        assert!(dx.iter().all(|dx| dx.is_finite()));
    }

    #[test]
    fn threads_do_not_show() {
        let bits = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let (y, dx, by_weight) = pool.install(|| run(&noise(300_000, 1), 100));
            let bits = |list: Vec<f32>| list.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            (bits(y), bits(dx), by_weight.to_bits())
        };
        let one = bits(1);
        assert!([2, 3].into_iter().all(|threads| bits(threads) == one));
    }
}
