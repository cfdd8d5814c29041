//! Values that are fine alone and make no sense together.

mod evaluation;
mod privacy;
mod secure;
mod top_k;

use std::time::Duration;

use models::{Architecture, DecayOn};
use shared::aggregation::{Aggregation, Buffers, Chain, Rule, Weights};
use shared::data::Partition;
use shared::id::ClientId;
use shared::share;

use crate::attack::{Attack, Attackers};
use crate::round::{Lateness, RoundPolicy, VOID_PAUSE, WeightBounds};

use super::findings::Findings;
use super::places::Places;
use super::{ConfigError, Origin, Raw, RoundTable, SimulationTable};

/// One key with its value, as a message shows it.
pub(super) type Shown = (&'static str, String);

const TOO_MUCH: &str = "this number of samples for every client is more than there are; use fewer clients, a lower min or more samples";

/// Pairs of weights that a core compares in a second where units are matched: seven clients of `mlp-25m` took 70 seconds on two.
const COMPARED: f64 = 6e9;
/// The longest that matching may take in a round, in hours.
const MOST_HOURS: f64 = 1.0;

/// What the checks across keys go by and report to.
pub(super) struct Combinations<'a> {
    pub(super) places: Option<&'a Places>,
    pub(super) findings: &'a mut Findings,
}

/// The key of a partition that goes by classes.
pub(super) fn divides_by_class(partition: &Partition) -> Option<&'static str> {
    match partition {
        Partition::Shards { .. } => Some("data.partition.shards"),
        Partition::Classes { .. } => Some("data.partition.classes"),
        Partition::Dirichlet { .. } => Some("data.partition.dirichlet"),
        Partition::DirichletCapped { .. } => Some("data.partition.dirichlet-capped"),
        Partition::Iid {} | Partition::Quantity { .. } | Partition::Role {} => None,
    }
}

