//! Cosine similarity of representations, and the model-contrastive loss.

/// Lower bound of the product of two norms in a denominator: a representation of zeros has no direction.
const MIN_NORM: f64 = 1e-8;

/// The mean cosine similarity of `n` pairs of representations, the rows of `a` and `b`.
///
/// # Panics
/// If there are no rows, or `a` and `b` differ in length.
#[must_use]
pub fn mean_cosine(a: &[f32], b: &[f32], n: usize) -> f64 {
    assert_eq!(a.len(), b.len(), "representations of one network");
    let rows = a.chunks(a.len() / n).zip(b.chunks(b.len() / n));
    rows.map(|(a, b)| Pair::of(a, b).cosine()).sum::<f64>() / n as f64
}

/// The model-contrastive loss (Li et al. 2021, equation 3), the mean over `n` samples of
///
/// ```text
/// -log( exp(cos(z, global)/tau) / (exp(cos(z, global)/tau) + exp(cos(z, previous)/tau)) )
///     = softplus( (cos(z, previous) - cos(z, global)) / tau )
/// ```
///
/// `z`, `global` and `previous` are `[n, d]`: the representations of the same samples by the model in training and two frozen
/// ones. `gradient` is overwritten with `weight` times the gradient with respect to `z`.
///
/// # Panics
/// If there are no samples, or the three differ in length.
#[must_use]
pub fn model_contrast(
    z: &[f32],
    global: &[f32],
    previous: &[f32],
    (n, tau, weight): (usize, f32, f32),
    gradient: &mut Vec<f32>,
) -> f32 {
    assert!(z.len() == global.len() && z.len() == previous.len(), "representations of one network");
    let (d, tau) = (z.len() / n, f64::from(tau));
    let mut loss = 0.0;
    gradient.clear();
    for ((z, global), previous) in z.chunks(d).zip(global.chunks(d)).zip(previous.chunks(d)) {
        let (to_global, to_previous) = (Pair::of(z, global), Pair::of(z, previous));
        let difference = (to_previous.cosine() - to_global.cosine()) / tau;
        // Bounded by 2 / tau, so that neither exponential overflows for any sensible temperature.
        loss += difference.max(0.0) + (-difference.abs()).exp().ln_1p();
        let slope = f64::from(weight) / (n as f64 * tau * (1.0 + (-difference).exp()));
        gradient.extend(z.iter().zip(global).zip(previous).map(|((&z, &global), &previous)| {
            (slope * (to_previous.slope(z, previous) - to_global.slope(z, global))) as f32
        }));
    }
    (loss / n as f64) as f32
}

/// The dot products of two vectors from which their cosine is computed.
struct Pair {
    product: f64,
    /// The squared norm of the first.
    square: f64,
    norms: f64,
}

impl Pair {
    fn of(a: &[f32], b: &[f32]) -> Self {
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
        };
        let square = dot(a, a);
        Self { product: dot(a, b), square, norms: (square * dot(b, b)).sqrt() }
    }

    fn cosine(&self) -> f64 {
        self.product / self.norms.max(MIN_NORM)
    }

    /// The derivative of the cosine with respect to a component `a` of the first vector, where the second has `b`.
    fn slope(&self, a: f32, b: f32) -> f64 {
        if self.norms < MIN_NORM {
            return 0.0;
        }
        f64::from(b) / self.norms - self.cosine() * f64::from(a) / self.square
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::noise;

    #[test]
    fn hand_made_vectors() {
        let (z, along, across) = ([3.0, 0.0], [2.0, 0.0], [0.0, 5.0]);
        let loss = |global: &[f32], previous: &[f32], tau| {
            model_contrast(&z, global, previous, (1, tau, 1.0), &mut Vec::new())
        };
        // cos 1 to the global model and 0 to the previous one: log(1 + exp(-1 / tau)).
        assert!((loss(&along, &across, 0.5) - (1.0 + (-2.0f32).exp()).ln()).abs() < 1e-6);
        assert!((loss(&across, &along, 0.5) - (1.0 + 2.0f32.exp()).ln()).abs() < 1e-6);
        assert!((loss(&along, &along, 0.07) - 2.0f32.ln()).abs() < 1e-6);
        assert!((loss(&[-1.0, 0.0], &along, 1e-2) - 200.0).abs() < 1e-3, "no overflow");
        assert!(
            (mean_cosine(&[1.0, 0.0, 1.0, 1.0], &[5.0, 0.0, 0.0, 3.0], 2)
                - f64::midpoint(1.0, 0.5f64.sqrt()))
            .abs()
                < 1e-12
        );
    }

    #[test]
    fn the_gradient_is_that_of_differences() {
        let (n, d, tau, weight) = (4, 5, 0.5, 3.0);
        let [z, global, previous] = [1, 2, 3].map(|seed| noise(n * d, seed));
        let mut gradient = vec![9.0; 3];
        let loss =
            |z: &[f32]| f64::from(model_contrast(z, &global, &previous, (n, tau, 1.0), &mut Vec::new()));
        let _ = model_contrast(&z, &global, &previous, (n, tau, weight), &mut gradient);
        assert_eq!(gradient.len(), z.len());
        assert!(gradient.iter().any(|g| g.abs() > 0.05), "a gradient of nothing proves nothing");
        for (index, &found) in gradient.iter().enumerate() {
            let at = |offset: f32| {
                let mut moved = z.clone();
                moved[index] += offset;
                loss(&moved)
            };
            let expected = f64::from(weight) * (at(1e-2) - at(-1e-2)) / 2e-2;
            assert!((f64::from(found) - expected).abs() < 2e-3, "{index}: {found} {expected}");
        }
    }

    #[test]
    fn a_representation_of_zeros_has_no_gradient() {
        let mut gradient = Vec::new();
        let loss = model_contrast(&[0.0; 2], &[1.0, 0.0], &[0.0, 1.0], (1, 0.5, 1.0), &mut gradient);
        assert!((loss - 2.0f32.ln()).abs() < 1e-6);
        assert_eq!(gradient, [0.0; 2]);
    }
}
