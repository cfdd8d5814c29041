//! The futures that the driver's loop selects from. One that is not armed never resolves.

use std::time::Duration;

use tokio::task::JoinHandle;

use crate::transport::{Channel, ConnectError, Incoming};

/// Resolves at `moment`.
pub(super) async fn at(moment: Option<tokio::time::Instant>) {
    match moment {
        None => std::future::pending().await,
        Some(moment) => tokio::time::sleep_until(moment).await,
    }
}

/// Resolves after `time`.
pub(super) async fn after(time: Option<Duration>) {
    match time {
        None => std::future::pending().await,
        Some(time) => tokio::time::sleep(time).await,
    }
}

/// Resolves at each tick of the interval.
pub(super) async fn tick(interval: &mut Option<tokio::time::Interval>) {
    match interval {
        None => std::future::pending().await,
        Some(interval) => drop(interval.tick().await),
    }
}

/// The result of the connection attempt under way.
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

/// The next event from the server.
pub(super) async fn receive(channel: &mut Option<Channel>) -> Incoming {
    let closed = || Incoming::Closed { reason: "the connection ended".to_owned() };
    match channel {
        None => std::future::pending().await,
        Some(channel) => channel.incoming.recv().await.unwrap_or_else(closed),
    }
}
