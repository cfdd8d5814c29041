//! Planning: the operators of an architecture.

use super::activation::Relu;
use super::convolution::{Algorithm, Convolution};
use super::dropout::Dropout;
use super::embedding::Embedding;
use super::linear::Linear;
use super::lstm::Lstm;
use super::normalisation::{BatchNorm, GroupNorm, LayerNorm, SimplexEtf};
use super::operator::Operator;
use super::padding::ZeroPad;
use super::parameter::Parameter;
use super::pooling::GlobalAveragePool;
use super::positions::{
    ClassToken, FirstPosition, MeanPositions, Positions, SinusoidalPositions, ToSequence,
};
use super::residual::Residual;
use super::sequence::Sequence;
use super::squeeze_excite::SqueezeExcite;
use crate::architecture::{ArchitectureError, Layer};
use crate::kernels::attention::Attention;
use crate::kernels::elementwise::Activation;
use crate::kernels::geometry::Geometry;
use crate::kernels::normalisation::LocalResponseNorm;
use crate::kernels::pooling::{AveragePool, MaxPool, Windows};
use crate::kernels::rectifier::Rectifier;
use crate::kernels::waves::waves;
use crate::kernels::workspace::Workspace;
use crate::kernels::{lstm, normalisation};

/// An operator and whether it learns: whether it has parameters, which may be frozen unless it is a block.
type Planned = (Box<dyn Operator>, bool);

/// Creates the operators of the parts of an architecture, in order.
pub(crate) struct Planner<'a> {
    /// All parameters, in the order of their names.
    parameters: &'a [Parameter],
    shape: Vec<usize>,
    workspace: Workspace,
}

impl<'a> Planner<'a> {
    /// For samples of the shape `input`.
    pub(crate) fn new(input: &[usize], parameters: &'a [Parameter]) -> Self {
        Self { parameters, shape: input.to_vec(), workspace: Workspace::default() }
    }

    /// The operators of the next layers of a part. `place` is the part or the branch of a residual block, as in
    /// [`Layer::label`].
    pub(super) fn sequence(
        &mut self,
        part: &str,
        place: &str,
        layers: &[Layer],
    ) -> Result<Sequence, ArchitectureError> {
        let mut sequence = Sequence::new(self.shape.iter().product());
        for Merged { index, layer, rectifier } in merged(layers) {
            let label = layer.label(part, place, index);
            let produced = layer.output(part, place, &self.shape)?;
            if let Some((operator, learns)) = self.operator(part, &label, layer, rectifier)? {
                let is_block = matches!(layer, Layer::Residual { .. } | Layer::SqueezeExcite { .. });
                let learns = learns && (is_block || self.is_learned(&label));
                sequence.push(operator, produced.iter().product(), learns);
            }
            self.shape = produced;
        }
        Ok(sequence)
    }

    /// The operator of one layer alone, for samples of this shape; `None` for a layer that only changes the shape.
    ///
    /// # Errors
    /// Those of the architecture, which has been checked.
    pub(crate) fn layer(
        &mut self,
        (part, label): (&str, &str),
        layer: &Layer,
        shape: &[usize],
    ) -> Result<Option<Box<dyn Operator>>, ArchitectureError> {
        self.shape = shape.to_vec();
        Ok(self.operator(part, label, layer, None)?.map(|(operator, _)| operator))
    }

