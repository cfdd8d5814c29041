//! Parameters with the state of their training.

use crate::kernels::correction::{self, CorrectionSlices};
use crate::kernels::update::{self, Moments, Step};
use crate::params::Array;

/// One tensor of parameters with its gradient and the optimiser's state.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, and all combinations occur")]
pub(crate) struct Parameter {
    /// The full name, such as `extractor.conv1.weight`.
    pub(crate) name: String,
    /// The values, which an earlier copy may share until they change.
    pub(crate) values: Array,
    /// The gradient of the last backward pass; empty before the first.
    pub(crate) gradient: Vec<f32>,
    /// Whether `gradient` has not been applied yet.
    pub(crate) pending: bool,
    /// Whether this is a buffer, a statistic of the data that the optimiser does not change.
    buffer: bool,
    /// Whether nothing changes the values.
    pub(crate) frozen: bool,
    /// Whether weight decay takes nothing from the values.
    pub(crate) spared: bool,
    /// What the optimiser keeps: velocity, or first and second moment; empty where it keeps nothing.
    moments: [Vec<f32>; 2],
    /// The correction of every gradient: the anchor with the factor of its pull, and the shift.
    anchor: Option<(f32, Array)>,
    shift: Option<Array>,
}

impl Parameter {
    pub(crate) fn new(name: String, values: Array, buffer: bool) -> Self {
        Self {
            name,
            values,
            gradient: Vec::new(),
            pending: false,
            buffer,
            frozen: false,
            spared: false,
            moments: Default::default(),
            anchor: None,
            shift: None,
        }
    }

    /// The same parameter, whose values nothing changes if it is frozen.
    pub(crate) fn with_frozen(self, frozen: bool) -> Self {
        Self { frozen, ..self }
    }

    /// Whether the optimiser changes the values.
    pub(crate) fn is_learned(&self) -> bool {
        !self.buffer && !self.frozen
    }

    /// Replaces the values and resets everything else, the correction included.
    pub(crate) fn load(&mut self, values: &Array) {
        self.values.become_like(values);
        self.pending = false;
        self.gradient.clear();
        self.moments.iter_mut().for_each(Vec::clear);
        (self.anchor, self.shift) = (None, None);
    }

    /// Sets the correction of all later gradients. Does nothing to what is not learned.
    pub(crate) fn correct(&mut self, anchor: Option<(f32, Array)>, shift: Option<Array>) {
        if self.is_learned() {
            (self.anchor, self.shift) = (anchor, shift);
        }
    }

    /// Starts a fused step: applies the correction, and gives the values for the caller to subtract `rate` times the
    /// gradient, which is not stored. Of a frozen parameter it gives memory that nothing reads.
    pub(crate) fn begin_fused_step(&mut self, rate: f32) -> &mut [f32] {
        // An earlier gradient that was never applied must not be applied after this one.
        self.pending = false;
        if self.frozen {
            self.gradient.clear();
            self.gradient.resize(self.values.len(), 0.0);
            return &mut self.gradient;
        }
        let values = self.values.values_mut();
        correction::step(values, rate, as_slices(self.anchor.as_ref(), self.shift.as_ref()));
        values
    }

    /// The gradient, for the caller to overwrite in full, and the parameter's values. The gradient is pending afterwards; it
    /// is not set to zero here, and holds an earlier one until it is overwritten.
    pub(crate) fn new_gradient(&mut self) -> (&mut [f32], &[f32]) {
        self.gradient.resize(self.values.len(), 0.0);
        self.pending = true;
        (&mut self.gradient, self.values.values())
    }

    /// Adds to the gradient if it is pending, else replaces it.
    ///
    /// # Panics
    /// If `gradient` is not as long as the parameter.
    pub(crate) fn add_gradient(&mut self, gradient: &[f32]) {
        assert_eq!(gradient.len(), self.values.len(), "a gradient as long as its parameter");
        if std::mem::replace(&mut self.pending, true) {
            self.gradient.iter_mut().zip(gradient).for_each(|(sum, given)| *sum += given);
        } else {
            self.gradient.clear();
            self.gradient.extend_from_slice(gradient);
        }
    }

    /// The squared norm of the gradient if it is pending, else 0; of what is not learned 0.
    pub(crate) fn squared_norm(&self) -> f64 {
        if self.pending && self.is_learned() { correction::squares(&self.gradient) } else { 0.0 }
    }

    /// One step along the gradient, if it is pending, and the correction. `scale` is the factor by which the gradient is clipped.
    pub(crate) fn step(&mut self, step: &Step, scale: Option<f32>) {
        if !std::mem::take(&mut self.pending) || !self.is_learned() {
            return;
        }
        let gradient = std::mem::take(&mut self.gradient);
        let step = &self.own(step);
        self.fit_moments(step);
        let Self { values, moments, anchor, shift, .. } = self;
        let correction = as_slices(anchor.as_ref(), shift.as_ref());
        if correction.is_none() && scale.is_none() {
            update::descend(values.values_mut(), slices(moments), &gradient, step);
        } else {
            let scale = scale.unwrap_or(1.0);
            correction::descend(values.values_mut(), slices(moments), &gradient, step, scale, correction);
        }
        self.gradient = gradient;
    }

