//! Layers as operators of ONNX.

use models::{Architecture, ArchitectureError, Layer, ParamSet};

use super::graph::Attribute::{Float, Int, Ints};
use super::graph::{Attribute, Graph, reshaped, transposed};
use super::sequences;
use crate::export::weights::usable;

/// The network of one set of parameters, put into a graph.
pub(super) struct Layers<'a> {
    pub(super) graph: &'a mut Graph,
    pub(super) params: &'a ParamSet,
    /// What the names of its values begin with.
    pub(super) prefix: String,
}

/// What an architecture gives, by the name of the value.
pub(super) struct Given {
    /// What the extractor gives.
    pub(super) features: String,
    /// What the head is given.
    pub(super) representation: String,
    pub(super) logits: String,
    /// The shape of the logits of a sample.
    pub(super) output: Vec<usize>,
}

impl Layers<'_> {
    /// The whole network on the value `x`.
    pub(super) fn network(
        &mut self,
        architecture: &Architecture,
        x: &str,
    ) -> Result<Given, ArchitectureError> {
        let mut shape = architecture.input.clone();
        let mut given = vec![x.to_owned()];
        for (part, layers) in architecture.parts() {
            let x = given[given.len() - 1].clone();
            given.push(self.branch(part, part, layers, x, &mut shape)?);
        }
        let [_, features, representation, logits] =
            given.try_into().expect("a network has three parts behind its input");
        Ok(Given { features, representation, logits, output: shape })
    }

    /// The layers of a part, or of a branch at `place` in it. `shape` is that of a sample, before and in the end after them.
    fn branch(
        &mut self,
        part: &str,
        place: &str,
        layers: &[Layer],
        mut x: String,
        shape: &mut Vec<usize>,
    ) -> Result<String, ArchitectureError> {
        for (index, layer) in layers.iter().enumerate() {
            let label = layer.label(part, place, index);
            let output = layer.output(part, place, shape)?;
            let at = format!("{}{label}", self.prefix);
            x = match layer {
                Layer::Residual { body, shortcut } => {
                    let inside = |kind: &str| format!("{label}.{kind}");
                    let through = self.branch(part, &inside("body"), body, x.clone(), &mut shape.clone())?;
                    let beside = self.branch(part, &inside("shortcut"), shortcut, x, &mut shape.clone())?;
                    self.graph.node(&at, "Add", &[&through, &beside], &[])
                }
                Layer::SqueezeExcite { body } => {
                    let axes = [("axes", Ints(vec![2, 3])), ("keepdims", Int(1))];
                    let means = self.graph.node(&at, "ReduceMean", &[&x], &axes);
                    let place = format!("{label}.body");
                    let factors = self.branch(part, &place, body, means, &mut vec![shape[0], 1, 1])?;
                    let factors = reshaped(self.graph, &at, &factors, &[shape[0], 1, 1]);
                    self.graph.node(&at, "Mul", &[&x, &factors], &[])
                }
                layer => self.layer(layer, &label, &at, &x, shape),
            };
            *shape = output;
        }
        Ok(x)
    }

    /// A parameter of a layer as a constant.
    pub(super) fn parameter(&mut self, label: &str, name: &str) -> String {
        let ours = format!("{label}.{name}");
        let array = self.params.get(&ours).expect("the parameters were read for this architecture");
        self.graph.floats(&format!("{}{ours}", self.prefix), array.shape(), &usable(&ours, array))
    }

    fn layer(&mut self, layer: &Layer, label: &str, at: &str, x: &str, shape: &[usize]) -> String {
        match *layer {
            Layer::Conv { kernel, stride, padding, bias, .. } => {
                self.convolution([label, at, x], [kernel, stride, padding, 1], bias)
            }
            Layer::GroupedConv { kernel, stride, padding, groups, bias, .. } => {
                self.convolution([label, at, x], [kernel, stride, padding, groups], bias)
            }
            Layer::Linear { bias, .. } => self.linear([label, at, x], shape, bias),
            Layer::MaxPool { size, stride, partial } => {
                // Windows that reach beyond the image are those of an image with more rows and columns that hold no maximum.
                let beyond = |side: usize| {
                    let more = (size as i64 - side as i64).rem_euclid(stride as i64);
                    if partial && more < size as i64 { more } else { 0 }
                };
                let pads = vec![0, 0, beyond(shape[1]), beyond(shape[2])];
                let attributes = [window(size, stride), vec![("pads", Ints(pads))]].concat();
                self.graph.node(at, "MaxPool", &[x], &attributes)
            }
            Layer::AvgPool { size, stride } => {
                self.graph.node(at, "AveragePool", &[x], &window(size, stride))
            }
            Layer::GlobalAvgPool => mean(self.graph, at, x, &[2, 3]),
            Layer::Flatten => self.graph.node(at, "Flatten", &[x], &[("axis", Int(1))]),
            Layer::BatchNorm { .. } => self.batch_norm([label, at, x], 1e-5),
            Layer::BatchNormWith { epsilon, .. } => self.batch_norm([label, at, x], epsilon),
            Layer::GroupNorm { groups, .. } => self.group_norm([label, at, x], shape, groups),
            Layer::LayerNorm { epsilon, .. } => {
                let (weight, bias) = (self.parameter(label, "weight"), self.parameter(label, "bias"));
                let attributes = [("axis", Int(-1)), ("epsilon", Float(epsilon as f32))];
                self.graph.node(at, "LayerNormalization", &[x, &weight, &bias], &attributes)
            }
            Layer::SimplexEtf { .. } => {
                let weight = self.parameter(label, "weight");
                simplex_etf(self.graph, [at, x, &weight], shape[shape.len() - 1])
            }
            Layer::LocalResponseNorm { size, alpha, beta, k } => {
                local_response(self.graph, [at, x], shape, size, [alpha, beta, k])
            }
            Layer::Dropout { .. } => x.to_owned(),
            Layer::ZeroPad { pixels } => {
                let pixels = pixels as i64;
                let pads = self.graph.integers(at, &[0, 0, pixels, pixels, 0, 0, pixels, pixels]);
                self.graph.node(at, "Pad", &[x, &pads], &[])
            }
            Layer::Embedding { .. } => {
                let weight = self.parameter(label, "weight");
                self.graph.node(at, "Gather", &[&weight, x], &[("axis", Int(0))])
            }
            Layer::Lstm { .. } => sequences::lstm(self.graph, self.params, [label, at, x]),
            Layer::ToSequence => {
                let x = reshaped(self.graph, at, x, &[shape[0], shape[1] * shape[2]]);
                transposed(self.graph, at, &x, &[0, 2, 1])
            }
            Layer::ClassToken { .. } => {
                let weight = self.parameter(label, "weight");
                sequences::class_token(self.graph, [at, x, &weight], shape)
            }
            Layer::Positions { .. } => {
                let weight = self.parameter(label, "weight");
                self.graph.node(at, "Add", &[x, &weight], &[])
            }
            Layer::SinusoidalPositions => sequences::waves(self.graph, [at, x], shape),
            Layer::Attention { heads, causal } => {
                sequences::attention(self.graph, [at, x], shape, heads, causal)
            }
            Layer::FirstPosition => {
                let first = self.graph.integer(at, 0);
                self.graph.node(at, "Gather", &[x, &first], &[("axis", Int(1))])
            }
            Layer::MeanPositions => mean(self.graph, at, x, &[1]),
            Layer::Relu => self.graph.node(at, "Relu", &[x], &[]),
            Layer::Relu6 => {
                let (least, most) = (self.graph.float(at, 0.0), self.graph.float(at, 6.0));
                self.graph.node(at, "Clip", &[x, &least, &most], &[])
            }
            Layer::HardSigmoid => {
                let attributes = [("alpha", Float(1.0 / 6.0)), ("beta", Float(0.5))];
                self.graph.node(at, "HardSigmoid", &[x], &attributes)
            }
            Layer::HardSwish => self.graph.node(at, "HardSwish", &[x], &[]),
            Layer::Sigmoid => self.graph.node(at, "Sigmoid", &[x], &[]),
            Layer::Silu => {
                let share = self.graph.node(at, "Sigmoid", &[x], &[]);
                self.graph.node(at, "Mul", &[x, &share], &[])
            }
            Layer::Gelu => gelu(self.graph, at, x),
            Layer::Residual { .. } | Layer::SqueezeExcite { .. } => unreachable!("blocks are walked into"),
        }
    }

    /// A convolution: size of the kernel, stride, padding and groups.
    fn convolution(
        &mut self,
        [label, at, x]: [&str; 3],
        [kernel, stride, padding, groups]: [usize; 4],
        bias: bool,
    ) -> String {
        let weight = self.parameter(label, "weight");
        let bias = bias.then(|| self.parameter(label, "bias"));
        let inputs: Vec<&str> = [x, &weight].into_iter().chain(bias.as_deref()).collect();
        let mut attributes = window(kernel, stride);
        attributes.push(("pads", Ints(vec![padding as i64; 4])));
        attributes.push(("group", Int(groups as i64)));
        self.graph.node(at, "Conv", &inputs, &attributes)
    }

    /// Of one vector for each sample, or at each position.
    fn linear(&mut self, [label, at, x]: [&str; 3], shape: &[usize], bias: bool) -> String {
        let weight = self.parameter(label, "weight");
        let bias = bias.then(|| self.parameter(label, "bias"));
        if shape.len() == 1 {
            let inputs: Vec<&str> = [x, &weight].into_iter().chain(bias.as_deref()).collect();
            return self.graph.node(at, "Gemm", &inputs, &[("transB", Int(1))]);
        }
        let weight = transposed(self.graph, at, &weight, &[1, 0]);
        let product = self.graph.node(at, "MatMul", &[x, &weight], &[]);
        match bias {
            Some(bias) => self.graph.node(at, "Add", &[&product, &bias], &[]),
            None => product,
        }
    }

    fn batch_norm(&mut self, [label, at, x]: [&str; 3], epsilon: f64) -> String {
        let of = ["weight", "bias", "running-mean", "running-var"].map(|name| self.parameter(label, name));
        let [weight, bias, mean, variance] = &of;
        let attributes = [("epsilon", Float(epsilon as f32))];
        self.graph.node(at, "BatchNormalization", &[x, weight, bias, mean, variance], &attributes)
    }

    /// Instance normalisation of groups, and then each channel's own factor and term.
    fn group_norm(&mut self, [label, at, x]: [&str; 3], shape: &[usize], groups: usize) -> String {
        let values: usize = shape.iter().product();
        let grouped = reshaped(self.graph, at, x, &[groups, values / groups]);
        let one = self.graph.floats(&format!("{at}/ones"), &[groups], &vec![1.0; groups]);
        let zero = self.graph.floats(&format!("{at}/zeros"), &[groups], &vec![0.0; groups]);
        let attributes = [("epsilon", Float(1e-5))];
        let inputs = [grouped.as_str(), &one, &zero];
        let normalised = self.graph.node(at, "InstanceNormalization", &inputs, &attributes);
        let x = reshaped(self.graph, at, &normalised, shape);
        let axes: Vec<usize> =
            shape.iter().enumerate().map(|(axis, &side)| if axis == 0 { side } else { 1 }).collect();
        let [weight, bias] = ["weight", "bias"].map(|name| {
            let parameter = self.parameter(label, name);
            reshaped(self.graph, at, &parameter, &axes)
        });
        let x = self.graph.node(at, "Mul", &[&x, &weight], &[]);
        self.graph.node(at, "Add", &[&x, &bias], &[])
    }
}

