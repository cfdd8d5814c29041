//! The memory that a network takes on the CPU, from its layers alone: nothing is allocated to find out.
//!
//! It follows what the operators allocate: the buffers between layers, the scratch memory of the algorithm that each convolution
//! would use, gradients and velocity. What is too small to matter is left out.

use crate::architecture::{Architecture, ArchitectureError, Layer, ParameterSpec};
use crate::optimizer::Optimizer;
use crate::params::element_count;

use super::convolution;
use super::plan::{Merged, merged};
use crate::kernels::attention::Attention;
use crate::kernels::geometry::Geometry;

/// Bytes of a value.
const VALUE: u64 = size_of::<f32>() as u64;

/// What is done with a network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Use {
    /// Its outputs are computed.
    Evaluation,
    /// It learns.
    Training {
        /// The optimiser.
        optimizer: Optimizer,
        /// Whether the gradient is needed as a whole: to clip it, or for the caller.
        whole_gradient: bool,
    },
}

/// Memory of a network, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkMemory {
    /// One copy of all parameters and buffers.
    pub parameters: u64,
    /// Gradients of the parameters, and what the optimiser keeps for them.
    pub optimiser: u64,
    /// The samples of a batch, the outputs of the layers for it, and the gradients that flow between them.
    pub activations: u64,
    /// What convolutions and other layers work in.
    pub scratch: u64,
}

impl NetworkMemory {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        let parts = [self.parameters, self.optimiser, self.activations, self.scratch];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// All but the parameters, which networks that only evaluate share with others.
    #[must_use]
    pub fn working(&self) -> u64 {
        Self { parameters: 0, ..*self }.total()
    }
}

impl Architecture {
    /// An estimate of the memory that this network takes on the CPU for batches of this size.
    ///
    /// # Errors
    /// As [`Architecture::parameter_specs`].
    pub fn memory(&self, batch: usize, what: Use) -> Result<NetworkMemory, ArchitectureError> {
        let values = |shape: &[usize]| element_count(shape).unwrap_or(usize::MAX) as u64;
        let sum_of = |specs: Vec<ParameterSpec>| specs.iter().map(|spec| values(&spec.shape)).sum::<u64>();
        let parameters = sum_of(self.all_parameter_specs()?);
        let learned = sum_of(self.parameter_specs()?);
        let mut sum =
            Sum { batch: batch as u64, learns: matches!(what, Use::Training { .. }), ..Sum::default() };
        let mut shape = self.input.clone();
        for (part, layers) in self.parts() {
            shape = sum.sequence(part, part, layers, shape, 0)?;
        }
        // The caller's batch and the engine's copy of it.
        let samples = sum.batch.saturating_mul(2).saturating_mul(values(&self.input));
        let (mut stored, mut between) = (0, 0);
        if let Use::Training { optimizer, whole_gradient } = what {
            let plain = optimizer.plain_rate().is_some() && !whole_gradient;
            stored += if plain { sum.always_stored.min(learned) } else { learned };
            stored = stored.saturating_add(learned.saturating_mul(optimizer.moments() as u64));
            // A layer reads one gradient and writes another; each residual block around it holds one more, and so does its sum.
            let buffers = 2 + 2 * sum.depth;
            between = sum.batch.saturating_mul(sum.widest).saturating_mul(buffers);
            // One of them takes the gradient of a convolution's weights before it is applied.
            between = between.saturating_add(if plain { sum.widest_weight } else { 0 });
        }
        let outputs = sum.batch.saturating_mul(sum.outputs);
        let scratch = sum.shared.iter().fold(sum.scratch, |sum, &slab| sum.saturating_add(slab));
        let bytes = |values: u64| values.saturating_mul(VALUE);
        Ok(NetworkMemory {
            parameters: bytes(parameters),
            optimiser: bytes(stored),
            activations: bytes(samples.saturating_add(outputs).saturating_add(between)),
            scratch: bytes(scratch),
        })
    }
}

