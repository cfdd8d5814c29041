//! The UDP socket and the parameters of QUIC.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "cluster")]
use quinn::Endpoint;
use quinn::congestion::{BbrConfig, CubicConfig};
use quinn::{ConnectionId, ConnectionIdGenerator, EndpointConfig, TransportConfig, VarInt};
use ring::hmac;
use shared::congestion::Congestion;
use socket2::{Domain, Socket, Type};

use super::identity::ServerIdentity;
use super::limits::{IDLE_WINDOW, SEND_WINDOW, STREAM_WINDOW};

/// The largest datagram that loopback takes, less headers and options. If a system's loopback takes less, QUIC's black hole
/// detection finds out.
const LOOPBACK_MTU: u16 = if cfg!(target_os = "linux") { 65_000 } else { 16_000 };
/// The largest datagram that UDP has room for, which an endpoint is ready to receive.
pub(super) const LARGEST_DATAGRAM: u16 = u16::MAX - 8;
/// Bytes in flight on loopback. There is no network to probe, only the receiving socket's buffer not to overrun, and the usual
/// initial window is smaller than one such datagram.
const LOOPBACK_WINDOW: u32 = 512 << 10;
/// Buffer that is requested of the system for each direction of the socket, in bytes.
const SOCKET_BUFFER: usize = 4 << 20;

/// The endpoint's parameters.
///
/// A server that restarts does not know the connections of its previous process. Stateless reset tokens that are derived from
/// its identity let it end them at once instead of by timeout. They depend on the name and the port, since otherwise each of two servers of
/// one identity would reveal how to end the connections of the other.
pub(super) fn endpoint_config(identity: &ServerIdentity, name: &str, port: u16) -> EndpointConfig {
    let mut config = EndpointConfig::new(Arc::new(reset_key(identity, name, port)));
    config.cid_generator(|| Box::new(RandomIds));
    config
}

fn reset_key(identity: &ServerIdentity, name: &str, port: u16) -> hmac::Key {
    let of = if name.is_empty() { String::new() } else { format!(" of {name}") };
    hmac::Key::new(hmac::HMAC_SHA256, &identity.derive(&format!("stateless reset of port {port}{of}")))
}

/// Connection ids of random bytes. The default ones carry a mark of the process, and packets without it are dropped without
/// a stateless reset.
struct RandomIds;

impl ConnectionIdGenerator for RandomIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut bytes = [0; Self::LENGTH];
        getrandom::fill(&mut bytes).expect("a system that ran a TLS handshake has random bytes");
        ConnectionId::new(&bytes)
    }

    fn cid_len(&self) -> usize {
        Self::LENGTH
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

impl RandomIds {
    const LENGTH: usize = 8;
}

/// Binds a socket with large buffers, as far as the system grants them: a datagram that finds the buffer full is lost and
/// sent again, and the defaults are small.
pub(super) fn bind(address: SocketAddr) -> std::io::Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(socket2::Protocol::UDP))?;
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Changes the limits for a connection within this machine.
pub(crate) fn over_loopback(transport: &mut TransportConfig) {
    let mut congestion = CubicConfig::default();
    congestion.initial_window(u64::from(LOOPBACK_WINDOW));
    transport
        .stream_receive_window(VarInt::from_u32(LOOPBACK_WINDOW))
        .send_window(u64::from(LOOPBACK_WINDOW))
        .initial_mtu(LOOPBACK_MTU)
        // One datagram fills a whole batch: there is nothing to segment.
        .enable_segmentation_offload(false)
        .mtu_discovery_config(None)
        .congestion_controller_factory(Arc::new(congestion));
}

/// An endpoint that dials servers, whose datagrams may be large.
#[cfg(feature = "cluster")]
pub(crate) fn endpoint_of_client(local: SocketAddr) -> std::io::Result<Endpoint> {
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(LARGEST_DATAGRAM).expect("the largest UDP payload is a valid size");
    let runtime = quinn::default_runtime().expect("links are made inside the tokio runtime");
    Endpoint::new(config, None, bind(local)?, runtime)
}

/// The limits of a connection, and its idle timeout.
pub(super) fn transport(
    connection_timeout: Duration,
    congestion: Congestion,
    loopback: bool,
) -> TransportConfig {
    let mut transport = TransportConfig::default();
    let idle = u32::try_from(connection_timeout.as_millis()).unwrap_or(u32::MAX);
    transport
        .max_idle_timeout(Some(VarInt::from_u32(idle).into()))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(IDLE_WINDOW))
        .send_window(SEND_WINDOW)
        // Datagrams are not used, and each would pin the buffer of its whole packet.
        .datagram_receive_buffer_size(None)
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        // Raised by the welcome.
        .max_concurrent_uni_streams(VarInt::from_u32(0));
    match congestion {
        Congestion::Cubic => {}
        Congestion::Bbr => {
            transport.congestion_controller_factory(Arc::new(BbrConfig::default()));
        }
    }
    if loopback {
        over_loopback(&mut transport);
    }
    transport
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_knows_the_connections_of_its_earlier_life_and_no_other_servers() {
        let identity = ServerIdentity::generate().expect("random bytes");
        let token = |name, port| {
            hmac::sign(&reset_key(&identity, name, port), b"a connection's id").as_ref().to_owned()
        };
        assert_eq!(token("", 4433), token("", 4433), "started again");
        assert_ne!(token("", 4433), token("", 4434), "another one of the same identity");
        assert_ne!(token("a.example:4433", 4433), token("b.example:4433", 4433), "on two machines");
    }
}
