//! Biases and the rectifier `max(x, 0)`, in one pass over a layer's output.
//!
//! The rectifier keeps NaN, and its gradient at 0 is 0, as in `PyTorch`.

use rayon::prelude::*;

use super::vectorised::vectorised;

/// Values per task: about ten microseconds of work.
const TASK_VALUES: usize = 1 << 17;

/// Adds `bias[channel]` to each value of a channel of one image `[channels, places]`, then rectifies if wanted.
pub(crate) fn add_channel_bias(image: &mut [f32], bias: &[f32], rectify: bool) {
    let places = image.len() / bias.len().max(1);
    vectorised(
        #[inline(always)]
        || {
            for (plane, &bias) in image.chunks_exact_mut(places.max(1)).zip(bias) {
                if rectify {
                    for value in plane {
                        *value = rectified(*value + bias);
                    }
                } else {
                    for value in plane {
                        *value += bias;
                    }
                }
            }
        },
    );
}

/// Adds a bias to each row of `y` `[n, bias.len()]`, then rectifies if wanted.
pub(crate) fn add_row_bias(y: &mut [f32], bias: &[f32], rectify: bool) {
    vectorised(
        #[inline(always)]
        || {
            for row in y.chunks_exact_mut(bias.len().max(1)) {
                if rectify {
                    row.iter_mut().zip(bias).for_each(|(value, bias)| *value = rectified(*value + bias));
                } else {
                    row.iter_mut().zip(bias).for_each(|(value, bias)| *value += bias);
                }
            }
        },
    );
}

/// `max(y, 0)` in place.
pub(crate) fn rectify(y: &mut [f32]) {
    vectorised(
        #[inline(always)]
        || y.iter_mut().for_each(|value| *value = rectified(*value)),
    );
}

/// Turns the gradient with respect to rectified values `y` into that with respect to their inputs, in place.
pub(crate) fn rectify_gradient(gradient: &mut [f32], y: &[f32]) {
    assert_eq!(gradient.len(), y.len());
    let part = |gradient: &mut [f32], y: &[f32]| {
        vectorised(
            #[inline(always)]
            || {
                for (gradient, &y) in gradient.iter_mut().zip(y) {
                    *gradient = if y > 0.0 { *gradient } else { 0.0 };
                }
            },
        );
    };
    if gradient.len() < 2 * TASK_VALUES {
        part(gradient, y);
    } else {
        gradient
            .par_chunks_mut(TASK_VALUES)
            .zip(y.par_chunks(TASK_VALUES))
            .for_each(|(gradient, y)| part(gradient, y));
    }
}

/// The gradient of a bias per channel: the sums of `dy` `[n, dbias.len(), places]` over images and places.
pub(crate) fn channel_bias_gradient(dy: &[f32], dbias: &mut [f32], places: usize) {
    let channels = dbias.len();
    let image = (channels * places).max(1);
    let one = |channel: usize, sum: &mut f32| {
        vectorised(
            #[inline(always)]
            || *sum = sum_of(dy.chunks_exact(image).map(|dy| &dy[channel * places..(channel + 1) * places])),
        );
    };
    if dy.len() < 2 * TASK_VALUES {
        dbias.iter_mut().enumerate().for_each(|(channel, sum)| one(channel, sum));
    } else {
        dbias.par_iter_mut().enumerate().for_each(|(channel, sum)| one(channel, sum));
    }
}

/// The gradient of a bias per column: the sums of the columns of `dy` `[n, dbias.len()]`.
pub(crate) fn row_bias_gradient(dy: &[f32], dbias: &mut [f32]) {
    dbias.fill(0.0);
    vectorised(
        #[inline(always)]
        || {
            for row in dy.chunks_exact(dbias.len().max(1)) {
                dbias.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
            }
        },
    );
}

#[inline(always)]
fn rectified(value: f32) -> f32 {
    if value < 0.0 { 0.0 } else { value }
}