/// Square windows.
fn window(size: usize, stride: usize) -> Vec<(&'static str, Attribute)> {
    let both = |side: usize| Ints(vec![side as i64; 2]);
    vec![("kernel_shape", both(size)), ("strides", both(stride))]
}

/// The mean over axes, which are no more.
fn mean(graph: &mut Graph, at: &str, x: &str, axes: &[i64]) -> String {
    graph.node(at, "ReduceMean", &[x], &[("axes", Ints(axes.to_vec())), ("keepdims", Int(0))])
}

/// Cosines of the last axis with the vertices of a regular simplex, times `weight`.
fn simplex_etf(graph: &mut Graph, [at, x, weight]: [&str; 3], classes: usize) -> String {
    let last = [("axes", Ints(vec![-1])), ("keepdims", Int(1))];
    let squares = graph.node(at, "ReduceSumSquare", &[x], &last);
    let least = graph.float(at, 1e-12);
    let squares = graph.node(at, "Add", &[&squares, &least], &[]);
    let length = graph.node(at, "Sqrt", &[&squares], &[]);
    let direction = graph.node(at, "Div", &[x, &length], &[]);
    let mean = graph.node(at, "ReduceMean", &[&direction], &last);
    let centred = graph.node(at, "Sub", &[&direction, &mean], &[]);
    let scale = graph.float(at, (classes as f64 / (classes as f64 - 1.0)).sqrt());
    let cosines = graph.node(at, "Mul", &[&centred, &scale], &[]);
    graph.node(at, "Mul", &[&cosines, weight], &[])
}

