//! Sequences of layers.

use super::operator::{Backward, Forward, Operator, PassContext};
use super::parameter::Parameter;
use crate::error::ModelError;
use crate::mode::Mode;

/// Layers applied one after the other, with the buffers between them.
pub(crate) struct Sequence {
    nodes: Vec<Node>,
    /// Input values of one sample.
    inputs: usize,
}

struct Node {
    operator: Box<dyn Operator>,
    /// Output values of one sample.
    outputs: usize,
    /// Whether this layer or one before it, within the sequence, has parameters.
    learns: bool,
    y: Vec<f32>,
}

impl Sequence {
    /// An empty sequence, whose output is its input: `inputs` values for each sample.
    pub(crate) fn new(inputs: usize) -> Self {
        Self { nodes: Vec::new(), inputs }
    }

    /// Adds a layer with `outputs` values for each sample; `learns` if it has parameters.
    pub(crate) fn push(&mut self, operator: Box<dyn Operator>, outputs: usize, learns: bool) {
        let learns = learns || self.learns();
        self.nodes.push(Node { operator, outputs, learns, y: Vec::new() });
    }

    /// Output values of one sample.
    pub(crate) fn outputs(&self) -> usize {
        self.nodes.last().map_or(self.inputs, |node| node.outputs)
    }

    /// Whether any layer has parameters.
    pub(crate) fn learns(&self) -> bool {
        self.nodes.last().is_some_and(|node| node.learns)
    }

    /// Whether it has no layers, so that its output is its input.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Runs `n` samples through all layers; [`Sequence::output`] has the result.
    pub(crate) fn forward(
        &mut self,
        parameters: &mut [Parameter],
        x: &[f32],
        n: usize,
        mode: Mode,
    ) -> Result<(), ModelError> {
        for index in 0..self.nodes.len() {
            let (before, rest) = self.nodes.split_at_mut(index);
            let x = before.last().map_or(x, |node| &node.y);
            let node = &mut rest[0];
            // Only the length matters: the operator overwrites all values.
            node.y.resize(n * node.outputs, 0.0);
            node.operator.forward(parameters, Forward { x, y: &mut node.y, n, mode })?;
        }
        Ok(())
    }

    /// The output of the last forward pass, which was given `x`.
    pub(crate) fn output<'a>(&'a self, x: &'a [f32]) -> &'a [f32] {
        self.nodes.last().map_or(x, |node| &node.y)
    }

    /// Propagates the gradient with respect to the output back to the input, after a forward pass of `x`. If `further`, the
    /// result is the gradient with respect to `x`; otherwise the pass ends at the first layer with parameters, and the result
    /// is a buffer with undefined values.
    pub(crate) fn backward(
        &mut self,
        parameters: &mut [Parameter],
        x: &[f32],
        gradient: Vec<f32>,
        further: bool,
        context: &mut PassContext<'_>,
    ) -> Vec<f32> {
        let Self { nodes, inputs } = self;
        let PassContext { n, update, ref mut free } = *context;
        let mut dy = Gradient { values: gradient, home: None };
        for index in (0..nodes.len()).rev() {
            let (before, rest) = nodes.split_at_mut(index);
            let node = &mut rest[0];
            if !further && !node.learns {
                break;
            }
            let wanted = further || before.last().is_some_and(|node| node.learns);
            let mut dx = match before.last_mut() {
                Some(last) if wanted && !last.operator.reads().output && !node.operator.reads().input => {
                    Gradient { values: std::mem::take(&mut last.y), home: Some(index - 1) }
                }
                _ => Gradient { values: free.pop().unwrap_or_default(), home: None },
            };
            let (x, inputs) = before.last().map_or((x, *inputs), |node| (node.y.as_slice(), node.outputs));
            dx.values.resize(if wanted { n * inputs } else { 0 }, 0.0);
            let pass = Backward {
                x,
                y: &node.y,
                dy: dy.values.as_mut_slice(),
                dx: wanted.then_some(dx.values.as_mut_slice()),
                n,
                update,
                free,
            };
            node.operator.backward(parameters, pass);
            std::mem::replace(&mut dy, dx).release(nodes, free);
        }
        if dy.home.is_none() {
            return dy.values;
        }
        dy.release(nodes, free);
        free.pop().unwrap_or_default()
    }
}

/// A gradient between two layers.
struct Gradient {
    values: Vec<f32>,
    /// The node whose output buffer this is.
    home: Option<usize>,
}

impl Gradient {
    /// Returns the buffer to its owner.
    fn release(self, nodes: &mut [Node], free: &mut Vec<Vec<f32>>) {
        match self.home {
            Some(home) => nodes[home].y = self.values,
            None => free.push(self.values),
        }
    }
}
