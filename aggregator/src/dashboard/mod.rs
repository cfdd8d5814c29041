//! The live page: what runs, rounds and devices do, in a browser, while they do it.
//!
//! It is a process of its own that reads the runs' folders and the server's database, so that neither a fault of it nor a flood of
//! visitors can touch a round. What changes something goes through the code of the commands, and leaves a row in the database.
//!
//! * [`Settings`]: what is shown, and to whom; [`serve`]: the sockets and their limits; `routes`: what is answered to which request;
//! * `state`: what all requests share; `answers`: who asks, and short answers; `login`: the page that asks for the token;
//! * `access`: who may look and who may change something; `actions`: the changes; `audit`: their record;
//! * `lab`: the runs and the database as they are read; `changes`: when a page is drawn anew; `drawings`: the pages that
//!   were drawn;
//! * `pages`: the five pages; `metrics`: the figures for Prometheus.
//!
//! Pages are whole without script. The script swaps the parts that have changed; without it a page reloads itself.

mod access;
mod actions;
mod answers;
mod audit;
mod changes;
mod drawings;
mod lab;
mod login;
mod metrics;
mod pages;
mod routes;
mod serve;
mod state;

use std::path::PathBuf;

pub use access::{Token, TokenError};
pub use serve::serve;

/// What is shown, and to whom.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directory of the runs.
    pub runs: PathBuf,
    /// The directory of the experiments.
    pub experiments: PathBuf,
    /// The directory of the server's identity, with its database.
    pub directory: PathBuf,
    /// What visitors must know; `None` where every user of this machine may look.
    pub token: Option<Token>,
    /// Names under which the page is reached, beside addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Whether nothing can be changed.
    pub read_only: bool,
}
