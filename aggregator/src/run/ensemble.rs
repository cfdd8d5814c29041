//! Members instead of a mean: the ensemble that a run's clients become.
//!
//! When a round closes, its accepted updates join `ensemble.safetensors`, or take the place of what their clients had in it.
//! To do that twice is to do it once, so that a process that dies on the way changes nothing: the round is closed again, and
//! the same updates give the same file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use models::params::codec::TensorStream;
use models::{Evaluation, ParamSet};
use shared::algorithm::Answering;
use shared::id::ClientId;
use shared::message::{TrainReport, reason};

use super::error::disk;
use super::{Run, RunError, update_file};
use crate::coordinator::Opening;
use crate::data::TestSet;
use crate::ensemble::{
    Bundle, EnsembleError, Manifest, Member, Origin, Question, Source, Values, digest, write,
};
use crate::storage::{FileLayer, Reading};

/// Values that are read of an update at once.
const CHUNK: usize = 1 << 14;

/// How what would be used now does; of an ensemble also how it would do otherwise, by name.
pub(super) struct Tested {
    pub(super) evaluation: Evaluation,
    pub(super) metrics: BTreeMap<String, f64>,
}

/// An accepted update: the difference to the start.
struct Update<'a> {
    files: &'a dyn FileLayer,
    path: PathBuf,
    max_payload: u64,
    start: &'a ParamSet,
}

impl Update<'_> {
    fn failed(&self, reason: &dyn std::fmt::Display) -> EnsembleError {
        EnsembleError::Update { path: self.path.clone(), reason: reason.to_string() }
    }

    fn open(&self) -> Result<TensorStream<Reading>, EnsembleError> {
        update_file::tensors(self.files, &self.path, self.max_payload).map_err(|reason| self.failed(&reason))
    }

    /// Whether it brings a model. A client that is a member already sends a word.
    fn is_model(&self) -> Result<bool, EnsembleError> {
        Ok(self.open()?.tensors().next().is_some())
    }
}

impl Origin for Update<'_> {
    fn pass(&self, visit: &mut Values<'_>) -> Result<(), EnsembleError> {
        let (mut stream, mut values) = (self.open()?, Vec::new());
        loop {
            let next = stream.next(CHUNK, &mut values).map_err(|error| self.failed(&reason(&error)))?;
            let Some((tensor, offset)) = next.map(|(tensor, offset)| (tensor.to_owned(), offset)) else {
                return Ok(());
            };
            let start = self.start.get(&tensor).and_then(|array| array.values().get(offset..));
            let start =
                start.ok_or_else(|| self.failed(&format!("the start has no such values of {tensor}")))?;
            values.iter_mut().zip(start).for_each(|(value, start)| *value += start);
            visit(&tensor, &values)?;
        }
    }
}

impl Run {
    /// Adds the models among a round's updates to the ensemble.
    pub(super) fn extend_ensemble(
        &self,
        answering: Answering,
        start: &ParamSet,
        opening: &Opening,
        reports: &BTreeMap<ClientId, TrainReport>,
    ) -> Result<(), RunError> {
        let bundle = self.bundle()?;
        // Its values are copied under a new checksum.
        bundle.as_ref().map_or(Ok(()), Bundle::verify)?;
        let mut members: BTreeMap<ClientId, Source<'_>> =
            bundle.iter().flat_map(Bundle::sources).map(|source| (source.0.client, source)).collect();
        let mut came = false;
        for (&client, report) in reports {
            let (files, path) = (&*self.files, self.directory.accepted_update(opening.round, client));
            let update = Update { files, path, max_payload: self.max_payload(), start };
            if update.is_model()? {
                let samples = opening.sample_cap.of(report.samples);
                let member = Member { client, samples, run: self.config.spec.name.clone() };
                members.insert(client, (member, Box::new(update)));
                came = true;
            }
        }
        if !came {
            return Ok(());
        }
        let spec = &self.config.spec;
        let manifest = Manifest {
            architecture: spec.architecture.clone(),
            data: spec.data.clone(),
            answering,
            noise_seed: spec.seed,
            weights: spec.aggregation.weights,
            start: digest(start),
            members: Vec::new(),
        };
        let members: Vec<_> = members.into_values().collect();
        Ok(write(&*self.files, &self.directory.ensemble(), &manifest, &members)?)
    }

    /// The ensemble as it is, if there is one.
    pub fn bundle(&self) -> Result<Option<Bundle>, RunError> {
        let path = self.directory.ensemble();
        if self.files.length(&path).map_err(disk("look at", &path))?.is_none() {
            return Ok(None);
        }
        Ok(Some(Bundle::open(self.files.clone(), &path)?))
    }

    /// How the ensemble does, and how it would do otherwise: by every fusion of its members, and its best member alone; and how far its
    /// members, which have learned from `start`, are from saying the same, if that is asked for. `None` as long as there is no ensemble.
    pub(super) fn test_ensemble(
        &self,
        answering: Answering,
        start: &ParamSet,
        tests: &TestSet,
    ) -> Result<Option<Tested>, RunError> {
        let Some(bundle) = self.bundle()? else { return Ok(None) };
        let question = Question { fusions: answering.head.fusions(), ..tests.question() };
        let (by, members) = bundle.evaluate(&question)?;
        let share = |evaluation: &Evaluation| evaluation.accuracy.unwrap_or_default();
        let mut metrics: BTreeMap<String, f64> =
            by.iter().map(|(fusion, evaluation)| (format!("fused-{fusion}"), share(evaluation))).collect();
        let alone = members.iter().map(share);
        metrics.insert("best-member".to_owned(), alone.clone().fold(0.0, f64::max));
        metrics.insert("mean-member".to_owned(), alone.sum::<f64>() / members.len() as f64);
        metrics.insert("members".to_owned(), members.len() as f64);
        if self.config.spec.evaluate.inconsistency {
            metrics.extend(bundle.inconsistency(&question, start)?.metrics());
        }
        Ok(by.get(&answering.fusion).map(|&evaluation| Tested { evaluation, metrics }))
    }
}
