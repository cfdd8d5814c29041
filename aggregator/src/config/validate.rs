//! From [`Raw`] to [`Config`]: the checks that need more than one key, and derived defaults.

use std::path::{Path, PathBuf};

use models::Architecture;
use shared::aggregation::Mixture;
use shared::algorithm::{Settings, registry};
use shared::data::{ReadOptions, glyphs};
use shared::frame::MAX_MESSAGE;
use shared::id::{ClientId, RunId};
use shared::spec::{AlgorithmSpec, DataSpec, LabelsAt, RunSpec, SpecText};

use crate::attack::Attackers;
use crate::privacy::Promise;
use crate::round::{EarlyStopping, RoundPolicy};

use super::combinations::{Combinations, seconds};
use super::error::DATA_VARIABLE;
use super::full_names::absolute;
use super::layers::Layers;
use super::{
    ConfigError, ConfigErrors, DataPlan, Raw, Renamed, RunTable, ServerPlan, Source, begins_with, model,
    own_network, personal,
};

/// Bytes of a specification: the message has some of its own beside it.
const MAX_TOLD: usize = MAX_MESSAGE as usize - 1024;

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
    /// What a private run promises; its rounds are at most those that the budget allows.
    pub promise: Option<Promise>,
    /// When training ends before all rounds are over.
    pub stop: EarlyStopping,
    /// Who attacks a simulation, and how.
    pub attackers: Option<Attackers>,
    /// Who the clients of a simulation are, if it is said.
    pub devices: Option<Vec<ClientId>>,
    /// The configuration with every derived default filled in. Validating it again gives the same `Config`, from any
    /// directory and environment.
    pub effective: Raw,
    /// Keys that were given by their old names: the operator is told once.
    pub renamed: Vec<Renamed>,
}

impl Config {
    /// The id of a simulated client.
    #[must_use]
    pub fn client(&self, index: u32) -> ClientId {
        let named = self.devices.as_ref().and_then(|devices| devices.get(index as usize));
        named.copied().unwrap_or_else(|| ClientId::virtual_client(index, &self.spec.root_seed()))
    }

    /// What the run promises after this number of rounds with a result, and what that rests on; `None` if it is not private.
    #[must_use]
    pub fn privacy_after(&self, rounds: u32) -> Option<String> {
        let said = self.promise?.said(rounds);
        if self.effective.simulation.reproducible_noise {
            return Some(format!(
                "none, since the noise comes from run.seed (simulation.reproducible-noise) and a reader of the configuration can take it away; \
                 with secret noise it would be {said}"
            ));
        }
        Some(said)
    }

