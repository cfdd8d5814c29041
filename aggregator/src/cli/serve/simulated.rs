//! `aggregator serve --store URL --simulate I/N`: clients of the run that this process simulates.

use std::sync::Arc;

use shared::cli::{Processor, cores};
use tokio::sync::mpsc::UnboundedSender;

use super::super::exit::Failure;
use super::ServeArgs;
use crate::config::Config;
use crate::peer::FromPeer;
use crate::run::LeafRun;
use crate::simulate::devices::{self, Devices, Machine};
use crate::storage::Disk;

/// Changes the configuration where clients are simulated, the same at all servers.
///
/// # Errors
/// The run is not simulated on several machines.
pub(super) fn configure(arguments: &ServeArgs, config: &mut Config) -> Result<(), Failure> {
    if arguments.simulate.is_none() {
        return Ok(());
    }
    if config.spec.device_noise.is_some() {
        return Err(Failure::Usage(
            "--simulate: noise that devices add before they hide their updates ([privacy] with [secure-aggregation]) is simulated on one \
             machine alone, by `aggregator simulate`"
                .to_owned(),
        ));
    }
    devices::configure(config);
    Ok(())
}

/// Begins to simulate this process's part of the clients, where that is asked for. Gives how many the run has on all machines as well.
pub(super) fn begin(
    arguments: &ServeArgs,
    config: &Config,
    leaf: &LeafRun,
    to_leaf: &UnboundedSender<FromPeer>,
) -> Result<Option<(Devices, usize)>, Failure> {
    let Some(shard) = arguments.simulate else { return Ok(None) };
    edge_client::memory::keep_freed(edge_client::memory::Heaps::Each);
    let place = leaf.directory();
    let machine = Machine {
        backend: Processor::backend(arguments.run.device)?,
        threads: cores().get(),
        files: Arc::new(Disk),
        states: place.root().join("simulated"),
        spool: place.spool(),
        max_payload: leaf.max_payload(),
    };
    let (number, of) = (u32::from(shard.number()), u32::from(shard.of()));
    let joined = devices::join(config, |client| client % of == number - 1, machine, to_leaf.clone());
    joined.map(Some).map_err(Failure::environment)
}
