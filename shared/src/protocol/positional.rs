//! Between the specification and its form before protocol version 6.

use crate::aggregation::Aggregation;
use crate::algorithm::registry;
use crate::data::Preparation;
use crate::data::preparation::Augmentation;
use crate::message::positional::{
    PositionalData, PositionalPersonalisation, PositionalSpec, PositionalTraining,
};
use crate::spec::personalisation::Methods;
use crate::spec::{DataSpec, Evaluation, Personalisation, RunSpec, SpecError, Training, Update};

impl PositionalSpec {
    /// The form of a specification that peers before version 6 understand. `None` if the algorithm's hyper-parameters are not known.
    #[must_use]
    pub fn of(spec: &RunSpec) -> Option<Self> {
        let Augmentation {
            random_shift,
            padding,
            random_crop,
            horizontal_flip,
            brightness,
            contrast,
            saturation,
            random_erasing,
        } = spec.data.preparation.augmentation;
        let training = &spec.training;
        let personalised = spec.personalised().map(|settings| {
            Box::new(PositionalPersonalisation {
                methods: settings.methods().to_vec(),
                every: settings.every,
                expert_share: settings.expert_share,
                mix: settings.mix,
                whole: settings.whole,
                head: settings.head,
                gate: settings.gate,
                report: settings.report,
            })
        });
        let Aggregation { weights, rule, server_optimizer, buffers } = spec.aggregation;
        Some(Self {
            run: spec.run,
            name: spec.name.clone(),
            seed: spec.seed,
            rounds: spec.rounds,
            data: PositionalData {
                shape: spec.data.shape.clone(),
                class_names: spec.data.class_names.clone(),
                augmentation: (
                    random_shift,
                    padding,
                    random_crop,
                    horizontal_flip as f32,
                    brightness as f32,
                    contrast as f32,
                    saturation as f32,
                    random_erasing as f32,
                ),
                normalisation: spec.data.preparation.normalisation.clone(),
                labels: spec.data.labels,
            },
            architecture: spec.architecture.clone(),
            training: PositionalTraining {
                epochs: training.epochs,
                batch: training.batch,
                drop_last: training.drop_last,
                sgd: training.optimizer.sgd(),
                schedule: training.schedule,
                clip: training.clip_norm,
                measure: training.measure,
                chunks: training.chunks,
            },
            algorithm: (spec.algorithm.name.clone(), registry::to_postcard(&spec.algorithm)?),
            aggregation: (weights, rule, server_optimizer, buffers),
            precision: (spec.update.broadcast(), spec.update.precision),
            evaluation: (spec.evaluate.on_clients_every, spec.evaluate.hold_out),
            personalisation: personalised,
            heartbeat: spec.heartbeat,
        })
    }

    /// The specification of a server before version 6.
    ///
    /// # Errors
    /// If it names an algorithm that this version does not know, or hyper-parameters that do not fit it.
    pub fn into_spec(self) -> Result<RunSpec, SpecError> {
        let Self { data, training, .. } = self;
        let (random_shift, padding, random_crop, flip, brightness, contrast, saturation, erasing) =
            data.augmentation;
        let (name, parameters) = self.algorithm;
        let (weights, rule, server_optimizer, buffers) = self.aggregation;
        let (on_clients_every, hold_out) = self.evaluation;
        let personalisation =
            self.personalisation.map_or_else(Personalisation::default, |settings| Personalisation {
                method: Some(Methods(settings.methods)),
                every: settings.every,
                expert_share: settings.expert_share,
                mix: settings.mix,
                head: settings.head,
                whole: settings.whole,
                gate: settings.gate,
                report: settings.report,
            });
        Ok(RunSpec {
            run: self.run,
            name: self.name,
            seed: self.seed,
            rounds: self.rounds,
            data: DataSpec {
                shape: data.shape,
                class_names: data.class_names,
                preparation: Preparation {
                    augmentation: Augmentation {
                        random_shift,
                        padding,
                        random_crop,
                        horizontal_flip: as_written(flip),
                        brightness: as_written(brightness),
                        contrast: as_written(contrast),
                        saturation: as_written(saturation),
                        random_erasing: as_written(erasing),
                    },
                    normalisation: data.normalisation,
                },
                labels: data.labels,
            },
            architecture: self.architecture,
            training: Training {
                epochs: training.epochs,
                batch: training.batch,
                drop_last: training.drop_last,
                optimizer: training.sgd.into(),
                schedule: training.schedule,
                clip_norm: training.clip,
                measure: training.measure,
                chunks: training.chunks,
            },
            algorithm: registry::from_postcard(&name, &parameters)
                .ok_or(SpecError::Unknown { key: format!("algorithm.{name}") })?,
            aggregation: Aggregation { weights, rule, server_optimizer, buffers },
            update: Update {
                precision: self.precision.1,
                broadcast: Some(self.precision.0).filter(|broadcast| *broadcast != self.precision.1),
                ..Update::default()
            },
            evaluate: Evaluation { on_clients_every, hold_out, ..Evaluation::default() },
            personalisation: Box::new(personalisation),
            heartbeat: self.heartbeat,
        })
    }
}

/// The number that an operator wrote, of which these are the closest 32 bits: that with the fewest digits.
fn as_written(value: f32) -> f64 {
    value.to_string().parse().expect("Rust reads the numbers that it writes")
}
