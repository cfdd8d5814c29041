//! Shape inference: what each layer receives and produces, and which parameters that takes.

use std::collections::BTreeSet;

use super::{Architecture, ArchitectureError, Layer, MAX_NESTING};
use crate::params::element_count;

/// The most parameters of one architecture and the most values between two layers for one sample: 2^30.
///
/// Architectures come from files and from the network; this keeps a hostile one from asking for all memory.
pub const MAX_ELEMENTS: usize = 1 << 30;

/// One tensor of parameters that an architecture needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterSpec {
    /// The full name, such as `extractor.conv1.weight`.
    pub name: String,
    /// The shape.
    pub shape: Vec<usize>,
    /// The inputs that each output of the layer sums over; the bias has that of its layer.
    pub fan_in: usize,
    /// The outputs that each input of the layer goes to; the bias has that of its layer.
    pub fan_out: usize,
    /// What it does in its layer.
    pub kind: ParameterKind,
    /// What it starts as.
    pub initial: Initial,
}

/// What a parameter tensor does in its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParameterKind {
    /// It multiplies.
    Weight,
    /// It is added.
    Bias,
    /// It is a statistic of the data, which training keeps and no gradient reaches.
    Buffer,
}

/// How a parameter tensor is initialised: as `PyTorch` does by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Initial {
    /// Every value uniform in `[-1/sqrt(fan), 1/sqrt(fan))`.
    Uniform {
        /// The number under the root.
        fan: usize,
    },
    /// Every value from the standard normal distribution.
    Normal,
    /// Every value 0.
    Zero,
    /// Every value 1.
    One,
}

/// What one walk over the layers finds out.
#[derive(Default)]
struct Inference {
    specs: Vec<ParameterSpec>,
    /// Values that are learned.
    parameters: usize,
    /// All values, with those of buffers.
    values: usize,
    multiply_adds: u64,
    output: Vec<usize>,
    /// The names used in the part that is walked over.
    names: BTreeSet<String>,
}

impl Architecture {
    /// The parameters this architecture needs, in the order of its layers. Succeeds exactly if the architecture is valid.
    ///
    /// # Errors
    /// [`ArchitectureError`] for the first layer that does not fit.
    pub fn parameter_specs(&self) -> Result<Vec<ParameterSpec>, ArchitectureError> {
        self.infer().map(|inference| inference.specs)
    }

    /// The number of parameters that are learned: without those of buffers.
    ///
    /// # Errors
    /// As [`Architecture::parameter_specs`].
    pub fn parameters(&self) -> Result<usize, ArchitectureError> {
        self.infer().map(|inference| inference.parameters)
    }

    /// The multiply-adds of the convolutions, linear layers and LSTMs in one forward pass of one sample.
    ///
    /// # Errors
    /// As [`Architecture::parameter_specs`].
    pub fn multiply_adds(&self) -> Result<u64, ArchitectureError> {
        self.infer().map(|inference| inference.multiply_adds)
    }

    /// The predictions made for one sample, each of which takes a label: 1, or the number of positions of a sequence.
    ///
    /// # Errors
    /// As [`Architecture::parameter_specs`].
    pub fn predictions(&self) -> Result<usize, ArchitectureError> {
        let output = self.infer()?.output;
        Ok(if let [positions, _] = output[..] { positions } else { 1 })
    }

    fn infer(&self) -> Result<Inference, ArchitectureError> {
        let mut inference = Inference::default();
        let mut shape = self.input.clone();
        check_size("input", &shape)?;
        for (part, layers) in self.parts() {
            inference.names.clear();
            shape = inference.layers(part, part, layers, shape, 0)?;
        }
        match shape[..] {
            [classes] | [_, classes] if classes == self.classes => {
                Ok(Inference { output: shape, ..inference })
            }
            _ => Err(ArchitectureError::Output { got: shape, classes: self.classes }),
        }
    }
}

