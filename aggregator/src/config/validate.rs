//! From [`Raw`] to [`Config`]: the checks that need more than one key, and derived defaults.

use std::path::{Path, PathBuf};
use std::time::Duration;

use models::Architecture;
use shared::algorithm::registry;
use shared::data::Partition;
use shared::id::RunId;
use shared::spec::{AlgorithmSpec, RunSpec, Training, WirePrecision};

use super::{
    ConfigError, DataPlan, DataSet, EvaluatePlan, Mistake, Optimizer, Origin, Raw, RoundPolicy, Source,
    check, layers,
};

/// The environment variable that names the folder of data sets, one sub-folder each.
pub const DATA_VARIABLE: &str = "FEDERATION_DATA";

/// A configuration that makes sense: what the program runs on.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What clients are told.
    pub spec: RunSpec,
    /// When rounds open and close.
    pub policy: RoundPolicy,
    /// What is learned from, and who has it.
    pub data: DataPlan,
    /// Testing of the global model.
    pub evaluate: EvaluatePlan,
    /// The configuration with every derived default filled in. Validating it again gives the same `Config`, from any
    /// directory and environment.
    pub effective: Raw,
}

impl Config {
    /// Checks `raw` and derives what the program runs on.
    ///
    /// A relative `data.path` is relative to the working directory ([`Raw::layered`] has put a file's folder before it).
    /// Where files are needed and `data.path` is unset, the environment variable [`DATA_VARIABLE`] is consulted. Whether
    /// the files are there is left to whoever reads them.
    pub fn validate(raw: Raw, run: RunId) -> Result<Self, ConfigError> {
        let data_root = std::env::var_os(DATA_VARIABLE).map(PathBuf::from);
        validate(raw, data_root.as_deref(), run)
    }
}

fn validate(mut raw: Raw, data_root: Option<&Path>, run: RunId) -> Result<Config, ConfigError> {
    // A `Raw` may have been made by hand: no check may be skipped because no file was read.
    check::table(&layers::to_table(&raw)?, &Origin::Configuration)?;

    let Optimizer::Sgd(sgd) = raw.training.optimizer;
    let training = Training { epochs: raw.training.epochs, batch: raw.training.batch, sgd };
    let algorithm = algorithm(&raw, &training)?;
    let architecture = architecture(&raw.model.name, raw.data.set)?;
    let source = source(&mut raw, data_root)?;
    partition(&raw)?;

    let broadcast = *raw.update.broadcast.get_or_insert(raw.update.precision);
    raw.round.start.get_or_insert(raw.data.clients);
    let policy = policy(&raw)?;

    Ok(Config {
        spec: RunSpec {
            run,
            name: raw.run.name.clone(),
            seed: raw.run.seed.cast_unsigned(),
            rounds: raw.run.rounds,
            architecture,
            training,
            algorithm,
            weights: raw.aggregation.weights,
            precision: WirePrecision { broadcast, update: raw.update.precision },
            heartbeat: seconds(raw.connection.heartbeat),
        },
        policy,
        data: DataPlan {
            set: raw.data.set,
            source,
            clients: raw.data.clients as usize,
            partition: raw.data.partition,
        },
        evaluate: EvaluatePlan { every: raw.evaluate.every, batch: raw.evaluate.batch as usize },
        effective: raw,
    })
}

fn algorithm(raw: &Raw, training: &Training) -> Result<AlgorithmSpec, ConfigError> {
    let mut given = raw.algorithm.iter();
    let (Some((name, table)), None) = (given.next(), given.next()) else {
        let given: Vec<&str> = raw.algorithm.keys().map(String::as_str).collect();
        return Err(ConfigError::Alternatives(Box::new(Mistake {
            origin: Origin::Configuration,
            key: "algorithm".to_owned(),
            given: if given.is_empty() { "none".to_owned() } else { given.join(" and ") },
            accepted: registry::names().into_iter().map(str::to_owned).collect(),
            suggestion: None,
        })));
    };
    let spec = registry::specify(name, table.clone())?;
    match registry::build(&spec)?.validate(training) {
        Ok(()) => Ok(spec),
        Err(reason) => Err(ConfigError::Combination {
            keys: vec![format!("[algorithm.{name}]"), "[training]".to_owned()],
            reason,
        }),
    }
}

fn architecture(name: &str, set: DataSet) -> Result<Architecture, ConfigError> {
    Architecture::by_name(name, &set.shape(), set.classes()).map_err(|source| ConfigError::Model {
        name: name.to_owned(),
        set,
        source: Box::new(source),
    })
}

