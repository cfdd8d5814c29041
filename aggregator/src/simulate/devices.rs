//! Simulated devices of a server that serves a run with others: one simulation runs on several machines.
//!
//! They reach the leaf of their process through memory. What they have, and their updates, are on its disk as those of devices are: a
//! process that was killed costs nothing that is not trained again to the same bits.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use edge_client::pool::TrainPool;
use edge_client::store::DiskStore;
use models::Backend;
use shared::data::View;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::memory::{MemoryConnector, Spool};
use super::{Clients, Common, SimulateError, enter, shared_tests};
use crate::config::Config;
use crate::data;
use crate::peer::FromPeer;
use crate::run::RunError;
use crate::storage::FileLayer;

/// What simulated devices have of their machine.
pub struct Machine {
    /// Where they train.
    pub backend: Backend,
    /// How many train at a time.
    pub threads: usize,
    /// The disk.
    pub files: Arc<dyn FileLayer>,
    /// The folder of their states.
    pub states: PathBuf,
    /// Where their updates are received.
    pub spool: PathBuf,
    /// The largest payload that they send.
    pub max_payload: u64,
}

/// Simulated devices that take part.
#[must_use = "they leave when this is dropped"]
pub struct Devices {
    tasks: JoinSet<()>,
    leave: watch::Sender<bool>,
    clients: Clients,
}

/// Configures a run whose devices are simulated: as for [`simulate`](super::simulate()), updates are hidden from no server. Devices of a
/// server that is away are waited for, since without them the model would be another one.
pub fn configure(config: &mut Config) {
    /// Longer than any operator needs to start a server again.
    const AWAY: Duration = Duration::from_hours(24 * 30);
    config.spec.secure.enabled = false;
    config.policy.reconnect_grace = AWAY;
}

/// Lets those clients of a run take part that `takes` names by their numbers. Called inside the runtime. Gives as well how many there are
/// on all machines.
///
/// # Errors
/// Their data cannot be read, or the system gives no threads.
pub fn join(
    config: &Config,
    takes: impl Fn(u32) -> bool,
    machine: Machine,
    to_leaf: mpsc::UnboundedSender<FromPeer>,
) -> Result<(Devices, usize), SimulateError> {
    let Machine { backend, threads, files, states, spool, max_payload } = machine;
    let clients = Clients::of(config)?;
    let tests = data::test_set(config).map_err(RunError::from)?;
    let tests = shared_tests(tests.as_ref());
    let count = clients.shares.len() as u32;
    let pool = TrainPool::with_workers(threads)?;
    let common = Common { tests, trainers: clients.trainers.clone(), backend, pool, count };
    let (leave, left) = watch::channel(false);
    let connector = MemoryConnector::spooling(to_leaf, max_payload, Spool { files, folder: spool });
    let bound = config.policy.max_samples.unwrap_or(u64::MAX);
    let admitted = |data: &&View| !data.is_empty() && data.len() as u64 <= bound;
    let all = clients.shares.iter().filter(admitted).count();
    let mut tasks = JoinSet::new();
    for (index, data) in (0..).zip(&clients.shares).filter(|(index, data)| takes(*index) && !data.is_empty())
    {
        let client = config.client(index);
        let store = DiskStore::open(&states.join(client.to_string()))?;
        let participant = common.participant(client, data.clone(), index);
        enter(&mut tasks, participant, connector.clone(), store, left.clone());
    }
    Ok((Devices { tasks, leave, clients }, all))
}

impl Devices {
    /// Waits until they have left, which they do when the run is over and otherwise now.
    pub async fn end(mut self) {
        let _ = self.leave.send(true);
        while self.tasks.join_next().await.is_some() {}
        if let Some(trainers) = &self.clients.trainers {
            trainers.end();
        }
    }
}
