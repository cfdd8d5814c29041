//! Why registers cannot be brought together.

use crate::cluster::error::StoreError;
use crate::database::DatabaseError;

/// Why the register here and that of the store cannot be brought together.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database of this server.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The system gives no random bytes for a new register.
    #[error("the system gives no random bytes: {0}")]
    Random(getrandom::Error),
    /// It gives no thread.
    #[error("the system gives no thread: {0}")]
    Thread(std::io::Error),
}
