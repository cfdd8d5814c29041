//! Losses for learning an extractor together with class prototypes.

use crate::kernels::gemm::{Matrix, gemm, gemm_parallel};
use crate::loss::cross_entropy;
use crate::train::LossGradients;

/// Lower bound of a norm in a denominator: a representation of zeros has no direction.
const MIN_NORM: f32 = 1e-8;

/// The loss of an extractor `f` and prototypes `P`, one row for each class (FAFI, Zeng et al. 2025):
///
/// ```text
/// classify CE(z P^T / tau, y) + contrast SupCon(z, y) + separate CE(P P^T, identity),    z = f / |f|
/// ```
///
/// The prototypes are the weight of the network's head, a linear layer without bias on its representation `f`, and are not
/// normalised. A term whose weight is 0 is not computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrototypeLoss {
    /// The weight of the cross-entropy.
    pub classify: f32,
    /// The weight of [`supervised_contrast`].
    pub contrast: f32,
    /// The weight of [`separation`].
    pub separate: f32,
    /// The temperature of the contrast.
    pub temperature: f32,
    /// The temperature of the cross-entropy, `tau`.
    pub prototype_temperature: f32,
}

/// A network's outputs for a batch, and the prototypes in its head.
#[derive(Clone, Copy, Debug)]
pub struct Prototyped<'a> {
    /// `f`, `[n, d]`.
    pub representation: &'a [f32],
    /// `f P^T`, `[n, classes]`.
    pub logits: &'a [f32],
    /// `P`, `[classes, d]`.
    pub prototypes: &'a [f32],
    /// The classes of the samples.
    pub labels: &'a [u32],
}

/// The three terms of a [`PrototypeLoss`] before weighting; 0 for a term whose weight is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PrototypeTerms {
    /// The mean cross-entropy.
    pub classification: f32,
    /// [`supervised_contrast`].
    pub contrast: f32,
    /// [`separation`].
    pub separation: f32,
}

impl PrototypeLoss {
    /// The terms for a batch. `gradients` is overwritten with the weighted gradients with respect to the representation, the
    /// logits, and, for the separation, the prototypes, which are the parameter called `head`.
    ///
    /// # Panics
    /// If there are no samples, or the lengths do not fit.
    #[must_use]
    pub fn of(&self, outputs: Prototyped<'_>, head: &str, gradients: &mut LossGradients) -> PrototypeTerms {
        let Prototyped { representation, logits, prototypes, labels } = outputs;
        let (n, classes) = (labels.len(), logits.len() / labels.len());
        let d = representation.len() / n;
        assert!(prototypes.len() == classes * d && d * n == representation.len(), "one row for each class");
        let (directions, lengths) = directions(representation, n);
        let mut terms = PrototypeTerms::default();

        gradients.representation.clear();
        gradients.representation.resize(representation.len(), 0.0);
        if self.contrast != 0.0 {
            let by_directions = &mut gradients.representation;
            terms.contrast = supervised_contrast(&directions, labels, self.temperature, by_directions);
            scale(by_directions, self.contrast);
            for ((gradient, z), &length) in
                by_directions.chunks_mut(d).zip(directions.chunks(d)).zip(&lengths)
            {
                through_length(gradient, z, length);
            }
        }

        // The head computes f P^T; dividing each row by the norm of f and the temperature gives z P^T / tau.
        let tau = self.prototype_temperature;
        let scaled: Vec<f32> = logits
            .chunks(classes)
            .zip(&lengths)
            .flat_map(|(row, &length)| row.iter().map(move |logit| logit / length.max(MIN_NORM) / tau))
            .collect();
        terms.classification = cross_entropy(&scaled, labels, &mut gradients.logits);
        let rows = gradients.logits.chunks_mut(classes).zip(scaled.chunks(classes));
        let places = gradients.representation.chunks_mut(d).zip(directions.chunks(d)).zip(&lengths);
        for ((by_logits, scaled), ((by_f, z), &length)) in rows.zip(places) {
            if length < MIN_NORM {
                by_logits.fill(0.0);
                continue;
            }
            let along: f32 = by_logits.iter().zip(scaled).map(|(gradient, logit)| gradient * logit).sum();
            let share = self.classify * along / length;
            by_f.iter_mut().zip(z).for_each(|(gradient, z)| *gradient -= share * z);
            scale(by_logits, self.classify / length / tau);
        }

        gradients.parameters.clear();
        if self.separate != 0.0 {
            let mut by_prototypes = Vec::new();
            terms.separation = separation(prototypes, classes, &mut by_prototypes);
            scale(&mut by_prototypes, self.separate);
            gradients.parameters.push((head.to_owned(), by_prototypes));
        }
        terms
    }

    /// The weighted sum of the terms.
    #[must_use]
    pub fn value(&self, terms: &PrototypeTerms) -> f32 {
        let PrototypeTerms { classification, contrast, separation } = terms;
        self.classify * classification + self.contrast * contrast + self.separate * separation
    }
}

