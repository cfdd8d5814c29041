//! The cost of connected, idle devices to the aggregator.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use federation_tests::keys::device_key;
#[cfg(unix)]
use federation_tests::postgres::Postgres;
use federation_tests::proc::processor_time;
use federation_tests::raw_peer::hello;
use federation_tests::serving::Serving;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, RecvStream, SendStream, TransportConfig, VarInt};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use shared::frame::{self, HEADER_LEN, Header};
use shared::identity::tls;
use shared::message::{Progress, ToClient, ToServer};
use shared::protocol::Protocol;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// What connected, idle devices cost the aggregator: memory for each, and processor time for each heartbeat.
///
/// The devices are connections of this process, each with a key of its own and an id in the aggregator's database; they send
/// a hello and the heartbeats that the run asks for. The run waits for one device more than there are. The cost of unknown peers
/// is measured as well: connections of keys that the server does not know and refuses. With `--servers` the devices are spread over
/// several servers of one run, which share a store; one of them leads the run.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Devices that connect.
    #[arg(long, default_value_t = 10_000)]
    devices: u32,
    /// Time over which heartbeats are measured.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Servers that serve the run together.
    #[arg(long, default_value_t = 1)]
    servers: usize,
}

/// Handshakes at a time: fewer than the aggregator's slots for unknown peers.
const AT_A_TIME: usize = 24;
/// Seconds between signs of life.
const HEARTBEAT: u64 = 5;
/// Connections of unknown peers that are measured.
const UNKNOWN: u32 = 2000;

pub(crate) fn run(Arguments { devices, seconds, servers }: &Arguments) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    let Some(lab) = Lab::start(directory.path(), *servers, &overrides(*devices)) else { return };
    runtime.block_on(async {
        lab.connected(*devices, Duration::from_secs(*seconds)).await;
        drop(lab);
        unknown(directory.path()).await;
    });
}