    /// The operator of a layer and whether it has parameters; `None` for a layer that only changes the shape. It applies
    /// the rectifier itself.
    fn operator(
        &mut self,
        part: &str,
        label: &str,
        layer: &Layer,
        rectifier: Option<Rectifier>,
    ) -> Result<Option<Planned>, ArchitectureError> {
        let shape = self.shape.as_slice();
        let rectified = rectifier.is_some();
        let operator: Planned = match layer {
            &Layer::Conv { out, kernel, stride, padding, .. } => {
                let geometry = Geometry::of(shape, kernel, stride, padding);
                let parameters = self.weight_and_bias(label);
                let algorithm = Algorithm::new(geometry, (out, 1), &self.workspace);
                (Box::new(Convolution::new(algorithm, geometry, parameters, rectified)), true)
            }
            &Layer::GroupedConv { out, kernel, stride, padding, groups, .. } => {
                let geometry = Geometry::of(shape, kernel, stride, padding);
                let parameters = self.weight_and_bias(label);
                let algorithm = Algorithm::new(geometry, (out, groups), &self.workspace);
                (Box::new(Convolution::new(algorithm, geometry, parameters, rectified)), true)
            }
            &Layer::Linear { out, .. } => {
                let (rows, inputs) = rows(shape);
                let (weight, bias) = self.weight_and_bias(label);
                (Box::new(Linear { weight, bias, inputs, outputs: out, rows, rectified }), true)
            }
            Layer::Relu => (Box::new(Relu), false),
            Layer::Relu6 => (Box::new(Activation::Relu6), false),
            Layer::HardSigmoid => (Box::new(Activation::HardSigmoid), false),
            Layer::HardSwish => (Box::new(Activation::HardSwish), false),
            Layer::Sigmoid => (Box::new(Activation::Sigmoid), false),
            Layer::Silu => (Box::new(Activation::Silu), false),
            Layer::Gelu => (Box::new(Activation::Gelu), false),
            &Layer::MaxPool { size, stride, partial } => {
                let windows = Windows { partial, ..windows(shape, size, stride) };
                let kernel = MaxPool::new(windows, rectified);
                let kernel = kernel.expect("the architecture was checked: no window is that large");
                (Box::new(kernel), false)
            }
            &Layer::AvgPool { size, stride } => {
                (Box::new(AveragePool::new(windows(shape, size, stride))), false)
            }
            Layer::GlobalAvgPool => {
                (Box::new(GlobalAveragePool { pixels: shape[1..].iter().product() }), false)
            }
            Layer::Flatten => return Ok(None),
            Layer::Residual { body, shortcut } => {
                let before = self.shape.clone();
                let body = self.sequence(part, &format!("{label}.body"), body)?;
                self.shape = before;
                let shortcut = self.sequence(part, &format!("{label}.shortcut"), shortcut)?;
                let learns = body.learns() || shortcut.learns();
                (Box::new(Residual { body, shortcut, rectifier }), learns)
            }
            Layer::SqueezeExcite { body } => {
                let before = self.shape.clone();
                let (channels, pixels) = channels(&before);
                self.shape = vec![channels, 1, 1];
                let body = self.sequence(part, &format!("{label}.body"), body)?;
                self.shape = before;
                let learns = body.learns();
                (Box::new(SqueezeExcite::new(body, pixels)), learns)
            }
            &Layer::ZeroPad { pixels } => {
                let &[channels, height, width] = shape else {
                    panic!("the architecture was checked: images have three dimensions");
                };
                (Box::new(ZeroPad { channels, height, width, pixels }), false)
            }
            &Layer::Dropout { rate } => (Box::new(Dropout::new(label, rate)), false),
            Layer::BatchNorm { .. }
            | Layer::BatchNormWith { .. }
            | Layer::GroupNorm { .. }
            | Layer::LayerNorm { .. }
            | Layer::SimplexEtf { .. }
            | Layer::LocalResponseNorm { .. } => self.normalisation(label, layer, rectifier),
            Layer::Embedding { .. }
            | Layer::Lstm { .. }
            | Layer::ToSequence
            | Layer::ClassToken { .. }
            | Layer::Positions { .. }
            | Layer::SinusoidalPositions
            | Layer::Attention { .. }
            | Layer::FirstPosition
            | Layer::MeanPositions => self.of_sequences(label, layer),
        };
        Ok(Some(operator))
    }

