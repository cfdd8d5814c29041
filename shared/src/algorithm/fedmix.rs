//! `FedMix`, the client's half: learning from pseudo-labels where there are no labels.
//!
//! Wang et al.: `FedMix` (a federated semi-supervised learning with labels at the server), Computer Engineering 48(6), 2022.
//!
//! ```text
//! client k:  psi_k = E_c epochs of minibatch SGD from omega_t on
//!              L_u = lambda_1 CE(y_hat, f(u)) [max(y_bar) >= gate] + lambda_2 ||f(pi_1(u)) - f(pi_2(u))||^2
//!            y_bar = mean of f over A perturbed copies of u,   y_hat_j = y_bar_j^(1/T) / sum_i y_bar_i^(1/T)
//! server:    psi as FedAvg's mean, with any weights, rule and optimiser; then
//!            omega_{t+1} = alpha psi + beta sigma_{t+1} + gamma omega_t
//! ```
//!
//! where f is the softmax output of the model in training, `pi_1` a shift and `pi_2` a flip (a shift as well where a mirror
//! image is another thing, as of digits). The gate looks at `y_bar` before it is sharpened and holds back the first term
//! alone, whose sum is divided by the size of the batch, not by the number of samples that pass. No gradient flows through
//! `y_hat`. The A copies are moved like `pi_1`, and mirrored every other time if `pi_2` is a flip.
//!
//! The weights of the terms are not published; with `lambda_2 >= 1` predictions collapsed to one in our trials.
//!
//! What the server trains, sigma, and the mix are settings of their own
//! ([`Mixture`](crate::aggregation::Mixture)): they go with every objective, and this one goes without them.
//!
//! The loss that is reported is `L_u`, so a client whose samples stay behind the gate reports a small one. Beside it: the share
//! of samples that passed, the share of classes that were predicted, and the mean entropy of `y_bar` divided by `log C`.

use models::params::ParamSet;
use models::{Batch, pseudo_label};
use serde::{Deserialize, Serialize};

use super::unlabelled::{Seen, perturbed, suit};
use super::{Client, ClientNeeds, Drawn, Incompatible, Objective, Setting, TrainError};
use crate::data::{Augmentation, Preparation};
use crate::settings::{self, Kind};
use crate::spec::{DataSpec, Training};

crate::section! {
    /// Learning from pseudo-labels.
    #[derive(Copy)]
    pub struct FedMix {
        /// The weight of the cross-entropy with pseudo-labels.
        pub lambda_1: f64 = 1.0, in Kind::NOT_NEGATIVE;
        /// The weight of the distance between the predictions of two perturbed copies.
        pub lambda_2: f64 = 0.1, in Kind::NOT_NEGATIVE;
        /// A: number of perturbed copies that are predicted for a pseudo-label.
        pub predictions: u32 = 5, in Kind::COUNT;
        /// The least mean probability of a class that makes a pseudo-label.
        pub gate: f64 = 0.8, in Kind::PROBABILITY;
        /// T: 1 leaves pseudo-labels as they are predicted, 0 makes them one class.
        pub temperature: f64 = 0.5, in Kind::NOT_NEGATIVE;
        /// `pi_1` and `pi_2`.
        pub perturbations: [Perturbation; 2] = [Perturbation::Shift, Perturbation::Flip];
        /// Pixels by which a shift moves at most, in each direction.
        pub shift: u32 = 2, in Kind::COUNT;
    }
}

crate::named!(Perturbation);

/// A change of an image that leaves what it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Perturbation {
    /// Moved at random.
    Shift,
    /// Mirrored, left to right.
    Flip,
}

impl FedMix {
    /// `pi_1` or `pi_2`.
    fn perturbation(&self, run: &Preparation, which: Perturbation) -> Preparation {
        match which {
            Perturbation::Shift => {
                perturbed(run, Augmentation { random_shift: self.shift, ..Augmentation::default() })
            }
            Perturbation::Flip => {
                perturbed(run, Augmentation { horizontal_flip: 1.0, ..Augmentation::default() })
            }
        }
    }

    /// What a copy that is predicted for a pseudo-label goes through.
    fn copy(&self, run: &Preparation) -> Preparation {
        let flips = self.perturbations.contains(&Perturbation::Flip);
        let horizontal_flip = if flips { 0.5 } else { 0.0 };
        perturbed(run, Augmentation { random_shift: self.shift, horizontal_flip, ..Augmentation::default() })
    }
}

