//! Shape inference: the input, output and parameters of each layer.

mod layers;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use super::MAX_ELEMENTS;
use super::specs::{Initial, MAX_LAYERS, ParameterKind, ParameterSpec, check_name, check_size, too_large};
use super::{Architecture, ArchitectureError, Initialisation, Layer, MAX_NESTING, OpaqueTensor, Quantity};
use crate::params::element_count;
use crate::task::Task;

/// The results of one walk over the layers.
#[derive(Default)]
struct Inference {
    specs: Vec<ParameterSpec>,
    /// Learned values.
    parameters: usize,
    /// Learned values and those of buffers.
    values: usize,
    multiply_adds: u64,
    /// Values that a training pass of one sample stores: the input and the output of each layer.
    activations: usize,
    layers: usize,
    /// The shape of one sample's features.
    features: Vec<usize>,
    output: Vec<usize>,
    initialisation: Initialisation,
    /// The names used in the current part.
    names: BTreeSet<String>,
}

impl Architecture {
    /// The parameters that are learned, and the buffers that learning moves, in the order of the layers: all but the
    /// [frozen](Architecture::frozen) ones. Succeeds if and only if the architecture is valid.
    ///
    /// # Errors
    /// [`ArchitectureError`] for the first layer that does not fit.
    pub fn parameter_specs(&self) -> Result<Vec<ParameterSpec>, ArchitectureError> {
        let mut specs = self.all_parameter_specs()?;
        specs.retain(|spec| !self.is_frozen(&spec.name));
        Ok(specs)
    }

    /// All parameters of this architecture, in the order of its layers, the frozen ones as well.
    ///
    /// # Errors
    /// As [`Architecture::parameter_specs`].
    pub fn all_parameter_specs(&self) -> Result<Vec<ParameterSpec>, ArchitectureError> {
        self.infer().map(|inference| inference.specs)
    }

    /// The number of parameters, without buffers, the frozen ones as well.
    ///
    /// # Errors
    /// As [`Architecture::parameter_specs`].
    pub fn parameters(&self) -> Result<usize, ArchitectureError> {
        self.infer().map(|inference| inference.parameters)
    }

    /// The multiply-adds of the convolutions, linear layers, LSTMs and attention in one forward pass of one sample.
    ///
    /// # Errors
    /// As [`Architecture::parameter_specs`].
    pub fn multiply_adds(&self) -> Result<u64, ArchitectureError> {
        self.infer().map(|inference| inference.multiply_adds)
    }

    /// The values that a training pass of one sample stores: the sample and the output of each layer. The buffers between layers
    /// take at most four bytes for each value and sample of a batch.
    ///
    /// # Errors
    /// As [`Architecture::parameter_specs`].
    pub fn activations(&self) -> Result<usize, ArchitectureError> {
        self.infer().map(|inference| inference.activations)
    }

    /// The number of predictions for one sample, each of which takes a label: 1, or the number of positions of a sequence.
    ///
    /// # Errors
    /// As [`Architecture::parameter_specs`].
    pub fn predictions(&self) -> Result<usize, ArchitectureError> {
        let output = self.infer()?.output;
        Ok(if let [positions, _] = output[..] { positions } else { 1 })
    }

    /// The shape of one sample's features, the output of the extractor.
    ///
    /// # Errors
    /// As [`Architecture::parameter_specs`].
    pub fn feature_shape(&self) -> Result<Vec<usize>, ArchitectureError> {
        self.infer().map(|inference| inference.features)
    }

    fn infer(&self) -> Result<Inference, ArchitectureError> {
        if let Some(tensors) = &self.tensors {
            return self.of_opaque(tensors);
        }
        if let Task::Regression { huber: Some(delta) } = self.task
            && !(delta.is_finite() && delta > 0.0)
        {
            return Err(ArchitectureError::Huber);
        }
        let mut inference = Inference { initialisation: self.initialisation, ..Inference::default() };
        let mut shape = self.input.clone();
        inference.activations = check_size("input", &shape)?;
        for (part, layers) in self.parts() {
            inference.names.clear();
            shape = inference.layers(part, part, layers, shape, 0)?;
            if part == "extractor" {
                inference.features.clone_from(&shape);
            }
        }
        match shape[..] {
            [_, _] if !self.task.is_classification() => {
                Err(ArchitectureError::Positions { got: shape, task: self.task.name() })
            }
            [classes] | [_, classes] if classes == self.classes => {
                Ok(Inference { output: shape, ..inference })
            }
            _ => Err(ArchitectureError::Output { got: shape, classes: self.classes }),
        }
    }

    /// What is known without layers: the tensors.
    fn of_opaque(&self, tensors: &[OpaqueTensor]) -> Result<Inference, ArchitectureError> {
        let has_layers = self.parts().iter().any(|(_, layers)| !layers.is_empty());
        if has_layers || !self.input.is_empty() || self.classes != 0 {
            return Err(ArchitectureError::LayersAndTensors);
        }
        let specs = Self::opaque_specs(tensors)?;
        let count = |specs: &mut dyn Iterator<Item = &ParameterSpec>| -> usize {
            specs.map(|spec| spec.shape.iter().product::<usize>()).sum()
        };
        let values = count(&mut specs.iter());
        let parameters = count(&mut specs.iter().filter(|spec| spec.kind != ParameterKind::Buffer));
        Ok(Inference { specs, parameters, values, ..Inference::default() })
    }
}

