//! Measurements of local training beside the loss, for every algorithm: those that [`Measures`](crate::spec::Measures) asks for, none
//! by default.
//!
//! MOON's paper argues with the first (Li et al. 2021, section 3.2), FedProx's with the second (Li et al. 2020, section 3.2).
//! Either costs time that counts as training.

use models::params::ParamSet;
use models::{Batch, Network, Targets, mean_cosine};

use super::{Client, TrainError};
use crate::message::Metric;

/// Samples that representations are compared on: a measurement, which may cost little beside the training.
const SAMPLES: usize = 256;

impl Client<'_> {
    /// If it is wanted: the mean cosine between the representations by `w_k` and by the model that training started from, over
    /// the device's first samples as they are for a test. A model without a projection is represented by its features.
    pub(super) fn measure_alignment(&mut self, w_k: &ParamSet, w_t: &ParamSet) -> Result<(), TrainError> {
        let spec = self.spec;
        if !spec.training.measure.alignment {
            return Ok(());
        }
        let data = self.data;
        let positions: Vec<usize> = (0..data.len().min(SAMPLES)).collect();
        let (mut x, mut y) = (Vec::new(), Targets::default());
        spec.data.preparation.evaluation(data, &positions, &mut x, &mut y);
        let shape = [&[positions.len()], &spec.architecture.input[..]].concat();
        // Representations need no labels.
        let batch = Batch::unlabelled(x, shape)?;
        let network = |w: &ParamSet| Network::new(&spec.architecture, w, self.device);
        let (mut local, mut global) = (network(w_k)?, network(self.start(w_t)?.as_ref())?);
        let cosine = mean_cosine(local.represent(&batch)?, global.represent(&batch)?, batch.len());
        self.report(Metric::Alignment(cosine));
        Ok(())
    }

    /// If it is wanted: the Euclidean length of what is sent, `||w_k - w_t||`.
    pub(super) fn measure_drift(&mut self, delta: &ParamSet) {
        if self.spec.training.measure.drift {
            self.report(Metric::Drift(delta.l2_norm()));
        }
    }
}
