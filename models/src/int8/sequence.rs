//! Sequences of layers that only predict.

use super::buffers::{Buffer, Buffers};
use crate::cpu::operator::{Forward, Operator};
use crate::cpu::parameter::Parameter;
use crate::error::ModelError;
use crate::kernels::channels;
use crate::kernels::int8::{Convolution, Depthwise, Linear, Lstm, Scratch};
use crate::kernels::rectifier::{self, Rectifier};
use crate::mode::Mode;

/// Layers applied one after the other.
#[derive(Default)]
pub(super) struct Sequence {
    nodes: Vec<Node>,
}

struct Node {
    layer: Quantised,
    /// Output values of one sample.
    outputs: usize,
}

/// A layer, and what follows it and is computed with it.
pub(super) enum Quantised {
    Convolution(Convolution),
    Linear(Linear),
    Lstm {
        kernel: Lstm,
        positions: usize,
    },
    Depthwise(Depthwise),
    Residual {
        body: Sequence,
        shortcut: Sequence,
        rectifier: Option<Rectifier>,
    },
    SqueezeExcite {
        body: Sequence,
        pixels: usize,
    },
    /// Everything else: the operator that training has.
    Operator(Box<dyn Operator>),
}

/// What all layers of a pass share.
pub(super) struct Pass<'a> {
    /// The parameters of the operators; those of other layers are empty.
    pub(super) parameters: &'a mut [Parameter],
    pub(super) buffers: &'a mut Buffers,
    /// What convolutions work in.
    pub(super) scratch: &'a mut Vec<Scratch>,
    /// The number of samples.
    pub(super) n: usize,
}

impl Sequence {
    pub(super) fn push(&mut self, layer: Quantised, outputs: usize) {
        self.nodes.push(Node { layer, outputs });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Runs samples through all layers; `None` if there are none, and the output is `x` itself.
    pub(super) fn forward(&mut self, x: &[f32], pass: &mut Pass<'_>) -> Result<Option<Buffer>, ModelError> {
        let mut output: Option<Buffer> = None;
        for Node { layer, outputs } in &mut self.nodes {
            let mut y = pass.buffers.take(pass.n * *outputs);
            layer.forward(output.as_deref().unwrap_or(x), &mut y, pass)?;
            if let Some(before) = output.replace(y) {
                pass.buffers.give_back(before);
            }
        }
        Ok(output)
    }

    /// The bytes of weights and scratch memory, without those of operators.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.nodes.iter().map(|node| node.layer.bytes()).sum()
    }
}

impl Quantised {
    fn forward(&mut self, x: &[f32], y: &mut [f32], pass: &mut Pass<'_>) -> Result<(), ModelError> {
        let n = pass.n;
        match self {
            Self::Convolution(convolution) => convolution.forward(pass.scratch, x, y, n),
            Self::Linear(linear) => linear.forward(x, y),
            Self::Lstm { kernel, positions } => {
                let mut scratch = kernel.scratch(n, *positions).map(|count| pass.buffers.take(count));
                kernel.forward(scratch.each_mut().map(|buffer| &mut **buffer), x, y, n, *positions);
                for buffer in scratch {
                    pass.buffers.give_back(buffer);
                }
            }
            Self::Depthwise(depthwise) => depthwise.forward(x, y, n),
            Self::Residual { body, shortcut, rectifier } => {
                let body = body.forward(x, pass)?;
                let shortcut = shortcut.forward(x, pass)?;
                rectifier::sum(body.as_deref().unwrap_or(x), shortcut.as_deref().unwrap_or(x), y, *rectifier);
                [body, shortcut].into_iter().flatten().for_each(|buffer| pass.buffers.give_back(buffer));
            }
            Self::SqueezeExcite { body, pixels } => {
                let mut means = pass.buffers.take(x.len() / *pixels);
                channels::means(x, &mut means, *pixels);
                let factors = body.forward(&means, pass)?;
                channels::scale(x, factors.as_deref().unwrap_or(&means), y, *pixels);
                [Some(means), factors]
                    .into_iter()
                    .flatten()
                    .for_each(|buffer| pass.buffers.give_back(buffer));
            }
            Self::Operator(operator) => {
                return operator.forward(pass.parameters, Forward { x, y, n, mode: Mode::Evaluation });
            }
        }
        Ok(())
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        match self {
            Self::Convolution(convolution) => convolution.bytes(),
            Self::Linear(linear) => linear.bytes(),
            Self::Lstm { kernel, .. } => kernel.bytes(),
            Self::Depthwise(depthwise) => depthwise.bytes(),
            Self::Residual { body, shortcut, .. } => body.bytes() + shortcut.bytes(),
            Self::SqueezeExcite { body, .. } => body.bytes(),
            Self::Operator(_) => 0,
        }
    }
}
