//! The engine for CUDA devices, in candle's tensors.
//!
//! The layers are candle's differentiable operations. Losses are computed on the host from the three outputs, which are
//! small. For the backward pass their gradients are multiplied with the outputs and summed up to a scalar, whose derivatives
//! with respect to the outputs they are, and candle propagates that.

mod descent;
mod layers;
mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use candle_core::{Device, Tensor, Var};

use crate::architecture::{Architecture, ParameterKind, ParameterSpec};
use crate::correction::Correction;
use crate::engine::{Engine, OutputGradients, UpdateMode};
use crate::error::ModelError;
use crate::mode::Mode;
use crate::optimizer::{Optimizer, OptimizerState};
use crate::params::{Array, ParamSet};
use layers::{Operator, plan, run};
use variables::Variables;

/// What candle's own operations return.
type CandleResult<T> = candle_core::Result<T>;

/// A network's parameters on a device of candle.
pub(crate) struct CandleEngine {
    device: Device,
    variables: Variables,
    /// The names of the parameters that the optimiser does not change.
    buffers: BTreeSet<String>,
    /// The operators of extractor, projection and head.
    parts: [Vec<Operator>; 3],
    /// Which of them are frozen, and do the same in training as in evaluation.
    frozen: [bool; 3],
    /// The shape of one sample's features.
    feature_shape: Vec<usize>,
    /// The outputs of the three parts for the last batch, on the device and on the host.
    outputs: Option<[Tensor; 3]>,
    host: [Vec<f32>; 3],
    gradients: BTreeMap<String, Tensor>,
    /// What the optimiser keeps: velocity, or first and second moment.
    moments: [BTreeMap<String, Tensor>; 2],
    /// Steps of the optimiser since parameters were loaded.
    steps: u32,
    /// The parameters that weight decay takes nothing from.
    spared: BTreeSet<String>,
    /// The correction of gradients: the factor of the pull towards the anchors, the anchors and the shifts.
    pull: f64,
    anchors: BTreeMap<String, Tensor>,
    shifts: BTreeMap<String, Tensor>,
}

impl CandleEngine {
    /// An engine for this architecture with a copy of these parameters, which fit it.
    pub(crate) fn new(
        architecture: &Architecture,
        specs: &[ParameterSpec],
        params: &ParamSet,
        device: &Device,
    ) -> Result<Self, ModelError> {
        let variables = Variables::new(params, |name| architecture.is_frozen(name), device);
        let variables = variables.map_err(ModelError::candle("moving parameters to the device"))?;
        let parts = architecture.parts().map(|(part, layers)| plan(part, part, layers, &variables));
        let buffers = specs.iter().filter(|spec| spec.kind == ParameterKind::Buffer);
        Ok(Self {
            device: device.clone(),
            variables,
            buffers: buffers.map(|spec| spec.name.clone()).collect(),
            parts,
            feature_shape: architecture.feature_shape()?,
            frozen: architecture.parts().map(|(part, _)| architecture.is_part_frozen(part)),
            outputs: None,
            host: [const { Vec::new() }; 3],
            gradients: BTreeMap::new(),
            moments: Default::default(),
            steps: 0,
            spared: BTreeSet::new(),
            pull: 0.0,
            anchors: BTreeMap::new(),
            shifts: BTreeMap::new(),
        })
    }

    /// A set of tensors without those of buffers, moved to the device.
    fn moved(&self, set: Option<&ParamSet>) -> CandleResult<BTreeMap<String, Tensor>> {
        let tensors = set.into_iter().flatten().filter(|(name, _)| !self.buffers.contains(*name));
        let tensor = |(name, array): (&str, &Array)| Ok((name.to_owned(), to_device(array, &self.device)?));
        tensors.map(tensor).collect()
    }

    /// Runs a tensor through the parts from this one on; it stands for the outputs of those before.
    fn run(&mut self, first: usize, mut tensor: Tensor, mode: Mode) -> Result<(), ModelError> {
        let mut outputs = vec![tensor.clone(); first];
        for (part, frozen) in self.parts.iter().zip(self.frozen).skip(first) {
            let mode = if frozen { Mode::Evaluation } else { mode };
            tensor = run(part, tensor, mode)?;
            outputs.push(tensor.clone());
        }
        for (host, output) in self.host.iter_mut().zip(&outputs) {
            *host = output
                .flatten_all()
                .and_then(|flat| flat.to_vec1())
                .map_err(ModelError::candle("copying outputs from the device"))?;
        }
        self.outputs = outputs.try_into().ok();
        Ok(())
    }

    /// The scalar whose derivatives with respect to the outputs are the given gradients; `None` without gradients.
    fn weighted_sum(&self, gradients: OutputGradients<'_>) -> CandleResult<Option<Tensor>> {
        let by_output = [gradients.features, gradients.representation, gradients.logits];
        let mut total: Option<Tensor> = None;
        for (output, gradient) in self.outputs.iter().flatten().zip(by_output) {
            if let Some(gradient) = gradient {
                let gradient = Tensor::from_slice(gradient, output.dims(), &self.device)?;
                let product = (output * gradient)?.sum_all()?;
                total = Some(match total {
                    Some(total) => (total + product)?,
                    None => product,
                });
            }
        }
        Ok(total)
    }
}

impl Engine for CandleEngine {
    fn load(&mut self, params: &ParamSet) -> Result<(), ModelError> {
        let loaded = self.variables.load(params, &self.device);
        loaded.map_err(ModelError::candle("moving parameters to the device"))?;
        self.moments.iter_mut().for_each(BTreeMap::clear);
        self.steps = 0;
        self.anchors.clear();
        self.shifts.clear();
        Ok(())
    }

