//! Simulation: a whole federation in one process.
//!
//! Every client runs the device's code (its session, driver and training) and exchanges real frames with the real
//! coordinator; only identities, data and disks of the devices are simulated. The user chooses the transport; both give
//! the same model, bit for bit.
//!
//! Some clients may attack if the configuration says so, see [`attack`](crate::attack).

mod adversary;
mod clients;
#[cfg(feature = "cluster")]
pub mod devices;
mod memory;
mod store;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use edge_client::driver::{DeviceSamples, Notice as ClientNotice, Participant, Source, take_part};
use edge_client::pool::{NoThreads, TrainPool};
use edge_client::quic::QuicConnector;
use edge_client::sensors::Sensors;
use edge_client::session::SessionEnd as Ended;
use edge_client::store::{Store, StoreError};
use edge_client::task::{OwnTrainer, TestSamples};
use edge_client::transport::Connector;
use edge_client::trust::Trust;
use models::Backend;
use shared::congestion::Congestion;
use shared::data::{DataError, View};
use shared::id::ClientId;
use shared::identity::SecretKey;
use shared::trainer::{ClientNumber, Trainers};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::warn;

use crate::coordinator::{Outcome, Resume};
use crate::data::TestSet;
use crate::driver::drive;
use crate::enrolment::{Admission, Register};
use crate::events::Sink;
use crate::run::{Run, RunError};
use crate::start::StartError;
use crate::transport::identity::{IdentityError, ServerIdentity};
use crate::transport::{ListenError, Listener};
use adversary::{Adversary, Distorting};
use memory::MemoryConnector;

pub use clients::Clients;
use store::ClientStore;

/// How simulated clients reach the coordinator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    /// Channels in this process; messages are still encoded and decoded.
    #[default]
    Memory,
    /// Encrypted QUIC over loopback.
    Quic,
}

