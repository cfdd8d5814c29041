//! Weights of an export: one safetensors file, written a model at a time.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use models::params::codec;
use models::{Array, ParamSet};
use shared::algorithm::Fusion;

use super::plan::{Plan, Planned};
use super::{Subject, Target};

/// The tensors of an export, in the order of the layers.
pub struct Weights<'a> {
    subject: Subject<'a>,
    target: Target,
    tensors: Vec<Tensor>,
}

struct Tensor {
    name: String,
    shape: Vec<usize>,
    origin: Origin,
}

/// Where the values of a tensor come from.
enum Origin {
    /// A tensor of a model: its number in the ensemble, 0 of a single model, and its name there.
    Model(usize, String),
    Zeros,
    Values(Vec<f32>),
}

impl<'a> Weights<'a> {
    pub(super) fn of(subject: Subject<'a>, plan: &Plan, target: Target) -> Self {
        let of = |number: usize, prefix: &str| {
            let tensor = |planned: &Planned| {
                let name = match target {
                    Target::Torch => &planned.torch,
                    Target::Numpy => planned.numpy.as_ref()?,
                };
                let origin = planned.ours.clone().map_or(Origin::Zeros, |ours| Origin::Model(number, ours));
                Some(Tensor { name: format!("{prefix}{name}"), shape: planned.shape.clone(), origin })
            };
            plan.tensors.iter().filter_map(tensor).collect::<Vec<_>>()
        };
        let tensors = match subject {
            Subject::Model(..) => of(0, ""),
            Subject::Ensemble(bundle, fusion) => {
                let members = bundle.manifest.members.len();
                let mut tensors: Vec<_> =
                    (0..members).flat_map(|member| of(member, &format!("members.{member}."))).collect();
                let mut add = |name: &str, shape: Vec<usize>, values: Vec<f32>| {
                    tensors.push(Tensor { name: name.to_owned(), shape, origin: Origin::Values(values) });
                };
                let architecture = &bundle.manifest.architecture;
                if fusion.is_of_features() {
                    let shape = vec![architecture.classes, bundle.dimensions()];
                    add("prototypes", shape, bundle.prototypes.clone());
                }
                match fusion {
                    Fusion::Informative => {
                        add("noise", [&[1], &architecture.input[..]].concat(), bundle.manifest.noise(0));
                    }
                    Fusion::Size | Fusion::Logits | Fusion::Probabilities => {
                        let shares =
                            (0..members).map(|member| bundle.manifest.share(member) as f32).collect();
                        add("shares", vec![members], shares);
                    }
                    Fusion::Uniform => {}
                }
                tensors
            }
        };
        Self { subject, target, tensors }
    }

    /// The number of tensors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there are none, as of a network without parameters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// Writes the file.
    ///
    /// # Errors
    /// Those of `out`, and of the ensemble's file.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        // What libraries of Python call the framework that the names are for.
        let format = match self.target {
            Target::Torch => "pt",
            Target::Numpy => "np",
        };
        let metadata = BTreeMap::from([("format".to_owned(), format.to_owned())]);
        let shapes = self.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.shape.as_slice()));
        codec::write_header(shapes, &metadata, out)?;
        let mut open: Option<(usize, ParamSet)> = None;
        for tensor in &self.tensors {
            match &tensor.origin {
                Origin::Zeros => codec::write_values(&vec![0.0; tensor.shape.iter().product()], out)?,
                Origin::Values(values) => codec::write_values(values, out)?,
                Origin::Model(number, name) => {
                    let params = match (self.subject, &mut open) {
                        (Subject::Model(_, params, _), _) => params,
                        (Subject::Ensemble(..), Some((opened, params))) if opened == number => &*params,
                        (Subject::Ensemble(bundle, _), open) => {
                            let params = bundle.member(*number).map_err(io::Error::other)?;
                            &open.insert((*number, params)).1
                        }
                    };
                    let array = params.get(name).expect("the parameters were read for this architecture");
                    codec::write_values(&usable(name, array), out)?;
                }
            }
        }
        Ok(())
    }
}

/// The values of a tensor as other programs can use them. A running variance that was sent as a difference in few bits may be slightly
/// negative by rounding: our engines take 0 for it, and others its root.
pub(super) fn usable<'a>(name: &str, array: &'a Array) -> Cow<'a, [f32]> {
    let values = array.values();
    if name.ends_with(".running-var") && values.iter().any(|&variance| variance < 0.0) {
        return Cow::Owned(values.iter().map(|variance| variance.max(0.0)).collect());
    }
    Cow::Borrowed(values)
}

/// All tensors as other programs can use them.
pub(super) fn all_usable(params: &ParamSet) -> Cow<'_, ParamSet> {
    let mut all = Cow::Borrowed(params);
    for (name, array) in params {
        if let Cow::Owned(values) = usable(name, array) {
            let own = all.to_mut().get_mut(name).expect("a copy of the set has the same tensors");
            own.values_mut().copy_from_slice(&values);
        }
    }
    all
}
