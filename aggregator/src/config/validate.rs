//! From [`Raw`] to [`Config`]: the checks that need more than one key, and derived defaults.

use std::path::{Path, PathBuf};

use models::Architecture;
use shared::aggregation::{Aggregation, Mixture};
use shared::algorithm::{Axes, registry};
use shared::data::glyphs;
use shared::id::{ClientId, RunId};
use shared::spec::{AlgorithmSpec, ClientEvaluation, DataSpec, LabelsAt, RunSpec, Training, WirePrecision};

use crate::attack::Attackers;

use super::combinations::{Combinations, seconds};
use super::layers::Layers;
use super::{
    ConfigError, ConfigErrors, DataPlan, DataSet, EvaluatePlan, Optimizer, Raw, RoundPolicy, ServerPlan,
    Source, StopPlan, model, personal,
};

/// The environment variable that names the folder of data sets, one sub-folder each.
pub const DATA_VARIABLE: &str = "FEDERATION_DATA";

/// A configuration that makes sense: what the program runs on.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What clients are told.
    pub spec: RunSpec,
    /// Seed of the initial parameters; that of the run unless `model.seed` says otherwise.
    pub initial_seed: u64,
    /// When rounds open and close.
    pub policy: RoundPolicy,
    /// What is learned from, and who has it.
    pub data: DataPlan,
    /// What the server trains itself.
    pub server: ServerPlan,
    /// Testing of the global model.
    pub evaluate: EvaluatePlan,
    /// When training ends before all rounds are over.
    pub stop: StopPlan,
    /// Who attacks a simulation, and how.
    pub attackers: Option<Attackers>,
    /// Who the clients of a simulation are, if it is said.
    pub devices: Option<Vec<ClientId>>,
    /// The configuration with every derived default filled in. Validating it again gives the same `Config`, from any
    /// directory and environment.
    pub effective: Raw,
}

impl Config {
    /// The id of a simulated client.
    #[must_use]
    pub fn client(&self, index: u32) -> ClientId {
        let named = self.devices.as_ref().and_then(|devices| devices.get(index as usize));
        named.copied().unwrap_or_else(|| ClientId::virtual_client(index, &self.spec.root_seed()))
    }

    /// Checks `raw` and derives what the program runs on.
    ///
    /// A relative `data.path` is relative to the working directory ([`Raw::layered`] has put a file's folder before it).
    /// Where files are needed and `data.path` is unset, the environment variable [`DATA_VARIABLE`] is consulted. Whether
    /// the files are there is left to whoever reads them.
    pub fn validate(raw: &Raw, run: RunId) -> Result<Self, ConfigErrors> {
        validate(Layers::made(raw)?, data_root().as_deref(), run)
    }

    /// Reads the layers as [`Raw::layered`] does and checks them as [`validate`](Self::validate) does, for people: all
    /// mistakes are reported together, each with the line or the override that it is in.
    pub fn read(file: Option<&Path>, overrides: &[String], run: RunId) -> Result<Self, ConfigErrors> {
        validate(Layers::read(file, overrides)?, data_root().as_deref(), run)
    }
}

pub(super) fn data_root() -> Option<PathBuf> {
    std::env::var_os(DATA_VARIABLE).map(PathBuf::from)
}