    /// The operator of a normalisation.
    fn normalisation(&self, label: &str, layer: &Layer, rectifier: Option<Rectifier>) -> Planned {
        let shape = self.shape.as_slice();
        match layer {
            Layer::BatchNorm { .. } | Layer::BatchNormWith { .. } => {
                let (channels, pixels) = channels(shape);
                let [weight, bias] = ["weight", "bias"].map(|kind| self.parameter(label, kind));
                let [running_mean, running_var] =
                    ["running-mean", "running-var"].map(|kind| self.parameter(label, kind));
                let mut kernel = normalisation::BatchNorm::new(channels, pixels).rectified(rectifier);
                if let &Layer::BatchNormWith { epsilon, momentum, .. } = layer {
                    kernel = kernel.with(epsilon, momentum);
                }
                let label = label.to_owned();
                (Box::new(BatchNorm { label, weight, bias, running_mean, running_var, kernel }), true)
            }
            &Layer::GroupNorm { groups, .. } => {
                let (channels, pixels) = channels(shape);
                let [weight, bias] = ["weight", "bias"].map(|kind| self.parameter(label, kind));
                let kernel = normalisation::GroupNorm::new(channels, pixels, groups).rectified(rectifier);
                (Box::new(GroupNorm { weight, bias, kernel }), true)
            }
            &Layer::LocalResponseNorm { size, alpha, beta, k } => {
                let (channels, pixels) = channels(shape);
                let settings = normalisation::LocalResponse {
                    size,
                    alpha: alpha as f32,
                    beta: beta as f32,
                    k: k as f32,
                };
                (Box::new(LocalResponseNorm::new(channels, pixels, settings)), false)
            }
            &Layer::LayerNorm { epsilon, .. } => {
                let (_, features) = rows(shape);
                let [weight, bias] = ["weight", "bias"].map(|kind| self.parameter(label, kind));
                let kernel = normalisation::LayerNorm::new(features, epsilon);
                (Box::new(LayerNorm { weight, bias, kernel }), true)
            }
            Layer::SimplexEtf { .. } => {
                let (_, classes) = rows(shape);
                let weight = self.parameter(label, "weight");
                (Box::new(SimplexEtf { weight, kernel: normalisation::SimplexEtf::new(classes) }), true)
            }
            other => unreachable!("{other:?} is no normalisation"),
        }
    }

    /// The operator of a layer that takes or gives a sequence alone.
    fn of_sequences(&self, label: &str, layer: &Layer) -> Planned {
        let shape = self.shape.as_slice();
        match layer {
            Layer::ToSequence => {
                let (channels, pixels) = channels(shape);
                (Box::new(ToSequence { channels, pixels }), false)
            }
            Layer::ClassToken { .. } => {
                let (positions, features) = rows(shape);
                let weight = self.parameter(label, "weight");
                (Box::new(ClassToken { weight, positions, features }), true)
            }
            Layer::Positions { .. } => {
                (Box::new(Positions { weight: self.parameter(label, "weight") }), true)
            }
            Layer::SinusoidalPositions => {
                let (positions, features) = rows(shape);
                (Box::new(SinusoidalPositions { table: waves(positions, features) }), false)
            }
            &Layer::Attention { heads, causal } => {
                let (positions, features) = rows(shape);
                (Box::new(Attention::new(positions, features / 3, heads, causal)), false)
            }
            Layer::FirstPosition => {
                let (positions, features) = rows(shape);
                (Box::new(FirstPosition { positions, features }), false)
            }
            Layer::MeanPositions => {
                let (positions, features) = rows(shape);
                (Box::new(MeanPositions { positions, features }), false)
            }
            &Layer::Embedding { vocabulary, dim, .. } => {
                let weight = self.parameter(label, "weight");
                (Box::new(Embedding { weight, vocabulary, dim, tokens: Vec::new() }), true)
            }
            &Layer::Lstm { hidden, .. } => {
                let (positions, inputs) = rows(shape);
                let parameters = ["weight-ih", "weight-hh", "bias"].map(|kind| self.parameter(label, kind));
                (Box::new(Lstm { parameters, positions, kernel: lstm::Lstm::new(inputs, hidden) }), true)
            }
            other => unreachable!("{other:?} is no layer of sequences"),
        }
    }

