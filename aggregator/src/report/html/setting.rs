//! What was chosen.

use maud::{Markup, html};
use shared::aggregation::{Adagrad, Adam, Rule, ServerOptimizer, ServerSgd, Weights, Yogi};
use shared::data::Partition;
use shared::data::partition::Empty;
use shared::schedule::Schedule;
use shared::spec::{ClientEvaluation, LabelsAt, Training};

use super::Report;
use crate::config::{Config, Source};
use crate::report::units::{counted, grouped};
use crate::round::{Lateness, RoundPolicy, StopPlan};

/// What was chosen, in words.
pub(super) fn card(report: &Report<'_>) -> Markup {
    let config = report.config;
    let spec = &config.spec;
    let (training, sgd) = (&spec.training, &spec.training.sgd);
    let parameters = spec.architecture.parameters().map_or_else(|error| error.to_string(), grouped);
    let batch = if training.batch == 0 {
        "all data at once".to_owned()
    } else {
        let last = if training.drop_last { ", no smaller ones" } else { "" };
        format!("batches of {}{last}", training.batch)
    };
    let momentum = if sgd.momentum == 0.0 { String::new() } else { format!(", momentum {}", sgd.momentum) };
    let decay = if sgd.decay == 0.0 { String::new() } else { format!(", weight decay {}", sgd.decay) };
    let weights = match spec.aggregation.weights {
        Weights::Samples => "by samples",
        Weights::Uniform => "all alike",
        Weights::Loss => "the more the lower their loss (FedLoss)",
    };
    let rule = rule(&spec.aggregation.rule);
    let mut rows = vec![
        ("Algorithm", spec.algorithm.name.clone()),
        ("Model", format!("{}, {parameters} parameters", spec.architecture.name)),
    ];
    rows.extend(if report.histograms.is_some() { simulated(config) } else { on_devices(config) });
    rows.extend(report.left_out.iter().map(|what| ("Left out", what.clone())));
    rows.extend([
        ("Local training", format!("{}, {batch}", counted(training.epochs as usize, "epoch"))),
        (
            "Optimizer",
            format!("SGD, rate {}{momentum}{decay}{}{}", sgd.rate, schedule(training), clip(training)),
        ),
        ("Updates count", weights.to_owned()),
        ("Labels", labels(config)),
        ("Aggregation", format!("{rule}, {}", server(&spec.aggregation.server))),
        ("On the wire", format!("{} down, {} up", spec.precision.broadcast, spec.precision.update)),
        ("Seed", spec.seed.to_string()),
    ]);
    rows.extend(own_tests(&spec.evaluation).map(|tests| ("Clients test", tests)));
    rows.extend(stop(&config.stop).map(|stop| ("Training ends", stop)));
    rows.extend(late(&config.policy).map(|late| ("Late updates", late)));
    html! {
        section.card {
            h2 { "Setting" }
            dl.settings { @for (name, value) in rows { dt { (name) } dd { (value) } } }
        }
    }
}

/// What clients test and on what, in words; `None` if they do not.
fn own_tests(evaluation: &ClientEvaluation) -> Option<String> {
    let samples = match evaluation.hold_out {
        0.0 => "their test split".to_owned(),
        share => format!("{share} of their samples, held out"),
    };
    let models = match evaluation.every {
        0 => return None,
        1 => "every model".to_owned(),
        every => format!("the model of every {every} rounds, and the last"),
    };
    Some(format!("{models}, on {samples}"))
}

/// The treatment of late updates, in words; `None` if they are discarded.
fn late(policy: &RoundPolicy) -> Option<String> {
    let Lateness { rounds, power } = policy.late?;
    let buffer =
        policy.max.map_or(String::new(), |max| format!(", a round closes with {max} updates (FedBuff)"));
    Some(format!("count by (1 + rounds late)^-{power}, for {}{buffer}", counted(rounds as usize, "round")))
}

