//! The parameters of a network on a device.

use std::collections::{BTreeMap, BTreeSet};

use candle_core::{Device, Result, Tensor, Var};

use super::{to_device, to_host};
use crate::params::{Array, ParamSet};

/// All parameters, of which some are frozen: no gradient flows into them, and sets of parameters do not hold them.
pub(crate) struct Variables {
    all: BTreeMap<String, Var>,
    frozen: BTreeSet<String>,
}

impl Variables {
    /// A copy of these parameters on a device.
    pub(super) fn new(params: &ParamSet, is_frozen: impl Fn(&str) -> bool, device: &Device) -> Result<Self> {
        let variable = |(name, array): (&str, &Array)| {
            Ok((name.to_owned(), Var::from_slice(array.values(), array.shape(), device)?))
        };
        let all: BTreeMap<String, Var> = params.iter().map(variable).collect::<Result<_>>()?;
        let frozen = all.keys().filter(|name| is_frozen(name)).cloned().collect();
        Ok(Self { all, frozen })
    }

    /// Those that sets of parameters hold, in the order of their names.
    pub(super) fn changing(&self) -> impl Iterator<Item = (&String, &Var)> {
        self.all.iter().filter(|(name, _)| !self.frozen.contains(*name))
    }

    /// One of these.
    pub(super) fn get(&self, name: &str) -> Option<&Var> {
        self.all.get(name).filter(|_| !self.is_frozen(name))
    }

    /// Any parameter, in host memory.
    pub(super) fn value(&self, name: &str) -> Result<Option<Array>> {
        self.all.get(name).map(|variable| to_host(variable)).transpose()
    }

    /// Any parameter, for layers: changes of the variable are seen in it. A frozen one takes no gradient.
    pub(super) fn tensor(&self, name: &str) -> Option<Tensor> {
        let variable = self.all.get(name)?;
        Some(if self.is_frozen(name) { variable.as_detached_tensor() } else { variable.as_tensor().clone() })
    }

    /// A statistic that a layer moves itself.
    ///
    /// # Panics
    /// If there is none of this name: the parameters were checked against the architecture.
    pub(super) fn buffer(&self, name: &str) -> Var {
        self.all.get(name).cloned().expect("the parameters were checked against the architecture")
    }

    pub(super) fn is_frozen(&self, name: &str) -> bool {
        self.frozen.contains(name)
    }

    /// Replaces the values of those that sets of parameters hold.
    pub(super) fn load(&self, params: &ParamSet, device: &Device) -> Result<()> {
        for ((_, variable), (_, array)) in self.changing().zip(params) {
            variable.set(&to_device(array, device)?)?;
        }
        Ok(())
    }
}
