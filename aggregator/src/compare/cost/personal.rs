//! What personal models take, in samples that pass through networks.

use shared::spec::Training;

use super::passes::Passes;
use crate::config::Config;

/// The passes of all personal models of a run whose clients have this many samples each; none if it makes and tests none, `None` if its
/// network cannot be taken apart. What gates themselves compute is too little to count.
pub(super) fn passes(config: &Config, samples: f64, test: usize) -> Option<Vec<Passes>> {
    let spec = &config.spec;
    let Some(settings) = spec.personalised() else { return Some(Vec::new()) };
    let clients = config.data.clients;
    let while_training = (1..=spec.rounds).filter(|&round| spec.work_in(round).personalise).count();
    // Of the last model, all clients make them.
    let times = (while_training * config.policy.cohort(clients) + clients) as f64;
    let (expert, gate) = (settings.expert_share * samples, (1.0 - settings.expert_share) * samples);
    let test = test as f64;

    let whole = settings.methods().iter().any(|method| method.is_whole());
    let head = settings.methods().iter().any(|method| !method.is_whole());
    let gated = settings.gated().next().is_some();
    // How often a sample goes through the extractor: once, or anew in every epoch, and twice beside that for the gate's mean.
    let augments = settings.augments(&spec.data.preparation);
    let for_head = if augments { f64::from(settings.head.epochs) } else { 1.0 };
    let for_gate = if augments { f64::from(settings.gate.epochs) + 2.0 } else { 1.0 };
    let if_so = |condition: bool, samples: f64| if condition { samples } else { 0.0 };

    let learned_from = expert.round().max(1.0) as u64;
    let batch = |batch| Training { batch, ..spec.training }.batch_of(learned_from) as usize;

    let of_gate = if_so(gated, gate * for_gate);
    let mut passes = vec![Passes {
        network: spec.architecture.clone(),
        batch: batch(settings.whole.batch),
        trained: times * if_so(whole, f64::from(settings.whole.epochs) * expert),
        // The global model is tested beside them.
        tested: times * (if_so(head, expert * for_head) + of_gate + test + if_so(whole, test)),
    }];
    if head {
        passes.push(Passes {
            network: spec.architecture.classifier().ok()?,
            batch: batch(settings.head.batch),
            trained: times * f64::from(settings.head.epochs) * expert,
            tested: times * (of_gate + test),
        });
    }
    Some(passes)
}
