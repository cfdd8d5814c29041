//! Learning class prototypes together with what is compared with them.

use crate::kernels::product::{Matrix, product, product_parallel};
use crate::loss::cross_entropy;
use crate::train::LossGradients;

/// Below this, the length of a representation counts as this: one of zeros has no direction.
const TINY: f32 = 1e-8;

/// The loss of an extractor `f` and prototypes `P`, one row for each class (FAFI, Zeng et al. 2025):
///
/// ```text
/// classify CE(z P^T, y) + contrast SupCon(z, y) + separate CE(P P^T, identity),    z = f / |f|
/// ```
///
/// The prototypes are the weight of the network's head, a linear layer without bias on its representation `f`, and keep
/// their lengths. Where a weight is 0 its term is not computed.
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
}

/// What a network gave for a batch, and the prototypes in its head.
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

/// The three terms of a [`PrototypeLoss`], without their weights; 0 where the weight is.
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
    /// The terms for a batch. The weighted gradients by the representation and the logits are written to `gradients`, that
    /// of the separation by the prototypes as one of the parameter `head`.
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

        // The head gives f P^T, of which each row is divided by the length of f.
        let scaled: Vec<f32> = logits
            .chunks(classes)
            .zip(&lengths)
            .flat_map(|(row, &length)| row.iter().map(move |logit| logit / length.max(TINY)))
            .collect();
        terms.classification = cross_entropy(&scaled, labels, &mut gradients.logits);
        let rows = gradients.logits.chunks_mut(classes).zip(scaled.chunks(classes));
        let places = gradients.representation.chunks_mut(d).zip(directions.chunks(d)).zip(&lengths);
        for ((by_logits, scaled), ((by_f, z), &length)) in rows.zip(places) {
            if length < TINY {
                by_logits.fill(0.0);
                continue;
            }
            let along: f32 = by_logits.iter().zip(scaled).map(|(gradient, logit)| gradient * logit).sum();
            let share = self.classify * along / length;
            by_f.iter_mut().zip(z).for_each(|(gradient, z)| *gradient -= share * z);
            scale(by_logits, self.classify / length);
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

    /// The whole loss.
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

/// The rows of `f`, `n` of them, with length 1, and the lengths that they had. A row of zeros stays one.
fn directions(f: &[f32], n: usize) -> (Vec<f32>, Vec<f32>) {
    let d = f.len() / n;
    let (mut directions, mut lengths) = (f.to_vec(), Vec::with_capacity(n));
    for row in directions.chunks_mut(d) {
        let length = row.iter().map(|&value| f64::from(value) * f64::from(value)).sum::<f64>().sqrt() as f32;
        scale(row, 1.0 / length.max(TINY));
        lengths.push(length);
    }
    (directions, lengths)
}

/// A gradient by the direction `z` becomes one by what had that direction and this length.
fn through_length(gradient: &mut [f32], z: &[f32], length: f32) {
    if length < TINY {
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
/// 0 if nobody has a partner. Its gradient by `z` is written to `gradient`, as long as `z`.
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
    product_parallel(1.0 / tau, matrix, matrix.transposed(), 0.0, &mut similarities, n);

    let partners = |i: usize| labels.iter().filter(|&&label| label == labels[i]).count() - 1;
    let anchors = (0..n).filter(|&i| partners(i) > 0).count();
    if anchors == 0 {
        return 0.0;
    }
    // Row by row, similarities become the gradient by them.
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
    product_parallel(1.0 / tau, slopes, matrix, 0.0, gradient, d);
    product_parallel(1.0 / tau, slopes.transposed(), matrix, 1.0, gradient, d);
    (loss / anchors as f64) as f32
}

/// How far prototypes `P`, `[classes, d]`, are from telling themselves apart: the mean cross-entropy of the rows of `P P^T`,
/// each of which should be largest at its own class. Its gradient by `P` is written to `gradient`, as long as `P`.
///
/// # Panics
/// If there are no classes, or the lengths do not fit.
#[must_use]
pub fn separation(prototypes: &[f32], classes: usize, gradient: &mut Vec<f32>) -> f32 {
    let d = prototypes.len() / classes;
    let matrix = Matrix::new(prototypes, classes, d);
    let mut products = vec![0.0; classes * classes];
    product(1.0, matrix, matrix.transposed(), 0.0, &mut products, classes);
    let own: Vec<u32> = (0..classes as u32).collect();
    let mut slopes = Vec::new();
    let loss = cross_entropy(&products, &own, &mut slopes);
    gradient.clear();
    gradient.resize(prototypes.len(), 0.0);
    let slopes = Matrix::new(&slopes, classes, classes);
    product(1.0, slopes, matrix, 0.0, gradient, d);
    product(1.0, slopes.transposed(), matrix, 1.0, gradient, d);
    loss
}

#[cfg(test)]
mod tests;
