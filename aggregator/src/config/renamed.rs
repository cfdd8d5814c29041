//! Keys that had another name before: they are read by it for one release, and the operator is told once.

use std::fmt;

use toml::{Table, Value};

use super::Origin;
use super::keys::KEYS;
use super::paths::{insert, take, value_at};
use super::places::{Places, follow};

/// A key that was given by its old name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// Where.
    pub origin: Origin,
    /// The old name.
    pub was: String,
    /// Today's.
    pub is: String,
}

impl fmt::Display for Renamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, was, is } = self;
        write!(f, "{origin}: `{was}` is called `{is}` now; the old name is read until the next release")
    }
}

/// Gives keys in `layer` their names of today, in `places` as well. One that is given by both names keeps both, and its old name is
/// not known.
pub(super) fn rename(layer: &mut Table, places: &mut Places) -> Vec<Renamed> {
    let mut renamed = Vec::new();
    for (was, is) in KEYS.renamed() {
        if value_at(layer, is).is_some() {
            continue;
        }
        let Some(value) = take(layer, was) else { continue };
        let value = if is == "server.mixing" { mixing(value) } else { value };
        insert(layer, is, value);
        places.rename(was, is);
        let origin = places.origin(is).cloned().unwrap_or(Origin::Configuration);
        renamed.push(Renamed { origin, was: was.to_owned(), is: is.to_owned() });
    }
    renamed
}

/// The name of today for the key with this path.
pub(super) fn of_today(path: &str) -> String {
    KEYS.renamed().fold(path.to_owned(), |path, (was, is)| follow(&path, was, is).unwrap_or(path))
}

/// The three shares, which had no names before.
fn mixing(value: Value) -> Value {
    match value.as_array().map(Vec::as_slice) {
        Some([clients, server, previous]) => Table::from_iter(
            [("clients", clients), ("server", server), ("previous", previous)]
                .map(|(name, share)| (name.to_owned(), share.clone())),
        )
        .into(),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Table {
        text.parse().expect(text)
    }

    #[test]
    fn old_names_are_read_in_every_spelling() {
        for (old, new) in [
            ("training.clip = 1", "training.clip-norm = 1"),
            (
                "[training]\noptimizer = { sgd = { rate = 1, decay = 2 } }",
                "training.optimizer.sgd = { learning-rate = 1, weight-decay = 2 }",
            ),
            (
                "[round]\ncount = { min = 1, max = 2 }\ntime.max = 3",
                "round = { min-updates = 1, max-updates = 2, timeout = 3 }",
            ),
            ("round.late = { keep = true, rounds = 3 }", "round.staleness = { enabled = true, max = 3 }"),
            ("aggregation.server.adam.rate = 1", "aggregation.server-optimizer.adam.learning-rate = 1"),
            ("data.slices = 4", "training.chunks = 4"),
            ("[data]\nlimit = 1\nslices = 2", "data.max-samples = 1\ntraining.chunks = 2"),
            ("update.buffers = 'local'", "aggregation.buffers = 'local'"),
            ("stop.target = 0.5", "early-stopping.target = 0.5"),
            (
                "server.mix = [0.5, 0.3, 0.2]",
                "server.mixing = { clients = 0.5, server = 0.3, previous = 0.2 }",
            ),
        ] {
            let mut layer = table(old);
            assert!(!rename(&mut layer, &mut Places::default()).is_empty(), "{old}");
            assert_eq!(layer, table(new), "{old}");
            assert!(rename(&mut layer, &mut Places::default()).is_empty(), "{new}");
        }
    }

    #[test]
    fn both_names_at_once_are_a_mistake() {
        let mut layer = table("training = { clip = 1, clip-norm = 2 }");
        assert!(rename(&mut layer, &mut Places::default()).is_empty());
        assert_eq!(layer, table("training = { clip = 1, clip-norm = 2 }"));
    }

    #[test]
    fn a_path_has_its_name_of_today() {
        for (path, today) in [
            ("data.limit", "data.max-samples"),
            ("round.late.rounds", "round.staleness.max"),
            ("stop.patience", "early-stopping.patience"),
            ("run.rounds", "run.rounds"),
        ] {
            assert_eq!(of_today(path), today);
        }
    }

    #[test]
    fn the_operator_is_told_where() {
        let mut layer = table("training.clip = 1");
        let mut places = Places::in_override("training.clip=1", &layer);
        let renamed = rename(&mut layer, &mut places);
        assert_eq!(
            renamed[0].to_string(),
            "--set training.clip=1: `training.clip` is called `training.clip-norm` now; the old name is read until the next release"
        );
    }
}
