//! Planning: which layers are quantised, and what is computed with them.

use super::fold::{Norm, fold};
use super::sequence::{Quantised, Sequence};
use crate::architecture::{ArchitectureError, Layer};
use crate::cpu::parameter::Parameter;
use crate::cpu::plan::{Planner as OperatorPlanner, channels, rows};
use crate::kernels::geometry::Geometry;
use crate::kernels::int8::{Convolution, Depthwise, Function, Linear, Lstm, MAX_DEPTH};
use crate::kernels::lstm::LstmWeights;
use crate::kernels::normalisation::EPSILON;
use crate::kernels::rectifier::Rectifier;

/// Creates the layers of the parts of an architecture, in order.
pub(super) struct Planner<'a> {
    /// All parameters, in the order of their names.
    parameters: &'a [Parameter],
    operators: OperatorPlanner<'a>,
    shape: Vec<usize>,
    /// The labels of layers whose parameters are not read any more.
    pub(super) taken: Vec<String>,
    /// The most values of one sample between two layers.
    pub(super) widest: usize,
}

/// The layers of a part or branch that are left to be planned, with their positions.
type Rest<'a> = std::iter::Peekable<std::iter::Enumerate<std::slice::Iter<'a, Layer>>>;

impl<'a> Planner<'a> {
    /// For samples of the shape `input`.
    pub(super) fn new(input: &[usize], parameters: &'a [Parameter]) -> Self {
        let operators = OperatorPlanner::new(input, parameters);
        let widest = input.iter().product();
        Self { parameters, operators, shape: input.to_vec(), taken: Vec::new(), widest }
    }

    /// The next layers of a part. `place` is the part or the branch of a residual block, as in [`Layer::label`].
    pub(super) fn sequence(
        &mut self,
        part: &str,
        place: &str,
        layers: &[Layer],
    ) -> Result<Sequence, ArchitectureError> {
        let mut sequence = Sequence::default();
        let mut rest = layers.iter().enumerate().peekable();
        while let Some((index, layer)) = rest.next() {
            let label = layer.label(part, place, index);
            let produced = layer.output(part, place, &self.shape)?;
            let planned = match self.quantised((part, place), &label, layer, &produced, &mut rest)? {
                None if matches!(layer, Layer::Dropout { .. }) => None,
                None => {
                    let operator = self.operators.layer((part, &label), layer, &self.shape)?;
                    operator.map(Quantised::Operator)
                }
                planned => planned,
            };
            let outputs = produced.iter().product();
            if let Some(layer) = planned {
                sequence.push(layer, outputs);
            }
            self.widest = self.widest.max(outputs);
            self.shape = produced;
        }
        Ok(sequence)
    }

    /// A layer and what follows it; `None` if the operator of training is to be used.
    fn quantised(
        &mut self,
        (part, place): (&str, &str),
        label: &str,
        layer: &Layer,
        produced: &[usize],
        rest: &mut Rest<'_>,
    ) -> Result<Option<Quantised>, ArchitectureError> {
        let before = self.shape.clone();
        Ok(match layer {
            &Layer::Conv { out, kernel, stride, padding, .. } => {
                let geometry = Geometry::of(&before, kernel, stride, padding);
                self.convolution((part, place), label, geometry, (out, 1), rest)
            }
            &Layer::GroupedConv { out, kernel, stride, padding, groups, .. } => {
                let geometry = Geometry::of(&before, kernel, stride, padding);
                self.convolution((part, place), label, geometry, (out, groups), rest)
            }
            &Layer::Linear { out, .. } => {
                let (_, inputs) = rows(&before);
                if inputs > MAX_DEPTH {
                    return Ok(None);
                }
                // The channels of a sequence are its positions.
                let folds = produced.len() == 1;
                let (weight, bias, function) = self.folded((part, place), label, (out, folds), rest);
                Some(Quantised::Linear(Linear::new(&weight, inputs, &bias, function)))
            }
            &Layer::Lstm { hidden, .. } => {
                let (positions, inputs) = rows(&before);
                if inputs.max(hidden) > MAX_DEPTH {
                    return Ok(None);
                }
                let [weight_ih, weight_hh, bias] =
                    ["weight-ih", "weight-hh", "bias"].map(|kind| self.parameter(label, kind));
                let weights = LstmWeights { weight_ih, weight_hh, bias };
                let kernel = Lstm::new(weights, inputs, hidden);
                self.taken.push(label.to_owned());
                Some(Quantised::Lstm { kernel, positions })
            }
            Layer::Residual { body, shortcut } => {
                let body = self.sequence(part, &format!("{label}.body"), body)?;
                self.shape.clone_from(&before);
                let shortcut = self.sequence(part, &format!("{label}.shortcut"), shortcut)?;
                let rectified = rest.next_if(|(_, next)| matches!(next, Layer::Relu)).is_some();
                let rectifier = rectified.then_some(Rectifier::Relu);
                Some(Quantised::Residual { body, shortcut, rectifier })
            }
            Layer::SqueezeExcite { body } => {
                let (channels, pixels) = channels(&before);
                self.shape = vec![channels, 1, 1];
                let body = self.sequence(part, &format!("{label}.body"), body)?;
                Some(Quantised::SqueezeExcite { body, pixels })
            }
            _ => None,
        })
    }

