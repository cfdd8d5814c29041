//! Seeded initialisation of parameters.

use rand::Rng;
use serde::{Deserialize, Serialize};

use super::{Architecture, ArchitectureError, Initial};
use crate::params::{Array, ParamSet};

/// The initial values of the weights and biases of linear and convolutional layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Initialisation {
    /// Both uniform in `[-1/sqrt(fan_in), 1/sqrt(fan_in))`: `PyTorch`'s default (`kaiming_uniform_` with `a = sqrt(5)`), with
    /// which most federated results were published.
    ///
    /// Weights have the variance `1 / (3 fan_in)`, so that each layer with its rectifier reduces the variance to about a sixth.
    /// In deep networks without normalisation or shortcuts the initial outputs hardly depend on the inputs, and training makes
    /// no progress.
    #[default]
    Uniform,
    /// Weights normal with variance `2 / fan_in`, which preserves the variance through a rectifier (He et al., ICCV 2015,
    /// eq. 10); biases 0.
    He,
}

impl Architecture {
    /// Initial parameters, of the frozen tensors as well. Weights and biases of linear and convolutional layers follow the architecture's [`Initialisation`],
    /// the others `PyTorch`: those of an LSTM are uniform in `[-1/sqrt(hidden), 1/sqrt(hidden))`, embeddings standard normal,
    /// positions normal with deviation 0.02, class tokens 0,
    /// the scales of normalisation 1 and its offsets 0.
    ///
    /// `rng_for` returns one generator for each tensor's name. If it derives the generator from the name and a seed, a tensor's
    /// values do not depend on other tensors: another head leaves the extractor unchanged. Each uniform value takes the upper
    /// 24 bits of one 32-bit output, and each normal value takes two outputs, so that the bytes depend on nothing but the
    /// generator (and, for normal values, on the last bit of the system's logarithm).
    ///
    /// # Errors
    /// As [`Architecture::parameter_specs`].
    pub fn initialise<R: Rng>(
        &self,
        mut rng_for: impl FnMut(&str) -> R,
    ) -> Result<ParamSet, ArchitectureError> {
        let mut params = ParamSet::new();
        for spec in self.all_parameter_specs()? {
            let mut array = Array::zeros(spec.shape);
            fill(array.values_mut(), spec.initial, &mut rng_for(&spec.name));
            params.insert(spec.name, array);
        }
        Ok(params)
    }
}

fn fill(values: &mut [f32], initial: Initial, rng: &mut impl Rng) {
    match initial {
        Initial::Uniform { fan } => {
            let bound = 1.0 / (fan as f32).sqrt();
            for value in values {
                // 2^-23 times an integer below 2^24, minus 1: exact up to the product with the bound.
                let unit = (rng.next_u32() >> 8) as f32 * (1.0 / (1 << 23) as f32) - 1.0;
                *value = unit * bound;
            }
        }
        Initial::He { fan } => {
            let deviation = (2.0 / fan as f64).sqrt();
            for value in values {
                *value = (standard_normal(rng) * deviation) as f32;
            }
        }
        Initial::Normal => {
            for value in values {
                *value = standard_normal(rng) as f32;
            }
        }
        Initial::Small => {
            for value in values {
                *value = (0.02 * standard_normal(rng)) as f32;
            }
        }
        Initial::Zero => values.fill(0.0),
        Initial::One => values.fill(1.0),
    }
}

