//! The pipeline on a device: personalisation, stages 2 and 3, and its tests.

use std::borrow::Cow;
use std::ops::ControlFlow;

use models::{Architecture, Mode, ModelError, Network, ParamSet, argmax};

use super::device::Device;
use super::experts::Experts;
use super::features::CHUNK;
use super::mixture::{PersonalModel, mixed, weights};
use super::scores::{Scores, Tally};
use super::split::LocalSplit;
use super::{PersonaliseError, Steps};
use crate::message::{Fraction, Metric};
use crate::spec::personalisation::{Method, Reports};
use crate::task::Progress;

/// What a personalisation leaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// For the device: the model of the first method, if there is one.
    pub model: Option<PersonalModel>,
    /// For the device: what was learned from.
    pub split: LocalSplit,
    /// The tests of the global model.
    pub global: Scores,
    /// The tests of each method's model, in the order of the methods.
    pub personal: Vec<Tested>,
}

/// The measurements of one method's model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tested {
    /// The method.
    pub method: Method,
    /// Both tests.
    pub scores: Scores,
    /// The mean weight of the global expert over the gate's part of the device's samples, if a gate has learned from any.
    pub gate: Option<f64>,
}

/// Makes a device's personal models from the global one, and tests them and the global one; without a method that alone. `monitor` hears of every step and may break to
/// cancel.
///
/// # Errors
/// [`PersonaliseError`]; the global model is untouched.
pub fn personalise(
    device: &Device<'_>,
    global: &ParamSet,
    monitor: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Outcome, PersonaliseError> {
    let Device { spec, settings, data, .. } = *device;
    for view in [Some(data), device.test].into_iter().flatten() {
        let (expected, found) = (&spec.architecture.input, spec.data.preparation.shape(view.shape())?);
        if *expected != found {
            return Err(ModelError::Input { expected: expected.clone(), found }.into());
        }
    }
    Method::tells_classes_apart(&spec.architecture)?;
    for method in settings.methods() {
        method.fits(&spec.architecture)?;
    }
    let split = LocalSplit::draw(data.len(), settings.expert_share, &device.seed("split"));
    let progress = Progress { round: Some(device.round), done: 0, total: device.steps(&split)? };
    let steps = &mut Steps { progress, monitor };
    let experts = device.experts(global, &split, steps)?;
    if !settings.methods().is_empty() {
        experts.check(global)?;
    }
    let (global_scores, personal) = device.test(global, &experts, steps)?;
    let tested = personal.into_iter().map(|(method, scores)| {
        let gate = experts.gate(method).and_then(|learned| learned.mean);
        Tested { method, scores, gate }
    });
    let personal = tested.collect();
    let Experts { whole, head, gates } = experts;
    let model = settings.methods().first().map(|&method| -> Result<_, PersonaliseError> {
        let local =
            if method.is_whole() { whole } else { head }.expect("the expert of every method was made");
        let composed = |architecture: &Architecture, learned: &ParamSet| {
            architecture.compose(learned).map(Cow::into_owned).map_err(ModelError::from)
        };
        // Frozen parameters are a part of it: it answers where nothing of the run is.
        let local_of =
            if method.is_whole() { spec.architecture.clone() } else { spec.architecture.classifier()? };
        Ok(PersonalModel {
            method,
            mix: settings.mix,
            architecture: spec.architecture.unfrozen(),
            global: composed(&spec.architecture, global)?,
            local: composed(&local_of, &local)?,
            gate: gates.into_iter().find(|learned| learned.method == method).map(|learned| learned.gate),
        })
    });
    let model = model.transpose()?;
    Ok(Outcome { model, split, global: global_scores, personal })
}

impl Outcome {
    /// What of the measurements may leave the device.
    pub fn measured(&self, report: &Reports) -> impl Iterator<Item = Metric> {
        let tests = |subject, Scores { local, global }: Scores| {
            let local = local.filter(|_| report.local_test).map(Fraction::of);
            let global = global.filter(|_| report.global_test).map(Fraction::of);
            let any = local.is_some() || global.is_some();
            any.then_some(Metric::Tests(subject, local, global))
        };
        let mut all: Vec<_> = tests(None, self.global).into_iter().collect();
        for tested in &self.personal {
            all.extend(tests(Some(tested.method), tested.scores));
            let gate = tested.gate.filter(|_| report.gate);
            all.extend(gate.map(|mean| Metric::Gate(tested.method, mean)));
        }
        all.into_iter()
    }
}

impl Device<'_> {
    /// Both tests of the global model and of every method's.
    fn test(
        &self,
        global: &ParamSet,
        experts: &Experts,
        steps: &mut Steps<'_>,
    ) -> Result<(Scores, Vec<(Method, Scores)>), PersonaliseError> {
        let methods = self.settings.methods();
        let none = |&method: &Method| (method, Scores::default());
        let Some(test) = self.test.filter(|test| !test.is_empty()) else {
            return Ok((Scores::default(), methods.iter().map(none).collect()));
        };
        let architecture = &self.spec.architecture;
        let network = |params| Network::new(architecture, params, self.backend);
        let classifier = architecture.classifier()?;
        let mut global = network(global)?;
        let mut whole = experts.whole.as_ref().map(network).transpose()?;
        let head = experts.head.as_ref();
        let mut head = head.map(|head| Network::new(&classifier, head, self.backend)).transpose()?;
        let mut tally = Tally::new(architecture.classes);
        let mut tallies: Vec<_> = methods.iter().map(|&method| (method, tally.clone())).collect();
        let positions: Vec<usize> = (0..test.len()).collect();
        for chunk in positions.chunks(CHUNK) {
            let batch = self.spec.data.preparation.batch(test, chunk, &architecture.input)?;
            global.check_labels(&batch)?;
            global.forward(batch.x(), batch.shape(), Mode::Evaluation)?;
            if let Some(whole) = &mut whole {
                whole.forward(batch.x(), batch.shape(), Mode::Evaluation)?;
            }
            if let Some(head) = &mut head {
                let shape = [&[batch.len()], &classifier.input[..]].concat();
                head.forward(global.features(), &shape, Mode::Evaluation)?;
            }
            count(&mut tally, batch.y(), global.logits());
            for (method, tally) in &mut tallies {
                let local = if method.is_whole() { &whole } else { &head };
                let local = local.as_ref().expect("the expert of every method was made").logits();
                let gate = experts.gate(*method).map(|learned| &learned.gate);
                let weights = weights(*method, gate, batch.x(), global.features(), batch.y().len());
                count(tally, batch.y(), &mixed(self.settings.mix, &weights, global.logits(), local));
            }
            steps.check()?;
        }
        let histogram = self.data.histogram();
        let personal = tallies.into_iter().map(|(method, tally)| (method, tally.scores(&histogram)));
        Ok((tally.scores(&histogram), personal.collect()))
    }
}

/// Counts rows of logits or of probabilities.
fn count(tally: &mut Tally, labels: &[u32], scores: &[f32]) {
    for (&label, row) in labels.iter().zip(scores.chunks_exact(scores.len() / labels.len())) {
        tally.count(label, argmax(row) as u32);
    }
}
