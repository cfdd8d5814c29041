//! The QUIC transport of a client.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quinn::congestion::{BbrConfig, CubicConfig};
use quinn::crypto::rustls::{HandshakeData, QuicClientConfig};
use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, EndpointConfig, TransportConfig, TransportErrorCode,
    VarInt,
};
use rustls::AlertDescription;
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use shared::congestion::Congestion;
use shared::frame;
use shared::id::ClientId;
use shared::identity::{SecretKey, tls};
use shared::message::{ToClient, ToServer};
use shared::protocol::Protocol;
use shared::ticket::TicketSecret;
use socket2::{Domain, Socket, Type};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::debug;

use crate::address_book::{Pass, SharedAddressBook};
use crate::store::SharedDownload;
use crate::transport::{Channel, ConnectError, Connector, Incoming};
use crate::trust::Trust;
use resume::Interrupted;

mod addresses;
mod base;
mod connection;
mod resume;

use base::CurrentBase;
use connection::serve;

/// The largest datagram for loopback, less headers and options. If a system's loopback takes less, QUIC's black hole detection
/// finds out.
const LOOPBACK_MTU: u16 = if cfg!(target_os = "linux") { 65_000 } else { 16_000 };
/// Bytes in flight on loopback. There is no network to probe, only the receiving socket's buffer to protect; the usual initial
/// window is smaller than one such datagram.
const LOOPBACK_WINDOW: u32 = 512 << 10;
/// Requested size of the socket's buffer, for each direction.
const SOCKET_BUFFER: usize = 4 << 20;
/// Silence after which the connection counts as lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Keeps a NAT's mapping and the connection alive between heart-beats.
const KEEP_ALIVE: Duration = Duration::from_secs(4);
/// Limit of a task, in bytes.
const MAX_TASK: u64 = 8 << 30;
/// Limit for looking up a name.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit for one attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The same for what others of a pass have left: they may answer again, and are tried next.
const REST_TIMEOUT: Duration = Duration::from_secs(2);
/// Limit for the last messages of a closing connection.
const LINGER: Duration = Duration::from_secs(2);
const STREAM_WINDOW: u32 = 4 << 20;
const SEND_WINDOW: u64 = 1 << 20;

/// The largest datagram that path discovery tries: that of an Ethernet, less headers (quinn's own bound).
pub const MAX_DATAGRAM: u16 = 1452;
/// Time for path discovery: a few round trips for each size, and more if probes are lost.
const DISCOVERY_TIME: Duration = Duration::from_secs(4);

/// The result of a test connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The address that answered.
    pub address: SocketAddr,
    /// Duration of the handshake, including name lookups.
    pub handshake: Duration,
    /// The round-trip time.
    pub round_trip: Duration,
    /// The largest datagram that was found to pass.
    pub datagram: u16,
}

/// Connects to one server over QUIC.
#[derive(Clone, Debug)]
pub struct QuicConnector {
    addresses: SharedAddressBook,
    /// This device.
    client: ClientId,
    trust: Trust,
    key: Arc<CertifiedKey>,
    ticket: Arc<Mutex<Option<TicketSecret>>>,
    interrupted: Interrupted,
    base: CurrentBase,
    /// The longest task that is received, in bytes.
    max_task: u64,
    congestion: Congestion,
}

impl QuicConnector {
    /// Connects to the server at any of `addresses` (`HOST:PORT` or `IP:PORT`), if `trust` accepts it, and authenticates with
    /// `key`.
    #[must_use]
    pub fn new(addresses: impl Into<SharedAddressBook>, trust: Trust, key: &SecretKey) -> Self {
        Self {
            addresses: addresses.into(),
            client: key.public().client(),
            trust,
            key: tls::shown(key),
            ticket: Arc::default(),
            interrupted: Interrupted::default(),
            base: CurrentBase::default(),
            max_task: MAX_TASK,
            congestion: Congestion::default(),
        }
    }

    /// Redeems a ticket at the start of each connection, until the server has admitted the client.
    #[must_use]
    pub fn with_ticket(self, ticket: Option<TicketSecret>) -> Self {
        Self { ticket: Arc::new(Mutex::new(ticket)), ..self }
    }

    /// Begins with the download that an earlier process has left, and keeps long ones there.
    #[must_use]
    pub fn with_download(self, download: Option<SharedDownload>) -> Self {
        let interrupted = download.map_or_else(Interrupted::default, Interrupted::kept_in);
        Self { interrupted, ..self }
    }

    /// Receives no longer task than this, if that is less than any task may have.
    #[must_use]
    pub fn with_max_task(self, bytes: Option<u64>) -> Self {
        Self { max_task: bytes.unwrap_or(MAX_TASK).min(MAX_TASK), ..self }
    }

    /// Sends by this congestion control, except over loopback.
    #[must_use]
    pub fn with_congestion(self, congestion: Congestion) -> Self {
        Self { congestion, ..self }
    }

