//! The aggregator's database: one `SQLite` file in the directory of its identity.
//!
//! | module | its tables |
//! |---|---|
//! | [`enrolment`](crate::enrolment) | `devices`, `tickets`, `listening`: who may take part |
//! | `cluster::register` | `agreed_store`, `agreed_devices`, `agreed_tickets`: what the lab's servers have agreed on |
//! | [`history`](crate::history) | `runs`, `rounds`, `arrivals`, `metrics`, `events`, `left_out`: the record of runs |
//!
//! This module has the connection, the schema and its migrations.
//!
//! Several processes use it at the same time: one serves and writes, others such as `aggregator status` read meanwhile, which the
//! write-ahead log allows (files with `-wal` and `-shm` appended to the name). A committed transaction survives a power failure
//! (`synchronous = FULL`). Times are milliseconds since 1970 (UTC) by this machine's clock; they decide the expiry of tickets
//! and which of too many pending devices is evicted. Nothing is deleted for its age.
//!
//! A run continues from its own files (`runs/NAME/state`, `rounds.jsonl`): a database that is lost or cannot be written costs no
//! round.

mod checksums;
mod error;
mod schema;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use crate::storage::{Disk, FileLayer as _, create_private_dir_durably, private};
use error::failed;

pub use error::DatabaseError;
pub use shared::calendar::moment;
use shared::cli::counted;

/// The database's file in the directory of the server's identity.
pub const FILE: &str = "aggregator.sqlite3";

/// How long a process waits for the transaction of another.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of retries where `SQLite` does not wait itself.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// The database of one lab. Clones share its connection, one at a time.
#[derive(Clone, Debug)]
pub struct Database {
    path: Arc<Path>,
    connection: Arc<Mutex<Connection>>,
    removed: Arc<[RemovedRows]>,
}

/// Rows that were not as they were written, and are removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedRows {
    /// The table.
    pub table: String,
    /// How many of its rows.
    pub rows: usize,
}

impl Database {
    /// Opens the database in `directory` for a process that serves: creates it if need be, migrates an older one, and checks it
    /// for damage.
    pub fn open(directory: &Path) -> Result<Self, DatabaseError> {
        let path = directory.join(FILE);
        let file = |action, source| DatabaseError::File { action, path: path.clone(), source };
        create_private_dir_durably(&Disk, directory)
            .map_err(|source| file("create the directory of", source))?;
        // Devices' keys are in it: for its owner alone, and so are the files that SQLite puts beside it.
        match private(&path) {
            Ok(_) => Disk.sync_dir(directory).map_err(|source| file("create", source))?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(source) => return Err(file("create", source)),
        }
        let mut connection = connect(&path)?;
        let failed = failed("prepare", &path);
        let check: String =
            connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(&failed)?;
        if check != "ok" {
            return Err(DatabaseError::Damaged { path, reason: check });
        }
        let mode = write_ahead(&connection).map_err(&failed)?;
        if mode != "wal" {
            let reason = format!("it stays in journal mode {mode}");
            return Err(file("keep a write-ahead log beside", std::io::Error::other(reason)));
        }
        schema::migrate(&mut connection).map_err(&failed)?;
        let damaged = |reason| DatabaseError::Damaged { path: path.clone(), reason };
        let fresh = schema::fresh().map_err(&failed)?;
        if !schema::holds(&connection, &fresh).map_err(&failed)? {
            return Err(damaged("its tables are not those of this program".to_owned()));
        }
        let tables = checksums::tables(&fresh).map_err(&failed)?;
        let removed =
            checksums::remove_damaged(&connection, &tables).map_err(&failed)?.map_err(|needed| {
                damaged(format!(
                    "the checksum of {} of `{}` is wrong",
                    counted(needed.rows, "row"),
                    needed.table
                ))
            })?;
        for RemovedRows { table, rows } in &removed {
            let (rows, path) = (counted(*rows, "row"), path.display());
            tracing::warn!("{rows} of `{table}` in {path} were not as written, and are removed");
        }
        Ok(Self { removed: removed.into(), ..Self::of(path, connection) })
    }

