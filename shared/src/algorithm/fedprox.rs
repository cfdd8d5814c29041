//! FedProx: local training that is held back.
//!
//! Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: *Federated Optimization in Heterogeneous Networks*, MLSys 2020
//! (arXiv 1812.06127), Algorithm 2 with SGD as the local solver.
//!
//! ```text
//! client k:  w_k = E epochs of minibatch SGD from w_t on  F_k(w) + (mu/2) ||w - w_t||^2
//! server:    as FedAvg
//! ```

use models::Correction;
use models::params::ParamSet;

use super::{Client, Incompatible, Objective, Setting, TrainError};
use crate::settings::{self, Kind};

crate::section! {
    /// Federated averaging with a proximal term.
    #[derive(Copy)]
    pub struct FedProx {
        /// How strongly local models are pulled back to the global one; 0 is FedAvg, to the bit. The paper tries 0.001 to 1.
        pub mu: f64 = 0.01, in Kind::NOT_NEGATIVE;
    }
}

impl Objective for FedProx {
    const NAME: &'static str = "fedprox";
    const INCOMPATIBLE: &'static [Incompatible] = &[(
        Setting::Opaque,
        "fedprox pulls every step back, and a trainer of a device's owner takes its own: use fedavg",
    )];
    type Local = ();

    fn validate(&self) -> Result<(), String> {
        settings::check(self)
    }

    fn train(&self, client: &mut Client<'_>, w_t: &ParamSet, (): &mut ()) -> Result<ParamSet, TrainError> {
        let anchor = (self.mu > 0.0).then(|| (self.mu, w_t.clone()));
        let w_k = client.sgd_corrected(w_t, &Correction { anchor, shift: None })?;
        client.delta(w_k, w_t)
    }
}
