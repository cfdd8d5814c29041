//! What the database's errors mean: whether they pass by themselves, and what to do.

use std::error::Error as _;
use std::io;

use rustls::Error as TlsError;
use shared::cli::causes;

const OF_ANOTHER_PROGRAM: &str = ": another program has a table of this name there; give the aggregator a schema of its own, with \
                              ?options=-csearch_path%3DSCHEMA behind the address";
const READS_ONLY: &str =
    ": it can only be read, as a standby can; name all hosts in the address, with commas between them";

/// What an error means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meaning {
    /// It may pass by itself: what was tried is tried again.
    pub(super) passes: bool,
    /// What to do, to be put behind what the database says. Empty where that says it.
    pub(super) advice: &'static str,
}

/// What this error means.
pub(super) fn meaning(error: &postgres::Error) -> Meaning {
    match error.as_db_error() {
        Some(told) => of_code(told.code().code(), told.message()),
        None => of_connection(error),
    }
}

/// What the database, or the system, says, in one line, with what to do.
pub(super) fn told(error: &postgres::Error) -> String {
    let lines = causes(error);
    let text: Vec<&str> = lines.lines().map(str::trim).collect();
    format!("{}{}", text.join("; "), meaning(error).advice)
}

/// Of an error with this SQLSTATE.
fn of_code(code: &str, message: &str) -> Meaning {
    // Connection, transaction rollback, resources, intervention of the operator, a server that was made one that only reads, a transaction
    // in which this process stood still for too long, a lock that was not free in time, and the database's disk.
    let passing = ["08", "25006", "25P03", "40", "53", "55P03", "57", "58030"];
    let advice = match code {
        "25006" => READS_ONLY,
        "28000" if message.contains("no encryption") => {
            ": it asks for encryption; name the authority of its certificate in PGSSLROOTCERT"
        }
        "28000" | "28P01" => ": set PGPASSWORD, or name another user",
        "3D000" => ": make it with `createdb`, or name another database",
        "3F000" => ": make it with CREATE SCHEMA, or name another search_path",
        "42501" => {
            ": the user needs the right to make tables in the first schema of its search_path, or to use those that are there"
        }
        "42P07" | "42703" => OF_ANOTHER_PROGRAM,
        "53100" => ": make room on the database's disk",
        "53300" => {
            ": raise max_connections, or end other programs; a server that leads needs three, each other one two"
        }
        _ => "",
    };
    Meaning { passes: passing.iter().any(|class| code.starts_with(class)), advice }
}

/// Of an error that the database has not told.
fn of_connection(error: &postgres::Error) -> Meaning {
    let found = std::iter::successors(error.source(), |error| (**error).source());
    let system: Vec<&io::Error> = found.filter_map(|error| error.downcast_ref()).collect();
    let is_about = |error: &io::Error| {
        error.get_ref().and_then(|inner| inner.downcast_ref()).is_some_and(|error: &TlsError| {
            matches!(error, TlsError::InvalidCertificate(_) | TlsError::UnsupportedNameType)
        })
    };
    if system.iter().any(|error| is_about(error)) {
        return Meaning {
            passes: false,
            advice: ": PGSSLROOTCERT must name the authority of its certificate, and the address a host that the certificate is for",
        };
    }
    if causes(error).contains("does not support TLS") {
        let advice = ": set `ssl = on` there, or unset PGSSLROOTCERT";
        return Meaning { passes: false, advice };
    }
    let reads_only = system.iter().any(|error| error.kind() == io::ErrorKind::PermissionDenied);
    let advice =
        if reads_only { READS_ONLY } else { ": see whether it runs, and whether host and port are right" };
    Meaning { passes: true, advice }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_by_itself_is_tried_again() {
        for code in ["08006", "25006", "40001", "53100", "53300", "55P03", "57P01", "57P03", "58030"] {
            assert!(of_code(code, "").passes, "{code}");
        }
        for code in ["28P01", "28000", "3D000", "3F000", "42501", "42P07", "22P02", "XX000"] {
            assert!(!of_code(code, "").passes, "{code}");
        }
    }

    #[test]
    fn who_is_refused_for_want_of_encryption_is_told_so() {
        let message =
            "no pg_hba.conf entry for host \"192.0.2.1\", user \"lab\", database \"x\", no encryption";
        assert!(of_code("28000", message).advice.contains("PGSSLROOTCERT"));
        let message =
            "no pg_hba.conf entry for host \"192.0.2.1\", user \"lab\", database \"x\", SSL encryption";
        assert!(of_code("28000", message).advice.contains("PGPASSWORD"));
    }
}
