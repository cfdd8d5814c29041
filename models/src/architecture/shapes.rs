//! Shape inference: what each layer receives and produces, and which parameters that takes.

use std::collections::BTreeSet;

use super::{Architecture, Layer};
use crate::params::element_count;

/// The most parameters of one architecture and the most values between two layers for one sample: 2^30.
///
/// Architectures come from files and from the network; this keeps a hostile one from asking for all memory.
pub const MAX_ELEMENTS: usize = 1 << 30;

/// Why an architecture cannot exist: a mistake of whoever wrote or chose it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArchitectureError {
    /// No built-in has this name.
    #[error("there is no model `{name}`; known are {}", .known.join(", "))]
    UnknownModel {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<&'static str>,
    },
    /// A layer cannot take what the layer before it gives.
    #[error("layer `{layer}` needs {needs} and gets the shape {got:?}")]
    Input {
        /// The layer, as `part.name` or `part.kind-position`.
        layer: String,
        /// What it needs, in words.
        needs: String,
        /// The shape it gets, without the batch.
        got: Vec<usize>,
    },
    /// A layer's own settings make no sense.
    #[error("layer `{layer}`: {problem}")]
    Layer {
        /// The layer, as `part.name` or `part.kind-position`.
        layer: String,
        /// What is wrong, in words.
        problem: &'static str,
    },
    /// The last layer does not give one logit per class.
    #[error("the head gives the shape {got:?} and {classes} classes need [{classes}]")]
    Output {
        /// The shape the last layer gives.
        got: Vec<usize>,
        /// The number of classes.
        classes: usize,
    },
    /// More than [`MAX_ELEMENTS`] parameters or values at once.
    #[error("layer `{layer}` brings the model over {MAX_ELEMENTS} parameters or values at once")]
    TooLarge {
        /// The layer, as `part.name` or `part.kind-position`.
        layer: String,
    },
}

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
}

/// What a parameter tensor does in its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParameterKind {
    /// It multiplies.
    Weight,
    /// It is added.
    Bias,
}

/// What one walk over the layers finds out.
#[derive(Default)]
struct Inference {
    specs: Vec<ParameterSpec>,
    parameters: usize,
    multiply_adds: u64,
}

impl Architecture {
    /// The parameters this architecture needs, in the order of its layers. Succeeds exactly if the architecture is valid.
    ///
    /// # Errors
    /// [`ArchitectureError`] for the first layer that does not fit.
    pub fn parameter_specs(&self) -> Result<Vec<ParameterSpec>, ArchitectureError> {
        self.infer().map(|inference| inference.specs)
    }

    /// The number of parameters.
    ///
    /// # Errors
    /// As [`Architecture::parameter_specs`].
    pub fn parameters(&self) -> Result<usize, ArchitectureError> {
        self.infer().map(|inference| inference.parameters)
    }

    /// The multiply-adds of the convolutions and linear layers in one forward pass of one sample.
    ///
    /// # Errors
    /// As [`Architecture::parameter_specs`].
    pub fn multiply_adds(&self) -> Result<u64, ArchitectureError> {
        self.infer().map(|inference| inference.multiply_adds)
    }

    fn infer(&self) -> Result<Inference, ArchitectureError> {
        let mut inference = Inference::default();
        let mut shape = self.input.clone();
        check_size("input", &shape)?;
        for (part, layers) in self.parts() {
            let mut names = BTreeSet::new();
            for (index, layer) in layers.iter().enumerate() {
                let label = layer.label(part, index);
                if let Some(name) = layer.name() {
                    check_name(&label, name)?;
                    if !names.insert(name) {
                        let problem = "another layer of the same part has this name";
                        return Err(ArchitectureError::Layer { layer: label, problem });
                    }
                }
                shape = inference.layer(layer, &label, &shape)?;
                check_size(&label, &shape)?;
            }
        }
        if shape == [self.classes] {
            Ok(inference)
        } else {
            Err(ArchitectureError::Output { got: shape, classes: self.classes })
        }
    }
}