pub(super) fn validate(layers: Layers, data_root: Option<&Path>, run: RunId) -> Result<Config, ConfigErrors> {
    let Layers { mut raw, places, mut findings } = layers;
    let mut checks = Combinations { places: places.as_ref(), findings: &mut findings };

    let Optimizer::Sgd(sgd) = raw.training.optimizer;
    let training = Training {
        epochs: raw.training.epochs,
        batch: raw.training.batch,
        drop_last: raw.training.drop_last,
        sgd,
        schedule: raw.training.schedule,
        clip: raw.training.clip,
        measure: raw.training.measure,
        slices: raw.data.slices,
    };
    let aggregation = Aggregation {
        weights: raw.aggregation.weights,
        rule: raw.aggregation.rule,
        server: raw.aggregation.server,
        buffers: raw.update.buffers,
    };
    let samples = checks.samples(&raw);
    let architecture = samples
        .as_ref()
        .and_then(|samples| model::architecture(&mut raw.model, raw.data.set, samples, &mut checks));
    let server = checks.server(&mut raw);
    let axes = Axes {
        training: &training,
        aggregation: &aggregation,
        architecture: architecture.as_ref(),
        mixture: server.map_or(Mixture::CLIENTS, |server| server.mixture),
        late: raw.round.late.keep,
    };
    let data = samples.as_ref().map(|samples| &samples.spec);
    let (algorithm, architecture) = match algorithm(&mut raw, &axes, data, &mut checks) {
        Some((algorithm, network)) => (Some(algorithm), network),
        None => (None, architecture),
    };
    checks.aggregation(&aggregation);
    checks.enough(&raw);
    checks.lateness(&raw);
    if let Some(architecture) = &architecture {
        checks.buffers(&raw, architecture);
        checks.matching(&raw, architecture);
        checks.representation(&raw, architecture);
    }
    let source = source(&mut raw, data_root, &mut checks);
    checks.partition(&raw);
    checks.stop(&raw);
    checks.hold_out(&raw);
    let personalisation = personal::settings(&raw, architecture.as_ref(), &mut checks);
    let attackers = checks.attackers(&raw);
    let devices = checks.devices(&raw);
    let policy = checks.policy(&raw);

    let (Some(algorithm), Some(samples), Some(architecture), Some(source), Some(server)) =
        (algorithm, samples, architecture, source, server)
    else {
        let reason = "a part of the configuration is missing and nothing is said of it".to_owned();
        return findings.none_or(()).and(Err(ConfigError::Internal { reason }.into()));
    };
    let broadcast = *raw.update.broadcast.get_or_insert(raw.update.precision);
    raw.round.start.get_or_insert(raw.data.clients);
    if let Source::Drawn { train, .. } = source {
        // No more than the key's limit: it is that, or the set's own number.
        raw.data.limit = u32::try_from(train).ok();
    }
    let name = raw.run.name.get_or_insert_with(|| format!("{}-{}", raw.data.set, algorithm.name)).clone();
    findings.none_or(Config {
        spec: RunSpec {
            run,
            name,
            seed: raw.run.seed.cast_unsigned(),
            rounds: raw.run.rounds,
            data: samples.spec,
            architecture,
            training,
            algorithm,
            aggregation,
            precision: WirePrecision { broadcast, update: raw.update.precision },
            evaluation: ClientEvaluation { every: raw.evaluate.clients, hold_out: raw.evaluate.hold_out },
            personalisation,
            heartbeat: seconds(raw.connection.heartbeat),
        },
        initial_seed: raw.model.seed.unwrap_or(raw.run.seed).cast_unsigned(),
        policy,
        data: DataPlan {
            set: raw.data.set,
            source,
            reading: samples.reading,
            clients: raw.data.clients as usize,
            partition: raw.data.partition,
        },
        server,
        evaluate: EvaluatePlan { every: raw.evaluate.every, batch: raw.evaluate.batch as usize },
        stop: StopPlan { metric: raw.stop.metric, target: raw.stop.target, patience: raw.stop.patience },
        attackers,
        devices,
        effective: raw,
    })
}

/// The algorithm and the network that it learns, which may be another than the configured one. `None` if there is none, which
/// is noted. Puts the defaults of its hyper-parameters into `raw`.
fn algorithm(
    raw: &mut Raw,
    axes: &Axes<'_>,
    data: Option<&DataSpec>,
    checks: &mut Combinations<'_>,
) -> Option<(AlgorithmSpec, Option<Architecture>)> {
    if checks.findings.is_doubtful("algorithm") {
        return None;
    }
    let (name, table) = raw.algorithm.iter_mut().next()?;
    let key = format!("algorithm.{name}");
    let made = registry::complete(name, table.clone()).and_then(|complete| {
        let spec = registry::specify(name, complete.clone())?;
        Ok((registry::build(&spec)?, spec, complete))
    });
    match made {
        Ok((algorithm, spec, complete)) => {
            *table = complete;
            let clashes = algorithm.clashes(axes);
            if !clashes.is_empty() {
                let mut keys = vec![("algorithm", format!("[{key}]"))];
                keys.extend(clashes.iter().map(|clash| (clash.key, clash.shown.clone())));
                let reasons: Vec<&str> = clashes.iter().map(|clash| clash.reason).collect();
                checks.refuse(&keys, &reasons.join("; "));
            }
            if let Some(data) = data
                && let Err(reason) = algorithm.suits(data, axes.training)
            {
                let labels = match data.labels {
                    LabelsAt::Device => ("data.set", format!("data.set = \"{}\"", raw.data.set)),
                    LabelsAt::Server => ("data.labels", "data.labels = \"server\"".to_owned()),
                };
                checks.refuse(&[("algorithm", format!("[{key}]")), labels], &reason);
            }
            if algorithm.ensemble().is_some() && raw.evaluate.clients != 0 {
                let tests = format!("evaluate.clients = {}", raw.evaluate.clients);
                let reason = "its clients are sent no model that they could test: the ensemble stays with the aggregator, \
                              which tests it (evaluate.every); set evaluate.clients = 0";
                checks.refuse(&[("algorithm", format!("[{key}]")), ("evaluate.clients", tests)], reason);
            }
            let network = axes.architecture.and_then(|configured| {
                let refused = |reason: String| {
                    let model = ("model", format!("the model {}", configured.name));
                    checks.refuse(&[("algorithm", format!("[{key}]")), model], &reason);
                };
                algorithm.network(configured.clone()).map_err(refused).ok()
            });
            Some((spec, network))
        }
        Err(source) => {
            checks.findings.add(ConfigError::Algorithm { origin: checks.origin(&key), source });
            None
        }
    }
}

