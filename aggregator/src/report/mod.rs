//! What a run leaves behind: `rounds.jsonl` for machines, a self-contained HTML page with plots for people, and
//! lines for the console.
//!
//! | module | from | to |
//! |---|---|---|
//! | [`html`] | a [`Report`] | a page that needs no network and no script |
//! | [`console`] | one round, or all of them | lines for people |
//! | [`data_summary`] | the clients' labels | figures, a picture for terminals, and a page |
//! | [`own_tests`] | the clients' tests of a round | a table for people |
//! | [`summary`] | rounds | the figures that both show |
//! | `table` | cells of text | lines for a terminal, a table for a page |
//!
//! Nothing here touches a file or a terminal: values go in, text comes out.

pub mod by_class;
pub(crate) mod chart;
pub(crate) mod clock;
pub mod console;
pub mod data_summary;
pub mod devices;
pub mod html;
pub mod own_tests;
mod plots;
pub mod standing;
pub mod summary;
pub(crate) mod table;
pub(crate) mod units;

pub use html::{Report, render};
pub use summary::Summary;
