//! The QUIC transport.
//!
//! Each client has one connection. Messages without payload travel on one bidirectional control stream that the client
//! opens; each task and each update has a unidirectional stream of its own, so that a heartbeat never queues behind
//! megabytes. A transfer that was cut off is resumed on the next connection, in either direction, by offset and hash.
//! [`limits`] bounds what all connections together take of this machine.
//!
//! | module | what it has |
//! |---|---|
//! | `endpoint` | the socket and QUIC's parameters |
//! | [`identity`] | the server's keys on disk |
//! | [`limits`] | the bounds, and the arithmetic behind them |
//! | `budget` | what the connections of one listener share |
//! | `preauth` | slots for connections that are not admitted yet |
//! | `connection` | the task that serves one connection |
//! | `send_queue` | messages and tasks to a peer |
//! | `upload`, `resume`, `partial_upload` | updates: from the wire to the spool, and how they are resumed |

mod backoff;
mod budget;
mod connection;
mod endpoint;
pub mod identity;
pub mod limits;
mod load;
mod partial_upload;
mod preauth;
mod resume;
mod send_queue;
mod source;
mod upload;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use quinn::crypto::rustls::{HandshakeData, QuicServerConfig};
use quinn::{Connection, ConnectionError, Endpoint, Incoming, ServerConfig, TransportErrorCode, VarInt};
use rustls::pki_types::CertificateDer;
use shared::congestion::Congestion;
use shared::identity::PublicKey;
use shared::identity::tls::{self, AnyKey, ServerKeys};
use shared::message::MAX_SERVERS;
use shared::protocol::Protocol;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tracing::{debug, warn};

use crate::coordinator::PeerId;
use crate::enrolment::{Admission, Changes};
use crate::peer::FromPeer;
use crate::storage::Disk;
use budget::Budget;
use connection::Peer;
use endpoint::{LARGEST_DATAGRAM, bind, endpoint_config, transport};
#[cfg(feature = "cluster")]
pub(crate) use endpoint::{endpoint_of_client, over_loopback};
use identity::ServerIdentity;
#[cfg(feature = "cluster")]
pub(crate) use load::LoadMeter;
#[cfg(not(feature = "cluster"))]
use load::LoadMeter;
use preauth::PreauthSlot;

/// Why the server cannot listen.
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
    /// TLS cannot be set up.
    #[error("the server's TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// The versions of what servers of one run say to each other, the newest first, as they stand in the handshake in place of a version of the
/// devices' protocol. It grows as [that one](shared::protocol) does: new messages at the end of their enum bring a new version, and a
/// program speaks the newest and the one before, so that servers are updated one after the other.
pub const LINK_PROTOCOLS: [&[u8]; 1] = [b"federation-leaf/1"];

/// A listening endpoint whose connections feed the driver.
pub struct Listener {
    endpoint: Endpoint,
    config: Configs,
    access: Access,
    identity: ServerIdentity,
    /// A peer that makes no progress for this long is lost.
    timeout: Duration,
    /// The directory of the identity, if it is watched for a new key.
    pub directory: Option<PathBuf>,
    /// Connections that are served at a time, for any number of clients; by default as many as the clients need.
    pub max_connections: Option<usize>,
    /// Whether the run is over for good on shutdown: then partial uploads are deleted, and otherwise kept so that the run can be
    /// resumed. By default it is.
    pub over: Arc<AtomicBool>,
    /// Where connections of other servers of this identity go. By default they are closed.
    pub links: Option<mpsc::UnboundedSender<Connection>>,
    load: LoadMeter,
}

/// Which devices are admitted, and the keys that the server shows them.
#[derive(Clone)]
struct Access {
    admission: Arc<Admission>,
    keys: Arc<ServerKeys>,
    /// Where else the server is reached, which devices are told.
    servers: Arc<[String]>,
}

#[derive(Clone)]
struct Configs {
    network: Arc<ServerConfig>,
    loopback: Arc<ServerConfig>,
}

impl Listener {
    /// Listens on `address` with the server's identity, for devices that `admission` admits. A peer that is silent for
    /// `connection_timeout`, or makes no progress for that long in a transfer, is lost.
    pub fn bind(
        address: SocketAddr,
        identity: &ServerIdentity,
        admission: Admission,
        connection_timeout: Duration,
        congestion: Congestion,
    ) -> Result<Self, ListenError> {
        Self::bind_as("", address, identity, admission, connection_timeout, congestion)
    }

