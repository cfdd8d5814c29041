//! A round and an update's part in it, as the server's half of an algorithm sees them.

use models::params::ParamSet;
use models::vectorised;

use crate::aggregation::{Clip, EmptySum, Private, Rule, Scale, Template, WeightedSum};
use crate::id::ClientId;
use crate::message::{Rejection, TrainReport, reason};
use crate::spec::RunSpec;

/// One round, as the server's half of an algorithm sees it.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// Its number, from 1.
    pub number: u32,
    /// Rounds of training before it that have failed.
    pub failed: u32,
    /// The run's specification.
    pub spec: &'a RunSpec,
    /// Names and shapes of the parameters that clients send.
    pub template: &'a Template,
    /// The fixed-point format agreed for this round's sums.
    pub scale: Scale,
    /// Clients that the server knows, K: those that it knew when the round opened, and those that have joined its cohort since.
    pub clients: usize,
    /// How its sum is made private, if it is.
    pub private: Option<Private<'a>>,
}

impl Round<'_> {
    /// The empty sum of this round's updates under the run's weights.
    #[must_use]
    pub fn sum(&self) -> WeightedSum {
        WeightedSum::new(self.template, self.scale, self.spec.aggregation.weights)
    }

    /// Adds an update that was checked to [such a sum](Self::sum), clipped if the run's rule says so. Says whether it counts, as
    /// [`WeightedSum::add`] does.
    ///
    /// # Panics
    /// As [`WeightedSum::add`].
    pub fn add(&self, sum: &mut WeightedSum, update: &ParamSet, weight: u64, loss: f64) -> bool {
        let noise = self.spec.device_noise.map(|noise| noise.clip(self.template));
        let private = self.private.map(|private| private.mechanism.clip(self.template));
        if let Some(clip) = noise.or(private) {
            return sum.add_clipped(update, weight, loss, clip);
        }
        match self.spec.aggregation.rule {
            Rule::ClippedMean { max_norm: bound } => {
                sum.add_clipped(update, weight, loss, Clip { bound, template: self.template })
            }
            _ => sum.add(update, weight, loss),
        }
    }

    /// Gives the mean of [such a sum](Self::sum) to `visit`, with its noise if the run is private:
    /// [`WeightedSum::each_mean`].
    pub fn each_mean(
        &self,
        sum: WeightedSum,
        visit: impl FnMut(&str, usize, &[f32]),
    ) -> Result<(), EmptySum> {
        if let Some(noise) = self.spec.device_noise {
            sum.each_share(noise.over.into(), visit);
            return Ok(());
        }
        match self.private {
            Some(private) => {
                sum.each_private_mean(private, self.number, visit);
                Ok(())
            }
            None => sum.each_mean(visit),
        }
    }

    /// The checks that every update of model shape must pass: layout, finite, bounded.
    pub fn check(&self, params: &ParamSet) -> Result<(), Rejection> {
        self.template.check(params).map_err(|mismatch| Rejection::Layout { reason: reason(&mismatch) })?;
        let limit = self.scale.max_abs();
        // One pass for the usual case: NaN and infinity fail this comparison too. In chunks without a way out, since a
        // loop that may end anywhere is not made into vector instructions.
        let bounded = |values: &[f32]| {
            vectorised(
                #[inline(always)]
                || values.iter().fold(true, |all, value| all & (value.abs() <= limit)),
            )
        };
        for (tensor, array) in params {
            if array.values().chunks(1024).all(bounded) {
                continue;
            }
            if array.values().iter().any(|value| !value.is_finite()) {
                return Err(Rejection::NotFinite { tensor: tensor.to_owned() });
            }
            let found = array.values().iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
            return Err(Rejection::TooLarge { tensor: reason(&tensor), found, limit });
        }
        Ok(())
    }
}

/// One client's part in a round.
#[derive(Clone, Debug)]
pub struct Contribution<U> {
    /// Who trained it.
    pub client: ClientId,
    /// Its integer weight under the run's [`Weights`](crate::aggregation::Weights).
    pub weight: u64,
    /// How the training went.
    pub report: TrainReport,
    /// What was trained.
    pub update: U,
}
