//! FAFI: one round, and the clients' models stay side by side.
//!
//! Zeng et al.: *Does One-shot Give the Best Shot? Mitigating Model Inconsistency in One-shot Federated Learning*, ICML 2025.
//!
//! ```text
//! client m:  F_m, P_m = E epochs of minibatch SGD from F_0, P_0 on
//!            w_ce CE(f_hat P^T / tau_p, y) + w_con SupCon(f_hat, y) + w_proto CE(P P^T, identity),    f = F(x), f_hat = f / |f|
//! server:    keeps every F_m;   P_g = mean_m P_m
//! in use:    alpha_m = 1 - cos(F_m(x), F_m(noise)),   F = sum_m alpha_m / (sum alpha) F_m(x),   argmax_c cos(F, P_g,c)
//! ```
//!
//! The supervised contrast is over two augmented views of each sample. Positives are found by the label, so that data which
//! cannot be augmented may be learned from too: its two views are equal and the term gathers classes alone. That is why a run
//! without `[augment]` is not refused; `contrast = 0` takes one view and saves half of the work. Every view in a batch is compared
//! with every other one: memory grows with the square of a batch, and `training.batch = 0`, all samples in one, is for small data.
//!
//! The network is the configured one with its last layer, without bias, as the prototypes ([`OneShot::network`]): `F` is
//! all before it. The server's half is that of all algorithms with one round ([`SideBySide`](super::SideBySide)). The loss that is
//! reported is the cross-entropy.

use models::params::ParamSet;
use models::{Architecture, Batch, PrototypeLoss, PrototypeTerms, Prototyped};

use super::answering::{Answering, Fusion, Head, Noise, prototypes_of, with_prototypes};
use super::side_by_side::refusals;
use super::{Client, ClientNeeds, Incompatible, OneShot, Setting, TrainError};
use crate::seed::{Seed, standard_normal};
use crate::settings::{self, Kind};

crate::section! {
    /// One-shot learning with prototypes, whose models are fused when they are used.
    #[derive(Copy)]
    pub struct Fafi {
        /// The weight of the cross-entropy, `w_ce`.
        pub classify: f64 = 2.0, in Kind::NOT_NEGATIVE;
        /// The weight of the supervised contrast, `w_con`; 0 is the ablation without it, which takes one view of each sample.
        pub contrast: f64 = 1.0, in Kind::NOT_NEGATIVE;
        /// The weight of the separation of the prototypes, `w_proto`.
        pub separate: f64 = 1.0, in Kind::NOT_NEGATIVE;
        /// The temperature of the contrast, and of the probabilities that cosines become.
        pub temperature: f64 = 0.07, in Kind::RATE;
        /// How the members become one answer.
        pub fusion: Fusion = Fusion::default();
        /// The temperature of the cross-entropy: what the products with the prototypes are divided by.
        pub prototype_temperature: f64 = 1.0, in Kind::RATE;
        /// The noise with which informative fusion compares a sample.
        pub noise: Noise = Noise::default();
    }
}

const SIDE_BY_SIDE: &str =
    "fafi keeps the clients' models side by side and aggregates nothing: leave [aggregation] out";

impl OneShot for Fafi {
    const NAME: &'static str = "fafi";
    const INCOMPATIBLE: &'static [Incompatible] = refusals!(
        "fafi",
        own: [
            (Setting::Numbers, "fafi learns a prototype of each class: use fedavg"),
            (
                Setting::Opaque,
                "fafi fuses representations, which a network of a trainer does not show: use fedavg",
            ),
            (
                Setting::Bare,
                "fafi fuses representations, which are the samples themselves where nothing is learned below the last layer: \
                 use a model with hidden layers",
            ),
        ],
        aggregation: SIDE_BY_SIDE,
        weights: [(Setting::UniformWeights, SIDE_BY_SIDE)]
    );

    fn later() -> Vec<u8> {
        let Self { prototype_temperature, noise, .. } = Self::default();
        postcard::to_stdvec(&(prototype_temperature, noise)).expect("numbers are encoded")
    }

    fn validate(&self) -> Result<(), String> {
        settings::check(self)?;
        Head::Prototypes.check(self.fusion).map_err(|reason| format!("fusion: {reason}"))?;
        if self.classify == 0.0 && self.contrast == 0.0 {
            return Err(
                "classify and contrast are both 0, and nothing would be learned of the samples".to_owned()
            );
        }
        Ok(())
    }

    fn client_needs(&self) -> ClientNeeds {
        ClientNeeds { views: if self.contrast > 0.0 { 2 } else { 1 }, ..ClientNeeds::default() }
    }

    /// Prototypes start as standard normal values, as in the authors' program: the softmax of the cross-entropy and the separation
    /// take their temperature from the prototypes' lengths, which are about the square root of their dimensions then.
    fn start(&self, network: &Architecture, params: &mut ParamSet, seed: &Seed) {
        let prototypes =
            prototypes_of(network).and_then(|name| Some((params.get_mut(&name)?, seed.derive("prototypes"))));
        if let Some((prototypes, seed)) = prototypes {
            let mut rng = seed.rng();
            prototypes.values_mut().iter_mut().for_each(|value| *value = standard_normal(&mut rng) as f32);
        }
    }

    /// All but the last layer become what is fused, and the last, without bias, the prototypes.
    fn network(&self, configured: Architecture) -> Result<Architecture, String> {
        with_prototypes(configured, Self::NAME)
    }

    fn learn(&self, client: &mut Client<'_>, start: &ParamSet) -> Result<ParamSet, TrainError> {
        let head = prototypes_of(&client.spec.architecture)
            .ok_or_else(|| TrainError::Broadcast("its last layer is not linear without bias".to_owned()))?;
        let loss = PrototypeLoss {
            classify: self.classify as f32,
            contrast: self.contrast as f32,
            separate: self.separate as f32,
            temperature: self.temperature as f32,
            prototype_temperature: self.prototype_temperature as f32,
        };
        let spec = client.spec;
        client.epochs_of(start, |learner, first, drawn| {
            let both;
            let batch = if self.contrast == 0.0 {
                first
            } else {
                let (mut x, mut shape) = (first.x().to_vec(), first.shape().to_vec());
                drawn.view(&spec.data.preparation, "second view", &mut x);
                shape[0] *= 2;
                both = Batch::new(x, shape, first.y().repeat(2))?;
                &both
            };
            let mut terms = PrototypeTerms::default();
            learner.step_with_loss(batch, &mut |network, gradients| {
                let prototypes = network.parameter(&head)?;
                let outputs = Prototyped {
                    representation: network.representation(),
                    logits: network.logits(),
                    prototypes: prototypes.values(),
                    labels: batch.y(),
                };
                terms = loss.of(outputs, &head, gradients);
                Ok(loss.value(&terms))
            })?;
            Ok(terms.classification)
        })
    }

    fn answering(&self) -> Answering {
        let Self { fusion, temperature, noise, .. } = *self;
        Answering { fusion, temperature, noise, head: Head::Prototypes }
    }
}