    /// Opens the database in `directory` for a command that reads or changes a little; `None` if there is none yet.
    pub fn open_existing(directory: &Path) -> Result<Option<Self>, DatabaseError> {
        let path = directory.join(FILE);
        let length = Disk.length(&path).map_err(|source| DatabaseError::File {
            action: "look at",
            path: path.clone(),
            source,
        })?;
        if length.is_none() {
            return Ok(None);
        }
        let mut connection = connect(&path)?;
        let failed = failed("read", &path);
        let found = schema::find(&connection).map_err(&failed)?;
        if !found.tables {
            // A process died while it made it.
            return Ok(None);
        }
        if found.version < schema::VERSION {
            schema::migrate(&mut connection).map_err(&failed)?;
        }
        Ok(Some(Self::of(path, connection)))
    }

    /// Opens the database in `directory` to read it while another process or thread writes: nothing is created, migrated or waited for.
    pub fn open_to_read(directory: &Path) -> Result<Self, DatabaseError> {
        let path = directory.join(FILE);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&path, flags).map_err(failed("open", &path))?;
        Ok(Self::of(path, connection))
    }

    /// Another connection to the same file. Each counts what is written over the other among [`foreign_changes`](Self::foreign_changes).
    pub fn another(&self) -> Result<Self, DatabaseError> {
        Ok(Self::of(self.path.to_path_buf(), connect(&self.path)?))
    }

    fn of(path: PathBuf, connection: Connection) -> Self {
        Self { path: path.into(), connection: Arc::new(Mutex::new(connection)), removed: Arc::default() }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was removed when it was opened, since the disk had damaged it.
    #[must_use]
    pub fn removed(&self) -> &[RemovedRows] {
        &self.removed
    }

    /// Reads in one transaction, which sees a consistent state. `action` completes "cannot ... FILE" in errors.
    pub fn read<T>(
        &self,
        action: &'static str,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, DatabaseError> {
        let mut connection = self.lock();
        let all = || read(&*connection.transaction()?);
        all().map_err(failed(action, &self.path))
    }

    /// Writes in one transaction, which is durable when this returns; nothing of it happens if `write` or the disk fails.
    /// Blocks for the sync of the disk, and while other processes write.
    pub fn write<T>(
        &self,
        action: &'static str,
        write: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, DatabaseError> {
        let mut connection = self.lock();
        let all = || {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let written = write(&transaction)?;
            transaction.commit()?;
            Ok(written)
        };
        all().map_err(failed(action, &self.path))
    }

    /// A number that changes whenever another process, or another connection of this one, has written.
    pub fn foreign_changes(&self) -> Result<i64, DatabaseError> {
        let version = self.lock().pragma_query_value(None, "data_version", |row| row.get(0));
        version.map_err(failed("look for changes in", &self.path))
    }

    /// A transaction that a panic ended was rolled back: the connection is as good as before.
    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Enables the write-ahead log; returns the resulting journal mode. If two processes create the file at once, `SQLite` refuses
/// one of them without waiting, because each could wait for the other. Nothing is locked between two tries, so retrying is safe.
fn write_ahead(connection: &Connection) -> rusqlite::Result<String> {
    let began = Instant::now();
    loop {
        match connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && began.elapsed() < BUSY_TIMEOUT =>
            {
                std::thread::sleep(RETRY_INTERVAL);
            }
            done => return done,
        }
    }
}

/// Connects to an existing file that is ours or empty.
fn connect(path: &Path) -> Result<Connection, DatabaseError> {
    let failed = failed("open", path);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(&failed)?;
    let prepare = || {
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        checksums::register(&connection)?;
        schema::find(&connection)
    };
    let found = prepare().map_err(&failed)?;
    if found.application == schema::APPLICATION || !found.tables && found.application == 0 {
        if found.version > schema::VERSION {
            let (found, known) = (found.version, schema::VERSION);
            return Err(DatabaseError::Newer { path: path.to_owned(), found, known });
        }
        Ok(connection)
    } else {
        Err(DatabaseError::Foreign { path: path.to_owned() })
    }
}

#[cfg(test)]
mod tests;
