//! Between the specification and its form before protocol version 6.

use models::{Architecture, Layer, Sgd};

use crate::aggregation::Aggregation;
use crate::algorithm::registry;
use crate::data::Preparation;
use crate::data::preparation::Augmentation;
use crate::message::positional::{
    PositionalArchitecture, PositionalAugmentation, PositionalData, PositionalPersonalisation,
    PositionalSpec, PositionalTraining,
};
use crate::spec::data::label_column;
use crate::spec::personalisation::{GateTraining, Methods};
use crate::spec::{
    DataSpec, Evaluation, Personalisation, RunSpec, SecureAggregation, SpecError, Training, Update,
};

impl PositionalSpec {
    /// The form of a specification that peers before version 6 understand. `None` if they would read another one from it: it uses
    /// what they do not know, or a number with more digits than their 32 bits have.
    #[must_use]
    pub fn of(spec: &RunSpec) -> Option<Self> {
        if !spec.architecture.parts().iter().all(|(_, layers)| known(layers)) {
            return None;
        }
        let form = Self::lossy(spec)?;
        let mut read = form.clone().into_spec().ok()?;
        // Hyper-parameters have the algorithm's own encoding, which has a place for all of them.
        read.algorithm.clone_from(&spec.algorithm);
        (explicit(read) == explicit(spec.clone())).then_some(form)
    }

    /// The form without the keys that it has no place for.
    fn lossy(spec: &RunSpec) -> Option<Self> {
        let DataSpec { shape, class_names, preparation, labels, .. } = spec.data.clone();
        let Preparation { augmentation, normalisation } = preparation;
        let augmentation = by_position(augmentation);
        let Aggregation { weights, rule, server_optimizer, buffers } = spec.aggregation;
        Some(Self {
            run: spec.run,
            name: spec.name.clone(),
            seed: spec.seed,
            rounds: spec.rounds,
            data: PositionalData { shape, class_names, augmentation, normalisation, labels },
            architecture: spec.architecture.clone().into(),
            training: spec.training.into(),
            algorithm: (spec.algorithm.name.clone(), registry::to_postcard(&spec.algorithm)?),
            aggregation: (weights, rule, server_optimizer, buffers),
            precision: (spec.update.broadcast().precision()?, spec.update.precision.precision()?),
            evaluation: (spec.evaluate.on_clients_every, spec.evaluate.hold_out),
            personalisation: spec.personalised().map(|settings| Box::new(settings.clone().into())),
            heartbeat: spec.heartbeat,
        })
    }

    /// The specification of a server before version 6.
    ///
    /// # Errors
    /// If it names an algorithm that this version does not know, or hyper-parameters that do not fit it.
    pub fn into_spec(self) -> Result<RunSpec, SpecError> {
        let PositionalData { shape, class_names, augmentation, normalisation, labels } = self.data;
        let preparation = Preparation { augmentation: by_name(augmentation), normalisation };
        let (name, parameters) = self.algorithm;
        let (weights, rule, server_optimizer, buffers) = self.aggregation;
        let (broadcast, precision) = self.precision;
        let broadcast = Some(broadcast).filter(|broadcast| *broadcast != precision).map(Into::into);
        let (on_clients_every, hold_out) = self.evaluation;
        Ok(RunSpec {
            run: self.run,
            name: self.name,
            seed: self.seed,
            rounds: self.rounds,
            data: DataSpec {
                shape,
                class_names,
                preparation,
                labels,
                column: label_column(),
                text: None,
                features: Vec::new(),
            },
            architecture: self.architecture.into(),
            training: self.training.into(),
            algorithm: registry::from_postcard(&name, &parameters)
                .ok_or(SpecError::Unknown { key: format!("algorithm.{name}") })?,
            aggregation: Aggregation { weights, rule, server_optimizer, buffers },
            update: Update { precision: precision.into(), broadcast, ..Update::default() },
            evaluate: Evaluation { on_clients_every, hold_out, ..Evaluation::default() },
            personalisation: self.personalisation.map(|settings| (*settings).into()).unwrap_or_default(),
            secure: SecureAggregation::default(),
            device_noise: None,
            heartbeat: self.heartbeat,
        })
    }
}

