//! What all servers of a run must be given alike, and what is refused.

use sha2::{Digest as _, Sha256};

use super::super::super::exit::Failure;
use super::super::super::terminal::{self, StopRequest};
use super::super::ServeArgs;
use crate::cluster::address::StoreAddress;
use crate::cluster::connection::Connection;
use crate::cluster::experiments::{has_busy_namesake, namesakes};
use crate::config::{Config, Raw};
use crate::leaves::fetch::Wanted;
use crate::leaves::message::Part;
use crate::leaves::standing::ServedRun;
use crate::transport::identity::ServerIdentity;

/// What does not go with several servers yet, with the keys that ask for it.
pub(super) fn refused(config: &Config) -> Option<&'static str> {
    let spec = &config.spec;
    let algorithm = shared::algorithm::registry::build(&spec.algorithm).ok()?;
    [
        (spec.aggregation.rule.needs_every_update(), "a rule that needs every update (aggregation.rule)"),
        (algorithm.ensemble().is_some(), "an algorithm whose clients' models stay side by side (algorithm)"),
        (
            algorithm.supervised().is_some(),
            "an algorithm whose server trains a part of the model (algorithm)",
        ),
    ]
    .into_iter()
    .find_map(|(asked, what)| asked.then_some(what))
}

/// The run that the store knows by the lab's key, its name and what its configuration says, and by how many parts of it are simulated. The
/// version of the program is none of it: servers are updated one after the other.
pub(super) fn served(
    (config, given): (&Config, &Raw),
    identity: &ServerIdentity,
    part: Option<Part>,
) -> ServedRun {
    let name = config.spec.name.clone();
    let mut hash = Sha256::new();
    for part in [
        "federation run 2",
        &identity.key().to_string(),
        &config.effective.without_local_paths().stated(given),
    ] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.update(part.map_or(0, |part| part.of).to_be_bytes());
    ServedRun { id: hash.finalize().into(), name }
}

/// Refuses a run while others serve another one of its name: then the servers were not given the same. Warns of one that no server serves.
pub(super) fn refuse_beside_others(
    store: &StoreAddress,
    run: &ServedRun,
    stop: &StopRequest,
) -> Result<(), Failure> {
    let mut connection = Connection::new(store.clone());
    let wanted = || !stop.is_made();
    let mut patience = Wanted(&wanted);
    let described = run.described();
    let name = &run.name;
    if connection.lasting(&mut patience, &mut |client| has_busy_namesake(client, &described))? == Some(true) {
        return Err(Failure::Usage(format!(
            "other servers serve a run named {name} over this store, or did so five seconds ago, with another configuration, server's \
             key or --simulate. To serve it, give this server the same of each; to begin a run of its own, give that another \
             name: --set run.name={name}-2"
        )));
    }
    let others = connection.lasting(&mut patience, &mut |client| namesakes(client, &described))?;
    let others = others.unwrap_or_default();
    if others.iter().any(|(ended, all)| ended < all) {
        terminal::tell(&format!(
            "WARNING: the store has another run named {name} that has not ended, of another configuration or server's key: the \
             servers of one run need the same of each"
        ));
    }
    Ok(())
}

/// The part of the clients that this process simulates.
pub(super) fn part(arguments: &ServeArgs) -> Option<Part> {
    #[cfg(feature = "simulate")]
    return arguments.simulate.map(|shard| Part { number: shard.number(), of: shard.of() });
    #[cfg(not(feature = "simulate"))]
    {
        let _ = arguments;
        None
    }
}
