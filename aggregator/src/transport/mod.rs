//! QUIC: the aggregator's real transport.
//!
//! One connection per client. Messages without payload travel on one bidirectional control stream that the
//! client opens; a task goes out, and an update comes in, on a unidirectional stream of its own, so that
//! megabytes never stand before a heart-beat. What a connection did not bring to its end goes on with the next one, in either
//! direction: by offset and hash, before hello and welcome. What all of them together may take of this machine stands in
//! [`limits`].

mod endpoint;
pub mod identity;
pub mod limits;
mod outbox;
mod part;
mod partials;
mod peer;
mod strangers;
mod upload;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{ConnectionError, Endpoint, Incoming, ServerConfig, TransportErrorCode, VarInt};
use shared::identity::tls::{self, AnyKey, ServerKeys};
use shared::protocol::Protocol;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tracing::{debug, warn};

use crate::coordinator::PeerId;
use crate::enrolment::{Admission, Changes};
use crate::peer::FromPeer;
use endpoint::{LOOPBACK_MTU, bind, endpoint_config, transport};
use identity::ServerIdentity;
use limits::Limits;
use peer::Peer;
use strangers::Stranger;

/// Why the aggregator cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is taken or not ours.
    #[error(
        "cannot listen on {address}: {source}; choose another address with --listen (port 0 takes any free port)"
    )]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// There is no such TLS.
    #[error("the server's TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// A listening endpoint whose connections feed the driver.
pub struct Listener {
    endpoint: Endpoint,
    config: Configs,
    gate: Gate,
    identity: ServerIdentity,
    /// Where the identity is kept, if it may change.
    directory: Option<PathBuf>,
    patience: Duration,
    places: Option<usize>,
    /// Whether the run is over for good.
    over: Arc<AtomicBool>,
}

/// Who is let in, and which keys they are shown.
#[derive(Clone)]
struct Gate {
    admission: Arc<Admission>,
    keys: Arc<ServerKeys>,
}

#[derive(Clone)]
struct Configs {
    network: Arc<ServerConfig>,
    loopback: Arc<ServerConfig>,
}

impl Listener {
    /// Listens on `address` with the server's identity, for devices that `admission` lets in. A peer that is silent, or
    /// takes or brings nothing in the middle of something, for `lost_after` is lost.
    pub fn bind(
        address: SocketAddr,
        identity: &ServerIdentity,
        admission: Admission,
        lost_after: Duration,
    ) -> Result<Self, ListenError> {
        let provider = Arc::new(tls::provider());
        let keys = Arc::new(ServerKeys::new(&identity.keys(SystemTime::now())));
        let mut tls = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(Arc::new(AnyKey(provider)))
            .with_cert_resolver(keys.clone());
        tls.alpn_protocols = Protocol::offered();
        let crypto = QuicServerConfig::try_from(tls);
        let crypto = Arc::new(crypto.expect("the provider has the cipher suite of QUIC's first packets"));
        let config = |mtu: Option<u16>| {
            let mut config = ServerConfig::with_crypto(crypto.clone());
            config.transport_config(Arc::new(transport(lost_after, mtu)));
            Arc::new(config)
        };
        let config = Configs { network: config(None), loopback: config(Some(LOOPBACK_MTU)) };
        let socket = bind(address).map_err(|source| ListenError::Bind { address, source })?;
        let port = socket.local_addr().map_err(|source| ListenError::Bind { address, source })?.port();
        let mut endpoint = endpoint_config(identity, port);
        endpoint.max_udp_payload_size(u16::MAX - 8).expect("the largest UDP payload is a valid size");
        let runtime = quinn::default_runtime().expect("the listener is made inside the tokio runtime");
        let endpoint = Endpoint::new(endpoint, Some((*config.network).clone()), socket, runtime)
            .map_err(|source| ListenError::Bind { address, source })?;
        let (identity, gate) = (identity.clone(), Gate { admission: Arc::new(admission), keys });
        let over = Arc::new(AtomicBool::new(true));
        Ok(Self {
            endpoint,
            config,
            gate,
            identity,
            directory: None,
            patience: lost_after,
            places: None,
            over,
        })
    }

    /// Looks into `directory` for a new key of the server every now and then.
    #[must_use]
    pub fn with_identity_in(self, directory: PathBuf) -> Self {
        Self { directory: Some(directory), ..self }
    }

    /// Has places for so many connections, whatever the number of clients.
    #[must_use]
    pub fn with_places(self, connections: usize) -> Self {
        Self { places: Some(connections), ..self }
    }

    /// Leaves what is there of unfinished uploads for whoever continues the run, unless `over` is true by then: the run is over for
    /// good. Without this it is removed in any case.
    #[must_use]
    pub fn keeping_parts_unless(self, over: Arc<AtomicBool>) -> Self {
        Self { over, ..self }
    }

