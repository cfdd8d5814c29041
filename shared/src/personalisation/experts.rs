//! Stages 2 and 3 on a device: the local experts and the gates that its methods ask for.

use models::{Architecture, Mode, Network, ParamSet, Targets};

use super::device::Device;
use super::features::Features;
use super::fine_tune::{Fill, FineTuning};
use super::gate::{Gate, GateCourse, Rows};
use super::mixture::gate_inputs;
use super::split::LocalSplit;
use super::{PersonaliseError, Steps};
use crate::data::{Preparation, View};
use crate::seed::Seed;
use crate::spec::Training;
use crate::spec::personalisation::Method;

/// The local experts and gates of all methods.
pub(super) struct Experts {
    pub(super) whole: Option<ParamSet>,
    pub(super) head: Option<ParamSet>,
    /// Of MF and of MFE.
    pub(super) gates: Vec<LearnedGate>,
}

/// A gate, and what it makes of the samples that it has learned from.
pub(super) struct LearnedGate {
    pub(super) method: Method,
    pub(super) gate: Gate,
    /// The mean weight of the global expert over them, prepared as for a test; `None` if there are none.
    pub(super) mean: Option<f64>,
}

impl Experts {
    /// Checks that all values are finite: the steps do not check what they have learned.
    pub(super) fn check(&self, global: &ParamSet) -> Result<(), PersonaliseError> {
        let learned = [Some(global), self.whole.as_ref(), self.head.as_ref()];
        let tensor = learned.into_iter().flatten().find_map(ParamSet::first_non_finite);
        let finite = |LearnedGate { gate, .. }: &LearnedGate| {
            let (weights, bias) = gate.parts();
            bias.is_finite() && weights.iter().all(|weight| weight.is_finite())
        };
        match tensor {
            Some(tensor) => Err(PersonaliseError::Diverged { part: tensor.to_owned() }),
            None if self.gates.iter().all(finite) => Ok(()),
            None => Err(PersonaliseError::Diverged { part: "gate".to_owned() }),
        }
    }

    /// The gate of a method, if it has one.
    pub(super) fn gate(&self, method: Method) -> Option<&LearnedGate> {
        self.gates.iter().find(|gate| gate.method == method)
    }
}

impl Device<'_> {
    fn wants(&self, wanted: impl Fn(Method) -> bool) -> bool {
        self.settings.methods().iter().any(|&method| wanted(method))
    }

    fn course<'c>(&'c self, architecture: &'c Architecture, whole: bool) -> FineTuning<'c> {
        let tuning = if whole { self.settings.whole } else { self.settings.head };
        let (epochs, batch, optimizer) =
            (tuning.epochs, tuning.batch, models::Optimizer::from(tuning.sgd()).into());
        let training = Training { epochs, batch, optimizer, ..self.spec.training };
        FineTuning { architecture, training, backend: self.backend }
    }

    /// How many steps [`Self::experts`] takes.
    pub(super) fn steps(&self, split: &LocalSplit) -> Result<u64, PersonaliseError> {
        let architecture = &self.spec.architecture;
        let course = |whole| self.course(architecture, whole).training.steps(split.expert.len() as u64);
        let mut total = if self.wants(Method::is_whole) { course(true) } else { 0 };
        if self.wants(|method| !method.is_whole()) {
            total += course(false);
        }
        let rows = split.gate.len() * architecture.predictions()?;
        Ok(total + self.settings.gated().count() as u64 * self.settings.gate.steps(rows))
    }

    /// Where the augmentation of a course begins, if its samples are augmented.
    fn augmentation(&self, course: &str) -> Option<Seed> {
        self.settings
            .augments(&self.spec.data.preparation)
            .then(|| self.seed_now(course).derive("augmentation"))
    }

    /// Stages 2 and 3.
    pub(super) fn experts(
        &self,
        global: &ParamSet,
        split: &LocalSplit,
        steps: &mut Steps<'_>,
    ) -> Result<Experts, PersonaliseError> {
        let (spec, preparation) = (self.spec, &self.spec.data.preparation);
        let part = self.data.part(&split.expert);
        let mut experts = Experts { whole: None, head: None, gates: Vec::new() };
        if self.wants(Method::is_whole) {
            let seed = self.seed_now("whole");
            let augmentation = seed.derive("augmentation");
            let mut samples = Anew { preparation, part: &part, augmentation };
            let course = self.course(&spec.architecture, true);
            experts.whole = Some(course.run(global, part.len(), &seed, steps, &mut samples)?);
        }
        if !self.wants(|method| !method.is_whole()) {
            return Ok(experts);
        }
        let mut network = Network::new(&spec.architecture, global, self.backend)?;
        let classifier = spec.architecture.classifier()?;
        let mut start = global.select("projection.");
        start.insert_under("", global.select("head."));
        let augmentation = self.augmentation("head");
        let features = match &augmentation {
            None => Features::of(&mut network, preparation, &part, None, steps)?,
            Some(_) => Features::default(),
        };
        let mut samples = Activations {
            network: &mut network,
            preparation,
            part: &part,
            augmentation,
            epoch: None,
            features,
        };
        let course = self.course(&classifier, false);
        let head = course.run(&start, part.len(), &self.seed_now("head"), steps, &mut samples)?;
        if self.settings.gated().next().is_some() {
            let local = Network::new(&classifier, &head, self.backend)?;
            let part = self.data.part(&split.gate);
            experts.gates = self.gates(GatePart::new(network, local, preparation, part), steps)?;
        }
        experts.head = Some(head);
        Ok(experts)
    }

    /// Stage 3.
    fn gates(
        &self,
        mut part: GatePart<'_>,
        steps: &mut Steps<'_>,
    ) -> Result<Vec<LearnedGate>, PersonaliseError> {
        let settings = self.settings;
        part.with_pixels = self.wants(|method| method == Method::Mf);
        part.prepare(None, steps)?;
        let rows = part.features.labels.len();
        let mut courses = Vec::new();
        for method in self.settings.gated() {
            let inputs =
                gate_inputs(method, &self.spec.architecture)?.expect("it is one of those with a gate");
            let seed = self.seed_now(method.name());
            courses.push((method, GateCourse::new(inputs, rows, settings.mix, &settings.gate, seed)));
        }
        let augmentation = self.augmentation("gate");
        for epoch in 0..settings.gate.epochs {
            if let Some(seed) = &augmentation {
                part.prepare(Some(&seed.derive_numbered("epoch", u64::from(epoch))), steps)?;
            }
            for (method, course) in &mut courses {
                course.epoch(&part.rows(*method), epoch, &mut || steps.advance())?;
            }
        }
        if augmentation.is_some() {
            part.prepare(None, steps)?;
        }
        let learned = courses.into_iter().map(|(method, course)| {
            let (gate, rows) = (course.finish(), part.rows(method));
            let open = rows.inputs.chunks_exact(gate.inputs().max(1)).map(|x| f64::from(gate.weigh(x)));
            let count = rows.labels.len();
            let mean = (count > 0).then(|| open.sum::<f64>() / count as f64);
            LearnedGate { method, gate, mean }
        });
        Ok(learned.collect())
    }
}