    fn convolution(
        &mut self,
        place: (&str, &str),
        label: &str,
        geometry: Geometry,
        (out, groups): (usize, usize),
        rest: &mut Rest<'_>,
    ) -> Option<Quantised> {
        let of_group = Geometry { channels: geometry.channels / groups, ..geometry };
        if Convolution::depth(of_group) > MAX_DEPTH {
            return None;
        }
        let (weight, bias, function) = self.folded(place, label, (out, true), rest);
        let Geometry { height, width, kernel, padding, .. } = geometry;
        Some(if groups > 1 && groups == geometry.channels && groups == out {
            Quantised::Depthwise(Depthwise::new(geometry, weight, bias, function))
        } else if groups == 1 && padding == 0 && (height, width) == (kernel, kernel) {
            // A single place, which reads the whole image in the order of the weights.
            Quantised::Linear(Linear::new(&weight, geometry.image(), &bias, function))
        } else {
            Quantised::Convolution(Convolution::new(geometry, groups, &weight, &bias, function))
        })
    }

    /// Weights, bias and function of a layer with `out` outputs and what follows it, which is taken from the rest: batch
    /// normalisation if it `folds`, and a function.
    fn folded(
        &mut self,
        (part, place): (&str, &str),
        label: &str,
        (out, folds): (usize, bool),
        rest: &mut Rest<'_>,
    ) -> (Vec<f32>, Vec<f32>, Function) {
        let is_norm = |layer: &Layer| matches!(layer, Layer::BatchNorm { .. } | Layer::BatchNormWith { .. });
        let norm = rest.next_if(|(_, layer)| folds && is_norm(layer));
        let norm = norm.map(|(index, layer)| {
            let epsilon = if let &Layer::BatchNormWith { epsilon, .. } = layer { epsilon } else { EPSILON };
            (layer.label(part, place, index), epsilon)
        });
        let (weight, bias) = (self.parameter(label, "weight"), self.find(label, "bias"));
        let read = |(label, epsilon): &(String, f64)| {
            let [weight, bias, mean, variance] =
                ["weight", "bias", "running-mean", "running-var"].map(|kind| self.parameter(label, kind));
            Norm { weight, bias, mean, variance, epsilon: *epsilon }
        };
        let (weight, bias) = fold(weight, bias, out, norm.as_ref().map(read));
        self.taken.push(label.to_owned());
        self.taken.extend(norm.map(|(label, _)| label));
        let function = match rest.peek() {
            Some((_, Layer::Relu)) => Function::Relu,
            Some((_, Layer::Relu6)) => Function::Relu6,
            Some((_, Layer::HardSigmoid)) => Function::HardSigmoid,
            Some((_, Layer::HardSwish)) => Function::HardSwish,
            _ => Function::Identity,
        };
        if function != Function::Identity {
            rest.next();
        }
        (weight, bias, function)
    }

    fn parameter(&self, label: &str, kind: &str) -> &'a [f32] {
        self.find(label, kind).expect("the parameters were checked against the architecture")
    }

    fn find(&self, label: &str, kind: &str) -> Option<&'a [f32]> {
        let name = format!("{label}.{kind}");
        let index = self.parameters.binary_search_by(|parameter| parameter.name.cmp(&name)).ok()?;
        Some(self.parameters[index].values.values())
    }
}