    fn unreachable(&self, reason: impl std::fmt::Display) -> ConnectError {
        let (server, reason) = (self.addresses.lock().to_string(), reason.to_string());
        // A single address is not named twice.
        let alone = reason.strip_prefix(&server).and_then(|rest| rest.strip_prefix(": ")).map(str::to_owned);
        ConnectError::Unreachable { server, reason: alone.unwrap_or(reason) }
    }

    fn config(&self, loopback: bool) -> Result<ClientConfig, ConnectError> {
        let local = |error: &dyn std::fmt::Display| ConnectError::Local(error.to_string());
        let mut config = rustls::ClientConfig::builder_with_provider(self.trust.provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| local(&error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(self.trust.clone()))
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(self.key.clone())));
        config.alpn_protocols = Protocol::offered();
        let mut transport = TransportConfig::default();
        transport
            .max_idle_timeout(Some(VarInt::from_u32(IDLE_TIMEOUT.as_millis() as u32).into()))
            .keep_alive_interval(Some(KEEP_ALIVE))
            .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
            .receive_window(VarInt::from_u32(2 * STREAM_WINDOW))
            .send_window(SEND_WINDOW)
            // Datagrams are not used: a server must not fill memory with them.
            .datagram_receive_buffer_size(None)
            .max_concurrent_bidi_streams(VarInt::from_u32(0))
            .max_concurrent_uni_streams(VarInt::from_u32(2));
        match self.congestion {
            Congestion::Cubic => {}
            Congestion::Bbr => {
                transport.congestion_controller_factory(Arc::new(BbrConfig::default()));
            }
        }
        if loopback {
            let mut congestion = CubicConfig::default();
            congestion.initial_window(u64::from(LOOPBACK_WINDOW));
            transport
                .stream_receive_window(VarInt::from_u32(LOOPBACK_WINDOW))
                .receive_window(VarInt::from_u32(LOOPBACK_WINDOW))
                .send_window(u64::from(LOOPBACK_WINDOW))
                .initial_mtu(LOOPBACK_MTU)
                // One datagram fills a batch, so there is nothing to segment.
                .enable_segmentation_offload(false)
                .mtu_discovery_config(None)
                .congestion_controller_factory(Arc::new(congestion));
        }
        let crypto = QuicClientConfig::try_from(config).map_err(|error| local(&error))?;
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(transport));
        Ok(config)
    }

    /// Connects, measures the network, and closes the connection. Sends no message, and stores nothing.
    pub async fn reach(&self) -> Result<Reached, ConnectError> {
        let began = Instant::now();
        let (endpoint, connection) = self.dial(Pass::All).await?;
        agreed(&connection)?;
        let handshake = began.elapsed();
        let address = connection.remote_address();
        let datagram = || connection.stats().path.current_mtu;
        let mut closed = std::pin::pin!(connection.closed());
        while datagram() < MAX_DATAGRAM && began.elapsed() < handshake + DISCOVERY_TIME {
            tokio::select! {
                _ = &mut closed => break,
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        }
        let reached = Reached { address, handshake, round_trip: connection.rtt(), datagram: datagram() };
        connection.close(VarInt::from_u32(0), b"goodbye");
        let _ = timeout(LINGER, endpoint.wait_idle()).await;
        Ok(reached)
    }

    /// What the authenticated server says that concerns the next connection.
    fn heard(&self, message: &ToClient) {
        match message {
            ToClient::ServerKey { key } => self.trust.renew(*key),
            ToClient::Servers { addresses } => self.addresses.lock().told(addresses.clone()),
            ToClient::PositionalWelcome { .. } => self.addresses.lock().admitted(),
            ToClient::Welcome { .. } => {
                self.addresses.lock().admitted();
                *self.ticket.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
            _ => {}
        }
    }

    /// The addresses of a name. After the timeout the system's lookup still runs, and its result is dropped.
    async fn lookup(&self, name: &str) -> Result<Vec<SocketAddr>, ConnectError> {
        let unknown = |reason: &dyn std::fmt::Display| self.unreachable(format_args!("{name}: {reason}"));
        let found = timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host(name)).await;
        let found = found.map_err(|_| unknown(&"the system does not say what this name stands for"))?;
        let found: Vec<_> = found.map_err(|error| unknown(&error))?.collect();
        if found.is_empty() { Err(unknown(&"its name has no address")) } else { Ok(found) }
    }

    /// Dials the addresses of a pass, one shortly after the other, and takes the first that answers.
    async fn dial(&self, pass: Pass) -> Result<(Endpoint, Connection), ConnectError> {
        let lookup = |name: String| {
            let connector = self.clone();
            async move { connector.lookup(&name).await }
        };
        let dial = |address| {
            let connector = Self { trust: self.trust.attempt(), ..self.clone() };
            async move { connector.dial_at(address).await }
        };
        let tried = self.addresses.lock().begin(pass, self.client);
        // The server may have named other addresses since some were left.
        if pass == Pass::Rest && tried.is_empty() {
            return Err(self.unreachable("no other address is left to try"));
        }
        let limit = if pass == Pass::Rest { REST_TIMEOUT } else { Duration::MAX };
        let dialled = timeout(limit, addresses::first(&tried, lookup, dial)).await;
        let (answer, place) =
            dialled.map_err(|_| self.unreachable(format_args!("{}: no answer", tried.join(", "))))??;
        self.addresses.lock().answered(&tried[..=place]);
        Ok(answer)
    }

    async fn dial_at(&self, address: SocketAddr) -> Result<(Endpoint, Connection), ConnectError> {
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let local = |error: std::io::Error| ConnectError::Local(error.to_string());
        let unreachable =
            |reason: &dyn std::fmt::Display| self.unreachable(format_args!("{address}: {reason}"));
        // A system may have only IPv4 or only IPv6.
        let socket = bind(any).map_err(|error| unreachable(&error))?;
        let mut endpoint = EndpointConfig::default();
        endpoint.max_udp_payload_size(u16::MAX - 8).expect("the largest UDP payload is a valid size");
        let runtime = quinn::default_runtime().expect("connections are made inside the tokio runtime");
        let endpoint = Endpoint::new(endpoint, None, socket, runtime).map_err(local)?;
        let name = tls::server_name(self.trust.trusted().as_ref());
        let connecting = endpoint
            .connect_with(self.config(address.ip().is_loopback())?, address, &name)
            .map_err(|error| unreachable(&error))?;
        let connection = timeout(CONNECT_TIMEOUT, connecting)
            .await
            .map_err(|_| unreachable(&"no answer"))?
            .map_err(|error| match (self.trust.refused(), self.trust.trusted()) {
            (Some(found), Some(trusted)) => {
                ConnectError::Untrusted { server: address.to_string(), found, trusted }
            }
            _ if is_about_the_protocol(&error) => {
                ConnectError::NoCommonProtocol { server: address.to_string() }
            }
            _ => unreachable(&error),
        })?;
        Ok((endpoint, connection))
    }
}