/// Finds the data, and puts the folder's full name into `raw`.
fn source(raw: &mut Raw, data_root: Option<&Path>) -> Result<Source, ConfigError> {
    let set = raw.data.set;
    if set == DataSet::Glyphs {
        if let Some(path) = &raw.data.path {
            return Err(ConfigError::Combination {
                keys: vec![format!("data.set = \"{set}\""), format!("data.path = {path:?}")],
                reason: "glyphs are drawn from run.seed and not read from files; leave data.path out (--set data.path=)"
                    .to_owned(),
            });
        }
        let train = raw.data.limit.map_or(set.training_samples(), |limit| limit as usize);
        return Ok(Source::Drawn { train, test: set.test_samples() });
    }
    let folder = match (&raw.data.path, data_root) {
        (Some(path), _) => PathBuf::from(path),
        (None, Some(root)) if root.join(set.name()).is_dir() => root.join(set.name()),
        (None, root) => return Err(ConfigError::NoData { set, variable: root.map(Path::to_owned) }),
    };
    let folder = std::path::absolute(&folder)
        .map_err(|error| ConfigError::Path { path: folder, reason: error.to_string() })?;
    let Some(text) = folder.to_str() else {
        return Err(ConfigError::Path { path: folder, reason: "it is not UTF-8".to_owned() });
    };
    raw.data.path = Some(text.to_owned());
    Ok(Source::Files { folder, limit: raw.data.limit.map(|limit| limit as usize) })
}

/// What can be said of a partition before the labels are known. The rest is said when the data is divided.
fn partition(raw: &Raw) -> Result<(), ConfigError> {
    let available = raw.data.limit.map_or(u64::MAX, u64::from);
    let samples = match raw.data.set {
        DataSet::Glyphs if raw.data.limit.is_some() => available,
        set => available.min(set.training_samples() as u64),
    };
    let clients = u64::from(raw.data.clients);
    if clients > samples {
        return Err(ConfigError::Combination {
            keys: vec![format!("data.clients = {clients}"), format!("{samples} training samples")],
            reason: "every client needs at least one sample; use fewer clients or raise data.limit"
                .to_owned(),
        });
    }
    if let Partition::Shards { per_client } = raw.data.partition
        && clients.saturating_mul(per_client as u64) > samples
    {
        return Err(ConfigError::Combination {
            keys: vec![
                format!("data.clients = {clients}"),
                format!("data.partition.shards.per-client = {per_client}"),
                format!("{samples} training samples"),
            ],
            reason: "there are more shards than samples; use fewer clients, fewer shards or more samples"
                .to_owned(),
        });
    }
    Ok(())
}

fn policy(raw: &Raw) -> Result<RoundPolicy, ConfigError> {
    let round = &raw.round;
    let clients = raw.data.clients;
    let start = round.start.unwrap_or(clients);
    let policy = RoundPolicy {
        fraction: round.fraction,
        min: round.count.min as usize,
        max: round.count.max.map(|max| max as usize),
        time_min: seconds(round.time.min),
        time_max: seconds(round.time.max),
        start: start as usize,
        regather: seconds(round.regather),
        lost_after: seconds(raw.connection.lost_after),
        // A bound that f32 cannot hold is still a bound, not zero.
        max_abs: (raw.update.max_abs as f32).max(f32::MIN_POSITIVE),
    };
    let refuse = |wrong: bool, keys: &[String], reason: &str| {
        if wrong {
            Err(ConfigError::Combination { keys: keys.to_vec(), reason: reason.to_owned() })
        } else {
            Ok(())
        }
    };
    let min_key = format!("round.count.min = {}", round.count.min);
    let clients_key = format!("data.clients = {clients}");
    if let Some(max) = round.count.max {
        let max_key = format!("round.count.max = {max}");
        refuse(
            round.count.min > max,
            &[min_key.clone(), max_key.clone()],
            "a round would close before it may; raise max or lower min",
        )?;
        refuse(
            max > clients,
            &[max_key, clients_key.clone()],
            "there are not so many clients; lower max, or leave it out to wait for the cohort",
        )?;
    }
    let cohort = policy.cohort(clients as usize);
    refuse(
        policy.min > cohort,
        &[min_key, format!("round.fraction = {}", round.fraction), clients_key.clone()],
        &format!(
            "a cohort has {cohort} clients, so a round could never close; raise the fraction or lower min"
        ),
    )?;
    refuse(
        start > clients,
        &[format!("round.start = {start}"), clients_key],
        "the first round would wait for clients that do not exist; lower start",
    )?;
    refuse(
        round.time.min > round.time.max,
        &[format!("round.time.min = {}", round.time.min), format!("round.time.max = {}", round.time.max)],
        "a round would close before it may; raise max or lower min",
    )?;
    let connection = &raw.connection;
    refuse(
        connection.heartbeat >= connection.lost_after,
        &[
            format!("connection.heartbeat = {}", connection.heartbeat),
            format!("connection.lost-after = {}", connection.lost_after),
        ],
        "every client would be lost between two signs of life; make lost-after several heartbeats",
    )?;
    Ok(policy)
}

/// Seconds that the checks have found to be finite, not negative and below a few decades.
fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).expect("keys::KEYS bounds every time to what a Duration holds")
}

#[cfg(test)]
mod tests {
    use models::Precision;

    use super::*;

    const RUN: RunId = RunId::from_bytes([1; 8]);

    fn raw(overrides: &[&str]) -> Raw {
        let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
        Raw::layered(None, &overrides).expect("overrides that can be read")
    }

    fn valid(overrides: &[&str]) -> Config {
        validate(raw(overrides), None, RUN).expect("a valid configuration")
    }

