//! Stored updates of a round, for aggregation rules that need all of them at once.

use crate::id::ClientId;

/// The accepted updates of a closing round, read from disk in chunks of a tensor, each with the values of all updates, so that
/// memory grows with the number of updates but not with the size of the model.
///
/// ```
/// use shared::aggregation::StoredUpdates;
///
/// /// The squared distance of every update to the first one, in one pass.
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
    /// The contributors, ordered by client id and not by time of arrival. Not empty.
    fn contributors(&self) -> &[Contributor];

    /// Visits all tensors once in the order of their names, each in chunks from beginning to end. Every call starts with the
    /// first tensor.
    fn pass(&mut self, visit: &mut dyn FnMut(&Chunk<'_>)) -> Result<(), StoredError>;

    /// A whole tensor of one update, by the index of its contributor.
    fn tensor(&mut self, contributor: usize, tensor: &str) -> Result<Vec<f32>, StoredError>;
}

/// The sender of a stored update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contributor {
    /// The client.
    pub client: ClientId,
    /// Its integer weight under the run's [`Weights`](super::Weights).
    pub weight: u64,
}

/// A chunk of one tensor with the values of all updates.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// The tensor's name.
    pub tensor: &'a str,
    /// The index of the first value in the tensor.
    pub offset: usize,
    /// The values of each contributor, in order: finite, and equally many.
    pub rows: &'a [Vec<f32>],
}

/// A stored update cannot be read again. It was valid when it was stored, so that the fault is the disk's.
#[derive(Debug, thiserror::Error)]
#[error("the stored update {update} cannot be read again: {reason}")]
pub struct StoredError {
    /// The file.
    pub update: String,
    /// What is wrong with it.
    pub reason: String,
}
