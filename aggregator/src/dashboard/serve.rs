//! The sockets of the page, and their limits.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::Settings;
use super::routes::router;
use super::state::State;

/// Connections at a time; further ones are closed at once.
const CONNECTIONS: usize = 256;
/// How long the head of a request may take.
const HEAD: Duration = Duration::from_secs(10);
/// How long a connection lasts: a page that watches connects again.
const LASTS: Duration = Duration::from_hours(1);
/// The pause before the next connection is accepted after the system had no room for one.
const PAUSE: Duration = Duration::from_millis(100);
/// The largest head of a request, in bytes.
const MAX_HEAD: usize = 16 << 10;

/// Answers visitors until `stop` ends.
///
/// # Errors
/// The system's, if it gives no random numbers.
pub async fn serve(
    settings: Settings,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(io::Error::other)?;
    let state = State::new(settings, secret);
    let (router, watching) = (router(state.clone()), tokio::spawn(state.watch()));
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let accept = async {
        loop {
            let (stream, visitor) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    debug!("a visitor cannot be accepted: {error}");
                    sleep(PAUSE).await;
                    continue;
                }
            };
            let Ok(place) = places.clone().try_acquire_owned() else { continue };
            let service = TowerToHyperService::new(router.clone().layer(axum::Extension(visitor)));
            tokio::spawn(async move {
                let mut http = http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(MAX_HEAD);
                let connection = http.serve_connection(TokioIo::new(stream), service);
                if let Ok(Err(error)) = timeout(LASTS, connection).await {
                    debug!("the connection of {visitor} has ended: {error}");
                }
                drop(place);
            });
        }
    };
    tokio::select! {
        () = accept => {}
        () = stop => {}
    }
    watching.abort();
    Ok(())
}
