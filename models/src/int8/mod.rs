//! The engine for predictions with 8-bit integers: a network whose weights are quantised once, on the CPU.
//!
//! Convolutions, linear layers and LSTMs are [products of 8-bit integers](crate::kernels::int8), with the batch normalisation
//! and the activation function that follow. All other layers are those of [`cpu`](crate::cpu), in `f32`, as are the values
//! between layers. Layers whose sums could leave 32 bits stay in `f32` as well.
//!
//! Samples are independent: an answer depends neither on the batch that a sample came in nor on threads. A batch is
//! therefore run in parts that stay in the cache, through buffers that the layers share.

mod buffers;
mod fold;
mod plan;
mod sequence;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

use crate::architecture::{Architecture, ArchitectureError};
use crate::correction::Correction;
use crate::cpu::parameter::Parameter;
use crate::engine::{Engine, OutputGradients, UpdateMode};
use crate::error::ModelError;
use crate::kernels::int8::Scratch;
use crate::mode::Mode;
use crate::optimizer::{Optimizer, OptimizerState};
use crate::params::{Array, ParamSet};
use buffers::Buffers;
use plan::Planner;
use sequence::{Pass, Sequence};

/// Values between two layers that samples have together in one pass: 4 MiB, which a shared cache holds.
const TOGETHER: usize = 1 << 20;

/// A network's quantised weights.
pub(crate) struct Int8Engine {
    /// Of the layers that are not quantised; those of the others are empty.
    parameters: Vec<Parameter>,
    /// Extractor, projection and head.
    parts: [Sequence; 3],
    /// The outputs of the parts for the last batch; those of a part without layers are empty.
    outputs: [Vec<f32>; 3],
    /// The last batch, if it is the output of the extractor: because that has no layers, or the batch are features.
    x: Vec<f32>,
    /// Samples that go through the network together.
    together: usize,
    buffers: Buffers,
    /// What convolutions work in.
    scratch: Vec<Scratch>,
}

impl Int8Engine {
    /// Quantises these parameters, which fit the architecture.
    pub(crate) fn new(architecture: &Architecture, params: &ParamSet) -> Result<Self, ArchitectureError> {
        let parameter =
            |(name, values): (&str, &Array)| Parameter::new(name.to_owned(), values.clone(), false);
        let mut parameters: Vec<Parameter> = params.iter().map(parameter).collect();
        let mut planner = Planner::new(&architecture.input, &parameters);
        let [extractor, projection, head] = architecture.parts();
        let mut part = |(name, layers)| planner.sequence(name, name, layers);
        let parts = [part(extractor)?, part(projection)?, part(head)?];
        let (taken, together) = (planner.taken, (TOGETHER / planner.widest.max(1)).max(1));
        for parameter in &mut parameters {
            let label = parameter.name.rsplit_once('.').map_or("", |(label, _)| label);
            if taken.iter().any(|taken| taken == label) {
                parameter.values = Array::zeros([0]);
            }
        }
        let (outputs, buffers, scratch) = (Default::default(), Buffers::default(), Vec::new());
        Ok(Self { parameters, parts, outputs, x: Vec::new(), together, buffers, scratch })
    }

    /// Runs `n` samples through the parts from `first` on.
    fn run(&mut self, first: usize, x: &[f32], n: usize) -> Result<(), ModelError> {
        self.outputs.iter_mut().for_each(Vec::clear);
        self.x.clear();
        if first > 0 || self.parts[0].is_empty() {
            self.x.extend_from_slice(x);
        }
        let each = x.len() / n.max(1);
        for x in x.chunks((self.together * each).max(1)) {
            let Self { parameters, buffers, scratch, .. } = self;
            let mut pass = Pass { parameters, buffers, scratch, n: x.len() / each.max(1) };
            let mut output = None;
            for (part, all) in self.parts.iter_mut().zip(&mut self.outputs).skip(first) {
                let x = output.as_deref().unwrap_or(x);
                if let Some(new) = part.forward(x, &mut pass)? {
                    all.extend_from_slice(&new);
                    if let Some(before) = output.replace(new) {
                        pass.buffers.give_back(before);
                    }
                }
            }
            if let Some(last) = output {
                pass.buffers.give_back(last);
            }
        }
        Ok(())
    }

    /// The bytes of parameters and of everything that passes have needed so far, but for the scratch memory of layers in `f32`.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        let values = self.parameters.iter().map(|parameter| parameter.values.len());
        let outputs = self.outputs.iter().chain([&self.x]).map(Vec::capacity);
        let parts: usize = self.parts.iter().map(Sequence::bytes).sum();
        values.chain(outputs).sum::<usize>() * size_of::<f32>()
            + parts
            + self.buffers.bytes()
            + self.scratch.iter().map(Scratch::bytes).sum::<usize>()
    }
}

/// Why a quantised network does not do this.
fn refused<T>(operation: &'static str) -> Result<T, ModelError> {
    Err(ModelError::Quantised { operation })
}

/// Refuses a pass that is not for predictions.
fn check(mode: Mode) -> Result<(), ModelError> {
    match mode {
        Mode::Evaluation => Ok(()),
        Mode::Training(_) => refused("training"),
    }
}

impl Engine for Int8Engine {
    fn load(&mut self, _: &ParamSet) -> Result<(), ModelError> {
        refused("replacing its parameters")
    }

    fn params(&self) -> Result<ParamSet, ModelError> {
        refused("reading its parameters")
    }

    fn parameter(&self, _: &str) -> Result<Option<Array>, ModelError> {
        refused("reading its parameters")
    }

    fn forward(&mut self, x: &[f32], shape: &[usize], mode: Mode) -> Result<(), ModelError> {
        check(mode)?;
        self.run(0, x, shape[0])
    }

    fn forward_from(&mut self, features: &[f32], n: usize, mode: Mode) -> Result<(), ModelError> {
        check(mode)?;
        self.run(1, features, n)
    }

    fn outputs(&self) -> [&[f32]; 3] {
        let [features, representation, logits] = &self.outputs;
        // A part without layers gives what it takes.
        let features = if features.is_empty() { self.x.as_slice() } else { features };
        let representation = if representation.is_empty() { features } else { representation };
        let logits = if logits.is_empty() { representation } else { logits };
        [features, representation, logits]
    }

    fn backward(&mut self, _: OutputGradients<'_>, _: UpdateMode) -> Result<(), ModelError> {
        refused("training")
    }

    fn gradients(&mut self) -> Result<ParamSet, ModelError> {
        refused("training")
    }

    fn add_gradient(&mut self, _: &str, _: &[f32]) -> Result<Option<()>, ModelError> {
        refused("training")
    }

    fn correct(&mut self, _: &Correction) -> Result<(), ModelError> {
        refused("training")
    }

    fn step(&mut self, _: &Optimizer, _: Option<f64>) -> Result<(), ModelError> {
        refused("training")
    }

    /// Nothing decays where nothing is learned.
    fn spare(&mut self, _: &BTreeSet<String>) {}

    fn step_along(&mut self, _: &Optimizer, _: &ParamSet) -> Result<(), ModelError> {
        refused("training")
    }

    fn optimizer_state(&self) -> Result<OptimizerState, ModelError> {
        refused("training")
    }

    fn restore_optimizer(&mut self, _: &OptimizerState) -> Result<(), ModelError> {
        refused("training")
    }
}

impl fmt::Debug for Int8Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Int8Engine").field("together", &self.together).finish_non_exhaustive()
    }
}