impl Objective for FedMix {
    const NAME: &'static str = "fedmix";
    const INCOMPATIBLE: &'static [Incompatible] = &[
        (
            Setting::Opaque,
            "fedmix learns from pseudo-labels of our engine, and a trainer of a device's owner has its own: use fedavg",
        ),
        (Setting::Numbers, "fedmix learns from classes that a model is sure of: use fedavg"),
    ];
    type Local = ();

    fn validate(&self) -> Result<(), String> {
        settings::check(self)?;
        if self.lambda_1 == 0.0 && self.lambda_2 == 0.0 {
            return Err("lambda-1 and lambda-2 are both 0: clients would learn nothing".to_owned());
        }
        if self.predictions == 0 {
            return Err("predictions must be at least 1: a pseudo-label is the mean of some".to_owned());
        }
        Ok(())
    }

    fn check_data(&self, data: &DataSpec, _training: &Training) -> Result<(), String> {
        let run = &data.preparation;
        let [first, second] = self.perturbations;
        let all = [self.perturbation(run, first), self.perturbation(run, second), self.copy(run)];
        suit(Self::NAME, &all, data)
    }

    fn client_needs(&self) -> ClientNeeds {
        let views = if self.lambda_2 > 0.0 { 3 } else { 1 };
        ClientNeeds { views, predictions: self.predictions, ..ClientNeeds::default() }
    }

    fn train(&self, client: &mut Client<'_>, w_t: &ParamSet, (): &mut ()) -> Result<ParamSet, TrainError> {
        let spec = client.spec;
        // A server is not believed that this is so.
        self.check_data(&spec.data, &spec.training).map_err(TrainError::Broadcast)?;
        let (run, classes) = (&spec.data.preparation, spec.architecture.classes);
        let [pi_1, pi_2] = self.perturbations.map(|which| self.perturbation(run, which));
        let (copy, input) = (self.copy(run), &spec.architecture.input);
        let mut seen = Seen::of(classes);
        let w_k = client.epochs_of(w_t, |learner, batch, drawn: &Drawn<'_>| {
            let n = batch.len();
            let shape = |samples: usize| [&[samples], &input[..]].concat();
            let mut y_bar = vec![0.0; n * classes];
            for number in 0..self.predictions {
                let mut x = Vec::with_capacity(batch.x().len());
                drawn.view(&copy, &format!("prediction {number}"), &mut x);
                let logits = learner.predict(&Batch::unlabelled(x, shape(n))?)?;
                pseudo_label::add_probabilities(logits, classes, &mut y_bar);
            }
            for p in &mut y_bar {
                *p /= self.predictions as f32;
            }
            let passes = seen.look_at(&y_bar, self.gate as f32);
            let mut y_hat = y_bar;
            for row in y_hat.chunks_exact_mut(classes) {
                pseudo_label::sharpen(row, self.temperature);
            }

            let mut x = batch.x().to_vec();
            if self.lambda_2 > 0.0 {
                drawn.view(&pi_1, "pi 1", &mut x);
                drawn.view(&pi_2, "pi 2", &mut x);
            }
            let rows = if self.lambda_2 > 0.0 { 3 * n } else { n };
            let (lambda_1, lambda_2) = (self.lambda_1 as f32, self.lambda_2 as f32);
            let loss = learner.step_with_loss(&Batch::unlabelled(x, shape(rows))?, &mut |network, by| {
                let logits = network.logits();
                by.representation.clear();
                by.parameters.clear();
                by.logits.clear();
                by.logits.resize(logits.len(), 0.0);
                let (u, views) = logits.split_at(n * classes);
                let (by_u, by_views) = by.logits.split_at_mut(n * classes);
                let mut loss =
                    lambda_1 * pseudo_label::soft_cross_entropy(u, &y_hat, &passes, lambda_1, by_u);
                if lambda_2 > 0.0 {
                    let half = n * classes;
                    let distance = pseudo_label::squared_distance(
                        views.split_at(half),
                        n,
                        lambda_2,
                        by_views.split_at_mut(half),
                    );
                    loss += lambda_2 * distance;
                }
                Ok(loss)
            })?;
            Ok(loss)
        })?;
        seen.report(client);
        client.delta(w_k, w_t)
    }
}
