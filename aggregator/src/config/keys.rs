//! Every key of the configuration: what it means, what it accepts, and what its absence means.
//!
//! The one source of truth for the checks, for their messages and for the comments in a written configuration. A
//! test holds it against the types of [`Raw`](super::Raw).

mod kind;

use std::ops::Bound::{self, Excluded, Included};

pub use kind::Kind;
pub(super) use kind::model_names;

/// One key.
pub struct Key {
    /// Its full path, such as `round.count.max`.
    pub path: &'static str,
    /// What it accepts.
    pub kind: Kind,
    /// What it means when it is unset; `None` if it always has a value.
    pub unset: Option<&'static str>,
    /// What it is, in one line.
    pub says: &'static str,
}

/// Keys whose table holds exactly one alternative.
pub const CHOICES: &[&str] = &[
    "algorithm",
    "data.partition",
    "training.optimizer",
    "training.schedule",
    "aggregation.rule",
    "aggregation.server",
    "simulation.attack",
];

/// Sixty characters have at most 240 bytes, and a name in a file system at most 255.
const NAME: Kind = Kind::FolderName(60);
const COUNT: i64 = u32::MAX as i64;
const POSITIVE: Kind = Kind::Whole(1, COUNT);
/// Such a number of clients that a few times as many are still a number of clients.
const BYZANTINE: Kind = Kind::Whole(0, 1_000_000);
const PRECISIONS: Kind = Kind::OneOf(&["f32", "f16", "bf16"]);
/// A year: long enough for any federation, and far from what a `Duration` or a deadline overflows at.
const SECONDS: f64 = 31_536_000.0;
const TIME: Kind = Kind::Number(Included(0.0), Included(SECONDS));
const POSITIVE_TIME: Kind = Kind::Number(Excluded(0.0), Included(SECONDS));
const PROBABILITY: Kind = Kind::Number(Included(0.0), Included(1.0));
/// The largest side of an image, in pixels.
const SIDE: i64 = 4096;
/// The longest list of numbers.
pub(super) const MOST_NUMBERS: usize = 1024;
const FINITE: Bound<f64> = Included(1e30);
const RATE: Kind = Kind::Number(Excluded(0.0), FINITE);
/// What is kept of a moving mean from step to step.
const SHARE: Kind = Kind::Number(Included(0.0), Excluded(1.0));

/// Ways to a personal model, and `none` for tests of the global one alone.
const METHODS: &[&str] = &["none", "ft", "fb", "mf", "mfe", "fixed"];

/// Of a Dirichlet distribution.
const ALPHA: Kind = Kind::Number(Excluded(0.0), FINITE);

const fn key(path: &'static str, kind: Kind, says: &'static str) -> Key {
    Key { path, kind, unset: None, says }
}

const fn optional(path: &'static str, kind: Kind, unset: &'static str, says: &'static str) -> Key {
    Key { path, kind, unset: Some(unset), says }
}

