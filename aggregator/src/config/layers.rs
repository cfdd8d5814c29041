//! The layers of a configuration, and how one is laid over another.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use shared::data::Partition;
use toml::{Table, Value};

use super::keys::CHOICES;
use super::overrides::{self, Override};
use super::{ConfigError, Optimizer, Origin, Raw, check};

/// The greatest configuration file, in bytes; a complete one has about 3,000.
const LIMIT: u64 = 1 << 20;

impl Raw {
    /// The defaults, under the file, under the overrides in their order.
    ///
    /// An override is `KEY=VALUE`, such as `training.epochs=5`; VALUE is a TOML value, or a bare text where it is
    /// none. `KEY=` takes an optional key back to unset.
    ///
    /// A relative `data.path` in the file is relative to the file's folder, whose name is put before it. One in an
    /// override is relative to the working directory, as every other path on a command line.
    pub fn layered(file: Option<&Path>, overrides: &[String]) -> Result<Self, ConfigError> {
        let mut table = to_table(&Self::default())?;
        if let Some(path) = file {
            let origin = Origin::File(path.to_owned());
            let layer = parse(&read(path)?, &origin)?;
            check::table(&layer, &origin)?;
            lay_over(&mut table, beside(layer, path)?, "")?;
        }
        for given in overrides {
            match overrides::parse(given)? {
                Override::Set(layer) => {
                    check::table(&layer, &Origin::Override(given.clone()))?;
                    lay_over(&mut table, layer, "")?;
                }
                Override::Unset(key) => unset(&mut table, key),
            }
        }
        from_table(table)
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let read = File::open(path).map_err(failed)?.take(LIMIT + 1).read_to_string(&mut text).map_err(failed)?;
    if read as u64 > LIMIT {
        return Err(ConfigError::TooLarge { path: path.to_owned(), limit: LIMIT });
    }
    Ok(text)
}

/// A checked layer of the file `path` with what it names relative to the file named from the working directory.
fn beside(mut layer: Table, path: &Path) -> Result<Table, ConfigError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    if let Some(Value::String(text)) = layer.get_mut("data").and_then(|data| data.get_mut("path")) {
        let joined = folder.join(text.as_str());
        let Some(name) = joined.to_str() else {
            return Err(ConfigError::Path { path: joined, reason: "it is not UTF-8".to_owned() });
        };
        name.clone_into(text);
    }
    Ok(layer)
}

