//! The runs of experiments in a store: which are done, and who works on which.
//!
//! A worker takes a run under a lease, which it renews while it works. The epoch counts who has taken the run: every write of it
//! names the epoch under which it was taken, and a worker whose lease has expired and was taken over finds that its epoch is not the run's
//! any more. It names the worker as well: epochs begin anew where an experiment is removed and entered again, and go back with a store that
//! is put back to an earlier state. No worker waits for a lock: a run that is being taken is passed over.

use std::time::Duration;

use postgres::{Client, Error, Row, Transaction};

/// How long a worker may be silent before another one takes its run over.
pub const LEASE: Duration = Duration::from_secs(30);

/// An experiment's identity: what its runs are.
pub type ExperimentId = [u8; 32];

/// An experiment, as the first worker enters it.
#[derive(Clone, Debug)]
pub struct Description {
    /// Its identity.
    pub id: ExperimentId,
    /// Its title, for people.
    pub name: String,
    /// Its form.
    pub form: String,
    /// The names of all runs that it may have, in the order in which they are to be begun.
    pub runs: Vec<String>,
}

/// A run that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its name.
    pub name: String,
    /// The epoch under which it may be written.
    pub epoch: i64,
    /// The rounds of it that the store has.
    pub rounds: u32,
    /// Who has taken it. No two processes that live have one name.
    pub worker: String,
    /// Who had taken it before and has not given it back.
    pub deserted: Option<String>,
    /// How long the worker may be silent before another one takes it over.
    pub lease: Duration,
}

/// How a run stands in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stands {
    /// Its name.
    pub name: String,
    /// Whether nothing is left to do.
    pub ended: bool,
    /// The rounds of it that the store has.
    pub rounds: u32,
    /// What computed it.
    pub arithmetic: Option<String>,
    /// Who works on it.
    pub worker: Option<String>,
}

/// Enters an experiment and its runs, those that are not there.
///
/// # Errors
/// Those of the database.
pub fn enter(client: &mut Client, experiment: &Description) -> Result<(), Error> {
    let Description { id, name, form, runs } = experiment;
    let mut transaction = client.transaction()?;
    transaction.execute(
        "INSERT INTO experiments (id, name, form) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        &[&&id[..], name, form],
    )?;
    let positions: Vec<i32> = (0..).take(runs.len()).collect();
    transaction.execute(
        "INSERT INTO experiment_runs (experiment, name, position)
         SELECT $1, name, position FROM unnest($2::text[], $3::integer[]) AS given (name, position)
         ON CONFLICT DO NOTHING",
        &[&&id[..], runs, &positions],
    )?;
    transaction.commit()
}

