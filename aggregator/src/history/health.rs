//! Whether the database can be written, for the operator, who is told once when it cannot and once when it can again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::database::DatabaseError;

#[derive(Debug, Default)]
struct State {
    broken: bool,
    news: Option<String>,
}

/// Shared by all that write, and by whoever tells the operator.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<State>>);

impl Health {
    /// Notes how a write went.
    pub fn note<T>(&self, result: &Result<T, DatabaseError>) {
        let mut state = self.state();
        match result {
            Ok(_) if state.broken => {
                state.news = Some("what happens is recorded in the database again".to_owned());
            }
            Err(error) if !state.broken => {
                state.news = Some(format!(
                    "{error}. The run goes on from its own files, and nothing that was accepted is lost; what closed rounds \
                     did is entered once the database can be written again"
                ));
            }
            _ => {}
        }
        state.broken = result.is_err();
    }

    /// What the operator does not know yet.
    #[must_use]
    pub fn take_news(&self) -> Option<String> {
        self.state().news.take()
    }

    /// A panic between two writes of it leaves nothing half-done.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
