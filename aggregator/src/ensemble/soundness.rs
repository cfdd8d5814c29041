//! The test that a model must pass to become a member: one that computes no finite numbers would spoil every answer.

use models::{Architecture, Backend, Mode, ModelError, Network, ParamSet, Targets};
use rayon::prelude::*;
use shared::algorithm::answering::prototypes_of;
use shared::algorithm::{Answering, Head};
use shared::ensemble::fusion::{own_answers, summable};
use shared::seed::{Seed, standard_normal};

use super::Question;

/// Number of noise samples that a model is tried on.
const NOISE: usize = 16;
/// Number of the question's samples that it is tried on.
const SAMPLES: usize = 64;

/// Whether a model has prototypes that can be averaged, if it has any, and finite outputs for noise and for the first samples of a
/// question, if there is one. The noise is that of informative fusion; a network of texts, which it is no text for, is tried on
/// samples alone. A member that fails on other samples can be left out later
/// ([`leave_out`](super::leave_out())).
///
/// # Errors
/// [`ModelError`] if it is no model of this architecture.
pub fn is_sound(
    architecture: &Architecture,
    params: &ParamSet,
    (answering, noise_seed): (Answering, u64),
    question: Option<&Question<'_>>,
) -> Result<bool, ModelError> {
    let Answering { noise, head, .. } = answering;
    let prototypes = prototypes_of(architecture).and_then(|name| params.get(&name));
    if head == Head::Prototypes && prototypes.is_some_and(|prototypes| !summable(prototypes.values())) {
        return Ok(false);
    }
    let values: usize = architecture.input.iter().product();
    let mut rng = Seed::root(noise_seed).derive("noise that members are tried on").rng();
    let mut tried: Vec<Vec<f32>> = Vec::new();
    if architecture.vocabulary().is_none() {
        tried.push((0..NOISE * values).map(|_| noise.of(standard_normal(&mut rng))).collect());
    }
    if let Some(Question { view, preparation, batch, .. }) = question {
        let positions: Vec<usize> = (0..view.len().min(SAMPLES)).collect();
        tried.par_extend(positions.par_chunks((*batch).max(1)).map(|positions| {
            let (mut x, mut labels) = (Vec::new(), Targets::default());
            preparation.evaluation(view, positions, &mut x, &mut labels);
            x
        }));
    }
    let mut network = Network::new(architecture, params, &Backend::cpu())?;
    for x in tried {
        let n = x.len() / values.max(1);
        network.forward(&x, &[&[n], &architecture.input[..]].concat(), Mode::Evaluation)?;
        if own_answers(&network, head, n).is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}
