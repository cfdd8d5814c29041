//! What a model and its helpers think of a batch.

use models::{Batch, Mode, ModelError, Network, pseudo_label};

/// Pseudo-labels by vote, and the helpers' predictions.
pub(super) struct Opinion {
    /// `[n, classes]`: 1 for the class that most models predict for a sample.
    pub(super) labels: Vec<f32>,
    /// `[n, classes]`: the mean of the helpers' predictions.
    mean: Vec<f32>,
    /// By sample, the mean of the entropies of the helpers' predictions; none if no helper has predicted numbers.
    entropies: Vec<Option<f64>>,
}

impl Opinion {
    /// What `helpers` say to what a model of one's `own` predicts, as probabilities `[n, classes]`. A helper that computes no
    /// numbers for a sample has no say in it.
    pub(super) fn of(
        batch: &Batch,
        own: &[f32],
        classes: usize,
        helpers: &mut [Network],
    ) -> Result<Self, ModelError> {
        let mut predictions = Vec::with_capacity(helpers.len());
        for helper in helpers {
            helper.forward(batch.x(), batch.shape(), Mode::Evaluation)?;
            let mut predicted = vec![0.0; own.len()];
            pseudo_label::add_probabilities(helper.logits(), classes, &mut predicted);
            predictions.push(predicted);
        }
        Ok(Self::among(own, classes, &predictions))
    }

    fn among(own: &[f32], classes: usize, helpers: &[Vec<f32>]) -> Self {
        let (mut labels, mut mean) = (vec![0.0; own.len()], vec![0.0; own.len()]);
        let mut entropies = Vec::with_capacity(own.len() / classes);
        let mut voters: Vec<&[f32]> = Vec::with_capacity(helpers.len());
        for (at, own) in own.chunks_exact(classes).enumerate() {
            let row = at * classes..(at + 1) * classes;
            let said = helpers.iter().map(|predicted| &predicted[row.clone()]);
            voters.clear();
            voters.extend(said.filter(|predicted| predicted.iter().all(|p| p.is_finite())));
            let others: Vec<usize> = voters.iter().map(|predicted| class(predicted)).collect();
            labels[row.start + majority(class(own), &others, classes)] = 1.0;
            let count = voters.len() as f32;
            for predicted in &voters {
                mean[row.clone()].iter_mut().zip(*predicted).for_each(|(mean, p)| *mean += p / count);
            }
            let entropy = voters.iter().map(|predicted| pseudo_label::entropy(predicted)).sum::<f64>();
            entropies.push((!voters.is_empty()).then(|| entropy / f64::from(count)));
        }
        Self { labels, mean, entropies }
    }

    /// `weight` times the mean over all samples of `(1/H) sum_j KL(helper_j || softmax(logits))`, to which only those that
    /// count contribute, and its gradient by the logits.
    pub(super) fn distance(&self, logits: &[f32], counts: &[bool], weight: f32, gradient: &mut [f32]) -> f32 {
        let counts: Vec<bool> = counts
            .iter()
            .zip(&self.entropies)
            .map(|(&counts, entropy)| counts && entropy.is_some())
            .collect();
        // The mean of the divergences is the cross-entropy with the mean prediction, but for what does not depend on logits.
        let cross_entropy = pseudo_label::soft_cross_entropy(logits, &self.mean, &counts, weight, gradient);
        let entropies = self.entropies.iter().zip(&counts).filter(|(_, counts)| **counts);
        let entropy: f64 = entropies.filter_map(|(entropy, _)| *entropy).sum();
        let divergence = weight * (f64::from(cross_entropy) - entropy / counts.len() as f64) as f32;
        // A difference: of models that agree it may be rounded to less than nothing. NaN stays.
        if divergence < 0.0 { 0.0 } else { divergence }
    }
}

/// The class with the greatest probability, the first of equal ones.
fn class(predicted: &[f32]) -> usize {
    let better = |best: usize, at: usize| if predicted[at] > predicted[best] { at } else { best };
    (1..predicted.len()).fold(0, better)
}

