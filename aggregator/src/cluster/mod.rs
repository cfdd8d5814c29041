//! What several aggregators share: a store in `PostgreSQL`.
//!
//! The store has what must be the same for all of them, and every write that decides something names the epoch of the lease under which it
//! is made: a process that was away for longer than its lease writes nothing any more. Time is that of the database alone. The SQL is what
//! `CockroachDB` and `YugabyteDB` speak too: no advisory locks, no procedures, no notifications.
//!
//! | module | what it is |
//! |---|---|
//! | [`address`] | where the store is, and how it is reached |
//! | [`connection`] | a connection that comes back after an outage |
//! | [`schema`] | the tables, and their versions |
//! | [`experiments`] | the runs of experiments: which are done, and who works on which |
//! | [`files`] | what runs hold |
//! | [`file_store`] | what that takes of the store |
//! | [`register`] | one register of devices and tickets for all servers of a lab |
//! | [`error`] | what is in the way |
//! | `advice` | what the database's errors mean, and what to do |

pub mod address;
mod advice;
pub mod connection;
pub mod error;
pub mod experiments;
pub mod file_store;
pub mod files;
pub mod register;
pub mod schema;
