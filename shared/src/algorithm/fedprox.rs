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
use serde::{Deserialize, Serialize};

use super::{Client, Objective, TrainError};

/// Federated averaging with a proximal term.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct FedProx {
    /// How strongly local models are pulled back to the global one; 0 is FedAvg, to the bit. The paper tries 0.001 to 1.
    pub mu: f64,
}

impl Default for FedProx {
    fn default() -> Self {
        Self { mu: 0.01 }
    }
}

impl Objective for FedProx {
    const NAME: &'static str = "fedprox";
    type Local = ();

    fn validate(&self) -> Result<(), String> {
        if self.mu.is_finite() && self.mu >= 0.0 {
            Ok(())
        } else {
            Err(format!("mu must be a number of at least 0, not {}", self.mu))
        }
    }

    fn train(&self, client: &mut Client<'_>, w_t: &ParamSet, (): &mut ()) -> Result<ParamSet, TrainError> {
        let anchor = (self.mu > 0.0).then(|| (self.mu, w_t.clone()));
        let w_k = client.sgd_corrected(w_t, &Correction { anchor, shift: None })?;
        client.delta(w_k, w_t)
    }
}
