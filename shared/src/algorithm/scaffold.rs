//! SCAFFOLD: control variates against client drift.
//!
//! Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: *SCAFFOLD: Stochastic Controlled Averaging for Federated Learning*,
//! ICML 2020 (arXiv 1910.06378), Algorithm 1 with option II.
//!
//! ```text
//! client k:  w_k = steps  w <- w - eta (g - c_k + c)  from w_t, tau of them
//!            c_k+ = c_k - c + (w_t - w_k) / (tau eta)
//!            sends w_k - w_t and c_k+ - c_k
//! server:    w_{t+1} = w_t + sum p_k (w_k - w_t)
//!            c <- c + (1/K) sum_{k in S_t} (c_k+ - c_k)
//! ```
//!
//! K is the number of clients that the server has come to know, those included that joined the round. As it grows, c is divided
//! among more: new clients have `c_k = 0`, so that `c = (1/K) sum c_k` holds for any order of joining. For that the server
//! adds what its clients add: control variates as they are encoded for the wire, and only those of updates that count. It
//! also adds those of a failed round, whose model is discarded. In the first round
//! all control variates are zero, and it is FedAvg, to the bit.

use models::Correction;
use models::params::{Array, ParamSet};
use serde::{Deserialize, Serialize};

use super::{
    AggregateError, Algorithm, Client, ClientNeeds, Closed, Contribution, Hidden, Incompatible, Round,
    ServerModel, Setting, TrainError,
};
use crate::aggregation::{ExactSum, MergeError, Template, WeightedSum};
use crate::message::Rejection;
use crate::record::{Record, RecordError, ToRecord};

/// Prefix of the names of control variates, where they stand beside a model. No part of a model begins so.
const CONTROL: &str = "control.";
/// Prefix of the sums of models, beside those of control variates.
const MODELS: &str = "model.";

/// Federated averaging with control variates. The server's rate is `aggregation.server-optimizer.sgd.learning-rate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scaffold {}

/// A model, or the difference of two, with its control variate, or the difference of two.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Controlled<T> {
    model: T,
    /// Without tensors as long as it is zero.
    control: ParamSet,
}

/// `w_t` and `c`, and the K that c is a mean over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Centre {
    at: Controlled<ServerModel>,
    /// 0 before the first round, and in checkpoints of programs that did not keep it: c is then as good as it is.
    clients: u64,
}

/// What the updates of a round fold into.
#[derive(Debug, PartialEq)]
pub struct Sums {
    models: WeightedSum,
    /// `sum (c_k+ - c_k)`.
    controls: ExactSum,
}

