//! What learning from samples without labels needs: copies that show the same, and what was predicted.

use models::pseudo_label;

use super::Client;
use crate::data::{Augmentation, Preparation};
use crate::message::Metric;
use crate::spec::DataSpec;

/// The run's preparation with these random changes in place of its own. Its padding and its crop, which is a network's size, stay.
pub(super) fn perturbed(run: &Preparation, changes: Augmentation) -> Preparation {
    let Augmentation { padding, random_crop, .. } = run.augmentation;
    let augmentation = Augmentation { padding, random_crop, ..changes };
    Preparation { augmentation, normalisation: run.normalisation.clone() }
}

/// Whether the samples can be perturbed in all these ways, or why the algorithm of this name cannot do so.
pub(super) fn suit(algorithm: &str, all: &[Preparation], data: &DataSpec) -> Result<(), String> {
    if data.shape.len() != 3 {
        return Err(format!("{algorithm} shifts and flips images, and these samples are none"));
    }
    match all.iter().find_map(|preparation| preparation.shape(&data.shape).err()) {
        Some(error) => Err(format!("the perturbations of {algorithm} do not suit the samples: {error}")),
        None => Ok(()),
    }
}

/// What was predicted in a round.
pub(super) struct Seen {
    samples: u64,
    passed: u64,
    /// By class.
    predicted: Vec<bool>,
    entropy: f64,
}

impl Seen {
    /// No predictions yet, of this number of classes.
    pub(super) fn of(classes: usize) -> Self {
        Self { samples: 0, passed: 0, predicted: vec![false; classes], entropy: 0.0 }
    }

    /// Takes note of the mean predictions of a batch; says which of them are sure enough.
    pub(super) fn look_at(&mut self, y_bar: &[f32], gate: f32) -> Vec<bool> {
        let classes = self.predicted.len();
        let look = |row: &[f32]| {
            let (class, greatest) = (0..).zip(row).fold(
                (0, f32::NEG_INFINITY),
                |best: (usize, f32), (at, &p)| {
                    if p > best.1 { (at, p) } else { best }
                },
            );
            self.samples += 1;
            self.predicted[class] = true;
            self.entropy += pseudo_label::entropy(row);
            let passes = greatest >= gate;
            self.passed += u64::from(passes);
            passes
        };
        y_bar.chunks_exact(classes).map(look).collect()
    }

    /// Adds what was seen to what the server is told.
    pub(super) fn report(&self, client: &mut Client<'_>) {
        if self.samples == 0 {
            return;
        }
        let (samples, classes) = (self.samples as f64, self.predicted.len() as f64);
        let predicted = self.predicted.iter().filter(|&&predicted| predicted).count();
        client.report(Metric::Coverage(self.passed as f64 / samples));
        client.report(Metric::ClassCoverage(predicted as f64 / classes));
        // Of one class there is nothing to be unsure of.
        client.report(Metric::Entropy(self.entropy / samples / classes.max(2.0).ln()));
    }
}
