//! Seeded initial values.

use rand::Rng;

use super::{Architecture, ArchitectureError};
use crate::params::{Array, ParamSet};

impl Architecture {
    /// Fresh parameters: every weight and every bias uniform in `[-1/sqrt(fan_in), 1/sqrt(fan_in))`.
    ///
    /// That is the default of `PyTorch` for linear and convolutional layers (`kaiming_uniform_` with `a = sqrt(5)`), and so
    /// what most published federated results start from.
    ///
    /// `rng_for` gives one generator per tensor, from the tensor's name. Deriving it from the name and a seed makes a
    /// tensor's values independent of all other tensors: changing the head leaves the extractor as it was. Each value
    /// takes one 32-bit output, of which the upper 24 bits count, so the bytes depend on nothing but the generator.
    ///
    /// # Errors
    /// As [`Architecture::parameter_specs`].
    pub fn initialise<R: Rng>(
        &self,
        mut rng_for: impl FnMut(&str) -> R,
    ) -> Result<ParamSet, ArchitectureError> {
        let mut params = ParamSet::new();
        for spec in self.parameter_specs()? {
            let mut rng = rng_for(&spec.name);
            let bound = 1.0 / (spec.fan_in as f32).sqrt();
            let mut array = Array::zeros(spec.shape);
            for value in array.values_mut() {
                // 2^-23 times an integer below 2^24, less 1: every step is exact up to the product with the bound.
                let unit = (rng.next_u32() >> 8) as f32 * (1.0 / (1 << 23) as f32) - 1.0;
                *value = unit * bound;
            }
            params.insert(spec.name, array);
        }
        Ok(params)
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
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
}
