//! A graph of ONNX while it is made: operators in their order, and constants.
//!
//! Numbers of fields are those of `onnx.proto3`.

use std::collections::BTreeSet;

use crate::protobuf::Message;

/// An attribute of an operator.
#[derive(Clone, Debug)]
pub(super) enum Attribute {
    Int(i64),
    Ints(Vec<i64>),
    Float(f32),
}

/// Kinds of elements (`TensorProto.DataType`).
const FLOAT: i64 = 1;
const INT64: i64 = 7;

/// Operators and constants.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: Message,
    constants: Message,
    /// Names of values that are taken.
    taken: BTreeSet<String>,
}

impl Graph {
    /// An operator with one output, whose name begins with `at`.
    pub(super) fn node(
        &mut self,
        at: &str,
        operator: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute)],
    ) -> String {
        self.node_of(at, operator, inputs, attributes, 1).swap_remove(0)
    }

    /// An operator with several outputs.
    pub(super) fn node_of(
        &mut self,
        at: &str,
        operator: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute)],
        outputs: usize,
    ) -> Vec<String> {
        let stem = format!("{at}/{operator}");
        let outputs: Vec<String> = (0..outputs).map(|_| self.free(&stem)).collect();
        self.add(operator, inputs, attributes, &outputs);
        outputs
    }

    /// An operator whose output has this name, which no other value has.
    pub(super) fn output(
        &mut self,
        name: &str,
        operator: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute)],
    ) {
        self.add(operator, inputs, attributes, &[name.to_owned()]);
    }

    fn add(&mut self, operator: &str, inputs: &[&str], attributes: &[(&str, Attribute)], outputs: &[String]) {
        let mut node = inputs.iter().fold(Message::new(), |node, input| node.text(1, input));
        node = outputs.iter().fold(node, |node, output| node.text(2, output));
        node = node.text(3, &outputs[0]).text(4, operator);
        for (name, attribute) in attributes {
            let message = Message::new().text(1, name);
            let message = match attribute {
                Attribute::Float(value) => message.float(2, *value).integer(20, 1),
                Attribute::Int(value) => message.integer(3, *value).integer(20, 2),
                Attribute::Ints(values) => {
                    values.iter().fold(message, |message, value| message.integer(8, *value)).integer(20, 7)
                }
            };
            node = node.message(5, &message);
        }
        self.nodes.add(1, &node);
    }

    /// A constant of numbers; an empty shape is that of a single one.
    pub(super) fn floats(&mut self, name: &str, shape: &[usize], values: &[f32]) -> String {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(name, shape, FLOAT, &bytes)
    }

    /// A number.
    pub(super) fn float(&mut self, at: &str, value: f64) -> String {
        self.floats(&format!("{at}/number"), &[], &[value as f32])
    }

    /// A constant list of integers.
    pub(super) fn integers(&mut self, at: &str, values: &[i64]) -> String {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(&format!("{at}/integers"), &[values.len()], INT64, &bytes)
    }

    /// One integer, without an axis.
    pub(super) fn integer(&mut self, at: &str, value: i64) -> String {
        self.constant(&format!("{at}/integer"), &[], INT64, &value.to_le_bytes())
    }

    fn constant(&mut self, name: &str, shape: &[usize], kind: i64, bytes: &[u8]) -> String {
        let name = self.free(name);
        let tensor = shape.iter().fold(Message::new(), |tensor, &side| tensor.integer(1, side as i64));
        self.constants.add(5, &tensor.integer(2, kind).text(8, &name).bytes(9, bytes));
        name
    }

    /// A name that no value has yet.
    fn free(&mut self, stem: &str) -> String {
        let numbered = (2..).map(|number| format!("{stem}_{number}"));
        let mut names = std::iter::once(stem.to_owned()).chain(numbered);
        names.find(|name| self.taken.insert(name.clone())).expect("there are more numbers than names")
    }

    /// The parts of the graph's message: operators and constants.
    pub(super) fn parts(&self) -> [&[u8]; 2] {
        [self.nodes.as_bytes(), self.constants.as_bytes()]
    }
}

/// The declaration of an input or an output: the batch is of any size.
pub(super) fn declared(name: &str, is_integer: bool, sample: &[usize], about: &str) -> Message {
    let mut shape = Message::new().message(1, &Message::new().text(2, "n"));
    for &side in sample {
        shape = shape.message(1, &Message::new().integer(1, side as i64));
    }
    let kind = if is_integer { INT64 } else { FLOAT };
    let tensor = Message::new().integer(1, kind).message(2, &shape);
    Message::new().text(1, name).message(2, &Message::new().message(1, &tensor)).text(3, about)
}

/// Samples of this shape, any number of them.
pub(super) fn reshaped(graph: &mut Graph, at: &str, x: &str, sample: &[usize]) -> String {
    let shape: Vec<i64> = [-1].into_iter().chain(sample.iter().map(|&side| side as i64)).collect();
    let shape = graph.integers(at, &shape);
    graph.node(at, "Reshape", &[x, &shape], &[])
}

/// With its axes in another order.
pub(super) fn transposed(graph: &mut Graph, at: &str, x: &str, axes: &[i64]) -> String {
    graph.node(at, "Transpose", &[x], &[("perm", Attribute::Ints(axes.to_vec()))])
}
