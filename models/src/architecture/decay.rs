//! Which parameters weight decay takes from.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Architecture, ArchitectureError};

/// The parameters that weight decay takes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecayOn {
    /// All.
    #[default]
    All,
    /// Those of two or more axes: not biases, and not the scales of normalisation layers.
    Weights,
    /// The weights of linear layers but those of the last one, as in `TensorFlow`'s tutorial on CIFAR-10.
    HiddenLinear,
}

impl Architecture {
    /// The names of the parameters that weight decay spares.
    ///
    /// # Errors
    /// As [`Architecture::parameter_specs`].
    pub fn spared_by(&self, decay: DecayOn) -> Result<BTreeSet<String>, ArchitectureError> {
        let mut linear = self.linear_weights();
        linear.pop();
        let decays = |name: &String, axes: usize| match decay {
            DecayOn::All => true,
            DecayOn::Weights => axes > 1,
            DecayOn::HiddenLinear => linear.contains(name),
        };
        let specs = self.parameter_specs()?.into_iter();
        Ok(specs.filter(|spec| !decays(&spec.name, spec.shape.len())).map(|spec| spec.name).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decay_takes_from_what_its_name_says() {
        let cnn = Architecture::by_name("cnn-cifar", &[3, 24, 24], 10).unwrap();
        assert!(cnn.spared_by(DecayOn::All).unwrap().is_empty());
        let learned = |decay| {
            let spared = cnn.spared_by(decay).unwrap();
            let specs = cnn.parameter_specs().unwrap().into_iter();
            specs.map(|spec| spec.name).filter(|name| !spared.contains(name)).collect::<Vec<_>>()
        };
        let weights = learned(DecayOn::Weights);
        assert!(weights.len() == 5 && weights.iter().all(|name| name.ends_with(".weight")), "{weights:?}");
        let linear = learned(DecayOn::HiddenLinear);
        assert_eq!(linear, &weights[2..4], "the last layer is none of them");
        let resnet = Architecture::by_name("resnet-18", &[3, 32, 32], 10).unwrap();
        let spared = resnet.spared_by(DecayOn::Weights).unwrap();
        assert!(spared.contains("extractor.norm1.weight"), "{spared:?}");
    }
}
