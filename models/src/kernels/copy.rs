//! Copies of short rows, and of images into matrices and back.

use rayon::prelude::*;

/// Values from which several threads copy them.
const MIN_PARALLEL_COPY: usize = 1 << 15;

/// Copies a row in pieces of a fixed size; the last may overlap the one before. For the short rows of images this takes a
/// fraction of the time of a call to `memcpy`.
#[inline(always)]
pub(super) fn copy_row(from: &[f32], to: &mut [f32]) {
    match from.len() {
        16.. => copy_pieces::<16>(from, to),
        8.. => copy_pieces::<8>(from, to),
        4.. => copy_pieces::<4>(from, to),
        _ => copy_pieces::<1>(from, to),
    }
}

#[inline(always)]
fn copy_pieces<const N: usize>(from: &[f32], to: &mut [f32]) {
    assert_eq!(from.len(), to.len());
    for (to, from) in to.as_chunks_mut::<N>().0.iter_mut().zip(from.as_chunks::<N>().0) {
        *to = *from;
    }
    if let (Some(to), Some(from)) = (to.last_chunk_mut::<N>(), from.last_chunk::<N>()) {
        *to = *from;
    }
}

/// Copies images `[n, channels, places]` into a matrix `[channels, n * places]`.
pub(super) fn gather(images: &[f32], channels: usize, places: usize, matrix: &mut [f32]) {
    let width = images.len() / channels;
    let rows = matrix.chunks_exact_mut(width).enumerate();
    rows.for_each(|(channel, row)| gather_row(images, channels, places, channel, row));
}

/// [`gather`] on the threads of the current pool, if there is enough to copy.
pub(super) fn gather_parallel(images: &[f32], channels: usize, places: usize, matrix: &mut [f32]) {
    if images.len() < MIN_PARALLEL_COPY {
        return gather(images, channels, places, matrix);
    }
    let rows = matrix.par_chunks_exact_mut(images.len() / channels).enumerate();
    rows.with_min_len(channels.div_ceil(8))
        .for_each(|(channel, row)| gather_row(images, channels, places, channel, row));
}

fn gather_row(images: &[f32], channels: usize, places: usize, channel: usize, row: &mut [f32]) {
    let planes = images.chunks_exact(places).skip(channel).step_by(channels);
    row.chunks_exact_mut(places).zip(planes).for_each(|(to, from)| copy_row(from, to));
}

/// Copies a matrix `[channels, n * places]` back into images `[n, channels, places]`, and finishes each.
pub(super) fn scatter(
    matrix: &[f32],
    images: &mut [f32],
    channels: usize,
    places: usize,
    finish: &impl Fn(&mut [f32]),
) {
    let width = images.len() / channels;
    for (number, image) in images.chunks_exact_mut(channels * places).enumerate() {
        let rows = matrix.chunks_exact(width).map(|row| &row[number * places..(number + 1) * places]);
        image.chunks_exact_mut(places).zip(rows).for_each(|(to, from)| copy_row(from, to));
        finish(image);
    }
}