/// All keys, table by table, in the order in which they are written.
pub const KEYS: &[Key] = &[
    optional(
        "run.name",
        NAME,
        "SET-ALGORITHM, as in glyphs-fedavg",
        "the run's name, for people and for its folder",
    ),
    key("run.rounds", POSITIVE, "communication rounds T"),
    key("run.seed", Kind::Whole(0, i64::MAX), "root of every random choice: same seed, same bytes"),
    key(
        "data.set",
        Kind::OneOf(&[
            "glyphs",
            "mnist",
            "fashion-mnist",
            "cifar-10",
            "cifar-100",
            "shakespeare",
            "images",
            "csv",
            "safetensors",
        ]),
        "the data set, by name; glyphs are drawn, all others read from files",
    ),
    optional(
        "data.path",
        Kind::Text(4096),
        "the set's folder in FEDERATION_DATA",
        "folder of its files, relative to this file",
    ),
    optional("data.shape", Kind::Shape, "the set's", "of a sample of images, csv or safetensors"),
    optional("data.classes", Kind::Whole(1, 65_536), "the set's", "number of classes of csv or safetensors"),
    optional("data.class-names", Kind::Names, "numbers", "what labels of images or csv are called, in order"),
    key("data.label", Kind::Text(200), "the column of a csv table that holds the labels"),
    key("data.on-error", Kind::OneOf(&["stop", "skip"]), "at a sample that cannot be used: stop or skip"),
    key("data.clients", POSITIVE, "clients K: simulated, or devices expected to join (more may)"),
    key(
        "data.partition.iid",
        Kind::Empty,
        "or one of shards, classes, dirichlet, dirichlet-capped, quantity, role",
    ),
    key("data.partition.shards.per-client", POSITIVE, "shards of sorted labels dealt to each client"),
    key("data.partition.classes.per-client", POSITIVE, "classes that each client has samples of"),
    key("data.partition.dirichlet.alpha", ALPHA, "label skew: small gives each class to few clients"),
    key(
        "data.partition.dirichlet.empty",
        Kind::OneOf(&["redraw", "absent"]),
        "a draw that leaves clients empty: redraw, or absent (they do not take part)",
    ),
    key("data.partition.dirichlet-capped.alpha", ALPHA, "label skew, nobody far above the mean (MOON's)"),
    key("data.partition.dirichlet-capped.min", POSITIVE, "samples that every client has at least"),
    key("data.partition.quantity.alpha", ALPHA, "skew of sizes: small gives nearly all to few clients"),
    key("data.partition.quantity.min", POSITIVE, "samples that every client has at least"),
    key("data.partition.role", Kind::Empty, "every role of a text is a client"),
    key(
        "data.slices",
        POSITIVE,
        "slices of each client's data, one of which it trains on a round; 1 is all of it",
    ),
    optional(
        "data.limit",
        POSITIVE,
        "all samples (glyphs: 6000)",
        "training samples at most (own sets: evenly spaced)",
    ),
    key(
        "data.labels",
        Kind::OneOf(&["device", "server"]),
        "who has them: device (each its own), or server (it alone; then devices need none)",
    ),
    optional(
        "data.labelled",
        POSITIVE,
        "none",
        "labelled training samples of the server, equally many of each class",
    ),
    key(
        "data.normalise",
        Kind::OneOf(&["none", "mnist", "fashion-mnist", "cifar-10", "cifar-100", "channels", "whiten"]),
        "none; mnist, fashion-mnist, cifar-10, cifar-100: that set's; channels: data.mean; whiten",
    ),
    optional("data.mean", Kind::Numbers, "none", "means by channel, for normalise = \"channels\""),
    optional("data.deviation", Kind::Numbers, "none", "deviations by channel, for the same"),
    key("augment.shift", Kind::Whole(0, SIDE), "images are moved by up to so many pixels; 0 is never"),
    key("augment.edge", Kind::OneOf(&["zero", "reflect"]), "what a shift brings into view: zero or reflect"),
    key("augment.crop", Kind::Whole(0, SIDE), "side of a random crop, the centre in tests; 0 is none"),
    key("augment.flip", PROBABILITY, "probability of a mirror image, left to right"),
    key("augment.brightness", PROBABILITY, "greatest relative change"),
    key("augment.contrast", PROBABILITY, "greatest relative change"),
    key("augment.saturation", PROBABILITY, "greatest relative change"),
    key("augment.erase", PROBABILITY, "probability that a rectangle is erased"),
    key("model.name", Kind::Model, "a built-in architecture"),
    optional("model.seed", Kind::Whole(0, i64::MAX), "run.seed", "seed of the initial parameters alone"),
    optional("model.layers", Kind::Network, "that of model.name", "a network of your own, a list of layers"),
    optional(
        "model.norm",
        Kind::OneOf(&["none", "batch", "group"]),
        "the model's own",
        "of resnet-18 and resnet-50: none, batch or group",
    ),
    optional(
        "model.initialisation",
        Kind::OneOf(&["uniform", "he"]),
        "the model's own; uniform of model.layers",
        "what weights start as: uniform or he",
    ),
    key(
        "training.epochs",
        Kind::Whole(0, COUNT),
        "local epochs E; 0 trains nothing, to measure the system alone",
    ),
    key("training.batch", Kind::Whole(0, COUNT), "batch size B; 0 is all local data at once"),
    key("training.drop-last", Kind::Flag, "leave out an epoch's last batch if it is smaller than the others"),
    key("training.optimizer.sgd.rate", Kind::Number(Excluded(0.0), FINITE), "learning rate"),
    key("training.optimizer.sgd.momentum", Kind::Number(Included(0.0), Excluded(1.0)), "0 is plain SGD"),
    key("training.optimizer.sgd.decay", Kind::Number(Included(0.0), FINITE), "weight decay (L2)"),
    key(
        "training.schedule.constant",
        Kind::Empty,
        "or schedule.exponential.factor = 0.99, or schedule.cosine.last = 0",
    ),
    key(
        "training.schedule.exponential.factor",
        Kind::Number(Excluded(0.0), Included(1.0)),
        "what is left of the learning rate after each round",
    ),
    key(
        "training.schedule.cosine.last",
        Kind::Number(Included(0.0), Included(1.0)),
        "share of the learning rate that a cosine over all rounds ends near",
    ),
    optional(
        "training.clip",
        RATE,
        "no bound",
        "greatest length of a batch's gradient; longer ones are shortened",
    ),
    key(
        "training.measure.alignment",
        Kind::Flag,
        "report how alike local and global representations are; two forward passes over 256 samples",
    ),
    key(
        "training.measure.drift",
        Kind::Flag,
        "report how far local training has moved the model; costs next to nothing",
    ),
    key("algorithm", Kind::Algorithm, "exactly one table: its name selects the algorithm"),
    key(
        "aggregation.weights",
        Kind::OneOf(&["samples", "uniform", "loss"]),
        "an update counts by its samples, uniform: like all others, or by its loss (FedLoss)",
    ),
    key(
        "aggregation.rule.mean",
        Kind::Empty,
        "or rule.median, .trimmed-mean, .krum, .multi-krum, .bulyan, .fedma, .clipped-mean",
    ),
    key("aggregation.rule.median", Kind::Empty, "the median of each value; needs every update"),
    key(
        "aggregation.rule.trimmed-mean.beta",
        Kind::Number(Included(0.0), Excluded(0.5)),
        "share of each value's smallest and of its largest left out; needs every update",
    ),
    key("aggregation.rule.krum.byzantine", BYZANTINE, "f: so many may be wrong; needs every update"),
    key("aggregation.rule.multi-krum.byzantine", BYZANTINE, "f: so many may be wrong; needs every update"),
    key("aggregation.rule.multi-krum.chosen", Kind::Whole(0, COUNT), "updates averaged; 0 is all but f"),
    key("aggregation.rule.bulyan.byzantine", BYZANTINE, "f: so many may be wrong; needs every update"),
    key("aggregation.rule.fedma", Kind::Empty, "the mean of models with matched units; needs every update"),
    key(
        "aggregation.rule.clipped-mean.bound",
        RATE,
        "the greatest norm of an update; longer ones are shortened",
    ),
    key("aggregation.server.sgd.rate", RATE, "1 is plain averaging; or server.adagrad, .adam or .yogi"),
    key("aggregation.server.sgd.momentum", SHARE, "of the server's steps (FedAvgM)"),
    key("aggregation.server.adagrad.rate", RATE, "the server's rate (FedAdagrad)"),
    key("aggregation.server.adagrad.beta1", SHARE, "what is kept of the first moment"),
    key("aggregation.server.adagrad.tau", RATE, "added to the root of the second moment"),
    key("aggregation.server.adam.rate", RATE, "the server's rate (FedAdam)"),
    key("aggregation.server.adam.beta1", SHARE, "what is kept of the first moment"),
    key("aggregation.server.adam.beta2", SHARE, "what is kept of the second moment"),
    key("aggregation.server.adam.tau", RATE, "added to the root of the second moment"),
    key("aggregation.server.yogi.rate", RATE, "the server's rate (FedYogi)"),
    key("aggregation.server.yogi.beta1", SHARE, "what is kept of the first moment"),
    key("aggregation.server.yogi.beta2", SHARE, "how slowly the second moment moves"),
    key("aggregation.server.yogi.tau", RATE, "added to the root of the second moment"),
    key("server.epochs", POSITIVE, "epochs that the server trains on its labelled samples in each round"),
    key("server.weight", RATE, "weight of its loss (lambda_s): multiplies the learning rate"),
    optional(
        "server.mix",
        Kind::Numbers,
        "[1, 0, 0], or if labelled [0.5, 0.3, 0.2]",
        "shares of clients, server, past",
    ),
    key(
        "round.fraction",
        Kind::Number(Included(0.0), Included(1.0)),
        "share C of the clients in a cohort; 0 is one client",
    ),
    key("round.count.min", POSITIVE, "updates without which a round does not close"),
    optional("round.count.max", POSITIVE, "the whole cohort", "updates after which a round closes at once"),
    key("round.time.min", TIME, "seconds for which a round waits for members that are not connected"),
    optional(
        "round.time.max",
        POSITIVE_TIME,
        "600, in a simulation none",
        "seconds after which it closes with what it has",
    ),
    optional(
        "round.start",
        POSITIVE,
        "data.clients",
        "clients that must be connected before the first round",
    ),
    key(
        "round.regather",
        TIME,
        "seconds to wait for the known clients after a restart, and for tests of the last model",
    ),
    key(
        "round.late.keep",
        Kind::Flag,
        "late updates count in the open round (with round.count.max: FedBuff)",
    ),
    key("round.late.rounds", POSITIVE, "rounds after which a late update is discarded all the same"),
    key(
        "round.late.power",
        Kind::Number(Included(0.0), Included(10.0)),
        "a of (1 + rounds late)^-a, by which a late update is scaled",
    ),
    key(
        "eligibility.max-temperature",
        Kind::Whole(0, 1000),
        "degrees Celsius above which a device does not train; 0 is any",
    ),
    key("eligibility.mains", Kind::Flag, "devices do not train while they run on battery"),
    key(
        "eligibility.min-charge",
        Kind::Whole(0, 100),
        "per cent of a battery below which it does not train on that; 0 is any",
    ),
    key("eligibility.min-memory", Kind::Whole(0, COUNT), "MB of available memory that it needs to train"),
    key("eligibility.min-disk", Kind::Whole(0, COUNT), "MB that it needs free where it keeps its state"),
    key("update.precision", PRECISIONS, "of updates on the wire: f32, f16 or bf16"),
    optional(
        "update.broadcast",
        PRECISIONS,
        "update.precision",
        "of the model on the wire: f32, f16 or bf16",
    ),
    key(
        "update.max-abs",
        Kind::Number(Excluded(0.0), FINITE),
        "updates with values beyond this are rejected",
    ),
    key(
        "update.buffers",
        Kind::OneOf(&["average", "local"]),
        "statistics of normalisation layers: average, or local (each client keeps its own)",
    ),
    key("evaluate.every", Kind::Whole(0, COUNT), "rounds between tests of the global model; 0 is never"),
    key("evaluate.batch", POSITIVE, "test samples at once"),
    key(
        "evaluate.clients",
        Kind::Whole(0, COUNT),
        "rounds between tests by the clients, on samples of their own; 0 is never",
    ),
    key(
        "evaluate.hold-out",
        SHARE,
        "of a client's samples to test on and not to train on; 0: it has a test split",
    ),
    key(
        "stop.metric",
        Kind::OneOf(&["accuracy", "loss", "own-accuracy", "own-loss"]),
        "the best model's: accuracy or loss; own-accuracy or own-loss of the clients' tests",
    ),
    optional(
        "stop.target",
        Kind::Number(Included(0.0), FINITE),
        "no target",
        "training ends when a model is as good as this",
    ),
    optional(
        "stop.patience",
        POSITIVE,
        "no end",
        "tests in a row without a better model after which training ends",
    ),
    optional(
        "personalisation.method",
        Kind::SomeOf(METHODS),
        "no personal models",
        "none, ft, fb, mf, mfe, fixed: own models; the first is kept",
    ),
    key(
        "personalisation.every",
        Kind::Whole(0, COUNT),
        "rounds between personal models; 0: only of the last global model",
    ),
    key(
        "personalisation.expert-share",
        Kind::Number(Excluded(0.0), Excluded(1.0)),
        "of a client's samples that its expert learns from; the rest is its gate's",
    ),
    key(
        "personalisation.mix",
        Kind::OneOf(&["logits", "probabilities"]),
        "a mixture of the global and the local expert is of their logits or probabilities",
    ),
    key("personalisation.head.epochs", Kind::Whole(0, COUNT), "of the local expert: all but ft"),
    key("personalisation.head.batch", Kind::Whole(0, COUNT), "samples in a batch; 0 is all in one"),
    key("personalisation.head.rate", RATE, "learning rate"),
    key("personalisation.head.momentum", SHARE, "0 is plain SGD"),
    key("personalisation.head.decay", Kind::Number(Included(0.0), FINITE), "weight decay (L2)"),
    key("personalisation.whole.epochs", Kind::Whole(0, COUNT), "of the whole model: ft"),
    key("personalisation.whole.batch", Kind::Whole(0, COUNT), "samples in a batch; 0 is all in one"),
    key("personalisation.whole.rate", RATE, "learning rate"),
    key("personalisation.whole.momentum", SHARE, "0 is plain SGD"),
    key("personalisation.whole.decay", Kind::Number(Included(0.0), FINITE), "weight decay (L2)"),
    key("personalisation.gate.epochs", Kind::Whole(0, COUNT), "of the gate: mf and mfe"),
    key("personalisation.gate.batch", Kind::Whole(0, COUNT), "samples in a batch; 0 is all in one"),
    key("personalisation.gate.rate", RATE, "learning rate of Adam"),
    key(
        "personalisation.report.local-test",
        Kind::Flag,
        "the server is told of accuracies on classes as frequent as a client has them",
    ),
    key("personalisation.report.global-test", Kind::Flag, "the server is told of plain accuracies"),
    key("personalisation.report.gate", Kind::Flag, "the server is told how much the global expert counts"),
    key("connection.heartbeat", POSITIVE_TIME, "seconds between a client's signs of life"),
    key("connection.lost-after", POSITIVE_TIME, "seconds without one after which a client is lost"),
    key(
        "simulation.attack.none",
        Kind::Empty,
        "or attack.sign-flip, .scaled, .label-flip; `serve` refuses them",
    ),
    key("simulation.attack.sign-flip", Kind::Empty, "attackers send the opposite of their update"),
    key(
        "simulation.attack.scaled.factor",
        Kind::Number(Included(-1e30), FINITE),
        "attackers send this multiple of their update",
    ),
    key("simulation.attack.label-flip", Kind::Empty, "attackers train on labels C - 1 - y"),
    key(
        "simulation.attackers",
        Kind::Number(Excluded(0.0), Included(1.0)),
        "share of the clients that attack, if any do; drawn from run.seed",
    ),
    optional(
        "simulation.devices",
        Kind::Names,
        "made from run.seed",
        "ids of the clients: those of real devices, to repeat a run",
    ),
];

/// The key with this full path.
#[must_use]
pub fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// What can stand in table `path` (`""` is the whole configuration), in order, each once. Empty if no key begins
/// so.
#[must_use]
pub fn children(path: &str) -> Vec<&'static str> {
    let mut children = Vec::new();
    for key in KEYS {
        let below = if path.is_empty() {
            Some(key.path)
        } else {
            key.path.strip_prefix(path).and_then(|rest| rest.strip_prefix('.'))
        };
        let child = below.and_then(|below| below.split('.').next());
        if let Some(child) = child
            && !children.contains(&child)
        {
            children.push(child);
        }
    }
    children
}

#[cfg(test)]
mod tests;