impl Algorithm for Scaffold {
    const NAME: &'static str = "scaffold";
    const INCOMPATIBLE: &'static [Incompatible] = &[
        (
            Setting::Private,
            "scaffold sends control variates beside its updates, whose lengths nothing bounds: use fedavg, fedprox or moon",
        ),
        (
            Setting::Opaque,
            "scaffold corrects every step, and a trainer of a device's owner takes its own: use fedavg",
        ),
        (
            Setting::Mixed,
            "scaffold's control variates stand for the steps that lead to its model, and not for what that is mixed with: leave \
             server.mixing and data.labelled out",
        ),
        (
            Setting::Momentum,
            "scaffold takes (w_t - w_k) / (tau eta) for the mean gradient of the local steps, which it is not with \
             momentum: set it to 0",
        ),
        (
            Setting::AdaptiveSteps,
            "scaffold takes (w_t - w_k) / (tau eta) for the mean gradient of the local steps, which it is not where steps are \
             adaptive: use training.optimizer.sgd",
        ),
        (
            Setting::AdaptiveServer,
            "scaffold corrects the drift from plain averaging: use aggregation.server-optimizer.sgd",
        ),
        (
            Setting::Robust,
            "scaffold averages control variates with the models, and what a robust rule makes of models is not their mean: \
             use the mean",
        ),
        (
            Setting::Matched,
            "scaffold's control variates belong to units where they are, and matching moves them: use the mean",
        ),
        (
            Setting::ClippedMean,
            "scaffold's control variates belong to models that are not clipped: use the mean, or training.clip-norm",
        ),
        (
            Setting::Late,
            "scaffold moves its control variates with the model, and a late update holds what was true of another one: leave \
             round.staleness.enabled out",
        ),
        (
            Setting::TopK,
            "scaffold's control variates say how a client's gradients differ from the mean, and variates of which a few values are sent \
             differ from the server's: use fedavg, or update.precision = \"int8\"",
        ),
    ];
    type Global = Centre;
    /// `c_k`, without tensors as long as it is zero.
    type Local = ParamSet;
    /// `w_t` and `c`.
    type Broadcast = Controlled<ParamSet>;
    /// `w_k - w_t` and `c_k+ - c_k`.
    type Update = Controlled<ParamSet>;
    type Partial = Sums;

    fn client_needs(&self) -> ClientNeeds {
        // `c_k` and the shift of gradients.
        ClientNeeds { received: 2, held: 2, sent: 2, ..ClientNeeds::default() }
    }

    fn init(&self, params: ParamSet) -> Self::Global {
        let at = Controlled { model: ServerModel::new(params), control: ParamSet::new() };
        Centre { at, clients: 0 }
    }

    fn current_model<'a>(&self, server: &'a Self::Global) -> &'a ParamSet {
        &server.at.model.w
    }

    fn broadcast(&self, server: &Self::Global) -> Self::Broadcast {
        Controlled { model: server.at.model.w.clone(), control: server.at.control.clone() }
    }

    fn train(
        &self,
        client: &mut Client<'_>,
        received: Self::Broadcast,
        c_k: &mut ParamSet,
    ) -> Result<Self::Update, TrainError> {
        let Controlled { model: w_t, control: c } = received;
        let shift = match (c.is_empty(), c_k.is_empty()) {
            (true, true) => None,
            (false, true) => Some(c.clone()),
            (true, false) => Some(scaled(c_k, -1.0)),
            (false, false) => {
                let difference = c.clone().difference(c_k);
                Some(difference.map_err(|mismatch| TrainError::Local(mismatch.to_string()))?)
            }
        };
        let w_k = client.sgd_corrected(&w_t, &Correction { anchor: None, shift })?;
        let delta = client.delta(w_k, &w_t)?;
        let mut control = client.without_buffers(&delta)?;
        // Without steps there is nothing to learn about gradients.
        let rates = client.rates();
        control.scale(if rates > 0.0 { (-1.0 / rates) as f32 } else { 0.0 });
        if rates > 0.0 && !c.is_empty() {
            control.add_scaled(-1.0, &c).map_err(|mismatch| TrainError::Broadcast(mismatch.to_string()))?;
        }
        let update = Controlled { model: delta, control };
        // The server adds what it reads, and both sides' variates must stay the same.
        let lost = |error: RecordError| TrainError::Local(error.to_string());
        let control = if let Some(precision) = client.spec.update.precision.precision() {
            update.control.clone().into_record().sent(precision).map_err(lost)?.tensors
        } else {
            // What a tensor is rounded by depends on those before it.
            let read = client.received(update.clone().into_record())?;
            Controlled::<ParamSet>::from_record(read).map_err(lost)?.control
        };
        if c_k.is_empty() {
            *c_k = control;
        } else {
            c_k.add(&control).map_err(|mismatch| TrainError::Local(mismatch.to_string()))?;
        }
        Ok(update)
    }

    fn eval_model<'a>(&self, received: &'a Self::Broadcast, _c_k: &'a ParamSet) -> Option<&'a ParamSet> {
        Some(&received.model)
    }

    fn check(&self, round: &Round<'_>, update: &Self::Update) -> Result<(), Rejection> {
        round.check(&update.model)?;
        let template = round.template.without_buffers();
        Round { template: &template, ..*round }.check(&update.control)
    }

    fn begin(&self, round: &Round<'_>) -> Sums {
        // Every client's variate counts 1, independent of the weights of the models.
        let controls = ExactSum::new(&round.template.without_buffers(), round.scale.with_max_weight(1));
        Sums { models: round.sum(), controls }
    }

    fn fold(&self, partial: &mut Sums, contribution: Contribution<Self::Update>, round: &Round<'_>) {
        let Contribution { weight, report, update, .. } = contribution;
        if round.add(&mut partial.models, &update.model, weight, report.loss) {
            partial.controls.add(&update.control, 1);
        }
    }

    fn merge(&self, into: &mut Sums, other: Sums) -> Result<(), MergeError> {
        into.models.merge(&other.models)?;
        into.controls.merge(&other.controls)
    }

    fn close(&self, server: &mut Self::Global, partial: Sums, round: &Round<'_>) -> Closed {
        server.at.model.step(partial.models, 1.0, round)?;
        server.take_in(partial.controls, round)
    }

    fn close_failed(&self, server: &mut Self::Global, partial: Sums, round: &Round<'_>) -> Closed {
        server.take_in(partial.controls, round)
    }

    fn hidden(&self) -> Option<&dyn Hidden<Sums, Controlled<ParamSet>>> {
        Some(self)
    }
}

