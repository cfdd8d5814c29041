//! What happened in the runs that were served.

pub(super) const TABLES: &str = include_str!("tables.sql");
