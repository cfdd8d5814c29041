//! Networks in candle's tensors: on CUDA devices.
//!
//! The layers are candle's differentiable operations. Losses are computed on the host from the three outputs, which are
//! small; their gradients come back as a scalar whose derivative by the outputs they are, and candle propagates that.

mod forward;

use std::collections::{BTreeMap, BTreeSet};

use candle_core::{DType, Device, Result, Tensor, Var};

use crate::architecture::{Architecture, ParameterKind, ParameterSpec};
use crate::correction::Correction;
use crate::error::ModelError;
use crate::mode::Mode;
use crate::network::OutputGradients;
use crate::params::{Array, ParamSet};
use crate::sgd::Sgd;
use forward::{Step, plan, run};

/// A network on a device of candle.
#[derive(Debug)]
pub(crate) struct Engine {
    device: Device,
    variables: BTreeMap<String, Var>,
    /// The names of those that no gradient reaches.
    buffers: BTreeSet<String>,
    /// Extractor, projection and head.
    parts: [Vec<Step>; 3],
    /// What the three parts gave for the last batch, on the device and on the host.
    outputs: Option<[Tensor; 3]>,
    host: [Vec<f32>; 3],
    gradients: BTreeMap<String, Tensor>,
    velocity: BTreeMap<String, Tensor>,
    /// What gradients are corrected by: the pull towards anchors, and shifts.
    pull: f64,
    anchors: BTreeMap<String, Tensor>,
    shifts: BTreeMap<String, Tensor>,
}

impl Engine {
    /// A network of this architecture with a copy of these parameters, which fit it.
    pub(crate) fn new(
        architecture: &Architecture,
        specs: &[ParameterSpec],
        params: &ParamSet,
        device: &Device,
    ) -> Result<Self> {
        let mut variables = BTreeMap::new();
        for (name, array) in params {
            variables.insert(name.to_owned(), Var::from_slice(array.values(), array.shape(), device)?);
        }
        let parts = architecture.parts().map(|(part, layers)| plan(part, part, layers, &variables));
        let buffers = specs.iter().filter(|spec| spec.kind == ParameterKind::Buffer);
        Ok(Self {
            device: device.clone(),
            variables,
            buffers: buffers.map(|spec| spec.name.clone()).collect(),
            parts,
            outputs: None,
            host: [const { Vec::new() }; 3],
            gradients: BTreeMap::new(),
            velocity: BTreeMap::new(),
            pull: 0.0,
            anchors: BTreeMap::new(),
            shifts: BTreeMap::new(),
        })
    }

    /// Replaces all parameters by copies of these, which fit, and forgets what the optimiser kept.
    pub(crate) fn load(&mut self, params: &ParamSet) -> Result<()> {
        for ((_, variable), (_, array)) in self.variables.iter().zip(params) {
            variable.set(&Tensor::from_slice(array.values(), array.shape(), &self.device)?)?;
        }
        self.velocity.clear();
        self.anchors.clear();
        self.shifts.clear();
        Ok(())
    }

    /// Corrects all gradients from here on, until parameters are loaded. The sets fit, but for buffers.
    pub(crate) fn correct(&mut self, correction: &Correction) -> Result<()> {
        let moved = |set: Option<&ParamSet>| -> Result<BTreeMap<String, Tensor>> {
            let tensors = set.into_iter().flatten().filter(|(name, _)| !self.buffers.contains(*name));
            let tensor = |(name, array): (&str, &Array)| {
                Ok((name.to_owned(), Tensor::from_slice(array.values(), array.shape(), &self.device)?))
            };
            tensors.map(tensor).collect()
        };
        let anchors = moved(correction.anchor.as_ref().map(|(_, anchor)| anchor))?;
        self.shifts = moved(correction.shift.as_ref())?;
        self.anchors = anchors;
        self.pull = correction.anchor.as_ref().map_or(0.0, |(pull, _)| *pull);
        Ok(())
    }

    /// A copy of all parameters in host memory.
    pub(crate) fn read(&self) -> Result<ParamSet> {
        let copy = |(name, variable): (&String, &Var)| Ok((name.clone(), to_host(variable)?));
        self.variables.iter().map(copy).collect()
    }

