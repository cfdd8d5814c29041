//! FedETF: a fixed classifier that is the same for all clients.
//!
//! Li, Shang, He, Lin, Wu: *No Fear of Classifier Biases: Neural Collapse Inspired Federated Learning with Synthetic and Fixed
//! Classifier*, ICCV 2023 (arXiv 2303.10058).
//!
//! ```text
//! network:   z = projection of the features to as many numbers as classes,   u = z / |z|
//!            logits s_c = beta u . v_c,   v_1 ... v_C the vertices of a regular simplex, beta learned
//! client k:  w_k = E epochs of minibatch SGD from w_t on  -log( n_ky^gamma e^(s_y) / sum_c n_kc^gamma e^(s_c) )
//! server:    as FedAvg
//! ```
//!
//! with `n_kc` the client's samples of class `c`, or 1 where it has none, as in the authors' program: where the paper's formula has 0, the
//! class would have no part in the loss, and a client with one class would learn nothing. The classifier cannot be drawn towards the
//! classes that a client has many of, and the loss (Ren et al. 2020, "balanced softmax") asks for less where they are many. Tests and
//! predictions go by the logits alone.
//!
//! The projection is the configured network's last linear layer, and the fixed classifier a [`Layer::SimplexEtf`] behind it, unless the
//! network ends with one. So it is in the program's ResNets and its LeNet, where beta starts at 1; a projection of its CNN to 64 numbers
//! is a linear layer more, `model.layers`. The program turns the simplex at random; the projection learns any turn, so ours is not
//! turned.
//!
//! What the paper does after the federation, clients that fine-tune projection and classifier for themselves, is not part of it.

use models::params::ParamSet;
use models::{Architecture, Layer, Task, cross_entropy};

use super::{Client, Incompatible, Objective, Setting, TrainError};
use crate::seed::Seed;
use crate::settings::{self, Kind};

crate::section! {
    /// Federated averaging with a fixed classifier and a balanced loss.
    #[derive(Copy)]
    pub struct FedEtf {
        /// The exponent `gamma` of the numbers of samples in the loss; 0 is the plain cross-entropy.
        pub balance: f64 = 1.0, in Kind::NOT_NEGATIVE;
        /// Where the factor `beta` of the cosines starts. The authors' program has 1, and 10 for its small CNN.
        pub scale: f64 = 1.0, in Kind::RATE;
    }
}

impl Objective for FedEtf {
    const NAME: &'static str = "fedetf";
    const INCOMPATIBLE: &'static [Incompatible] = &[
        (
            Setting::Opaque,
            "fedetf puts a classifier of its own behind the network, and one of a trainer has no layers here: use fedavg",
        ),
        (Setting::Numbers, "fedetf classifies by the corners of a simplex, one for each class: use fedavg"),
        (
            Setting::Matched,
            "the directions of fedetf's classifier are the same for all clients, and there is nothing to match: leave \
             aggregation.rule out",
        ),
    ];
    type Local = ();

    fn validate(&self) -> Result<(), String> {
        settings::check(self)
    }

    fn network(&self, configured: Architecture) -> Result<Architecture, String> {
        let mut network = configured;
        if classifier(&network).is_some() || network.task != Task::Classification {
            return Ok(network);
        }
        network.head.push(Layer::SimplexEtf { name: "etf".to_owned() });
        match network.parameter_specs() {
            Ok(_) => Ok(network),
            Err(error) => Err(format!("fedetf puts its classifier behind the last layer: {error}")),
        }
    }

    fn start(&self, network: &Architecture, params: &mut ParamSet, _: &Seed) {
        let factor = classifier(network).and_then(|name| params.get_mut(&format!("head.{name}.weight")));
        if let Some(factor) = factor {
            factor.values_mut().fill(self.scale as f32);
        }
    }

    fn train(&self, client: &mut Client<'_>, w_t: &ParamSet, (): &mut ()) -> Result<ParamSet, TrainError> {
        if self.balance == 0.0 {
            let w_k = client.sgd(w_t)?;
            return client.delta(w_k, w_t);
        }
        let prior = self.prior(&client.class_counts()?);
        let mut balanced = Vec::new();
        let w_k = client.epochs(w_t, |learner, batch| {
            learner.step_with_loss(batch, &mut |network, gradients| {
                balanced.clear();
                let rows = network.logits().chunks_exact(prior.len());
                balanced
                    .extend(rows.flat_map(|row| row.iter().zip(&prior).map(|(logit, prior)| logit + prior)));
                Ok(cross_entropy(&balanced, batch.y(), &mut gradients.logits))
            })
        })?;
        client.delta(w_k, w_t)
    }
}

impl FedEtf {
    /// `gamma log n_c`.
    fn prior(&self, counts: &[usize]) -> Vec<f32> {
        counts.iter().map(|&count| (self.balance * (count.max(1) as f64).ln()) as f32).collect()
    }
}

/// The name of the fixed classifier that a network ends with.
fn classifier(network: &Architecture) -> Option<&str> {
    match network.head.last() {
        Some(Layer::SimplexEtf { name }) => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_classifier_stands_behind_the_last_layer_and_learns_one_number() {
        for (model, input, classes) in [("lenet-5", &[1, 28, 28][..], 10), ("char-lstm", &[80], 90)] {
            let configured = Architecture::by_name(model, input, classes).unwrap();
            let network = FedEtf::default().network(configured.clone()).unwrap();
            assert_eq!(network.parameters().unwrap(), configured.parameters().unwrap() + 1);
            assert_eq!(network.predictions(), configured.predictions());
            assert_eq!(FedEtf::default().network(network.clone()), Ok(network.clone()), "once is enough");
            let mut params = network.initialise(|tensor| Seed::root(1).derive(tensor).rng()).unwrap();
            FedEtf { scale: 8.0, ..FedEtf::default() }.start(&network, &mut params, &Seed::root(1));
            assert_eq!(params.get("head.etf.weight").unwrap().values(), [8.0]);
        }
    }

    #[test]
    fn a_classifier_of_ones_own_is_taken() {
        let mut network = Architecture::by_name("lenet-5", &[1, 28, 28], 10).unwrap();
        network.head.push(Layer::SimplexEtf { name: "etf1".to_owned() });
        assert_eq!(FedEtf::default().network(network.clone()), Ok(network.clone()));
        let mut params = network.initialise(|tensor| Seed::root(1).derive(tensor).rng()).unwrap();
        FedEtf { scale: 8.0, ..FedEtf::default() }.start(&network, &mut params, &Seed::root(1));
        assert_eq!(params.get("head.etf1.weight").unwrap().values(), [8.0]);
    }

    #[test]
    fn classes_that_are_not_there_count_as_one_sample() {
        let prior = FedEtf::default().prior(&[0, 1, 100]);
        assert_eq!((prior[0], prior[1]), (0.0, 0.0));
        let half = FedEtf { balance: 0.5, ..FedEtf::default() }.prior(&[1, 100]);
        assert!((half[1] - 10f32.ln()).abs() < 1e-6);
        let mut gradient = Vec::new();
        let logits: Vec<f32> =
            [0.0, 1.0, 1.0].iter().zip(&prior).map(|(logit, prior)| logit + prior).collect();
        let value = cross_entropy(&logits, &[1], &mut gradient);
        // 1 + e + 100 e to e.
        let sum = 1.0 + 101.0 * 1f32.exp();
        assert!((value - (sum.ln() - 1.0)).abs() < 1e-5, "{value}");
        assert!((gradient[0] - 1.0 / sum).abs() < 1e-6, "{gradient:?}");
    }
}
