//! Futures of the driver's loop that are not always armed.

use std::future::{Future, pending};

/// The output of an armed future. One that is not armed never resolves.
pub(super) async fn armed<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}
