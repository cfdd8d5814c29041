//! From an architecture to operators.

use super::convolution::Convolution;
use super::linear::Linear;
use super::operator::Operator;
use super::pooling::MaxPooling;
use super::rectifier::Rectifier;
use super::sequence::Sequence;
use crate::architecture::{Architecture, ArchitectureError, Layer};
use crate::kernels::im2col::Geometry;
use crate::kernels::pooling::{MaxPool, Windows};

/// Makes the operators of one part after the other.
pub(super) struct Planner<'a> {
    /// The names of all parameters, in the order of their indices.
    names: &'a [String],
    shape: Vec<usize>,
}

impl<'a> Planner<'a> {
    pub(super) fn new(architecture: &Architecture, names: &'a [String]) -> Self {
        Self { names, shape: architecture.input.clone() }
    }

    /// The operators of the next part. A rectifier is merged into the layer before it where that has one for free.
    pub(super) fn part(&mut self, part: &str, layers: &[Layer]) -> Result<Sequence, ArchitectureError> {
        let mut sequence = Sequence::new(self.shape.iter().product());
        let mut layers = layers.iter().enumerate().peekable();
        while let Some((index, layer)) = layers.next() {
            let label = layer.label(part, index);
            let mut rectified = || layers.next_if(|(_, next)| matches!(next, Layer::Relu)).is_some();
            let produced = layer.output(&label, &self.shape)?;
            let outputs = produced.iter().product();
            let operator: Box<dyn Operator> = match *layer {
                Layer::Conv { out, kernel, stride, padding, .. } => {
                    let geometry = Geometry::of(&self.shape, kernel, stride, padding);
                    let (weight, bias) = self.weight_and_bias(&label);
                    Box::new(Convolution::new(geometry, out, weight, bias, rectified()))
                }
                Layer::Linear { out, .. } => {
                    let inputs = self.shape.last().copied().unwrap_or(1);
                    let rows = self.shape.iter().product::<usize>() / inputs.max(1);
                    let (weight, bias) = self.weight_and_bias(&label);
                    let rectified = rectified();
                    Box::new(Linear { weight, bias, inputs, outputs: out, rows, rectified })
                }
                Layer::Relu => Box::new(Rectifier),
                Layer::MaxPool { size, stride } => {
                    let windows = windows(&self.shape, size, stride);
                    let kernel = MaxPool::new(windows, rectified());
                    Box::new(MaxPooling(
                        kernel.expect("the architecture was checked: no window is that large"),
                    ))
                }
                Layer::Flatten => {
                    self.shape = produced;
                    continue;
                }
            };
            let learns = matches!(layer, Layer::Conv { .. } | Layer::Linear { .. });
            sequence.push(operator, outputs, learns);
            self.shape = produced;
        }
        Ok(sequence)
    }

    fn weight_and_bias(&self, label: &str) -> (usize, Option<usize>) {
        let weight =
            self.index(label, "weight").expect("the parameters were checked against the architecture");
        (weight, self.index(label, "bias"))
    }

    fn index(&self, label: &str, kind: &str) -> Option<usize> {
        self.names.binary_search(&format!("{label}.{kind}")).ok()
    }
}

fn windows(shape: &[usize], size: usize, stride: usize) -> Windows {
    let &[channels, height, width] = shape else {
        panic!("the architecture was checked: images have three dimensions");
    };
    Windows { channels, height, width, size, stride }
}
