//! A QUIC peer that sends any messages: it shares no code with the client.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use edge_client::trust::Trust;
use models::Limits;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{
    ApplicationClose, ClientConfig, Connection, ConnectionError, Endpoint, RecvStream, SendStream,
    TransportConfig,
};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use shared::frame::{self, HEADER_LEN, Header};
use shared::id::ClientId;
use shared::identity::{PublicKey, SecretKey, tls};
use shared::message::{Hello, Progress, ToClient, ToServer, TrainReport, UpdateHeader, Verdict};
use shared::protocol::Protocol;
use shared::record::Record;
use shared::spec::RunSpec;

use crate::process::PATIENCE;

/// A connection with its control stream.
pub struct RawPeer {
    /// The connection.
    pub connection: Connection,
    /// Client to server; nothing was said on it yet.
    pub control: SendStream,
    answers: RecvStream,
    _endpoint: Endpoint,
}

/// A well-formed hello for a run.
#[must_use]
pub fn hello(client: ClientId, samples: u64, shape: &[usize], classes: usize) -> Hello {
    Hello {
        client,
        software: "raw peer".to_owned(),
        samples,
        shape: shape.iter().map(|&axis| axis as u32).collect(),
        classes: classes as u32,
        holds: None,
    }
}

/// The header of an update that reports `samples` samples.
#[must_use]
pub fn update_header(round: u32, samples: u64) -> UpdateHeader {
    UpdateHeader { round, report: TrainReport { samples, steps: 1, loss: 1.0, ..TrainReport::default() } }
}

impl RawPeer {
    /// Connects with a device's key, and opens a control stream without a word.
    ///
    /// # Panics
    /// If there is no connection.
    pub async fn connect(address: SocketAddr, pin: PublicKey, key: &SecretKey) -> Self {
        Self::connect_as(address, pin, key, TransportConfig::default())
            .await
            .expect("the server accepts connections")
    }

    /// Connects with QUIC parameters of its own, or hears why not.
    ///
    /// # Panics
    /// If there is neither an answer nor a refusal.
    pub async fn connect_as(
        address: SocketAddr,
        pin: PublicKey,
        key: &SecretKey,
        transport: TransportConfig,
    ) -> Result<Self, ConnectionError> {
        Self::connect_speaking(Protocol::SPOKEN[0], address, pin, key, transport).await
    }

    /// The same in a version of the protocol.
    ///
    /// # Panics
    /// As [`connect_as`](Self::connect_as).
    pub async fn connect_speaking(
        version: Protocol,
        address: SocketAddr,
        pin: PublicKey,
        key: &SecretKey,
        transport: TransportConfig,
    ) -> Result<Self, ConnectionError> {
        Self::connect_offering(vec![version.name().to_vec()], address, pin, key, transport).await
    }

    /// The same with any names of protocols.
    ///
    /// # Panics
    /// As [`connect_as`](Self::connect_as).
    pub async fn connect_offering(
        names: Vec<Vec<u8>>,
        address: SocketAddr,
        pin: PublicKey,
        key: &SecretKey,
        transport: TransportConfig,
    ) -> Result<Self, ConnectionError> {
        let from = (Ipv4Addr::LOCALHOST, 0).into();
        Self::connect_from(from, names, address, pin, key, transport).await
    }