/// What most predict; one's own prediction if as many predict that, or the first of several classes.
fn majority(own: usize, others: &[usize], classes: usize) -> usize {
    let votes =
        |class: usize| others.iter().filter(|&&other| other == class).count() + usize::from(own == class);
    (0..classes).fold(own, |most, class| if votes(class) > votes(most) { class } else { most })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_are_counted_and_a_draw_is_ones_own() {
        for (own, others, expected) in [
            (2, &[][..], 2),
            (2, &[1], 2),
            (2, &[1, 1], 1),
            (2, &[1, 0], 2),
            (2, &[1, 2], 2),
            (2, &[1, 1, 2], 2),
            (3, &[1, 1, 2, 2], 1),
        ] {
            assert_eq!(majority(own, others, 4), expected, "{own} and {others:?}");
        }
    }

    fn equal(found: &[f32], expected: &[f32]) -> bool {
        found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6)
    }

    #[test]
    fn helpers_without_numbers_have_no_say() {
        let own = [0.9, 0.1, 0.2, 0.8];
        let broken = vec![f32::NAN, 1.0, 0.6, 0.4];
        let other = vec![0.3, 0.7, 0.9, 0.1];
        let opinion = Opinion::among(&own, 2, &[broken, other]);
        // One against one in the first row, two against one in the second.
        assert!(equal(&opinion.labels, &[1.0, 0.0, 1.0, 0.0]), "{:?}", opinion.labels);
        assert!(equal(&opinion.mean, &[0.3, 0.7, 0.75, 0.25]), "{:?}", opinion.mean);
        let nobody = Opinion::among(&own, 2, &[vec![f32::NAN; 4]]);
        assert!(nobody.entropies.iter().all(Option::is_none) && equal(&nobody.labels, &[1.0, 0.0, 0.0, 1.0]));
    }

    #[test]
    fn agreement_is_no_distance_at_all_and_never_less() {
        for seed in 0..100_u16 {
            let logits = [0, 1, 2].map(|at| (f32::from(seed) * 0.37 + at as f32 * 1.7).sin() * 4.0);
            let mut agreed = vec![0.0; 3];
            pseudo_label::add_probabilities(&logits, 3, &mut agreed);
            let opinion = Opinion::among(&agreed, 3, &[agreed.clone(), agreed.clone()]);
            let found = opinion.distance(&logits, &[true], 1.0, &mut [0.0; 3]);
            assert!((0.0..1e-5).contains(&found), "{logits:?}: {found}");
        }
        let opinion = Opinion::among(&[0.5, 0.5], 2, &[vec![0.5, 0.5]]);
        assert!(opinion.distance(&[f32::NAN, 0.0], &[true], 1.0, &mut [0.0; 2]).is_nan());
    }

    /// The divergence and its gradient, held against the definition and against differences of it.
    #[test]
    fn the_distance_is_the_mean_divergence() {
        let helpers = [vec![0.5_f32, 0.3, 0.2, 0.1, 0.1, 0.8], vec![0.2, 0.2, 0.6, 1.0, 0.0, 0.0]];
        let opinion = Opinion::among(&[0.4, 0.3, 0.3, 0.4, 0.3, 0.3], 3, &helpers);
        let logits = [0.3_f32, -0.2, 0.9, 1.1, 0.0, -0.4];
        let (counts, weight) = ([true, false], 0.7_f32);
        let softmax = |row: &[f32]| {
            let total: f64 = row.iter().map(|&z| f64::from(z).exp()).sum();
            row.iter().map(|&z| f64::from(z).exp() / total).collect::<Vec<f64>>()
        };
        let divergence = |logits: &[f32]| {
            let p = softmax(&logits[..3]);
            let one = |h: &Vec<f32>| -> f64 {
                h[..3].iter().zip(&p).map(|(&h, p)| f64::from(h) * (f64::from(h) / p).ln()).sum()
            };
            f64::from(weight) * helpers.iter().map(one).sum::<f64>() / 2.0 / 2.0
        };
        let mut gradient = [9.0; 6];
        let found = opinion.distance(&logits, &counts, weight, &mut gradient);
        assert!((f64::from(found) - divergence(&logits)).abs() < 1e-6);
        for at in 0..3 {
            let moved = |by: f32| {
                let mut logits = logits;
                logits[at] += by;
                divergence(&logits)
            };
            let slope = (moved(1e-3) - moved(-1e-3)) / 2e-3;
            assert!((f64::from(gradient[at]) - slope).abs() < 1e-4 && slope.abs() > 1e-3, "{at}");
        }
        assert!(equal(&gradient[3..], &[0.0; 3]), "it does not count");
    }
}
