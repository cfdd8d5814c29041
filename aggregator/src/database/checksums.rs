//! Checksums of rows. The schema computes them with [`register`]'s function whenever a row is written, and [`remove_damaged`] looks
//! whether each row still is what was written. `SQLite` itself checks the structure of the file and not what the rows say.

use flate2::Crc;
use rusqlite::functions::FunctionFlags;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Result};

use super::RemovedRows;

/// The function's name in SQL.
const FUNCTION: &str = "row_checksum";
/// The column that holds its value.
const COLUMN: &str = "crc32";

/// Makes `row_checksum(...)` known to SQL: the CRC-32 of values, their types and lengths.
pub(super) fn register(connection: &Connection) -> Result<()> {
    let flags =
        FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function(FUNCTION, -1, flags, |context| {
        let mut crc = Crc::new();
        for index in 0..context.len() {
            add(&mut crc, context.get_raw(index));
        }
        Ok(i64::from(crc.sum()))
    })
}

fn add(crc: &mut Crc, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => crc.update(b"n"),
        ValueRef::Integer(number) => {
            crc.update(b"i");
            crc.update(&number.to_le_bytes());
        }
        ValueRef::Real(number) => {
            crc.update(b"r");
            crc.update(&number.to_le_bytes());
        }
        ValueRef::Text(bytes) => sized(crc, b"t", bytes),
        ValueRef::Blob(bytes) => sized(crc, b"b", bytes),
    }
}

fn sized(crc: &mut Crc, kind: &[u8], bytes: &[u8]) {
    crc.update(kind);
    crc.update(&(bytes.len() as u64).to_le_bytes());
    crc.update(bytes);
}

/// The tables with their columns, without the checksum's.
pub(super) fn tables(connection: &Connection) -> Result<Vec<(String, Vec<String>)>> {
    let mut names = connection.prepare(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
    )?;
    let names: Vec<String> = names.query_map([], |row| row.get(0))?.collect::<Result<_>>()?;
    let columns = |table: String| {
        let mut columns =
            connection.prepare("SELECT name FROM pragma_table_info(?1) WHERE name <> ?2 ORDER BY cid")?;
        let columns = columns.query_map([&*table, COLUMN], |row| row.get(0))?.collect::<Result<_>>()?;
        Ok((table, columns))
    };
    names.into_iter().map(columns).collect()
}

/// Tables whose rows cannot be done without: who may take part.
const NEEDED: [&str; 1] = ["devices"];

/// Removes the rows that are not as they were written, from history, which rounds do not depend on, and from tickets, which can be
/// made anew; what belongs to a removed run stays. The inner error is of rows that cannot be done without; then all stay.
pub(super) fn remove_damaged(
    connection: &Connection,
    tables: &[(String, Vec<String>)],
) -> Result<std::result::Result<Vec<RemovedRows>, RemovedRows>> {
    let mut damaged = Vec::new();
    for (table, columns) in tables {
        let rows = format!("FROM {table} WHERE {COLUMN} IS NOT {FUNCTION}({})", columns.join(", "));
        let count: i64 = connection.query_row(&format!("SELECT count(*) {rows}"), [], |row| row.get(0))?;
        if count > 0 {
            damaged.push((RemovedRows { table: table.clone(), rows: count as usize }, rows));
        }
    }
    if let Some((needed, _)) = damaged.iter().find(|(found, _)| NEEDED.contains(&&*found.table)) {
        return Ok(Err(needed.clone()));
    }
    if !damaged.is_empty() {
        // Whole rows that belong to a damaged one are not to be deleted with it.
        connection.pragma_update(None, "foreign_keys", false)?;
        let deleted = delete(connection, &damaged);
        connection.pragma_update(None, "foreign_keys", true)?;
        deleted?;
    }
    Ok(Ok(damaged.into_iter().map(|(found, _)| found).collect()))
}

/// All or none.
fn delete(connection: &Connection, damaged: &[(RemovedRows, String)]) -> Result<()> {
    let transaction = connection.unchecked_transaction()?;
    for (_, rows) in damaged {
        transaction.execute(&format!("DELETE {rows}"), [])?;
    }
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::super::schema;
    use super::*;

    #[test]
    fn each_table_writes_the_checksum_of_all_of_its_columns() {
        let connection = schema::fresh().expect("migrated");
        let tables = tables(&connection).expect("read");
        assert!(tables.len() >= 10, "{tables:?}");
        for (table, columns) in tables {
            let list = columns.join(", ");
            for (trigger, of) in [("written", "INSERT".to_owned()), ("changed", format!("UPDATE OF {list}"))]
            {
                let sql: String = connection
                    .query_row(
                        "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = ?1",
                        [format!("{table}_{trigger}")],
                        |row| row.get(0),
                    )
                    .expect("the table has its triggers");
                assert!(sql.contains(&format!("AFTER {of} ON {table}")), "{sql}");
                assert!(sql.contains(&format!("SET {COLUMN} = {FUNCTION}({list})")), "{sql}");
            }
        }
    }

    #[test]
    fn a_row_that_was_changed_beside_the_program_is_found() {
        let connection = schema::fresh().expect("migrated");
        let all = "INSERT INTO changes (at, who, what) VALUES (1, 'page', 'x'), (2, 'page', 'y');
                   INSERT INTO runs (run, directory, rounds, begun, served, process, told, status)
                       VALUES ('01', 'runs/x', 5, 1, 1, 1, 1, 'null');
                   INSERT INTO metrics (run, round, device, name, value) VALUES ('01', 1, '', 'accuracy', 1);
                   UPDATE metrics SET value = 2 WHERE round = 1;
                   INSERT OR REPLACE INTO metrics (run, round, device, name, value)
                       VALUES ('01', 1, '', 'accuracy', 0.5);";
        connection.execute_batch(all).expect("written");
        let tables = tables(&connection).expect("read");
        let of = |table: &str| RemovedRows { table: table.to_owned(), rows: 1 };
        assert_eq!(remove_damaged(&connection, &tables).expect("read"), Ok(Vec::new()));
        // As a disk does it: without a trigger.
        connection
            .execute_batch("DROP TRIGGER changes_changed; UPDATE changes SET at = 3 WHERE what = 'y'")
            .expect("changed");
        assert_eq!(remove_damaged(&connection, &tables).expect("read"), Ok(vec![of("changes")]));
        let left: String =
            connection.query_row("SELECT what FROM changes", [], |row| row.get(0)).expect("one");
        assert_eq!(left, "x");
        // What belongs to a run stays when its own row is damaged.
        connection
            .execute_batch("DROP TRIGGER runs_changed; UPDATE runs SET status = 'nulk'")
            .expect("changed");
        assert_eq!(remove_damaged(&connection, &tables).expect("read"), Ok(vec![of("runs")]));
        let metrics: i64 =
            connection.query_row("SELECT count(*) FROM metrics", [], |row| row.get(0)).expect("counted");
        assert_eq!(metrics, 1);
        connection
            .execute_batch(
                "DROP TRIGGER changes_written; INSERT INTO changes (at, who, what) VALUES (4, 'page', 'z');
                 INSERT INTO devices (client, key, standing, since, seen) VALUES (x'01', x'02', 'in', 1, 1);
                 DROP TRIGGER devices_changed; UPDATE devices SET standing = 'revoked'",
            )
            .expect("changed");
        assert_eq!(remove_damaged(&connection, &tables).expect("read"), Err(of("devices")));
        let changes: i64 =
            connection.query_row("SELECT count(*) FROM changes", [], |row| row.get(0)).expect("counted");
        assert_eq!(changes, 2, "nothing is removed where a server cannot begin");
    }
}
