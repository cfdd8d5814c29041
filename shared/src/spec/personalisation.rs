//! `[personalisation]`: how clients make models of their own from the global one, and which models that fits.

use std::ops::Bound::Excluded;

use models::{AdamSettings, Architecture, Sgd};
use serde::{Deserialize, Serialize};

use crate::data::Preparation;
use crate::settings::Kind;

crate::section! {
    /// How the clients of a run make models of their own.
    pub struct Personalisation {
        /// None, ft, fb, mf, mfe, fixed: own models; the first is kept
        ///
        /// All are made from the same global model and tested. Methods on FB's head share it, so that their comparison is paired, and
        /// cheap.
        pub method: Option<Methods> = None, in Kind::SomeOf(METHODS), unset "no personal models";
        /// Rounds between personal models; 0: only of the last global model
        pub every: u32 = 0, in Kind::COUNT;
        /// Share of a client's samples that its expert learns from; the rest is its gate's
        pub expert_share: f64 = 0.75, in Kind::Number(Excluded(0.0), Excluded(1.0));
        /// A mixture of the global and the local expert is of their logits or probabilities
        pub mix: Mix = Mix::default();
        /// Heads and gates learn on samples augmented anew in every epoch, as the run's training does
        ///
        /// Else each sample goes through the extractor once, prepared as for a test. FT's are always augmented.
        pub augment: bool = false;
        /// How the local expert of all methods but FT learns
        pub head: Tuning = Tuning::default();
        /// How FT's model learns
        pub whole: Tuning = Tuning::default();
        /// How gates learn
        pub gate: GateTraining = GateTraining::default();
        /// What the server is told
        pub report: Reports = Reports::default();
    }
}

crate::section! {
    /// How parameters learn on from the global model's. The defaults are the paper's (section 4.1), but for the epochs: its official
    /// program takes 200.
    #[derive(Copy)]
    pub struct Tuning {
        /// Passes over the expert's part of the samples
        pub epochs: u32 = 10, in Kind::COUNT;
        /// Samples in a batch; 0 is all in one
        ///
        /// A client with fewer trains on all of them at once.
        pub batch: u32 = 64, in Kind::COUNT;
        /// Learning rate
        pub learning_rate: f64 = 1e-3, in Kind::RATE, was "rate";
        /// Share of the velocity that is kept from step to step; 0 is plain SGD
        pub momentum: f64 = 0.9, in Kind::SHARE;
        /// Weight decay (L2)
        pub weight_decay: f64 = 5e-4, in Kind::NOT_NEGATIVE, was "decay";
    }
}

crate::section! {
    /// How the gate learns: with [`Adam`](models::Adam).
    #[derive(Copy)]
    pub struct GateTraining {
        /// Passes over the gate's part of the samples: mf and mfe
        pub epochs: u32 = 10, in Kind::COUNT;
        /// Samples in a batch; 0 is all in one
        pub batch: u32 = 64, in Kind::COUNT;
        /// Learning rate of Adam
        pub learning_rate: f64 = 1e-3, in Kind::RATE, was "rate";
        /// Weight decay (L2)
        pub weight_decay: f64 = 0.0, in Kind::NOT_NEGATIVE;
    }
}

crate::section! {
    /// Which measurements may leave the device.
    #[derive(Copy, Eq)]
    pub struct Reports {
        /// The server learns accuracies on classes as frequent as a client has them
        pub local_test: bool = true;
        /// The server learns plain accuracies
        pub global_test: bool = true;
        /// The server learns how much the global expert counts
        pub gate: bool = true;
    }
}

crate::named!(Mix);

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

/// One method, several, or `none`, which makes no model and tests the global one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Names", into = "Names")]
pub struct Methods(pub Vec<Method>);

/// The names of [`Method::ALL`], and of none.
const METHODS: &[&str] = &["none", "ft", "fb", "mf", "mfe", "fixed"];

/// [`Methods`] as they are written.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Names {
    One(String),
    Several(Vec<String>),
}

impl From<Methods> for Names {
    fn from(Methods(methods): Methods) -> Self {
        match &*methods {
            [] => Self::One("none".to_owned()),
            [one] => Self::One(one.name().to_owned()),
            several => Self::Several(several.iter().map(|method| method.name().to_owned()).collect()),
        }
    }
}

impl TryFrom<Names> for Methods {
    type Error = String;

    fn try_from(names: Names) -> Result<Self, String> {
        let names = match names {
            Names::One(name) => vec![name],
            Names::Several(names) => names,
        };
        let known = |name: &String| Method::ALL.into_iter().find(|method| method.name() == name);
        let methods = names.iter().filter(|name| *name != "none");
        let methods = methods.map(|name| known(name).ok_or(format!("there is no method `{name}`")));
        methods.collect::<Result<_, _>>().map(Self)
    }
}

impl Personalisation {
    /// The methods with a gate that learns.
    pub fn gated(&self) -> impl Iterator<Item = Method> + '_ {
        self.methods().iter().copied().filter(|method| matches!(method, Method::Mf | Method::Mfe))
    }

    /// Whether heads and gates learn from samples that are augmented anew in every epoch.
    #[must_use]
    pub fn augments(&self, preparation: &Preparation) -> bool {
        self.augment && !preparation.is_fixed()
    }

    /// The methods; empty if none makes a model.
    #[must_use]
    pub fn methods(&self) -> &[Method] {
        self.method.as_ref().map_or(&[], |Methods(methods)| methods)
    }
}

impl Tuning {
    /// The optimiser.
    #[must_use]
    pub fn sgd(&self) -> Sgd {
        Sgd { rate: self.learning_rate, momentum: self.momentum, decay: self.weight_decay }
    }
}

impl GateTraining {
    /// The optimiser.
    #[must_use]
    pub fn adam(&self) -> AdamSettings {
        AdamSettings { decay: self.weight_decay, ..AdamSettings::with_rate(self.learning_rate) }
    }
}

impl Method {
    /// All of them, in the order of the paper; the control last.
    pub const ALL: [Self; 5] = [Self::Ft, Self::Fb, Self::Mf, Self::Mfe, Self::Fixed];

    /// Its name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        crate::settings::variants::<Self>()[self as usize]
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

    /// Refuses a model for another task than classification, with which no method goes.
    ///
    /// # Errors
    /// [`Unfit::Task`].
    pub fn tells_classes_apart(architecture: &Architecture) -> Result<(), Unfit> {
        if architecture.task.is_classification() {
            return Ok(());
        }
        Err(Unfit::Task { model: architecture.name.clone(), task: architecture.task.name() })
    }

    /// Refuses a model that it makes no sense with.
    ///
    /// # Errors
    /// [`Unfit`], which says what to do instead.
    pub fn fits(self, architecture: &Architecture) -> Result<(), Unfit> {
        let (method, model) = (self.name(), architecture.name.clone());
        Self::tells_classes_apart(architecture)?;
        if self.is_whole() {
            return Ok(());
        }
        if !architecture.learns_part("head") && !architecture.learns_part("projection") {
            return Err(Unfit::NoHead { method, model });
        }
        if !architecture.learns_part("extractor") && !architecture.is_part_frozen("extractor") {
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
    /// There are no classes.
    #[error(
        "personal models tell classes apart: their tests weigh classes and their gates mix probabilities, and the model {model} is for {task}"
    )]
    Task {
        /// The model.
        model: String,
        /// What it learns.
        task: &'static str,
    },
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