fn overrides(devices: u32) -> Vec<String> {
    [
        "data.set=mnist",
        "data.path=.",
        "model.name=linear",
        "evaluate.every=0",
        &format!("data.clients={}", devices + 1),
        &format!("connection.heartbeat={HEARTBEAT}"),
        "connection.timeout=60",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// The servers of the devices, and what these share if they are several.
struct Lab {
    servers: Vec<Serving>,
    #[cfg(unix)]
    postgres: Option<Postgres>,
}

/// What the processes of a lab use.
#[derive(Clone)]
struct Usage {
    /// Bytes that are resident, of each server.
    memory: Vec<f64>,
    /// Seconds of processor time, of each server.
    processor: Vec<f64>,
    /// The same of the database.
    database: f64,
}

impl Lab {
    /// `None` where several servers have no store.
    fn start(directory: &Path, servers: usize, overrides: &[String]) -> Option<Self> {
        #[cfg(unix)]
        if servers > 1 {
            let postgres = Postgres::start()?;
            let servers = Serving::start_several(directory, overrides, &postgres.address(), servers);
            return Some(Self { servers, postgres: Some(postgres) });
        }
        assert_eq!(servers, 1, "several servers share a PostgreSQL, which this system has not");
        Some(Self {
            servers: vec![Serving::start(directory, overrides)],
            #[cfg(unix)]
            postgres: None,
        })
    }

    fn usage(&self) -> Usage {
        let memory = |serving: &Serving| serving.process.memory("VmRSS").expect("this bench needs /proc");
        let processor =
            |serving: &Serving| processor_time(serving.process.id()).expect("this bench needs /proc");
        Usage {
            memory: self.servers.iter().map(|serving| memory(serving) as f64).collect(),
            processor: self.servers.iter().map(processor).collect(),
            #[cfg(unix)]
            database: self.postgres.as_ref().map_or(0.0, Postgres::processor_time),
            #[cfg(not(unix))]
            database: 0.0,
        }
    }

    async fn connected(&self, devices: u32, time: Duration) {
        let (empty, began) = (self.usage(), Instant::now());
        let mut all = self.join(devices).await;
        let (took, joined) = (began.elapsed().as_secs_f64(), self.usage());
        println!(
            "{devices} devices joined in {took:.1} s ({:.2} ms of the servers' processor time each)",
            1e3 * joined.processor_since(&empty) / f64::from(devices)
        );
        let (of_all, before): (f64, f64) = (joined.memory.iter().sum(), empty.memory.iter().sum());
        let each = (of_all - before) / f64::from(devices);
        println!("resident: {:.1} MB, {:.1} kB for each device", of_all / 1e6, each / 1e3);

        let (before, began) = (self.usage(), Instant::now());
        let signs = signs_of_life(&mut all, time).await;
        let (after, over) = (self.usage(), began.elapsed().as_secs_f64());
        let spent = after.processor_since(&before);
        println!(
            "signs of life: {signs} in {over:.0} s, {:.0} us of processor time each, {:.1} % of one core",
            1e6 * spent / signs as f64,
            100.0 * spent / over
        );
        println!("resident after that: {:.1} MB", after.memory.iter().sum::<f64>() / 1e6);
        if self.servers.len() > 1 {
            for (number, memory) in after.memory.iter().enumerate() {
                let share = 100.0 * (after.processor[number] - before.processor[number]) / over;
                println!("  server {number}: {:.1} MB, {share:.1} % of one core", memory / 1e6);
            }
            let share = 100.0 * (after.database - before.database) / over;
            println!("  PostgreSQL: {share:.1} % of one core");
        }
    }

    /// Connects the devices, each to one server, in turn.
    async fn join(&self, devices: u32) -> Vec<Joined> {
        let loopback = "127.0.0.1:0".parse().expect("an address");
        let endpoint = Arc::new(Endpoint::client(loopback).expect("a socket"));
        let addresses: Vec<std::net::SocketAddr> =
            self.servers.iter().map(|serving| serving.address().parse().expect("an address")).collect();
        let turns = Arc::new(Semaphore::new(AT_A_TIME));
        let mut joining = JoinSet::new();
        for number in 0..devices {
            let (endpoint, turns) = (endpoint.clone(), turns.clone());
            let address = addresses[number as usize % addresses.len()];
            joining.spawn(async move {
                let _turn = turns.acquire().await.expect("never closed");
                loop {
                    match join(&endpoint, address, number).await {
                        Ok((joined, ToClient::Welcome { .. })) => return joined,
                        Ok((_, other)) => panic!("instead of a welcome came {other:?}"),
                        // All slots for unknown peers were taken.
                        Err(_) => tokio::task::yield_now().await,
                    }
                }
            });
        }
        joining.join_all().await
    }
}

impl Usage {
    /// The servers' processor time since then, in seconds.
    fn processor_since(&self, before: &Self) -> f64 {
        self.processor.iter().sum::<f64>() - before.processor.iter().sum::<f64>()
    }
}

/// Has the devices send heartbeats for this time, spread over the time between two of each, as those of a fleet are. Gives how many.
async fn signs_of_life(all: &mut [Joined], time: Duration) -> u64 {
    let sign = frame::encode(&ToServer::Heartbeat(Progress::default()), 0);
    let mut moments = tokio::time::interval(Duration::from_millis(50));
    let share = all.len().div_ceil((HEARTBEAT * 20) as usize);
    let (mut signs, mut next, began) = (0, 0, Instant::now());
    while began.elapsed() < time {
        moments.tick().await;
        for _ in 0..share {
            all[next].control.write_all(&sign).await.expect("the connection stands");
            next = (next + 1) % all.len();
            signs += 1;
        }
    }
    signs
}

async fn unknown(directory: &Path) {
    let serving = Serving::start_admitting(&directory.join("unknown"), &overrides(1), "ticket");
    let memory = || serving.process.memory("VmRSS").expect("this bench needs /proc") as f64;
    let processor = || processor_time(serving.process.id()).expect("this bench needs /proc");
    let (empty, before) = (memory(), processor());
    let endpoint = Endpoint::client("127.0.0.1:0".parse().expect("an address")).expect("a socket");
    let address = serving.address().parse().expect("an address");
    for number in 0..UNKNOWN {
        let refused = join(&endpoint, address, 1_000_000 + number).await;
        assert!(matches!(refused, Ok((_, ToClient::Refused(_)))), "an unknown peer was admitted");
    }
    println!(
        "{UNKNOWN} unknown peers refused: {:.2} ms of processor time each, {:.1} kB of memory each left behind",
        1e3 * (processor() - before) / f64::from(UNKNOWN),
        (memory() - empty).max(0.0) / 1e3 / f64::from(UNKNOWN)
    );
}

/// A device that is there.
struct Joined {
    control: SendStream,
    _answers: RecvStream,
    _connection: Connection,
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Connects, says hello, and hears the answer.
async fn join(
    endpoint: &Endpoint,
    address: std::net::SocketAddr,
    number: u32,
) -> Result<(Joined, ToClient), Failed> {
    let key = device_key(number);
    let provider = Arc::new(tls::provider());
    let trust = edge_client::trust::Trust::new(None);
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(trust))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(tls::shown(&key))));
    config.alpn_protocols = Protocol::offered();
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(VarInt::from_u32(120_000).into()));
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(config)?));
    config.transport_config(Arc::new(transport));
    let connection = endpoint.connect_with(config, address, "any.federation")?.await?;
    let (mut control, mut answers) = connection.open_bi().await?;
    let hello = hello(key.public().client(), 10, &[1, 28, 28], 10);
    control.write_all(&frame::encode(&ToServer::Hello(hello), 0)).await?;
    let mut header = [0; HEADER_LEN];
    answers.read_exact(&mut header).await?;
    let header = Header::parse(header, 0)?;
    let mut body = vec![0; header.message as usize];
    answers.read_exact(&mut body).await?;
    let answer = frame::decode(&body)?;
    Ok((Joined { control, _answers: answers, _connection: connection }, answer))
}
