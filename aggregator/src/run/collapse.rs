//! Collapse detection: a model that learns from its own predictions ends up predicting few classes for all inputs.
//!
//! After each round the global model predicts some of the server's labelled samples, of which there are equally many of each
//! class, or of some classes one and of the others none. Looked at is how many classes it names at all, of as many as are among
//! them, and how unsure it is; whether it is right is not.

use models::{Architecture, Backend, Batch, Network, ParamSet, Targets, predict, pseudo_label};
use shared::data::{Preparation, View};

use super::RunError;
use crate::round::RoundRecord;

/// Number of samples that are predicted, or [`OF_EACH_CLASS`] times the classes if that is more.
const SAMPLES: usize = 256;
const OF_EACH_CLASS: usize = 16;
/// A model that names no larger share of the classes that it is shown has collapsed...
const FEW: f64 = 0.5;
/// ...if it has named twice as many before, or this many rounds are over. A model that has learned nothing yet names few.
const BEGINNING: u32 = 5;

/// The names of the two measurements in a round's record.
const CLASS_COVERAGE: &str = "global-class-coverage";
const ENTROPY: &str = "global-entropy";

/// What a model predicts, whether or not it is right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outlook {
    /// How many classes it names for any sample, as a share of the classes that the samples are of; 1 if it names more.
    pub(super) class_coverage: f64,
    /// The mean entropy of its predictions, as a share of the greatest possible.
    pub(super) entropy: f64,
}

impl Outlook {
    /// What `params` makes of these samples.
    pub(super) fn of(
        samples: &View,
        preparation: &Preparation,
        architecture: &Architecture,
        params: &ParamSet,
        batch: usize,
    ) -> Result<Self, RunError> {
        let mut network = Network::new(architecture, params, &Backend::cpu())?;
        let classes = architecture.classes;
        let count = samples.len().min(SAMPLES.max(OF_EACH_CLASS * classes));
        // Evenly spread over the samples, which need not be in any order.
        let positions: Vec<usize> = (0..count).map(|at| at * samples.len() / count).collect();
        let (mut shown, mut named, mut entropy) = (vec![false; classes], vec![false; classes], 0.0);
        let (mut x, mut y) = (Vec::new(), Targets::default());
        for positions in positions.chunks(batch.max(1)) {
            preparation.evaluation(samples, positions, &mut x, &mut y);
            for &label in y.classes() {
                shown[label as usize] = true;
            }
            let shape = [&[positions.len()], &architecture.input[..]].concat();
            let batch = Batch::unlabelled(std::mem::take(&mut x), shape).map_err(|error| {
                RunError::Damaged { path: "the labelled samples".into(), reason: error.to_string() }
            })?;
            for prediction in predict(&mut network, &batch)? {
                named[prediction.class as usize] = true;
                entropy += pseudo_label::entropy(&prediction.probabilities);
            }
        }
        let [shown, named] = [shown, named].map(|classes| classes.iter().filter(|&&there| there).count());
        Ok(Self {
            class_coverage: named.min(shown) as f64 / shown.max(1) as f64,
            // Of one class there is nothing to be unsure of.
            entropy: entropy / count as f64 / (classes as f64).max(2.0).ln(),
        })
    }

