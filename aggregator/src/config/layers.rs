//! The layers of a configuration, and how one is laid over another.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::LazyLock;

use shared::algorithm::registry;
use shared::data::sets::TRAINER;
use shared::settings::{self, SettingType, Shape, table_of};
use toml::de::DeTable;
use toml::{Table, Value};

use super::findings::Findings;
use super::full_names::join;
use super::keys::KEYS;
use super::overrides::{self, Override};
use super::paths::take;
use super::places::{Lines, Places};
use super::{ConfigError, ConfigErrors, LIBRARIES, Mistake, ModelOrigin, Origin, Raw, check, renamed};

/// The greatest configuration file, in bytes; a complete one has about 3,000.
const LIMIT: u64 = 1 << 20;

static SHAPE: LazyLock<Shape> = LazyLock::new(Raw::shape);

/// All layers joined: what is accepted of them, where it was given, and what is wrong so far.
#[derive(Debug)]
pub(super) struct Layers {
    pub(super) raw: Raw,
    /// `None` if the values come from a program.
    pub(super) places: Option<Places>,
    pub(super) findings: Findings,
}

impl Raw {
    /// The defaults, under the file, under the overrides in their order.
    ///
    /// An override is `KEY=VALUE`, such as `training.epochs=5`; VALUE is a TOML value, or a bare text where it is
    /// none. `KEY=` takes an optional key back to unset.
    ///
    /// A relative `data.path`, `model.from` or `model.parameters` in the file is relative to the file's folder, whose name is put before
    /// it. One in an override is relative to the working directory, as every other path on a command line.
    pub fn layered(file: Option<&Path>, overrides: &[String]) -> Result<Self, ConfigErrors> {
        let layers = Layers::read(file, overrides)?;
        layers.findings.none_or(layers.raw)
    }

    /// The defaults under this text, as if it stood in the file `path`.
    pub fn of_text(text: &str, path: &Path) -> Result<Self, ConfigErrors> {
        let (table, lines) = parsed(text, path)?;
        let mut joined = Layers::defaults();
        joined.lay(table, lines, |layer| beside(layer, path))?;
        let layers = joined.finish()?;
        layers.findings.none_or(layers.raw)
    }
}

impl Layers {
    /// Reads and joins them. Mistakes are noted, and what they are about is left at what the layer below says.
    pub(super) fn read(file: Option<&Path>, overrides: &[String]) -> Result<Self, ConfigError> {
        let mut joined = Self::defaults();
        if let Some(path) = file {
            let parsed = match read(path) {
                Ok(text) => parse(&text, path, &mut joined.findings)?,
                Err(error) => {
                    joined.findings.add(error);
                    None
                }
            };
            if let Some((layer, lines)) = parsed {
                joined.lay(layer, lines, |layer| beside(layer, path))?;
            } else {
                // Its values are unknown, so values are not compared with each other.
                joined.findings.doubt("");
            }
        }
        joined.override_with(overrides)?;
        joined.finish()
    }

    /// The lowest layer.
    pub(super) fn defaults() -> Joined {
        let (places, findings) = (Places::default(), Findings::default());
        Joined { table: table_of(&Raw::default()), places, findings }
    }

