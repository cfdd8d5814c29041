//! The lab's side of the federation.
//!
//! | module | what it does |
//! |---|---|
//! | [`config`] | TOML and overrides, checked once, to what the program runs on |
//! | [`round`] | plain facts of a round: policy, counts, records |
//! | [`coordinator`] | the protocol state machine: no I/O, no clock |
//! | [`driver`] | the state machine's I/O: peers, durable steps, time |
//! | [`events`] | notices for the operator: typed values, their sentences, throttles, sinks |
//! | [`enrolment`] | which devices may take part: keys, tickets, approval, revocation |
//! | [`run`] | a run on disk: opening, accepting, closing; checkpoints; evaluation |
//! | [`ensemble`] | models of many clients side by side: their file, and what they say together |
//! | [`history`] | the record of the runs that were served, in the database |
//! | [`database`] | the SQLite database: connection, schema, migrations |
//! | [`storage`] | the file operations that durable steps consist of |
//! | [`peer`] | the seam of transports: what passes between driver and peers |
//! | [`transport`] | the real transport: QUIC |
//! | [`data`] | the data sets that a configuration names |
//! | [`attack`] | attacks on simulated federations |
//! | [`start`] | which directory a run gets, and whether it begins or continues |
//! | [`serve`] | a run for real devices |
//! | [`simulate`] | a whole federation in one process (feature `simulate`, on by default) |
//! | [`compare`] | experiments: variants on paired seeds (feature `simulate`) |
//! | [`cli`] | the command line |
//! | [`report`] | what a run leaves behind: rounds.jsonl, report.html, lines for people |

pub mod attack;
pub mod cli;
#[cfg(feature = "simulate")]
pub mod compare;
pub mod config;
pub mod coordinator;
pub mod data;
pub mod database;
pub mod driver;
pub mod enrolment;
pub mod ensemble;
pub mod events;
pub mod history;
pub mod peer;
pub mod report;
pub mod round;
pub mod run;
pub mod serve;
#[cfg(feature = "simulate")]
pub mod simulate;
pub mod start;
pub mod storage;
pub mod transport;
