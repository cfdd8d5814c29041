//! Networks on the CPU: a plan of operators over buffers that are made once, without a graph of tensors.
//!
//! An architecture becomes a [`Sequence`] of [`Operator`]s for each of its parts. A forward pass leaves what every
//! operator gave in its buffer, a backward pass goes through them in reverse, and the optimiser changes the parameters
//! where they are. What is allocated from step to step is small: lists of tasks, and the packing of matrices. All kernels
//! divide their work by shapes alone, so that results have the same bits for any number of threads; the threads are those
//! of the rayon pool that the caller runs in.

mod convolution;
mod dropout;
mod embedding;
#[cfg(test)]
mod golden;
mod linear;
mod lstm;
mod normalisation;
mod operator;
mod parameter;
mod plan;
mod pooling;
mod rectifier;
mod residual;
mod sequence;

use std::collections::BTreeSet;
use std::fmt;

pub(crate) use parameter::{Descent, Parameter};

use crate::architecture::{Architecture, ArchitectureError, ParameterKind, ParameterSpec};
use crate::correction::Correction;
use crate::error::ModelError;
use crate::mode::Mode;
use crate::network::OutputGradients;
use crate::params::{Array, ParamSet};
use crate::sgd::Sgd;
use operator::Shared;
use plan::Planner;
use sequence::Sequence;

/// A network in host memory.
pub(crate) struct Engine {
    /// Ordered by name.
    parameters: Vec<Parameter>,
    /// Extractor, projection and head.
    parts: [Sequence; 3],
    /// The last batch and its number of samples.
    x: Vec<f32>,
    n: usize,
    /// Memory for gradients.
    free: Vec<Vec<f32>>,
}

