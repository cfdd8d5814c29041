//! Mixtures of the final models of two runs: `theta a + (1 - theta) b` (`McMahan` et al. 2017, figure 1).
//!
//! Nothing is trained here. A pair consists of a variant's runs with one seed and the next in the experiment's list: seeds
//! 1 and 2, 3 and 4. The variant decides with `model.seed` whether both begin from the same initial parameters.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use models::{Backend, ModelFileError, ParamSet};
use serde::Serialize;
use shared::data::{DataError, Split, View};

use super::experiment::Interpolation;
use super::plan::{Plan, Planned};
use crate::data;
use crate::data::TestSet;
use crate::run::RunError;

/// The mixtures of one pair of models.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mixture {
    /// The variant in its cell, and the seeds.
    pub name: String,
    /// The samples that the loss is measured on: `training` or `test`.
    pub on: &'static str,
    /// In the order of theta.
    pub points: Vec<Mixed>,
    /// The loss of the model at theta = 0, at 1/2 and at 1.
    pub parents: [f64; 3],
}

/// One mixture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mixed {
    /// The weight of the first model.
    pub theta: f64,
    /// Mean loss, the cross-entropy in nats for classification.
    pub loss: f64,
    /// Accuracy, in `[0, 1]`; `None` where numbers are predicted.
    pub accuracy: Option<f64>,
}

/// Why models cannot be mixed.
#[derive(Debug, thiserror::Error)]
pub enum MixError {
    /// A model cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// The error.
        source: ModelFileError,
    },
    /// A file cannot be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The two runs have different networks.
    #[error("the models of {0} cannot be mixed: {1}")]
    Different(String, models::params::Mismatch),
    /// There is no data to test on.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The mixture cannot be tested.
    #[error(transparent)]
    Test(#[from] RunError),
}

/// `theta a + (1 - theta) b`, tensor by tensor.
pub fn mixed(a: &ParamSet, b: &ParamSet, theta: f64) -> Result<ParamSet, models::params::Mismatch> {
    // 1 - theta in f64: the weights then sum to one as closely as f32 allows.
    let mut mixture = a.clone();
    mixture.scale(theta as f32);
    mixture.add_scaled((1.0 - theta) as f32, b)?;
    Ok(mixture)
}

/// The mixtures of all pairs of complete runs. `counts` says of each planned run whether it belongs to the experiment as it is now.
pub fn mixtures(
    plan: &Plan,
    how: Interpolation,
    runs: &Path,
    counts: &[bool],
) -> Result<Vec<Mixture>, MixError> {
    let mut found = Vec::new();
    let planned: Vec<(&Planned, bool)> = {
        let runs = plan.runs.iter().zip(counts.iter().copied());
        runs.filter(|(run, _)| plan.counts(run)).collect()
    };
    for pair in planned
        .chunk_by(|(a, _), (b, _)| (a.cell, a.variant) == (b.cell, b.variant))
        .flat_map(|of| of.chunks_exact(2))
    {
        let done =
            |run: &Planned| run.directory(runs).finished().exists() && run.directory(runs).model().exists();
        if !pair.iter().all(|&(run, counts)| counts && done(run)) {
            continue;
        }
        let [first, second] = [pair[0].0, pair[1].0];
        let name =
            format!("{}, seeds {} and {}", plan.name(first.cell, first.variant), first.seed, second.seed);
        let (a, b) = (read(first, runs)?, read(second, runs)?);
        let split = if how.train { Split::Train } else { Split::Test };
        let view = View::whole(Arc::new(data::load(&first.config, split)?));
        let config = &first.config;
        let preparation = config.spec.data.preparation.clone();
        let tests = TestSet::new(view, preparation, (config.spec.evaluate.batch as usize).max(500));
        let at = |theta: f64| -> Result<Mixed, MixError> {
            let mixture = mixed(&a, &b, theta).map_err(|error| MixError::Different(name.clone(), error))?;
            let tested = tests
                .evaluate(&config.spec.architecture, &mixture, &Backend::cpu())
                .map_err(RunError::from)?;
            Ok(Mixed { theta, loss: tested.loss, accuracy: tested.accuracy })
        };
        let steps = how.steps.max(2);
        let theta = |step: u32| how.from + (how.to - how.from) * f64::from(step) / f64::from(steps - 1);
        let points = (0..steps).map(|step| at(theta(step))).collect::<Result<_, _>>()?;
        let parents = [at(0.0)?.loss, at(0.5)?.loss, at(1.0)?.loss];
        found.push(Mixture { name, on: if how.train { "training" } else { "test" }, points, parents });
    }
    Ok(found)
}

fn read(run: &Planned, runs: &Path) -> Result<ParamSet, MixError> {
    let path = run.directory(runs).model();
    let mut file = File::open(&path).map_err(|source| MixError::Open { path: path.clone(), source })?;
    let read = models::read_model(&mut file);
    read.map(|(_, params, _)| params).map_err(|source| MixError::Model { path, source })
}

/// `mixtures.csv`: one line for each mixture.
#[must_use]
pub fn csv(mixtures: &[Mixture]) -> String {
    let line = |mixture: &Mixture, point: &Mixed| {
        let accuracy = point.accuracy.map(|share| share.to_string()).unwrap_or_default();
        format!("\"{}\",{},{},{accuracy}\n", mixture.name, point.theta, point.loss)
    };
    let lines =
        mixtures.iter().flat_map(|mixture| mixture.points.iter().map(move |point| line(mixture, point)));
    std::iter::once("pair,theta,loss,accuracy\n".to_owned()).chain(lines).collect()
}

#[cfg(test)]
mod tests {
    use models::Array;

    use super::*;

    #[test]
    fn a_mixture_lies_between_its_parents() {
        let set = |values: &[f32]| -> ParamSet {
            let mut set = ParamSet::new();
            set.insert("w", Array::new(vec![values.len()], values.to_vec()).expect("one axis"));
            set
        };
        let (a, b) = (set(&[1.0, -2.0]), set(&[3.0, 0.5]));
        let at = |theta| mixed(&a, &b, theta).expect("the same layout");
        assert_eq!((at(1.0), at(0.0), at(0.5)), (a.clone(), b.clone(), set(&[2.0, -0.75])));
        assert!(mixed(&a, &set(&[1.0]), 0.5).is_err());
    }
}
