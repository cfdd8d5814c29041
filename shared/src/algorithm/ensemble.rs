//! The plain ensemble: every client learns a network of its own in one round, and all of them answer together.
//!
//! Guha, Talwalkar, Smith: *One-Shot Federated Learning*, 2019 (arXiv 1902.11175), its baseline of all local models; the usual
//! baseline of one-shot methods, FAFI (Zeng et al., ICML 2025) among them.
//!
//! ```text
//! client m:  w_m = E epochs of minibatch SGD from w_0 on the cross-entropy
//! server:    keeps every w_m
//! in use:    logits          softmax(sum_m p_m z_m(x))
//!            probabilities   sum_m p_m softmax(z_m(x))
//! ```
//!
//! `z_m` are the outputs of the network's last layer, as it gives them: nothing is normalised. So the first is the weighted geometric
//! mean of the members' probabilities, made to sum to 1, and the second, that of Guha et al., the arithmetic one; later texts take
//! either. Logits have no bound: a member whose logits have grown without one, as over a single class, outvotes all others in the
//! first. `p_m = n_m / sum n` by the members' numbers of samples, or all alike with `aggregation.weights = "uniform"`. Tests report
//! both.
//!
//! Nothing of it is FAFI's: no prototypes, no contrast, no features that are fused. The network is the one that is configured.

use models::Architecture;
use models::params::ParamSet;

use super::answering::{Answering, Fusion, Head, Noise};
use super::side_by_side::refusals;
use super::{Client, Incompatible, OneShot, Setting, TrainError};
use crate::settings;

crate::section! {
    /// The plain ensemble. Its other settings are those of local training, and `aggregation.weights`.
    #[derive(Copy)]
    pub struct Ensemble {
        /// How the members become one answer: the mean of their logits, or of their probabilities.
        pub fusion: Fusion = Fusion::Logits;
    }
}

const SIDE_BY_SIDE: &str = "ensemble keeps the clients' models side by side, and of [aggregation] only weights = \"samples\" or \
                            \"uniform\" means something for their answers: leave the rest out";

impl OneShot for Ensemble {
    const NAME: &'static str = "ensemble";
    const INCOMPATIBLE: &'static [Incompatible] = refusals!(
        "ensemble",
        own: [
            (Setting::Numbers, "ensemble averages what its members say of classes: use fedavg"),
            (
                Setting::Opaque,
                "ensemble runs all members on every sample, and a trainer's network runs on its device alone: use fedavg",
            ),
        ],
        aggregation: SIDE_BY_SIDE,
        weights: []
    );

    fn validate(&self) -> Result<(), String> {
        settings::check(self)?;
        Head::Classifier.check(self.fusion).map_err(|reason| format!("fusion: {reason}"))
    }

    fn network(&self, configured: Architecture) -> Result<Architecture, String> {
        if configured.predictions().is_ok_and(|each| each != 1) {
            return Err("ensemble averages one answer for each sample, and this model predicts at every position of a \
                        sequence: use a model that gives one, or fedavg"
                .to_owned());
        }
        Ok(configured)
    }

    fn learn(&self, client: &mut Client<'_>, w_0: &ParamSet) -> Result<ParamSet, TrainError> {
        client.sgd(w_0)
    }

    fn answering(&self) -> Answering {
        Answering { fusion: self.fusion, temperature: 1.0, noise: Noise::default(), head: Head::Classifier }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_network_with_one_answer_for_a_sample_is_taken_as_it_is() {
        for (model, input) in [("lenet-5", &[1, 28, 28]), ("resnet-9", &[3, 32, 32]), ("linear", &[1, 2, 2])]
        {
            let configured = Architecture::by_name(model, input, 10).unwrap();
            assert_eq!(Ensemble::default().network(configured.clone()), Ok(configured));
        }
        let text = Architecture::by_name("char-lstm", &[80], 90).unwrap();
        let reason = Ensemble::default().network(text).unwrap_err();
        assert!(reason.contains("every position"), "{reason}");
    }

    #[test]
    fn features_of_classifiers_are_not_fused() {
        for fusion in Fusion::ALL {
            let found = Ensemble { fusion }.validate();
            assert_eq!(found.is_err(), fusion.is_of_features(), "{found:?}");
        }
        let refused = Ensemble { fusion: Fusion::Size }.validate().unwrap_err();
        assert!(refused.contains("not fused by size: choose logits or probabilities"), "{refused}");
    }
}
