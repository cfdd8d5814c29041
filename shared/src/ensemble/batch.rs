//! A batch of samples, about which one member after the other is asked.

use std::collections::BTreeMap;

use models::{Batch, BatchError, Mode, ModelError, Network};
use thiserror::Error;

use super::Manifest;
use super::fusion::{
    LEAST_PROBABILITY, RowSums, cosine, information, largest, log_softmax, own_answers, summable,
};
use crate::algorithm::{Fusion, Head};

/// Why a member gives no answer.
#[derive(Debug, Error)]
pub enum AskError {
    /// Its features or answers are not finite, or too large to be summed.
    #[error("a member gives features or answers that are not finite")]
    Features,
    /// It cannot be run.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The samples do not form a batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

/// The fused prediction for one sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Fused {
    /// `F(x)`, or the mean of the members' own answers.
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

/// A batch of samples with the running sums over the members that were asked about it.
#[derive(Debug)]
pub struct Gathered {
    samples: usize,
    x: Vec<f32>,
    noise: Vec<f32>,
    sums: BTreeMap<Fusion, RowSums>,
}

impl Gathered {
    /// The samples at these positions of a data set, prepared as `x`, to be fused in each of these ways. The noise of a sample
    /// follows from its position. `dimensions` is the length of a member's representation of one sample,
    /// of no meaning to classifiers, which are fused by their logits alone.
    #[must_use]
    pub fn new(
        manifest: &Manifest,
        dimensions: usize,
        fusions: &[Fusion],
        positions: &[usize],
        x: Vec<f32>,
    ) -> Self {
        let mut noise = Vec::new();
        if fusions.contains(&Fusion::Informative) {
            noise = positions.iter().flat_map(|&position| manifest.noise(position)).collect();
        }
        let (n, classes) = (positions.len(), manifest.architecture.classes);
        let sums = |&fusion: &Fusion| {
            let d = if fusion.is_of_features() { dimensions } else { classes };
            (fusion, RowSums::new(n, d))
        };
        Self { samples: n, x, noise, sums: fusions.iter().map(sums).collect() }
    }

    /// Adds the outputs of a member to the sums, and returns the logarithms of its own probabilities, a row for each sample.
    ///
    /// # Errors
    /// [`AskError`]
    ///
    /// # Panics
    /// If there is no such member.
    pub fn ask(
        &mut self,
        manifest: &Manifest,
        member: usize,
        network: &mut Network,
    ) -> Result<Vec<Vec<f64>>, AskError> {
        let architecture = &manifest.architecture;
        let size = manifest.share(member);
        let n = self.samples;
        let shape = [&[n], &architecture.input[..]].concat();
        network.forward(&self.x, &shape, Mode::Evaluation)?;
        let logits = own_answers(network, manifest.answering.head, n).ok_or(AskError::Features)?;
        let own: Vec<Vec<f64>> = logits
            .chunks(architecture.classes)
            .map(|row| log_softmax(&row.iter().map(|&value| f64::from(value)).collect::<Vec<_>>()))
            .collect();
        if let Some(sums) = self.sums.get_mut(&Fusion::Logits) {
            sums.add(&logits, |_| size);
        }
        if let Some(sums) = self.sums.get_mut(&Fusion::Probabilities) {
            let probabilities: Vec<f32> = own.iter().flatten().map(|log| log.exp() as f32).collect();
            sums.add(&probabilities, |_| size);
        }
        if manifest.answering.head == Head::Classifier {
            return Ok(own);
        }
        let features = network.representation().to_vec();
        let d = features.len() / n;
        if let Some(sums) = self.sums.get_mut(&Fusion::Informative) {
            let noise = Batch::unlabelled(std::mem::take(&mut self.noise), shape)?;
            let of_noise = network.represent(&noise)?;
            if !summable(of_noise) {
                return Err(AskError::Features);
            }
            let alpha: Vec<f64> =
                features.chunks(d).zip(of_noise.chunks(d)).map(|(x, noise)| information(x, noise)).collect();
            (self.noise, _) = noise.into_buffers();
            sums.add(&features, |row| alpha[row]);
        }
        for (fusion, sums) in &mut self.sums {
            match fusion {
                Fusion::Informative | Fusion::Logits | Fusion::Probabilities => {}
                Fusion::Size => sums.add(&features, |_| size),
                Fusion::Uniform => sums.add(&features, |_| 1.0),
            }
        }
        Ok(own)
    }

    /// The fused predictions after all members were asked, for each way and each sample. `prototypes` are `P_g`, `[classes, d]`,
    /// or none of classifiers.
    #[must_use]
    pub fn conclude(&self, manifest: &Manifest, prototypes: &[f32]) -> BTreeMap<Fusion, Vec<Fused>> {
        let d = prototypes.len() / manifest.architecture.classes.max(1);
        let temperature = manifest.answering.temperature;
        let conclude = |fusion: Fusion, vector: Vec<f64>| {
            let cosine = |row: &[f32]| {
                cosine(vector.iter().copied(), row.iter().map(|&value| f64::from(value))) / temperature
            };
            let log = |share: &f64| share.max(LEAST_PROBABILITY).ln();
            let log_probabilities = match fusion {
                Fusion::Logits => log_softmax(&vector),
                Fusion::Probabilities => log_softmax(&vector.iter().map(log).collect::<Vec<_>>()),
                _ => log_softmax(&prototypes.chunks(d).map(cosine).collect::<Vec<_>>()),
            };
            Fused { vector, log_probabilities }
        };
        let each = self.sums.iter();
        each.map(|(&fusion, sums)| (fusion, sums.means().map(|vector| conclude(fusion, vector)).collect()))
            .collect()
    }
}
