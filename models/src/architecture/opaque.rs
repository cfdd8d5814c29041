//! Opaque networks: tensors with names and shapes, and no layers.
//!
//! A network of another framework is trained by a program of the device's owner. What is aggregated, checked, encoded and stored are
//! its tensors, so that these describe it well enough. It is never run here.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::specs::{Initial, ParameterKind, ParameterSpec, check_size, too_large};
use super::{Architecture, ArchitectureError, MAX_ELEMENTS, Quantity};
use crate::shape;

/// The limit of an opaque network's tensors. The largest that people train on devices have some hundreds.
pub const MAX_TENSORS: usize = 5_000;

/// The longest name of a tensor of an opaque network, in bytes.
const MAX_TENSOR_NAME: usize = 200;

/// Names that begin so are the programs' own: what a server's optimiser or a device keeps stands beside the model under them.
const RESERVED: [&str; 2] = ["server.", "client."];

/// One tensor of an opaque network. As text it is `conv1.weight: 64x3x7x7`, and a statistic of the data, which is no parameter,
/// `bn1.running_mean: 64 buffer`; one without axes is `scale: scalar`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OpaqueTensor {
    /// As its framework calls it.
    pub name: String,
    /// Its shape; without axes it holds one value.
    pub shape: Vec<usize>,
    /// Whether it is a statistic of the data, which no gradient moves.
    pub is_buffer: bool,
}

impl fmt::Display for OpaqueTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = if self.shape.is_empty() { "scalar".to_owned() } else { shape::spelled(&self.shape) };
        let kind = if self.is_buffer { " buffer" } else { "" };
        write!(f, "{}: {shape}{kind}", self.name)
    }
}

impl FromStr for OpaqueTensor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let accepted = || {
            format!("{text:?} is no tensor: write its name and its shape, as in \"conv1.weight: 64x3x7x7\"")
        };
        let (name, form) = text.rsplit_once(": ").ok_or_else(accepted)?;
        let (shape, is_buffer) = match form.strip_suffix(" buffer") {
            Some(shape) => (shape, true),
            None => (form, false),
        };
        let sides =
            |shape: &str| -> Option<Vec<usize>> { shape.split('x').map(|side| side.parse().ok()).collect() };
        let shape = if shape == "scalar" { Some(Vec::new()) } else { sides(shape) };
        Ok(Self { name: name.to_owned(), shape: shape.ok_or_else(accepted)?, is_buffer })
    }
}

impl TryFrom<String> for OpaqueTensor {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<OpaqueTensor> for String {
    fn from(tensor: OpaqueTensor) -> Self {
        tensor.to_string()
    }
}

impl Architecture {
    /// An opaque network of these tensors. Its samples have no shape and no classes: they are known to its own program alone.
    #[must_use]
    pub fn of_tensors(name: impl Into<String>, tensors: Vec<OpaqueTensor>) -> Self {
        Self { name: name.into(), tensors: Some(tensors), ..Self::default() }
    }

    /// Whether it has no layers, so that a program of the user's own has to run it.
    #[must_use]
    pub fn is_opaque(&self) -> bool {
        self.tensors.is_some()
    }