/// Whether a handshake failed because the sides share no version of the protocol (RFC 7301, section 3.2; RFC 9001, section 8.1).
fn is_about_the_protocol(error: &ConnectionError) -> bool {
    let code = match error {
        ConnectionError::ConnectionClosed(close) => close.error_code,
        ConnectionError::TransportError(error) => error.code,
        _ => return false,
    };
    code == TransportErrorCode::crypto(AlertDescription::NoApplicationProtocol.into())
}

/// The version of the protocol that a handshake agreed on.
fn agreed(connection: &Connection) -> Result<Protocol, ConnectError> {
    let handshake = connection.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
    let agreed = handshake.and_then(|data| Protocol::named(&data.protocol?));
    agreed.ok_or_else(|| ConnectError::NoCommonProtocol { server: connection.remote_address().to_string() })
}

/// Opens a socket with large buffers, as far as the system allows: a datagram that finds the buffer full is lost and sent again.
fn bind(address: SocketAddr) -> std::io::Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(socket2::Protocol::UDP))?;
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
    socket.bind(&address.into())?;
    Ok(socket.into())
}

impl Connector for QuicConnector {
    async fn connect(&mut self, pass: Pass) -> Result<Channel, ConnectError> {
        let (endpoint, connection) = self.dial(pass).await?;
        let spoken = agreed(&connection)?;
        let shown =
            connection.peer_identity().and_then(|shown| shown.downcast::<Vec<CertificateDer<'_>>>().ok());
        let key = shown.and_then(|shown| tls::peer_key(shown.first()?).ok());
        self.trust.confirm(key.ok_or_else(|| self.unreachable("it has shown no key"))?);
        let (mut control, answers) = connection.open_bi().await.map_err(|error| self.unreachable(error))?;
        let ticket = *self.ticket.lock().unwrap_or_else(PoisonError::into_inner);
        let resumed = self.interrupted.partial().map(ToServer::ResumePoint);
        let before_hello = [ticket.map(ToServer::Redeem), resumed, self.base.said()];
        for message in before_hello.into_iter().flatten().filter_map(|message| message.for_peer(spoken)) {
            let message = frame::encode(&message, 0);
            control.write_all(&message).await.map_err(|error| self.unreachable(error))?;
        }
        let server = connection.remote_address().to_string();
        let (outgoing, queue) = mpsc::unbounded_channel();
        let (events, incoming) = mpsc::unbounded_channel();
        let connector = self.clone();
        tokio::spawn(async move {
            let reason = match serve(&connection, &connector, control, answers, queue, spoken, &events).await
            {
                Ok(()) => "closed".to_owned(),
                Err(error) => error.to_string(),
            };
            debug!("connection ended: {reason}");
            connection.close(VarInt::from_u32(0), b"goodbye");
            let _ = events.send(Incoming::Closed { reason });
            let _ = timeout(LINGER, endpoint.wait_idle()).await;
        });
        let elsewhere = self.addresses.lock().has_rest();
        Ok(Channel { server, elsewhere, outgoing, incoming })
    }

    fn limit_tasks(&mut self, bytes: u64) {
        self.max_task = bytes.min(MAX_TASK);
    }
}

#[cfg(test)]
mod tests;
