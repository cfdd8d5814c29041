//! Biases: added, and their gradients.

use pulp::Arch;

/// Fills every row of `y` with the bias.
pub(crate) fn fill(y: &mut [f32], bias: &[f32]) {
    y.chunks_exact_mut(bias.len()).for_each(|row| row.copy_from_slice(bias));
}

/// Adds to each plane of `places` values of an image its channel's bias.
pub(crate) fn add_to_planes(image: &mut [f32], bias: &[f32], places: usize) {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for (plane, bias) in image.chunks_exact_mut(places).zip(bias) {
                plane.iter_mut().for_each(|value| *value += bias);
            }
        },
    );
}

/// [`add_to_planes`], and then `max(y, 0)`.
pub(crate) fn add_to_planes_and_rectify(image: &mut [f32], bias: &[f32], places: usize) {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for (plane, bias) in image.chunks_exact_mut(places).zip(bias) {
                for value in plane {
                    let sum = *value + bias;
                    *value = if sum < 0.0 { 0.0 } else { sum };
                }
            }
        },
    );
}

/// The sum of all rows, into `sum`.
pub(crate) fn sum_rows(rows: &[f32], sum: &mut [f32]) {
    sum.fill(0.0);
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for row in rows.chunks_exact(sum.len()) {
                sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
            }
        },
    );
}

/// The sum over all images and places of each channel, into `sum`.
pub(crate) fn sum_planes(images: &[f32], places: usize, sum: &mut [f32]) {
    sum.fill(0.0);
    Arch::new().dispatch(
        #[inline(always)]
        || {
            for image in images.chunks_exact(places * sum.len()) {
                for (sum, plane) in sum.iter_mut().zip(image.chunks_exact(places)) {
                    *sum += interleaved_sum(plane);
                }
            }
        },
    );
}

/// The sum in 16 interleaved partial sums: as wide as a vector, and more accurate than one after the other.
#[inline(always)]
fn interleaved_sum(values: &[f32]) -> f32 {
    let (chunks, rest) = values.as_chunks::<16>();
    let mut partial = [0.0f32; 16];
    for chunk in chunks {
        for (sum, value) in partial.iter_mut().zip(chunk) {
            *sum += value;
        }
    }
    partial.iter().chain(rest).sum()
}