/// Whether these layers are of kinds that peers before version 6 know: those go by the position of a kind.
fn known(layers: &[Layer]) -> bool {
    layers.iter().all(|layer| match layer {
        Layer::Residual { body, shortcut } => known(body) && known(shortcut),
        Layer::Conv { .. }
        | Layer::Linear { .. }
        | Layer::Relu
        | Layer::MaxPool { .. }
        | Layer::Flatten
        | Layer::AvgPool { .. }
        | Layer::GlobalAvgPool
        | Layer::BatchNorm { .. }
        | Layer::GroupNorm { .. }
        | Layer::Embedding { .. }
        | Layer::Lstm { .. }
        | Layer::LocalResponseNorm { .. }
        | Layer::Dropout { .. } => true,
        _ => false,
    })
}

/// A specification with what it leaves open written out: two that mean the same are equal then.
fn explicit(mut spec: RunSpec) -> RunSpec {
    spec.update.broadcast = Some(spec.update.broadcast());
    if spec.personalised().is_none() {
        spec.personalisation = Box::default();
    }
    spec
}

impl From<Architecture> for PositionalArchitecture {
    /// Without what is frozen, opaque or of another task.
    fn from(architecture: Architecture) -> Self {
        let Architecture {
            name,
            input,
            classes,
            task: _,
            initialisation,
            extractor,
            projection,
            head,
            frozen: _,
            tensors: _,
        } = architecture;
        Self { name, input, classes, initialisation, extractor, projection, head }
    }
}

impl From<PositionalArchitecture> for Architecture {
    fn from(architecture: PositionalArchitecture) -> Self {
        let PositionalArchitecture { name, input, classes, initialisation, extractor, projection, head } =
            architecture;
        Self { name, input, classes, initialisation, extractor, projection, head, ..Architecture::default() }
    }
}

impl From<Training> for PositionalTraining {
    fn from(training: Training) -> Self {
        let Training { epochs, batch, drop_last, optimizer, schedule, clip_norm, measure, chunks, .. } =
            training;
        // What it has no place for reads back as another specification, and is refused for that.
        let sgd = optimizer.to_engine().descent().unwrap_or(Sgd::plain(0.0));
        Self { epochs, batch, drop_last, sgd, schedule, clip_norm, measure, chunks }
    }
}

impl From<PositionalTraining> for Training {
    fn from(training: PositionalTraining) -> Self {
        let PositionalTraining { epochs, batch, drop_last, sgd, schedule, clip_norm, measure, chunks } =
            training;
        let defaults = Self::default();
        Self {
            epochs,
            batch,
            drop_last,
            optimizer: sgd.into(),
            schedule,
            clip_norm,
            measure,
            chunks,
            ..defaults
        }
    }
}

impl From<Personalisation> for PositionalPersonalisation {
    fn from(settings: Personalisation) -> Self {
        let methods = settings.methods().to_vec();
        let Personalisation { every, expert_share, mix, whole, head, gate, report, .. } = settings;
        let gate = (gate.epochs, gate.batch, gate.learning_rate);
        Self { methods, every, expert_share, mix, whole, head, gate, report }
    }
}

impl From<PositionalPersonalisation> for Box<Personalisation> {
    fn from(settings: PositionalPersonalisation) -> Self {
        let PositionalPersonalisation { methods, every, expert_share, mix, whole, head, gate, report } =
            settings;
        let method = Some(Methods(methods));
        let (epochs, batch, learning_rate) = gate;
        let gate = GateTraining { epochs, batch, learning_rate, ..GateTraining::default() };
        let defaults = Personalisation::default();
        Self::new(Personalisation { method, every, expert_share, mix, head, whole, gate, report, ..defaults })
    }
}

fn by_position(of: Augmentation) -> PositionalAugmentation {
    let [flip, brightness, contrast, saturation, erasing] =
        [of.horizontal_flip, of.brightness, of.contrast, of.saturation, of.random_erasing]
            .map(|part| part as f32);
    (of.random_shift, of.padding, of.random_crop, flip, brightness, contrast, saturation, erasing)
}

fn by_name(positional: PositionalAugmentation) -> Augmentation {
    let (random_shift, padding, random_crop, flip, brightness, contrast, saturation, erasing) = positional;
    let [horizontal_flip, brightness, contrast, saturation, random_erasing] =
        [flip, brightness, contrast, saturation, erasing].map(as_written);
    Augmentation {
        random_shift,
        padding,
        random_crop,
        horizontal_flip,
        brightness,
        contrast,
        saturation,
        random_erasing,
        ..Augmentation::default()
    }
}

/// The number that an operator wrote, of which these are the closest 32 bits: that with the fewest digits.
fn as_written(value: f32) -> f64 {
    value.to_string().parse().expect("Rust reads the numbers that it writes")
}
