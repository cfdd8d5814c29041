//! Stage 3: how much the global expert counts for a sample.
//!
//! One linear layer and a sigmoid, `g = sigmoid(w . x + b)`. With `y = g y_global + (1 - g) y_local` of logits
//!
//! ```text
//! dL/dg = sum_c (softmax(y)_c - [c = label]) (y_global,c - y_local,c)         dL/d(w . x + b) = dL/dg g (1 - g)
//! ```
//!
//! and of probabilities `dL/dg = -(p_global,label - p_local,label) / y_label`. A mean over rows, in double precision, in their
//! order.

use models::Adam;

use crate::seed::{Seed, shuffle};
use crate::spec::personalisation::{GateTraining, Mix};

/// The least probability that a mixture of probabilities is taken to give: what an `f32` tells from 0.
const LEAST: f64 = f32::MIN_POSITIVE as f64;

/// How much the global expert counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// The weights, followed by the bias.
    parameters: Vec<f32>,
}

/// What a gate learns from: in each row its input, what both experts say, and the label.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// `[rows, inputs]`.
    pub inputs: &'a [f32],
    /// The global expert's logits, `[rows, classes]`.
    pub global: &'a [f32],
    /// The local expert's.
    pub local: &'a [f32],
    /// `[rows]`, below the number of classes.
    pub labels: &'a [u32],
}

impl Mix {
    /// The mixture of two rows of logits: logits, or probabilities.
    #[must_use]
    pub fn combine(self, g: f32, global: &[f32], local: &[f32]) -> Vec<f32> {
        let mixed = |(&global, &local): (&f32, &f32)| g * global + (1.0 - g) * local;
        match self {
            Self::Logits => global.iter().zip(local).map(mixed).collect(),
            Self::Probabilities => {
                let [global, local] =
                    [global, local].map(|row| models::Prediction::from_logits(row).probabilities);
                global.iter().zip(&local).map(mixed).collect()
            }
        }
    }
}

impl Gate {
    /// A gate that gives both experts the same weight for all inputs: the start of every gate.
    #[must_use]
    pub fn even(inputs: usize) -> Self {
        Self { parameters: vec![0.0; inputs + 1] }
    }

    /// The gate of these weights and this bias.
    #[must_use]
    pub fn of(weights: &[f32], bias: f32) -> Self {
        Self { parameters: [weights, &[bias]].concat() }
    }

    /// How many inputs it has.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.parameters.len() - 1
    }

    /// The weights and the bias.
    #[must_use]
    pub fn parts(&self) -> (&[f32], f32) {
        let (bias, weights) = self.parameters.split_last().expect("a gate has a bias");
        (weights, *bias)
    }

    /// The weight of the global expert for this input, from 0 to 1.
    ///
    /// # Panics
    /// If the input has another length than the weights.
    #[must_use]
    pub fn weigh(&self, input: &[f32]) -> f32 {
        self.open(input) as f32
    }

    fn open(&self, input: &[f32]) -> f64 {
        let (weights, bias) = self.parts();
        assert_eq!(input.len(), weights.len(), "an input for each weight");
        let products = weights.iter().zip(input).map(|(&weight, &x)| f64::from(weight) * f64::from(x));
        1.0 / (1.0 + (-(f64::from(bias) + products.sum::<f64>())).exp())
    }

    /// The mean cross-entropy of the mixture over the rows at these positions; its gradient by the weights and by the bias, in
    /// that order, replaces the contents of `gradient`.
    ///
    /// # Panics
    /// If the rows do not fit together, or there are none.
    pub fn gradient(&self, rows: &Rows<'_>, positions: &[usize], mix: Mix, gradient: &mut Vec<f64>) -> f64 {
        let (inputs, classes) = (self.inputs(), rows.global.len() / rows.labels.len());
        gradient.clear();
        gradient.resize(inputs + 1, 0.0);
        let share = 1.0 / positions.len() as f64;
        let mut loss = 0.0;
        for &row in positions {
            let input = &rows.inputs[row * inputs..][..inputs];
            let [global, local] = [rows.global, rows.local].map(|logits| &logits[row * classes..][..classes]);
            let g = self.open(input);
            let (row_loss, by_g) = mixture(mix, g, global, local, rows.labels[row] as usize);
            loss += share * row_loss;
            let by_sum = share * by_g * g * (1.0 - g);
            let (by_bias, by_weights) = gradient.split_last_mut().expect("a gate has a bias");
            for (slope, &x) in by_weights.iter_mut().zip(input) {
                *slope += by_sum * f64::from(x);
            }
            *by_bias += by_sum;
        }
        loss
    }
}

