//! Predictions of an ensemble.

use std::collections::BTreeMap;

use models::{Backend, Batch, Evaluation, Mode, ModelError, Network, ParamSet, PerClass};
use rayon::prelude::*;
use shared::algorithm::Fusion;
use shared::data::{Preparation, View};
use shared::seed::{Seed, standard_normal};

use super::fusion::{RowSums, cosine, information, largest, log_softmax, own_answers, summable};
use super::{Bundle, EnsembleError};

/// Bytes of running sums and samples in memory beside one member.
const CHUNK: usize = 64 << 20;

/// A request for predictions.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The samples.
    pub view: &'a View,
    /// How they are prepared.
    pub preparation: &'a Preparation,
    /// Samples in one forward pass of a member.
    pub batch: usize,
    /// The fusions to compute.
    pub fusions: &'a [Fusion],
}

/// The predictions for consecutive samples.
pub struct Answers<'a> {
    /// The labels; none if the samples are unlabelled.
    pub labels: &'a [u32],
    /// For each requested fusion and each sample, the fused vector: features, or mean logits.
    pub fused: BTreeMap<Fusion, Vec<Fused>>,
    /// The evaluation of each member on its own.
    pub members: &'a [Evaluation],
}

/// The fused prediction for one sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Fused {
    /// `F(x)`, or the mean logits.
    pub vector: Vec<f64>,
    /// `log p` of each class.
    pub log_probabilities: Vec<f64>,
}

impl Fused {
    /// The class with the largest probability; the first of equals.
    #[must_use]
    pub fn class(&self) -> usize {
        largest(&self.log_probabilities)
    }
}

/// The evaluation of each requested fusion, and of each member on its own.
pub type Evaluated = (BTreeMap<Fusion, Evaluation>, Vec<Evaluation>);

/// A batch of samples with its running sums.
struct Part {
    samples: usize,
    x: Vec<f32>,
    noise: Vec<f32>,
    labels: Vec<u32>,
    sums: BTreeMap<Fusion, RowSums>,
    members: Vec<Evaluation>,
}