    fn params(&self) -> Result<ParamSet, ModelError> {
        let copy = |(name, variable): (&String, &Var)| Ok((name.clone(), to_host(variable)?));
        let copies: CandleResult<_> = self.variables.changing().map(copy).collect();
        copies.map_err(ModelError::candle("copying parameters from the device"))
    }

    fn parameter(&self, name: &str) -> Result<Option<Array>, ModelError> {
        self.variables.value(name).map_err(ModelError::candle("copying parameters from the device"))
    }

    fn forward(&mut self, x: &[f32], shape: &[usize], mode: Mode) -> Result<(), ModelError> {
        let tensor = Tensor::from_slice(x, shape, &self.device);
        self.run(0, tensor.map_err(ModelError::candle("moving samples to the device"))?, mode)
    }

    fn forward_from(&mut self, features: &[f32], n: usize, mode: Mode) -> Result<(), ModelError> {
        let shape = [&[n], &self.feature_shape[..]].concat();
        let tensor = Tensor::from_slice(features, shape, &self.device);
        self.run(1, tensor.map_err(ModelError::candle("moving features to the device"))?, mode)
    }

    fn outputs(&self) -> [&[f32]; 3] {
        self.host.each_ref().map(Vec::as_slice)
    }

    /// Stores all gradients: a fused step would save nothing here.
    fn backward(&mut self, gradients: OutputGradients<'_>, _update: UpdateMode) -> Result<(), ModelError> {
        self.gradients.clear();
        let total = self.weighted_sum(gradients);
        let store = total.and_then(|total| total.map(|total| total.backward()).transpose());
        if let Some(store) = store.map_err(ModelError::candle("computing gradients"))? {
            for (name, variable) in self.variables.changing() {
                if let Some(gradient) = store.get(variable) {
                    self.gradients.insert(name.clone(), gradient.clone());
                }
            }
        }
        Ok(())
    }

    fn gradients(&mut self) -> Result<ParamSet, ModelError> {
        let gradient = |(name, variable): (&String, &Var)| {
            let array = match self.gradients.get(name) {
                Some(gradient) => to_host(gradient)?,
                None => Array::zeros(variable.dims()),
            };
            Ok((name.clone(), array))
        };
        let gradients: CandleResult<_> = self.variables.changing().map(gradient).collect();
        gradients.map_err(ModelError::candle("copying gradients from the device"))
    }

    fn add_gradient(&mut self, name: &str, gradient: &[f32]) -> Result<Option<()>, ModelError> {
        let Some(variable) = self.variables.get(name) else { return Ok(None) };
        let given = Tensor::from_slice(gradient, variable.dims(), &self.device);
        let sum = match self.gradients.remove(name) {
            Some(gradient) => given.and_then(|given| gradient + given),
            None => given,
        };
        let sum = sum.map_err(ModelError::candle("moving gradients to the device"))?;
        self.gradients.insert(name.to_owned(), sum);
        Ok(Some(()))
    }

    fn correct(&mut self, correction: &Correction) -> Result<(), ModelError> {
        let failed = || ModelError::candle("moving the correction to the device");
        let anchor = correction.anchor.as_ref();
        let anchors = self.moved(anchor.map(|(_, anchor)| anchor)).map_err(failed())?;
        self.shifts = self.moved(correction.shift.as_ref()).map_err(failed())?;
        self.anchors = anchors;
        self.pull = anchor.map_or(0.0, |(pull, _)| *pull);
        Ok(())
    }

    fn step(&mut self, optimizer: &Optimizer, clip: Option<f64>) -> Result<(), ModelError> {
        self.step_along_own(optimizer, clip).map_err(ModelError::candle("stepping the optimiser"))
    }

    fn spare(&mut self, spared: &BTreeSet<String>) {
        self.spared.clone_from(spared);
    }

    fn step_along(&mut self, optimizer: &Optimizer, gradients: &ParamSet) -> Result<(), ModelError> {
        self.steps = self.steps.saturating_add(1);
        for (name, array) in gradients {
            to_device(array, &self.device)
                .and_then(|gradient| self.step_one(name, &gradient, optimizer))
                .map_err(ModelError::candle("stepping the optimiser"))?;
        }
        Ok(())
    }

    fn optimizer_state(&self) -> Result<OptimizerState, ModelError> {
        let mut state = OptimizerState { steps: self.steps, ..OptimizerState::default() };
        for (set, moment) in state.moments.iter_mut().zip(&self.moments) {
            let copy = |(name, kept): (&String, &Tensor)| Ok((name.clone(), to_host(kept)?));
            let copies: CandleResult<_> = moment.iter().map(copy).collect();
            *set = copies.map_err(ModelError::candle("copying what the optimiser keeps from the device"))?;
        }
        Ok(state)
    }

    fn restore_optimizer(&mut self, state: &OptimizerState) -> Result<(), ModelError> {
        self.steps = state.steps;
        for (moment, set) in self.moments.iter_mut().zip(&state.moments) {
            let tensor =
                |(name, array): (&str, &Array)| Ok((name.to_owned(), to_device(array, &self.device)?));
            let tensors: CandleResult<_> = set.iter().map(tensor).collect();
            *moment = tensors.map_err(ModelError::candle("moving what the optimiser keeps to the device"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for CandleEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CandleEngine").field("device", &self.device).finish_non_exhaustive()
    }
}

/// Copies an array to a device.
fn to_device(array: &Array, device: &Device) -> CandleResult<Tensor> {
    Tensor::from_slice(array.values(), array.shape(), device)
}

/// Copies a tensor to host memory.
fn to_host(tensor: &Tensor) -> CandleResult<Array> {
    let values = tensor.flatten_all()?.to_vec1::<f32>()?;
    Ok(Array::new(tensor.dims(), values).expect("a tensor has as many values as its shape says"))
}