/// A gate that learns, epoch by epoch, from an even one on.
pub struct GateCourse<'a> {
    gate: Gate,
    adam: Adam,
    mix: Mix,
    training: &'a GateTraining,
    seed: Seed,
    order: Vec<usize>,
    gradient: Vec<f64>,
}

impl<'a> GateCourse<'a> {
    /// The beginning of a gate of this number of inputs that learns from this number of rows; of no rows it stays even.
    #[must_use]
    pub fn new(inputs: usize, rows: usize, mix: Mix, training: &'a GateTraining, seed: Seed) -> Self {
        let adam = Adam::new(training.adam(), inputs + 1);
        let (order, gradient) = ((0..rows).collect(), Vec::new());
        Self { gate: Gate::even(inputs), adam, mix, training, seed, order, gradient }
    }

    /// One pass over the rows. `advance` hears of every step, and may end it.
    ///
    /// # Errors
    /// What `advance` gives.
    ///
    /// # Panics
    /// If the rows are not as many as the course was told.
    pub fn epoch<E>(
        &mut self,
        rows: &Rows<'_>,
        epoch: u32,
        advance: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        assert_eq!(rows.labels.len(), self.order.len(), "the rows of every epoch are of the same samples");
        shuffle(&mut self.order, &mut self.seed.derive_numbered("epoch", u64::from(epoch)).rng());
        for positions in self.order.chunks(self.training.size(self.order.len())) {
            self.gate.gradient(rows, positions, self.mix, &mut self.gradient);
            self.adam.descend(&mut self.gate.parameters, &self.gradient);
            advance()?;
        }
        Ok(())
    }

    /// What it has learned.
    #[must_use]
    pub fn finish(self) -> Gate {
        self.gate
    }
}

impl GateTraining {
    /// Rows in a batch, of this number in all; at least 1.
    fn size(&self, rows: usize) -> usize {
        if self.batch == 0 { rows.max(1) } else { self.batch as usize }
    }

    /// Steps for this number of rows.
    pub(super) fn steps(&self, rows: usize) -> u64 {
        u64::from(self.epochs) * rows.div_ceil(self.size(rows)) as u64
    }
}

