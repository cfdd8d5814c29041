//! Mixing the clients' model with the server's and with the previous one.

use models::params::{Mismatch, ParamSet};

/// `omega_{t+1} = alpha psi + beta sigma_{t+1} + gamma omega_t` (Wang et al. 2022, `FedMix`): psi is what the round's updates
/// make of the global model omega, sigma what the server has trained of it on labelled samples of its own. The three sum to
/// one.
///
/// It is an axis like the others: if an algorithm's clients learn one model, it can be mixed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixture {
    /// Of what clients have learned.
    pub alpha: f64,
    /// Of what the server has learned.
    pub beta: f64,
    /// Of the previous model.
    pub gamma: f64,
}

/// Numbers that are no mixture.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum NotAMixture {
    /// One is negative or not finite.
    #[error("a share of a mixture is a number from 0 to 1, and one is {found}")]
    Share {
        /// The number.
        found: f64,
    },
    /// They are parts of something else than a whole.
    #[error("the shares alpha, beta and gamma sum to {sum}, and must sum to 1 (write 1/3 as 0.3333333)")]
    Sum {
        /// What they sum to.
        sum: f64,
    },
    /// There are more or fewer.
    #[error("a mixture has three shares, alpha, beta and gamma, and these are {found}")]
    Count {
        /// How many there are.
        found: usize,
    },
}

impl Mixture {
    /// What clients have learned and nothing else: the plain aggregation.
    pub const CLIENTS: Self = Self { alpha: 1.0, beta: 0.0, gamma: 0.0 };
    /// The best of the paper's where clients differ.
    pub const PUBLISHED: Self = Self { alpha: 0.5, beta: 0.3, gamma: 0.2 };

    /// How far the shares may be from summing to one: as far as seven digits of 1/3 are.
    pub const TOLERANCE: f64 = 1e-6;

    /// The mixture with shares `[alpha, beta, gamma]`.
    ///
    /// # Errors
    /// [`NotAMixture`] if they are not three, not from 0 to 1, or do not sum to one within [`Mixture::TOLERANCE`].
    pub fn of(shares: &[f64]) -> Result<Self, NotAMixture> {
        let &[alpha, beta, gamma] = shares else { return Err(NotAMixture::Count { found: shares.len() }) };
        if let Some(&found) = shares.iter().find(|share| !(0.0..=1.0).contains(*share)) {
            return Err(NotAMixture::Share { found });
        }
        let sum = alpha + beta + gamma;
        if (sum - 1.0).abs() > Self::TOLERANCE {
            return Err(NotAMixture::Sum { sum });
        }
        Ok(Self { alpha, beta, gamma })
    }

    /// The shares in the order of [`Mixture::of`].
    #[must_use]
    pub fn shares(&self) -> [f64; 3] {
        [self.alpha, self.beta, self.gamma]
    }

    /// The mixture of a round for which the server has trained nothing: the others keep their proportion, and if they have no
    /// share at all, the previous model stays.
    #[must_use]
    pub fn without_sigma(self) -> Self {
        let rest = self.alpha + self.gamma;
        if rest > 0.0 {
            Self { alpha: self.alpha / rest, beta: 0.0, gamma: self.gamma / rest }
        } else {
            Self { alpha: 0.0, beta: 0.0, gamma: 1.0 }
        }
    }