/// The sum over the layers, in values.
#[derive(Default)]
struct Sum {
    batch: u64,
    learns: bool,
    /// Outputs of all layers that have a buffer for them, for one sample.
    outputs: u64,
    /// The most of one layer.
    widest: u64,
    /// Parameters whose gradients are stored even if the optimiser needs none.
    always_stored: u64,
    /// The most weights of one convolution.
    widest_weight: u64,
    scratch: u64,
    /// Scratch memory that convolutions share.
    shared: [u64; 4],
    /// The deepest nesting of residual blocks.
    depth: u64,
}

impl Sum {
    /// Adds the layers of a part or branch, `depth` residual blocks deep, and returns the shape of their output.
    fn sequence(
        &mut self,
        part: &str,
        place: &str,
        layers: &[Layer],
        mut shape: Vec<usize>,
        depth: u64,
    ) -> Result<Vec<usize>, ArchitectureError> {
        self.depth = self.depth.max(depth);
        for Merged { index, layer, .. } in merged(layers) {
            let produced = layer.output(part, place, &shape)?;
            if let Layer::Residual { body, shortcut } = layer {
                let label = layer.label(part, place, index);
                self.sequence(part, &format!("{label}.body"), body, shape.clone(), depth + 1)?;
                self.sequence(part, &format!("{label}.shortcut"), shortcut, shape.clone(), depth + 1)?;
            }
            if let Layer::SqueezeExcite { body } = layer {
                let place = format!("{}.body", layer.label(part, place, index));
                self.sequence(part, &place, body, vec![shape[0], 1, 1], depth + 1)?;
            }
            if !matches!(layer, Layer::Flatten) {
                let width = produced.iter().product::<usize>() as u64;
                self.outputs = self.outputs.saturating_add(width);
                self.widest = self.widest.max(width);
            }
            self.layer(layer, &shape, &produced);
            shape = produced;
        }
        Ok(shape)
    }

