//! What combines with what.
//!
//! Objective, weights, rule, server optimiser and buffers are chosen independently of each other, and an algorithm refuses
//! what would make no sense with it, each with its reason ([`Algorithm::INCOMPATIBLE`](super::Algorithm::INCOMPATIBLE)). All
//! other combinations work. This is the whole table, and a test walks through it:
//!
#![doc = include_str!("combinations.md")]
//!
//! The columns are the [`Setting`]s. For every algorithm, a rule that withstands wrong updates counts all
//! clients alike and asks for uniform weights, matching knows no weights by loss and needs a network whose layers stand one
//! after the other ([`Chain`](crate::aggregation::Chain)), no round may close with fewer updates than the rule needs
//! ([`Rule::least`]), and late updates, which were learned from another model, are for the mean and the clipped mean alone. So are
//! updates of which a few values are sent, and those neither in private runs nor with secure aggregation.

use std::fmt::Display;

use models::Architecture;

use crate::aggregation::{Aggregation, Buffers, Mixture, Rule, ServerOptimizer, Weights};
use crate::spec::Training;

/// Something that a configuration can choose and that not every algorithm goes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Another number of local epochs than one.
    Epochs,
    /// Batches of less than all data.
    Batches,
    /// Momentum of the local steps.
    Momentum,
    /// Local steps of another length for each parameter: Adam.
    AdaptiveSteps,
    /// The learning rate changes within a round.
    StepSchedule,
    /// The state of the local optimiser stays on the device from round to round.
    KeptOptimizer,
    /// A greatest length of gradients.
    Clip,
    /// Measurements of local training.
    Measured,
    /// A network without parameters below its head, so that its representation of a sample is the sample.
    Bare,
    /// Every update counts alike.
    UniformWeights,
    /// Updates count by their losses.
    LossWeights,
    /// A server that steps by another multiple than 1, or with momentum.
    ServerSgd,
    /// A server with a rate for each parameter.
    AdaptiveServer,
    /// A rule that [counts all clients alike](Rule::counts_alike): median, trimmed mean, Krum, Multi-Krum, Bulyan.
    Robust,
    /// The mean of matched models.
    Matched,
    /// The mean of clipped updates.
    ClippedMean,
    /// Statistics of normalisation layers stay on the device.
    LocalBuffers,
    /// What clients have learned is mixed with other models.
    Mixed,
    /// Updates that come after their round count in a later one.
    Late,
    /// Some parameters are frozen.
    Frozen,
    /// The network has no layers here: programs of the devices' owners train it.
    Opaque,
    /// Numbers or several labels are learned, and not one class.
    Numbers,
    /// Updates are clipped, and their sum has noise: differential privacy.
    Private,
    /// The server learns the sum of updates alone.
    Secure,
    /// A share of an update's values is sent, and what is left out is added to the next one.
    TopK,
}

/// A choice that an algorithm makes no sense with, and why; what to do instead belongs to the reason.
pub type Incompatible = (Setting, &'static str);

/// What an algorithm is combined with.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// Local training.
    pub training: &'a Training,
    /// The aggregation of updates.
    pub aggregation: &'a Aggregation,
    /// What is learned; `None` if that is not known, and then nothing is said of it.
    pub architecture: Option<&'a Architecture>,
    /// What the clients' model is mixed with.
    pub mixture: Mixture,
    /// Whether late updates count.
    pub late: bool,
    /// The length to which updates are clipped, if the run is private.
    pub private: Option<f64>,
    /// Whether the server learns the sum of updates alone.
    pub secure: bool,
    /// The share of an update's values that are sent, if not all are.
    pub top_k: Option<f64>,
}

/// A choice that was made and is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The full path of the key that makes the choice.
    pub key: String,
    /// The key with its value.
    pub shown: String,
    /// Why it makes no sense, and what to do instead.
    pub reason: &'static str,
}