    #[test]
    fn defaults_are_derived() {
        let config = valid(&["data.clients=7", "update.precision=bf16", "data.limit=70"]);
        assert_eq!(config.policy.start, 7);
        assert_eq!(config.spec.precision.broadcast, Precision::BF16);
        assert_eq!(config.data.source, Source::Drawn { train: 70, test: DataSet::Glyphs.test_samples() });
        let explicit = valid(&["data.clients=7", "round.start=2", "update.broadcast=f16"]);
        assert_eq!((explicit.policy.start, explicit.spec.precision.broadcast), (2, Precision::F16));
        assert_eq!(explicit.spec.precision.update, Precision::F32);
    }

    #[test]
    fn the_specification_is_what_the_file_says() {
        let config = valid(&[
            "training.epochs=3",
            "training.batch=0",
            "training.optimizer.sgd.momentum=0.9",
            "run.seed=9",
            "run.rounds=4",
            "model.name=linear",
            "aggregation.weights=uniform",
            "connection.heartbeat=0.5",
            "connection.lost-after=1.5",
        ]);
        let spec = &config.spec;
        assert_eq!((spec.run, spec.seed, spec.rounds), (RUN, 9, 4));
        assert_eq!((spec.training.epochs, spec.training.batch, spec.training.sgd.momentum), (3, 0, 0.9));
        assert_eq!((spec.architecture.name.as_str(), spec.algorithm.name.as_str()), ("linear", "fedavg"));
        assert_eq!(spec.weights, shared::aggregation::Weights::Uniform);
        assert_eq!(spec.heartbeat, Duration::from_millis(500));
        assert_eq!(config.policy.lost_after, Duration::from_millis(1500));
    }

    #[test]
    fn the_effective_configuration_is_a_fixed_point() {
        let first = valid(&["round.fraction=0.5", "data.partition.dirichlet.alpha=0.3"]);
        let again = validate(first.effective.clone(), None, RUN).expect("valid");
        assert_eq!(again, first);
        let files = valid(&["data.set=mnist", "data.path=x"]);
        let again = validate(files.effective.clone(), None, RUN).expect("valid");
        assert_eq!(again, files);
    }

    #[test]
    fn relative_paths_start_where_they_are_written() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("lab.toml");
        std::fs::write(&file, "data = { set = \"mnist\", path = \"digits\" }").expect("a file in it");
        let found = |overrides: &[&str]| {
            let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
            let raw = Raw::layered(Some(&file), &overrides).expect("keys that exist");
            let Source::Files { folder, .. } = validate(raw, None, RUN).expect("valid").data.source else {
                panic!("MNIST is read from files")
            };
            folder
        };
        let here = std::env::current_dir().expect("a working directory");
        assert_eq!(found(&[]), folder.path().join("digits"));
        assert_eq!(found(&["data.path=digits"]), here.join("digits"));
        assert_eq!(found(&["data.path=/elsewhere"]), Path::new("/elsewhere"));
    }

    #[test]
    fn the_data_variable_is_asked_where_there_is_no_path() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let load = |root: Option<&Path>| validate(raw(&["data.set=fashion-mnist"]), root, RUN);
        let unset = load(None).expect_err("no files").to_string();
        assert!(
            unset.contains("fashion-mnist") && unset.contains(DATA_VARIABLE) && unset.contains("not set"),
            "{unset}"
        );
        let empty = load(Some(folder.path())).expect_err("no such folder").to_string();
        assert!(empty.contains("which has no fashion-mnist/"), "{empty}");
        std::fs::create_dir(folder.path().join("fashion-mnist")).expect("a folder in it");
        let config = load(Some(folder.path())).expect("found");
        assert_eq!(
            config.data.source,
            Source::Files { folder: folder.path().join("fashion-mnist"), limit: None }
        );
    }

    #[test]
    fn a_handmade_configuration_is_checked_too() {
        let mut handmade = raw(&[]);
        handmade.run.rounds = 0;
        let message = validate(handmade, None, RUN).expect_err("no rounds").to_string();
        assert!(message.contains("run.rounds") && message.contains("the configuration"), "{message}");
    }

    #[test]
    fn fedsgd_is_valid_with_one_full_batch_step() {
        assert_eq!(valid(&["algorithm.fedsgd={}", "training.batch=0"]).spec.algorithm.name, "fedsgd");
    }

    /// The examples that are handed out must be valid; `mnist-2nn` also without its files.
    #[test]
    fn the_examples_are_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/configs");
        let load = |name: &str, overrides: &[String]| {
            let raw = Raw::layered(Some(&folder.join(name)), overrides).expect(name);
            validate(raw, None, RUN).expect(name)
        };
        let paper = load("mnist-2nn.toml", &["data.path=mnist".to_owned()]);
        assert_eq!(paper.spec.architecture.parameters(), Ok(199_210));
        assert_eq!((paper.policy.cohort(paper.data.clients), paper.spec.training.batch), (10, 10));
        assert_eq!(load("four-devices.toml", &[]).policy.start, 4);
    }
}
