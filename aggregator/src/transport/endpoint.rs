//! The socket and QUIC's parameters.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::congestion::CubicConfig;
use quinn::{ConnectionId, ConnectionIdGenerator, EndpointConfig, TransportConfig, VarInt};
use ring::hmac;
use socket2::{Domain, Socket, Type};

use super::identity::ServerIdentity;
use super::limits::{IDLE_WINDOW, SEND_WINDOW, STREAM_WINDOW};

/// A datagram as large as loopback takes, less headers and with room for options. If a system's loopback
/// takes less, QUIC's black hole detection finds out.
pub(super) const LOOPBACK_MTU: u16 = if cfg!(target_os = "linux") { 65_000 } else { 16_000 };
/// Bytes under way on loopback. There is no network to probe there, only the receiving socket's buffer to
/// spare; the usual first flight is smaller than one such datagram.
const LOOPBACK_WINDOW: u32 = 512 << 10;
/// What is asked of the system for each direction of the socket.
const SOCKET_BUFFER: usize = 4 << 20;

/// A server that was killed and started again does not know the connections of its earlier life. Reset tokens
/// that follow from its identity let it say so at once, where clients would otherwise wait for silence. Those of another server of
/// the same identity, at another port, are others: otherwise each would tell strangers how to end connections of the other one.
pub(super) fn endpoint_config(identity: &ServerIdentity, port: u16) -> EndpointConfig {
    let mut config = EndpointConfig::new(Arc::new(reset_key(identity, port)));
    config.cid_generator(|| Box::new(RandomIds));
    config
}

fn reset_key(identity: &ServerIdentity, port: u16) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &identity.derive(&format!("stateless reset of port {port}")))
}

/// Connection ids of plain random bytes. The default ones carry a mark of the process that made them, and
/// packets without it are dropped in silence.
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

/// A datagram that finds the socket's buffer full is lost and sent again; systems give little by default.
/// What the system does not grant is done without.
pub(super) fn bind(address: SocketAddr) -> std::io::Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(socket2::Protocol::UDP))?;
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// What a connection may take, and how long it may be silent. `mtu` is that of loopback.
pub(super) fn transport(lost_after: Duration, mtu: Option<u16>) -> TransportConfig {
    let mut transport = TransportConfig::default();
    let idle = u32::try_from(lost_after.as_millis()).unwrap_or(u32::MAX);
    transport
        .max_idle_timeout(Some(VarInt::from_u32(idle).into()))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(IDLE_WINDOW))
        .send_window(SEND_WINDOW)
        // Nobody reads datagrams. Each would keep the whole packet's buffer that it came in, however short it is.
        .datagram_receive_buffer_size(None)
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        // Until the peer is welcomed.
        .max_concurrent_uni_streams(VarInt::from_u32(0));
    if let Some(mtu) = mtu {
        let mut congestion = CubicConfig::default();
        congestion.initial_window(u64::from(LOOPBACK_WINDOW));
        transport
            .stream_receive_window(VarInt::from_u32(LOOPBACK_WINDOW))
            .send_window(u64::from(LOOPBACK_WINDOW))
            .initial_mtu(mtu)
            // One datagram fills a whole batch: there is nothing to segment.
            .enable_segmentation_offload(false)
            .mtu_discovery_config(None)
            .congestion_controller_factory(Arc::new(congestion));
    }
    transport
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_knows_the_connections_of_its_earlier_life_and_no_other_servers() {
        let identity = ServerIdentity::generate().expect("random bytes");
        let token = |port| hmac::sign(&reset_key(&identity, port), b"a connection's id").as_ref().to_owned();
        assert_eq!(token(4433), token(4433), "started again");
        assert_ne!(token(4433), token(4434), "another one of the same identity");
    }
}
