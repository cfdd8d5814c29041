//! Parameters while they are being trained.

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
        Self { name, values, gradient: Vec::new(), fresh: false, buffer, velocity: Vec::new() }
    }

    /// Replaces the values and forgets everything else that was learned.
    pub(crate) fn load(&mut self, values: Array) {
        self.values = values;
        self.fresh = false;
        self.velocity.clear();
    }

    /// The place for a new gradient, whose values are those of an earlier one, and the parameter's values.
    pub(crate) fn renew(&mut self) -> (&mut [f32], &[f32]) {
        self.gradient.resize(self.values.len(), 0.0);
        self.fresh = true;
        (&mut self.gradient, self.values.values())
    }

    /// One step of the optimiser along the gradient, if that still waits.
    pub(crate) fn descend(&mut self, sgd: &Sgd) {
        if std::mem::take(&mut self.fresh) {
            self.descend_along(sgd, None);
        }
    }

    /// One step of the optimiser along `gradient`, or along the parameter's own. Buffers stay.
    pub(crate) fn descend_along(&mut self, sgd: &Sgd, gradient: Option<&[f32]>) {
        if self.buffer {
            return;
        }
        let gradient = gradient.unwrap_or(&self.gradient);
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
