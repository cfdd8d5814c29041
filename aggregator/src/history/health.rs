//! Health of the database: the operator is told once when it cannot be written, and once when it can again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::database::DatabaseError;

#[derive(Debug, Default)]
struct State {
    broken: bool,
    change: Option<Result<(), String>>,
}

/// Shared by the threads that write and the one that tells the operator.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<State>>);

impl Health {
    /// Records the result of a write.
    pub fn note<T>(&self, result: &Result<T, DatabaseError>) {
        let mut state = self.state();
        match result {
            Ok(_) if state.broken => state.change = Some(Ok(())),
            Err(error) if !state.broken => state.change = Some(Err(error.to_string())),
            _ => {}
        }
        state.broken = result.is_err();
    }

    /// What has changed since the last call: what the database says if it cannot be written any more, `Ok` if it can again.
    #[must_use]
    pub fn take_change(&self) -> Option<Result<(), String>> {
        self.state().change.take()
    }

    /// A panic between two writes of it leaves nothing half-done.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