    /// The metric of a round that has its epsilon: that of noise from the run's seed is no promise.
    #[must_use]
    pub fn epsilon_is_called(&self) -> &'static str {
        if self.effective.simulation.reproducible_noise { "epsilon-if-secret" } else { "epsilon" }
    }

    /// Lets rounds of simulated clients take as long as the machine needs, unless the configuration sets a
    /// timeout itself.
    pub fn ignore_time_limits(&mut self) {
        self.policy.cuts_short = self.effective.round.timeout.is_some();
    }

    /// Checks `raw` and derives what the program runs on.
    ///
    /// A relative `data.path` is relative to the working directory ([`Raw::layered`] has put a file's folder before it).
    /// Where files are needed and `data.path` is unset, the environment variable [`DATA_VARIABLE`] is consulted. Whether
    /// the files exist is checked when they are read.
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
    // An empty variable names no folder, and in particular not the current one.
    std::env::var_os(DATA_VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

pub(super) fn validate(layers: Layers, data_root: Option<&Path>, run: RunId) -> Result<Config, ConfigErrors> {
    let Layers { mut raw, places, mut findings } = layers;
    let mut checks = Combinations { places: places.as_ref(), findings: &mut findings };

    checks.task(&mut raw);
    let samples = checks.samples(&raw);
    let architecture = samples
        .as_ref()
        .and_then(|samples| model::architecture(&mut raw.model, raw.data.set, samples, &mut checks));
    begins_with::check(&mut raw, &mut checks);
    own_network::check(&raw, &mut checks);
    let server = checks.server(&mut raw);
    let (training, aggregation) = (raw.training, raw.aggregation);
    let settings = Settings {
        training: &training,
        aggregation: &aggregation,
        architecture: architecture.as_ref(),
        mixture: server.map_or(Mixture::CLIENTS, |server| server.mixture),
        late: raw.round.staleness.enabled,
        private: raw.privacy.clip,
        secure: raw.secure_aggregation.enabled,
        top_k: raw.update.top_k,
    };
    let data = samples.as_ref().map(|samples| &samples.spec);
    let (algorithm, architecture) = match algorithm(&mut raw, &settings, data, &mut checks) {
        Some((algorithm, network)) => (Some(algorithm), network),
        None => (None, architecture),
    };
    checks.aggregation(&raw.aggregation);
    checks.enough(&raw);
    checks.updates(&raw);
    if let Some(architecture) = &architecture {
        checks.buffers(&raw, architecture);
        checks.matching(&raw, architecture);
        checks.representation(&raw, architecture);
        checks.decay(&raw, architecture);
    }
    let source = source(&mut raw, data_root, &mut checks);
    checks.partition(&raw);
    checks.stop(&raw);
    checks.hold_out(&raw);
    checks.by_class(&raw, architecture.as_ref().map(|architecture| architecture.classes));
    personal::check(&raw, architecture.as_ref(), &mut checks);
    let promise = checks.privacy(&mut raw, architecture.as_ref());
    checks.secure(&raw);
    let attackers = checks.attackers(&raw);
    let devices = checks.devices(&raw);
    checks.run_name(&raw);
    let policy = checks.policy(&raw);

    let (Some(algorithm), Some(samples), Some(architecture), Some(source), Some(server), Some(rounds)) =
        (algorithm, samples, architecture, source, server, raw.run.rounds)
    else {
        let reason = "a part of the configuration is missing and nothing is said of it".to_owned();
        return findings.none_or(()).and(Err(ConfigError::Internal { reason }.into()));
    };
    raw.update.broadcast = Some(raw.update.broadcast());
    raw.round.min_clients_to_start.get_or_insert(raw.data.clients);
    if let Source::Drawn { train, .. } = source {
        // No more than the key's limit: it is that, or the set's own number.
        raw.data.max_samples = u32::try_from(train).ok();
    }
    let name = raw.run.name.get_or_insert_with(|| format!("{}-{}", raw.data.set, algorithm.name)).clone();
    let renamed = std::mem::take(&mut findings.renamed);
    let spec = RunSpec {
        run,
        name,
        seed: raw.run.seed.cast_unsigned(),
        rounds: promise.map_or(rounds, |promise| promise.affordable(rounds)),
        data: samples.spec,
        architecture,
        training: raw.training,
        algorithm,
        aggregation: raw.aggregation,
        update: raw.update,
        evaluate: raw.evaluate.clone(),
        personalisation: raw.personalisation.clone(),
        secure: raw.secure_aggregation,
        device_noise: promise.and_then(|promise| promise.device_noise),
        heartbeat: seconds(raw.connection.heartbeat),
    };
    if let Some(error) = too_long(&spec) {
        findings.add(error);
    }
    findings.none_or(Config {
        spec,
        initial_seed: raw.model.seed.unwrap_or(raw.run.seed).cast_unsigned(),
        policy,
        data: data_plan(&raw, source, samples.reading),
        server,
        promise,
        stop: raw.early_stopping,
        attackers,
        devices,
        renamed,
        effective: raw,
    })
}

/// Refuses a specification that does not fit a message.
fn too_long(spec: &RunSpec) -> Option<ConfigError> {
    let told = SpecText::of(spec).as_str().len();
    if told <= MAX_TOLD {
        return None;
    }
    let reason = format!(
        "devices are told the run in one message, which has at most {MAX_TOLD} bytes and would have {told}: use a network of fewer \
         layers or tensors, or shorter names"
    );
    let keys = vec![format!("the model {}", spec.architecture.name)];
    Some(ConfigError::Combination { keys, reason })
}

/// The algorithm and the network that it learns, which may be another than the configured one. `None` if there is none, which
/// is noted. Puts the defaults of its hyper-parameters into `raw`.
fn algorithm(
    raw: &mut Raw,
    settings: &Settings<'_>,
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
            raw.run.rounds.get_or_insert(if algorithm.one_shot() { 1 } else { RunTable::ROUNDS });
            let conflicts = algorithm.conflicts(settings);
            if !conflicts.is_empty() {
                let mut keys = vec![("algorithm", format!("[{key}]"))];
                keys.extend(conflicts.iter().map(|conflict| (conflict.key.as_str(), conflict.shown.clone())));
                let reasons: Vec<&str> = conflicts.iter().map(|conflict| conflict.reason).collect();
                checks.refuse(&keys, &reasons.join("; "));
            }
            if let Some(data) = data
                && let Err(reason) = algorithm.check_data(data, settings.training)
            {
                let labels = match data.labels {
                    LabelsAt::Device => ("data.set", format!("data.set = \"{}\"", raw.data.set)),
                    LabelsAt::Server => ("data.labels", "data.labels = \"server\"".to_owned()),
                };
                checks.refuse(&[("algorithm", format!("[{key}]")), labels], &reason);
            }
            checks.inconsistency(raw, &key, algorithm.ensemble().is_some());
            checks.validation(raw, &key, algorithm.ensemble().is_some() || algorithm.personal().is_some());
            if algorithm.ensemble().is_some() && raw.evaluate.on_clients_every != 0 {
                let tests = format!("evaluate.on-clients-every = {}", raw.evaluate.on_clients_every);
                let reason = "its clients are sent no model that they could test: the ensemble stays with the aggregator, \
                              which tests it (evaluate.every); set evaluate.on-clients-every = 0";
                checks.refuse(
                    &[("algorithm", format!("[{key}]")), ("evaluate.on-clients-every", tests)],
                    reason,
                );
            }
            let network = settings.architecture.and_then(|configured| {
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

/// What is learned from, and who has it.
fn data_plan(raw: &Raw, source: Source, reading: ReadOptions) -> DataPlan {
    let whole = |count: Option<u32>| count.map(|count| count as usize);
    DataPlan {
        set: raw.data.set,
        source,
        reading,
        clients: raw.data.clients as usize,
        partition: raw.data.partition,
        seed: raw.data.seed.unwrap_or(raw.run.seed).cast_unsigned(),
        validation: whole(raw.data.validation),
        pooled: raw.data.pooled,
    }
}

/// Finds the data, and puts the folder's full name into `raw`.
fn source(raw: &mut Raw, data_root: Option<&Path>, checks: &mut Combinations<'_>) -> Option<Source> {
    if ["data.set", "data.path"].iter().any(|key| checks.findings.is_doubtful(key)) {
        return None;
    }
    let set = raw.data.set;
    if set.is_of_trainers() {
        return Some(Source::Trainers);
    }
    if set.format.is_none() {
        if let Some(path) = &raw.data.path {
            checks.refuse(
                &[
                    ("data.set", format!("data.set = \"{set}\"")),
                    ("data.path", format!("data.path = {path:?}")),
                ],
                "glyphs are drawn from run.seed and not read from files; name the set that lies there as data.set, or leave data.path out (--set data.path=)",
            );
        }
        let train = raw.data.max_samples.map_or(glyphs::TRAINING_SAMPLES, |limit| limit as usize);
        let test = raw.data.max_test_samples.map_or(glyphs::TEST_SAMPLES, |limit| limit as usize);
        return Some(Source::Drawn { train, test });
    }
    let folder = match (&raw.data.path, data_root) {
        (Some(path), _) => PathBuf::from(path),
        (None, Some(root)) if root.join(set.name).is_dir() => root.join(set.name),
        (None, root) => {
            let (origin, variable) = (checks.origin("data.set"), root.map(Path::to_owned));
            checks.findings.add(ConfigError::NoData { origin, set, variable });
            return None;
        }
    };
    match absolute("data.path", folder) {
        Ok((folder, text)) => {
            raw.data.path = Some(text);
            let limit = |limit: Option<u32>| limit.map(|limit| limit as usize);
            let (limit, test_limit) = (limit(raw.data.max_samples), limit(raw.data.max_test_samples));
            Some(Source::Files { folder, limit, test_limit })
        }
        Err(error) => {
            checks.findings.add(error);
            None
        }
    }
}

#[cfg(test)]
mod tests;
