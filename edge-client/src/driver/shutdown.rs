//! Shutdown: delivers the last messages, and waits until the saved update is durable.

use std::time::Duration;

use tokio::time::timeout;
use tracing::debug;

use super::Driver;
use super::persist::Syncing;
use crate::store::Store;
use crate::transport::{Channel, Connector, Incoming};

/// Time for the last messages, which may queue behind an update that the server has no room for.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(4);
/// Time for the transport to end once its receiver is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

impl<C: Connector, S: Store> Driver<'_, C, S> {
    /// Cancels what is under way and waits for what must not be lost.
    pub(super) async fn shut_down(mut self) {
        self.training.cancel();
        if let Some(attempt) = self.connecting.take() {
            attempt.abort();
        }
        if let Some(Channel { outgoing, mut incoming, .. }) = self.channel.take() {
            drop(outgoing);
            let closed = async {
                while let Some(event) = incoming.recv().await {
                    if matches!(event, Incoming::Closed { .. }) {
                        break;
                    }
                }
            };
            if timeout(FLUSH_TIMEOUT, closed).await.is_err() {
                debug!("the server does not take the last messages: closing without them");
                incoming.close();
                let _ = timeout(CLOSE_TIMEOUT, async { while incoming.recv().await.is_some() {} }).await;
            }
        }
        if let Some(Syncing { job, .. }) = self.promise.take() {
            // It is sent after the next start.
            let _ = job.await;
        }
        for job in [self.syncing.take(), self.frozen.keeping.take()].into_iter().flatten() {
            // It has logged its own error.
            let _ = job.await;
        }
    }
}
