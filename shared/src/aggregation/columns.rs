//! Rules that look at each value on its own.

use super::stored::{Chunk, StoredError, StoredUpdates};

/// Gives to `visit`, for every value, what `reduce` makes of that value in the updates `of`, which count in the order of
/// the contributors: tensor, offset of the first value, values. `reduce` may leave its argument in any order.
pub(super) fn each_column(
    updates: &mut dyn StoredUpdates,
    of: &[usize],
    mut reduce: impl FnMut(&mut [f32]) -> f32,
    visit: &mut dyn FnMut(&str, usize, &[f32]),
) -> Result<(), StoredError> {
    let (mut column, mut reduced) = (Vec::with_capacity(of.len()), Vec::new());
    updates.pass(&mut |chunk: &Chunk<'_>| {
        let length = of.first().map_or(0, |&first| chunk.rows[first].len());
        reduced.clear();
        reduced.extend((0..length).map(|index| {
            column.clear();
            column.extend(of.iter().map(|&update| chunk.rows[update][index]));
            reduce(&mut column)
        }));
        visit(chunk.tensor, chunk.offset, &reduced);
    })
}

/// The plain mean of at least one value, added up in their order.
pub(super) fn mean(values: &[f32]) -> f32 {
    (values.iter().copied().map(f64::from).sum::<f64>() / values.len() as f64) as f32
}