/// Finds the data, and puts the folder's full name into `raw`.
fn source(raw: &mut Raw, data_root: Option<&Path>, checks: &mut Combinations<'_>) -> Option<Source> {
    if ["data.set", "data.path"].iter().any(|key| checks.findings.is_doubtful(key)) {
        return None;
    }
    let set = raw.data.set;
    if set == DataSet::Glyphs {
        if let Some(path) = &raw.data.path {
            checks.refuse(
                &[
                    ("data.set", format!("data.set = \"{set}\"")),
                    ("data.path", format!("data.path = {path:?}")),
                ],
                "glyphs are drawn from run.seed and not read from files; name the set that lies there as data.set, or leave data.path out (--set data.path=)",
            );
        }
        let train = raw.data.limit.map_or(glyphs::TRAINING_SAMPLES, |limit| limit as usize);
        return Some(Source::Drawn { train, test: glyphs::TEST_SAMPLES });
    }
    let folder = match (&raw.data.path, data_root) {
        (Some(path), _) => PathBuf::from(path),
        (None, Some(root)) if root.join(set.name()).is_dir() => root.join(set.name()),
        (None, root) => {
            let (origin, variable) = (checks.origin("data.set"), root.map(Path::to_owned));
            checks.findings.add(ConfigError::NoData { origin, set, variable });
            return None;
        }
    };
    match absolute(folder) {
        Ok((folder, text)) => {
            raw.data.path = Some(text);
            Some(Source::Files { folder, limit: raw.data.limit.map(|limit| limit as usize) })
        }
        Err(error) => {
            checks.findings.add(error);
            None
        }
    }
}

