//! Answers of ensembles: results that are the clients' models side by side.

use std::fmt;

use models::{Architecture, Layer};
use serde::{Deserialize, Serialize};

use crate::settings::{self, Kind};

/// How the members of an ensemble become one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Fusion {
    /// Features, each member's by how much more than noise it finds in a sample.
    #[default]
    Informative,
    /// Features, by the members' numbers of samples.
    Size,
    /// Features, all alike.
    Uniform,
    /// The members' own answers, by their numbers of samples: the usual ensemble.
    ///
    /// Of members with [prototypes](Head::Prototypes) these are `f_hat P^T`, of [classifiers](Head::Classifier) the outputs of
    /// the last layer.
    Logits,
    /// The probabilities that classifiers have for the classes, by the members' numbers of samples.
    Probabilities,
}

crate::named!(Fusion);

impl Fusion {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Informative, Self::Size, Self::Uniform, Self::Logits, Self::Probabilities];

    /// Whether features are fused, and not what the members answer.
    #[must_use]
    pub fn is_of_features(self) -> bool {
        matches!(self, Self::Informative | Self::Size | Self::Uniform)
    }

    /// Its name in a configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        crate::settings::variants::<Self>()[self as usize]
    }
}

impl fmt::Display for Fusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the last layer of an ensemble's members is, and so how they can be fused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Head {
    /// Prototypes, one for each class, which features of length 1 are compared with. Members have learned from the same start, so that the
    /// mean of their prototypes makes sense.
    #[default]
    Prototypes,
    /// A layer that gives the logits, as every network has one. What members have in common are their answers alone.
    Classifier,
}

impl Head {
    /// The fusions of members with it.
    #[must_use]
    pub fn fusions(self) -> &'static [Fusion] {
        match self {
            Self::Prototypes => &[Fusion::Informative, Fusion::Size, Fusion::Uniform, Fusion::Logits],
            Self::Classifier => &[Fusion::Logits, Fusion::Probabilities],
        }
    }

    /// Refuses a fusion that members with it do not have, with the reason.
    pub fn check(self, fusion: Fusion) -> Result<(), String> {
        if self.fusions().contains(&fusion) {
            return Ok(());
        }
        let whose = match self {
            Self::Prototypes => "members with prototypes",
            Self::Classifier => "classifiers, which have no features in common,",
        };
        let names: Vec<&str> = self.fusions().iter().map(|fusion| fusion.name()).collect();
        Err(format!("{whose} are not fused by {fusion}: choose {}", names.join(" or ")))
    }
}

crate::section! {
    /// The noise with which informative fusion compares a sample: normal, in the space of prepared samples.
    #[derive(Copy)]
    pub struct Noise {
        /// Its mean, mu.
        pub mean: f64 = 0.0, in Kind::FINITE;
        /// Its standard deviation, sigma.
        pub deviation: f64 = 1.0, in Kind::RATE;
    }
}

impl Noise {
    /// Refuses numbers that are no mean or no deviation.
    pub fn check(&self) -> Result<(), String> {
        settings::check(self)
    }

    /// The value for a standard normal one.
    #[must_use]
    pub fn of(self, standard: f64) -> f32 {
        (self.mean + self.deviation * standard) as f32
    }
}

/// How an algorithm's ensemble answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Answering {
    /// How members become one answer, unless something else is asked for.
    pub fusion: Fusion,
    /// What cosines are divided by before they become probabilities.
    pub temperature: f64,
    /// The noise of informative fusion. A file has it apart, so that a program that does not know it refuses the file.
    #[serde(skip)]
    pub noise: Noise,
    /// What the members' last layers are. A file has it apart, as the noise.
    #[serde(skip)]
    pub head: Head,
}

/// The name of the tensor that holds the prototypes of a network whose last layer is linear and has no bias.
#[must_use]
pub fn prototypes_of(network: &Architecture) -> Option<String> {
    match network.head.as_slice() {
        [Layer::Linear { name, bias: false, .. }] => Some(format!("head.{name}.weight")),
        _ => None,
    }
}

/// The network whose last layer, without bias, is the prototypes and all before it one part, for the algorithm of this name.
///
/// # Errors
/// Why this network has no one representation of a sample.
pub(super) fn with_prototypes(configured: Architecture, algorithm: &str) -> Result<Architecture, String> {
    if configured.vocabulary().is_some() || configured.predictions().is_ok_and(|each| each != 1) {
        return Err(format!(
            "{algorithm} fuses one representation of each image or vector, and this model reads text or predicts at every position of \
             a sequence: use a model of images"
        ));
    }
    let mut network = configured;
    let Some(Layer::Linear { name, out, .. }) = network.head.pop() else {
        return Err(format!(
            "{algorithm} takes the weights of the last layer as prototypes, and this model's is not linear: end it with a linear layer"
        ));
    };
    network.projection.append(&mut network.head);
    network.head = vec![Layer::Linear { name, out, bias: false }];
    match network.parameter_specs() {
        Ok(_) => Ok(network),
        Err(error) => Err(format!("{algorithm} takes all before the last layer as one part: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_the_configuration() {
        for fusion in Fusion::ALL {
            let value = toml::Value::try_from(fusion).unwrap();
            assert_eq!(value.as_str(), Some(fusion.name()));
        }
    }
}