/// When training ends before all rounds are over, in words; `None` if it does not.
fn stop(stop: &StopPlan) -> Option<String> {
    let name = stop.metric.name();
    let target = stop.target.map(|target| format!("at {name} {target}"));
    let patience = stop
        .patience
        .map(|patience| format!("after {} without a better {name}", counted(patience as usize, "test")));
    target.into_iter().chain(patience).reduce(|target, patience| format!("{target}, or {patience}"))
}

/// Who has the labels, and what the server does with its own.
fn labels(config: &Config) -> String {
    let devices = match config.spec.data.labels {
        LabelsAt::Device => "on the devices",
        LabelsAt::Server => "at the server alone",
    };
    let Some(labelled) = config.server.labelled else { return devices.to_owned() };
    let [alpha, beta, gamma] = config.server.mixture.shares();
    format!(
        "{devices}; {} of the server, {} a round; mixed {alpha} clients, {beta} server, {gamma} before",
        counted(labelled, "sample"),
        counted(config.server.epochs as usize, "epoch")
    )
}

/// How the rate falls, in words; nothing if it does not.
fn schedule(training: &Training) -> String {
    match training.schedule {
        Schedule::Constant {} => String::new(),
        Schedule::Exponential { factor } => format!(", times {factor} each round"),
        Schedule::Cosine { last } => format!(", falling to {last} of it by a cosine"),
    }
}

fn clip(training: &Training) -> String {
    training.clip.map_or_else(String::new, |clip| format!(", gradients of at most {clip}"))
}

/// The aggregation rule in words.
fn rule(rule: &Rule) -> String {
    match *rule {
        Rule::Mean {} => "mean".to_owned(),
        Rule::Median {} => "median of each value".to_owned(),
        Rule::TrimmedMean { beta } => {
            format!("mean of each value without {beta} of the updates at either end")
        }
        Rule::Krum { byzantine } => format!("Krum, f = {byzantine}"),
        Rule::MultiKrum { byzantine, chosen: 0 } => format!("Multi-Krum, f = {byzantine}, all but f chosen"),
        Rule::MultiKrum { byzantine, chosen } => format!("Multi-Krum, f = {byzantine}, {chosen} chosen"),
        Rule::Bulyan { byzantine } => format!("Bulyan, f = {byzantine}"),
        Rule::Fedma {} => "mean of models with matched units (FedMA)".to_owned(),
        Rule::ClippedMean { bound } => format!("mean of updates clipped to a norm of {bound}"),
    }
}

/// The server's optimiser in words.
fn server(server: &ServerOptimizer) -> String {
    match server {
        ServerOptimizer::Sgd(ServerSgd { rate, momentum }) => {
            let momentum = if *momentum == 0.0 { String::new() } else { format!(", momentum {momentum}") };
            format!("server rate {rate}{momentum}")
        }
        ServerOptimizer::Adagrad(Adagrad { rate, .. }) => format!("server Adagrad, rate {rate}"),
        ServerOptimizer::Adam(Adam { rate, .. }) => format!("server Adam, rate {rate}"),
        ServerOptimizer::Yogi(Yogi { rate, .. }) => format!("server Yogi, rate {rate}"),
    }
}

type Row = (&'static str, String);

/// Data and cohort of a simulation.
fn simulated(config: &Config) -> Vec<Row> {
    let samples = match &config.data.source {
        Source::Drawn { train, test } => {
            format!("{} samples to train on, {} to test on", grouped(*train), grouped(*test))
        }
        Source::Files { limit: Some(limit), .. } => format!("at most {} training samples", grouped(*limit)),
        Source::Files { limit: None, .. } => "all training samples".to_owned(),
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
                |attackers| attackers.describe(config.data.clients, &config.spec.root_seed()),
            ),
        ),
    ]
}

/// Data and cohort of devices: what they train on is theirs, and how many they are is not for us to say.
fn on_devices(config: &Config) -> Vec<Row> {
    let tests = if config.evaluate.every == 0 { "none".to_owned() } else { config.data.set.to_string() };
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
