//! Copies of short rows.

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