/// The cross-entropy of the mixture of two rows of logits, and its derivative by `g`.
fn mixture(mix: Mix, g: f64, global: &[f32], local: &[f32], label: usize) -> (f64, f64) {
    match mix {
        Mix::Logits => {
            let mixed = |class: usize| g * f64::from(global[class]) + (1.0 - g) * f64::from(local[class]);
            let max = (0..global.len()).map(mixed).fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = (0..global.len()).map(|class| (mixed(class) - max).exp()).sum();
            let by_g = (0..global.len()).map(|class| {
                let probability = (mixed(class) - max).exp() / total;
                (probability - f64::from(u8::from(class == label)))
                    * (f64::from(global[class]) - f64::from(local[class]))
            });
            (max + total.ln() - mixed(label), by_g.sum())
        }
        Mix::Probabilities => {
            let probability = |logits: &[f32]| {
                let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let part = |logit: f32| (f64::from(logit) - f64::from(max)).exp();
                part(logits[label]) / logits.iter().map(|&logit| part(logit)).sum::<f64>()
            };
            let (global, local) = (probability(global), probability(local));
            let mixed = (g * global + (1.0 - g) * local).max(LEAST);
            (-mixed.ln(), -(global - local) / mixed)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use super::*;

    const ROWS: Rows<'static> = Rows {
        inputs: &[0.5, -1.0, 2.0, 0.25, -0.75, 1.5, 0.0, 1.0, -2.0, 1.0, 1.0, 1.0],
        global: &[1.0, -0.5, 0.25, 0.0, 2.0, -1.0, 0.5, 0.5, 1.5, -1.0, 0.0, 3.0],
        local: &[-1.0, 1.5, 0.5, 1.0, 0.0, 0.75, 2.0, -0.5, 0.0, 0.25, 1.0, -2.0],
        labels: &[0, 1, 2, 0],
    };

    #[test]
    fn gradients_are_those_of_finite_differences() {
        for mix in [Mix::Logits, Mix::Probabilities] {
            let gate = Gate::of(&[0.3, -0.2, 0.7], 0.1);
            let (mut gradient, mut unused) = (Vec::new(), Vec::new());
            let positions = [3, 0, 2];
            gate.gradient(&ROWS, &positions, mix, &mut gradient);
            assert!(gradient.iter().all(|slope| slope.abs() > 1e-3), "{gradient:?}");
            for (index, found) in gradient.iter().enumerate() {
                let mut loss_at = |offset: f32| {
                    let mut moved = gate.clone();
                    moved.parameters[index] += offset;
                    // What the parameter is in single precision.
                    let at = f64::from(moved.parameters[index]);
                    (at, moved.gradient(&ROWS, &positions, mix, &mut unused))
                };
                let ((right, above), (left, below)) = (loss_at(1e-3), loss_at(-1e-3));
                let expected = (above - below) / (right - left);
                assert!((found - expected).abs() < 1e-6, "{mix:?} {index}: {found} {expected}");
            }
        }
    }

    #[test]
    fn a_gate_in_closed_form() {
        let gate = Gate::of(&[1.0, -2.0], 0.5);
        assert!((gate.weigh(&[0.5, 1.0]) - 1.0 / (1.0 + 1f32.exp())).abs() < 1e-7);
        assert_eq!(Gate::even(2).weigh(&[7.0, -3.0]).to_bits(), 0.5f32.to_bits());
        assert_eq!((gate.inputs(), gate.parts()), (2, (&[1.0, -2.0][..], 0.5)));
    }

    #[test]
    fn the_ends_of_the_mixture_are_the_experts_themselves() {
        let (global, local) = ([1.5f32, -0.3, 0.1], [0.7f32, 0.2, -4.0]);
        assert_eq!(Mix::Logits.combine(1.0, &global, &local), global);
        assert_eq!(Mix::Logits.combine(0.0, &global, &local), local);
        assert_eq!(Mix::Logits.combine(0.5, &[2.0, 0.0], &[4.0, 1.0]), [3.0, 0.5]);
        for (g, logits) in [(1.0, &global), (0.0, &local)] {
            let expected = models::Prediction::from_logits(logits).probabilities;
            assert_eq!(Mix::Probabilities.combine(g, &global, &local), expected);
        }
        let half = Mix::Probabilities.combine(0.5, &[0.0, 3f32.ln()], &[0.0, 0.0]);
        assert!((half[0] - 0.375).abs() < 1e-6 && (half[1] - 0.625).abs() < 1e-6, "{half:?}");
    }

    #[test]
    fn a_gate_learns_which_expert_knows_which_input() {
        // The global expert is right where the input is positive, the local one where it is negative.
        let (mut inputs, mut global, mut local, mut labels) = (vec![], vec![], vec![], vec![]);
        for row in 0..40u32 {
            let (side, label) = (if row % 2 == 0 { 1.0 } else { -1.0 }, row / 2 % 2);
            let right = [if label == 0 { 2.0 } else { -2.0 }, 0.0f32];
            let wrong = [-right[0], 0.0];
            inputs.push(side);
            global.extend(if side > 0.0 { right } else { wrong });
            local.extend(if side > 0.0 { wrong } else { right });
            labels.push(label);
        }
        let rows = Rows { inputs: &inputs, global: &global, local: &local, labels: &labels };
        let training = GateTraining { epochs: 50, batch: 16, learning_rate: 0.05, weight_decay: 0.0 };
        let steps = Cell::new(0);
        let mut advance = || {
            steps.set(steps.get() + 1);
            Ok::<(), Infallible>(())
        };
        for mix in [Mix::Logits, Mix::Probabilities] {
            let gate = learned(&rows, 1, mix, &training, &mut advance);
            assert!(gate.weigh(&[1.0]) > 0.9 && gate.weigh(&[-1.0]) < 0.1, "{gate:?}");
        }
        assert_eq!(steps.get(), 2 * training.steps(40));
        let none = Rows { inputs: &[], global: &[], local: &[], labels: &[] };
        let gate = learned(&none, 3, Mix::Logits, &training, &mut advance);
        assert_eq!(gate, Gate::even(3));
    }

    fn learned(
        rows: &Rows<'_>,
        inputs: usize,
        mix: Mix,
        training: &GateTraining,
        advance: &mut dyn FnMut() -> Result<(), Infallible>,
    ) -> Gate {
        let mut course = GateCourse::new(inputs, rows.labels.len(), mix, training, Seed::root(1));
        for epoch in 0..training.epochs {
            let Ok(()) = course.epoch(rows, epoch, advance);
        }
        course.finish()
    }

    #[test]
    fn weight_decay_holds_a_gate_back() {
        let none = || Ok(());
        let of = |weight_decay| {
            let training = GateTraining { epochs: 200, batch: 0, learning_rate: 0.05, weight_decay };
            let gate = learned(&ROWS, 3, Mix::Logits, &training, &mut { none });
            gate.parts().0.iter().map(|weight| weight.abs()).sum::<f32>()
        };
        let [free, held, most] = [0.0, 0.01, 10.0].map(of);
        assert!(free > 1.5 * held && held > 1.5 * most && most < 0.1, "{free} {held} {most}");
    }
}
