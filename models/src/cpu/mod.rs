//! The engine for CPUs: operators over buffers that are allocated once, without a graph of tensors.
//!
//! Each part of an architecture becomes a [`Sequence`] of [`Operator`](operator::Operator)s. A forward pass stores the output
//! of each operator in its buffer, a backward pass visits them in reverse, and the optimiser changes the parameters in place.
//! A step allocates little: lists of tasks, and packed matrices. All kernels divide their work by shapes alone, so that
//! results have the same bits for any number of threads, which are those of the caller's rayon pool.

mod activation;
mod attention;
mod convolution;
mod dropout;
mod embedding;
#[cfg(test)]
mod golden;
mod linear;
mod lstm;
pub(crate) mod memory;
mod normalisation;
pub(crate) mod operator;
mod padding;
pub(crate) mod parameter;
pub(crate) mod plan;
mod pooling;
mod positions;
mod residual;
mod sequence;
mod squeeze_excite;

use std::collections::BTreeSet;
use std::fmt;

use crate::architecture::{Architecture, ArchitectureError, ParameterKind, ParameterSpec};
use crate::correction::Correction;
use crate::engine::{Engine, OutputGradients, UpdateMode};
use crate::error::ModelError;
use crate::kernels::update::Step;
use crate::mode::Mode;
use crate::optimizer::{Optimizer, OptimizerState};
use crate::params::{Array, ParamSet};
use operator::PassContext;
use parameter::Parameter;
use plan::Planner;
use sequence::Sequence;

/// A network's parameters in host memory.
pub(crate) struct CpuEngine {
    /// Ordered by name.
    parameters: Vec<Parameter>,
    /// Extractor, projection and head.
    parts: [Sequence; 3],
    /// Which of them are frozen, and do the same in training as in evaluation.
    frozen: [bool; 3],
    /// The last batch and its number of samples.
    x: Vec<f32>,
    n: usize,
    /// Whether the batch are features: what the extractor would give.
    from_features: bool,
    /// Unused buffers for gradients.
    free: Vec<Vec<f32>>,
    /// Steps of the optimiser since parameters were loaded.
    steps: u32,
}

impl CpuEngine {
    /// An engine for this architecture with these parameters, which fit it.
    pub(crate) fn new(
        architecture: &Architecture,
        specs: &[ParameterSpec],
        params: &ParamSet,
    ) -> Result<Self, ArchitectureError> {
        let buffers: BTreeSet<&str> = specs
            .iter()
            .filter(|spec| spec.kind == ParameterKind::Buffer)
            .map(|spec| spec.name.as_str())
            .collect();
        let parameter = |(name, values): (&str, &Array)| {
            let parameter = Parameter::new(name.to_owned(), values.clone(), buffers.contains(name));
            parameter.with_frozen(architecture.is_frozen(name))
        };
        let parameters: Vec<Parameter> = params.iter().map(parameter).collect();
        let mut planner = Planner::new(&architecture.input, &parameters);
        let [extractor, projection, head] = architecture.parts();
        let mut part = |(name, layers)| planner.sequence(name, name, layers);
        let parts = [part(extractor)?, part(projection)?, part(head)?];
        let frozen = architecture.parts().map(|(part, _)| architecture.is_part_frozen(part));
        let (x, free) = (Vec::new(), Vec::new());
        Ok(Self { parameters, parts, frozen, x, n: 0, from_features: false, free, steps: 0 })
    }

    /// The optimiser's next step.
    fn next_step(&mut self, optimizer: &Optimizer) -> Step {
        self.steps = self.steps.saturating_add(1);
        Step::of(optimizer, self.steps)
    }

    /// Runs the batch through the parts from this one on.
    fn run(&mut self, first: usize, mode: Mode) -> Result<(), ModelError> {
        let mut x = self.x.as_slice();
        for (part, frozen) in self.parts.iter_mut().zip(self.frozen).skip(first) {
            let mode = if frozen { Mode::Evaluation } else { mode };
            part.forward(&mut self.parameters, x, self.n, mode)?;
            x = part.output(x);
        }
        Ok(())
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.parameters.binary_search_by(|parameter| parameter.name.as_str().cmp(name)).ok()
    }
}

impl Engine for CpuEngine {
    fn load(&mut self, params: &ParamSet) -> Result<(), ModelError> {
        for (parameter, (_, values)) in self.parameters.iter_mut().filter(changes).zip(params) {
            parameter.load(values);
        }
        self.steps = 0;
        Ok(())
    }

    /// They share memory with the network's until a step changes those.
    fn params(&self) -> Result<ParamSet, ModelError> {
        let named = |parameter: &Parameter| (parameter.name.clone(), parameter.values.clone());
        Ok(self.parameters.iter().filter(|parameter| !parameter.frozen).map(named).collect())
    }

    fn parameter(&self, name: &str) -> Result<Option<Array>, ModelError> {
        Ok(self.index(name).map(|index| self.parameters[index].values.clone()))
    }

    fn forward(&mut self, x: &[f32], shape: &[usize], mode: Mode) -> Result<(), ModelError> {
        self.x.clear();
        self.x.extend_from_slice(x);
        (self.n, self.from_features) = (shape[0], false);
        self.run(0, mode)
    }

