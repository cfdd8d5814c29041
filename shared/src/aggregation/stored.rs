//! The updates of a round, kept on disk for rules that need them all.

use crate::id::ClientId;

/// The accepted updates of a closing round, read from where they are stored: a chunk of a tensor of all of them at a time,
/// so that memory grows with the number of updates but not with the size of the model.
///
/// ```
/// use shared::aggregation::StoredUpdates;
///
/// /// The squared distance of every update to the first one: one pass, whatever the model's size.
/// fn distances(updates: &mut dyn StoredUpdates) -> Result<Vec<f64>, shared::aggregation::StoredError> {
///     let mut squares = vec![0.0; updates.contributors().len()];
///     updates.pass(&mut |chunk| {
///         for (sum, row) in squares.iter_mut().zip(chunk.rows) {
///             let differences = row.iter().zip(&chunk.rows[0]).map(|(a, b)| f64::from(a - b));
///             *sum += differences.map(|difference| difference * difference).sum::<f64>();
///         }
///     })?;
///     Ok(squares)
/// }
/// ```
pub trait StoredUpdates {
    /// Whose they are, in the order of the clients: it does not depend on who came first. Not empty.
    fn contributors(&self) -> &[Contributor];

    /// Goes once through all tensors in the order of their names, each in chunks from its beginning to its end. It may be
    /// called again, and again begins with the first tensor.
    fn pass(&mut self, visit: &mut dyn FnMut(&Chunk<'_>)) -> Result<(), StoredError>;

    /// A whole tensor of one update, by its number among the contributors.
    fn tensor(&mut self, contributor: usize, tensor: &str) -> Result<Vec<f32>, StoredError>;
}

/// Who sent a stored update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contributor {
    /// Who trained it.
    pub client: ClientId,
    /// Its integer weight under the run's [`Weights`](super::Weights).
    pub weight: u64,
}

/// The same values of all updates.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// The tensor they are of.
    pub tensor: &'a str,
    /// Where in the tensor the first of them stands.
    pub offset: usize,
    /// For every contributor, in their order, the values: finite, and as many for each.
    pub rows: &'a [Vec<f32>],
}

/// A stored update cannot be read again. It was believed when it came, so this is the disk's fault.
#[derive(Debug, thiserror::Error)]
#[error("the stored update {update} cannot be read again: {reason}")]
pub struct StoredError {
    /// The file.
    pub update: String,
    /// What is wrong with it.
    pub reason: String,
}
