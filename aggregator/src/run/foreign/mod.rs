//! Weights of other libraries: a safetensors file with their names of tensors.

mod names;
pub(crate) mod pattern;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use models::params::foreign::{foreign_tensor, is_pickle, read_foreign};
use models::{Architecture, Array, ParamSet};
use safetensors::tensor::{SafeTensors, TensorView};

pub use names::NamesError;

use self::names::NameMap;
use super::initial_model_error::InitialModelError;
use super::misfit::{Misfit, NEAREST};
use crate::config::nearest_of;
use crate::storage::FileLayer;

/// What was taken of a file.
#[derive(Debug)]
pub(super) struct Taken {
    /// Under our names; those that are drawn anew are missing.
    pub(super) params: ParamSet,
    /// What the operator should know.
    pub(super) remarks: Vec<String>,
}

/// Takes the tensors of the network from a file, which calls them as the map `names` says. Those of which `is_fresh` are not looked for.
pub(super) fn read(
    files: &dyn FileLayer,
    place: &Path,
    names: &str,
    architecture: &Architecture,
    is_fresh: &dyn Fn(&str) -> bool,
) -> Result<Taken, InitialModelError> {
    let map = NameMap::find(files, names)?;
    let unreadable = |reason: String| InitialModelError::Unreadable { place: place.to_owned(), reason };
    let bytes = whole(files, place)?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| unreadable(error.to_string()))?;
    let mut there: BTreeMap<&str, TensorView<'_>> = file.iter().collect();
    let all: Vec<&str> = there.keys().copied().collect();
    let specs = architecture.all_parameter_specs();
    let specs = specs.expect("a configuration's architecture was checked when it was read");
    let (mut params, mut misfits, mut converted) = (ParamSet::new(), Vec::new(), BTreeMap::new());
    for spec in &specs {
        let theirs = map.theirs(&spec.name);
        if is_fresh(&spec.name) {
            // The head of another task is no superfluous tensor.
            theirs.iter().flatten().for_each(|name| drop(there.remove(name.as_str())));
            continue;
        }
        let Some(theirs) = theirs else {
            misfits.push(Misfit {
                tensor: spec.name.clone(),
                found: None,
                expected: Some(spec.shape.clone()),
                nearest: Vec::new(),
            });
            continue;
        };
        let views: Vec<Option<TensorView<'_>>> =
            theirs.iter().map(|name| there.remove(name.as_str())).collect();
        if let Some(missing) =
            views.iter().zip(&theirs).find_map(|(view, name)| view.is_none().then_some(name))
        {
            let near = nearest_of(missing, all.clone(), NEAREST).into_iter();
            let nearest =
                near.filter_map(|name| Some((name.to_owned(), file.tensor(name).ok()?.shape().to_vec())));
            let nearest = nearest.collect();
            let expected = Some(part_of(&spec.shape, theirs.len()));
            misfits.push(Misfit { tensor: missing.clone(), found: None, expected, nearest });
            continue;
        }
        let views: Vec<TensorView<'_>> = views.into_iter().flatten().collect();
        let part = part_of(&spec.shape, theirs.len());
        if let Some((view, name)) = views.iter().zip(&theirs).find(|(view, _)| view.shape() != part) {
            let (found, expected) = (Some(view.shape().to_vec()), Some(part));
            misfits.push(Misfit { tensor: name.clone(), found, expected, nearest: Vec::new() });
            continue;
        }
        let mut values = Vec::with_capacity(spec.shape.iter().product());
        for (view, name) in views.iter().zip(&theirs) {
            let tensor = foreign_tensor(name, view).map_err(|error| unreadable(error.to_string()))?;
            if tensor.is_integer {
                let kind = tensor.kind;
                return Err(unreadable(format!(
                    "`{name}` holds values of the kind {kind}, which are no parameters"
                )));
            }
            if tensor.kind != "F32" {
                *converted.entry(tensor.kind).or_insert(0_usize) += 1;
            }
            values.extend_from_slice(tensor.array.values());
        }
        let array =
            Array::new(spec.shape.as_slice(), values).map_err(|error| unreadable(error.to_string()))?;
        params.insert(spec.name.clone(), array);
    }
    if !misfits.is_empty() {
        let network = architecture.name.clone();
        return Err(InitialModelError::Misfit { place: place.to_owned(), network, misfits });
    }
    let left: Vec<&str> = there.into_keys().filter(|name| !map.ignores(name) && !is_fresh(name)).collect();
    let mut remarks = Vec::new();
    if !left.is_empty() {
        let shown = left.iter().take(NEAREST).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let more = left.len().saturating_sub(NEAREST);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        remarks.push(format!(
            "the network {} has no place for {shown}{more} of {}: not taken",
            architecture.name,
            place.display()
        ));
    }
    for (kind, count) in converted {
        let tensors = if count == 1 { "1 tensor is".to_owned() } else { format!("{count} tensors are") };
        remarks.push(format!("{tensors} {kind} in {} and F32 here", place.display()));
    }
    Ok(Taken { params, remarks })
}

/// The shape of each of `parts` tensors that lie one after the other in a tensor of this shape.
fn part_of(shape: &[usize], parts: usize) -> Vec<usize> {
    let mut part = shape.to_vec();
    if let Some(first) = part.first_mut() {
        *first /= parts.max(1);
    }
    part
}

/// The tensors of a network without layers, by the names that they have in the file.
pub(super) fn read_as_named(files: &dyn FileLayer, place: &Path) -> Result<ParamSet, InitialModelError> {
    let tensors = read_foreign(&whole(files, place)?).map_err(|error| InitialModelError::Unreadable {
        place: place.to_owned(),
        reason: error.to_string(),
    })?;
    Ok(tensors.into_iter().map(|(name, tensor)| (name, tensor.array)).collect())
}

/// A file's bytes, of which it is known that they are no pickle.
fn whole(files: &dyn FileLayer, place: &Path) -> Result<Vec<u8>, InitialModelError> {
    let unreadable = |reason: String| InitialModelError::Unreadable { place: place.to_owned(), reason };
    let mut bytes = Vec::new();
    let mut input = files.open(place).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            InitialModelError::Absent { place: place.to_owned(), reason: "the file is not there".to_owned() }
        }
        _ => unreadable(error.to_string()),
    })?;
    input.read_to_end(&mut bytes).map_err(|error| unreadable(error.to_string()))?;
    if is_pickle(&bytes) {
        return Err(InitialModelError::Pickle { place: place.to_owned() });
    }
    Ok(bytes)
}