    /// Runs a batch of samples `x`, of the shape `[n, ...]`, through all parts.
    pub(crate) fn forward(
        &mut self,
        x: &[f32],
        shape: &[usize],
        mode: Mode,
    ) -> std::result::Result<(), ModelError> {
        let mut tensor = Tensor::from_slice(x, shape, &self.device)
            .map_err(ModelError::candle("moving samples to the device"))?;
        let mut outputs = Vec::with_capacity(3);
        for part in &self.parts {
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

    /// What the extractor, the projection and the head gave for the last batch.
    pub(crate) fn outputs(&self) -> [&[f32]; 3] {
        self.host.each_ref().map(Vec::as_slice)
    }

    /// Takes the gradients by the three outputs of the last batch back to the parameters.
    pub(crate) fn backward(&mut self, gradients: OutputGradients<'_>) -> Result<()> {
        self.gradients.clear();
        let Some(outputs) = &self.outputs else {
            return Ok(());
        };
        let mut total: Option<Tensor> = None;
        let by_output = [gradients.features, gradients.representation, gradients.logits];
        for (output, gradient) in outputs.iter().zip(by_output) {
            if let Some(gradient) = gradient {
                let gradient = Tensor::from_slice(gradient, output.dims(), &self.device)?;
                let product = (output * gradient)?.sum_all()?;
                total = Some(match total {
                    Some(total) => (total + product)?,
                    None => product,
                });
            }
        }
        if let Some(total) = total {
            let store = total.backward()?;
            for (name, variable) in &self.variables {
                if let Some(gradient) = store.get(variable) {
                    self.gradients.insert(name.clone(), gradient.clone());
                }
            }
        }
        Ok(())
    }

    /// The gradients of the last backward pass, by name.
    pub(crate) fn gradients(&self) -> Result<ParamSet> {
        let gradient = |(name, variable): (&String, &Var)| {
            let array = match self.gradients.get(name) {
                Some(gradient) => to_host(gradient)?,
                None => Array::zeros(variable.dims()),
            };
            Ok((name.clone(), array))
        };
        self.variables.iter().map(gradient).collect()
    }

    /// A copy of a parameter in host memory; `None` if there is no such parameter.
    pub(crate) fn parameter(&self, name: &str) -> Result<Option<Array>> {
        self.variables.get(name).map(|variable| to_host(variable)).transpose()
    }

    /// Adds to the gradient of a parameter. `None` if there is no such parameter.
    pub(crate) fn add_gradient(&mut self, name: &str, gradient: &[f32]) -> Result<Option<()>> {
        let Some(variable) = self.variables.get(name) else { return Ok(None) };
        let given = Tensor::from_slice(gradient, variable.dims(), &self.device)?;
        let sum = match self.gradients.remove(name) {
            Some(gradient) => (gradient + given)?,
            None => given,
        };
        self.gradients.insert(name.to_owned(), sum);
        Ok(Some(()))
    }

    /// One step of the optimiser along the gradients of the last backward pass. If `clip` is given and they are longer, all
    /// together, they are shortened to it first. Nothing of this waits for the device.
    pub(crate) fn descend(&mut self, sgd: &Sgd, clip: Option<f64>) -> Result<()> {
        let gradients = std::mem::take(&mut self.gradients);
        let scale = clip.map(|clip| self.scale(&gradients, clip)).transpose()?;
        for (name, mut gradient) in gradients {
            if let Some(scale) = &scale {
                gradient = gradient.broadcast_mul(scale)?;
            }
            if let Some(anchor) = self.anchors.get(&name) {
                let away = (self.variables[&name].as_detached_tensor() - anchor)?;
                gradient = (gradient + (away * self.pull)?)?;
            }
            if let Some(shift) = self.shifts.get(&name) {
                gradient = (gradient + shift)?;
            }
            self.step(&name, &gradient, sgd)?;
        }
        Ok(())
    }

    /// What brings gradients down to the length `clip`, a scalar on the device: 1 if they are no longer than that.
    fn scale(&self, gradients: &BTreeMap<String, Tensor>, clip: f64) -> Result<Tensor> {
        let mut squares = Tensor::zeros((), DType::F32, &self.device)?;
        for (_, gradient) in gradients.iter().filter(|(name, _)| !self.buffers.contains(*name)) {
            squares = (squares + gradient.sqr()?.sum_all()?)?;
        }
        squares.sqrt()?.maximum(clip)?.recip()? * clip
    }

    /// One step of the optimiser along these gradients, which fit.
    pub(crate) fn descend_along(&mut self, sgd: &Sgd, gradients: &ParamSet) -> Result<()> {
        for (name, array) in gradients {
            let gradient = Tensor::from_slice(array.values(), array.shape(), &self.device)?;
            self.step(name, &gradient, sgd)?;
        }
        Ok(())
    }

    fn step(&mut self, name: &str, gradient: &Tensor, sgd: &Sgd) -> Result<()> {
        if self.buffers.contains(name) {
            return Ok(());
        }
        let variable = &self.variables[name];
        let mut direction = gradient.clone();
        if sgd.decay != 0.0 {
            direction = (direction + (variable.as_detached_tensor() * sgd.decay)?)?;
        }
        if sgd.momentum != 0.0 {
            if let Some(previous) = self.velocity.get(name) {
                direction = ((previous * sgd.momentum)? + direction)?;
            }
            // Nothing writes into this tensor later: every operation above makes a new one.
            self.velocity.insert(name.to_owned(), direction.clone());
        }
        variable.set(&(variable.as_detached_tensor() - (direction * sgd.rate)?)?)
    }
}

/// Copies a tensor to host memory.
fn to_host(tensor: &Tensor) -> Result<Array> {
    let values = tensor.flatten_all()?.to_vec1::<f32>()?;
    Ok(Array::new(tensor.dims(), values).expect("a tensor has as many values as its shape says"))
}
