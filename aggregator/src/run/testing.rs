//! What is measured of the model that a round leaves: on the test samples, and on those that the server keeps to choose models by.

use models::{Evaluation, Measure};
use shared::algorithm::{Deployed, Global};
use tracing::warn;

use super::ensemble::Tested;
use super::leaves::Leaves;
use super::update_file::outcome;
use super::{OpenRound, Run, RunError, damaged, update_file};
use crate::data::TestSet;
use crate::ensemble::EnsembleError;
use crate::round::Criterion;

impl Run {
    /// How what would be used now does on the test set; `None` if there is nothing yet.
    pub(super) fn tested(
        &self,
        global: &Global,
        open: &OpenRound,
        tests: &TestSet,
        leaves: Option<&mut Box<dyn Leaves>>,
    ) -> Result<Option<Tested>, RunError> {
        if let Some(answering) = self.algorithm.ensemble() {
            let start = self.algorithm.current_model(global);
            return match self.test_ensemble(answering, start, tests) {
                // A client has sent a model that computes no numbers. The others are there all the same.
                Err(RunError::Ensemble(error @ EnsembleError::Features { .. })) => {
                    warn!("the ensemble is not tested: {error}");
                    Ok(None)
                }
                tested => tested,
            };
        }
        let evaluation = if let Some(deployed) = self.algorithm.personal() {
            self.deployed(&deployed, global, open, tests, leaves)?
        } else {
            Some(tests.evaluate(
                &self.config.spec.architecture,
                self.algorithm.current_model(global),
                &self.backend,
            )?)
        };
        let named = |(measure, value): (Measure, f64)| (measure.name().to_owned(), value);
        Ok(evaluation.map(|evaluation| {
            let metrics = evaluation.deviation.measures().into_iter().map(named).collect();
            Tested { evaluation, metrics }
        }))
    }

    /// The mean over the clients of this round, all alike, of what each of them would deploy; `None` without clients. One
    /// of their models at a time is in memory.
    fn deployed(
        &self,
        deployed: &Deployed<'_>,
        global: &Global,
        open: &OpenRound,
        tests: &TestSet,
        mut leaves: Option<&mut Box<dyn Leaves>>,
    ) -> Result<Option<Evaluation>, RunError> {
        let round = open.round(&self.config.spec, &self.template, self.failed, self.private());
        let limits = self.accepted();
        let mut sum = Evaluation::default();
        for &client in open.reports.keys() {
            let path = self.directory.accepted_update(round.number, client);
            let read = match &mut leaves {
                Some(leaves) => update_file::read(&mut &leaves.update(round.number, client)?[..], limits),
                None => outcome(update_file::read_from(&*self.files, &path, limits))?,
            };
            let checked = read.and_then(|(_, record)| self.algorithm.check(&round, record));
            let checked = checked.map_err(damaged(&path))?;
            let Some(params) = deployed(global, checked) else { continue };
            let evaluation = tests.evaluate(&self.config.spec.architecture, &params, &self.backend)?;
            sum = sum.merge(evaluation);
        }
        Ok((sum.samples > 0).then_some(sum))
    }

    /// How the model does on the samples that it may be chosen by, if there are any and a test is due.
    pub(super) fn validated(&self, global: &Global, due: bool) -> Result<Vec<(String, f64)>, RunError> {
        let Some(samples) = self.validation.as_ref().filter(|_| due) else { return Ok(Vec::new()) };
        let model = self.algorithm.current_model(global);
        let found = samples.evaluate(&self.config.spec.architecture, model, &self.backend)?;
        let named = |(criterion, value): (Criterion, f64)| {
            value.is_finite().then(|| (criterion.name().to_owned(), value))
        };
        let accuracy = found.accuracy.map(|accuracy| (Criterion::ValidationAccuracy, accuracy));
        let all = accuracy.into_iter().chain([(Criterion::ValidationLoss, found.loss)]);
        Ok(all.filter_map(named).collect())
    }
}
