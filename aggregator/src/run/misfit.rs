//! Tensors in which a model and a network differ, with the names that may have been meant.

use std::fmt::{self, Display};

use models::shape::spelled;
use models::{Architecture, ParamSet};

use crate::config::nearest_of;

/// A tensor in which a model and a network differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Its name.
    pub tensor: String,
    /// Its shape in the model, if it is there.
    pub found: Option<Vec<usize>>,
    /// Its shape in the network, if it is there.
    pub expected: Option<Vec<usize>>,
    /// Where one side lacks it: the names there that are nearest to it, with their shapes.
    pub nearest: Vec<(String, Vec<usize>)>,
}

impl Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tensor, found, expected, nearest } = self;
        match (found, expected) {
            (Some(found), Some(expected)) => {
                write!(f, "`{tensor}` is {} in it and {} here", spelled(found), spelled(expected))?;
            }
            (None, Some(shape)) => write!(f, "it lacks `{tensor}` ({})", spelled(shape))?,
            (Some(shape), None) => {
                write!(f, "it has `{tensor}` ({}), which the network lacks", spelled(shape))?;
            }
            (None, None) => write!(f, "`{tensor}`")?,
        }
        if nearest.is_empty() {
            return Ok(());
        }
        let names = nearest.iter().map(|(name, shape)| format!("`{name}` ({})", spelled(shape)));
        write!(f, "; nearest are {}", names.collect::<Vec<_>>().join(", "))
    }
}

/// Names that are offered for one.
pub(super) const NEAREST: usize = 3;

/// The first of them in words.
pub(super) fn listed(misfits: &[Misfit]) -> String {
    /// Tensors that are named.
    const NAMED: usize = 3;
    let named = misfits.iter().take(NAMED).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let more = misfits.len().saturating_sub(NAMED);
    if more == 0 { named } else { format!("{named}; and {more} more") }
}

/// In which tensors the network and these parameters differ, in the order of the network, and then what it lacks.
pub(super) fn misfits(architecture: &Architecture, params: &ParamSet) -> Vec<Misfit> {
    let specs = architecture.all_parameter_specs();
    let specs = specs.expect("a configuration's architecture was checked when it was read");
    let shape_of = |name: &str| specs.iter().find(|spec| spec.name == name).map(|spec| spec.shape.clone());
    let nearest = |name: &str, names: Vec<&str>, shape: &dyn Fn(&str) -> Option<Vec<usize>>| {
        let near = nearest_of(name, names, NEAREST).into_iter();
        near.filter_map(|near| Some((near.to_owned(), shape(near)?))).collect()
    };
    let in_it = |name: &str| params.get(name).map(|array| array.shape().to_vec());
    let mut misfits = Vec::new();
    for spec in &specs {
        let (found, expected) = (in_it(&spec.name), Some(spec.shape.clone()));
        if found != expected {
            let others = if found.is_none() { params.names().collect() } else { Vec::new() };
            let nearest = nearest(&spec.name, others, &in_it);
            misfits.push(Misfit { tensor: spec.name.clone(), found, expected, nearest });
        }
    }
    for (name, array) in params.iter().filter(|(name, _)| shape_of(name).is_none()) {
        let others = specs.iter().map(|spec| spec.name.as_str()).collect();
        let (tensor, found) = (name.to_owned(), Some(array.shape().to_vec()));
        misfits.push(Misfit { tensor, found, expected: None, nearest: nearest(name, others, &shape_of) });
    }
    misfits
}
