//! The tensors of an ensemble's file.

use std::io::Read;

use models::Precision;
use models::params::codec::TensorStream;

use super::Manifest;
use crate::algorithm::Head;
use crate::algorithm::answering::prototypes_of;

/// The name of the fused prototypes, which sorts after all members. Classifiers have none.
pub const PROTOTYPES: &str = "prototypes";

/// The prefix of the names of a member's tensors.
#[must_use]
pub fn prefix(member: usize) -> String {
    format!("member.{member:06}.")
}

/// Names and shapes of a member's parameters, ordered by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Each tensor and its shape.
    pub tensors: Vec<(String, Vec<usize>)>,
    /// The tensor of a member's own prototypes, and its shape, if it has prototypes.
    pub prototypes: Option<(String, Vec<usize>)>,
}

impl Layout {
    /// The layout of this ensemble's members.
    ///
    /// # Errors
    /// A message that says why its architecture is none of an ensemble.
    pub fn of(manifest: &Manifest) -> Result<Self, String> {
        let specs = manifest.architecture.parameter_specs().map_err(|error| error.to_string())?;
        let mut tensors: Vec<_> = specs.into_iter().map(|spec| (spec.name, spec.shape)).collect();
        tensors.sort();
        if manifest.answering.head == Head::Classifier {
            return Ok(Self { tensors, prototypes: None });
        }
        let name = prototypes_of(&manifest.architecture)
            .ok_or_else(|| "the last layer of its architecture is not linear without bias".to_owned())?;
        let found = tensors.iter().find(|(tensor, _)| *tensor == name).cloned();
        let prototypes = found.ok_or_else(|| format!("its architecture has no tensor `{name}`"))?;
        Ok(Self { tensors, prototypes: Some(prototypes) })
    }

    /// Number of values of one member.
    #[must_use]
    pub fn values(&self) -> usize {
        self.tensors.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
    }

    /// All tensors of an ensemble with this many members, in the order of their data.
    pub fn of_ensemble(&self, members: usize) -> impl Iterator<Item = (String, &[usize])> {
        let member = |member| {
            let prefix = prefix(member);
            self.tensors.iter().map(move |(name, shape)| (format!("{prefix}{name}"), shape.as_slice()))
        };
        let last = self.prototypes.iter().map(|(_, shape)| (PROTOTYPES.to_owned(), shape.as_slice()));
        (0..members).flat_map(member).chain(last)
    }

    /// Checks the tensors of a file against those that the members need.
    ///
    /// # Errors
    /// A message that names the first difference.
    pub fn check<R: Read>(&self, members: usize, stream: &TensorStream<R>) -> Result<(), String> {
        let mut found = stream.tensors();
        for (name, shape) in self.of_ensemble(members) {
            match found.next() {
                Some((tensor, ..)) if tensor != name => {
                    return Err(format!("tensor `{name}` is missing, where `{tensor}` stands"));
                }
                Some((_, other, _)) if other != shape => {
                    return Err(format!("tensor `{name}` has the shape {other:?} instead of {shape:?}"));
                }
                Some((_, _, precision)) if precision != Precision::F32 => {
                    return Err(format!("tensor `{name}` is in {precision} and not in 32 bits"));
                }
                Some(_) => {}
                None => return Err(format!("tensor `{name}` is missing")),
            }
        }
        match found.next() {
            Some((tensor, ..)) => Err(format!("tensor `{tensor}` is too many")),
            None => Ok(()),
        }
    }
}