    /// Writes it into the record of its round, and there whether this is a collapse after the rounds before.
    pub(super) fn note(self, record: &mut RoundRecord, before: &[RoundRecord]) {
        let known = before.iter().filter_map(|record| record.metrics.get(CLASS_COVERAGE));
        let most = known.copied().fold(0.0, f64::max);
        let few = self.class_coverage <= FEW;
        record.collapsed = few && (most >= 2.0 * self.class_coverage || record.round >= BEGINNING);
        record.metrics.insert(CLASS_COVERAGE.to_owned(), self.class_coverage);
        // A diverged model's predictions are no distribution, and a record holds numbers.
        if self.entropy.is_finite() {
            record.metrics.insert(ENTROPY.to_owned(), self.entropy);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use models::Array;
    use shared::data::Dataset;

    use super::*;

    /// A linear model with these biases and weights of this much in the diagonal, and samples that light up one pixel each.
    fn outlook(bias: [f32; 4], diagonal: f32) -> Outlook {
        shown(&[0, 1, 2, 3], bias, diagonal)
    }

    /// The same of these samples alone.
    fn shown(samples: &[u32], bias: [f32; 4], diagonal: f32) -> Outlook {
        let architecture = Architecture::by_name("linear", &[1, 2, 2], 4).expect("built in");
        let mut params = ParamSet::new();
        let weight = (0..16).map(|at| if at % 5 == 0 { diagonal } else { 0.0 }).collect();
        params.insert("head.fc.weight", Array::new([4, 4], weight).expect("one shape"));
        params.insert("head.fc.bias", Array::new([4], bias.to_vec()).expect("one shape"));
        let pixels = (0..16).map(|at| if at % 5 == 0 { 255 } else { 0 }).collect();
        let dataset = Dataset::new(vec![1, 2, 2], pixels, [0_u8, 1, 2, 3], 4).expect("four samples");
        let view = View::whole(Arc::new(dataset));
        let view = view.part(samples);
        Outlook::of(&view, &Preparation::default(), &architecture, &params, 3).expect("a model that fits")
    }

    #[test]
    fn a_model_that_names_one_class_is_seen_whatever_its_entropy() {
        let sees = outlook([0.0; 4], 50.0);
        assert!((sees.class_coverage - 1.0).abs() < 1e-12 && sees.entropy < 1e-6, "{sees:?}");
        let blind = outlook([0.1, 0.0, 0.0, 0.0], 0.0);
        assert!((blind.class_coverage - 0.25).abs() < 1e-12 && blind.entropy > 0.99, "{blind:?}");
        let sure = outlook([100.0, 0.0, 0.0, 0.0], 1.0);
        assert!((sure.class_coverage - 0.25).abs() < 1e-12 && sure.entropy < 1e-6, "{sure:?}");
    }

    #[test]
    fn classes_that_the_samples_are_not_of_are_not_missed() {
        for few in [&[2][..], &[1, 3], &[3, 0, 3, 3]] {
            let sees = shown(few, [0.0; 4], 50.0);
            assert!((sees.class_coverage - 1.0).abs() < 1e-12, "{few:?}: {sees:?}");
        }
        let blind = shown(&[1, 3], [0.1, 0.0, 0.0, 0.0], 0.0);
        assert!((blind.class_coverage - 0.5).abs() < 1e-12, "{blind:?}");
        // Of a single class nothing can be said.
        let wild = shown(&[0, 0], [0.0, 1.0, 0.0, 0.0], 0.0);
        assert!((wild.class_coverage - 1.0).abs() < 1e-12, "{wild:?}");
    }

    #[test]
    fn a_collapse_is_a_fall_or_a_failure_to_rise() {
        let course = |coverages: &[f64]| -> Vec<bool> {
            let mut records: Vec<RoundRecord> = Vec::new();
            for (round, &class_coverage) in (1..).zip(coverages) {
                let mut record = RoundRecord { round, ..RoundRecord::default() };
                Outlook { class_coverage, entropy: 0.5 }.note(&mut record, &records);
                assert_eq!(record.metrics.len(), 2);
                records.push(record);
            }
            records.iter().map(|record| record.collapsed).collect()
        };
        assert_eq!(course(&[0.1, 0.2, 0.3, 0.8, 0.9, 0.6]), [false; 6], "a beginning is none");
        assert_eq!(course(&[0.1, 0.9, 0.2, 0.9]), [false, false, true, false]);
        assert_eq!(course(&[0.3, 0.3, 0.3, 0.3, 0.3]), [false, false, false, false, true]);
    }
}