fn parse(text: &str, origin: &Origin) -> Result<Table, ConfigError> {
    text.parse().map_err(|error: toml::de::Error| {
        let before = text.get(..error.span().map_or(0, |span| span.start)).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        ConfigError::Syntax {
            origin: origin.clone(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            reason: error.message().replace('\n', "; "),
        }
    })
}

/// A configuration as a table of its set values.
pub(super) fn to_table(raw: &Raw) -> Result<Table, ConfigError> {
    Table::try_from(raw).map_err(|error| ConfigError::Internal { reason: error.to_string() })
}

fn from_table(table: Table) -> Result<Raw, ConfigError> {
    table
        .try_into()
        .map_err(|error: toml::de::Error| ConfigError::Internal { reason: error.message().to_owned() })
}

/// Lays a checked layer over `base`. Values replace values and tables join tables; where exactly one alternative
/// can stand, another one replaces it, starting from that alternative's own defaults.
fn lay_over(base: &mut Table, layer: Table, path: &str) -> Result<(), ConfigError> {
    for (name, value) in layer {
        let full = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if CHOICES.contains(&path) && !base.contains_key(&name) {
            let defaults = alternative_defaults(path, &name)?;
            *base = Table::from_iter([(name.clone(), Value::Table(defaults))]);
        }
        match (base.get_mut(&name), value) {
            (Some(Value::Table(below)), Value::Table(above)) => lay_over(below, above, &full)?,
            (_, value) => {
                base.insert(name, value);
            }
        }
    }
    Ok(())
}

/// What an alternative's keys are where nothing sets them.
fn alternative_defaults(choice: &str, name: &str) -> Result<Table, ConfigError> {
    let internal = |error: toml::ser::Error| ConfigError::Internal { reason: error.to_string() };
    let values = match choice {
        "data.partition" => vec![
            Value::try_from(Partition::Iid {}).map_err(internal)?,
            Value::try_from(Partition::Shards { per_client: 2 }).map_err(internal)?,
            Value::try_from(Partition::Dirichlet { alpha: 0.5 }).map_err(internal)?,
        ],
        "training.optimizer" => vec![Value::try_from(Optimizer::default()).map_err(internal)?],
        // An algorithm knows its own defaults.
        _ => Vec::new(),
    };
    let defaults = values.iter().find_map(|value| value.get(name)?.as_table().cloned());
    Ok(defaults.unwrap_or_default())
}

fn unset(table: &mut Table, key: &str) {
    match key.split_once('.') {
        None => {
            table.remove(key);
        }
        Some((name, rest)) => {
            if let Some(Value::Table(inner)) = table.get_mut(name) {
                unset(inner, rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn layered(text: &str, overrides: &[&str]) -> Raw {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("lab.toml");
        std::fs::write(&path, text).expect("a file in it");
        let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
        Raw::layered(Some(&path), &overrides).expect(text)
    }

    #[test]
    fn nothing_is_the_default() {
        assert_eq!(layered("", &[]), Raw::default());
        assert_eq!(Raw::layered(None, &[]).expect("the default"), Raw::default());
    }

    #[test]
    fn later_layers_win_key_by_key() {
        let raw = layered(
            "[training]\nepochs = 2\nbatch = 8\n[round]\ncount = { max = 7 }",
            &["training.epochs=3", "training.epochs=4"],
        );
        assert_eq!((raw.training.epochs, raw.training.batch), (4, 8));
        assert_eq!((raw.round.count.min, raw.round.count.max), (1, Some(7)));
    }

    #[test]
    fn naming_another_alternative_replaces_and_the_same_one_joins() {
        let names = |raw: &Raw| raw.algorithm.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&layered("[algorithm.fedsgd]", &[])), ["fedsgd"]);
        assert_eq!(names(&layered("", &["algorithm.fedsgd={}"])), ["fedsgd"]);
        assert_eq!(names(&layered("[algorithm.fedsgd]", &["algorithm.fedavg={}"])), ["fedavg"]);
        assert_eq!(
            layered("", &["data.partition.shards={}"]).data.partition,
            Partition::Shards { per_client: 2 }
        );
        let dirichlet = layered("data.partition = { dirichlet = {} }", &[]);
        assert_eq!(dirichlet.data.partition, Partition::Dirichlet { alpha: 0.5 });
        let both = ["data.partition.shards.per-client=3", "data.partition.dirichlet.alpha=0.1"];
        assert_eq!(layered("", &both).data.partition, Partition::Dirichlet { alpha: 0.1 });
        let Optimizer::Sgd(sgd) =
            layered("training.optimizer.sgd = { momentum = 0.9 }", &["training.optimizer.sgd.decay=1e-4"])
                .training
                .optimizer;
        assert_eq!((sgd.rate, sgd.momentum, sgd.decay), (0.2, 0.9, 1e-4));
    }

    #[test]
    fn hyper_parameters_of_one_algorithm_join_and_those_of_another_do_not() {
        // Names of algorithms are checked before layers are joined, so any name shows the rule.
        let mut base: Table = "[algorithm.a]\nx = 1\ny = { z = 1 }".parse().expect("TOML");
        let mut lay = |text: &str| {
            lay_over(&mut base, text.parse().expect("TOML"), "").expect("alternatives of a checked layer");
            base.clone()
        };
        let joined: Table = "[algorithm.a]\nx = 2\ny = { z = 1, w = 3 }".parse().expect("TOML");
        assert_eq!(lay("[algorithm.a]\nx = 2\ny.w = 3"), joined);
        let replaced: Table = "[algorithm.b]\nx = 5".parse().expect("TOML");
        assert_eq!(lay("[algorithm.b]\nx = 5"), replaced);
    }

    #[test]
    fn numbers_may_be_whole() {
        let raw = layered("training.optimizer.sgd.rate = 1\nround.fraction = 0\nround.time.max = 60", &[]);
        let Optimizer::Sgd(sgd) = raw.training.optimizer;
        assert_eq!((sgd.rate, raw.round.fraction, raw.round.time.max), (1.0, 0.0, 60.0));
    }

    #[test]
    fn optional_keys_can_be_unset_again() {
        let file = "data.limit = 100\nround.count.max = 5\n[update]\nbroadcast = \"f16\"";
        let raw = layered(file, &["data.limit=", "round.count.max=", "update.broadcast=", "data.path="]);
        assert_eq!(raw, Raw::default());
    }

    #[test]
    fn an_algorithm_is_always_there() {
        assert_eq!(
            layered("[algorithm]", &[]).algorithm,
            BTreeMap::from([("fedavg".to_owned(), Table::new())])
        );
    }
}
