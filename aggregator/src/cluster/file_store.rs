//! What keeping and fetching runs asks of a store, and `PostgreSQL`'s answers. Each question is one transaction.

use postgres::{Client, Error};

use super::connection::{Connection, Patience};
use super::error::StoreError;
use super::experiments::{Claim, ExperimentId, Then, advance};

/// A file of a run, or a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Where it lies in the run's directory, with `/` between folders.
    pub path: String,
    /// The SHA-256 of what it holds; `None` for a folder.
    pub digest: Option<Vec<u8>>,
    /// Its bytes, as the store counts.
    pub bytes: i64,
}

/// Which run of which experiment.
#[derive(Clone, Copy, Debug)]
pub struct Of<'a> {
    /// The experiment.
    pub experiment: &'a ExperimentId,
    /// The run's name.
    pub run: &'a str,
}

/// A store of what runs hold. Every question waits through outages; its answer is `None` once the patience gives up. What is asked may
/// have happened before its answer was lost, and is then done twice.
pub trait FileStore {
    /// The files of a run, by their paths.
    ///
    /// # Errors
    /// Those of the store, but for outages.
    fn held(&mut self, patience: &mut dyn Patience, of: Of<'_>) -> Result<Option<Vec<Held>>, StoreError>;
    /// Puts a part, by the digest of its file and its number, there; one that is there already stays.
    ///
    /// # Errors
    /// Those of the store, but for outages.
    fn put_part(
        &mut self,
        patience: &mut dyn Patience,
        of: Of<'_>,
        place: (&[u8], i32),
        content: &[u8],
    ) -> Result<Option<()>, StoreError>;
    /// What a part holds, if it is there.
    ///
    /// # Errors
    /// Those of the store, but for outages.
    fn part(
        &mut self,
        patience: &mut dyn Patience,
        of: Of<'_>,
        place: (&[u8], i32),
    ) -> Result<Option<Option<Vec<u8>>>, StoreError>;
    /// Makes these all files of the run, and says how far it is. `false` if another worker has it: then nothing is changed.
    ///
    /// # Errors
    /// Those of the store, but for outages.
    fn replace(
        &mut self,
        patience: &mut dyn Patience,
        experiment: &ExperimentId,
        claim: &Claim,
        files: &[Held],
        stands: (u32, Then),
        arithmetic: &str,
    ) -> Result<Option<bool>, StoreError>;
}

impl FileStore for Connection {
    fn held(&mut self, patience: &mut dyn Patience, of: Of<'_>) -> Result<Option<Vec<Held>>, StoreError> {
        self.lasting(patience, &mut |client| held(client, of))
    }

    fn put_part(
        &mut self,
        patience: &mut dyn Patience,
        of: Of<'_>,
        (digest, number): (&[u8], i32),
        content: &[u8],
    ) -> Result<Option<()>, StoreError> {
        self.lasting(patience, &mut |client| {
            client
                .execute(
                    "INSERT INTO experiment_parts (experiment, run, digest, part, content) VALUES ($1, $2, $3, $4, $5)
                     ON CONFLICT DO NOTHING",
                    &[&&of.experiment[..], &of.run, &digest, &number, &content],
                )
                .map(drop)
        })
    }

    fn part(
        &mut self,
        patience: &mut dyn Patience,
        of: Of<'_>,
        (digest, number): (&[u8], i32),
    ) -> Result<Option<Option<Vec<u8>>>, StoreError> {
        let row = self.lasting(patience, &mut |client| {
            client.query_opt(
                "SELECT content FROM experiment_parts WHERE experiment = $1 AND run = $2 AND digest = $3 AND part = $4",
                &[&&of.experiment[..], &of.run, &digest, &number],
            )
        })?;
        Ok(row.map(|row| row.map(|row| row.get(0))))
    }

    fn replace(
        &mut self,
        patience: &mut dyn Patience,
        experiment: &ExperimentId,
        claim: &Claim,
        files: &[Held],
        stands: (u32, Then),
        arithmetic: &str,
    ) -> Result<Option<bool>, StoreError> {
        self.lasting(patience, &mut |client| {
            let mut transaction = client.transaction()?;
            if !advance(&mut transaction, experiment, claim, stands, arithmetic)? {
                return Ok(false);
            }
            let run: [&(dyn postgres::types::ToSql + Sync); 2] = [&&experiment[..], &claim.name];
            transaction.execute("DELETE FROM experiment_files WHERE experiment = $1 AND run = $2", &run)?;
            let paths: Vec<&str> = files.iter().map(|file| &*file.path).collect();
            let digests: Vec<Option<&[u8]>> = files.iter().map(|file| file.digest.as_deref()).collect();
            let bytes: Vec<i64> = files.iter().map(|file| file.bytes).collect();
            transaction.execute(
                "INSERT INTO experiment_files (experiment, run, path, digest, bytes)
                 SELECT $1, $2, path, digest, bytes FROM unnest($3::text[], $4::bytea[], $5::bigint[]) AS given (path, digest, bytes)",
                &[run[0], run[1], &paths, &digests, &bytes],
            )?;
            transaction.execute(
                "DELETE FROM experiment_parts WHERE experiment = $1 AND run = $2 AND digest NOT IN
                 (SELECT digest FROM experiment_files WHERE experiment = $1 AND run = $2 AND digest IS NOT NULL)",
                &run,
            )?;
            transaction.commit()?;
            Ok(true)
        })
    }
}

fn held(client: &mut Client, of: Of<'_>) -> Result<Vec<Held>, Error> {
    let rows = client.query(
        "SELECT path, digest, bytes FROM experiment_files WHERE experiment = $1 AND run = $2 ORDER BY path",
        &[&&of.experiment[..], &of.run],
    )?;
    Ok(rows.iter().map(|row| Held { path: row.get(0), digest: row.get(1), bytes: row.get(2) }).collect())
}