    /// Replaces `psi` by the mixture; sigma or omega may be left out if nothing of it counts. What has no share is not looked
    /// at, and what has the only one is taken as it is, to the bit. Models that are equal mix to themselves, to the bit.
    ///
    /// # Errors
    /// [`Mismatch`] if the models do not have the same tensors.
    ///
    /// # Panics
    /// If a model is left out that has a share.
    pub fn mix(
        &self,
        psi: &mut ParamSet,
        sigma: Option<&ParamSet>,
        omega: Option<&ParamSet>,
    ) -> Result<(), Mismatch> {
        let whole: f64 = self.shares().iter().sum();
        let counted = |share: f64, model| (share > 0.0).then_some((share / whole, model));
        let others = [counted(self.beta, sigma), counted(self.gamma, omega)];
        let others: Vec<(f64, &ParamSet)> = others
            .into_iter()
            .flatten()
            .map(|(share, model)| (share, model.expect("a model with a share")))
            .collect();
        for (_, model) in &others {
            psi.check_same_layout(model)?;
        }
        let alpha = self.alpha / whole;
        for (name, array) in psi.iter_mut() {
            // In double precision a sum of shares of equal values rounds to that value.
            let of: Vec<(f64, &[f32])> = others
                .iter()
                .filter_map(|(share, model)| Some((*share, model.get(name)?.values())))
                .collect();
            for (at, value) in array.values_mut().iter_mut().enumerate() {
                // Added to a negative zero, everything stays what it is.
                let own = if alpha > 0.0 { alpha * f64::from(*value) } else { -0.0 };
                *value =
                    of.iter().fold(own, |sum, (share, values)| sum + share * f64::from(values[at])) as f32;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use models::params::Array;
    use proptest::prelude::*;

    use super::*;

    fn model(values: &[f32]) -> ParamSet {
        let mut params = ParamSet::new();
        params.insert("w", Array::new(vec![values.len()], values.to_vec()).expect("one axis"));
        params
    }

    fn mixed(shares: [f64; 3], psi: &[f32], sigma: &[f32], omega: &[f32]) -> ParamSet {
        let mut psi = model(psi);
        let mixture = Mixture::of(&shares).expect("shares of a whole");
        mixture.mix(&mut psi, Some(&model(sigma)), Some(&model(omega))).expect("one layout");
        psi
    }

    #[test]
    fn hand_made() {
        let found = mixed([0.5, 0.375, 0.125], &[1.0, -2.0], &[4.0, 0.0], &[8.0, 4.0]);
        assert_eq!(found, model(&[3.0, -0.5]));
        let other =
            Mixture::PUBLISHED.mix(&mut model(&[1.0]), Some(&model(&[1.0, 2.0])), Some(&model(&[1.0])));
        assert!(other.is_err());
    }

    #[test]
    fn shares_are_three_and_sum_to_one() {
        assert_eq!(Mixture::of(&[0.5, 0.3, 0.2]), Ok(Mixture::PUBLISHED));
        assert!(Mixture::of(&[0.333_333_3; 3]).is_ok());
        assert_eq!(Mixture::of(&[0.33; 3]), Err(NotAMixture::Sum { sum: 0.99 }));
        assert_eq!(Mixture::of(&[1.5, -0.5, 0.0]), Err(NotAMixture::Share { found: 1.5 }));
        assert!(matches!(Mixture::of(&[f64::NAN, 1.0, 0.0]), Err(NotAMixture::Share { .. })));
        assert_eq!(Mixture::of(&[0.5, 0.5]), Err(NotAMixture::Count { found: 2 }));
    }

    #[test]
    fn a_missing_share_is_that_of_the_others_or_of_what_was_there() {
        let [alpha, beta, gamma] = Mixture::PUBLISHED.without_sigma().shares();
        assert!((alpha - 5.0 / 7.0).abs() < 1e-12 && beta == 0.0 && (gamma - 2.0 / 7.0).abs() < 1e-12);
        assert_eq!(Mixture::CLIENTS.without_sigma(), Mixture::CLIENTS);
        assert_eq!(
            Mixture::of(&[0.0, 1.0, 0.0]).map(|mix| mix.without_sigma().shares()),
            Ok([0.0, 0.0, 1.0])
        );
    }

    #[test]
    fn what_has_no_share_is_not_looked_at() {
        let mut psi = model(&[1.5, f32::MIN_POSITIVE]);
        Mixture::CLIENTS.mix(&mut psi, None, None).expect("nothing to hold it against");
        assert_eq!(psi, model(&[1.5, f32::MIN_POSITIVE]));
        let nan = [f32::NAN; 2];
        assert_eq!(mixed([0.0, 1.0, 0.0], &nan, &[0.1, -3e38], &nan), model(&[0.1, -3e38]));
        assert_eq!(mixed([0.0, 0.0, 1.0], &nan, &nan, &[1e-40, 7.0]), model(&[1e-40, 7.0]));
        let zero = mixed([0.0, 1.0, 0.0], &nan, &[-0.0, 0.0], &nan);
        assert!(zero.get("w").is_some_and(|w| w.values()[0].is_sign_negative()));
    }

    proptest! {
        #[test]
        fn equal_models_mix_to_themselves(
            values in prop::collection::vec(prop::num::f32::NORMAL | prop::num::f32::SUBNORMAL | prop::num::f32::ZERO, 1..20),
            (alpha, beta, off) in (0.0..0.5_f64, 0.0..0.5_f64, -9e-7..9e-7_f64),
        ) {
            let shares = [alpha, beta, (1.0 - alpha - beta + off).min(1.0)];
            prop_assert_eq!(mixed(shares, &values, &values, &values), model(&values));
        }
    }
}
