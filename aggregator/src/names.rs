//! The names that the operator gave devices, for sentences.
//!
//! Notices and records carry ids; wherever one is shown to people, [`called`] adds the name. There is one server per process, and the
//! names are its own: they are read when it starts and when `aggregator devices name` changes one.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use shared::id::ClientId;

static NAMES: RwLock<BTreeMap<ClientId, String>> = RwLock::new(BTreeMap::new());

/// Replaces all names. Characters that a terminal would obey become spaces.
pub(crate) fn set(names: impl IntoIterator<Item = (ClientId, String)>) {
    let names = names.into_iter().map(|(client, name)| (client, fit(&name))).collect();
    *NAMES.write().unwrap_or_else(PoisonError::into_inner) = names;
}

/// `bench-pi-1 (7b300645)`, or `7b300645` of a device without a name.
#[must_use]
pub(crate) fn called(client: ClientId) -> String {
    let names = NAMES.read().unwrap_or_else(PoisonError::into_inner);
    in_words(names.get(&client).map(String::as_str), client)
}

fn in_words(name: Option<&str>, client: ClientId) -> String {
    match name {
        Some(name) => format!("{name} ({})", client.short()),
        None => client.short(),
    }
}

fn fit(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_before_the_id_and_obeys_no_terminal() {
        let client = ClientId::from_bytes([0xe1; 16]);
        assert_eq!(in_words(Some(&fit("window\u{1b}sill")), client), "window sill (e1e1e1e1)");
        assert_eq!(in_words(None, client), "e1e1e1e1");
    }
}
