//! Accepted updates over several links to one root.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use aggregator::config::Config;
use aggregator::coordinator::PeerId;
use aggregator::leaves::leaf::Leaf;
use aggregator::leaves::message::ToRoot;
use aggregator::leaves::network::dial;
use aggregator::peer::{FromPeer, ToPeer};
use aggregator::run::directory::RunDirectory;
use aggregator::run::{LeafRun, Upload};
use aggregator::storage::Disk;
use aggregator::transport::identity::ServerIdentity;
use clap::Args;
use federation_tests::keys::device_key;
use federation_tests::postgres::Postgres;
use federation_tests::proc::processor_time;
use federation_tests::raw_peer::{hello, update_header};
use federation_tests::serving::Serving;
use shared::frame;
use shared::id::{ClientId, RunId};
use shared::message::{ToClient, ToServer, Verdict};
use shared::payload::Payload;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How fast a root takes note of accepted updates that come over several links, and that none counts twice.
///
/// The root is a real process over a store. The leaves are of this process: real leaves with links over QUIC, whose devices are
/// simulated and whose updates stay in memory. Every device delivers one update of `linear` in the one round; every twentieth connects
/// to another leaf then, as a device does whose leaf is silent, and offers its update there again.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Links to the root.
    #[arg(long, default_value_t = 10)]
    links: usize,
    /// Devices, of which each delivers one update.
    #[arg(long, default_value_t = 100_000)]
    devices: u32,
}

/// Of how many devices one offers its update twice.
const TWICE: u32 = 20;
/// Samples of each device.
const SAMPLES: u64 = 10;