#[cfg(test)]
mod tests {
    use models::Layer;

    use super::*;

    #[test]
    fn the_last_layer_becomes_the_prototypes_and_all_before_it_the_extractor() {
        for (model, input, tensor, d) in [
            ("lenet-5", [3, 32, 32], "head.fc3.weight", 84),
            ("moon-cnn", [3, 32, 32], "head.fc.weight", 256),
            ("resnet-9", [3, 32, 32], "head.fc.weight", 512),
            ("mlp-2nn", [1, 28, 28], "head.fc3.weight", 200),
        ] {
            let configured = Architecture::by_name(model, &input, 10).unwrap();
            let network = Fafi::default().network(configured.clone()).unwrap();
            assert_eq!(prototypes_of(&network).as_deref(), Some(tensor));
            let specs = network.parameter_specs().unwrap();
            let last = specs.last().unwrap();
            assert_eq!((last.name.as_str(), &last.shape[..]), (tensor, &[10, d][..]));
            // Only the bias of the last layer was removed.
            let bias = if model == "resnet-9" { 0 } else { 10 };
            assert_eq!(network.parameters().unwrap() + bias, configured.parameters().unwrap(), "{model}");
            assert_eq!(Fafi::default().network(network.clone()), Ok(network), "once is enough");
        }
    }

    #[test]
    fn an_ensemble_answers_with_the_settings_of_its_run() {
        let noise = Noise { mean: 0.5, deviation: 2.0 };
        let fafi = Fafi { temperature: 0.3, noise, ..Fafi::default() };
        let expected = Answering { fusion: fafi.fusion, temperature: 0.3, noise, head: Head::Prototypes };
        assert_eq!(fafi.answering(), expected);
    }

    #[test]
    fn prototypes_start_as_standard_normal_values_and_nothing_else_changes() {
        let network = Architecture::by_name("lenet-5", &[1, 28, 28], 10).unwrap();
        let network = Fafi::default().network(network).unwrap();
        let name = prototypes_of(&network).unwrap();
        let before = network.initialise(|tensor| Seed::root(1).derive(tensor).rng()).unwrap();
        let started = |seed: u64| {
            let mut params = before.clone();
            Fafi::default().start(&network, &mut params, &Seed::root(seed));
            params
        };
        let after = started(1);
        assert!(after.iter().all(|(tensor, array)| *tensor == name || before.get(tensor) == Some(array)));
        let prototypes = after.get(&name).unwrap().values();
        let count = prototypes.len() as f32;
        let mean = prototypes.iter().sum::<f32>() / count;
        let variance = prototypes.iter().map(|value| value * value).sum::<f32>() / count;
        assert!(mean.abs() < 0.15 && (variance - 1.0).abs() < 0.2, "{mean} {variance}");
        assert!(after == started(1) && after != started(2));
        let mut other = before.clone();
        crate::algorithm::Algorithm::start(
            &crate::algorithm::fedavg::FedAvg::default(),
            &network,
            &mut other,
            &Seed::root(1),
        );
        assert_eq!(other, before);
    }

    #[test]
    fn networks_without_one_representation_of_a_sample_are_refused() {
        let text = Architecture::by_name("char-lstm", &[80], 90).unwrap();
        let reason = Fafi::default().network(text).unwrap_err();
        assert!(reason.contains("text") && reason.contains("images"), "{reason}");
        let mut other = Architecture::by_name("mlp-2nn", &[1, 28, 28], 10).unwrap();
        other.head.push(Layer::Relu);
        assert!(Fafi::default().network(other).unwrap_err().contains("end it with a linear layer"));
    }
}
