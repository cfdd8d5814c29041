//! What several servers of a run ask of their store, and `PostgreSQL`'s answers.

use std::collections::BTreeSet;

use postgres::{Client, Error};

use super::standing::{LEASE, ServedRun, Standing};
use crate::cluster::connection::{Connection, Patience};
use crate::cluster::error::StoreError;
use crate::cluster::experiments::{Claim, ExperimentId, renew, take};
use crate::cluster::file_store::FileStore;

/// The store of a run that several servers serve. Time is the store's own.
pub trait RunStore: FileStore + std::fmt::Debug + Send {
    /// Says that the leaf of this name and address is alive, renews the lease that it has `held`, or takes it if it is free, and says
    /// where the run stands.
    ///
    /// # Errors
    /// Those of the store, but for outages.
    fn stand(
        &mut self,
        patience: &mut dyn Patience,
        run: &ServedRun,
        leaf: (&str, &str),
        held: Option<&Claim>,
    ) -> Result<Option<Standing>, StoreError>;
    /// The leaves that are alive.
    ///
    /// # Errors
    /// Those of the store, but for outages.
    fn living(
        &mut self,
        patience: &mut dyn Patience,
        run: &ExperimentId,
    ) -> Result<Option<BTreeSet<String>>, StoreError>;
}

impl RunStore for Connection {
    fn stand(
        &mut self,
        patience: &mut dyn Patience,
        run: &ServedRun,
        leaf: (&str, &str),
        held: Option<&Claim>,
    ) -> Result<Option<Standing>, StoreError> {
        self.lasting(patience, &mut |client| {
            present(client, run, leaf)?;
            stand(client, run, leaf.0, held)
        })
    }

    fn living(
        &mut self,
        patience: &mut dyn Patience,
        run: &ExperimentId,
    ) -> Result<Option<BTreeSet<String>>, StoreError> {
        self.lasting(patience, &mut |client| living(client, run))
    }
}

/// Says that a leaf is alive.
fn present(client: &mut Client, run: &ServedRun, (leaf, address): (&str, &str)) -> Result<(), Error> {
    client.execute(
        "INSERT INTO leaves (experiment, leaf, address, expires) VALUES ($1, $2, $3, now() + $4 * interval '1 second')
         ON CONFLICT (experiment, leaf) DO UPDATE SET address = excluded.address, expires = excluded.expires",
        &[&&run.id[..], &leaf, &address, &LEASE.as_secs_f64()],
    )?;
    Ok(())
}

/// Renews the lease that is `held`, or takes it if it is free, and says where the run stands.
fn stand(client: &mut Client, run: &ServedRun, leaf: &str, held: Option<&Claim>) -> Result<Standing, Error> {
    if let Some(claim) = held {
        let renewed = renew(client, &run.id, &[(claim.name.clone(), claim.epoch)], (leaf, LEASE))?;
        if !renewed.is_empty() {
            return Ok(Standing::Leads(claim.clone()));
        }
    }
    let row = client.query_one(
        "SELECT run.ended, run.epoch, run.worker, run.expires > now(), leaves.address
         FROM experiment_runs run LEFT JOIN leaves ON leaves.experiment = run.experiment AND leaves.leaf = run.worker
         WHERE run.experiment = $1 AND run.name = $2",
        &[&&run.id[..], &run.name],
    )?;
    if row.get(0) {
        return Ok(Standing::Over);
    }
    let (worker, alive, address): (Option<String>, Option<bool>, Option<String>) =
        (row.get(2), row.get(3), row.get(4));
    // A process of this very name that went away without a word is no reason to wait.
    let is_free = alive != Some(true) || worker.as_deref() == Some(leaf);
    if is_free {
        release(client, run, leaf)?;
        if let Some(claim) = take(client, &run.id, &[&run.name], (leaf, LEASE))? {
            return Ok(Standing::Leads(claim));
        }
    }
    Ok(match (worker, address) {
        (Some(worker), Some(address)) if worker != leaf => {
            Standing::Follows { leaf: worker, epoch: row.get(1), address }
        }
        _ => Standing::Unknown,
    })
}

/// Ends the lease that an earlier process of this leaf has left.
fn release(client: &mut Client, run: &ServedRun, leaf: &str) -> Result<(), Error> {
    client.execute(
        "UPDATE experiment_runs SET expires = NULL WHERE experiment = $1 AND name = $2 AND worker = $3",
        &[&&run.id[..], &run.name, &leaf],
    )?;
    Ok(())
}

/// The leaves that are alive.
fn living(client: &mut Client, run: &ExperimentId) -> Result<BTreeSet<String>, Error> {
    let rows =
        client.query("SELECT leaf FROM leaves WHERE experiment = $1 AND expires > now()", &[&&run[..]])?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}