impl Inference {
    /// Accounts for one layer and gives the shape it produces.
    fn layer(&mut self, layer: &Layer, label: &str, got: &[usize]) -> Result<Vec<usize>, ArchitectureError> {
        let needs =
            |needs: String| ArchitectureError::Input { layer: label.to_owned(), needs, got: got.to_vec() };
        let wrong = |problem| Err(ArchitectureError::Layer { layer: label.to_owned(), problem });
        match *layer {
            Layer::Conv { out, kernel, stride, padding, bias, .. } => {
                if out == 0 || kernel == 0 || stride == 0 {
                    return wrong("`out`, `kernel` and `stride` must be at least 1");
                }
                if padding >= kernel {
                    return wrong("`padding` must be less than `kernel`, or outputs would see zeros alone");
                }
                let &[channels, height, width] = got else {
                    return Err(needs("[channels, height, width]".to_owned()));
                };
                // What a convolution produces along one axis, and how many rows or columns its stride leaves over.
                let extent = |input: usize| {
                    let room = input.checked_add(padding.checked_mul(2)?)?.checked_sub(kernel)?;
                    Some((room / stride + 1, room % stride))
                };
                let (Some((rows, rows_left)), Some((columns, columns_left))) =
                    (extent(height), extent(width))
                else {
                    return Err(needs(format!("at least {kernel} x {kernel} pixels with the padding")));
                };
                // candle's backward pass takes one remainder for both axes, and computes `input - remainder` unchecked.
                if rows_left != columns_left || rows_left > height || columns_left > width {
                    return Err(needs(
                        "a height and a width of which its stride leaves over equally little".to_owned(),
                    ));
                }
                let weights = self.declare(label, &[out, channels, kernel, kernel], bias)?;
                // Saturates, because the produced shape is checked only once it is known.
                let applications = (rows as u64).saturating_mul(columns as u64);
                self.multiply_adds =
                    self.multiply_adds.saturating_add(applications.saturating_mul(weights as u64));
                Ok(vec![out, rows, columns])
            }
            Layer::Linear { out, bias, .. } => {
                if out == 0 {
                    return wrong("`out` must be at least 1");
                }
                let &[features] = got else {
                    return Err(needs("[features], so a flatten layer before it".to_owned()));
                };
                let weights = self.declare(label, &[out, features], bias)?;
                self.multiply_adds = self.multiply_adds.saturating_add(weights as u64);
                Ok(vec![out])
            }
            Layer::Relu => Ok(got.to_vec()),
            Layer::MaxPool { size, stride } => {
                if size == 0 {
                    return wrong("`size` must be at least 1");
                }
                if stride != size {
                    return wrong("`stride` must equal `size`: overlapping pooling is not supported");
                }
                let &[channels, height, width] = got else {
                    return Err(needs("[channels, height, width]".to_owned()));
                };
                if height < size || width < size {
                    return Err(needs(format!("at least {size} x {size} pixels")));
                }
                Ok(vec![channels, height / size, width / size])
            }
            Layer::Flatten => Ok(vec![got.iter().product()]),
        }
    }
    /// Declares the weight, `[outputs, inputs, ...]`, and the bias of a layer, and gives the number of weights.
    fn declare(&mut self, label: &str, weight: &[usize], bias: bool) -> Result<usize, ArchitectureError> {
        let (out, inputs) = (weight[0], weight[1]);
        let biases = if bias { out } else { 0 };
        let too_large = || ArchitectureError::TooLarge { layer: label.to_owned() };
        let weights = element_count(weight).ok_or_else(too_large)?;
        self.parameters = weights
            .checked_add(biases)
            .and_then(|count| count.checked_add(self.parameters))
            .filter(|&count| count <= MAX_ELEMENTS)
            .ok_or_else(too_large)?;
        let (fan_in, fan_out) = (weights / out, weights / inputs);
        let mut declare = |kind, suffix, shape| {
            let name = format!("{label}.{suffix}");
            self.specs.push(ParameterSpec { name, shape, fan_in, fan_out, kind });
        };
        declare(ParameterKind::Weight, "weight", weight.to_vec());
        if bias {
            declare(ParameterKind::Bias, "bias", vec![out]);
        }
        Ok(weights)
    }
}

impl Layer {
    /// The shape this layer produces from the shape it gets.
    pub(crate) fn output(&self, label: &str, got: &[usize]) -> Result<Vec<usize>, ArchitectureError> {
        Inference::default().layer(self, label, got)
    }

    /// The layer's own name, if it has parameters to be named after it.
    fn name(&self) -> Option<&str> {
        match self {
            Self::Conv { name, .. } | Self::Linear { name, .. } => Some(name),
            Self::Relu | Self::MaxPool { .. } | Self::Flatten => None,
        }
    }

    /// How errors call the layer: by its name, or by its kind and position, counted from 1. Of layers with parameters,
    /// this is also what the names of the parameters begin with.
    pub(crate) fn label(&self, part: &str, index: usize) -> String {
        let kind = match self {
            Self::Conv { name, .. } | Self::Linear { name, .. } => return format!("{part}.{name}"),
            Self::Relu => "relu",
            Self::MaxPool { .. } => "max-pool",
            Self::Flatten => "flatten",
        };
        format!("{part}.{kind}-{}", index + 1)
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
            "the head gives the shape [2] and 3 classes need [3]"
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
            Layer::MaxPool { size: 0, stride: 0 },
            Layer::MaxPool { size: 3, stride: 2 },
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
    fn what_candle_cannot_differentiate_is_refused() {
        let with =
            |height, width, layer| network(&[1, height, width], vec![layer, Layer::Flatten], vec![linear(3)]);
        // 6 + 0 - 3 = 3 leaves one over, 5 - 3 = 2 none.
        let uneven = with(6, 5, conv(1, 3, 2, 0)).parameter_specs();
        assert!(matches!(uneven, Err(ArchitectureError::Input { .. })));
        assert!(with(7, 5, conv(1, 3, 2, 0)).parameter_specs().is_ok());
        // 1 + 4 - 3 = 2 left over of a height of 1.
        assert!(matches!(
            with(1, 1, conv(1, 3, 3, 2)).parameter_specs(),
            Err(ArchitectureError::Input { .. })
        ));
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