    /// The same as the server of this name, which tells it from others of the same identity.
    pub fn bind_as(
        name: &str,
        address: SocketAddr,
        identity: &ServerIdentity,
        admission: Admission,
        connection_timeout: Duration,
        congestion: Congestion,
    ) -> Result<Self, ListenError> {
        let provider = Arc::new(tls::provider());
        let keys = Arc::new(ServerKeys::new(&identity.keys(SystemTime::now())));
        let mut tls = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(Arc::new(AnyKey(provider)))
            .with_cert_resolver(keys.clone());
        tls.alpn_protocols = Protocol::offered();
        #[cfg(feature = "cluster")]
        tls.alpn_protocols.extend(LINK_PROTOCOLS.map(<[u8]>::to_vec));
        let crypto = QuicServerConfig::try_from(tls);
        let crypto = Arc::new(crypto.expect("the provider has the cipher suite of QUIC's first packets"));
        let config = |loopback: bool| {
            let mut config = ServerConfig::with_crypto(crypto.clone());
            config.transport_config(Arc::new(transport(connection_timeout, congestion, loopback)));
            Arc::new(config)
        };
        let config = Configs { network: config(false), loopback: config(true) };
        let socket = bind(address).map_err(|source| ListenError::Bind { address, source })?;
        let port = socket.local_addr().map_err(|source| ListenError::Bind { address, source })?.port();
        let mut endpoint = endpoint_config(identity, name, port);
        endpoint.max_udp_payload_size(LARGEST_DATAGRAM).expect("the largest UDP payload is a valid size");
        let runtime = quinn::default_runtime().expect("the listener is made inside the tokio runtime");
        let endpoint = Endpoint::new(endpoint, Some((*config.network).clone()), socket, runtime)
            .map_err(|source| ListenError::Bind { address, source })?;
        let (identity, access) =
            (identity.clone(), Access { admission: Arc::new(admission), keys, servers: Arc::default() });
        let over = Arc::new(AtomicBool::new(true));
        Ok(Self {
            endpoint,
            config,
            access,
            identity,
            directory: None,
            timeout: connection_timeout,
            max_connections: None,
            over,
            links: None,
            load: LoadMeter::default(),
        })
    }

    /// Tells devices after their welcome that the server is reached at these addresses, at most [`MAX_SERVERS`].
    pub fn announce(&mut self, addresses: Vec<String>) {
        assert!(addresses.len() <= MAX_SERVERS, "devices refuse a longer list");
        self.access.servers = addresses.into();
    }

    /// The address in use.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.endpoint.local_addr().expect("a bound socket has an address")
    }

    /// What it is at, also while it accepts connections.
    pub(crate) fn load(&self) -> LoadMeter {
        self.load.clone()
    }

    /// Which devices are admitted, and which were here.
    pub(crate) fn admission(&self) -> Arc<Admission> {
        self.access.admission.clone()
    }

    /// Accepts connections of a federation of `clients` clients until the driver hangs up. Payloads of at most `max_payload`
    /// bytes are written to `spool`.
    pub async fn accept(
        self,
        spool: PathBuf,
        max_payload: u64,
        clients: usize,
        driver: mpsc::UnboundedSender<FromPeer>,
    ) {
        let most = self.max_connections.unwrap_or_else(|| limits::connections(clients));
        let (over, load) = (self.over.clone(), self.load.clone());
        let mut budget = Budget::new(spool, max_payload, self.timeout, most, over, load);
        budget.partials.adopt(&budget.spool, max_payload);
        let admission = self.access.admission.clone();
        let known = tokio::task::spawn_blocking(move || admission.addresses(limits::KNOWN_NETWORKS)).await;
        known.unwrap_or_default().into_iter().for_each(|address| budget.preauth.remember(address));
        let budget = Arc::new(budget);
        let watching = tokio::task::spawn(watch(
            self.access.clone(),
            self.identity.clone(),
            self.directory.clone(),
            budget.clone(),
            driver.clone(),
        ));
        let mut is_full_reported = false;
        loop {
            let incoming = tokio::select! {
                incoming = self.endpoint.accept() => incoming,
                () = driver.closed() => None,
            };
            let Some(incoming) = incoming else { break };
            let address = incoming.remote_address().ip();
            let must_validate = budget.preauth.must_validate(address);
            if must_validate && !incoming.remote_address_validated() && incoming.may_retry() {
                let _ = incoming.retry();
                continue;
            }
            let slot = budget.preauth.acquire(address, incoming.remote_address_validated(), Instant::now());
            let place = budget.connections.clone().try_acquire_owned();
            let (Some(slot), Ok(place)) = (slot, place) else {
                incoming.refuse();
                self.load.refuse();
                // Reported once: a refused connection must cost no more than the refusal.
                if !std::mem::replace(&mut is_full_reported, true) {
                    let _ = driver.send(FromPeer::Full { places: most });
                }
                continue;
            };
            let config = if incoming.remote_address().ip().is_loopback() {
                self.config.loopback.clone()
            } else {
                self.config.network.clone()
            };
            let (driver, budget, access) = (driver.clone(), budget.clone(), self.access.clone());
            let links = self.links.clone();
            tokio::spawn(serve(incoming, config, driver, budget, (access, links), slot, place));
        }
        watching.abort();
        // The last write of when and from where devices were seen.
        let admission = self.access.admission.clone();
        let _ = tokio::task::spawn_blocking(move || admission.watch(&mut Changes::default())).await;
        self.endpoint.close(VarInt::from_u32(0), b"the aggregator stops");
        let _ = tokio::time::timeout(Duration::from_secs(1), self.endpoint.wait_idle()).await;
    }
}