    /// Adds what a layer has beside its output.
    fn layer(&mut self, layer: &Layer, shape: &[usize], produced: &[usize]) {
        let inputs = self.batch.saturating_mul(shape.iter().product::<usize>() as u64);
        let outputs = self.batch.saturating_mul(produced.iter().product::<usize>() as u64);
        let in_training = |values: u64| if self.learns { values } else { 0 };
        let own = match *layer {
            Layer::Conv { out, kernel, stride, padding, .. }
            | Layer::GroupedConv { out, kernel, stride, padding, .. } => {
                let groups = if let Layer::GroupedConv { groups, .. } = *layer { groups } else { 1 };
                let geometry = Geometry::of(shape, kernel, stride, padding);
                let (own, shared) = convolution::scratch(geometry, (out, groups), self.batch, self.learns);
                for (most, slab) in self.shared.iter_mut().zip(shared) {
                    *most = (*most).max(slab);
                }
                let weights = (out as u64).saturating_mul((geometry.taps() / groups) as u64);
                self.widest_weight = self.widest_weight.max(weights);
                own
            }
            // One byte for the place of each maximum.
            Layer::MaxPool { .. } => outputs / VALUE,
            Layer::LocalResponseNorm { .. } => inputs.saturating_add(in_training(inputs)),
            Layer::Dropout { .. } => in_training(inputs),
            // The tokens, and in training their places in order.
            Layer::Embedding { .. } => inputs.saturating_add(in_training(inputs.saturating_mul(2))),
            Layer::Lstm { hidden, .. } => {
                let features = shape.last().copied().unwrap_or(0) as u64;
                let recurrent = 4 * (hidden as u64).saturating_mul(hidden as u64);
                let weights = recurrent.saturating_add(4 * (hidden as u64).saturating_mul(features));
                self.always_stored = self.always_stored.saturating_add(weights);
                // Gates, cells and their tangents at every position, and the packed weights of the recurrence.
                outputs.saturating_mul(6).saturating_add(recurrent)
            }
            Layer::Attention { .. } => {
                let (positions, features) = (produced[0], produced[1]);
                let n = usize::try_from(self.batch).unwrap_or(usize::MAX);
                Attention::scratch(positions, features, n)
            }
            Layer::Positions { .. } => {
                let table = shape.iter().product::<usize>() as u64;
                self.always_stored = self.always_stored.saturating_add(table);
                0
            }
            Layer::SinusoidalPositions => shape.iter().product::<usize>() as u64,
            Layer::Linear { .. }
            | Layer::Relu
            | Layer::Relu6
            | Layer::HardSigmoid
            | Layer::HardSwish
            | Layer::Sigmoid
            | Layer::Silu
            | Layer::Gelu
            | Layer::AvgPool { .. }
            | Layer::GlobalAvgPool
            | Layer::Flatten
            | Layer::BatchNorm { .. }
            | Layer::GroupNorm { .. }
            | Layer::LayerNorm { .. }
            | Layer::SimplexEtf { .. }
            | Layer::BatchNormWith { .. }
            | Layer::ZeroPad { .. }
            | Layer::ToSequence
            | Layer::ClassToken { .. }
            | Layer::FirstPosition
            | Layer::MeanPositions
            | Layer::SqueezeExcite { .. }
            | Layer::Residual { .. } => 0,
        };
        self.scratch = self.scratch.saturating_add(own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::AdamSettings;
    use crate::sgd::Sgd;

    const PLAIN: Use = Use::Training {
        optimizer: Optimizer::Sgd(Sgd { rate: 0.1, momentum: 0.0, decay: 0.0 }),
        whole_gradient: false,
    };

    fn memory(name: &str, batch: usize, what: Use) -> NetworkMemory {
        let built_in = crate::BUILT_INS.iter().find(|built_in| built_in.name == name).unwrap();
        Architecture::by_name(name, built_in.input, built_in.classes).unwrap().memory(batch, what).unwrap()
    }

    #[test]
    fn a_linear_model_by_hand() {
        let found = memory("linear", 10, PLAIN);
        assert_eq!(found.parameters, 4 * 7850);
        assert_eq!((found.optimiser, found.scratch), (0, 0));
        // Samples twice, outputs, and two gradients as long.
        assert_eq!(found.activations, 4 * 10 * (2 * 784 + 3 * 10));
        assert_eq!(memory("linear", 10, Use::Evaluation).activations, 4 * 10 * (2 * 784 + 10));
    }

    #[test]
    fn the_optimiser_needs_what_it_stores() {
        let sgd = |momentum, decay| Optimizer::Sgd(Sgd { rate: 0.1, momentum, decay });
        let of = |optimizer: Optimizer, whole_gradient| {
            memory("mlp-2nn", 10, Use::Training { optimizer, whole_gradient }).optimiser
        };
        let model = 4 * 199_210;
        assert_eq!(of(sgd(0.0, 0.0), false), 0);
        assert_eq!(of(sgd(0.0, 0.0), true), model);
        assert_eq!(of(sgd(0.0, 0.1), false), model);
        assert_eq!(of(sgd(0.9, 0.0), false), 2 * model);
        assert_eq!(of(Optimizer::Adam(AdamSettings::with_rate(0.1)), false), 3 * model);
    }

    #[test]
    fn it_grows_with_the_batch_and_never_overflows() {
        for built_in in crate::BUILT_INS {
            let of = |batch, what| memory(built_in.name, batch, what);
            let (one, many) = (of(1, PLAIN), of(64, PLAIN));
            let outputs = |batch| of(batch, Use::Evaluation).activations;
            assert_eq!(outputs(64), 64 * outputs(1), "{}", built_in.name);
            assert!(many.activations > one.activations + outputs(63), "{}: {one:?} {many:?}", built_in.name);
            assert_eq!(one.parameters, many.parameters);
            assert!(of(64, Use::Evaluation).total() < many.total(), "{}", built_in.name);
            assert!(of(usize::MAX, PLAIN).total() > 1 << 60, "{}", built_in.name);
        }
    }
}
