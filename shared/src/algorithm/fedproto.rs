//! FedProto in one round: every client's network, and the mean features of each class.
//!
//! Tan et al.: *FedProto: Federated Prototype Learning across Heterogeneous Clients*, AAAI 2022 (arXiv 2105.00243).
//!
//! ```text
//! client m:  F_m, W_m = E epochs of minibatch SGD from F_0, W_0 on the cross-entropy of W F(x)
//!            P_m,c = mean of F_m(x) over its samples of class c, divided by its length and the temperature
//! server:    keeps every F_m;   P_g,c = mean of P_m,c over the clients that have the class
//! in use:    argmax_c cos(F(x), P_g,c),   F = mean_m F_m(x), or fused otherwise
//! ```
//!
//! FedProto has many rounds, and its clients hold their features near the global prototypes of the round before. In the first there are
//! none, and its loss is the cross-entropy alone: this is that round, as a baseline of one-shot methods. Each client answers for itself
//! there, by the nearest prototype; here all of them do, by the mean of their features, as FAFI's do, and by angles: lengths are of each
//! client's own scale. Prototypes are one over the temperature long, which changes no angle: so a member's own answers, the products of
//! `F_m(x)` over its length and `P_m`, are cosines over the temperature, as those of all members are. The paper weighs the prototypes of
//! a class by the clients' samples of it; its program, as ours, does not.
//!
//! A class that a client does not have is a prototype of zeros, which has no part in the angle of a mean: so the mean over all clients
//! points where that over the clients that have the class does.

use models::params::ParamSet;
use models::{Architecture, Batch, Network, Targets};

use super::answering::{Answering, Fusion, Head, Noise, prototypes_of, with_prototypes};
use super::side_by_side::refusals;
use super::{Client, Incompatible, OneShot, Setting, TrainError};
use crate::settings::{self, Kind};

/// Samples whose features are taken at a time: bounds memory, not the result.
const CHUNK: usize = 32;

crate::section! {
    /// The first round of FedProto. Its other settings are those of local training.
    #[derive(Copy)]
    pub struct FedProto {
        /// How the members become one answer.
        pub fusion: Fusion = Fusion::Uniform;
        /// What cosines are divided by before they become probabilities.
        pub temperature: f64 = 0.07, in Kind::RATE;
    }
}

const SIDE_BY_SIDE: &str =
    "fedproto keeps the clients' models side by side and aggregates nothing: leave [aggregation] out";

impl OneShot for FedProto {
    const NAME: &'static str = "fedproto";
    const INCOMPATIBLE: &'static [Incompatible] = refusals!(
        "fedproto",
        own: [
            (Setting::Numbers, "fedproto takes the mean features of each class: use fedavg"),
            (
                Setting::Opaque,
                "fedproto takes means of features, which a network of a trainer does not show: use fedavg",
            ),
            (
                Setting::Bare,
                "fedproto takes means of features, which are the samples themselves where nothing is learned below the last layer: \
                 use a model with hidden layers",
            ),
        ],
        aggregation: SIDE_BY_SIDE,
        weights: [(Setting::UniformWeights, SIDE_BY_SIDE)]
    );

    fn validate(&self) -> Result<(), String> {
        settings::check(self)?;
        Head::Prototypes.check(self.fusion).map_err(|reason| format!("fusion: {reason}"))
    }

    fn network(&self, configured: Architecture) -> Result<Architecture, String> {
        with_prototypes(configured, Self::NAME)
    }

    fn learn(&self, client: &mut Client<'_>, w_0: &ParamSet) -> Result<ParamSet, TrainError> {
        let mut learned = client.sgd(w_0)?;
        if client.data.is_empty() {
            return Ok(learned);
        }
        let head = prototypes_of(&client.spec.architecture)
            .ok_or_else(|| TrainError::Broadcast("its last layer is not linear without bias".to_owned()))?;
        let prototypes = mean_directions(client, &learned, 1.0 / self.temperature)?;
        if let Some(head) = learned.get_mut(&head) {
            head.values_mut().copy_from_slice(&prototypes);
        }
        Ok(learned)
    }

    fn answering(&self) -> Answering {
        let Self { fusion, temperature } = *self;
        Answering { fusion, temperature, noise: Noise::default(), head: Head::Prototypes }
    }
}

/// The mean features of each class over the client's samples as they are for a test, of this length: `[classes, features]`. Zeros for a
/// class that it does not have.
fn mean_directions(client: &Client<'_>, learned: &ParamSet, wanted: f64) -> Result<Vec<f32>, TrainError> {
    let (spec, data) = (client.spec, client.data);
    let classes = client.class_counts()?.len();
    let mut network = Network::new(&spec.architecture, learned, client.device)?;
    let positions: Vec<usize> = (0..data.len()).collect();
    let (mut x, mut y) = (Vec::new(), Targets::default());
    let mut sums: Vec<f64> = Vec::new();
    for chunk in positions.chunks(CHUNK) {
        spec.data.preparation.evaluation(data, chunk, &mut x, &mut y);
        let shape = [&[chunk.len()], &spec.architecture.input[..]].concat();
        let batch = Batch::unlabelled(std::mem::take(&mut x), shape)?;
        let features = network.represent(&batch)?;
        let length = features.len() / chunk.len();
        sums.resize(classes * length, 0.0);
        for (row, &position) in features.chunks_exact(length).zip(chunk) {
            for &label in data.labels_of(position) {
                let sum = &mut sums[label as usize * length..][..length];
                sum.iter_mut().zip(row).for_each(|(sum, &feature)| *sum += f64::from(feature));
            }
        }
    }
    let length = (sums.len() / classes).max(1);
    for sum in sums.chunks_mut(length) {
        let length = sum.iter().map(|value| value * value).sum::<f64>().sqrt();
        if length > 0.0 {
            for value in sum.iter_mut() {
                *value *= wanted / length;
            }
        }
    }
    Ok(sums.into_iter().map(|value| value as f32).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_those_of_prototypes() {
        assert!(FedProto::default().validate().is_ok());
        let classifiers = FedProto { fusion: Fusion::Probabilities, ..FedProto::default() };
        assert!(classifiers.validate().unwrap_err().contains("not fused by probabilities"));
        let text = Architecture::by_name("char-lstm", &[80], 90).unwrap();
        assert!(FedProto::default().network(text).unwrap_err().contains("fedproto fuses"));
    }
}
