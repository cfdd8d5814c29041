//! What the driver's loop waits for, each of which may not be there: then its turn never comes.

use std::time::Duration;

use tokio::task::JoinHandle;

use crate::transport::{Channel, ConnectError, Incoming};

/// Resolves at the moment; never, without one.
pub(super) async fn rest(moment: Option<tokio::time::Instant>) {
    match moment {
        None => std::future::pending().await,
        Some(moment) => tokio::time::sleep_until(moment).await,
    }
}

/// Resolves after this time; never, without one.
pub(super) async fn pause(time: Option<Duration>) {
    match time {
        None => std::future::pending().await,
        Some(time) => tokio::time::sleep(time).await,
    }
}

/// Resolves when the interval says so; never, without one.
pub(super) async fn tick(interval: &mut Option<tokio::time::Interval>) {
    match interval {
        None => std::future::pending().await,
        Some(interval) => {
            interval.tick().await;
        }
    }
}

/// The outcome of an attempt to connect; never, without one under way.
pub(super) async fn attempt(
    connecting: &mut Option<JoinHandle<Result<Channel, ConnectError>>>,
) -> Result<Channel, ConnectError> {
    match connecting {
        None => std::future::pending().await,
        Some(attempt) => {
            let result = attempt.await;
            *connecting = None;
            result.unwrap_or_else(|error| Err(ConnectError::Local(error.to_string())))
        }
    }
}

/// The next thing from the server; never, without a connection.
pub(super) async fn receive(link: &mut Option<Channel>) -> Incoming {
    match link {
        None => std::future::pending().await,
        Some(link) => link
            .incoming
            .recv()
            .await
            .unwrap_or_else(|| Incoming::Closed { reason: "the connection ended".to_owned() }),
    }
}