impl Setting {
    /// If it was made: the key that made it, and the key with its value.
    #[must_use]
    pub fn made(self, settings: &Settings<'_>) -> Option<(String, String)> {
        let Settings { training, aggregation, architecture, mixture, late, private, secure, top_k } =
            settings;
        let Aggregation { weights, rule, server_optimizer, buffers } = aggregation;
        let optimizer = training.optimizer;
        let momentum = optimizer.to_engine().descent().map_or(0.0, |sgd| sgd.momentum);
        Some(match self {
            Self::Epochs if training.epochs != 1 => set("training.epochs", training.epochs),
            Self::Batches if training.batch != 0 => set("training.batch", training.batch),
            Self::Momentum if momentum != 0.0 => {
                set(&format!("training.optimizer.{}.momentum", optimizer.name()), momentum)
            }
            Self::AdaptiveSteps if optimizer.to_engine().descent().is_none() => {
                table(&format!("training.optimizer.{}", optimizer.name()))
            }
            Self::StepSchedule if training.schedule_by_step => set("training.schedule-by-step", true),
            Self::KeptOptimizer if training.keep_optimizer => set("training.keep-optimizer", true),
            Self::Clip => set("training.clip-norm", training.clip_norm?),
            Self::Measured if training.measure.alignment => {
                choice("training.measure", "training.measure.alignment = true")
            }
            Self::Measured if training.measure.drift => {
                choice("training.measure", "training.measure.drift = true")
            }
            Self::Bare => {
                let has_none =
                    |network: &&&Architecture| !network.is_opaque() && !network.has_representation();
                let bare = architecture.as_ref().filter(has_none)?;
                choice("model", format!("the model {}", bare.name))
            }
            Self::UniformWeights if *weights == Weights::Uniform => set("aggregation.weights", "\"uniform\""),
            Self::LossWeights if *weights == Weights::Loss => set("aggregation.weights", "\"loss\""),
            Self::ServerSgd => match *server_optimizer {
                ServerOptimizer::Sgd { momentum, .. } if momentum != 0.0 => {
                    set("aggregation.server-optimizer.sgd.momentum", momentum)
                }
                sgd @ ServerOptimizer::Sgd { learning_rate, .. } if sgd != ServerOptimizer::default() => {
                    set("aggregation.server-optimizer.sgd.learning-rate", learning_rate)
                }
                _ => return None,
            },
            Self::AdaptiveServer if server_optimizer.is_adaptive() => {
                table(&format!("aggregation.server-optimizer.{}", server_optimizer.name()))
            }
            Self::Robust if rule.counts_alike() => table(&rule.key()),
            Self::Matched if *rule == Rule::Fedma {} => table(&rule.key()),
            Self::ClippedMean => match rule {
                Rule::ClippedMean { max_norm } => set("aggregation.rule.clipped-mean.max-norm", max_norm),
                _ => return None,
            },
            Self::LocalBuffers if *buffers == Buffers::Local => set("aggregation.buffers", "\"local\""),
            Self::Mixed if *mixture != Mixture::CLIENTS => {
                choice("server.mixing", format!("server.mixing = {:?}", mixture.shares()))
            }
            Self::Late if *late => set("round.staleness.enabled", true),
            Self::Frozen => {
                let network = architecture.filter(|network| network.frozen.is_some())?;
                if network.has_adapters() {
                    return Some(choice("model.adapters.lora.rank", "model.adapters"));
                }
                let frozen = network.frozen.as_ref()?;
                set("model.freeze", format!("{:?}", frozen.names))
            }
            Self::Opaque => {
                architecture.filter(|architecture| architecture.is_opaque())?;
                choice("model.parameters", "model.parameters")
            }
            Self::Numbers => {
                let other = architecture.filter(|architecture| !architecture.task.is_classification())?;
                set("model.task", format!("{:?}", other.task.name()))
            }
            Self::Private => set("privacy.clip", (*private)?),
            Self::Secure if *secure => set("secure-aggregation.enabled", true),
            Self::TopK => set("update.top-k", (*top_k)?),
            _ => return None,
        })
    }
}

/// A choice by a key, and how it is shown.
fn choice(key: &str, shown: impl Into<String>) -> (String, String) {
    (key.to_owned(), shown.into())
}

/// A choice by the value of a key.
fn set(key: &str, value: impl Display) -> (String, String) {
    choice(key, format!("{key} = {value}"))
}

/// A choice by a table.
fn table(key: &str) -> (String, String) {
    choice(key, format!("[{key}]"))
}