/// Why a simulation cannot run.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The system provides no threads.
    #[error(transparent)]
    Threads(#[from] NoThreads),
    /// The QUIC transport got no port.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// An attacker's data cannot be changed.
    #[error("an attacker's labels cannot be flipped: {0}")]
    Attack(#[from] DataError),
    /// The QUIC transport got no key.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The data of the clients cannot be read.
    #[error(transparent)]
    Start(#[from] Box<StartError>),
    /// A client has no place on the disk.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<StartError> for SimulateError {
    fn from(error: StartError) -> Self {
        Self::Start(Box::new(error))
    }
}

/// What the clients of a simulation have in common.
struct Common {
    tests: TestSamples,
    trainers: Option<Arc<Trainers>>,
    backend: Backend,
    pool: TrainPool,
    /// How many clients there are.
    count: u32,
}

impl Common {
    fn participant(&self, client: ClientId, data: View, index: u32) -> Participant {
        let Self { tests, trainers, backend, pool, count } = self;
        Participant {
            client,
            // All shares are from one data set, whose skipped samples the run reports itself.
            samples: Source::Read(DeviceSamples {
                data,
                skipped: 0,
                tests: tests.clone(),
                trainer: trainers.clone().map(|trainers| OwnTrainer {
                    trainers,
                    number: Some(ClientNumber { client: index, clients: *count }),
                }),
            }),
            sensors: Sensors::none(),
            backend: backend.clone(),
            pool: pool.clone(),
            memory: None,
            // Simulated clients hide nothing.
            identity: None,
            secure_only: None,
            private_only: None,
            at_rest: || {},
            alive: None,
            progress: None,
        }
    }
}

/// Runs the federation with one client for every share. At most `threads` clients train at a time, on the run's
/// [`backend`](Run::backend). A client with an empty share does not take part.
pub async fn simulate(
    mut run: Run,
    resume: Resume,
    clients: impl Into<Clients>,
    transport: Transport,
    threads: usize,
    stop: watch::Receiver<bool>,
    sink: &mut dyn Sink,
) -> Result<(Run, Outcome), SimulateError> {
    let Clients { shares, trainers } = clients.into();
    let ended = trainers.clone();
    let (to_driver, from_peers) = mpsc::unbounded_channel();
    let seed = run.spec().root_seed();
    let identities: Vec<_> = (0..shares.len() as u32).map(|index| run.config().client(index)).collect();
    let pool = TrainPool::with_workers(threads)?;
    let (leave, left) = watch::channel(false);
    let mut clients = JoinSet::new();
    let folder = run.directory().clients();
    let (closed, counted) = (resume.closed, resume.counted.clone());
    let id = run.spec().run;
    let store =
        |client: ClientId| ClientStore::new(&folder, id, client, closed, counted.get(&client).copied());
    let backend = run.backend.clone();
    let present = |(data, _): &(View, u32)| !data.is_empty();
    // All clients share the test samples, unless the run holds out samples of each.
    let tests = shared_tests(run.tests.as_ref());
    let adversary = Adversary::of(run.config());
    let bound = run.config().policy.max_samples.unwrap_or(u64::MAX);
    let admitted =
        |(index, data): &(usize, &View)| !data.is_empty() && adversary.declared(*index, data.len()) <= bound;
    // Those that are refused are not waited for.
    run.simulates(shares.iter().enumerate().filter(admitted).count());
    let count = shares.len() as u32;
    let shares = adversary.poisoned(shares)?;
    let common = Common { tests, trainers, backend, pool, count };
    let participants = shares.into_iter().zip(0..).filter(present).map(|(data, index)| {
        let participant = common.participant(identities[index as usize], data, index);
        (participant, adversary.distortion_of(index as usize))
    });
    match transport {
        Transport::Memory => {
            let connector = MemoryConnector::new(to_driver, run.max_payload());
            for (participant, distortion) in participants {
                let store = store(participant.client);
                let connector = Distorting { connector: connector.clone(), distortion };
                enter(&mut clients, participant, connector, store, left.clone());
            }
        }
        Transport::Quic => {
            let identity = ServerIdentity::generate()?;
            let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let participants: Vec<_> = participants.collect();
            let keys: Vec<_> = (0..participants.len() as u64)
                .map(|number| SecretKey::from_bytes(*seed.derive_numbered("device key", number).as_bytes()))
                .collect();
            let insiders = keys.iter().zip(&participants);
            let insiders =
                insiders.map(|(key, (participant, _))| (key.public(), participant.client)).collect();
            let admission = Admission::new(Register::Insiders(insiders));
            let timeout = run.config().policy.connection_timeout;
            let listener = Listener::bind(loopback, &identity, admission, timeout, Congestion::default())?;
            let address = listener.address().to_string();
            let (spool, max_payload) = (run.directory().spool(), run.max_payload());
            tokio::spawn(listener.accept(spool, max_payload, run.config().data.clients, to_driver));
            for ((participant, distortion), key) in participants.into_iter().zip(&keys) {
                let trust = Trust::new(Some(identity.key()));
                let connector = QuicConnector::new(vec![address.clone()], trust, key);
                let store = store(participant.client);
                enter(&mut clients, participant, Distorting { connector, distortion }, store, left.clone());
            }
        }
    }
    drop(common);
    let result =
        Box::pin(drive(run, resume, from_peers, stop, sink)).await.map(|ended| (ended.run, ended.outcome));
    // Clients that missed the end of the run would reconnect for ever.
    let _ = leave.send(true);
    while clients.join_next().await.is_some() {}
    if let Some(trainers) = ended {
        trainers.end();
    }
    Ok(result?)
}

/// The test samples that all clients have.
fn shared_tests(tests: Option<&TestSet>) -> TestSamples {
    tests.map_or_else(TestSamples::none, |tests| TestSamples::of(tests.view().clone()))
}

/// Starts a client.
fn enter<C: Connector + 'static, S: Store + 'static>(
    clients: &mut JoinSet<()>,
    participant: Participant,
    connector: C,
    store: S,
    left: watch::Receiver<bool>,
) {
    clients.spawn(async move {
        let client = participant.client;
        let mut watch = |notice: ClientNotice| {
            if let ClientNotice::NoRoom { reason, .. } | ClientNotice::NoRoomForState { reason, .. } = notice
            {
                warn!("simulated client {} waits for room on the disk: {reason}", client.short());
            }
        };
        match take_part(participant, connector, store, left, &mut watch).await {
            Ok(Ended::Refused(refusal)) => warn!("simulated client {} left: {refusal}", client.short()),
            Ok(Ended::Unfit(failure)) => warn!("simulated client {} left: {failure}", client.short()),
            Ok(_) => {}
            Err(error) => warn!("simulated client {} left: {error}", client.short()),
        }
    });
}
