//! Whether a model can be a member: one that computes no numbers would spoil every answer of the ensemble.

use models::{Architecture, Backend, Mode, ModelError, Network, ParamSet};
use rayon::prelude::*;
use shared::algorithm::ensemble::prototypes_of;
use shared::seed::{Seed, standard_normal};

use super::Question;
use super::fusion::summable;

/// Samples of noise that a model is tried on, and of the question.
const NOISE: usize = 16;
const SAMPLES: usize = 64;

/// Whether a network's features and its own answers for the last batch, `f_hat P^T`, can be summed up; gives the answers, a
/// row for each of `n` samples.
pub(super) fn own_answers(network: &Network, n: usize) -> Option<Vec<f32>> {
    let features = network.representation();
    let logits = network.logits();
    if !summable(features) {
        return None;
    }
    let (d, classes) = (features.len() / n, logits.len() / n);
    let lengths = features.chunks(d).map(|row| {
        row.iter().map(|&value| f64::from(value) * f64::from(value)).sum::<f64>().sqrt().max(1e-8)
    });
    let rows = logits.chunks(classes).zip(lengths);
    let answers: Vec<f32> =
        rows.flat_map(|(row, length)| row.iter().map(move |&v| (f64::from(v) / length) as f32)).collect();
    summable(&answers).then_some(answers)
}

/// Whether a model that is to be a member has prototypes that can be averaged and computes numbers: for noise as informative fusion shows it, and for the first samples
/// of a question if there is one. That does not prove it for all samples; one that fails on others can be left out later
/// ([`leave_out`](super::leave_out())).
///
/// # Errors
/// [`ModelError`] if it is no model of this architecture.
pub fn is_sound(
    architecture: &Architecture,
    params: &ParamSet,
    noise_seed: u64,
    question: Option<&Question<'_>>,
) -> Result<bool, ModelError> {
    let prototypes = prototypes_of(architecture).and_then(|name| params.get(&name));
    if prototypes.is_some_and(|prototypes| !summable(prototypes.values())) {
        return Ok(false);
    }
    let values: usize = architecture.input.iter().product();
    let mut rng = Seed::root(noise_seed).derive("noise that members are tried on").rng();
    let mut tried = vec![(0..NOISE * values).map(|_| standard_normal(&mut rng) as f32).collect::<Vec<f32>>()];
    if let Some(Question { view, preparation, batch, .. }) = question {
        let positions: Vec<usize> = (0..view.len().min(SAMPLES)).collect();
        tried.par_extend(positions.par_chunks((*batch).max(1)).map(|positions| {
            let (mut x, mut labels) = (Vec::new(), Vec::new());
            preparation.evaluation(view, positions, &mut x, &mut labels);
            x
        }));
    }
    let mut network = Network::new(architecture, params, &Backend::cpu())?;
    for x in tried {
        let n = x.len() / values.max(1);
        network.forward(&x, &[&[n], &architecture.input[..]].concat(), Mode::Evaluation)?;
        if own_answers(&network, n).is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}