/// Which of the choices that were made are refused.
#[must_use]
pub fn conflicts(refused: &[Incompatible], settings: &Settings<'_>) -> Vec<Conflict> {
    let conflict = |&(choice, reason): &Incompatible| {
        let (key, shown) = choice.made(settings)?;
        Some(Conflict { key, shown, reason })
    };
    refused.iter().filter_map(conflict).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::algorithm::registry;
    use crate::spec::{Measures, RunSpec};

    /// All of them.
    const ALL: [Setting; 25] = [
        Setting::Epochs,
        Setting::Batches,
        Setting::Momentum,
        Setting::AdaptiveSteps,
        Setting::StepSchedule,
        Setting::KeptOptimizer,
        Setting::Clip,
        Setting::Measured,
        Setting::Bare,
        Setting::UniformWeights,
        Setting::LossWeights,
        Setting::ServerSgd,
        Setting::AdaptiveServer,
        Setting::Robust,
        Setting::Matched,
        Setting::ClippedMean,
        Setting::LocalBuffers,
        Setting::Mixed,
        Setting::Late,
        Setting::Frozen,
        Setting::Opaque,
        Setting::Numbers,
        Setting::Private,
        Setting::Secure,
        Setting::TopK,
    ];

    /// Every way to make a choice, with the name of its column.
    fn ways(choice: Setting) -> (&'static str, Vec<(Training, Aggregation)>) {
        let plain = Training { epochs: 1, batch: 0, ..RunSpec::example("fedavg").training };
        let mean = Aggregation::default();
        let server = |server_optimizer| (plain, Aggregation { server_optimizer, ..mean });
        let sgd = models::Sgd { momentum: 0.9, ..models::Sgd::plain(0.1) };
        let adam = models::AdamSettings::with_rate(0.1);
        let by = |optimizer: models::Optimizer| (Training { optimizer: optimizer.into(), ..plain }, mean);
        match choice {
            Setting::Epochs => ("epochs", [0, 2].map(|epochs| (Training { epochs, ..plain }, mean)).to_vec()),
            Setting::Batches => ("batches", vec![(Training { batch: 10, ..plain }, mean)]),
            Setting::Momentum => {
                ("momentum", [models::Optimizer::Sgd(sgd), models::Optimizer::Nesterov(sgd)].map(by).to_vec())
            }
            Setting::AdaptiveSteps => {
                let adaptive = [models::Optimizer::Adam(adam), models::Optimizer::AdamW(adam)];
                ("adaptive-steps", adaptive.map(by).to_vec())
            }
            Setting::StepSchedule => {
                ("step-schedule", vec![(Training { schedule_by_step: true, ..plain }, mean)])
            }
            Setting::KeptOptimizer => {
                ("kept-optimizer", vec![(Training { keep_optimizer: true, ..plain }, mean)])
            }
            Setting::Clip => ("clip", vec![(Training { clip_norm: Some(1.0), ..plain }, mean)]),
            Setting::Measured => {
                let measured = |alignment| Measures { alignment, drift: !alignment };
                let one = |measure| (Training { measure, ..plain }, mean);
                ("measured", [true, false].map(measured).map(one).to_vec())
            }
            // The mixture and the treatment of late updates are those of the whole test.
            Setting::Late => ("late", vec![(plain, mean)]),
            Setting::Mixed => ("server-mix", vec![(plain, mean)]),
            // The network is that of the whole test.
            Setting::Bare => ("bare", vec![(plain, mean)]),
            Setting::Frozen => ("freeze", vec![(plain, mean)]),
            Setting::Opaque => ("own-trainer", vec![(plain, mean)]),
            Setting::Numbers => ("numbers", vec![(plain, mean)]),
            Setting::Private => ("private", vec![(plain, mean)]),
            Setting::Secure => ("secure", vec![(plain, mean)]),
            Setting::TopK => ("top-k", vec![(plain, mean)]),
            Setting::UniformWeights => {
                ("uniform-weights", vec![(plain, Aggregation { weights: Weights::Uniform, ..mean })])
            }
            Setting::LossWeights => {
                ("loss-weights", vec![(plain, Aggregation { weights: Weights::Loss, ..mean })])
            }
            Setting::ServerSgd => {
                let sgd = |learning_rate, momentum| server(ServerOptimizer::Sgd { learning_rate, momentum });
                ("server-sgd", vec![sgd(0.5, 0.0), sgd(1.0, 0.9), sgd(0.5, 0.9)])
            }
            Setting::AdaptiveServer => {
                let adaptive = ServerOptimizer::ALL.iter().filter(|optimizer| optimizer.is_adaptive());
                ("adaptive-server", adaptive.map(|&optimizer| server(optimizer)).collect())
            }
            Setting::Robust => {
                let robust = Rule::ALL.iter().filter(|rule| rule.counts_alike());
                ("robust", robust.map(|&rule| (plain, Aggregation { rule, ..mean })).collect())
            }
            Setting::Matched => ("fedma", vec![(plain, Aggregation { rule: Rule::Fedma {}, ..mean })]),
            Setting::ClippedMean => {
                let rule = Rule::ClippedMean { max_norm: 1.0 };
                ("clipped-mean", vec![(plain, Aggregation { rule, ..mean })])
            }
            Setting::LocalBuffers => {
                ("local-buffers", vec![(plain, Aggregation { buffers: Buffers::Local, ..mean })])
            }
        }
    }

    /// The table of this module's documentation: for each algorithm and column, whether they combine.
    fn table() -> BTreeMap<(String, String), bool> {
        let cells = |line: &str| -> Vec<String> {
            line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
        };
        let mut lines = include_str!("combinations.md").lines().map(cells);
        let columns = lines.next().expect("a head");
        let mut table = BTreeMap::new();
        for row in lines.skip(1) {
            assert_eq!(row.len(), columns.len(), "{row:?}");
            for (column, cell) in columns.iter().zip(&row).skip(1) {
                let combines = match cell.as_str() {
                    "yes" => true,
                    "no" => false,
                    other => panic!("{other:?} in the row of {}", row[0]),
                };
                table.insert((row[0].clone(), column.clone()), combines);
            }
        }
        table
    }

    #[test]
    fn the_table_says_what_is_refused() {
        let mut table = table();
        for name in registry::names() {
            let spec = registry::specify(name, toml::Table::new()).expect(name);
            let algorithm = registry::build(&spec).expect(name);
            for choice in ALL {
                let (column, ways) = ways(choice);
                let combines = table.remove(&(name.to_owned(), column.to_owned()));
                let combines = combines.unwrap_or_else(|| panic!("no cell for {name} and {column}"));
                for (training, aggregation) in ways {
                    let architecture = if choice == Setting::Bare { "linear" } else { "mlp-2nn" };
                    let mut architecture =
                        Architecture::by_name(architecture, &[1, 2, 2], 2).expect("built in");
                    if choice == Setting::Opaque {
                        let tensor = "w: 2".parse().expect("a tensor");
                        architecture = Architecture::of_tensors("mine", vec![tensor]);
                    }
                    if choice == Setting::Numbers {
                        architecture.task = models::Task::MultiLabel;
                    }
                    if choice == Setting::Frozen {
                        architecture.frozen = Some(models::Frozen::named(vec!["head.*".to_owned()]));
                    }
                    let settings = Settings {
                        training: &training,
                        aggregation: &aggregation,
                        architecture: Some(&architecture),
                        mixture: if choice == Setting::Mixed { Mixture::PUBLISHED } else { Mixture::CLIENTS },
                        late: choice == Setting::Late,
                        private: (choice == Setting::Private).then_some(1.0),
                        secure: choice == Setting::Secure,
                        top_k: (choice == Setting::TopK).then_some(0.01),
                    };
                    let (key, shown) = choice.made(&settings).expect("made");
                    let made: Vec<_> = ALL.iter().filter(|other| other.made(&settings).is_some()).collect();
                    assert_eq!(made, [&choice], "one choice at a time");
                    let conflicts = algorithm.conflicts(&settings);
                    assert_eq!(conflicts.is_empty(), combines, "{name} and {shown}: {conflicts:?}");
                    for conflict in conflicts {
                        assert_eq!((&conflict.key, &conflict.shown), (&key, &shown));
                        assert!(conflict.reason.contains(name), "{}", conflict.reason);
                    }
                }
            }
        }
        assert!(table.is_empty(), "cells for nothing: {table:?}");
    }
}
