//! Inconsistency of an ensemble's members, of each in itself and of all with each other.
//!
//! Zeng et al., *Does One-shot Give the Best Shot?*, ICML 2025: a model that was learned in one shot says different things of two
//! views of a sample (intra-model), and two of them say different things of the same sample (inter-model).
//!
//! ```text
//! intra_m = mean_i [1 - cos(F_m(A x_i), F_m(A' x_i))]            A, A' drawn as for training, F_m what the last layer is given
//! inter   = mean_i mean_{m < m'} [1 - cos(p_m(x_i), p_m'(x_i))]  p_m the probabilities that a member has for the classes
//! ```
//!
//! The features of two members have no axes in common where each has a last layer of its own, so that members are compared by what
//! they predict. Both are between 0 and 1 where features and probabilities are not negative.

use models::{Architecture, Backend, Layer, Mode, Network, ParamSet, Targets};
use rayon::prelude::*;
use shared::ensemble::fusion::{cosine, log_softmax, own_answers};
use shared::seed::Seed;

use super::{Bundle, EnsembleError, Question};

/// The samples that are looked at: the first of the question.
const SAMPLES: usize = 500;

/// How far models are from saying the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Inconsistency {
    /// That of each member in itself, in the members' order; none if samples are not augmented, whose views are all the same.
    pub intra: Vec<f64>,
    /// That of the model which they have learned from, in itself.
    pub intra_of_start: Option<f64>,
    /// The mean over all pairs of members; `None` of a single one.
    pub inter: Option<f64>,
}

impl Inconsistency {
    /// What a round's record has of it, by name: means over the members.
    pub fn metrics(&self) -> impl Iterator<Item = (String, f64)> {
        let intra = (!self.intra.is_empty()).then(|| mean(&self.intra));
        let named = [
            ("intra-inconsistency", intra),
            ("intra-inconsistency-start", self.intra_of_start),
            ("inter-inconsistency", self.inter),
        ];
        named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)))
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// What one model says of some samples.
struct Said {
    /// `1 - cos` of the features of both views of each sample.
    apart: Vec<f64>,
    /// Its probabilities of the classes for each sample, as vectors of length 1.
    directions: Vec<f64>,
}

impl Bundle {
    /// The inconsistency of its members, which have learned from `start`, over the first samples of a question. Views are drawn
    /// from the seed of the ensemble's noise.
    ///
    /// # Errors
    /// [`EnsembleError`] if the file cannot be read, or a member cannot be run.
    pub fn inconsistency(
        &self,
        question: &Question<'_>,
        start: &ParamSet,
    ) -> Result<Inconsistency, EnsembleError> {
        let views = !question.preparation.is_fixed();
        let (mut intra, mut sums) = (Vec::new(), Vec::new());
        let members = self.manifest.members.len();
        for member in 0..members {
            let said = self.said(question, &self.member(member)?)?.ok_or_else(|| self.not_finite(member))?;
            intra.push(mean(&said.apart));
            sums.resize(said.directions.len(), 0.0);
            sums.iter_mut().zip(&said.directions).for_each(|(sum, value)| *sum += value);
        }
        // The squared length of a sum of M vectors of length 1 is M and twice the cosines of all pairs.
        let (classes, count) = (self.manifest.architecture.classes, members as f64);
        let of_sample = |sum: &[f64]| {
            (sum.iter().map(|value| value * value).sum::<f64>() - count) / (count * (count - 1.0))
        };
        let alike: Vec<f64> = sums.chunks(classes).map(of_sample).collect();
        let start = if views { self.said(question, start)? } else { None };
        Ok(Inconsistency {
            intra: if views { intra } else { Vec::new() },
            intra_of_start: start.map(|said| mean(&said.apart)),
            inter: (members > 1).then(|| 1.0 - mean(&alike)),
        })
    }