impl Combinations<'_> {
    /// Notes that `keys` do not go together, unless one of them is not what was meant anyway.
    pub(super) fn refuse(&mut self, keys: &[(&str, String)], reason: &str) {
        if keys.iter().any(|(key, _)| self.findings.is_doubtful(key)) {
            return;
        }
        let keys = keys.iter().map(|(key, shown)| format!("{shown}{}", self.place(key))).collect();
        self.findings.add(ConfigError::Combination { keys, reason: reason.to_owned() });
    }

    /// Whether the operator has set a key.
    pub(super) fn is_given(&self, key: &str) -> bool {
        self.places.is_some_and(|places| places.origin(key).is_some())
    }

    /// Where a key was given, or the key above it.
    pub(super) fn origin(&self, key: &str) -> Origin {
        let mut keys = std::iter::successors(Some(key), |key| key.rsplit_once('.').map(|(above, _)| above));
        let given = keys.find_map(|key| self.places?.origin(key));
        given.cloned().unwrap_or(Origin::Configuration)
    }

    fn place(&self, key: &str) -> String {
        match self.places.map(|places| places.origin(key)) {
            Some(Some(Origin::Override(_))) => " (--set)".to_owned(),
            Some(Some(origin)) => format!(" ({origin})"),
            Some(None) => " (the default)".to_owned(),
            None => String::new(),
        }
    }

    /// The axes of aggregation among each other. With the algorithm they are held together elsewhere, as
    /// `shared::algorithm::combinations` says.
    pub(super) fn aggregation(&mut self, aggregation: &Aggregation) {
        let Aggregation { weights, rule, .. } = aggregation;
        if *rule == (Rule::Fedma {}) && *weights == Weights::Loss {
            let keys = [
                ("aggregation.rule", shown(rule)),
                ("aggregation.weights", "aggregation.weights = \"loss\"".to_owned()),
            ];
            self.refuse(&keys, "matched models are averaged by samples or uniformly; choose one of these");
        }
        if rule.counts_alike() && *weights != Weights::Uniform {
            let weights = if *weights == Weights::Loss { "loss" } else { "samples" };
            let keys = [
                ("aggregation.rule", format!("[aggregation.rule.{}]", rule.name())),
                ("aggregation.weights", format!("aggregation.weights = {weights:?}")),
            ];
            self.refuse(&keys, "this rule counts every client alike; set aggregation.weights = \"uniform\"");
        }
    }

    /// What single updates may be: late, or a few of their values.
    pub(super) fn updates(&mut self, raw: &Raw) {
        self.lateness(raw);
        self.top_k(raw);
    }

    /// Late updates were learned from other models than those beside them.
    fn lateness(&mut self, raw: &Raw) {
        let rule = &raw.aggregation.rule;
        if raw.round.staleness.enabled && !matches!(rule, Rule::Mean {} | Rule::ClippedMean { .. }) {
            let keys = [
                ("round.staleness.enabled", "round.staleness.enabled = true".to_owned()),
                ("aggregation.rule", shown(rule)),
            ];
            let reason = "this rule compares updates with each other, and late ones were learned from another model: discard \
                          them, or use the mean or the clipped mean";
            self.refuse(&keys, reason);
        }
    }

    /// Whether the network's units can be matched, if they are to be.
    pub(super) fn matching(&mut self, raw: &Raw, architecture: &Architecture) {
        if let (Rule::Fedma {}, Some(frozen)) = (&raw.aggregation.rule, &architecture.frozen) {
            let keys = [
                ("aggregation.rule", shown(&raw.aggregation.rule)),
                ("model.freeze", format!("model.freeze = {:?}", frozen.names)),
            ];
            let reason = "the rule exchanges units of a layer together with the layers beside it, and what is frozen cannot \
                          be exchanged; use another rule, or leave model.freeze out";
            return self.refuse(&keys, reason);
        }
        if raw.aggregation.rule != (Rule::Fedma {}) {
            return;
        }
        let keys = [
            ("aggregation.rule", shown(&raw.aggregation.rule)),
            ("model.name", format!("the model {}", architecture.name)),
        ];
        match Chain::of(architecture) {
            Err(reason) => self.refuse(&keys, &format!("{reason}; use another rule, or another model")),
            Ok(chain) => {
                let cohort = share::of(raw.round.fraction, raw.data.clients as usize).max(1);
                let comparisons = chain.comparisons().saturating_mul(cohort as u64);
                let cores = shared::cli::cores().get();
                let hours = comparisons as f64 / COMPARED / cores as f64 / 3600.0;
                if hours > MOST_HOURS {
                    let reason = format!(
                        "matching the units of {cohort} clients takes about {hours:.1} h in every round on {cores} cores; use a model with narrower \
                         layers, fewer clients in a round or another rule"
                    );
                    self.refuse(&keys, &reason);
                }
            }
        }
    }

    /// Whether weight decay takes from anything that is learned, if there is some.
    pub(super) fn decay(&mut self, raw: &Raw, architecture: &Architecture) {
        // Of its values this one alone can leave nothing.
        let hidden = raw.training.decay_on == DecayOn::HiddenLinear;
        if hidden
            && raw.training.optimizer.decay() > 0.0
            && architecture.decays_nothing(DecayOn::HiddenLinear)
        {
            let keys = [
                ("training.decay-on", "training.decay-on = \"hidden-linear\"".to_owned()),
                ("model.name", format!("the model {}", architecture.name)),
            ];
            self.refuse(
                &keys,
                "nothing of it would decay; choose all or weights, or leave the weight decay out",
            );
        }
    }

    /// Whether every round has the updates that its rule needs. A round does not close with fewer than
    /// `round.min-updates`, so that is what the rule is held against.
    pub(super) fn enough(&mut self, raw: &Raw) {
        let rule = &raw.aggregation.rule;
        let (least, min) = (rule.least(), raw.round.min_updates);
        if let Some(bound) = rule.bound()
            && least > min as usize
        {
            let keys = [
                ("aggregation.rule", shown(rule)),
                ("round.min-updates", format!("round.min-updates = {min}")),
            ];
            let reason = format!(
                "the rule asks for {bound}, here {least}, where m is the number of updates that a round closes with; set \
                 round.min-updates to at least {least}, with as many clients in a cohort"
            );
            self.refuse(&keys, &reason);
        }
    }

    /// Statistics of normalisation layers. Those that stay on the devices are not there to test the global model with; and what
    /// was added to a variance of earlier rounds may be more than there is of today's, which must not become negative.
    pub(super) fn buffers(&mut self, raw: &Raw, architecture: &Architecture) {
        let has_buffers = architecture.has_buffers();
        let model = ("model", format!("the model {}", architecture.name));
        if raw.aggregation.buffers == Buffers::Average && has_buffers && raw.round.staleness.enabled {
            let keys = [
                ("round.staleness.enabled", "round.staleness.enabled = true".to_owned()),
                ("aggregation.buffers", "aggregation.buffers = \"average\"".to_owned()),
                model.clone(),
            ];
            let reason = "a late update moves the statistics of its normalisation layers from where they were when it was \
                          begun, and a variance may become negative; use group norm, or leave the buffers on the devices \
                          (aggregation.buffers = \"local\")";
            self.refuse(&keys, reason);
        }
        if raw.aggregation.buffers == Buffers::Local && has_buffers && raw.evaluate.every != 0 {
            let keys = [
                ("aggregation.buffers", "aggregation.buffers = \"local\"".to_owned()),
                model,
                ("evaluate.every", format!("evaluate.every = {}", raw.evaluate.every)),
            ];
            let reason = "without the statistics of its normalisation layers, which stay on the devices, the global \
                          model predicts nothing; set evaluate.every = 0 or average the buffers";
            self.refuse(&keys, reason);
        }
    }

    /// Representations that are the samples themselves are the same under every model.
    pub(super) fn representation(&mut self, raw: &Raw, architecture: &Architecture) {
        if raw.training.measure.alignment && !architecture.has_representation() {
            let keys = [
                ("training.measure.alignment", "training.measure.alignment = true".to_owned()),
                ("model", format!("the model {}", architecture.name)),
            ];
            let reason = "nothing is learned below its head, so that the representations to compare are the samples \
                          themselves; leave it out, or use a model with hidden layers";
            self.refuse(&keys, reason);
        }
    }

    /// What can be said of a partition before the labels are known. The rest is said when the data is divided.
    pub(super) fn partition(&mut self, raw: &Raw) {
        let available = raw.data.max_samples.map_or(u64::MAX, u64::from);
        let samples = match raw.data.set {
            set if set.format.is_none() && raw.data.max_samples.is_some() => available,
            // How many there are with the test samples is not known here.
            _ if raw.data.pooled => available,
            set => available.min(set.training_samples.map_or(u64::MAX, |samples| samples as u64)),
        };
        if let Some(key) = divides_by_class(&raw.data.partition)
            && raw.data.set.is_text()
        {
            let set = ("data.set", format!("data.set = \"{}\"", raw.data.set));
            let reason = "text has no classes to divide it by; use another partition, or another data set";
            self.refuse(&[set, (key, key.to_owned())], reason);
        }
        if raw.data.partition == (Partition::Role {}) && !raw.data.set.is_text() {
            let set = ("data.set", format!("data.set = \"{}\"", raw.data.set));
            let reason = "it has no roles; use another partition, or a text";
            self.refuse(&[set, ("data.partition.role", "data.partition.role".to_owned())], reason);
        }
        // What the server keeps, no client has.
        let kept: u64 = [raw.data.labelled, raw.data.validation].into_iter().flatten().map(u64::from).sum();
        let samples = samples.saturating_sub(kept);
        let too_few = match kept {
            0 => "every client needs at least one sample; use fewer clients or raise data.max-samples",
            _ => {
                "every client needs at least one sample; use fewer clients, let the server keep fewer samples, or raise data.max-samples"
            }
        };
        let clients = u64::from(raw.data.clients);
        let clients_key = ("data.clients", format!("data.clients = {clients}"));
        // What the number of samples comes from.
        let samples_key = match (raw.data.labelled, raw.data.validation) {
            (labelled, Some(validation)) if labelled.is_none_or(|labelled| labelled <= validation) => {
                "data.validation"
            }
            (Some(_), _) => "data.labelled",
            _ if samples == available => "data.max-samples",
            _ => "data.set",
        };
        let samples_key = (samples_key, format!("{samples} training samples"));
        if clients > samples {
            self.refuse(&[clients_key, samples_key], too_few);
            return;
        }
        let (key, each, reason) = match raw.data.partition {
            Partition::Shards { per_client } => (
                "data.partition.shards.per-client",
                per_client,
                "there are more shards than samples; use fewer clients, fewer shards or more samples",
            ),
            Partition::DirichletCapped { min, .. } => ("data.partition.dirichlet-capped.min", min, TOO_MUCH),
            Partition::Quantity { min, .. } => ("data.partition.quantity.min", min, TOO_MUCH),
            _ => return,
        };
        if clients.saturating_mul(each as u64) > samples {
            self.refuse(&[clients_key, (key, format!("{key} = {each}")), samples_key], reason);
        }
    }

    /// The attack, if there is one.
    pub(super) fn attackers(&mut self, raw: &Raw) -> Option<Attackers> {
        let SimulationTable { attack, attackers: share, .. } = raw.simulation;
        if attack == (Attack::None {}) {
            return None;
        }
        let attackers = Attackers { attack, share };
        let clients = raw.data.clients;
        if attackers.count(clients as usize) == 0 {
            let keys = [
                ("simulation.attack", format!("simulation.attack ({attack})")),
                ("simulation.attackers", format!("simulation.attackers = {share}")),
                ("data.clients", format!("data.clients = {clients}")),
            ];
            self.refuse(
                &keys,
                "this share of the clients is less than one, so no client attacks; raise either",
            );
        }
        Some(attackers)
    }

    /// Who the clients of a simulation are, if it is said.
    pub(super) fn devices(&mut self, raw: &Raw) -> Option<Vec<ClientId>> {
        let named = raw.simulation.devices.as_ref()?;
        let mut devices = Vec::new();
        for name in named {
            match name.parse() {
                Ok(device) => devices.push(device),
                Err(error) => {
                    let key = [("simulation.devices", format!("simulation.devices = [.. \"{name}\" ..]"))];
                    self.refuse(
                        &key,
                        &format!("{error}; `aggregator devices list` shows the ids of real devices"),
                    );
                }
            }
        }
        let clients = raw.data.clients;
        if named.len() != clients as usize {
            let keys = [
                ("simulation.devices", format!("simulation.devices ({} ids)", named.len())),
                ("data.clients", format!("data.clients = {clients}")),
            ];
            self.refuse(&keys, "each client has one id; name as many as there are clients");
        }
        Some(devices)
    }

    /// When rounds open and close.
    pub(super) fn policy(&mut self, raw: &Raw) -> RoundPolicy {
        let round = &raw.round;
        let clients = raw.data.clients;
        let start = round.min_clients_to_start.unwrap_or(clients);
        let timeout = round.timeout.unwrap_or(RoundTable::TIMEOUT);
        let secure = Some(raw.secure_aggregation).filter(|secure| secure.enabled);
        let policy = RoundPolicy {
            fraction: round.fraction,
            // Its secret is the run's, and that is known when it begins.
            poisson: None,
            // No sum of fewer devices is learned.
            min: (round.min_updates as usize).max(secure.map_or(0, |secure| secure.least())),
            max: round.max_updates.map(|max| max as usize),
            min_wait: seconds(round.min_wait),
            timeout: seconds(timeout),
            cuts_short: true,
            start: start as usize,
            reconnect_grace: seconds(round.reconnect_grace),
            connection_timeout: seconds(raw.connection.timeout),
            void_pause: VOID_PAUSE,
            max_failed: round.max_failed,
            late: round
                .staleness
                .enabled
                .then_some(Lateness { rounds: round.staleness.max, power: round.staleness.exponent }),
            eligibility: raw.eligibility,
            // A bound that f32 cannot hold is still a bound, not zero.
            max_abs: (raw.update.max_abs as f32).max(f32::MIN_POSITIVE),
            max_samples: round.max_samples.map(u64::from),
            weight_bounds: WeightBounds { ratio: round.max_weight_ratio, share: round.max_weight_share },
            receipts_at_close: false,
        };
        let min = ("round.min-updates", format!("round.min-updates = {}", round.min_updates));
        let clients_key = ("data.clients", format!("data.clients = {clients}"));
        if let Some(greatest) = round.max_updates {
            let max = ("round.max-updates", format!("round.max-updates = {greatest}"));
            if round.min_updates > greatest {
                let reason = "a round would close before it may; raise the one or lower the other";
                self.refuse(&[min.clone(), max.clone()], reason);
            }
            if greatest > clients {
                let reason =
                    "more clients than are expected; lower it, or leave it out to wait for the cohort";
                self.refuse(&[max, clients_key.clone()], reason);
            }
        }
        let cohort = policy.cohort(clients as usize);
        if round.min_updates as usize > cohort {
            let fraction = ("round.fraction", format!("round.fraction = {}", round.fraction));
            let reason = format!(
                "a cohort has {cohort} clients, so a round could never close; raise the fraction or lower min"
            );
            self.refuse(&[min, fraction, clients_key.clone()], &reason);
        }
        if start > clients {
            let start = ("round.min-clients-to-start", format!("round.min-clients-to-start = {start}"));
            let reason = "the first round would wait for more clients than are expected; lower it or raise data.clients";
            self.refuse(&[start, clients_key], reason);
        }
        if round.min_wait > timeout {
            let min = ("round.min-wait", format!("round.min-wait = {}", round.min_wait));
            let max = ("round.timeout", format!("round.timeout = {timeout}"));
            self.refuse(&[min, max], "a round would close before it may; raise the one or lower the other");
        }
        let connection = &raw.connection;
        if connection.heartbeat >= connection.timeout {
            let heartbeat =
                ("connection.heartbeat", format!("connection.heartbeat = {}", connection.heartbeat));
            let lost = ("connection.timeout", format!("connection.timeout = {}", connection.timeout));
            let reason =
                "every client would be lost between two signs of life; make the timeout several heartbeats";
            self.refuse(&[heartbeat, lost], reason);
        }
        policy
    }
}

/// A rule with its settings as they are written.
fn shown(rule: &Rule) -> String {
    let key = rule.key();
    match *rule {
        Rule::Mean {} | Rule::Median {} | Rule::Fedma {} => format!("[{key}]"),
        Rule::TrimmedMean { beta } => format!("{key}.beta = {beta}"),
        Rule::MultiKrum { byzantine, chosen } if chosen != 0 => {
            format!("{key} = {{ byzantine = {byzantine}, chosen = {chosen} }}")
        }
        Rule::Krum { byzantine } | Rule::MultiKrum { byzantine, .. } | Rule::Bulyan { byzantine } => {
            format!("{key}.byzantine = {byzantine}")
        }
        Rule::ClippedMean { max_norm } => format!("{key}.max-norm = {max_norm}"),
    }
}

/// Seconds that the checks have found to be finite, not negative and below a few decades.
pub(super) fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value)
        .expect("the range of every key in seconds is within what a Duration holds")
}

#[cfg(test)]
mod tests;
