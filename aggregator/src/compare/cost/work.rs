//! What a run does, in samples that pass through networks.

use shared::algorithm::registry;

use super::passes::Passes;
use super::personal;
use crate::config::{Config, Source};

/// Training and test samples of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Samples {
    pub(super) train: usize,
    pub(super) test: usize,
}

impl Samples {
    /// `None` if it is not known how many there are.
    pub(super) fn of(config: &Config) -> Option<Self> {
        let (train, test) = match &config.data.source {
            Source::Drawn { train, test } => (*train, *test),
            // The tests of published sets are about a sixth of their training samples.
            Source::Files { limit, test_limit, .. } => {
                let all = config.data.set.training_samples?;
                let most = |limit: &Option<usize>, all| limit.unwrap_or(all).min(all);
                let (all, tests) = match test_limit {
                    Some(tests) if config.data.pooled => ((all + all / 6).saturating_sub(*tests), *tests),
                    _ => (all, most(test_limit, all / 6)),
                };
                (most(limit, all), tests)
            }
            Source::Trainers => return None,
        };
        Some(Self { train, test })
    }
}

/// All passes of a run with this number of samples, but for what clients test while they train; `None` if its algorithm or network is
/// none that this program knows.
pub(super) fn passes(config: &Config, Samples { train, test }: Samples) -> Option<Vec<Passes>> {
    let spec = &config.spec;
    let clients = config.data.clients;
    let validation = config.data.validation.unwrap_or(0);
    let train = train.saturating_sub(validation + config.server.labelled.unwrap_or(0));
    let all = train as f64 / clients as f64;
    let has = all - spec.evaluate.held_out(all as usize) as f64;
    let own = (has / f64::from(spec.training.chunks.max(1))).max(1.0);
    let cohort = config.policy.cohort(clients);
    let batch = spec.training.batch_of(own.round() as u64) as usize;
    let (rounds, epochs) = (f64::from(spec.rounds), f64::from(spec.training.epochs));
    let algorithm = registry::build(&spec.algorithm).ok()?;
    let times = if algorithm.supervised().is_some() {
        // Before the first round and after each.
        rounds + 1.0
    } else if config.server.mixture.beta > 0.0 {
        rounds
    } else {
        0.0
    };
    let labelled = config.server.labelled.unwrap_or(0) as f64;
    let server = times * f64::from(config.server.epochs) * labelled;
    let needs = algorithm.client_needs();
    let seen = rounds * cohort as f64 * epochs * own;
    let is_kept = needs.keeps_frozen && spec.data.preparation.is_fixed();
    let seen_by_frozen = if is_kept { seen / epochs.max(1.0) } else { seen };
    let tests = (1..=spec.rounds).filter(|&round| spec.evaluate.after(round, spec.rounds)).count();
    let mut passes = vec![Passes {
        network: spec.architecture.clone(),
        batch: batch.max(1),
        trained: seen * f64::from(needs.views.max(1)) + server,
        tested: seen_by_frozen * f64::from(needs.frozen)
            + seen * f64::from(needs.predictions)
            + (tests * (test + validation)) as f64,
    }];
    passes.extend(personal::passes(config, has, test)?);
    Some(passes)
}