/// Samples for a whole network, augmented in every epoch.
struct Anew<'a> {
    preparation: &'a Preparation,
    part: &'a View,
    augmentation: Seed,
}

impl Fill for Anew<'_> {
    fn fill(
        &mut self,
        positions: &[usize],
        epoch: u32,
        x: &mut Vec<f32>,
        y: &mut Targets,
        _: &mut Steps<'_>,
    ) -> Result<(), PersonaliseError> {
        let seed = self.augmentation.derive_numbered("epoch", u64::from(epoch));
        self.preparation.training(self.part, positions, &seed, x, y);
        Ok(())
    }
}

/// The activations of samples, for what stands on the extractor: computed once, or in every epoch of samples augmented anew.
struct Activations<'a> {
    network: &'a mut Network,
    preparation: &'a Preparation,
    part: &'a View,
    augmentation: Option<Seed>,
    /// The epoch that `features` are augmented for.
    epoch: Option<u32>,
    features: Features,
}

impl Fill for Activations<'_> {
    fn fill(
        &mut self,
        positions: &[usize],
        epoch: u32,
        x: &mut Vec<f32>,
        y: &mut Targets,
        steps: &mut Steps<'_>,
    ) -> Result<(), PersonaliseError> {
        if let Some(seed) = &self.augmentation
            && self.epoch != Some(epoch)
        {
            let seed = seed.derive_numbered("epoch", u64::from(epoch));
            self.features = Features::of(self.network, self.preparation, self.part, Some(&seed), steps)?;
            self.epoch = Some(epoch);
        }
        self.features.fill(positions, x, y);
        Ok(())
    }
}

/// What both experts make of the gate's part of the samples.
struct GatePart<'a> {
    network: Network,
    local: Network,
    preparation: &'a Preparation,
    part: View,
    with_pixels: bool,
    features: Features,
    /// The samples themselves, which MF weighs.
    pixels: Vec<f32>,
}

impl<'a> GatePart<'a> {
    fn new(network: Network, local: Network, preparation: &'a Preparation, part: View) -> Self {
        let (features, pixels) = (Features::default(), Vec::new());
        Self { network, local, preparation, part, with_pixels: false, features, pixels }
    }

    /// Runs the samples through both experts: augmented from this seed, or prepared as for a test.
    fn prepare(&mut self, augmented: Option<&Seed>, steps: &mut Steps<'_>) -> Result<(), PersonaliseError> {
        let (part, preparation) = (&self.part, self.preparation);
        self.features = Features::of(&mut self.network, preparation, part, augmented, steps)?;
        if !self.features.labels.is_empty() {
            let shape = [&[part.len()], &self.features.shape[..]].concat();
            self.local.forward(&self.features.activations, &shape, Mode::Evaluation)?;
        }
        if self.with_pixels {
            let (positions, mut labels): (Vec<usize>, _) = ((0..part.len()).collect(), Targets::default());
            match augmented {
                Some(seed) => preparation.training(part, &positions, seed, &mut self.pixels, &mut labels),
                None => preparation.evaluation(part, &positions, &mut self.pixels, &mut labels),
            }
        }
        Ok(())
    }

    /// What the gate of a method learns from.
    fn rows(&self, method: Method) -> Rows<'_> {
        let labels = self.features.labels.classes();
        Rows {
            inputs: if method == Method::Mf { &self.pixels } else { &self.features.activations },
            global: &self.features.logits,
            local: if labels.is_empty() { &[] } else { self.local.logits() },
            labels,
        }
    }
}
