//! The layers of a configuration, and how one is laid over another.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use shared::aggregation::{Adagrad, Adam, Rule, ServerOptimizer, Yogi};
use shared::algorithm::registry;
use shared::data::Partition;
use shared::data::partition::Empty;
use shared::schedule::Schedule;
use toml::de::DeTable;
use toml::{Table, Value};

use crate::attack::Attack;

use super::findings::Findings;
use super::keys::CHOICES;
use super::overrides::{self, Override};
use super::places::{Lines, Places};
use super::{ConfigError, ConfigErrors, Mistake, Optimizer, Origin, Raw, check};

/// The greatest configuration file, in bytes; a complete one has about 3,000.
const LIMIT: u64 = 1 << 20;

/// All layers joined: what is accepted of them, where it was given, and what is wrong so far.
#[derive(Debug)]
pub(super) struct Layers {
    pub(super) raw: Raw,
    /// `None` if nobody knows: the values come from a program.
    pub(super) places: Option<Places>,
    pub(super) findings: Findings,
}

impl Raw {
    /// The defaults, under the file, under the overrides in their order.
    ///
    /// An override is `KEY=VALUE`, such as `training.epochs=5`; VALUE is a TOML value, or a bare text where it is
    /// none. `KEY=` takes an optional key back to unset.
    ///
    /// A relative `data.path` in the file is relative to the file's folder, whose name is put before it. One in an
    /// override is relative to the working directory, as every other path on a command line.
    pub fn layered(file: Option<&Path>, overrides: &[String]) -> Result<Self, ConfigErrors> {
        let layers = Layers::read(file, overrides)?;
        layers.findings.none_or(layers.raw)
    }
}

impl Layers {
    /// Reads and joins them. Mistakes are noted, and what they are about is left at what the layer below says.
    pub(super) fn read(file: Option<&Path>, overrides: &[String]) -> Result<Self, ConfigError> {
        let mut joined = Self::defaults()?;
        if let Some(path) = file {
            let parsed = match read(path) {
                Ok(text) => parse(&text, path, &mut joined.findings)?,
                Err(error) => {
                    joined.findings.add(error);
                    None
                }
            };
            if let Some((mut layer, lines)) = parsed {
                check::table(&mut layer, &lines, &mut joined.findings);
                joined.lay(beside(layer, path)?, lines)?;
            } else {
                // Nobody knows what it would have said, so values are not compared with each other.
                joined.findings.doubt("");
            }
        }
        joined.override_with(overrides)?;
        joined.finish()
    }

    /// The lowest layer.
    pub(super) fn defaults() -> Result<Joined, ConfigError> {
        let (places, findings) = (Places::default(), Findings::default());
        Ok(Joined { table: to_table(&Raw::default())?, places, findings })
    }

    /// Checks a configuration that a program made: no check may be skipped because no file was read.
    pub(super) fn made(raw: &Raw) -> Result<Self, ConfigError> {
        let mut table = to_table(raw)?;
        let mut findings = Findings::default();
        check::table(&mut table, &Places::default(), &mut findings);
        if raw.algorithm.is_empty() {
            findings.add(ConfigError::Alternatives(Box::new(Mistake {
                origin: Origin::Configuration,
                key: "algorithm".to_owned(),
                given: "none".to_owned(),
                accepted: registry::names().into_iter().map(str::to_owned).collect(),
                suggestion: None,
            })));
        }
        // What was taken out has its default again.
        let mut complete = to_table(&Raw::default())?;
        lay_over(&mut complete, table, "")?;
        Ok(Self { raw: from_table(complete)?, places: None, findings })
    }
}

/// Layers that are being joined.
pub(super) struct Joined {
    table: Table,
    places: Places,
    pub(super) findings: Findings,
}

impl Joined {
    /// Lays a checked layer over those before.
    pub(super) fn lay(&mut self, layer: Table, places: Places) -> Result<(), ConfigError> {
        lay_over(&mut self.table, layer, "")?;
        self.places.lay_over(places);
        Ok(())
    }

