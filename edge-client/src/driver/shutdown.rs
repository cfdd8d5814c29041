//! How a client leaves: the server hears its last words, and what was kept is durable.

use std::time::Duration;

use tokio::time::timeout;
use tracing::debug;

use super::Driver;
use crate::transport::{Channel, Incoming};

/// So long the last messages may take: they may wait behind an update that the server has no room for.
const LAST_WORDS: Duration = Duration::from_secs(4);
/// So long the transport may take to end once nobody listens to it.
const HANGING_UP: Duration = Duration::from_secs(3);

impl Driver {
    /// Ends what is under way, and waits for what is not to be lost by it.
    pub(super) async fn leave(mut self) {
        self.training.cancel();
        if let Some(attempt) = self.connecting.take() {
            attempt.abort();
        }
        if let Some(Channel { outgoing, mut incoming, .. }) = self.link.take() {
            drop(outgoing);
            let closed = async {
                while let Some(event) = incoming.recv().await {
                    if matches!(event, Incoming::Closed { .. }) {
                        break;
                    }
                }
            };
            if timeout(LAST_WORDS, closed).await.is_err() {
                debug!("the server does not take the last messages: hanging up without them");
                incoming.close();
                let _ = timeout(HANGING_UP, async { while incoming.recv().await.is_some() {} }).await;
            }
        }
        if let Some(syncing) = self.syncing.take() {
            // What it has to say it has said.
            let _ = syncing.await;
        }
    }
}
