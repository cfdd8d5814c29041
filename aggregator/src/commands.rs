//! Commands in messages, with the options that make them work as they are printed.

use std::sync::OnceLock;

/// What names this server: ` --runs DIR`, ` --identity DIR`, or nothing.
static OPTIONS: OnceLock<String> = OnceLock::new();

/// Says which options name this process' server. The first call counts.
pub(crate) fn set_options(options: String) {
    let _ = OPTIONS.set(options);
}

/// `aggregator devices approve 39de73d6 --runs lab`, of what follows the program's name.
#[must_use]
pub(crate) fn command(what: &str) -> String {
    format!("aggregator {what}{}", OPTIONS.get().map_or("", String::as_str))
}