fn scale(values: &mut [f32], factor: f32) {
    for value in values {
        *value *= factor;
    }
}

/// The `n` rows of `f` normalised to length 1, and their original lengths. A row of zeros stays zero.
fn directions(f: &[f32], n: usize) -> (Vec<f32>, Vec<f32>) {
    let d = f.len() / n;
    let (mut directions, mut lengths) = (f.to_vec(), Vec::with_capacity(n));
    for row in directions.chunks_mut(d) {
        let length = row.iter().map(|&value| f64::from(value) * f64::from(value)).sum::<f64>().sqrt() as f32;
        scale(row, 1.0 / length.max(MIN_NORM));
        lengths.push(length);
    }
    (directions, lengths)
}

/// Turns the gradient with respect to the direction `z` into that with respect to the vector of this direction and length.
fn through_length(gradient: &mut [f32], z: &[f32], length: f32) {
    if length < MIN_NORM {
        gradient.fill(0.0);
        return;
    }
    let along: f32 = gradient.iter().zip(z).map(|(gradient, z)| gradient * z).sum();
    gradient.iter_mut().zip(z).for_each(|(gradient, z)| *gradient = (*gradient - along * z) / length);
}

/// The supervised contrastive loss (Khosla et al. 2020, equation 2) of `n` directions `z`, `[n, d]`: the mean over all `i`
/// that have a partner, another sample of their class, of
///
/// ```text
/// -1/|Pos(i)| sum_{p in Pos(i)} log( exp(z_i z_p / tau) / sum_{a != i} exp(z_i z_a / tau) )
/// ```
///
/// 0 if no sample has a partner. `gradient` is overwritten with the gradient with respect to `z`.
///
/// # Panics
/// If there are no samples, or the lengths do not fit.
#[must_use]
pub fn supervised_contrast(z: &[f32], labels: &[u32], tau: f32, gradient: &mut Vec<f32>) -> f32 {
    let n = labels.len();
    let d = z.len() / n;
    assert_eq!(z.len(), n * d, "as many rows as labels");
    gradient.clear();
    gradient.resize(z.len(), 0.0);
    let matrix = Matrix::new(z, n, d);
    let mut similarities = vec![0.0f32; n * n];
    gemm_parallel(1.0 / tau, matrix, matrix.transposed(), 0.0, &mut similarities, n);

    let partners = |i: usize| labels.iter().filter(|&&label| label == labels[i]).count() - 1;
    let anchors = (0..n).filter(|&i| partners(i) > 0).count();
    if anchors == 0 {
        return 0.0;
    }
    // Row by row, the similarities are overwritten with the gradient with respect to them.
    let mut loss = 0.0f64;
    for (i, row) in similarities.chunks_mut(n).enumerate() {
        let partners = partners(i);
        if partners == 0 {
            row.fill(0.0);
            continue;
        }
        row[i] = f32::NEG_INFINITY;
        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let shifted = row.iter().map(|&s| (f64::from(s) - f64::from(max)).exp());
        let log_total = f64::from(max) + shifted.sum::<f64>().ln();
        let mut sum = 0.0f64;
        for (j, s) in row.iter_mut().enumerate() {
            let partner = j != i && labels[j] == labels[i];
            let mut slope = (f64::from(*s) - log_total).exp();
            if partner {
                sum += f64::from(*s) - log_total;
                slope -= 1.0 / partners as f64;
            }
            *s = (slope / anchors as f64) as f32;
        }
        loss -= sum / partners as f64;
    }
    let slopes = Matrix::new(&similarities, n, n);
    gemm_parallel(1.0 / tau, slopes, matrix, 0.0, gradient, d);
    gemm_parallel(1.0 / tau, slopes.transposed(), matrix, 1.0, gradient, d);
    (loss / anchors as f64) as f32
}

/// The separation loss of prototypes `P`, `[classes, d]`: the mean cross-entropy of the rows of `P P^T`, each of which should be
/// largest at its own class. `gradient` is overwritten with the gradient with respect to `P`.
///
/// # Panics
/// If there are no classes, or the lengths do not fit.
#[must_use]
pub fn separation(prototypes: &[f32], classes: usize, gradient: &mut Vec<f32>) -> f32 {
    let d = prototypes.len() / classes;
    let matrix = Matrix::new(prototypes, classes, d);
    let mut products = vec![0.0; classes * classes];
    gemm(1.0, matrix, matrix.transposed(), 0.0, &mut products, classes);
    let own: Vec<u32> = (0..classes as u32).collect();
    let mut slopes = Vec::new();
    let loss = cross_entropy(&products, &own, &mut slopes);
    gradient.clear();
    gradient.resize(prototypes.len(), 0.0);
    let slopes = Matrix::new(&slopes, classes, classes);
    gemm(1.0, slopes, matrix, 0.0, gradient, d);
    gemm(1.0, slopes.transposed(), matrix, 1.0, gradient, d);
    loss
}

#[cfg(test)]
mod tests;