    /// Checks a configuration that a program made: no check may be skipped because no file was read.
    pub(super) fn made(raw: &Raw) -> Result<Self, ConfigError> {
        let mut table = table_of(raw);
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
        let mut complete = table_of(&Raw::default());
        lay_over(&mut complete, table);
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
    /// Checks a layer and lays it over those before, as `adapt` makes it.
    pub(super) fn lay(
        &mut self,
        mut layer: Table,
        mut places: Places,
        adapt: impl FnOnce(Table) -> Result<Table, ConfigError>,
    ) -> Result<(), ConfigError> {
        self.findings.renamed.extend(renamed::rename(&mut layer, &mut places));
        if ModelOrigin::write_out(&mut layer)? {
            // One text replaces what is below it, though it stands for a table.
            take(&mut self.table, ModelOrigin::KEY);
            let within = |name| format!("{}.{name}", ModelOrigin::KEY);
            KEYS.children(ModelOrigin::KEY).into_iter().for_each(|name| self.places.unset(&within(name)));
            places.rename(ModelOrigin::KEY, &within("run"));
        }
        check::table(&mut layer, &places, &mut self.findings);
        lay_over(&mut self.table, adapt(layer)?);
        self.places.lay_over(places);
        Ok(())
    }

    /// Lays overrides over the layers before.
    pub(super) fn override_with(&mut self, overrides: &[String]) -> Result<(), ConfigError> {
        for given in overrides {
            match overrides::parse(given) {
                Ok(Override::Set(layer)) => {
                    let place = Places::in_override(given, &layer);
                    self.lay(layer, place, Ok)?;
                }
                Ok(Override::Unset(key)) => {
                    take(&mut self.table, &key);
                    self.places.unset(&key);
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
        join("data.path", folder, text)?;
    }
    if let Some(Value::Table(from)) = layer.get_mut("model").and_then(|model| model.get_mut("from")) {
        for place in ["run", "file"] {
            if let Some(Value::String(text)) = from.get_mut(place) {
                join("model.from", folder, text)?;
            }
        }
        if let Some(Value::String(text)) = from.get_mut("names")
            && !LIBRARIES.contains(&text.as_str())
        {
            join("model.from.names", folder, text)?;
        }
    }
    if let Some(Value::String(text)) = layer.get_mut("model").and_then(|model| model.get_mut("parameters")) {
        join("model.parameters", folder, text)?;
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
            reason: explained(error.message()),
        });
    }
    Ok(None)
}

/// A mistake in TOML, with what to write where its wording does not say.
fn explained(message: &str) -> String {
    let message = message.replace('\n', "; ");
    if message.contains("inline table") && message.contains("extend") {
        return format!(
            "{message}: a table in braces is complete; write all of its keys in the braces, or all with dots, as in data.set = \
             \"mnist\" and data.partition.iid = {{}}"
        );
    }
    message
}

fn from_table(table: Table) -> Result<Raw, ConfigError> {
    let named = table.get("model").is_some_and(|model| model.get("name").is_some());
    let internal = |error: toml::de::Error| ConfigError::Internal { reason: error.message().to_owned() };
    let mut raw: Raw = table.try_into().map_err(internal)?;
    // Layers have taken the place of the name, which has a default.
    raw.model.name.take_if(|_| !named);
    Ok(raw)
}

/// The keys that name a network, each before those that go with it alone.
const NETWORKS: [&[&str]; 3] = [&["name"], &["layers"], &["parameters", "buffers", "tensors"]];

/// Lays a checked layer over `base`.
fn lay_over(base: &mut Table, layer: Table) {
    // A model has a name, layers or a file of tensors.
    if let (Some(Value::Table(model)), Some(Value::Table(given))) =
        (base.get_mut("model"), layer.get("model"))
    {
        let named = NETWORKS.map(|keys| given.contains_key(keys[0]));
        if named.into_iter().filter(|named| *named).count() == 1 {
            let others = NETWORKS.iter().zip(named).filter(|(_, named)| !named);
            others.flat_map(|(keys, _)| keys.iter()).for_each(|key| drop(model.remove(*key)));
        }
        // Another file has other tensors and other values than those that were noted.
        if (given.contains_key("parameters") || given.contains_key("buffers"))
            && !given.contains_key("tensors")
        {
            model.remove("tensors");
        }
        if given.contains_key("parameters") && !given.contains_key("from") {
            model.remove("from");
        }
        // What such a network learns from, its trainers read.
        let says_set = layer.get("data").is_some_and(|data| data.get("set").is_some());
        if given.contains_key("parameters")
            && !says_set
            && let Some(Value::Table(data)) = base.get_mut("data")
        {
            data.insert("set".to_owned(), Value::String(TRAINER.name.to_owned()));
        }
    }
    settings::lay_over(base, layer, &SHAPE);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use shared::data::Partition;
    use shared::data::partition::Empty;

    use super::*;

    fn layered(text: &str, overrides: &[&str]) -> Raw {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("lab.toml");
        std::fs::write(&path, text).expect("a file in it");
        let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
        Raw::layered(Some(&path), &overrides).expect(text)
    }

    #[test]
    fn a_table_in_braces_that_is_extended_says_what_to_write() {
        let text = "data = { set = \"mnist\" }\ndata.partition.iid = {}\n";
        let told = parsed(text, Path::new("x.toml")).expect_err("it is complete").to_string();
        assert!(told.contains("x.toml:2") && told.contains("all with dots, as in data.set"), "{told}");
    }

    #[test]
    fn nothing_is_the_default() {
        assert_eq!(layered("", &[]), Raw::default());
        assert_eq!(Raw::layered(None, &[]).expect("the default"), Raw::default());
    }

    #[test]
    fn later_layers_win_key_by_key() {
        let raw = layered(
            "[training]\nepochs = 2\nbatch = 8\n[round]\nmax-updates = 7",
            &["training.epochs=3", "training.epochs=4"],
        );
        assert_eq!((raw.training.epochs, raw.training.batch), (4, 8));
        assert_eq!((raw.round.min_updates, raw.round.max_updates), (1, Some(7)));
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
        let sgd = layered(
            "training.optimizer.sgd = { momentum = 0.9 }",
            &["training.optimizer.sgd.weight-decay=1e-4"],
        )
        .training
        .optimizer
        .to_engine()
        .descent()
        .expect("descent");
        assert_eq!((sgd.rate, sgd.momentum, sgd.decay), (0.2, 0.9, 1e-4));
    }

    #[test]
    fn hyper_parameters_of_one_algorithm_join_and_those_of_another_do_not() {
        // Names of algorithms are checked before layers are joined, so any name shows the rule.
        let mut base: Table = "[algorithm.a]\nx = 1\ny = { z = 1 }".parse().expect("TOML");
        let mut lay = |text: &str| {
            lay_over(&mut base, text.parse().expect("TOML"));
            base.clone()
        };
        let joined: Table = "[algorithm.a]\nx = 2\ny = { z = 1, w = 3 }".parse().expect("TOML");
        assert_eq!(lay("[algorithm.a]\nx = 2\ny.w = 3"), joined);
        let replaced: Table = "[algorithm.b]\nx = 5".parse().expect("TOML");
        assert_eq!(lay("[algorithm.b]\nx = 5"), replaced);
    }

    #[test]
    fn numbers_may_be_whole() {
        let raw =
            layered("training.optimizer.sgd.learning-rate = 1\nround.fraction = 0\nround.timeout = 60", &[]);
        let rate = raw.training.optimizer.to_engine().rate();
        assert_eq!((rate, raw.round.fraction, raw.round.timeout), (1.0, 0.0, Some(60.0)));
    }

    #[test]
    fn optional_keys_can_be_unset_again() {
        let file = "data.max-samples = 100\nround.max-updates = 5\n[update]\nbroadcast = \"f16\"";
        let raw =
            layered(file, &["data.max-samples=", "round.max-updates=", "update.broadcast=", "data.path="]);
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