    /// The address in use.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.endpoint.local_addr().expect("a bound socket has an address")
    }

    /// Accepts the connections of a federation of `clients` until the driver hangs up. Payloads of up to
    /// `max_payload` bytes go to `spool`.
    pub async fn accept(
        self,
        spool: PathBuf,
        max_payload: u64,
        clients: usize,
        driver: mpsc::UnboundedSender<FromPeer>,
    ) {
        let places = self.places.unwrap_or_else(|| limits::connections(clients));
        let mut limits = Limits::new(spool, max_payload, self.patience, places, self.over.clone());
        limits.partials.adopt(&limits.spool, max_payload);
        let admission = self.gate.admission.clone();
        let known = tokio::task::spawn_blocking(move || admission.addresses(limits::FAMILIAR)).await;
        known.unwrap_or_default().into_iter().for_each(|address| limits.strangers.remember(address));
        let limits = Arc::new(limits);
        let watching = tokio::task::spawn(watch(
            self.gate.clone(),
            self.identity.clone(),
            self.directory.clone(),
            limits.clone(),
            driver.clone(),
        ));
        let mut told = false;
        loop {
            let incoming = tokio::select! {
                incoming = self.endpoint.accept() => incoming,
                () = driver.closed() => None,
            };
            let Some(incoming) = incoming else { break };
            // In a crowd, whoever comes has to show that its address is its own.
            let address = incoming.remote_address().ip();
            let crowd = limits.strangers.are_many(address);
            if crowd && !incoming.remote_address_validated() && incoming.may_retry() {
                let _ = incoming.retry();
                continue;
            }
            let stranger = limits.strangers.place(address);
            let place = limits.connections.clone().try_acquire_owned();
            let (Some(stranger), Ok(place)) = (stranger, place) else {
                incoming.refuse();
                // Once: whoever is refused costs this machine no more than the refusal.
                if !std::mem::replace(&mut told, true) {
                    let _ = driver.send(FromPeer::TurnedAway { places });
                }
                continue;
            };
            let config = if incoming.remote_address().ip().is_loopback() {
                self.config.loopback.clone()
            } else {
                self.config.network.clone()
            };
            let (driver, limits, gate) = (driver.clone(), limits.clone(), self.gate.clone());
            tokio::spawn(serve(incoming, config, driver, limits, gate, stranger, place));
        }
        watching.abort();
        // Who was here at the end.
        let admission = self.gate.admission.clone();
        let _ = tokio::task::spawn_blocking(move || admission.watch(&mut Changes::default())).await;
        self.endpoint.close(VarInt::from_u32(0), b"the aggregator stops");
        let _ = tokio::time::timeout(Duration::from_secs(1), self.endpoint.wait_idle()).await;
    }
}

/// Serves one connection from its handshake to its end. It has its place until then.
async fn serve(
    incoming: Incoming,
    config: Arc<ServerConfig>,
    driver: mpsc::UnboundedSender<FromPeer>,
    limits: Arc<Limits>,
    gate: Gate,
    stranger: Stranger,
    _place: OwnedSemaphorePermit,
) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let address = incoming.remote_address().ip();
    let connection = match incoming.accept_with(config) {
        Ok(connecting) => stranger.in_time(connecting).await,
        Err(error) => Some(Err(error)),
    };
    match connection {
        Some(Ok(connection)) => {
            let id = PeerId(NEXT.fetch_add(1, Ordering::Relaxed));
            Peer::new(id, connection, driver, limits, gate).run(stranger).await;
        }
        Some(Err(error)) => {
            debug!("a handshake failed: {error}");
            if is_foreign(&error) {
                let _ = driver.send(FromPeer::Foreign { address });
            }
        }
        None => debug!("a handshake took too long"),
    }
}

/// Whether the handshake failed for want of a version that both sides speak.
fn is_foreign(error: &ConnectionError) -> bool {
    /// `no_application_protocol` (RFC 7301, section 3.2).
    const NO_COMMON_VERSION: u8 = 120;
    matches!(error, ConnectionError::TransportError(error) if error.code == TransportErrorCode::crypto(NO_COMMON_VERSION))
}

/// How often it is looked whether a device was revoked, or the server has a new key.
const WATCH: Duration = Duration::from_millis(500);

/// Has what other processes change take effect: devices that are revoked, and a new key of the server.
async fn watch(
    gate: Gate,
    mut identity: ServerIdentity,
    directory: Option<PathBuf>,
    limits: Arc<Limits>,
    driver: mpsc::UnboundedSender<FromPeer>,
) {
    let mut shown = identity.keys(SystemTime::now());
    let (mut changes, mut trouble) = (Changes::default(), false);
    let mut moments = tokio::time::interval(WATCH);
    moments.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        moments.tick().await;
        let (admission, directory) = (gate.admission.clone(), directory.clone());
        let looked = tokio::task::spawn_blocking(move || {
            let gone = admission.watch(&mut changes);
            let newer = directory.and_then(|directory| ServerIdentity::load(&directory).transpose());
            (changes, gone, newer)
        });
        // It ends with the process.
        let Ok((seen, gone, newer)) = looked.await else { return };
        changes = seen;
        for client in gone {
            limits.partials.revoke(client);
            // Whoever has hung up has this task ended.
            let _ = driver.send(FromPeer::Revoked { client });
        }
        let mut announced = None;
        match newer {
            Some(Ok(newer)) if newer != identity => {
                announced = (newer.key() != identity.key()).then_some(newer.key());
                identity = newer;
                trouble = false;
            }
            // Said once, until it has passed.
            Some(Err(error)) if !std::mem::replace(&mut trouble, true) => {
                warn!("a new key of the server cannot be read, the former one stays in use: {error}");
            }
            _ => {}
        }
        let keys = identity.keys(SystemTime::now());
        if keys != shown {
            gate.keys.replace(&keys);
            shown = keys;
        }
        // Whoever connects from now on is told by the handshake; whoever is here hears of it.
        if let Some(key) = announced {
            gate.admission.announce(key);
        }
    }
}