    /// The same from an address of its own.
    ///
    /// # Panics
    /// As [`connect_as`](Self::connect_as).
    pub async fn connect_from(
        from: SocketAddr,
        names: Vec<Vec<u8>>,
        address: SocketAddr,
        pin: PublicKey,
        key: &SecretKey,
        transport: TransportConfig,
    ) -> Result<Self, ConnectionError> {
        let provider = Arc::new(tls::provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("ring speaks TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Trust::new(Some(pin))))
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(tls::shown(key))));
        config.alpn_protocols = names;
        let crypto = QuicClientConfig::try_from(config).expect("TLS 1.3 has the ciphers of QUIC");
        let endpoint = Endpoint::client(from).expect("a socket");
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(transport));
        let connecting = endpoint.connect_with(config, address, "aggregator").expect("a valid request");
        let connection = within(connecting).await?;
        let (control, answers) = within(connection.open_bi()).await?;
        Ok(Self { connection, control, answers, _endpoint: endpoint })
    }

    /// From now on the peer gives signs of life and reads nothing; returns how its connection ends, once it
    /// has.
    pub async fn stays(mut self) -> ConnectionError {
        let sign = frame::encode(&ToServer::Heartbeat(Progress::default()), 0);
        let mut signs = tokio::time::interval(Duration::from_millis(100));
        let connection = self.connection.clone();
        let signs = async {
            loop {
                signs.tick().await;
                if self.control.write_all(&sign).await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            () = signs => unreachable!("it gives signs for ever"),
            ended = within(connection.closed()) => ended,
        }
    }

    /// Sends bytes on the control stream.
    ///
    /// # Panics
    /// If the connection has already ended.
    pub async fn say(&mut self, bytes: &[u8]) {
        within(self.control.write_all(bytes)).await.expect("the connection stands");
    }

    /// Says hello and is welcomed.
    ///
    /// # Panics
    /// If it is not.
    pub async fn join(&mut self, hello: Hello) -> Box<RunSpec> {
        self.say(&frame::encode(&ToServer::Hello(hello), 0)).await;
        match self.answer().await {
            Ok(ToClient::Welcome { spec, .. }) => Box::new(spec.read().expect("a specification")),
            other => panic!("instead of a welcome came {other:?}"),
        }
    }

    /// The next message on the control stream, or why there is none.
    ///
    /// # Panics
    /// If what comes is no message of a server.
    pub async fn answer(&mut self) -> Result<ToClient, ConnectionError> {
        let mut header = [0; HEADER_LEN];
        if within(self.answers.read_exact(&mut header)).await.is_err() {
            return Err(self.closed().await);
        }
        let header = Header::parse(header, 0).expect("servers send frames");
        let mut body = vec![0; header.message as usize];
        within(self.answers.read_exact(&mut body)).await.expect("servers send whole frames");
        Ok(frame::decode(&body).expect("servers send messages"))
    }

    /// Waits for the receipt of an update for `round`.
    ///
    /// # Panics
    /// If something else comes.
    pub async fn verdict(&mut self, round: u32) -> Verdict {
        match self.answer().await {
            Ok(ToClient::Receipt { round: of, verdict }) if of == round => verdict,
            other => panic!("instead of a receipt for round {round} came {other:?}"),
        }
    }

    /// Waits for a task: its round and the broadcast.
    ///
    /// # Panics
    /// If none comes.
    pub async fn task(&self) -> (u32, Record) {
        let mut stream = within(self.connection.accept_uni()).await.expect("the connection stands");
        let bytes = within(stream.read_to_end(64 << 20)).await.expect("a whole task");
        let (header, rest) = bytes.split_first_chunk::<HEADER_LEN>().expect("a header");
        let header = Header::parse(*header, u64::MAX).expect("servers send frames");
        let (body, payload) = rest.split_at(header.message as usize);
        assert_eq!(payload.len() as u64, header.payload);
        let message: ToClient = frame::decode(body).expect("servers send messages");
        let task = message.task().expect("only tasks have a stream of their own");
        let record = Record::read_from(&mut &payload[..], Limits::default()).expect("broadcasts are records");
        (task.round, record)
    }

    /// Sends bytes on a stream of their own, as an update goes, and ends the stream.
    ///
    /// # Panics
    /// If no stream can be opened.
    pub async fn send(&self, bytes: Vec<u8>) {
        let mut stream = within(self.connection.open_uni()).await.expect("a welcomed peer may upload");
        // The server may well hang up in the middle.
        if within(stream.write_chunk(Bytes::from(bytes))).await.is_ok() {
            let _ = stream.finish();
            let _ = within(stream.stopped()).await;
        }
    }

    /// Sends an update.
    ///
    /// # Panics
    /// As [`send`](Self::send).
    pub async fn update(&self, header: UpdateHeader, payload: &[u8]) {
        let mut bytes = frame::encode(&ToServer::Update(header), payload.len() as u64);
        bytes.extend_from_slice(payload);
        self.send(bytes).await;
    }

    /// Waits until the connection is closed, and says why.
    pub async fn closed(&self) -> ConnectionError {
        within(self.connection.closed()).await
    }

    /// Waits until the server closes the connection, and returns the reason it gives.
    ///
    /// # Panics
    /// If it ends in any other way.
    pub async fn reason(&self) -> String {
        reason_of(self.closed().await)
    }
}

/// The reason that the server gave when it closed the connection.
///
/// # Panics
/// If the connection ended in any other way.
#[must_use]
pub fn reason_of(ended: ConnectionError) -> String {
    match ended {
        ConnectionError::ApplicationClosed(ApplicationClose { reason, .. }) => {
            String::from_utf8(reason.to_vec()).expect("reasons are text")
        }
        other => panic!("the server did not close the connection: {other:?}"),
    }
}

/// Nothing takes for ever.
async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("an answer in time")
}