    fn forward_from(&mut self, features: &[f32], n: usize, mode: Mode) -> Result<(), ModelError> {
        self.x.clear();
        self.x.extend_from_slice(features);
        (self.n, self.from_features) = (n, true);
        self.run(1, mode)
    }

    fn outputs(&self) -> [&[f32]; 3] {
        let features = if self.from_features { &self.x } else { self.parts[0].output(&self.x) };
        let representation = self.parts[1].output(features);
        [features, representation, self.parts[2].output(representation)]
    }

    fn backward(&mut self, gradients: OutputGradients<'_>, update: UpdateMode) -> Result<(), ModelError> {
        let Self { parameters, parts, x, n, free, from_features, .. } = self;
        let computed = usize::from(*from_features);
        let by_output = [gradients.features, gradients.representation, gradients.logits];
        let learns: [bool; 3] = std::array::from_fn(|index| parts[..index].iter().any(Sequence::learns));
        let mut gradient = free.pop().unwrap_or_default();
        gradient.clear();
        for index in (0..3).rev() {
            if !learns[index] && !parts[index].learns() {
                break;
            }
            let (before, rest) = parts.split_at_mut(index);
            let x = before.iter().skip(computed).fold(x.as_slice(), |x, part| part.output(x));
            let part = &mut rest[0];
            let length = *n * part.outputs();
            if let Some(given) = by_output[index] {
                assert_eq!(given.len(), length, "a gradient as long as its output");
            }
            match by_output[index] {
                Some(given) if gradient.is_empty() => gradient.extend_from_slice(given),
                Some(given) => gradient.iter_mut().zip(given).for_each(|(sum, given)| *sum += given),
                // The loss depends on no later output, so that nothing flows back into this one.
                None if gradient.is_empty() => gradient.resize(length, 0.0),
                None => {}
            }
            debug_assert_eq!(gradient.len(), length, "a part's input gradient is as long as its input");
            let context = &mut PassContext { n: *n, update, free };
            gradient = part.backward(parameters, x, gradient, learns[index], context);
        }
        free.push(gradient);
        Ok(())
    }

    fn gradients(&mut self) -> Result<ParamSet, ModelError> {
        let gradient = |parameter: &mut Parameter| {
            parameter.pending = false;
            let mut values = parameter.gradient.clone();
            // Empty if no backward pass has reached the parameter.
            values.resize(parameter.values.len(), 0.0);
            let array = Array::new(parameter.values.shape(), values);
            (parameter.name.clone(), array.expect("a gradient has as many values as its parameter"))
        };
        Ok(self.parameters.iter_mut().filter(changes).map(gradient).collect())
    }

    fn add_gradient(&mut self, name: &str, gradient: &[f32]) -> Result<Option<()>, ModelError> {
        Ok(self.index(name).map(|index| self.parameters[index].add_gradient(gradient)))
    }

    fn correct(&mut self, correction: &Correction) -> Result<(), ModelError> {
        for parameter in &mut self.parameters {
            let of = |set: &ParamSet| set.get(&parameter.name).cloned();
            let anchor = correction.anchor.as_ref();
            let anchor = anchor.and_then(|(pull, anchor)| Some((*pull as f32, of(anchor)?)));
            let shift = correction.shift.as_ref().and_then(of);
            parameter.correct(anchor, shift);
        }
        Ok(())
    }

    fn step(&mut self, optimizer: &Optimizer, clip: Option<f64>) -> Result<(), ModelError> {
        let scale = clip.and_then(|clip| {
            let norm = self.parameters.iter().map(Parameter::squared_norm).sum::<f64>().sqrt();
            (norm > clip).then_some((clip / norm) as f32)
        });
        let step = self.next_step(optimizer);
        self.parameters.iter_mut().for_each(|parameter| parameter.step(&step, scale));
        Ok(())
    }

    fn spare(&mut self, spared: &BTreeSet<String>) {
        for parameter in &mut self.parameters {
            parameter.spared = spared.contains(&parameter.name);
        }
    }

    fn step_along(&mut self, optimizer: &Optimizer, gradients: &ParamSet) -> Result<(), ModelError> {
        let step = self.next_step(optimizer);
        for (parameter, (_, gradient)) in self.parameters.iter_mut().filter(changes).zip(gradients) {
            parameter.step_along(&step, gradient.values());
        }
        Ok(())
    }

    fn optimizer_state(&self) -> Result<OptimizerState, ModelError> {
        let mut state = OptimizerState { steps: self.steps, ..OptimizerState::default() };
        for parameter in &self.parameters {
            for (set, moment) in state.moments.iter_mut().zip(parameter.moments()) {
                if let Some(moment) = moment {
                    set.insert(parameter.name.clone(), moment);
                }
            }
        }
        Ok(state)
    }

    fn restore_optimizer(&mut self, state: &OptimizerState) -> Result<(), ModelError> {
        self.steps = state.steps;
        for parameter in &mut self.parameters {
            parameter.restore_moments(state.moments.each_ref().map(|set| set.get(&parameter.name)));
        }
        Ok(())
    }
}

/// Whether a parameter is one of those that sets hold.
fn changes(parameter: &&mut Parameter) -> bool {
    !parameter.frozen
}

impl fmt::Debug for CpuEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuEngine").field("parameters", &self.parameters.len()).finish_non_exhaustive()
    }
}
