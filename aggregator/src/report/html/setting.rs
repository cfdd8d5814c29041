//! What was chosen: who takes part, and every key that has not its default.

use std::path::Path;

use maud::{Markup, html};
use shared::data::Partition;
use shared::data::partition::Empty;
use shared::spec::LabelsAt;

use super::{Report, standing};
use crate::config::{Changed, Config, ModelOrigin, Source};
use crate::report::units::{counted, grouped};
use crate::round::Plateau;

/// What was chosen.
pub(super) fn card(report: &Report<'_>) -> Markup {
    let config = report.config;
    let spec = &config.spec;
    let parameters = spec.architecture.parameters().map_or_else(|error| error.to_string(), grouped);
    let mut rows = vec![
        ("Algorithm", spec.algorithm.name.clone()),
        ("Model", format!("{}, {parameters} parameters", spec.architecture.name)),
    ];
    rows.extend(adapters(config).map(|adapters| ("Adapters", adapters)));
    rows.extend(config.effective.model.from.as_ref().map(|origin| ("Begins with", begins_with(origin))));
    rows.extend(if report.histograms.is_some() { simulated(config) } else { on_devices(config) });
    if let Some(personalisation) = spec.personalised() {
        let methods: Vec<&str> = personalisation.methods().iter().map(|method| method.name()).collect();
        let made = if methods.is_empty() {
            "none, the global model is tested".to_owned()
        } else {
            methods.join(", ")
        };
        rows.push(("Personal models", made));
    }
    rows.push(("Labels", labels(config)));
    rows.extend(standing::rows(report));
    rows.extend(report.left_out.iter().map(|what| ("Left out", what.clone())));
    html! {
        section.card.wide {
            h2 { "Setting" }
            dl.settings {
                @for (name, value) in rows { dt { (name) } dd { (value) } }
                // What the run begins with has a row above.
                @for Changed { key, says, value } in Changed::of(&config.effective).iter().filter(|changed| !changed.key.starts_with("model.from.")) {
                    dt title=(says) { code { (key) } } dd { (value) }
                }
            }
        }
    }
}

/// What learns beside a model that stays as it is.
fn adapters(config: &Config) -> Option<String> {
    let rank = config.effective.model.adapters.lora.rank?;
    let learned = config.spec.architecture.parameter_specs().ok()?;
    let learned: usize = learned.iter().map(|spec| spec.shape.iter().product::<usize>()).sum();
    Some(format!("low-rank, rank {rank}: {} parameters are learned and sent", grouped(learned)))
}

/// Which model the run began with.
fn begins_with(ModelOrigin { run, file, in_round, digest, names }: &ModelOrigin) -> String {
    let name = |path: &String| Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let place = match (run, file) {
        (Some(run), _) => format!("the model of {}", name(run)),
        (None, Some(file)) => {
            let run = Path::new(file).parent().and_then(Path::file_name).unwrap_or_default();
            format!("{}/{}", run.to_string_lossy(), name(file))
        }
        (None, None) => "a model".to_owned(),
    };
    let names = names.as_ref().map_or_else(String::new, |names| format!(", by the names of {}", name(names)));
    let round = in_round.map_or_else(String::new, |round| format!(", round {round}"));
    let digest = digest.as_ref().map_or_else(String::new, |digest| format!("; digest {digest}"));
    format!("{place}{names}{round}{digest}")
}

/// Who has the labels, and what the server does with its own.
fn labels(config: &Config) -> String {
    let devices = match config.spec.data.labels {
        LabelsAt::Device => "on the devices",
        LabelsAt::Server => "at the server alone",
    };
    let Some(labelled) = config.server.labelled else { return devices.to_owned() };
    let [clients, server, before] = config.server.mixture.shares();
    let Plateau { patience, factor } = config.server.plateau;
    let falls = patience.map_or_else(String::new, |rounds| {
        format!("; its rate times {factor} after {} without a lower loss", counted(rounds as usize, "round"))
    });
    format!(
        "{devices}; {} of the server, {} a round{falls}; mixed {clients} clients, {server} server, {before} before",
        counted(labelled, "sample"),
        counted(config.server.epochs as usize, "epoch")
    )
}

type Row = (&'static str, String);

/// Data and cohort of a simulation.
fn simulated(config: &Config) -> Vec<Row> {
    let samples = match &config.data.source {
        Source::Drawn { train, test } => {
            format!("{} samples to train on, {} to test on", grouped(*train), grouped(*test))
        }
        Source::Trainers => "read by trainers".to_owned(),
        Source::Files { limit, test_limit, .. } => {
            let most = |limit: &Option<usize>, what| {
                limit.map(|limit| format!("at most {} {what} samples", grouped(limit)))
            };
            let training = most(limit, "training").unwrap_or_else(|| "all training samples".to_owned());
            [Some(training), most(test_limit, "test")].into_iter().flatten().collect::<Vec<_>>().join(", ")
        }
    };
    let samples = match config.data.validation {
        Some(kept) => format!("{samples}; {} of those to train on are for validation", grouped(kept)),
        None => samples,
    };
    let cohort = config.policy.cohort(config.data.clients);
    vec![
        ("Data", format!("{}, {samples}", config.data.set)),
        ("Partition", partition(&config.data.partition)),
        ("Cohort", format!("{cohort} of {}", counted(config.data.clients, "client"))),
        (
            "Attack",
            config.attackers.map_or_else(
                || "none".to_owned(),
                |attackers| {
                    if config.promise.is_some() {
                        return attackers.counted(config.data.clients);
                    }
                    attackers.describe(config.data.clients, &config.spec.root_seed())
                },
            ),
        ),
    ]
}

/// Data and cohort of devices: what they train on is theirs, and how many they are is not known here.
fn on_devices(config: &Config) -> Vec<Row> {
    let tests = if config.spec.evaluate.every == 0 { "none".to_owned() } else { config.data.set.to_string() };
    let fraction = config.policy.fraction;
    let cohort = if fraction >= 1.0 {
        "all connected devices".to_owned()
    } else {
        format!("{fraction} of the connected devices, at least one")
    };
    vec![
        ("Training data", "the devices' own".to_owned()),
        ("Test data", tests),
        ("Devices", format!("{} expected", grouped(config.data.clients))),
        ("Cohort", cohort),
    ]
}

/// A partition in words.
pub(in crate::report) fn partition(partition: &Partition) -> String {
    let at_least = |min: &usize| counted(*min, "sample");
    match partition {
        Partition::Iid {} => "divided at random (IID)".to_owned(),
        Partition::Shards { per_client } => {
            format!("sorted by label, {} per client", counted(*per_client, "shard"))
        }
        Partition::Classes { per_client } => {
            format!("label skew, {per_client} class{} per client", if *per_client == 1 { "" } else { "es" })
        }
        Partition::Dirichlet { alpha, empty: Empty::Redraw } => {
            format!("label skew, Dirichlet with alpha = {alpha}")
        }
        Partition::Dirichlet { alpha, empty: Empty::Absent } => {
            format!("label skew, Dirichlet with alpha = {alpha}, clients without samples are absent")
        }
        Partition::DirichletCapped { alpha, min } => {
            format!("label skew, capped Dirichlet with alpha = {alpha} and at least {} each", at_least(min))
        }
        Partition::Quantity { alpha, min } => {
            format!("skewed sizes, Dirichlet with alpha = {alpha} and at least {} each", at_least(min))
        }
        Partition::Role {} => "by role".to_owned(),
    }
}