/// The other experiments with this title and form, with how many runs have ended and of how many.
///
/// # Errors
/// Those of the database.
pub fn namesakes(client: &mut Client, experiment: &Description) -> Result<Vec<(i64, i64)>, Error> {
    let rows = client.query(
        "SELECT count(*) FILTER (WHERE ended), count(*) FROM experiment_runs JOIN experiments ON id = experiment
         WHERE experiments.name = $1 AND form = $2 AND id <> $3 GROUP BY id",
        &[&experiment.name, &experiment.form, &&experiment.id[..]],
    )?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Whether a process works now on a run of another experiment with this title and form.
///
/// # Errors
/// Those of the database.
pub fn has_busy_namesake(client: &mut Client, experiment: &Description) -> Result<bool, Error> {
    let row = client.query_one(
        "SELECT count(*) > 0 FROM experiment_runs JOIN experiments ON id = experiment
         WHERE experiments.name = $1 AND form = $2 AND id <> $3 AND NOT ended AND expires > now()",
        &[&experiment.name, &experiment.form, &&experiment.id[..]],
    )?;
    Ok(row.get(0))
}

/// How all runs of an experiment stand.
///
/// # Errors
/// Those of the database.
pub fn standing(client: &mut Client, experiment: &ExperimentId) -> Result<Vec<Stands>, Error> {
    let rows = client.query(
        "SELECT name, ended, rounds, arithmetic, CASE WHEN NOT ended AND expires > now() THEN worker END
         FROM experiment_runs WHERE experiment = $1 ORDER BY position",
        &[&&experiment[..]],
    )?;
    let stands = |row: &Row| Stands {
        name: row.get(0),
        ended: row.get(1),
        rounds: rounds(row, 2),
        arithmetic: row.get(3),
        worker: row.get(4),
    };
    Ok(rows.iter().map(stands).collect())
}

/// Takes the first of these runs that are free and have not ended.
///
/// # Errors
/// Those of the database.
pub fn take(
    client: &mut Client,
    experiment: &ExperimentId,
    among: &[&str],
    (worker, lease): (&str, Duration),
) -> Result<Option<Claim>, Error> {
    let mut transaction = client.transaction()?;
    let free = transaction.query_opt(
        "SELECT name, epoch, rounds, worker FROM experiment_runs
         WHERE experiment = $1 AND name = ANY ($2) AND NOT ended AND (expires IS NULL OR expires < now())
         ORDER BY position LIMIT 1 FOR UPDATE SKIP LOCKED",
        &[&&experiment[..], &among],
    )?;
    let Some(free) = free else { return Ok(None) };
    let claim = Claim {
        name: free.get(0),
        epoch: free.get::<_, i64>(1) + 1,
        rounds: rounds(&free, 2),
        worker: worker.to_owned(),
        deserted: free.get(3),
        lease,
    };
    transaction.execute(
        "UPDATE experiment_runs SET epoch = $3, worker = $4, expires = now() + $5 * interval '1 second'
         WHERE experiment = $1 AND name = $2",
        &[&&experiment[..], &claim.name, &claim.epoch, &worker, &lease.as_secs_f64()],
    )?;
    transaction.commit()?;
    Ok(Some(claim))
}

/// Renews the leases that this worker has of these runs, by name and epoch, and returns the names of those that it has not given back, and
/// that no other worker has taken.
///
/// # Errors
/// Those of the database.
pub fn renew(
    client: &mut Client,
    experiment: &ExperimentId,
    held: &[(String, i64)],
    (worker, lease): (&str, Duration),
) -> Result<Vec<String>, Error> {
    let (names, epochs): (Vec<&str>, Vec<i64>) = held.iter().map(|(name, epoch)| (&**name, *epoch)).unzip();
    let rows = client.query(
        "UPDATE experiment_runs SET expires = now() + $4 * interval '1 second'
         FROM unnest($2::text[], $3::bigint[]) AS held (run, at)
         WHERE experiment = $1 AND name = run AND epoch = at AND worker = $5 AND expires IS NOT NULL AND NOT ended RETURNING name",
        &[&&experiment[..], &names, &epochs, &lease.as_secs_f64(), &worker],
    )?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Gives a run back as it was when it was taken. Nothing happens if another worker has it.
///
/// # Errors
/// Those of the database.
pub fn give_back(client: &mut Client, experiment: &ExperimentId, claim: &Claim) -> Result<(), Error> {
    client.execute(
        "UPDATE experiment_runs SET expires = NULL, worker = NULL
         WHERE experiment = $1 AND name = $2 AND epoch = $3 AND worker = $4",
        &[&&experiment[..], &claim.name, &claim.epoch, &claim.worker],
    )?;
    Ok(())
}

/// What happens to a run whose files are in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Its worker goes on with it.
    GoesOn,
    /// Any worker may go on with it.
    IsFree,
    /// Nothing is left to do.
    HasEnded,
}

/// Writes how far a run is. `false` if another worker has it: then nothing is written, and the transaction is not to be committed.
///
/// # Errors
/// Those of the database.
pub fn advance(
    transaction: &mut Transaction<'_>,
    experiment: &ExperimentId,
    claim: &Claim,
    (rounds, then): (u32, Then),
    arithmetic: &str,
) -> Result<bool, Error> {
    let (free, ended) = (then == Then::IsFree, then == Then::HasEnded);
    let rounds = i32::try_from(rounds).unwrap_or(i32::MAX);
    // What was freed has no worker: the answer to that may have been lost, and it is done again.
    let updated = transaction.execute(
        "UPDATE experiment_runs SET rounds = $4, ended = $5, arithmetic = $6,
             worker = CASE WHEN $7 THEN NULL ELSE worker END,
             expires = CASE WHEN $7 THEN NULL ELSE greatest(expires, now() + $8 * interval '1 second') END
         WHERE experiment = $1 AND name = $2 AND epoch = $3 AND NOT ended AND (worker = $9 OR $7 AND worker IS NULL)",
        &[
            &&experiment[..],
            &claim.name,
            &claim.epoch,
            &rounds,
            &ended,
            &arithmetic,
            &free,
            &claim.lease.as_secs_f64(),
            &claim.worker,
        ],
    )?;
    Ok(updated == 1)
}

/// Removes an experiment with all that its runs hold. `false` if there is none.
///
/// # Errors
/// Those of the database.
pub fn remove(client: &mut Client, experiment: &ExperimentId) -> Result<bool, Error> {
    Ok(client.execute("DELETE FROM experiments WHERE id = $1", &[&&experiment[..]])? == 1)
}

fn rounds(row: &Row, column: usize) -> u32 {
    u32::try_from(row.get::<_, i32>(column)).unwrap_or_default()
}
