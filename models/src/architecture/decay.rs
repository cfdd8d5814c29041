//! Which parameters weight decay takes from.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Architecture, ArchitectureError, ParameterKind, ParameterSpec, is_adapter};

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
    /// Whether weight decay takes from nothing that is learned.
    #[must_use]
    pub fn decays_nothing(&self, decay: DecayOn) -> bool {
        let (Ok(spared), Ok(specs)) = (self.spared_by(decay), self.parameter_specs()) else { return false };
        specs.iter().all(|spec| spec.kind == ParameterKind::Buffer || spared.contains(&spec.name))
    }

    /// The names of the parameters that weight decay spares.
    ///
    /// # Errors
    /// As [`Architecture::parameter_specs`].
    pub fn spared_by(&self, decay: DecayOn) -> Result<BTreeSet<String>, ArchitectureError> {
        if decay == DecayOn::All {
            return Ok(BTreeSet::new());
        }
        let linear = self.hidden_linear();
        let decays = |spec: &ParameterSpec| match decay {
            DecayOn::All => true,
            DecayOn::Weights => spec.shape.len() > 1,
            DecayOn::HiddenLinear => linear.contains(&spec.name),
        };
        let specs = self.parameter_specs()?.into_iter();
        Ok(specs.filter(|spec| !decays(spec)).map(|spec| spec.name).collect())
    }

    /// The weights of linear layers but those of the last one and of what learns beside it.
    fn hidden_linear(&self) -> Vec<String> {
        let mut linear = self.linear_weights();
        if let Some(last) = linear.iter().rfind(|name| !is_adapter(name)).cloned() {
            let layer = last.trim_end_matches(".weight");
            linear.retain(|name| *name != last && !(is_adapter(name) && name.starts_with(layer)));
        }
        linear
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
        let alone = Architecture::by_name("linear", &[4], 2).unwrap();
        assert!(alone.decays_nothing(DecayOn::HiddenLinear) && !alone.decays_nothing(DecayOn::Weights));
        let adapted = cnn.with_adapters(2, &["*".to_owned()], &|_| false).unwrap();
        let spared = adapted.spared_by(DecayOn::HiddenLinear).unwrap();
        let learned = adapted.parameter_specs().unwrap();
        let decayed: Vec<&str> =
            learned.iter().map(|spec| &*spec.name).filter(|name| !spared.contains(*name)).collect();
        assert!(decayed.len() == 4 && decayed.iter().all(|name| is_adapter(name)), "{decayed:?}");
        let resnet = Architecture::by_name("resnet-18", &[3, 32, 32], 10).unwrap();
        let spared = resnet.spared_by(DecayOn::Weights).unwrap();
        assert!(spared.contains("extractor.norm1.weight"), "{spared:?}");
    }
}