    /// Its tensors as those of layers are specified. They begin with the values of a file, and are never drawn.
    pub(super) fn opaque_specs(tensors: &[OpaqueTensor]) -> Result<Vec<ParameterSpec>, ArchitectureError> {
        let refused = |layer: &str, problem| {
            let layer = layer.chars().take(MAX_TENSOR_NAME).collect();
            Err(ArchitectureError::Layer { layer, problem })
        };
        if tensors.is_empty() || tensors.len() > MAX_TENSORS {
            return refused("tensors", "an opaque network has 1 to 5000 tensors");
        }
        let (mut specs, mut names, mut values) = (Vec::new(), BTreeSet::new(), 0_usize);
        for OpaqueTensor { name, shape, is_buffer } in tensors {
            let plain = name.bytes().all(|byte| byte.is_ascii_graphic());
            if !plain || !(1..=MAX_TENSOR_NAME).contains(&name.len()) {
                return refused(name, "a tensor's name is made of 1 to 200 visible ASCII characters");
            }
            if RESERVED.iter().any(|prefix| name.starts_with(prefix)) {
                return refused(name, "names that begin with `server.` or `client.` are taken: rename it");
            }
            if shape.len() > shape::MAX_SIDES {
                return refused(name, "a tensor has at most 8 axes");
            }
            if !names.insert(name) {
                return refused(name, "another tensor has this name");
            }
            let count = if shape.is_empty() { 1 } else { check_size(name, shape)? };
            values = match values.checked_add(count).filter(|sum| *sum <= MAX_ELEMENTS) {
                Some(sum) => sum,
                None => return Err(too_large(name, Quantity::Parameters, values.checked_add(count))),
            };
            specs.push(ParameterSpec {
                name: name.clone(),
                shape: shape.clone(),
                fan_in: 1,
                fan_out: 1,
                kind: if *is_buffer { ParameterKind::Buffer } else { ParameterKind::Weight },
                initial: Initial::Zero,
            });
        }
        Ok(specs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(text: &str) -> OpaqueTensor {
        text.parse().unwrap()
    }

    #[test]
    fn a_tensor_is_written_as_it_is_read() {
        for text in ["conv1.weight: 64x3x7x7", "bn1.running_mean: 64 buffer", "scale: scalar", "a: b: 2"] {
            assert_eq!(tensor(text).to_string(), text);
        }
        assert_eq!(tensor("a: b: 2").name, "a: b");
        assert_eq!(tensor("steps: scalar buffer").shape, [0_usize; 0]);
        for wrong in ["", "a", "a:2", "a: ", "a: 2x", "a: -1", "a: 2 buffers", "a: [2, 3]"] {
            let said = wrong.parse::<OpaqueTensor>().unwrap_err();
            assert!(said.contains("conv1.weight: 64x3x7x7"), "{said}");
        }
    }

    #[test]
    fn its_tensors_are_its_parameters() {
        let tensors =
            ["fc.weight: 2x3", "fc.bias: 2", "n.mean: 3 buffer", "n.steps: scalar buffer"].map(tensor);
        let network = Architecture::of_tensors("mine", tensors.to_vec());
        let specs = network.parameter_specs().unwrap();
        let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(names, ["fc.weight", "fc.bias", "n.mean", "n.steps"]);
        assert_eq!(network.parameters(), Ok(8));
        assert!(network.is_opaque() && network.has_buffers());
        let text = serde_json::to_string(&network).unwrap();
        assert_eq!(serde_json::from_str::<Architecture>(&text).unwrap(), network);
    }

    #[test]
    fn names_and_sizes_are_bounded() {
        let said = |tensors: &[&str]| {
            let network = Architecture::of_tensors("mine", tensors.iter().map(|text| tensor(text)).collect());
            network.parameter_specs().unwrap_err().to_string()
        };
        let long = format!("{}: 1", "a".repeat(MAX_TENSOR_NAME + 1));
        for (tensors, part) in [
            (&[][..], "1 to 5000 tensors"),
            (&["a: 2", "a: 2"], "another tensor"),
            (&["a: 0"], "at least 1"),
            (&["a b: 1"], "visible ASCII"),
            (&[&long[..]], "1 to 200"),
            (&["server.first-moment.a: 1"], "are taken"),
            (&["a: 1x1x1x1x1x1x1x1x1"], "at most 8 axes"),
            (&["a: 1073741824", "b: 1"], "parameters"),
            (&["a: 1073741824x1073741824x1073741824"], "limit"),
        ] {
            let said = said(tensors);
            assert!(said.contains(part), "no {part:?} in {said}");
        }
    }
}