impl Bundle {
    /// Predicts all samples in order, a chunk of batches at a time. Every chunk is passed through all members, so that memory
    /// holds one member and the sums of a chunk, independent of the numbers of members and samples. The predictions depend
    /// neither on the chunks nor on the number of threads.
    pub fn answer(
        &self,
        question: &Question<'_>,
        visit: &mut dyn FnMut(&Answers<'_>),
    ) -> Result<(), EnsembleError> {
        let positions: Vec<usize> = (0..question.view.len()).collect();
        let batch = question.batch.max(1);
        for chunk in positions.chunks(self.chunk(question).next_multiple_of(batch)) {
            let mut parts: Vec<Part> =
                chunk.par_chunks(batch).map(|positions| self.part(question, positions)).collect();
            let classes = self.manifest.architecture.classes;
            let mut labels = parts.iter().flat_map(|part| &part.labels);
            if let Some(&label) = labels.find(|&&label| label as usize >= classes) {
                return Err(ModelError::Label { label, classes }.into());
            }
            for member in 0..self.manifest.members.len() {
                let params = self.member(member)?;
                self.ask(member, &params, question, &mut parts)?;
            }
            for part in &parts {
                let of = |(&fusion, sums): (&Fusion, &RowSums)| (fusion, self.conclude(fusion, sums));
                let fused = part.sums.par_iter().map(of).collect();
                visit(&Answers { labels: &part.labels, fused, members: &part.members });
            }
        }
        Ok(())
    }

    /// Evaluates labelled samples: each requested fusion, and each member on its own.
    pub fn evaluate(&self, question: &Question<'_>) -> Result<Evaluated, EnsembleError> {
        self.evaluate_each(question, &mut |_| {})
    }

    /// [`Self::evaluate`], and passes the answers to `each` as they are made.
    fn evaluate_each(
        &self,
        question: &Question<'_>,
        each: &mut dyn FnMut(&Answers<'_>),
    ) -> Result<Evaluated, EnsembleError> {
        let none = Evaluation::default();
        let mut by: BTreeMap<Fusion, Evaluation> =
            question.fusions.iter().map(|&fusion| (fusion, none)).collect();
        let mut members = vec![none; self.manifest.members.len()];
        self.answer(question, &mut |answers| {
            each(answers);
            for (fusion, fused) in &answers.fused {
                let rows = fused.iter().map(|fused| fused.log_probabilities.as_slice());
                let part = evaluation(rows.zip(answers.labels));
                by.entry(*fusion).and_modify(|whole| *whole = whole.merge(part));
            }
            for (whole, part) in members.iter_mut().zip(answers.members) {
                *whole = whole.merge(*part);
            }
        })?;
        Ok((by, members))
    }

    /// The noise that a sample at this position is compared with in informative fusion.
    #[must_use]
    pub fn noise(&self, position: usize) -> Vec<f32> {
        let seed = Seed::root(self.manifest.noise_seed).derive("fusion noise");
        let mut rng = seed.derive_numbered("sample", position as u64).rng();
        let values = self.manifest.architecture.input.iter().product();
        (0..values).map(|_| standard_normal(&mut rng) as f32).collect()
    }

    /// A member's weight by its number of samples, relative to the largest.
    ///
    /// # Panics
    /// If there is no such member.
    #[must_use]
    pub fn share(&self, member: usize) -> f64 {
        let members = &self.manifest.members;
        let largest = members.iter().map(|member| member.samples).max().unwrap_or(1).max(1);
        // At least one sample each: an ensemble without any weight could not answer.
        members[member].samples.max(1) as f64 / largest as f64
    }

    /// [`Self::evaluate`], with the results of each class by the fusion `chosen`, which the question has to ask for.
    pub fn evaluate_by_class(
        &self,
        question: &Question<'_>,
        chosen: Fusion,
    ) -> Result<(Evaluated, PerClass), EnsembleError> {
        let mut by_class = PerClass::new(self.manifest.architecture.classes);
        let evaluated = self.evaluate_each(question, &mut |answers| {
            for (fused, &label) in answers.fused.get(&chosen).into_iter().flatten().zip(answers.labels) {
                let class = fused.class();
                by_class.count(label, class as u32, fused.log_probabilities[class].exp());
            }
        })?;
        Ok((evaluated, by_class))
    }

    /// Samples in a chunk.
    fn chunk(&self, question: &Question<'_>) -> usize {
        let classes = self.manifest.architecture.classes;
        let input: usize = self.manifest.architecture.input.iter().product();
        let wide = |fusion: &Fusion| if *fusion == Fusion::Logits { classes } else { self.dimensions() };
        let sums: usize = question.fusions.iter().map(|fusion| 16 * (1 + wide(fusion))).sum();
        (CHUNK / (sums + 8 * input)).max(1)
    }

    fn part(&self, question: &Question<'_>, positions: &[usize]) -> Part {
        let (mut x, mut labels, mut noise) = (Vec::new(), Vec::new(), Vec::new());
        question.preparation.evaluation(question.view, positions, &mut x, &mut labels);
        if question.fusions.contains(&Fusion::Informative) {
            noise = positions.iter().flat_map(|&position| self.noise(position)).collect();
        }
        let (n, classes) = (positions.len(), self.manifest.architecture.classes);
        let sums = |&fusion: &Fusion| {
            let d = if fusion == Fusion::Logits { classes } else { self.dimensions() };
            (fusion, RowSums::new(n, d))
        };
        Part {
            samples: n,
            x,
            noise,
            labels,
            sums: question.fusions.iter().map(sums).collect(),
            members: Vec::new(),
        }
    }

    /// Adds the outputs of a member to the sums.
    fn ask(
        &self,
        member: usize,
        params: &ParamSet,
        question: &Question<'_>,
        parts: &mut [Part],
    ) -> Result<(), EnsembleError> {
        let architecture = &self.manifest.architecture;
        let network = || Network::new(architecture, params, &Backend::cpu());
        network()?;
        let network = || network().expect("the same network was made a moment ago");
        let size = self.share(member);
        parts.par_iter_mut().try_for_each_init(network, |network, part| {
            let n = part.samples;
            let shape = [&[n], &architecture.input[..]].concat();
            network.forward(&part.x, &shape, Mode::Evaluation)?;
            let logits = own_answers(network, n).ok_or_else(|| self.not_finite(member))?;
            let features = network.representation().to_vec();
            let d = features.len() / n;
            let own: Vec<Vec<f64>> = logits
                .chunks(architecture.classes)
                .map(|row| log_softmax(&row.iter().map(|&value| f64::from(value)).collect::<Vec<_>>()))
                .collect();
            part.members.push(evaluation(own.iter().map(Vec::as_slice).zip(&part.labels)));
            if question.fusions.contains(&Fusion::Informative) {
                let noise = Batch::unlabelled(std::mem::take(&mut part.noise), shape)?;
                let of_noise = network.represent(&noise)?;
                if !summable(of_noise) {
                    return Err(self.not_finite(member));
                }
                let alpha: Vec<f64> = features
                    .chunks(d)
                    .zip(of_noise.chunks(d))
                    .map(|(x, noise)| information(x, noise))
                    .collect();
                (part.noise, _) = noise.into_buffers();
                if let Some(sums) = part.sums.get_mut(&Fusion::Informative) {
                    sums.add(&features, |row| alpha[row]);
                }
            }
            for (fusion, sums) in &mut part.sums {
                match fusion {
                    Fusion::Informative => {}
                    Fusion::Size => sums.add(&features, |_| size),
                    Fusion::Uniform => sums.add(&features, |_| 1.0),
                    Fusion::Logits => sums.add(&logits, |_| size),
                }
            }
            Ok(())
        })
    }

    fn not_finite(&self, member: usize) -> EnsembleError {
        let client = self.manifest.members[member].client.to_string();
        EnsembleError::Features { path: self.path().to_owned(), member, client }
    }

    /// The fused predictions from the sums over all members.
    fn conclude(&self, fusion: Fusion, sums: &RowSums) -> Vec<Fused> {
        let (d, temperature) = (self.dimensions(), self.manifest.answering.temperature);
        let conclude = |vector: Vec<f64>| {
            let log_probabilities = if fusion == Fusion::Logits {
                log_softmax(&vector)
            } else {
                let cosine = |row: &[f32]| {
                    cosine(vector.iter().copied(), row.iter().map(|&value| f64::from(value))) / temperature
                };
                log_softmax(&self.prototypes.chunks(d).map(cosine).collect::<Vec<_>>())
            };
            Fused { vector, log_probabilities }
        };
        sums.means().map(conclude).collect()
    }
}

/// Loss and accuracy of predictions with their labels.
fn evaluation<'a>(answers: impl Iterator<Item = (&'a [f64], &'a u32)>) -> Evaluation {
    let mut whole = Evaluation::default();
    for (log_probabilities, &label) in answers {
        whole.loss -= log_probabilities[label as usize];
        whole.correct += usize::from(largest(log_probabilities) == label as usize);
        whole.samples += 1;
    }
    let samples = whole.samples.max(1) as f64;
    Evaluation { loss: whole.loss / samples, accuracy: whole.correct as f64 / samples, ..whole }
}