/// Not the operator of ONNX, whose neighbourhoods of an even size lie otherwise than ours: the mean of the squares is that of a window
/// over channels, with zeros beyond the first and the last.
fn local_response(
    graph: &mut Graph,
    [at, x]: [&str; 2],
    shape: &[usize],
    size: usize,
    [alpha, beta, k]: [f64; 3],
) -> String {
    let squares = graph.node(at, "Mul", &[x, x], &[]);
    let rows = reshaped(graph, at, &squares, &[1, shape[0], shape[1] * shape[2]]);
    let (before, after) = (size as i64 / 2, (size as i64 - 1) / 2);
    let attributes = [
        ("kernel_shape", Ints(vec![size as i64, 1])),
        ("pads", Ints(vec![before, 0, after, 0])),
        ("count_include_pad", Int(1)),
    ];
    let means = graph.node(at, "AveragePool", &[&rows], &attributes);
    let means = reshaped(graph, at, &means, shape);
    let [alpha, beta, k] = [alpha, beta, k].map(|number| graph.float(at, number));
    let scaled = graph.node(at, "Mul", &[&means, &alpha], &[]);
    let base = graph.node(at, "Add", &[&scaled, &k], &[]);
    let power = graph.node(at, "Pow", &[&base, &beta], &[]);
    graph.node(at, "Div", &[x, &power], &[])
}

/// `x / 2 (1 + erf(x / sqrt 2))`: the operator is one of later opsets.
fn gelu(graph: &mut Graph, at: &str, x: &str) -> String {
    let [root, one, half] = [0.5f64.sqrt(), 1.0, 0.5].map(|number| graph.float(at, number));
    let scaled = graph.node(at, "Mul", &[x, &root], &[]);
    let error = graph.node(at, "Erf", &[&scaled], &[]);
    let share = graph.node(at, "Add", &[&error, &one], &[]);
    let whole = graph.node(at, "Mul", &[x, &share], &[]);
    graph.node(at, "Mul", &[&whole, &half], &[])
}
