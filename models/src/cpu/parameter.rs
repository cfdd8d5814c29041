//! Parameters while they are being trained.

use crate::kernels::correction::{self, Correction};
use crate::kernels::update;
use crate::params::Array;
use crate::sgd::Sgd;

/// One tensor of parameters with what training keeps beside it.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    /// The full name, such as `extractor.conv1.weight`.
    pub(crate) name: String,
    /// The values, which an earlier copy may share until they change.
    pub(crate) values: Array,
    /// The gradient of the last backward pass; empty before the first.
    pub(crate) gradient: Vec<f32>,
    /// Whether `gradient` still waits to be applied.
    pub(crate) fresh: bool,
    /// Whether this is a statistic of the data, to which nothing is added along a gradient.
    buffer: bool,
    /// What momentum keeps; empty without.
    velocity: Vec<f32>,
    /// What every gradient is corrected by: the pull towards an anchor, and a shift.
    anchor: Option<(f32, Array)>,
    shift: Option<Array>,
}

/// What a backward pass does with the gradients of parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Descent {
    /// Keeps them in [`Parameter::gradient`].
    Keep,
    /// May subtract a multiple of them, the rate, from the parameters at once, where that saves a pass over memory; keeps
    /// the others.
    Now(f32),
}

impl Parameter {
    pub(crate) fn new(name: String, values: Array, buffer: bool) -> Self {
        Self {
            name,
            values,
            gradient: Vec::new(),
            fresh: false,
            buffer,
            velocity: Vec::new(),
            anchor: None,
            shift: None,
        }
    }

    /// Replaces the values and forgets everything else that was learned, corrections included.
    pub(crate) fn load(&mut self, values: &Array) {
        self.values.become_like(values);
        self.fresh = false;
        self.gradient.clear();
        self.velocity.clear();
        (self.anchor, self.shift) = (None, None);
    }

    /// Corrects all gradients from here on. Those of buffers are not.
    pub(crate) fn correct(&mut self, anchor: Option<(f32, Array)>, shift: Option<Array>) {
        if !self.buffer {
            (self.anchor, self.shift) = (anchor, shift);
        }
    }

    /// The values, to be stepped in place by a multiple, `-rate`, of a gradient that is never in memory; the correction's
    /// share of that step is made here.
    pub(crate) fn step_now(&mut self, rate: f32) -> &mut [f32] {
        // An earlier gradient that was never applied must not come after this one.
        self.fresh = false;
        let values = self.values.values_mut();
        correction::step(values, rate, borrowed(self.anchor.as_ref(), self.shift.as_ref()));
        values
    }

    /// The place for a new gradient, whose values are those of an earlier one, and the parameter's values.
    pub(crate) fn renew(&mut self) -> (&mut [f32], &[f32]) {
        self.gradient.resize(self.values.len(), 0.0);
        self.fresh = true;
        (&mut self.gradient, self.values.values())
    }

    /// Adds to the gradient, if that still waits; is the gradient otherwise.
    ///
    /// # Panics
    /// If `gradient` is not as long as the parameter.
    pub(crate) fn add_gradient(&mut self, gradient: &[f32]) {
        assert_eq!(gradient.len(), self.values.len(), "a gradient as long as its parameter");
        if std::mem::replace(&mut self.fresh, true) {
            self.gradient.iter_mut().zip(gradient).for_each(|(sum, given)| *sum += given);
        } else {
            self.gradient.clear();
            self.gradient.extend_from_slice(gradient);
        }
    }

    /// The sum of the squares of the gradient, if that still waits and is not a buffer's.
    pub(crate) fn squares(&self) -> f64 {
        if self.fresh && !self.buffer { correction::squares(&self.gradient) } else { 0.0 }
    }

    /// One step of the optimiser along the gradient, if that still waits, and the correction. `scale` is what the gradient
    /// is shortened by, if it is too long.
    pub(crate) fn descend(&mut self, sgd: &Sgd, scale: Option<f32>) {
        if !std::mem::take(&mut self.fresh) || self.buffer {
            return;
        }
        let Self { values, gradient, velocity, anchor, shift, .. } = self;
        let correction = borrowed(anchor.as_ref(), shift.as_ref());
        if correction.is_none() && scale.is_none() {
            let gradient = std::mem::take(&mut self.gradient);
            self.descend_along(sgd, &gradient);
            self.gradient = gradient;
            return;
        }
        let settings = [sgd.rate as f32, sgd.momentum as f32, sgd.decay as f32, scale.unwrap_or(1.0)];
        if sgd.momentum != 0.0 {
            velocity.resize(values.len(), 0.0);
        }
        let velocity = if sgd.momentum == 0.0 { &mut [][..] } else { velocity.as_mut_slice() };
        correction::descend(values.values_mut(), velocity, gradient, settings, correction);
    }

    /// One step of the optimiser along `gradient` as it is. Buffers stay.
    pub(crate) fn descend_along(&mut self, sgd: &Sgd, gradient: &[f32]) {
        if self.buffer {
            return;
        }
        let (rate, momentum, decay) = (sgd.rate as f32, sgd.momentum as f32, sgd.decay as f32);
        let values = self.values.values_mut();
        if momentum == 0.0 {
            update::descend(values, gradient, rate, decay);
        } else {
            self.velocity.resize(values.len(), 0.0);
            update::descend_with_momentum(values, &mut self.velocity, gradient, rate, momentum, decay);
        }
    }
}

fn borrowed<'a>(anchor: Option<&'a (f32, Array)>, shift: Option<&'a Array>) -> Correction<'a> {
    Correction {
        anchor: anchor.map(|(pull, anchor)| (*pull, anchor.values())),
        shift: shift.map(Array::values),
    }
}