pub(crate) fn run(Arguments { links, devices }: &Arguments) {
    let (links, devices) = (*links, *devices);
    let Some(postgres) = Postgres::start() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let overrides = overrides(devices);
    let mut serving = Serving::start_sharing(directory.path(), &overrides, &postgres.address());
    let identity = ServerIdentity::load(&Disk, &directory.path().join("identity")).expect("it can be read");
    let key = identity.expect("the server made it").keys(std::time::SystemTime::now()).remove(0);
    let epoch: i64 = loop {
        let row =
            postgres.client().query_opt("SELECT epoch FROM experiment_runs WHERE worker IS NOT NULL", &[]);
        if let Ok(Some(row)) = row {
            break row.get(0);
        }
        std::thread::yield_now();
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    let (to_leaves, peers): (Vec<_>, Vec<_>) = (0..links).map(|_| unbounded_channel()).unzip();
    let (heard, mut news) = unbounded_channel();
    let began = Instant::now();
    runtime.block_on(async {
        for (number, peers) in peers.into_iter().enumerate() {
            let leaf = leaf(&directory.path().join(format!("leaf-{number}")), &overrides, peers);
            let link = dial(serving.address(), &key).await.expect("the root is there");
            let hello =
                ToRoot::Hello { leaf: format!("leaf-{number}"), epoch, version: String::new(), part: None };
            tokio::spawn(async move {
                let mut leaf = leaf;
                leaf.serve(link, hello, std::future::pending()).await.expect("the disk works");
            });
        }
    });
    for number in 0..devices {
        let device = Device { number, leaves: to_leaves.clone(), heard: heard.clone() };
        runtime.spawn(device.takes_part());
    }
    drop((heard, to_leaves));
    let usage = || {
        let root = processor_time(serving.process.id()).expect("this bench needs /proc");
        (root, postgres.processor_time())
    };
    let (mut opened, mut receipts, mut before) = (None, BTreeSet::new(), usage());
    while receipts.len() < devices as usize {
        match news.blocking_recv().expect("devices take part until they have a receipt") {
            News::Task if opened.is_none() => {
                opened = Some(Instant::now());
                before = usage();
            }
            News::Task => {}
            News::Receipt(device) => assert!(receipts.insert(device), "a device got two receipts"),
        }
    }
    let (after, over) = (usage(), opened.expect("there were tasks").elapsed());
    let (_, record) = serving.next_round().expect("the round has closed");
    let accepted = record["accepted"].as_u64().expect("a number");
    assert_eq!(accepted, u64::from(devices), "each counts once: {record}");
    let joined = opened.expect("there were tasks").duration_since(began);
    println!("{devices} devices over {links} links to one root, PostgreSQL, a round of `linear`");
    println!("  connected in {:.1} s", joined.as_secs_f64());
    println!(
        "  each update accepted once and the receipt there in {:.1} s: {:.0} a second; {} were offered twice",
        over.as_secs_f64(),
        f64::from(devices) / over.as_secs_f64(),
        devices.div_ceil(TWICE)
    );
    println!(
        "  processor time meanwhile: root {:.1} s, PostgreSQL {:.2} s",
        after.0 - before.0,
        after.1 - before.1
    );
}

fn overrides(devices: u32) -> Vec<String> {
    [
        &format!("data.max-samples={}", devices.max(6000)),
        "model.name=linear",
        "evaluate.every=0",
        "run.rounds=1",
        "connection.timeout=600",
        &format!("data.clients={devices}"),
        &format!("round.min-updates={devices}"),
    ]
    .map(str::to_owned)
    .to_vec()
}

fn leaf(place: &Path, overrides: &[String], peers: UnboundedReceiver<FromPeer>) -> Leaf {
    let config = Config::read(None, overrides, RunId::from_bytes([1; 8])).expect("the root has it too");
    let run = LeafRun::new(Arc::new(Disk), RunDirectory::new(place.to_owned()), config);
    Leaf::new(run.expect("the disk works"), peers)
}

/// What a device tells the bench.
enum News {
    /// It has the task.
    Task,
    /// Its update was accepted.
    Receipt(u32),
}

/// A simulated device.
struct Device {
    number: u32,
    leaves: Vec<UnboundedSender<FromPeer>>,
    heard: UnboundedSender<News>,
}

impl Device {
    fn client(&self) -> ClientId {
        device_key(self.number).public().client()
    }

    /// Connects to a leaf, for the first or the second time.
    fn connect(&self, client: ClientId, time: u32) -> Connection {
        let place = (self.number + time) as usize % self.leaves.len();
        let peer = PeerId(u64::from(2 * self.number + time));
        let (commands, told) = unbounded_channel();
        let leaf = self.leaves[place].clone();
        let connection = Connection { peer, leaf, told };
        connection.says(FromPeer::Connected { peer, commands });
        let message = ToServer::Hello(hello(client, SAMPLES, &[1, 28, 28], 10));
        connection.says(FromPeer::Message { peer, message, bytes: 100, place: None });
        connection
    }

    /// Takes part until its update was accepted.
    async fn takes_part(self) {
        let client = self.client();
        let mut connection = self.connect(client, 0);
        let mut twice = self.number.is_multiple_of(TWICE);
        while let Some(command) = connection.told.recv().await {
            match command {
                ToPeer::Task(delivery) => {
                    let _ = self.heard.send(News::Task);
                    // An update like the model: what is in it costs the same.
                    let model = delivery.model.read().expect("the leaf has written it");
                    connection.delivers(delivery.round, model);
                    if std::mem::take(&mut twice) {
                        let former = std::mem::replace(&mut connection, self.connect(client, 1));
                        let (peer, reason) = (former.peer, "silent".to_owned());
                        former.says(FromPeer::Disconnected { peer, reason, parted: false });
                    }
                }
                ToPeer::Message(ToClient::Receipt { verdict: Verdict::Accepted, .. }) => {
                    let _ = self.heard.send(News::Receipt(self.number));
                    return;
                }
                ToPeer::Message(_) | ToPeer::Frozen(..) => {}
                ToPeer::Disconnect => panic!("device {} is disconnected", self.number),
            }
        }
    }
}

/// A connection of a simulated device.
struct Connection {
    peer: PeerId,
    leaf: UnboundedSender<FromPeer>,
    told: UnboundedReceiver<ToPeer>,
}

impl Connection {
    fn says(&self, event: FromPeer) {
        // A leaf that has failed says so itself.
        let _ = self.leaf.send(event);
    }

    fn delivers(&self, round: u32, model: bytes::Bytes) {
        let header = update_header(round, SAMPLES);
        let frame = frame::encode(&ToServer::Update(header), model.len() as u64).into();
        let (bytes, payload) = (model.len() as u64, Payload::new(vec![model]));
        let upload = Upload::Memory { frame, payload };
        self.says(FromPeer::Uploaded { peer: self.peer, header, upload, turn: None, bytes });
    }
}