/// The full name of a folder, also as a text.
fn absolute(folder: PathBuf) -> Result<(PathBuf, String), ConfigError> {
    let folder = std::path::absolute(&folder)
        .map_err(|error| ConfigError::Path { path: folder, reason: error.to_string() })?;
    match folder.to_str() {
        Some(text) => Ok((folder.clone(), text.to_owned())),
        None => Err(ConfigError::Path { path: folder, reason: "it is not UTF-8".to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use models::Precision;
    use proptest::prelude::*;
    use shared::data::partition::Empty;
    use shared::data::{Normalisation, Partition};

    use super::*;
    use crate::config::keys;

    const RUN: RunId = RunId::from_bytes([1; 8]);

    fn raw(overrides: &[&str]) -> Raw {
        let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
        Raw::layered(None, &overrides).expect("overrides that can be read")
    }

    fn made(raw: &Raw, data_root: Option<&Path>) -> Result<Config, ConfigErrors> {
        validate(Layers::made(raw)?, data_root, RUN)
    }

    fn valid(overrides: &[&str]) -> Config {
        made(&raw(overrides), None).expect("a valid configuration")
    }

    #[test]
    fn defaults_are_derived() {
        let config = valid(&["data.clients=7", "update.precision=bf16", "data.limit=70"]);
        assert_eq!(config.policy.start, 7);
        assert_eq!(config.spec.name, "glyphs-fedavg");
        assert_eq!(config.spec.precision.broadcast, Precision::BF16);
        assert_eq!(config.data.source, Source::Drawn { train: 70, test: glyphs::TEST_SAMPLES });
        let explicit = valid(&["data.clients=7", "round.start=2", "update.broadcast=f16"]);
        assert_eq!((explicit.policy.start, explicit.spec.precision.broadcast), (2, Precision::F16));
        assert_eq!(explicit.spec.precision.update, Precision::F32);
        let name = |overrides: &[&str]| valid(overrides).spec.name;
        let other = ["data.set=fashion-mnist", "data.path=x", "algorithm.fedsgd={}", "training.batch=0"];
        assert_eq!(name(&other), "fashion-mnist-fedsgd");
        assert_eq!(name(&[&other[..], &["run.name=mine"]].concat()), "mine");
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
        assert_eq!(spec.aggregation.weights, shared::aggregation::Weights::Uniform);
        assert_eq!(spec.heartbeat, Duration::from_millis(500));
        assert_eq!(config.policy.lost_after, Duration::from_millis(1500));
    }

    #[test]
    fn a_crop_is_what_the_model_takes() {
        let overrides =
            ["data.set=cifar-10", "data.path=x", "model.name=lenet-5", "augment.crop=24", "augment.flip=0.5"];
        let whitened = valid(&[&overrides[..], &["data.normalise=whiten"]].concat()).spec;
        assert_eq!(
            (&whitened.data.shape[..], &whitened.architecture.input[..]),
            (&[3, 32, 32][..], &[3, 24, 24][..])
        );
        assert_eq!(whitened.data.preparation.normalisation, Normalisation::Whiten);
        let given = ["data.normalise=channels", "data.mean=[0.5, 0.25, 0]", "data.deviation=[1, 2, 3]"];
        let given = valid(&[&overrides[..], &given].concat()).spec.data.preparation;
        let mean = vec![0.5, 0.25, 0.0];
        assert_eq!(given.normalisation, Normalisation::Channels { mean, deviation: vec![1.0, 2.0, 3.0] });
        assert_eq!((given.augmentation.crop, given.augmentation.flip), (24, 0.5));
    }

    #[test]
    fn the_effective_configuration_is_a_fixed_point() {
        let first = valid(&["round.fraction=0.5", "data.partition.dirichlet.alpha=0.3"]);
        let again = made(&first.effective, None).expect("valid");
        assert_eq!(again, first);
        let files = valid(&["data.set=mnist", "data.path=x"]);
        let again = made(&files.effective, None).expect("valid");
        assert_eq!(again, files);
    }

    /// Every key of the effective configuration has a value, but for those whose absence is the value.
    #[test]
    fn the_effective_configuration_leaves_no_default_open() {
        let unset = |overrides: &[&str]| -> Vec<&str> {
            let text = valid(overrides).effective.to_toml();
            let (mut section, mut open) = (String::new(), Vec::new());
            for line in text.lines() {
                if let Some(name) = line.strip_prefix('[') {
                    section = name.trim_end_matches(']').to_owned();
                } else if let Some((key, _)) = line.strip_prefix("# ").and_then(|line| line.split_once(" ="))
                {
                    open.push(format!("{section}.{key}"));
                }
            }
            keys::KEYS
                .iter()
                .map(|key| key.path)
                .filter(|path| open.iter().any(|open| open == path))
                .collect()
        };
        let form = ["data.shape", "data.classes", "data.class-names"];
        let normal = ["data.mean", "data.deviation"];
        let rest = [
            "model.seed",
            "model.layers",
            "model.norm",
            "model.initialisation",
            "training.clip",
            "round.count.max",
            "stop.target",
            "stop.patience",
            "personalisation.method",
            "simulation.devices",
        ];
        assert_eq!(unset(&[]), [&["data.path"][..], &form, &["data.labelled"], &normal, &rest].concat());
        assert_eq!(
            unset(&["data.set=mnist", "data.path=x"]),
            [&form[..], &["data.limit", "data.labelled"], &normal, &rest].concat()
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// What a run's `config.toml` is for: from it alone, wherever it lies, the same run can be had.
        #[test]
        fn the_written_configuration_gives_the_same_plan(
            (clients, seed, limit) in (1..=50_u32, 0..=i64::MAX, proptest::option::of(200..=60_000_u32)),
            (set, path) in (proptest::sample::select(&DataSet::ALL[..]), "[a-z \"#]{1,12}"),
            (rate, fraction, max_abs) in (1e-9..1e9_f64, 0.0..=1.0_f64, 1e-50..1e30_f64),
            (momentum, alpha) in (0.0..1.0_f64, 1e-6..1e6_f64),
            partition in proptest::sample::select(vec!["", "data.partition.shards.per-client=4", "dirichlet"]),
            algorithm in proptest::sample::select(vec!["fedavg", "fedsgd"]),
            precision in proptest::option::of(proptest::sample::select(vec![Precision::F32, Precision::F16, Precision::BF16])),
            (start, name) in (proptest::option::of(1..=50_u32), proptest::option::of("[a-z][a-z0-9 \"]{0,9}")),
            (time, heartbeat) in (0.0..1e6_f64, 1e-3..14.0_f64),
        ) {
            let mut raw = raw(&[]);
            (raw.data.clients, raw.data.limit, raw.data.set) = (clients, limit, set);
            (raw.run.seed, raw.run.name) = (seed, name);
            raw.data.path = (set != DataSet::Glyphs).then_some(path);
            if set.known().is_none() {
                raw.data.shape = Some(vec![1, 28, 28]);
                let names = Some(vec!["a \"quoted\" name".to_owned(), "b".to_owned()]);
                (raw.data.classes, raw.data.class_names) =
                    if set == DataSet::Images { (None, names) } else { (Some(7), None) };
            }
            let partition = if set.is_text() { "" } else { partition };
            if set.is_text() {
                raw.model.name = Some("char-lstm".to_owned());
            }
            raw.data.partition = match partition {
                "" => Partition::Iid {},
                "dirichlet" => Partition::Dirichlet { alpha, empty: Empty::Absent },
                _ => Partition::Shards { per_client: 4 },
            };
            let momentum = if algorithm == "fedsgd" { 0.0 } else { momentum };
            raw.training.optimizer = Optimizer::Sgd(models::Sgd { rate, momentum, decay: rate / 2.0 });
            raw.training.batch = u32::from(algorithm == "fedavg");
            raw.algorithm = [(algorithm.to_owned(), toml::Table::new())].into();
            (raw.round.fraction, raw.update.max_abs) = (fraction, max_abs);
            (raw.round.time.max, raw.connection.heartbeat) = (time + 1e-6, heartbeat);
            raw.round.start = start.map(|start| start.min(clients));
            raw.update.broadcast = precision;
            let config = made(&raw, None).expect("valid");

            let folder = tempfile::tempdir().expect("a temporary folder");
            let file = folder.path().join("config.toml");
            std::fs::write(&file, config.effective.to_toml()).expect("a file in it");
            let again = validate(Layers::read(Some(&file), &[]).expect("readable"), None, RUN);
            prop_assert_eq!(again.expect("valid"), config);
        }
    }

    #[test]
    fn relative_paths_start_where_they_are_written() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("lab.toml");
        std::fs::write(&file, "data = { set = \"mnist\", path = \"digits\" }").expect("a file in it");
        let found = |overrides: &[&str]| {
            let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
            let raw = Raw::layered(Some(&file), &overrides).expect("keys that exist");
            let Source::Files { folder, .. } = made(&raw, None).expect("valid").data.source else {
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
        let load = |root: Option<&Path>| made(&raw(&["data.set=fashion-mnist"]), root);
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
        let message = made(&handmade, None).expect_err("no rounds").to_string();
        assert!(message.contains("run.rounds") && message.contains("the configuration"), "{message}");
    }

    #[test]
    fn an_ensemble_is_learned_by_the_network_that_its_algorithm_makes() {
        let spec = valid(&["algorithm.fafi={}", "model.name=lenet-5"]).spec;
        assert_eq!(spec.architecture.parameters(), Ok(61_706 - 10), "the last layer has no bias");
        let refused = |more: &[&str]| {
            let overrides = [&["algorithm.fafi={}", "model.name=lenet-5"], more].concat();
            made(&raw(&overrides), None).expect_err("it makes no sense").to_string()
        };
        for (more, says) in [
            (&["model.name=linear"][..], "hidden layers"),
            (&["data.set=shakespeare", "data.path=x", "model.name=char-lstm"], "model of images"),
            (&["aggregation.weights=loss"], "leave [aggregation] out"),
            (&["aggregation.weights=uniform", "aggregation.rule.median={}"], "side by side"),
            (&["aggregation.server.adam={}"], "side by side"),
            (&["update.buffers=local"], "own statistics"),
            (&["evaluate.clients=1"], "set evaluate.clients = 0"),
            (&["algorithm.fafi.classify=-1"], "classify"),
        ] {
            let message = refused(more);
            assert!(message.contains(says) && message.contains("fafi"), "{more:?}: {message}");
        }
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
            made(&raw, None).expect(name)
        };
        let paper = load("mnist-2nn.toml", &["data.path=mnist".to_owned()]);
        assert_eq!(paper.spec.architecture.parameters(), Ok(199_210));
        assert_eq!((paper.policy.cohort(paper.data.clients), paper.spec.training.batch), (10, 10));
        assert_eq!(load("four-devices.toml", &[]).policy.start, 4);
        let buffered = load("twenty-devices.toml", &[]).policy;
        assert_eq!((buffered.max, buffered.late.map(|late| late.rounds)), (Some(8), Some(10)));
        assert_eq!(buffered.eligibility.min_charge, 40);
    }
}
