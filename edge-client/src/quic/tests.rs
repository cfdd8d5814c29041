//! The transport against servers of the test's own, on loopback.

use quinn::ServerConfig;
use quinn::crypto::rustls::QuicServerConfig;
use shared::identity::tls::{AnyKey, ServerKeys};
use shared::message::TaskKind;

use super::*;
use crate::transport::Outgoing;

/// A server with the key of `byte` that speaks these protocols.
fn server(byte: u8, protocols: &[&[u8]]) -> (Endpoint, String) {
    let provider = Arc::new(tls::provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(Arc::new(AnyKey(provider)))
        .with_cert_resolver(Arc::new(ServerKeys::new(&[SecretKey::from_bytes([byte; 32])])));
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(config).unwrap()));
    let endpoint = Endpoint::server(config, (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = endpoint.local_addr().unwrap().to_string();
    (endpoint, address)
}

/// A device that trusts the server with the key of 1.
fn connector(addresses: &[&str]) -> QuicConnector {
    let trust = Trust::new(Some(SecretKey::from_bytes([1; 32]).public()));
    let addresses: Vec<String> = addresses.iter().map(|&address| address.to_owned()).collect();
    QuicConnector::new(addresses, trust, &SecretKey::from_bytes([9; 32]))
}

/// Answers handshakes until the test is over.
async fn answer(server: Endpoint) {
    while let Some(incoming) = server.accept().await {
        tokio::spawn(async move {
            if let Ok(connection) = incoming.await {
                connection.closed().await;
            }
        });
    }
}

#[tokio::test]
async fn a_server_of_another_age_is_told_from_one_that_is_not_there() {
    for protocols in [&[&b"federation/1"[..]][..], &[b"federation/7", b"h3"], &[]] {
        let (endpoint, address) = server(1, protocols);
        tokio::spawn(answer(endpoint));
        let missing = ConnectError::NoCommonProtocol { server: address.clone() };
        let mut connector = connector(&[&address]);
        assert_eq!(connector.reach().await, Err(missing.clone()), "{protocols:?}");
        assert_eq!(connector.connect(Pass::All).await.err(), Some(missing), "{protocols:?}");
    }
    let (endpoint, address) = server(1, &[b"federation/7", b"federation/3"]);
    tokio::spawn(answer(endpoint));
    assert!(connector(&[&address]).connect(Pass::All).await.is_ok(), "an older version that both speak");
}

#[tokio::test]
async fn of_several_answers_the_one_that_helps_most_is_told() {
    let (other, first) = server(2, &[b"federation/4"]);
    let (old, second) = server(1, &[b"federation/1"]);
    tokio::spawn(answer(other));
    tokio::spawn(answer(old));
    for addresses in [[&first[..], &second], [&second, &first]] {
        let error = connector(&addresses).connect(Pass::All).await.err();
        assert_eq!(error, Some(ConnectError::NoCommonProtocol { server: second.clone() }));
    }
    let error = connector(&[&first]).connect(Pass::All).await.err();
    assert!(matches!(error, Some(ConnectError::Untrusted { .. })), "{error:?}");
}

#[tokio::test]
async fn an_older_server_is_not_told_what_it_does_not_know() {
    let skipped = ToServer::SkippedSamples { samples: 3 };
    for (protocol, understood) in [(&b"federation/4"[..], false), (b"federation/5", true)] {
        let (endpoint, address) = server(1, &[protocol]);
        let hears = async {
            let connection = endpoint.accept().await.unwrap().await.unwrap();
            let (_answers, mut control) = connection.accept_bi().await.unwrap();
            control.read_to_end(1000).await.unwrap()
        };
        let speaks = async {
            let link = connector(&[&address]).connect(Pass::All).await.unwrap();
            for message in [&skipped, &ToServer::Goodbye] {
                link.outgoing.send(Outgoing::Message(Box::new(message.clone()))).unwrap();
            }
            // Dropping this would close the connection.
            link.incoming
        };
        let (heard, _listening) = tokio::join!(hears, speaks);
        let said = [understood.then_some(&skipped), Some(&ToServer::Goodbye)];
        let said: Vec<_> = said.into_iter().flatten().flat_map(|message| frame::encode(message, 0)).collect();
        assert_eq!(heard, said, "{}", String::from_utf8_lossy(protocol));
    }
}

#[tokio::test]
async fn a_task_that_is_too_large_does_not_end_the_connection_before_the_device_has_declined() {
    let (endpoint, address) = server(1, &[b"federation/6"]);
    let declined = ToServer::Declined { reason: "it has no memory".to_owned() };
    let hears = async {
        let connection = endpoint.accept().await.unwrap().await.unwrap();
        let mut stream = connection.open_uni().await.unwrap();
        let task = ToClient::Task { round: 1, work: TaskKind::TRAIN };
        stream.write_all(&frame::encode(&task, 1001)).await.unwrap();
        stream.finish().unwrap();
        assert_eq!(stream.stopped().await, Ok(None), "the device has it");
        let (mut control, mut said) = connection.accept_bi().await.unwrap();
        control.write_all(&frame::encode(&ToClient::Servers { addresses: Vec::new() }, 0)).await.unwrap();
        said.read_to_end(1000).await.unwrap()
    };
    let speaks = async {
        let connector = connector(&[&address]).with_max_task(Some(1000));
        let Channel { outgoing, mut incoming, .. } = connector.clone().connect(Pass::All).await.unwrap();
        // A stream is known to the server once something is written to it.
        outgoing.send(Outgoing::Message(Box::new(ToServer::Goodbye))).unwrap();
        let heard = incoming.recv().await;
        assert!(matches!(heard, Some(Incoming::Message(ToClient::Servers { .. }))), "{heard:?}");
        outgoing.send(Outgoing::Message(Box::new(declined.clone()))).unwrap();
        incoming
    };
    let (heard, _listening) = tokio::join!(hears, speaks);
    let said: Vec<_> = [ToServer::Goodbye, declined].iter().flat_map(|said| frame::encode(said, 0)).collect();
    assert_eq!(heard, said);
}

/// Says to the first device that speaks where else the server is.
async fn tell_addresses(server: Endpoint) {
    let Some(incoming) = server.accept().await else { return };
    let Ok(connection) = incoming.await else { return };
    let (mut control, _messages) = connection.accept_bi().await.unwrap();
    let servers = ToClient::Servers { addresses: vec!["vpn:4433".to_owned()] };
    control.write_all(&frame::encode(&servers, 0)).await.unwrap();
    connection.closed().await;
}

#[tokio::test]
async fn addresses_are_learned_from_the_trusted_server_alone() {
    for (byte, believed) in [(1, true), (2, false)] {
        let (endpoint, address) = server(byte, &[b"federation/6"]);
        tokio::spawn(tell_addresses(endpoint));
        let mut connector = connector(&[&address]);
        let connected = connector.connect(Pass::All).await;
        assert_eq!(connected.is_ok(), believed);
        if let Ok(mut channel) = connected {
            assert!(!channel.elsewhere);
            channel.outgoing.send(Outgoing::Message(Box::new(ToServer::Goodbye))).unwrap();
            let heard = channel.incoming.recv().await;
            assert!(matches!(heard, Some(Incoming::Message(ToClient::Servers { .. }))), "{heard:?}");
        }
        let order = connector.addresses.lock().order(connector.client);
        assert_eq!(order.contains(&"vpn:4433".to_owned()), believed, "{order:?}");
    }
}

#[tokio::test]
async fn what_is_left_of_a_pass_is_not_waited_for_as_long_as_a_pass() {
    // Bound, so that no error comes back, and read by nothing.
    let silent = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let began = Instant::now();
    let failed = connector(&[&address]).connect(Pass::Rest).await.err();
    let reason = "no answer".to_owned();
    assert_eq!(failed, Some(ConnectError::Unreachable { server: address, reason }));
    assert!(began.elapsed() < CONNECT_TIMEOUT / 2);
}

#[tokio::test]
async fn a_pass_without_addresses_left_is_an_attempt_that_failed_and_not_the_end() {
    let mut connector = connector(&["lab:4433"]);
    connector.addresses.lock().answered(&["lab:4433".to_owned()]);
    let failed = connector.connect(Pass::Rest).await.err();
    assert!(failed.as_ref().is_some_and(|error| error.server() == Some("lab:4433")), "{failed:?}");
}
