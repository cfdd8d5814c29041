//! MOON: model-contrastive learning.
//!
//! Li, He, Song: *Model-Contrastive Federated Learning*, CVPR 2021 (arXiv 2103.16257), Algorithm 1.
//!
//! ```text
//! client k:  w_k = E epochs of minibatch SGD from w_t on  CE(F_w(x), y) + mu l_con
//!            l_con = -log( exp(cos(z, z_glob)/tau) / (exp(cos(z, z_glob)/tau) + exp(cos(z, z_prev)/tau)) )
//! server:    as FedAvg
//! ```
//!
//! where z is the representation of x, the output of the projection, under the model in training, the global model `w_t` and
//! the model that this client itself had trained when it last took part. The two are frozen and only evaluated, once a round for
//! each sample about which nothing is random. In its first round a client has no previous model, and there is no contrastive
//! term.
//!
//! The loss that is reported is the cross-entropy, so that it compares with that of other algorithms. The mean of `l_con` over the
//! steps is the metric `contrast`, which is ln 2 where the two frozen models say the same.
//!
//! # What the term does
//!
//! It sees nothing but the difference of the two cosines, which is greatest away from both models where they are alike:
//!
//! ```text
//! c = cos(z_glob, z_prev):   z ~ z_glob / |z_glob| - z_prev / |z_prev|,   cos(z, z_glob) = sqrt((1 - c) / 2)
//! ```
//!
//! So where the term leads, the representations of a local model are *not* nearer to the global ones than those of federated
//! averaging, whose cosine stays near 0.9 where MOON's settles near 0.5, and the local model moves farther ([`Measures`]); the
//! accuracy is about the same. A separate implementation of the paper in another language shows the same. Where the
//! cross-entropy leads and the term corrects it, they are nearer, and the local model moves less: with `mu = 0.1`, the least
//! that the paper tries, 0.81 against 0.75 after the reduced form of `moon-cifar10`.
//!
//! At its start a deep network represents all samples alike, in a short vector, and there the term outweighs the
//! cross-entropy by far. In the paper's setting a client takes 780 steps in the first round, which knows no term, and leaves
//! that start; with a tenth of the steps it does not, and MOON then learns much later than federated averaging.
//!
//! [`Measures`]: crate::spec::Measures

mod frozen;

use models::params::ParamSet;
use models::{Network, model_contrast};

use super::{Client, ClientNeeds, Incompatible, Objective, Setting, TrainError};
use crate::message::Metric;
use crate::settings::{self, Kind};
use frozen::Frozen;

/// Bytes that a client keeps at most of the representations by each of the two frozen models: of 32 thousand samples, where
/// they are as long as the paper's. If those of all samples take more, they are computed anew in every epoch.
const ROOM: usize = 32 << 20;

crate::section! {
    /// Federated averaging with a contrastive term.
    #[derive(Copy)]
    pub struct Moon {
        /// The weight of the contrastive term; 0 is FedAvg, to the bit. The paper's for CIFAR-10 is 5, for CIFAR-100 it is 1.
        pub mu: f64 = 5.0, in Kind::NOT_NEGATIVE;
        /// The temperature.
        pub tau: f64 = 0.5, in Kind::RATE;
    }
}

impl Objective for Moon {
    const NAME: &'static str = "moon";
    const INCOMPATIBLE: &'static [Incompatible] = &[
        (
            Setting::Opaque,
            "moon compares representations, which a network of a trainer does not show: use fedavg",
        ),
        (
            Setting::Bare,
            "moon compares representations, which are the samples themselves where nothing is learned below the head, and equal \
         under all models: use a model with hidden layers in its extractor or projection",
        ),
    ];
    /// The model that this client trained last, statistics included; without tensors before its first round.
    type Local = ParamSet;

    fn validate(&self) -> Result<(), String> {
        settings::check(self)
    }

    fn client_needs(&self) -> ClientNeeds {
        // The model of the last round, and a copy of this one's for the next.
        ClientNeeds { held: 2, frozen: 2, keeps_frozen: true, ..ClientNeeds::default() }
    }

    fn train(
        &self,
        client: &mut Client<'_>,
        w_t: &ParamSet,
        w_prev: &mut ParamSet,
    ) -> Result<ParamSet, TrainError> {
        let mut contrast = None;
        let w_k = if w_prev.is_empty() || self.mu == 0.0 {
            client.sgd(w_t)?
        } else {
            let spec = client.spec;
            let again = spec.training.epochs > 1 && spec.data.preparation.is_fixed();
            let (samples, room) = (client.data.len(), if again { ROOM } else { 0 });
            let frozen = |w: &ParamSet| -> Result<_, TrainError> {
                let network = Network::new(&spec.architecture, w, client.device)?;
                Ok(Frozen::new(network, samples, room))
            };
            let (mut global, mut previous) = (frozen(client.start(w_t)?.as_ref())?, frozen(w_prev)?);
            let (mu, tau) = (self.mu as f32, self.tau as f32);
            let mut terms = 0.0;
            let w_k = client.epochs_of(w_t, |learner, batch, drawn| {
                let z_glob = global.represent(batch, drawn.positions())?;
                let z_prev = previous.represent(batch, drawn.positions())?;
                let mut term = |z: &[f32], gradient: &mut Vec<f32>| {
                    let contrast = model_contrast(z, z_glob, z_prev, (batch.len(), tau, mu), gradient);
                    terms += f64::from(contrast);
                    mu * contrast
                };
                Ok(learner.step_with_term(batch, &mut term)?)
            })?;
            contrast = (client.steps() > 0).then(|| terms / client.steps() as f64);
            w_k
        };
        w_prev.clone_from(&w_k);
        let delta = client.delta(w_k, w_t)?;
        // After what was asked for: a report may be full.
        if let Some(contrast) = contrast {
            client.report(Metric::Contrast(contrast));
        }
        Ok(delta)
    }
}