/// A draw from the standard normal distribution (Box and Muller 1958, eq. 1; the sine is not used).
fn standard_normal(rng: &mut impl Rng) -> f64 {
    // In (0, 1], so that the logarithm is finite.
    let radius = (f64::from(rng.next_u32()) + 1.0) / 4_294_967_296.0;
    let turn = f64::from(rng.next_u32()) / 4_294_967_296.0;
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * turn).cos()
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::architecture::{Layer, ParameterKind, Variant};
    use crate::params::Precision;
    use crate::params::codec::to_bytes;

    fn rng_for(seed: u64) -> impl FnMut(&str) -> ChaCha8Rng {
        move |name| {
            let name =
                name.bytes().fold(seed, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
            ChaCha8Rng::seed_from_u64(name)
        }
    }

    #[test]
    fn same_seed_same_bytes_and_another_seed_other_bytes() {
        let architecture = Architecture::by_name("lenet-5", &[1, 28, 28], 10).unwrap();
        let bytes = |seed| {
            let params = architecture.initialise(rng_for(seed)).unwrap();
            to_bytes(&params, Precision::F32, &std::collections::BTreeMap::new()).unwrap()
        };
        assert_eq!(bytes(1), bytes(1));
        assert_ne!(bytes(1), bytes(2));
    }

    #[test]
    fn values_fill_their_bounds_evenly() {
        let architecture = Architecture::by_name("cnn-mnist", &[1, 28, 28], 10).unwrap();
        let params = architecture.initialise(rng_for(7)).unwrap();
        for spec in architecture.parameter_specs().unwrap() {
            let values = params.get(&spec.name).unwrap().values();
            let bound = 1.0 / f64::from(spec.fan_in as u32).sqrt();
            assert!(values.iter().all(|&v| f64::from(v).abs() <= bound * (1.0 + 1e-6)), "{}", spec.name);
            if values.len() > 10_000 {
                let n = values.len() as f64;
                let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
                let square = values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / n;
                // Five standard deviations of the mean, and of the mean square, of a uniform variable.
                assert!(mean.abs() < 5.0 * bound / (3.0 * n).sqrt(), "{}: mean {mean}", spec.name);
                let spread = 5.0 * (4.0f64 / 45.0).sqrt() / n.sqrt();
                assert!((square / bound.powi(2) - 1.0 / 3.0).abs() < spread, "{}: {square}", spec.name);
            }
        }
    }

    #[test]
    fn a_tensor_does_not_depend_on_the_others() {
        let ten = Architecture::by_name("lenet-5", &[1, 28, 28], 10).unwrap();
        let two = Architecture::by_name("lenet-5", &[1, 28, 28], 2).unwrap();
        let (ten, two) = (ten.initialise(rng_for(3)).unwrap(), two.initialise(rng_for(3)).unwrap());
        assert_eq!(ten.select("extractor."), two.select("extractor."));
    }

    #[test]
    fn golden_first_values() {
        // A generator that counts: 24-bit values 0, 2^23 and 2^24 - 1 are -bound, 0 and just under bound.
        struct Fixed(std::vec::IntoIter<u32>);
        impl rand::TryRng for Fixed {
            type Error = std::convert::Infallible;
            fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
                Ok(self.0.next().unwrap())
            }
            fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
                unreachable!("initialisation draws 32 bits at a time")
            }
            fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), Self::Error> {
                unreachable!("initialisation draws 32 bits at a time")
            }
        }
        let architecture = Architecture::by_name("linear", &[4], 1).unwrap();
        let draws = |_: &str| Fixed(vec![0, 0x8000_0000, u32::MAX, 0x4000_00ff].into_iter());
        let params = architecture.initialise(draws).unwrap();
        let last = 0.5 * (1.0 - 1.0 / (1 << 23) as f32);
        assert_eq!(params.get("head.fc.weight").unwrap().values(), [-0.5, 0.0, last, -0.25]);
    }

    #[test]
    fn every_kind_of_tensor_starts_as_in_pytorch() {
        let layers = vec![
            Layer::Embedding { name: "e".into(), vocabulary: 300, dim: 64 },
            Layer::Lstm { name: "l".into(), hidden: 25 },
            Layer::Flatten,
            Layer::BatchNorm { name: "n".into() },
        ];
        let architecture = Architecture {
            name: "test".into(),
            input: vec![2],
            classes: 50,
            initialisation: Initialisation::Uniform,
            extractor: layers,
            projection: vec![],
            head: vec![],
            ..Architecture::default()
        };
        let params = architecture.initialise(rng_for(5)).unwrap();
        let values = |name: &str| params.get(&format!("extractor.{name}")).unwrap().values();
        for name in ["l.weight-ih", "l.weight-hh", "l.bias"] {
            let largest = values(name).iter().fold(0.0f32, |largest, v| largest.max(v.abs()));
            assert!((0.19..=0.2).contains(&largest), "{name}: {largest}");
        }
        assert!(values("n.weight").iter().chain(values("n.running-var")).all(|&v| v == 1.0));
        assert!(values("n.bias").iter().chain(values("n.running-mean")).all(|&v| v == 0.0));
        // The first four moments of a normal variable are 0, 1, 0 and 3, their variances 1, 2, 15 and 96.
        let embedding = values("e.weight");
        for (power, expected, variance) in [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0f64)] {
            let n = embedding.len() as f64;
            let moment = embedding.iter().map(|&v| f64::from(v).powi(power)).sum::<f64>() / n;
            assert!((moment - expected).abs() < 5.0 * (variance / n).sqrt(), "{power}: {moment}");
        }
    }

    #[test]
    fn he_keeps_the_variance_through_rectifiers() {
        let vgg = Architecture::by_name("vgg-16", &[3, 32, 32], 10).unwrap();
        let params = vgg.initialise(rng_for(9)).unwrap();
        for spec in vgg.parameter_specs().unwrap() {
            let values = params.get(&spec.name).unwrap().values();
            if spec.kind == ParameterKind::Bias {
                assert!(values.iter().all(|&v| v == 0.0), "{}", spec.name);
                continue;
            }
            let n = values.len() as f64;
            let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
            let square = values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / n;
            let variance = 2.0 / spec.fan_in as f64;
            assert!(mean.abs() < 5.0 * (variance / n).sqrt(), "{}: {mean}", spec.name);
            assert!((square / variance - 1.0).abs() < 5.0 * (2.0 / n).sqrt(), "{}: {square}", spec.name);
        }
        // A variant may choose the other initialisation.
        let variant = Variant { initialisation: Some(Initialisation::Uniform), ..Variant::default() };
        let uniform = Architecture::variant("vgg-16", &[3, 32, 32], 10, variant).unwrap();
        assert!(matches!(uniform.parameter_specs().unwrap()[0].initial, Initial::Uniform { fan: 27 }));
    }
}