/// Serves one connection from its handshake to its end, and holds its slots until then.
async fn serve(
    incoming: Incoming,
    config: Arc<ServerConfig>,
    driver: mpsc::UnboundedSender<FromPeer>,
    budget: Arc<Budget>,
    (access, links): (Access, Option<mpsc::UnboundedSender<Connection>>),
    slot: PreauthSlot,
    _place: OwnedSemaphorePermit,
) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let address = incoming.remote_address().ip();
    let connection = match incoming.accept_with(config) {
        Ok(connecting) => slot.in_time(connecting).await,
        Err(error) => Some(Err(error)),
    };
    match connection {
        Some(Ok(connection)) if is_link(&connection) => {
            let same = shown_key(&connection).is_some_and(|key| access.keys.is_current(key));
            match links.filter(|_| same) {
                Some(links) => _ = links.send(connection),
                None => connection.close(VarInt::from_u32(1), b"no server of this run"),
            }
        }
        Some(Ok(connection)) => {
            let id = PeerId(NEXT.fetch_add(1, Ordering::Relaxed));
            Peer::new(id, connection, driver, budget, access).run(slot).await;
        }
        Some(Err(error)) => {
            debug!("a handshake failed: {error}");
            if is_foreign(&error) {
                let _ = driver.send(FromPeer::ForeignProtocol { address });
            }
        }
        None => {
            slot.was_silent(Instant::now());
            debug!("a handshake took too long");
        }
    }
}

/// Whether the other side is another server.
fn is_link(connection: &Connection) -> bool {
    let handshake = connection.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
    let spoken = handshake.and_then(|data| data.protocol);
    spoken.is_some_and(|spoken| LINK_PROTOCOLS.contains(&&spoken[..]))
}

/// The key that the other side has proved.
fn shown_key(connection: &Connection) -> Option<PublicKey> {
    let shown = connection.peer_identity()?.downcast::<Vec<CertificateDer<'_>>>().ok()?;
    tls::peer_key(shown.first()?).ok()
}

/// Whether the handshake failed because no protocol version is spoken by both sides.
fn is_foreign(error: &ConnectionError) -> bool {
    /// `no_application_protocol` (RFC 7301, section 3.2).
    const NO_COMMON_VERSION: u8 = 120;
    matches!(error, ConnectionError::TransportError(error) if error.code == TransportErrorCode::crypto(NO_COMMON_VERSION))
}

/// Interval at which revoked devices and a new key of the server are looked for.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

/// Applies what other processes change: revoked devices, and a new key of the server.
async fn watch(
    access: Access,
    mut identity: ServerIdentity,
    directory: Option<PathBuf>,
    budget: Arc<Budget>,
    driver: mpsc::UnboundedSender<FromPeer>,
) {
    let mut shown = identity.keys(SystemTime::now());
    let (mut changes, mut is_failure_reported) = (Changes::default(), false);
    let mut moments = tokio::time::interval(WATCH_INTERVAL);
    moments.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        moments.tick().await;
        let (admission, directory, teller) = (access.admission.clone(), directory.clone(), driver.clone());
        let looked = tokio::task::spawn_blocking(move || {
            let gone = admission.watch_and_tell(&mut changes, &mut |client| {
                let _ = teller.send(FromPeer::CutOff { client });
            });
            let newer = directory.and_then(|directory| ServerIdentity::load(&Disk, &directory).transpose());
            (changes, gone, newer)
        });
        // It panics only when the runtime shuts down.
        let Ok((seen, gone, newer)) = looked.await else { return };
        changes = seen;
        for client in gone {
            budget.partials.revoke(client);
            // If the driver has hung up, this task is about to be aborted.
            let _ = driver.send(FromPeer::Revoked { client });
        }
        let mut announced = None;
        match newer {
            Some(Ok(newer)) if newer != identity => {
                announced = (newer.key() != identity.key()).then_some(newer.key());
                identity = newer;
                is_failure_reported = false;
            }
            // Logged once per failure.
            Some(Err(error)) if !std::mem::replace(&mut is_failure_reported, true) => {
                warn!("a new key of the server cannot be read, the former one stays in use: {error}");
            }
            _ => {}
        }
        let keys = identity.keys(SystemTime::now());
        if keys != shown {
            access.keys.replace(&keys);
            shown = keys;
        }
        // New connections see the key in the handshake; open ones must be sent it.
        if let Some(key) = announced {
            access.admission.announce(key);
        }
    }
}