impl Hidden<Sums, Controlled<ParamSet>> for Scaffold {
    fn nothing(&self, round: &Round<'_>) -> Controlled<ParamSet> {
        let control = round.template.without_buffers().zeros();
        Controlled { model: round.template.zeros(), control }
    }

    fn numbers<'a>(&self, partial: &'a mut Sums) -> Vec<(String, &'a mut [i64])> {
        let Sums { models, controls } = partial;
        let controls = controls.numbers().map(|(name, values)| (format!("{CONTROL}{name}"), values));
        models.numbers().into_iter().chain(controls).collect()
    }

    fn hide(&self, partial: &mut Sums) {
        partial.models.hide();
    }

    fn reveal(&self, partial: &mut Sums) -> Result<(), String> {
        partial.models.reveal()?;
        let impossible = partial.controls.first_impossible(partial.controls.terms());
        impossible.map_or(Ok(()), |tensor| Err(format!("{CONTROL}{tensor}")))
    }
}

impl Centre {
    /// `c <- c + (1/K) sum (c_k+ - c_k)`.
    fn take_in(&mut self, controls: ExactSum, round: &Round<'_>) -> Result<(), AggregateError> {
        let Self { at: Controlled { control, .. }, clients } = self;
        fill(control, &round.template.without_buffers());
        // Clients that are known no more have their c_k still.
        let known = (round.clients as u64).max(*clients).max(1);
        if *clients > 0 && known > *clients {
            control.scale((*clients as f64 / known as f64) as f32);
        }
        *clients = known;
        // (1/K) of a sum is m/K of a mean of m.
        let share = (controls.terms() as f64 / known as f64) as f32;
        controls.each_mean(|tensor, offset, mean| {
            let c = control.get_mut(tensor).expect("filled by the same template").values_mut();
            c[offset..].iter_mut().zip(mean).for_each(|(c, mean)| *c += share * mean);
        })?;
        Ok(())
    }
}

fn scaled(set: &ParamSet, factor: f32) -> ParamSet {
    let mut set = set.clone();
    set.scale(factor);
    set
}

/// Gives an empty set the zeros that it stands for.
fn fill(set: &mut ParamSet, template: &Template) {
    if set.is_empty() {
        template.iter().for_each(|(name, shape)| drop(set.insert(name, Array::zeros(shape))));
    }
}

/// The model under its own names, the control variate beside it.
impl<T: ToRecord> ToRecord for Controlled<T> {
    fn into_record(self) -> Record {
        let mut record = self.model.into_record();
        record.tensors.insert_under(CONTROL, self.control);
        record
    }

    fn from_record(mut record: Record) -> Result<Self, RecordError> {
        let control = record.tensors.take_under(CONTROL);
        Ok(Self { model: T::from_record(record)?, control })
    }
}

/// Both sums, each under its prefix.
impl ToRecord for Sums {
    fn into_record(self) -> Record {
        let (models, controls) = (self.models.into_record(), self.controls.into_record());
        Record::join(&(), [(MODELS.to_owned(), models), (CONTROL.to_owned(), controls)])
    }

    fn from_record(record: Record) -> Result<Self, RecordError> {
        const EXPECTED: &str = "sums of models and control variates";
        let ((), mut parts) = record.split(EXPECTED)?;
        let mut part = |prefix| parts.remove(prefix).ok_or(RecordError::Incomplete { expected: EXPECTED });
        Ok(Self {
            models: WeightedSum::from_record(part(MODELS)?)?,
            controls: ExactSum::from_record(part(CONTROL)?)?,
        })
    }
}

/// As `at`, and K as a scalar once there is one.
impl ToRecord for Centre {
    fn into_record(self) -> Record {
        let tensors = self.at.into_record().tensors;
        match self.clients {
            0 => Record { tensors, ..Record::default() },
            clients => Record::with_scalars(tensors, &clients),
        }
    }

    fn from_record(record: Record) -> Result<Self, RecordError> {
        const EXPECTED: &str = "the number of clients that a control variate is a mean over";
        let clients = if record.scalars.is_empty() { 0 } else { record.scalars(EXPECTED)? };
        let at = Controlled::from_record(Record { tensors: record.tensors, ..Record::default() })?;
        Ok(Self { at, clients })
    }
}
