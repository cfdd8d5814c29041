//! The aggregator: the server of a federation, and its simulator.
//!
//! | module | contents |
//! |---|---|
//! | [`config`] | configurations: TOML and overrides, checked, and the plan of a run |
//! | [`round`] | plain facts of rounds: policy, counts, records |
//! | [`coordinator`] | the protocol's state machine, without I/O or clock |
//! | [`driver`] | the I/O of the state machine: peers, disk, timers |
//! | [`events`] | notices for the operator: typed values, their texts, throttles, sinks |
//! | [`enrolment`] | admission of devices: keys, tickets, approval, revocation |
//! | [`run`] | a run on disk: opening and closing rounds, accepting updates, checkpoints, evaluation |
//! | [`ensemble`] | ensembles of client models: their file and their predictions |
//! | [`export`] | export of models as source in Python with weights |
//! | [`history`] | the record of served runs in the database |
//! | [`database`] | the SQLite database: connection, schema, migrations |
//! | [`storage`] | durable file operations |
//! | [`peer`] | the interface between driver and transports |
//! | [`transport`] | the transport over QUIC |
//! | [`data`] | the data sets of a configuration |
//! | [`attack`] | simulated attacks |
//! | [`init`] | a configuration for the user's own data |
//! | [`start`] | the directory of a run: a new one, or one to resume |
//! | [`serve`] | the server for real devices |
//! | [`simulate`] | simulation of a federation in one process (feature `simulate`, on by default) |
//! | [`compare`] | experiments: comparison of variants on paired seeds (feature `simulate`) |
//! | `cluster` | what several aggregators share: a store in `PostgreSQL` (feature `cluster`) |
//! | `leaves` | several aggregators that serve one run (feature `cluster`) |
//! | [`cli`] | the command line |
//! | [`page`] | the page of a run, at any time, from what lies in its directory |
//! | [`runs`] | runs as things: found by name, listed, deleted, archived |
//! | [`report`] | reports: rounds.jsonl, report.html, lines for the terminal |

pub mod attack;
pub mod cli;
#[cfg(feature = "cluster")]
pub mod cluster;
mod commands;
#[cfg(feature = "simulate")]
pub mod compare;
pub mod config;
pub mod control;
pub mod coordinator;
pub mod dashboard;
pub mod data;
pub mod database;
pub mod driver;
pub mod enrolment;
pub mod ensemble;
pub mod events;
pub mod export;
pub mod history;
pub mod init;
pub mod issue;
#[cfg(feature = "cluster")]
pub mod leaves;
mod names;
pub mod page;
pub mod peer;
pub mod privacy;
mod protobuf;
pub mod report;
pub mod round;
pub mod run;
pub mod runs;
pub mod serve;
#[cfg(feature = "simulate")]
pub mod simulate;
pub mod start;
pub mod storage;
pub mod tensorboard;
pub mod transport;
