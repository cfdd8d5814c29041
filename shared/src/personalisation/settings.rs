//! What the configuration says of personalisation, and which models it fits.

use models::{Architecture, Sgd};
use serde::{Deserialize, Serialize};

/// How the clients of a run make models of their own from the global one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Personalisation {
    /// All are made from the same global model and tested; the device keeps and uses the first. Methods on FB's head share it,
    /// so that their comparison is paired, and cheap. Without any, the model that a client uses is tested as it is.
    pub methods: Vec<Method>,
    /// Interval in rounds, from the model that the round begins with; 0: only after the last round.
    pub every: u32,
    /// The share of a device's samples that the local expert learns from; the rest is the gate's.
    pub expert_share: f64,
    /// What the mixture is of.
    pub mix: Mix,
    /// How FT's model learns.
    pub whole: Tuning,
    /// How FB's head learns, which is the local expert of the mixtures too.
    pub head: Tuning,
    /// How the gate learns.
    pub gate: GateTraining,
    /// What the server is told.
    pub report: Reports,
}

/// A way to a personal model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// PFL-FT: all parameters learn on.
    Ft,
    /// PFL-FB: what stands on the extractor learns on.
    Fb,
    /// PFL-MF: global and local expert, weighed by the input.
    Mf,
    /// PFL-MFE: global and local expert, weighed by the extractor's activations.
    Mfe,
    /// Global and local expert, half and half.
    Fixed,
}

/// What is mixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// Logits, as in the paper.
    #[default]
    Logits,
    /// Probabilities.
    Probabilities,
}

/// How parameters learn on from the global model's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Tuning {
    /// Passes over the expert's part.
    pub epochs: u32,
    /// Samples in a batch; 0 for all in one. A client with fewer trains on all of them at once.
    pub batch: u32,
    /// The learning rate.
    pub rate: f64,
    /// The share of the velocity that is kept.
    pub momentum: f64,
    /// The weight decay.
    pub decay: f64,
}

/// The paper's (section 4.1); how many epochs is not published.
impl Default for Tuning {
    fn default() -> Self {
        Self { epochs: 10, batch: 64, rate: 1e-3, momentum: 0.9, decay: 5e-4 }
    }
}

impl Tuning {
    /// The optimiser.
    #[must_use]
    pub fn sgd(&self) -> Sgd {
        Sgd { rate: self.rate, momentum: self.momentum, decay: self.decay }
    }
}

/// How the gate learns: with [`Adam`](models::Adam).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct GateTraining {
    /// Passes over the gate's part.
    pub epochs: u32,
    /// Samples in a batch; 0 for all in one.
    pub batch: u32,
    /// The learning rate.
    pub rate: f64,
}

/// As for [`Tuning`].
impl Default for GateTraining {
    fn default() -> Self {
        Self { epochs: 10, batch: 64, rate: 1e-3 }
    }
}

/// Which measurements may leave the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Reports {
    /// The local tests, of the global and of the personal models.
    pub local_test: bool,
    /// The global tests, of the global and of the personal models.
    pub global_test: bool,
    /// The mean weight of the global expert.
    pub gate: bool,
}

impl Reports {
    /// Everything.
    pub const ALL: Self = Self { local_test: true, global_test: true, gate: true };
}

impl Default for Reports {
    fn default() -> Self {
        Self::ALL
    }
}

impl Method {
    /// All of them, in the order of the paper; the control last.
    pub const ALL: [Self; 5] = [Self::Ft, Self::Fb, Self::Mf, Self::Mfe, Self::Fixed];

    /// Its name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ft => "ft",
            Self::Fb => "fb",
            Self::Mf => "mf",
            Self::Mfe => "mfe",
            Self::Fixed => "fixed",
        }
    }

    /// Whether its local expert is a whole model, and not a head on the global extractor.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self == Self::Ft
    }

    /// Whether the global expert has a say in its answers.
    #[must_use]
    pub fn mixes(self) -> bool {
        matches!(self, Self::Mf | Self::Mfe | Self::Fixed)
    }

    /// Refuses a model that it makes no sense with.
    ///
    /// # Errors
    /// [`Unfit`], which says what to do instead.
    pub fn fits(self, architecture: &Architecture) -> Result<(), Unfit> {
        let (method, model) = (self.name(), architecture.name.clone());
        if self.is_whole() {
            return Ok(());
        }
        if !architecture.learns_part("head") && !architecture.learns_part("projection") {
            return Err(Unfit::NoHead { method, model });
        }
        if !architecture.learns_part("extractor") {
            return Err(Unfit::NoExtractor { method, model });
        }
        if self == Self::Mf && architecture.vocabulary().is_some() {
            return Err(Unfit::Tokens { model });
        }
        Ok(())
    }
}

/// A method that makes no sense with a model. The operator's configuration is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// There is nothing to personalise.
    #[error(
        "{method} personalises the layers above the extractor, and the model {model} has none that learn: give it a head, \
         or use ft"
    )]
    NoHead {
        /// The method.
        method: &'static str,
        /// The model.
        model: String,
    },
    /// Nothing would stay as it is.
    #[error(
        "{method} keeps the extractor and personalises what stands on it, and the extractor of the model {model} learns \
         nothing: use ft, or another model"
    )]
    NoExtractor {
        /// The method.
        method: &'static str,
        /// The model.
        model: String,
    },
    /// Tokens are names and no measurements: a gate can make nothing of their numbers.
    #[error(
        "mf weighs by the input, and the input of the model {model} is text, whose numbers stand for tokens: use mfe"
    )]
    Tokens {
        /// The model.
        model: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_without_the_part_that_a_method_needs_is_refused_by_name() {
        let built_in = |name, input: &[usize]| Architecture::by_name(name, input, 10).unwrap();
        let lenet = built_in("lenet-5", &[1, 28, 28]);
        let (linear, text) = (built_in("linear", &[1, 28, 28]), built_in("char-lstm", &[20]));
        // The same layers, all in the extractor.
        let mut headless = lenet.clone();
        headless.extractor.append(&mut headless.head);
        for method in Method::ALL {
            assert_eq!(method.fits(&lenet), Ok(()));
            assert_eq!(method.fits(&linear).is_ok(), method == Method::Ft, "{method:?}");
            assert_eq!(method.fits(&headless).is_ok(), method == Method::Ft, "{method:?}");
            assert_eq!(method.fits(&text).is_ok(), method != Method::Mf, "{method:?}");
        }
        let messages = [&linear, &headless].map(|model| Method::Mfe.fits(model).unwrap_err().to_string());
        assert!(messages[0].contains("model linear learns nothing: use ft"), "{}", messages[0]);
        assert!(messages[1].contains("lenet-5 has none that learn"), "{}", messages[1]);
    }
}
