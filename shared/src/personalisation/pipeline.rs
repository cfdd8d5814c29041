//! The pipeline on a device: personalisation, stages 2 and 3, and its tests.

use std::borrow::Cow;
use std::ops::ControlFlow;

use models::{Architecture, Backend, Mode, ModelError, Network, ParamSet, Targets, argmax};

use super::features::{CHUNK, Features};
use super::fine_tune::FineTuning;
use super::gate::{Gate, Rows};
use super::mixture::{PersonalModel, gate_inputs, mixed, weights};
use super::scores::{Scores, Tally};
use super::split::LocalSplit;
use super::{PersonaliseError, Steps};
use crate::data::View;
use crate::id::ClientId;
use crate::message::{Fraction, Metric};
use crate::spec::personalisation::{Method, Personalisation, Reports};
use crate::spec::{RunSpec, Training};
use crate::task::Progress;

/// Whose model it is going to be.
#[derive(Clone, Copy, Debug)]
pub struct Device<'a> {
    /// The run.
    pub spec: &'a RunSpec,
    /// What it says of personalisation.
    pub settings: &'a Personalisation,
    /// The round in which it is done.
    pub round: u32,
    /// Who it is.
    pub client: ClientId,
    /// Its training samples, at least one.
    pub data: &'a View,
    /// Test samples, if it has any.
    pub test: Option<&'a View>,
    /// Where it trains.
    pub backend: &'a Backend,
}

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

/// The local experts and gates of all methods.
struct Experts {
    whole: Option<ParamSet>,
    head: Option<ParamSet>,
    /// Of MF and of MFE.
    gates: Vec<(Method, Gate)>,
}