impl Inference {
    /// Adds layers, which are `depth` residual blocks deep in a part, and returns the shape of their output.
    fn layers(
        &mut self,
        part: &str,
        place: &str,
        layers: &[Layer],
        mut shape: Vec<usize>,
        depth: usize,
    ) -> Result<Vec<usize>, ArchitectureError> {
        for (index, layer) in layers.iter().enumerate() {
            let label = layer.label(part, place, index);
            self.layers += 1;
            if self.layers > MAX_LAYERS {
                let problem = "it is one more than the 600 layers that a network may have";
                return Err(ArchitectureError::Layer { layer: label, problem });
            }
            if let Some(name) = layer.name() {
                check_name(&label, name)?;
                if !self.names.insert(name.to_owned()) {
                    let problem = "another layer of the same part has this name";
                    return Err(ArchitectureError::Layer { layer: label, problem });
                }
            }
            shape = match layer {
                Layer::Residual { body, shortcut } => {
                    self.residual(part, &label, [body, shortcut], shape, depth)?
                }
                Layer::SqueezeExcite { body } => self.squeeze_excite(part, &label, body, shape, depth)?,
                layer => self.layer(layer, &label, &shape)?,
            };
            // Both summands are limited, so that the sum does not overflow.
            self.activations += check_size(&label, &shape)?;
            if self.activations > MAX_ELEMENTS {
                return Err(too_large(&label, Quantity::Activations, Some(self.activations)));
            }
        }
        Ok(shape)
    }

    fn residual(
        &mut self,
        part: &str,
        label: &str,
        [body, shortcut]: [&[Layer]; 2],
        shape: Vec<usize>,
        depth: usize,
    ) -> Result<Vec<usize>, ArchitectureError> {
        check_depth(label, depth)?;
        let body = self.layers(part, &format!("{label}.body"), body, shape.clone(), depth + 1)?;
        let shortcut = self.layers(part, &format!("{label}.shortcut"), shortcut, shape, depth + 1)?;
        if body != shortcut {
            return Err(ArchitectureError::Residual { layer: label.to_owned(), body, shortcut });
        }
        Ok(body)
    }

    fn squeeze_excite(
        &mut self,
        part: &str,
        label: &str,
        body: &[Layer],
        shape: Vec<usize>,
        depth: usize,
    ) -> Result<Vec<usize>, ArchitectureError> {
        check_depth(label, depth)?;
        let &[channels, _, _] = shape.as_slice() else {
            let needs = "[channels, height, width]".to_owned();
            return Err(ArchitectureError::Input { layer: label.to_owned(), needs, got: shape });
        };
        let body = self.layers(part, &format!("{label}.body"), body, vec![channels, 1, 1], depth + 1)?;
        if body != [channels] && body != [channels, 1, 1] {
            return Err(ArchitectureError::SqueezeExcite { layer: label.to_owned(), channels, body });
        }
        Ok(shape)
    }

    /// Declares the weight, `[outputs, inputs, ...]`, and the bias of a layer. Returns the number of weights.
    fn affine(&mut self, label: &str, weight: &[usize], bias: bool) -> Result<usize, ArchitectureError> {
        let weights = element_count(weight).ok_or_else(|| too_large(label, Quantity::Parameters, None))?;
        let fans @ (fan, _) = (weights / weight[0], weights / weight[1]);
        let (weights_from, biases_from) = match self.initialisation {
            Initialisation::Uniform => (Initial::Uniform { fan }, Initial::Uniform { fan }),
            Initialisation::He => (Initial::He { fan }, Initial::Zero),
        };
        self.declare(label, "weight", weight, fans, ParameterKind::Weight, weights_from)?;
        if bias {
            self.declare(label, "bias", &weight[..1], fans, ParameterKind::Bias, biases_from)?;
        }
        Ok(weights)
    }

    /// Declares one tensor. Returns the number of its values.
    fn declare(
        &mut self,
        label: &str,
        suffix: &str,
        shape: &[usize],
        (fan_in, fan_out): (usize, usize),
        kind: ParameterKind,
        initial: Initial,
    ) -> Result<usize, ArchitectureError> {
        let count = element_count(shape);
        let sum = count.and_then(|count| self.values.checked_add(count));
        let (Some(count), Some(sum @ ..=MAX_ELEMENTS)) = (count, sum) else {
            return Err(too_large(label, Quantity::Parameters, sum));
        };
        self.values = sum;
        if kind != ParameterKind::Buffer {
            self.parameters += count;
        }
        let (name, shape) = (format!("{label}.{suffix}"), shape.to_vec());
        self.specs.push(ParameterSpec { name, shape, fan_in, fan_out, kind, initial });
        Ok(count)
    }

    /// Adds the multiply-adds of `weights` weights that are applied `applications` times.
    fn multiply(&mut self, applications: u64, weights: usize) {
        self.multiply_adds = self.multiply_adds.saturating_add(applications.saturating_mul(weights as u64));
    }
}

/// Refuses a block that is `depth` blocks deep if that is too deep.
fn check_depth(label: &str, depth: usize) -> Result<(), ArchitectureError> {
    if depth < MAX_NESTING {
        return Ok(());
    }
    let problem = "blocks are nested more than 8 deep";
    Err(ArchitectureError::Layer { layer: label.to_owned(), problem })
}

impl Layer {
    /// The shape of this layer's output for an input of the shape `got`. `place` is the part or the branch that it is in.
    ///
    /// # Errors
    /// [`ArchitectureError`] if the layer does not fit its input.
    pub fn output(&self, part: &str, place: &str, got: &[usize]) -> Result<Vec<usize>, ArchitectureError> {
        Inference::default().layers(part, place, std::slice::from_ref(self), got.to_vec(), 0)
    }
}