    /// One step along `gradient`, neither clipped nor corrected. Does nothing to what is not learned.
    pub(crate) fn step_along(&mut self, step: &Step, gradient: &[f32]) {
        if !self.is_learned() {
            return;
        }
        let step = &self.own(step);
        self.fit_moments(step);
        update::descend(self.values.values_mut(), slices(&mut self.moments), gradient, step);
    }

    /// The step that this parameter takes where all take this one.
    fn own(&self, step: &Step) -> Step {
        if self.spared { step.without_decay() } else { *step }
    }

    /// Makes room for what a step keeps.
    fn fit_moments(&mut self, step: &Step) {
        for (moment, place) in self.moments.iter_mut().zip(0..) {
            moment.resize(if place < step.moments() { self.values.len() } else { 0 }, 0.0);
        }
    }

    /// What the optimiser keeps, first and second moment; `None` for what it does not keep.
    pub(crate) fn moments(&self) -> [Option<Array>; 2] {
        let moment = |values: &Vec<f32>| {
            let suits = !values.is_empty() && values.len() == self.values.len();
            suits.then(|| Array::new(self.values.shape(), values.clone()).expect("as long as the values"))
        };
        self.moments.each_ref().map(moment)
    }

    /// Gives the optimiser what it has kept elsewhere, as long as the values.
    pub(crate) fn restore_moments(&mut self, kept: [Option<&Array>; 2]) {
        for (moment, kept) in self.moments.iter_mut().zip(kept) {
            moment.clear();
            moment.extend_from_slice(kept.map(Array::values).unwrap_or_default());
        }
    }
}

fn slices(moments: &mut [Vec<f32>; 2]) -> Moments<'_> {
    moments.each_mut().map(Vec::as_mut_slice)
}

fn as_slices<'a>(anchor: Option<&'a (f32, Array)>, shift: Option<&'a Array>) -> CorrectionSlices<'a> {
    CorrectionSlices {
        anchor: anchor.map(|(pull, anchor)| (*pull, anchor.values())),
        shift: shift.map(Array::values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sgd::Sgd;

    /// `f(w) = a/2 (w - c)^2`, whose gradient is `a (w - c)`, stepped in f32 by the code and in f64 by hand.
    fn follow(sgd: Sgd, steps: usize) -> Vec<(f64, f64)> {
        let (a, c) = (0.8, 3.0);
        let mut parameter = Parameter::new("w".into(), Array::new([1], vec![-1.0]).unwrap(), false);
        let (mut w, mut v) = (-1.0f64, 0.0f64);
        (0..steps)
            .map(|_| {
                let gradient = a as f32 * (parameter.values.values()[0] - c as f32);
                parameter.step_along(&Step::of(&sgd.into(), 1), &[gradient]);
                v = sgd.momentum * v + a * (w - c) + sgd.decay * w;
                w -= sgd.rate * v;
                (f64::from(parameter.values.values()[0]), w)
            })
            .collect()
    }

    #[test]
    fn momentum_and_decay_follow_the_update_equation() {
        for (momentum, decay) in [(0.0, 0.0), (0.9, 0.0), (0.0, 0.1), (0.9, 0.1)] {
            for (step, (found, expected)) in follow(Sgd { rate: 0.1, momentum, decay }, 12).iter().enumerate()
            {
                assert!(
                    (found - expected).abs() < 1e-5,
                    "{momentum} {decay} step {step}: {found} {expected}"
                );
            }
        }
    }

    #[test]
    fn plain_descent_on_a_quadratic_is_geometric() {
        // w_t - c = (1 - rate a)^t (w_0 - c)
        let (found, _) = follow(Sgd::plain(0.25), 10)[9];
        assert!((found - (3.0 - 4.0 * 0.8f64.powi(10))).abs() < 1e-5);
    }

    #[test]
    fn constant_gradients_build_up_a_geometric_sum() {
        // After t steps of gradient 1: w = -rate * sum_{i<t} (1 - m^(i+1)) / (1 - m), here 1 + 1.5 + 1.75.
        let mut parameter = Parameter::new("w".into(), Array::zeros([1]), false);
        let sgd = Sgd { rate: 1.0, momentum: 0.5, decay: 0.0 };
        for number in 1..=3 {
            parameter.step_along(&Step::of(&sgd.into(), number), &[1.0]);
        }
        assert_eq!(parameter.values.values(), [-4.25]);
    }
}