    /// What a model says of the question's first samples; `None` if its answers cannot be summed up.
    fn said(&self, question: &Question<'_>, params: &ParamSet) -> Result<Option<Said>, EnsembleError> {
        let (network, params) = up_to_the_last_layer(&self.manifest.architecture, params);
        let made = || Network::new(&network, &params, &Backend::cpu());
        made()?;
        let made = || made().expect("the same network was made a moment ago");
        let positions: Vec<usize> = (0..question.view.len().min(SAMPLES)).collect();
        let seed = Seed::root(self.manifest.noise_seed).derive("views of inconsistency");
        let head = self.manifest.answering.head;
        let parts = positions.par_chunks(question.batch.max(1)).map_init(made, |network, positions| {
            let (mut x, mut labels) = (Vec::new(), Targets::default());
            let shape = [&[positions.len()], &self.manifest.architecture.input[..]].concat();
            let mut features = Vec::new();
            for name in ["first", "second"] {
                let seed = seed.derive(name);
                question.preparation.training(question.view, positions, &seed, &mut x, &mut labels);
                network.forward(&x, &shape, Mode::Evaluation)?;
                features.push(network.representation().to_vec());
            }
            question.preparation.evaluation(question.view, positions, &mut x, &mut labels);
            network.forward(&x, &shape, Mode::Evaluation)?;
            Ok(said(&features, own_answers(network, head, positions.len()), positions.len()))
        });
        let parts: Vec<Option<Said>> = parts.collect::<Result<_, EnsembleError>>()?;
        let parts: Option<Vec<Said>> = parts.into_iter().collect();
        Ok(parts.map(|parts| {
            let (mut apart, mut directions) = (Vec::new(), Vec::new());
            for part in parts {
                apart.extend(part.apart);
                directions.extend(part.directions);
            }
            Said { apart, directions }
        }))
    }
}

/// Of `n` samples: the features of both views, and the answers.
fn said(features: &[Vec<f32>], answers: Option<Vec<f32>>, n: usize) -> Option<Said> {
    let wide = |row: &[f32]| row.iter().map(|&value| f64::from(value)).collect::<Vec<_>>();
    let [first, second] = features else { return None };
    let d = first.len() / n;
    let rows = first.chunks(d).zip(second.chunks(d));
    let apart = rows.map(|(a, b)| 1.0 - cosine(wide(a).into_iter(), wide(b).into_iter())).collect();
    let answers = answers?;
    let direction = |row: &[f32]| {
        let probabilities: Vec<f64> = log_softmax(&wide(row)).iter().map(|log| log.exp()).collect();
        let length = probabilities.iter().map(|value| value * value).sum::<f64>().sqrt();
        probabilities.into_iter().map(move |value| value / length).collect::<Vec<_>>()
    };
    let directions = answers.chunks(answers.len() / n).flat_map(direction).collect();
    Some(Said { apart, directions })
}

/// The network with all before its last layer as one part, so that its representation is what that layer is given, and the
/// parameters by their names in it. It stays as it is if it does not end with a linear layer.
fn up_to_the_last_layer(network: &Architecture, params: &ParamSet) -> (Architecture, ParamSet) {
    let mut parted = network.clone();
    if let Some(last @ Layer::Linear { .. }) = parted.head.pop() {
        parted.projection.append(&mut parted.head);
        parted.head = vec![last];
        if let Some(renamed) = renamed(network, &parted, params) {
            return (parted, renamed);
        }
    }
    (network.clone(), params.clone())
}

/// The parameters of one network by their names in another of the same layers, in which parts begin elsewhere.
fn renamed(network: &Architecture, parted: &Architecture, params: &ParamSet) -> Option<ParamSet> {
    let (from, to) = (network.parameter_specs().ok()?, parted.parameter_specs().ok()?);
    let mut renamed = ParamSet::new();
    for (from, to) in from.iter().zip(to) {
        renamed.insert(to.name, params.get(&from.name)?.clone());
    }
    Some(renamed)
}
