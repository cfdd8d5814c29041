//! Predictions of an ensemble.

use std::collections::BTreeMap;

use models::{Backend, Evaluation, ModelError, Network, ParamSet, PerClass, Targets};
use rayon::prelude::*;
use shared::algorithm::Fusion;
use shared::data::{Preparation, View};
use shared::ensemble::fusion::largest;
use shared::ensemble::{AskError, Fused, Gathered};

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
    /// For each requested fusion and each sample, the fused vector: features, or means of answers.
    pub fused: BTreeMap<Fusion, Vec<Fused>>,
    /// The evaluation of each member on its own.
    pub members: &'a [Evaluation],
}

/// The evaluation of each requested fusion, and of each member on its own.
pub type Evaluated = (BTreeMap<Fusion, Evaluation>, Vec<Evaluation>);

/// A batch of samples with what the members have said about it.
struct Part {
    gathered: Gathered,
    labels: Vec<u32>,
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
                self.ask(member, &params, &mut parts)?;
            }
            let conclude = |part: &Part| part.gathered.conclude(&self.manifest, &self.prototypes);
            let concluded: Vec<_> = parts.par_iter().map(conclude).collect();
            for (part, fused) in parts.iter().zip(concluded) {
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
        let wide = |fusion: &Fusion| if fusion.is_of_features() { self.dimensions() } else { classes };
        let sums: usize = question.fusions.iter().map(|fusion| 16 * (1 + wide(fusion))).sum();
        (CHUNK / (sums + 8 * input)).max(1)
    }

    fn part(&self, question: &Question<'_>, positions: &[usize]) -> Part {
        let (mut x, mut targets) = (Vec::new(), Targets::default());
        question.preparation.evaluation(question.view, positions, &mut x, &mut targets);
        let gathered = Gathered::new(&self.manifest, self.dimensions(), question.fusions, positions, x);
        Part { gathered, labels: targets.classes().to_vec(), members: Vec::new() }
    }

    /// Adds the outputs of a member to the sums.
    fn ask(&self, member: usize, params: &ParamSet, parts: &mut [Part]) -> Result<(), EnsembleError> {
        let network = || Network::new(&self.manifest.architecture, params, &Backend::cpu());
        network()?;
        let network = || network().expect("the same network was made a moment ago");
        parts.par_iter_mut().try_for_each_init(network, |network, part| {
            let own = part.gathered.ask(&self.manifest, member, network).map_err(|error| match error {
                AskError::Features => self.not_finite(member),
                AskError::Model(error) => error.into(),
                AskError::Batch(error) => error.into(),
            })?;
            part.members.push(evaluation(own.iter().map(Vec::as_slice).zip(&part.labels)));
            Ok(())
        })
    }

    pub(super) fn not_finite(&self, member: usize) -> EnsembleError {
        let client = self.manifest.members[member].client.to_string();
        EnsembleError::Features { path: self.path().to_owned(), member, client }
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
    let accuracy = (whole.samples > 0).then(|| whole.correct as f64 / samples);
    Evaluation { loss: whole.loss / samples, accuracy, ..whole }
}