impl Inference {
    /// Accounts for layers one after the other, in a part or `depth` blocks deep in it, and gives the shape they produce.
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
            if let Some(name) = layer.name() {
                check_name(&label, name)?;
                if !self.names.insert(name.to_owned()) {
                    let problem = "another layer of the same part has this name";
                    return Err(ArchitectureError::Layer { layer: label, problem });
                }
            }
            shape = if let Layer::Residual { body, shortcut } = layer {
                self.residual(part, &label, [body, shortcut], shape, depth)?
            } else {
                self.layer(layer, &label, &shape)?
            };
            check_size(&label, &shape)?;
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
        if depth == MAX_NESTING {
            let problem = "residual blocks are nested more than 8 deep";
            return Err(ArchitectureError::Layer { layer: label.to_owned(), problem });
        }
        let body = self.layers(part, &format!("{label}.body"), body, shape.clone(), depth + 1)?;
        let shortcut = self.layers(part, &format!("{label}.shortcut"), shortcut, shape, depth + 1)?;
        if body != shortcut {
            return Err(ArchitectureError::Residual { layer: label.to_owned(), body, shortcut });
        }
        Ok(body)
    }

    /// Accounts for one layer and gives the shape it produces.
    fn layer(&mut self, layer: &Layer, label: &str, got: &[usize]) -> Result<Vec<usize>, ArchitectureError> {
        let needs =
            |needs: String| ArchitectureError::Input { layer: label.to_owned(), needs, got: got.to_vec() };
        let image = || match *got {
            [channels, height, width] => Ok([channels, height, width]),
            _ => Err(needs("[channels, height, width]".to_owned())),
        };
        let wrong = |problem| Err(ArchitectureError::Layer { layer: label.to_owned(), problem });
        match *layer {
            Layer::Conv { out, kernel, stride, padding, bias, .. } => {
                if out == 0 || kernel == 0 || stride == 0 {
                    return wrong("`out`, `kernel` and `stride` must be at least 1");
                }
                if padding >= kernel {
                    return wrong("`padding` must be less than `kernel`, or outputs would see zeros alone");
                }
                let [channels, height, width] = image()?;
                let extent = |input: usize| {
                    let room = input.checked_add(padding.checked_mul(2)?)?.checked_sub(kernel)?;
                    Some(room / stride + 1)
                };
                let (Some(rows), Some(columns)) = (extent(height), extent(width)) else {
                    return Err(needs(format!("at least {kernel} x {kernel} pixels with the padding")));
                };
                let weights = self.affine(label, &[out, channels, kernel, kernel], bias)?;
                // Saturates, because the produced shape is checked only once it is known.
                self.multiply((rows as u64).saturating_mul(columns as u64), weights);
                Ok(vec![out, rows, columns])
            }
            Layer::Linear { out, bias, .. } => {
                if out == 0 {
                    return wrong("`out` must be at least 1");
                }
                let (positions, features) = match *got {
                    [features] => (1, features),
                    [positions, features] => (positions, features),
                    _ => return Err(needs("[features], so a flatten layer before it".to_owned())),
                };
                let weights = self.affine(label, &[out, features], bias)?;
                self.multiply(positions as u64, weights);
                Ok([&got[..got.len() - 1], &[out]].concat())
            }
            Layer::Relu => Ok(got.to_vec()),
            Layer::MaxPool { size, stride } | Layer::AvgPool { size, stride } => {
                if size == 0 || stride == 0 {
                    return wrong("`size` and `stride` must be at least 1");
                }
                let [channels, height, width] = image()?;
                if height < size || width < size {
                    return Err(needs(format!("at least {size} x {size} pixels")));
                }
                Ok(vec![channels, (height - size) / stride + 1, (width - size) / stride + 1])
            }
            Layer::GlobalAvgPool => image().map(|[channels, ..]| vec![channels]),
            Layer::Flatten => Ok(vec![got.iter().product()]),
            Layer::BatchNorm { .. } | Layer::GroupNorm { .. } => {
                let (channels, pixels) = match *got {
                    [channels] => (channels, 1),
                    [channels, height, width] => (channels, height * width),
                    _ => return Err(needs("[channels, height, width] or [channels]".to_owned())),
                };
                let groups = if let Layer::GroupNorm { groups, .. } = *layer { groups } else { 1 };
                if groups == 0 || !channels.is_multiple_of(groups) {
                    return Err(needs(format!("channels that {groups} groups divide")));
                }
                if matches!(layer, Layer::GroupNorm { .. }) && channels / groups * pixels == 1 {
                    return Err(needs(
                        "at least two values in each group, since one has no variance".to_owned(),
                    ));
                }
                self.norm(label, channels, matches!(layer, Layer::BatchNorm { .. }))?;
                Ok(got.to_vec())
            }
            Layer::Embedding { vocabulary, dim, .. } => {
                if vocabulary == 0 || dim == 0 {
                    return wrong("`vocabulary` and `dim` must be at least 1");
                }
                if vocabulary > MAX_VOCABULARY {
                    return wrong(
                        "`vocabulary` is over 2^24, from where on an f32 does not hold every token",
                    );
                }
                let &[positions] = got else {
                    return Err(needs("[positions] of tokens".to_owned()));
                };
                // One input, of those that stand for the token, is 1: each output is one weight.
                self.declare(
                    label,
                    "weight",
                    &[vocabulary, dim],
                    (1, dim),
                    ParameterKind::Weight,
                    Initial::Normal,
                )?;
                Ok(vec![positions, dim])
            }
            Layer::Lstm { hidden, .. } => {
                if hidden == 0 {
                    return wrong("`hidden` must be at least 1");
                }
                let &[positions, features] = got else {
                    return Err(needs("[positions, features]".to_owned()));
                };
                let gates = hidden.checked_mul(4).filter(|&gates| gates <= MAX_ELEMENTS);
                let gates = gates.ok_or_else(|| ArchitectureError::TooLarge { layer: label.to_owned() })?;
                // All gates at all positions are computed before anything is made of them.
                check_size(label, &[positions, gates])?;
                let initial = Initial::Uniform { fan: hidden };
                let kind = ParameterKind::Weight;
                let from_input =
                    self.declare(label, "weight-ih", &[gates, features], (features, gates), kind, initial)?;
                let from_state =
                    self.declare(label, "weight-hh", &[gates, hidden], (hidden, gates), kind, initial)?;
                self.declare(label, "bias", &[gates], (features, gates), ParameterKind::Bias, initial)?;
                self.multiply(positions as u64, from_input + from_state);
                Ok(vec![positions, hidden])
            }
            Layer::Residual { .. } => unreachable!("blocks are walked into by `layers`"),
        }
    }

    /// Declares the weight, `[outputs, inputs, ...]`, and the bias of a layer, and gives the number of weights.
    fn affine(&mut self, label: &str, weight: &[usize], bias: bool) -> Result<usize, ArchitectureError> {
        let too_large = || ArchitectureError::TooLarge { layer: label.to_owned() };
        let weights = element_count(weight).ok_or_else(too_large)?;
        let fans @ (fan, _) = (weights / weight[0], weights / weight[1]);
        let initial = Initial::Uniform { fan };
        self.declare(label, "weight", weight, fans, ParameterKind::Weight, initial)?;
        if bias {
            self.declare(label, "bias", &weight[..1], fans, ParameterKind::Bias, initial)?;
        }
        Ok(weights)
    }

    /// Declares what scales and moves normalised channels, and with `buffers` their running statistics.
    fn norm(&mut self, label: &str, channels: usize, buffers: bool) -> Result<(), ArchitectureError> {
        let mut declare =
            |suffix, kind, initial| self.declare(label, suffix, &[channels], (1, 1), kind, initial).map(drop);
        declare("weight", ParameterKind::Weight, Initial::One)?;
        declare("bias", ParameterKind::Bias, Initial::Zero)?;
        if buffers {
            declare("running-mean", ParameterKind::Buffer, Initial::Zero)?;
            declare("running-var", ParameterKind::Buffer, Initial::One)?;
        }
        Ok(())
    }

    /// Declares one tensor and gives the number of its values.
    fn declare(
        &mut self,
        label: &str,
        suffix: &str,
        shape: &[usize],
        (fan_in, fan_out): (usize, usize),
        kind: ParameterKind,
        initial: Initial,
    ) -> Result<usize, ArchitectureError> {
        let too_large = || ArchitectureError::TooLarge { layer: label.to_owned() };
        let count = element_count(shape).ok_or_else(too_large)?;
        let sum = self.values.checked_add(count).filter(|&sum| sum <= MAX_ELEMENTS);
        self.values = sum.ok_or_else(too_large)?;
        if kind != ParameterKind::Buffer {
            self.parameters += count;
        }
        let (name, shape) = (format!("{label}.{suffix}"), shape.to_vec());
        self.specs.push(ParameterSpec { name, shape, fan_in, fan_out, kind, initial });
        Ok(count)
    }

    /// Counts the multiply-adds of weights that are applied some number of times.
    fn multiply(&mut self, applications: u64, weights: usize) {
        self.multiply_adds = self.multiply_adds.saturating_add(applications.saturating_mul(weights as u64));
    }
}