impl Engine {
    /// A network of this architecture with these parameters, which fit it.
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
            Parameter::new(name.to_owned(), values.clone(), buffers.contains(name))
        };
        let parameters: Vec<Parameter> = params.iter().map(parameter).collect();
        let names: Vec<String> = parameters.iter().map(|parameter| parameter.name.clone()).collect();
        let mut planner = Planner::new(&architecture.input, &names);
        let [extractor, projection, head] = architecture.parts();
        let mut part = |(name, layers)| planner.sequence(name, name, layers);
        let parts = [part(extractor)?, part(projection)?, part(head)?];
        Ok(Self { parameters, parts, x: Vec::new(), n: 0, free: Vec::new() })
    }

    /// Replaces all parameters by these, which fit, and forgets what the optimiser kept.
    pub(crate) fn load(&mut self, params: &ParamSet) {
        for (parameter, (_, values)) in self.parameters.iter_mut().zip(params) {
            parameter.load(values);
        }
    }

    /// All parameters, which share memory with the network's until it changes them.
    pub(crate) fn read(&self) -> ParamSet {
        self.parameters.iter().map(|parameter| (parameter.name.clone(), parameter.values.clone())).collect()
    }

    /// Runs a batch of `n` samples through all parts.
    pub(crate) fn forward(&mut self, x: &[f32], n: usize, mode: Mode) -> Result<(), ModelError> {
        self.x.clear();
        self.x.extend_from_slice(x);
        self.n = n;
        let mut x = self.x.as_slice();
        for part in &mut self.parts {
            part.forward(&mut self.parameters, x, n, mode)?;
            x = part.output(x);
        }
        Ok(())
    }

    /// What the extractor, the projection and the head gave for the last batch.
    pub(crate) fn outputs(&self) -> [&[f32]; 3] {
        let features = self.parts[0].output(&self.x);
        let representation = self.parts[1].output(features);
        [features, representation, self.parts[2].output(representation)]
    }

    /// Takes the gradients by the three outputs of the last batch back to the parameters.
    pub(crate) fn backward(&mut self, gradients: OutputGradients<'_>, descent: Descent) {
        let Self { parameters, parts, x, n, free } = self;
        let by_output = [gradients.features, gradients.representation, gradients.logits];
        let learns: [bool; 3] = std::array::from_fn(|index| parts[..index].iter().any(Sequence::learns));
        let mut gradient = free.pop().unwrap_or_default();
        gradient.clear();
        for index in (0..3).rev() {
            if !learns[index] && !parts[index].learns() {
                break;
            }
            let (before, rest) = parts.split_at_mut(index);
            let x = before.iter().fold(x.as_slice(), |x, part| part.output(x));
            let part = &mut rest[0];
            let length = *n * part.outputs();
            if let Some(given) = by_output[index] {
                assert_eq!(given.len(), length, "a gradient as long as its output");
            }
            match by_output[index] {
                Some(given) if gradient.is_empty() => gradient.extend_from_slice(given),
                Some(given) => gradient.iter_mut().zip(given).for_each(|(sum, given)| *sum += given),
                // No output after this one has a gradient: this part gets none either.
                None if gradient.is_empty() => gradient.resize(length, 0.0),
                None => {}
            }
            debug_assert_eq!(gradient.len(), length, "what a part gives back is as long as its input");
            let shared = &mut Shared { n: *n, descent, free };
            gradient = part.backward(parameters, x, gradient, learns[index], shared);
        }
        free.push(gradient);
    }

    /// The gradients of the last backward pass, by name.
    pub(crate) fn gradients(&mut self) -> ParamSet {
        let gradient = |parameter: &mut Parameter| {
            parameter.fresh = false;
            let mut values = parameter.gradient.clone();
            // Empty if nothing has flown back to it.
            values.resize(parameter.values.len(), 0.0);
            let array = Array::new(parameter.values.shape(), values);
            (parameter.name.clone(), array.expect("a gradient has as many values as its parameter"))
        };
        self.parameters.iter_mut().map(gradient).collect()
    }

    /// The values of a parameter, which share memory with the network's until it changes them.
    pub(crate) fn parameter(&self, name: &str) -> Option<Array> {
        Some(self.parameters[self.index(name)?].values.clone())
    }

    /// Adds to the gradient of a parameter, which still waits to be applied. `None` if there is no such parameter.
    pub(crate) fn add_gradient(&mut self, name: &str, gradient: &[f32]) -> Option<()> {
        let index = self.index(name)?;
        self.parameters[index].add_gradient(gradient);
        Some(())
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.parameters.binary_search_by(|parameter| parameter.name.as_str().cmp(name)).ok()
    }

    /// Corrects all gradients from here on, until parameters are loaded. The sets fit, but for buffers.
    pub(crate) fn correct(&mut self, correction: &Correction) {
        for parameter in &mut self.parameters {
            let of = |set: &ParamSet| set.get(&parameter.name).cloned();
            let anchor = correction.anchor.as_ref();
            let anchor = anchor.and_then(|(pull, anchor)| Some((*pull as f32, of(anchor)?)));
            let shift = correction.shift.as_ref().and_then(of);
            parameter.correct(anchor, shift);
        }
    }

    /// One step of the optimiser along the gradients of the last backward pass that have not been applied. If `clip` is
    /// given and they are longer, all together, they are shortened to it first.
    pub(crate) fn descend(&mut self, sgd: &Sgd, clip: Option<f64>) {
        let scale = clip.and_then(|clip| {
            let norm = self.parameters.iter().map(Parameter::squares).sum::<f64>().sqrt();
            (norm > clip).then_some((clip / norm) as f32)
        });
        self.parameters.iter_mut().for_each(|parameter| parameter.descend(sgd, scale));
    }

    /// One step of the optimiser along these gradients, which fit.
    pub(crate) fn descend_along(&mut self, sgd: &Sgd, gradients: &ParamSet) {
        for (parameter, (_, gradient)) in self.parameters.iter_mut().zip(gradients) {
            parameter.descend_along(sgd, gradient.values());
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("parameters", &self.parameters.len()).finish_non_exhaustive()
    }
}