/// The sum of all values of some slices, in 32 interleaved partial sums.
#[inline(always)]
fn sum_of<'a>(slices: impl Iterator<Item = &'a [f32]>) -> f32 {
    const LANES: usize = 32;
    let mut partial = [0.0f32; LANES];
    for slice in slices {
        let (chunks, rest) = slice.as_chunks::<LANES>();
        for chunk in chunks {
            for lane in 0..LANES {
                partial[lane] += chunk[lane];
            }
        }
        partial.iter_mut().zip(rest).for_each(|(sum, value)| *sum += value);
    }
    // Pairwise, with fewer roundings than one after the other.
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        let (low, high) = partial.split_at_mut(width);
        low.iter_mut().zip(high).for_each(|(low, high)| *low += *high);
    }
    partial[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::reference::noise;

    #[test]
    fn biases_are_added_by_channel_and_by_column() {
        let values = [1.0, -2.0, 3.0, -4.0, f32::NAN, 0.0];
        let mut image = values;
        add_channel_bias(&mut image, &[1.0, -1.0], false);
        assert_eq!(image[..4], [2.0, -1.0, 4.0, -5.0]);
        let mut image = values;
        add_channel_bias(&mut image, &[1.0, -1.0], true);
        assert!(image[4].is_nan(), "NaN does not hide");
        assert_eq!([&image[..4], &image[5..]].concat(), [2.0, 0.0, 4.0, 0.0, 0.0]);
        let mut rows = values;
        add_row_bias(&mut rows, &[1.0, -1.0], false);
        assert_eq!([&rows[..4], &rows[5..]].concat(), [2.0, -3.0, 4.0, -5.0, -1.0]);
        let mut rows = values;
        add_row_bias(&mut rows, &[1.0, -1.0], true);
        assert!(rows[4].is_nan());
        assert_eq!([&rows[..4], &rows[5..]].concat(), [2.0, 0.0, 4.0, 0.0, 0.0]);
        let mut y = values;
        rectify(&mut y);
        assert!(y[4].is_nan());
        assert_eq!([&y[..4], &y[5..]].concat(), [1.0, 0.0, 3.0, 0.0, 0.0]);
    }

    #[test]
    fn gradients_pass_where_the_output_is_positive() {
        for count in [1, 15, 100, 3 * TASK_VALUES + 7] {
            let (y, before) = (noise(count, 1), noise(count, 2));
            let mut gradient = before.clone();
            rectify_gradient(&mut gradient, &y);
            for ((y, before), after) in y.iter().zip(before).zip(gradient) {
                assert_eq!(after, if *y > 0.0 { before } else { 0.0 });
            }
        }
        let mut gradient = [1.0, 2.0];
        rectify_gradient(&mut gradient, &[0.0, f32::NAN]);
        assert_eq!(gradient, [0.0; 2]);
    }

    #[test]
    fn gradients_of_biases_are_sums() {
        for (n, channels, places) in [(1, 1, 1), (3, 5, 7), (2, 3, 33), (2, 1, 64), (40, 20, 900), (0, 2, 3)]
        {
            let dy = noise(n * channels * places, 4);
            let mut dbias = vec![f32::NAN; channels];
            channel_bias_gradient(&dy, &mut dbias, places);
            let mut expected = vec![0.0f64; channels];
            for (index, value) in dy.iter().enumerate() {
                expected[index / places % channels] += f64::from(*value);
            }
            for (value, expected) in dbias.iter().zip(expected) {
                assert!((f64::from(*value) - expected).abs() <= 1e-6 * (n * places) as f64, "{n} {channels}");
            }
        }
        let mut dbias = [f32::NAN; 3];
        row_bias_gradient(&[1.0, 2.0, 3.0, 10.0, 20.0, 30.0], &mut dbias);
        assert_eq!(dbias, [11.0, 22.0, 33.0]);
    }

    #[test]
    fn the_same_bits_for_any_number_of_threads() {
        let dy = noise(50 * 13 * 511, 4);
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            let mut dbias = [0.0; 13];
            pool.install(|| channel_bias_gradient(&dy, &mut dbias, 511));
            dbias
        };
        assert_eq!(with(2), with(1));
        assert_eq!(with(3), with(1));
    }
}