/// The most tokens: an f32, as which they come, holds every whole number up to 2^24.
const MAX_VOCABULARY: usize = 1 << 24;

impl Layer {
    /// The shape that this layer produces from the shape it gets. `place` is the part or the branch that it is in.
    pub(crate) fn output(
        &self,
        part: &str,
        place: &str,
        got: &[usize],
    ) -> Result<Vec<usize>, ArchitectureError> {
        Inference::default().layers(part, place, std::slice::from_ref(self), got.to_vec(), 0)
    }
}

/// Refuses activations without values or with too many.
fn check_size(layer: &str, shape: &[usize]) -> Result<(), ArchitectureError> {
    match element_count(shape) {
        Some(0) => {
            let problem = "the shape has no values: every dimension must be at least 1";
            Err(ArchitectureError::Layer { layer: layer.to_owned(), problem })
        }
        Some(count) if count <= MAX_ELEMENTS => Ok(()),
        _ => Err(ArchitectureError::TooLarge { layer: layer.to_owned() }),
    }
}

/// Refuses names that would make parameter names ambiguous or hard to type.
fn check_name(layer: &str, name: &str) -> Result<(), ArchitectureError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !name.is_empty() && name.bytes().all(plain) {
        return Ok(());
    }
    let problem = "a layer's name is made of ASCII letters, digits, `-` and `_`";
    Err(ArchitectureError::Layer { layer: layer.to_owned(), problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conv(out: usize, kernel: usize, stride: usize, padding: usize) -> Layer {
        Layer::Conv { name: "c".into(), out, kernel, stride, padding, bias: true }
    }

    fn linear(out: usize) -> Layer {
        Layer::Linear { name: "f".into(), out, bias: true }
    }

    fn network(input: &[usize], extractor: Vec<Layer>, head: Vec<Layer>) -> Architecture {
        let (name, input) = ("test".into(), input.to_vec());
        Architecture { name, input, classes: 3, extractor, projection: vec![], head }
    }

    #[test]
    fn shapes_fans_and_counts_follow_the_formulas() {
        // (11 + 2 - 4) / 2 + 1 = 5 and (9 + 2 - 4) / 2 + 1 = 4, pooled to 1 x 1.
        let pool = Layer::MaxPool { size: 3, stride: 3 };
        let network = network(&[2, 11, 9], vec![conv(5, 4, 2, 1), pool, Layer::Flatten], vec![linear(3)]);
        let specs = network.parameter_specs().unwrap();
        let row = |spec: &ParameterSpec| {
            (spec.name.clone(), spec.shape.clone(), spec.fan_in, spec.fan_out, spec.kind)
        };
        assert_eq!(
            specs.iter().map(row).collect::<Vec<_>>(),
            [
                ("extractor.c.weight".into(), vec![5, 2, 4, 4], 32, 80, ParameterKind::Weight),
                ("extractor.c.bias".into(), vec![5], 32, 80, ParameterKind::Bias),
                ("head.f.weight".into(), vec![3, 5], 5, 3, ParameterKind::Weight),
                ("head.f.bias".into(), vec![3], 5, 3, ParameterKind::Bias),
            ]
        );
        assert_eq!(network.parameters(), Ok(160 + 5 + 15 + 3));
        assert_eq!(network.multiply_adds(), Ok(160 * 20 + 15));
    }

    #[test]
    fn errors_name_the_layer_what_it_got_and_what_it_needed() {
        let error = |network: Architecture| network.parameter_specs().unwrap_err().to_string();
        assert_eq!(
            error(network(&[1, 4, 4], vec![Layer::Relu], vec![linear(3)])),
            "layer `head.f` needs [features], so a flatten layer before it and gets the shape [1, 4, 4]"
        );
        assert_eq!(
            error(network(&[1, 4, 4], vec![conv(2, 5, 1, 0)], vec![])),
            "layer `extractor.c` needs at least 5 x 5 pixels with the padding and gets the shape [1, 4, 4]"
        );
        assert_eq!(
            error(network(&[1, 4, 4], vec![Layer::Relu, Layer::MaxPool { size: 5, stride: 5 }], vec![])),
            "layer `extractor.max-pool-2` needs at least 5 x 5 pixels and gets the shape [1, 4, 4]"
        );
        assert_eq!(
            error(network(&[4], vec![], vec![linear(2)])),
            "the head gives the shape [2] and 3 classes need [3] or [positions, 3]"
        );
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let problem =
            |network: Architecture| matches!(network.parameter_specs(), Err(ArchitectureError::Layer { .. }));
        for layer in [
            conv(0, 1, 1, 0),
            conv(1, 0, 1, 0),
            conv(1, 1, 0, 0),
            conv(1, 2, 1, 2),
            linear(0),
            Layer::MaxPool { size: 0, stride: 1 },
            Layer::AvgPool { size: 1, stride: 0 },
            Layer::Lstm { name: "l".into(), hidden: 0 },
            Layer::Embedding { name: "e".into(), vocabulary: 0, dim: 1 },
            Layer::Embedding { name: "e".into(), vocabulary: (1 << 24) + 1, dim: 1 },
            Layer::Linear { name: "a.b".into(), out: 1, bias: true },
            Layer::Linear { name: String::new(), out: 1, bias: true },
        ] {
            assert!(problem(network(&[1, 4, 4], vec![layer.clone()], vec![])), "{layer:?}");
        }
        assert!(problem(network(&[4], vec![linear(3), linear(3)], vec![])));
        assert!(problem(network(&[0, 4, 4], vec![Layer::Flatten], vec![linear(3)])));
        // The same name in two parts is two names.
        assert!(network(&[4], vec![linear(3)], vec![linear(3)]).parameter_specs().is_ok());
    }

    #[test]
    fn windows_may_overlap_and_leave_gaps() {
        for (size, stride, expected) in [(3, 2, [2, 5, 4]), (2, 3, [2, 4, 3]), (3, 1, [2, 9, 7])] {
            for pool in [Layer::MaxPool { size, stride }, Layer::AvgPool { size, stride }] {
                let [channels, rows, columns] = expected;
                let mut network = network(&[2, 11, 9], vec![pool, Layer::Flatten], vec![]);
                network.classes = channels * rows * columns;
                assert_eq!(network.parameters(), Ok(0));
            }
        }
        let global = network(&[3, 5, 4], vec![Layer::GlobalAvgPool], vec![]);
        assert_eq!(global.predictions(), Ok(1));
    }

    #[test]
    fn normalisation_has_a_scale_and_buffers_that_are_no_parameters() {
        let norm = |name: &str| Layer::BatchNorm { name: name.into() };
        let group = |groups| Layer::GroupNorm { name: "g".into(), groups };
        let both = network(&[4, 2, 1], vec![norm("n"), group(4), Layer::Flatten, norm("m")], vec![linear(3)]);
        let specs = both.parameter_specs().unwrap();
        let row = |spec: &ParameterSpec| (spec.name.clone(), spec.kind, spec.initial);
        assert_eq!(
            specs[..4].iter().map(row).collect::<Vec<_>>(),
            [
                ("extractor.n.weight".into(), ParameterKind::Weight, Initial::One),
                ("extractor.n.bias".into(), ParameterKind::Bias, Initial::Zero),
                ("extractor.n.running-mean".into(), ParameterKind::Buffer, Initial::Zero),
                ("extractor.n.running-var".into(), ParameterKind::Buffer, Initial::One),
            ]
        );
        assert_eq!(specs.iter().filter(|spec| spec.kind == ParameterKind::Buffer).count(), 4);
        assert_eq!(both.parameters(), Ok(8 + 8 + 16 + 27));
        // Four channels of one pixel in four groups: nothing varies within a group.
        for refused in [group(0), group(3), group(8)] {
            let error = network(&[4, 2, 1], vec![refused], vec![]).parameter_specs();
            assert!(matches!(error, Err(ArchitectureError::Input { .. })), "{error:?}");
        }
        assert!(network(&[4], vec![group(2)], vec![linear(3)]).parameter_specs().is_ok());
        assert!(network(&[4], vec![group(4)], vec![linear(3)]).parameter_specs().is_err());
        assert!(network(&[4, 2], vec![norm("n")], vec![]).parameter_specs().is_err());
    }

    #[test]
    fn branches_must_agree_and_share_their_names_with_the_part() {
        let block = |body, shortcut| Layer::Residual { body, shortcut };
        let wide = |name: &str| Layer::Linear { name: name.into(), out: 4, bias: false };
        let layers =
            vec![block(vec![wide("a"), Layer::Relu, wide("b")], vec![]), block(vec![], vec![wide("c")])];
        let specs = network(&[4], layers, vec![linear(3)]).parameter_specs().unwrap();
        let names: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
        let expected = ["extractor.a.weight", "extractor.b.weight", "extractor.c.weight"];
        assert_eq!(names, [&expected[..], &["head.f.weight", "head.f.bias"]].concat());

        let error = |layers| network(&[4], layers, vec![linear(3)]).parameter_specs().unwrap_err();
        let narrow = vec![block(vec![linear(3)], vec![])];
        assert_eq!(
            error(vec![block(vec![Layer::Relu, block(narrow, vec![])], vec![])]).to_string(),
            "layer `extractor.residual-1.body.residual-2.body.residual-1` adds its body, which gives the shape [3], to \
             its shortcut, which gives [4]"
        );
        for twice in [
            vec![block(vec![wide("a")], vec![wide("a")])],
            vec![wide("a"), block(vec![wide("a")], vec![])],
            vec![block(vec![block(vec![wide("a")], vec![])], vec![]), wide("a")],
        ] {
            assert!(matches!(error(twice), ArchitectureError::Layer { layer, .. } if layer == "extractor.a"));
        }
    }

    #[test]
    fn sequences_are_predicted_at_every_position() {
        let embedding = Layer::Embedding { name: "e".into(), vocabulary: 7, dim: 2 };
        let lstm = Layer::Lstm { name: "l".into(), hidden: 5 };
        let text = network(&[6], vec![embedding.clone(), lstm.clone()], vec![linear(3)]);
        let specs = text.parameter_specs().unwrap();
        let row = |spec: &ParameterSpec| (spec.name.clone(), spec.shape.clone(), spec.initial);
        let initial = Initial::Uniform { fan: 5 };
        assert_eq!(
            specs[..4].iter().map(row).collect::<Vec<_>>(),
            [
                ("extractor.e.weight".into(), vec![7, 2], Initial::Normal),
                ("extractor.l.weight-ih".into(), vec![20, 2], initial),
                ("extractor.l.weight-hh".into(), vec![20, 5], initial),
                ("extractor.l.bias".into(), vec![20], initial),
            ]
        );
        assert_eq!(text.parameters(), Ok(14 + 40 + 100 + 20 + 18));
        assert_eq!(text.multiply_adds(), Ok(6 * (40 + 100 + 15)));
        assert_eq!(text.predictions(), Ok(6));
        assert!(network(&[6, 2], vec![embedding], vec![]).parameter_specs().is_err());
        assert!(network(&[6], vec![lstm], vec![]).parameter_specs().is_err());
    }

    #[test]
    fn strides_may_leave_more_over_on_one_axis_than_on_the_other() {
        for (height, width, layer, expected) in [
            // 6 + 0 - 3 = 3 leaves one over, 5 - 3 = 2 none.
            (6, 5, conv(1, 3, 2, 0), 4),
            (7, 5, conv(1, 3, 2, 0), 6),
            // 1 + 4 - 3 = 2 left over of a height of 1.
            (1, 1, conv(1, 3, 3, 2), 1),
        ] {
            let mut network = network(&[1, height, width], vec![layer, Layer::Flatten], vec![]);
            network.classes = expected;
            assert_eq!(network.parameters(), Ok(10));
        }
    }

    #[test]
    fn a_hostile_architecture_is_refused_before_anything_is_allocated() {
        let huge = usize::MAX / 2 + 1;
        for network in [
            network(&[huge, 2, 1], vec![], vec![]),
            network(&[1, 4, 4], vec![conv(huge, 2, 1, 1)], vec![]),
            network(&[1, 4, 4], vec![conv(1, huge, 1, huge - 1)], vec![]),
            network(&[1, 4, 4], vec![conv(1, 1 << 20, 1, (1 << 20) - 1)], vec![]),
            network(&[1 << 20], vec![linear(1 << 11)], vec![]),
            network(&[huge], vec![Layer::Embedding { name: "e".into(), vocabulary: 2, dim: huge }], vec![]),
            network(&[1 << 20, 2], vec![Layer::Lstm { name: "l".into(), hidden: huge }], vec![]),
            network(&[1 << 20, 2], vec![Layer::Lstm { name: "l".into(), hidden: 257 }], vec![]),
            // 2^30 weights applied 2^45 times.
            network(&[1, 1 << 30, 1], vec![conv(1, 1 << 15, 1, (1 << 15) - 1)], vec![]),
        ] {
            let error = network.parameter_specs().unwrap_err();
            assert!(
                matches!(error, ArchitectureError::TooLarge { .. } | ArchitectureError::Input { .. }),
                "{error}"
            );
        }
    }
}
