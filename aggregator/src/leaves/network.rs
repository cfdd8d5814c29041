//! Links over QUIC: on the port that devices connect to, under a name of their own, between servers of one identity.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, MtuDiscoveryConfig, TransportConfig, VarInt};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use shared::identity::{PublicKey, SecretKey, tls};
use tracing::warn;

use super::link::{Link, LinkError, carry, pair};
use super::message::{ToLeaf, ToRoot};
use crate::transport::{LINK_PROTOCOLS, endpoint_of_client, over_loopback};

/// A link that is silent for this long is broken.
const IDLE: Duration = Duration::from_secs(5);
/// How often a leaf says that it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Bytes that are received ahead of what was read.
const WINDOW: u32 = 16 << 20;

/// The largest datagram that is tried. On networks with large frames, which servers may share, sums take a fraction of the packets.
const JUMBO: u16 = 8952;

/// Why the root is not reached.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The address stands for nothing.
    #[error("{address} cannot be looked up: {source}")]
    Lookup {
        /// The address.
        address: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// The system gives no socket.
    #[error("no socket: {0}")]
    Socket(std::io::Error),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(Error),
    /// It does not answer.
    #[error("{address} does not answer: {reason}")]
    Unreachable {
        /// The address.
        address: String,
        /// What is in the way.
        reason: String,
    },
}

/// Connects to the root at this address, which has the same key.
///
/// # Errors
/// It is not reached.
pub async fn dial(address: &str, key: &SecretKey) -> Result<Link<ToRoot, ToLeaf>, DialError> {
    let found = tokio::net::lookup_host(address).await;
    let found: Vec<SocketAddr> =
        found.map_err(|source| DialError::Lookup { address: address.to_owned(), source })?.collect();
    let unreachable = |reason: String| DialError::Unreachable { address: address.to_owned(), reason };
    let mut failed = unreachable("it stands for no address".to_owned());
    for server in found {
        let local: SocketAddr =
            if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
        let endpoint = endpoint_of_client(local).map_err(DialError::Socket)?;
        let config = config(key, server.ip().is_loopback())?;
        let connecting = endpoint.connect_with(config, server, &tls::server_name(Some(&key.public())));
        let connecting = match connecting {
            Ok(connecting) => connecting,
            Err(error) => {
                failed = unreachable(error.to_string());
                continue;
            }
        };
        match tokio::time::timeout(IDLE, connecting).await {
            Ok(Ok(connection)) => {
                let (near, far) = pair();
                let (send, receive) =
                    connection.open_bi().await.map_err(|error| unreachable(error.to_string()))?;
                tokio::spawn(async move {
                    // It is kept as long as the link is used.
                    let _endpoint = endpoint;
                    let ended = carry(far, send, receive).await;
                    close(&connection, &ended).await;
                });
                return Ok(near);
            }
            Ok(Err(error)) => failed = unreachable(error.to_string()),
            Err(_) => failed = unreachable("no answer in time".to_owned()),
        }
    }
    Err(failed)
}

/// The link of a leaf that has connected here and proved the key.
pub async fn accept(connection: Connection) -> Option<Link<ToLeaf, ToRoot>> {
    connection.set_receive_window(VarInt::from_u32(WINDOW));
    let stream = tokio::time::timeout(IDLE, connection.accept_bi()).await;
    let (send, receive) = stream.ok()?.ok()?;
    let (near, far) = pair();
    tokio::spawn(async move {
        let ended = carry(far, send, receive).await;
        close(&connection, &ended).await;
    });
    Some(near)
}

/// Ends a connection, once what was sent has arrived.
async fn close(connection: &Connection, ended: &LinkError) {
    if matches!(ended, LinkError::Message | LinkError::TooLarge { .. }) {
        // It would end again and again.
        warn!("the link to the server at {} has ended: {ended}", connection.remote_address());
    }
    if matches!(ended, LinkError::Closed) {
        let _ = tokio::time::timeout(KEEP_ALIVE, connection.closed()).await;
    }
    connection.close(VarInt::from_u32(0), ended.to_string().as_bytes());
}

fn config(key: &SecretKey, loopback: bool) -> Result<ClientConfig, DialError> {
    let provider = Arc::new(tls::provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(DialError::Tls)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Same { key: key.public(), provider }))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(tls::shown(key))));
    config.alpn_protocols = LINK_PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    let mut transport = TransportConfig::default();
    transport
        .max_idle_timeout(Some(VarInt::from_u32(IDLE.as_millis() as u32).into()))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(u64::from(WINDOW))
        .datagram_receive_buffer_size(None);
    if loopback {
        over_loopback(&mut transport);
    } else {
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.upper_bound(JUMBO);
        transport.mtu_discovery_config(Some(discovery));
    }
    let crypto = QuicClientConfig::try_from(config)
        .map_err(|error| DialError::Tls(Error::General(error.to_string())))?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

/// Trusts the server that proves this key.
#[derive(Debug)]
struct Same {
    key: PublicKey,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Same {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if tls::peer_key(key)? == self.key {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        tls::no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        tls::verify_signature(&self.provider, message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        tls::signature_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