    fn weight_and_bias(&self, label: &str) -> (usize, Option<usize>) {
        (self.parameter(label, "weight"), self.index(label, "bias"))
    }

    fn parameter(&self, label: &str, kind: &str) -> usize {
        self.index(label, kind).expect("the parameters were checked against the architecture")
    }

    fn index(&self, label: &str, kind: &str) -> Option<usize> {
        let name = format!("{label}.{kind}");
        self.parameters.binary_search_by(|parameter| parameter.name.cmp(&name)).ok()
    }

    /// Whether the optimiser changes any parameter of this layer.
    fn is_learned(&self, label: &str) -> bool {
        let of_layer = |name: &str| name.strip_prefix(label).is_some_and(|rest| rest.starts_with('.'));
        self.parameters.iter().any(|parameter| parameter.is_learned() && of_layer(&parameter.name))
    }
}

/// A layer that becomes an operator.
pub(super) struct Merged<'a> {
    /// Its position among the layers.
    pub(super) index: usize,
    pub(super) layer: &'a Layer,
    /// The rectifier that follows, if the operator applies it itself.
    pub(super) rectifier: Option<Rectifier>,
}

/// The layers that become operators.
pub(super) fn merged(layers: &[Layer]) -> Vec<Merged<'_>> {
    let mut layers = pool_first(layers).into_iter().peekable();
    let mut merged = Vec::new();
    while let Some((index, layer)) = layers.next() {
        let rectifier = layers.peek().and_then(|(_, next)| merging(layer, next));
        if rectifier.is_some() {
            layers.next();
        }
        merged.push(Merged { index, layer, rectifier });
    }
    merged
}

/// The rectifier that the second layer is, if the operator of the first applies it.
fn merging(layer: &Layer, next: &Layer) -> Option<Rectifier> {
    match (layer, next) {
        (
            Layer::Conv { .. }
            | Layer::GroupedConv { .. }
            | Layer::Linear { .. }
            | Layer::MaxPool { .. }
            | Layer::BatchNorm { .. }
            | Layer::BatchNormWith { .. }
            | Layer::GroupNorm { .. }
            | Layer::Residual { .. },
            Layer::Relu,
        ) => Some(Rectifier::Relu),
        (
            Layer::BatchNorm { .. }
            | Layer::BatchNormWith { .. }
            | Layer::GroupNorm { .. }
            | Layer::Residual { .. },
            Layer::Relu6,
        ) => Some(Rectifier::Relu6),
        _ => None,
    }
}

/// The layers with their positions, where max pooling moves in front of a rectifier before it. The results are the same,
/// because the rectifier is monotonic, and it has fewer values to process.
fn pool_first(layers: &[Layer]) -> Vec<(usize, &Layer)> {
    let mut layers: Vec<_> = layers.iter().enumerate().collect();
    for second in 1..layers.len() {
        if matches!((layers[second - 1].1, layers[second].1), (Layer::Relu, Layer::MaxPool { .. })) {
            layers.swap(second - 1, second);
        }
    }
    layers
}

/// Rows of one sample and values of a row.
pub(crate) fn rows(shape: &[usize]) -> (usize, usize) {
    let values = shape.last().copied().unwrap_or(1);
    (shape.iter().product::<usize>() / values.max(1), values)
}

/// Channels of one sample and pixels of a channel.
pub(crate) fn channels(shape: &[usize]) -> (usize, usize) {
    (shape[0], shape[1..].iter().product())
}

fn windows(shape: &[usize], size: usize, stride: usize) -> Windows {
    let &[channels, height, width] = shape else {
        panic!("the architecture was checked: images have three dimensions");
    };
    Windows { channels, height, width, size, stride, partial: false }
}