    /// Lays overrides over what is there.
    pub(super) fn override_with(&mut self, overrides: &[String]) -> Result<(), ConfigError> {
        for given in overrides {
            match overrides::parse(given) {
                Ok(Override::Set(mut layer)) => {
                    let place = Places::in_override(given, &layer);
                    check::table(&mut layer, &place, &mut self.findings);
                    self.lay(layer, place)?;
                }
                Ok(Override::Unset(key)) => {
                    unset(&mut self.table, key);
                    self.places.unset(key);
                }
                Err(error) => {
                    self.findings.add(error);
                    self.findings.doubt("");
                }
            }
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Layers, ConfigError> {
        Ok(Layers { raw: from_table(self.table)?, places: Some(self.places), findings: self.findings })
    }
}

/// The content of a file with this text, and where its keys stand; all mistakes of its syntax.
pub(super) fn parsed(text: &str, path: &Path) -> Result<(Table, Places), ConfigErrors> {
    let mut findings = Findings::default();
    let parsed = parse(text, path, &mut findings)?;
    findings.none_or(())?;
    let reason = "a text that is no TOML has no mistake".to_owned();
    parsed.ok_or_else(|| ConfigError::Internal { reason }.into())
}

pub(super) fn read(path: &Path) -> Result<String, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let read = File::open(path).map_err(failed)?.take(LIMIT + 1).read_to_string(&mut text).map_err(failed)?;
    if read as u64 > LIMIT {
        return Err(ConfigError::TooLarge { path: path.to_owned(), limit: LIMIT });
    }
    Ok(text)
}

/// A checked layer of the file `path` with what it names relative to the file named from the working directory.
pub(super) fn beside(mut layer: Table, path: &Path) -> Result<Table, ConfigError> {
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

/// The values of a file's text and where they are. If it is no TOML, all mistakes are noted, at most one a line: what
/// follows on the same line is mostly a consequence.
fn parse(text: &str, path: &Path, findings: &mut Findings) -> Result<Option<(Table, Places)>, ConfigError> {
    let lines = Lines::of(text);
    let mut mistakes: Vec<(usize, toml::de::Error)> = (DeTable::parse_recoverable(text).1.into_iter())
        .map(|error| (error.span().map_or(0, |span| span.start), error))
        .collect();
    if mistakes.is_empty() {
        let reason = |error: toml::de::Error| format!("valid TOML is refused: {}", error.message());
        let table = text.parse().map_err(|error| ConfigError::Internal { reason: reason(error) })?;
        return Ok(Some((table, Places::in_file(path, text))));
    }
    mistakes.sort_by_key(|&(offset, _)| offset);
    mistakes.dedup_by_key(|&mut (offset, _)| lines.line(offset));
    for (offset, error) in mistakes {
        findings.add(ConfigError::Syntax {
            origin: Origin::File { path: path.to_owned(), line: lines.line(offset) },
            column: lines.column(offset),
            reason: error.message().replace('\n', "; "),
        });
    }
    Ok(None)
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
    let given: Vec<String> = layer.keys().cloned().collect();
    for (name, value) in layer {
        let full = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if CHOICES.contains(&path) && !base.contains_key(&name) {
            let defaults = alternative_defaults(path, &name)?;
            *base = Table::from_iter([(name.clone(), Value::Table(defaults))]);
        }
        if let Some(other) = other_than(&full).filter(|other| !given.iter().any(|name| name == other)) {
            base.remove(other);
        }
        match (base.get_mut(&name), value) {
            // A network is one value: of its parts, none makes sense without the others.
            (Some(whole), value) if full == "model.layers" => *whole = value,
            (Some(Value::Table(below)), Value::Table(above)) => lay_over(below, above, &full)?,
            (_, value) => {
                base.insert(name, value);
            }
        }
    }
    Ok(())
}

/// The key beside this one that cannot stand where this one does.
fn other_than(path: &str) -> Option<&'static str> {
    match path {
        "model.name" => Some("layers"),
        "model.layers" => Some("name"),
        _ => None,
    }
}

/// What an alternative's keys are where nothing sets them.
fn alternative_defaults(choice: &str, name: &str) -> Result<Table, ConfigError> {
    let internal = |error: toml::ser::Error| ConfigError::Internal { reason: error.to_string() };
    let values = match choice {
        "data.partition" => vec![
            Value::try_from(Partition::Iid {}).map_err(internal)?,
            Value::try_from(Partition::Shards { per_client: 2 }).map_err(internal)?,
            Value::try_from(Partition::Classes { per_client: 2 }).map_err(internal)?,
            Value::try_from(Partition::Dirichlet { alpha: 0.5, empty: Empty::Redraw }).map_err(internal)?,
            Value::try_from(Partition::DirichletCapped { alpha: 0.5, min: 10 }).map_err(internal)?,
            Value::try_from(Partition::Quantity { alpha: 0.5, min: 10 }).map_err(internal)?,
            Value::try_from(Partition::Role {}).map_err(internal)?,
        ],
        "training.optimizer" => vec![Value::try_from(Optimizer::default()).map_err(internal)?],
        "training.schedule" => vec![
            Value::try_from(Schedule::Constant {}).map_err(internal)?,
            Value::try_from(Schedule::Exponential { factor: 0.99 }).map_err(internal)?,
            Value::try_from(Schedule::Cosine { last: 0.0 }).map_err(internal)?,
        ],
        "aggregation.rule" => {
            Rule::ALL.iter().map(|rule| Value::try_from(rule).map_err(internal)).collect::<Result<_, _>>()?
        }
        "aggregation.server" => vec![
            Value::try_from(ServerOptimizer::default()).map_err(internal)?,
            Value::try_from(ServerOptimizer::Adagrad(Adagrad::default())).map_err(internal)?,
            Value::try_from(ServerOptimizer::Adam(Adam::default())).map_err(internal)?,
            Value::try_from(ServerOptimizer::Yogi(Yogi::default())).map_err(internal)?,
        ],
        "simulation.attack" => {
            let values = Attack::ALL.iter().map(|attack| Value::try_from(attack).map_err(internal));
            values.collect::<Result<_, _>>()?
        }
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
        let skewed = |alpha| Partition::Dirichlet { alpha, empty: Empty::Redraw };
        assert_eq!(dirichlet.data.partition, skewed(0.5));
        let capped = layered("data.partition = { dirichlet-capped = { alpha = 0.1 } }", &[]);
        assert_eq!(capped.data.partition, Partition::DirichletCapped { alpha: 0.1, min: 10 });
        let both = ["data.partition.shards.per-client=3", "data.partition.dirichlet.alpha=0.1"];
        assert_eq!(layered("", &both).data.partition, skewed(0.1));
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
        assert_eq!((sgd.rate, raw.round.fraction, raw.round.time.max), (1.0, 0.0, Some(60.0)));
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