impl Experts {
    /// Checks that all values are finite: the steps do not check what they have learned.
    fn check(&self, global: &ParamSet) -> Result<(), PersonaliseError> {
        let learned = [Some(global), self.whole.as_ref(), self.head.as_ref()];
        let tensor = learned.into_iter().flatten().find_map(ParamSet::first_non_finite);
        let gate = |(_, gate): &(Method, Gate)| {
            let (weights, bias) = gate.parts();
            bias.is_finite() && weights.iter().all(|weight| weight.is_finite())
        };
        match tensor {
            Some(tensor) => Err(PersonaliseError::Diverged { part: tensor.to_owned() }),
            None if self.gates.iter().all(gate) => Ok(()),
            None => Err(PersonaliseError::Diverged { part: "gate".to_owned() }),
        }
    }
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
    let (experts, means) = device.experts(global, &split, steps)?;
    if !settings.methods().is_empty() {
        experts.check(global)?;
    }
    let (global_scores, personal) = device.test(global, &experts, steps)?;
    let tested = personal.into_iter().map(|(method, scores)| {
        let gate = means.iter().find(|(of, _)| *of == method).map(|&(_, mean)| mean);
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
            gate: gates.into_iter().find(|(of, _)| *of == method).map(|(_, gate)| gate),
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
    /// The client's seed in this run for one purpose, the same in every round.
    fn seed(&self, label: &str) -> crate::seed::Seed {
        let seed = self.spec.root_seed().derive("personalisation");
        seed.derive_bytes("client", self.client.as_bytes()).derive(label)
    }

    /// The client's seed in this round.
    fn seed_now(&self, label: &str) -> crate::seed::Seed {
        self.seed(label).derive_numbered("round", u64::from(self.round))
    }

    fn wants(&self, wanted: impl Fn(Method) -> bool) -> bool {
        self.settings.methods().iter().any(|&method| wanted(method))
    }

    fn gated(&self) -> impl Iterator<Item = Method> + '_ {
        let methods = self.settings.methods().iter().copied();
        methods.filter(|method| matches!(method, Method::Mf | Method::Mfe))
    }

    fn course<'c>(&'c self, architecture: &'c models::Architecture, whole: bool) -> FineTuning<'c> {
        let tuning = if whole { self.settings.whole } else { self.settings.head };
        let (epochs, batch, optimizer) =
            (tuning.epochs, tuning.batch, models::Optimizer::from(tuning.sgd()).into());
        let training = Training { epochs, batch, optimizer, ..self.spec.training };
        FineTuning { architecture, training, backend: self.backend }
    }

    fn steps(&self, split: &LocalSplit) -> Result<u64, PersonaliseError> {
        let architecture = &self.spec.architecture;
        let course = |whole| self.course(architecture, whole).training.steps(split.expert.len() as u64);
        let mut total = if self.wants(Method::is_whole) { course(true) } else { 0 };
        if self.wants(|method| !method.is_whole()) {
            total += course(false);
        }
        let rows = split.gate.len() * architecture.predictions()?;
        Ok(total + self.gated().count() as u64 * self.settings.gate.steps(rows))
    }

    /// Stages 2 and 3; with the mean of each gate over its part.
    fn experts(
        &self,
        global: &ParamSet,
        split: &LocalSplit,
        steps: &mut Steps<'_>,
    ) -> Result<(Experts, Vec<(Method, f64)>), PersonaliseError> {
        let (spec, preparation) = (self.spec, &self.spec.data.preparation);
        let part = self.data.part(&split.expert);
        let mut experts = Experts { whole: None, head: None, gates: Vec::new() };
        if self.wants(Method::is_whole) {
            let seed = self.seed_now("whole");
            let augmentation = seed.derive("augmentation");
            let mut fill = |positions: &[usize], epoch: u32, x: &mut Vec<f32>, y: &mut Targets| {
                let seed = augmentation.derive_numbered("epoch", u64::from(epoch));
                preparation.training(&part, positions, &seed, x, y);
            };
            let course = self.course(&spec.architecture, true);
            experts.whole = Some(course.run(global, part.len(), &seed, steps, &mut fill)?);
        }
        if !self.wants(|method| !method.is_whole()) {
            return Ok((experts, Vec::new()));
        }
        let mut network = Network::new(&spec.architecture, global, self.backend)?;
        let classifier = spec.architecture.classifier()?;
        let mut start = global.select("projection.");
        start.insert_under("", global.select("head."));
        let features = Features::of(&mut network, preparation, &part, steps)?;
        let mut fill = |positions: &[usize], _: u32, x: &mut Vec<f32>, y: &mut Targets| {
            features.fill(positions, x, y);
        };
        let course = self.course(&classifier, false);
        let head = course.run(&start, part.len(), &self.seed_now("head"), steps, &mut fill)?;
        let mut means = Vec::new();
        if self.gated().next().is_some() {
            let part = self.data.part(&split.gate);
            let features = Features::of(&mut network, preparation, &part, steps)?;
            let rows = features.labels.len();
            let mut local = Network::new(&classifier, &head, self.backend)?;
            if rows > 0 {
                let shape = [&[part.len()], &features.shape[..]].concat();
                local.forward(&features.activations, &shape, Mode::Evaluation)?;
            }
            let (mut x, mut y) = (Vec::new(), Targets::default());
            for method in self.gated() {
                let width = gate_inputs(method, &spec.architecture)?.expect("it is one of those with a gate");
                let inputs = if method == Method::Mf {
                    let positions: Vec<usize> = (0..part.len()).collect();
                    preparation.evaluation(&part, &positions, &mut x, &mut y);
                    &x
                } else {
                    &features.activations
                };
                let rows = Rows {
                    inputs,
                    global: &features.logits,
                    local: if rows > 0 { local.logits() } else { &[] },
                    labels: features.labels.classes(),
                };
                let (settings, seed) = (self.settings, self.seed_now(method.name()));
                let gate =
                    Gate::learn(&rows, width, settings.mix, &settings.gate, &seed, &mut || steps.advance())?;
                if !rows.labels.is_empty() {
                    let open = inputs.chunks_exact(width.max(1)).map(|input| f64::from(gate.weigh(input)));
                    means.push((method, open.sum::<f64>() / rows.labels.len() as f64));
                }
                experts.gates.push((method, gate));
            }
        }
        experts.head = Some(head);
        Ok((experts, means))
    }

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
                let gate = experts.gates.iter().find(|(of, _)| of == method).map(|(_, gate)| gate);
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
