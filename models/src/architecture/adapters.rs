//! Low-rank adapters: a pair of small linear layers beside a frozen one, which learns in its place.
//!
//! Hu et al.: *`LoRA`: Low-Rank Adaptation of Large Language Models*, ICLR 2022 (arXiv 2106.09685), section 4.1.
//!
//! ```text
//! y = W x + b + B (A x),   A: rank x inputs, drawn;   B: outputs x rank, 0 in the beginning
//! ```
//!
//! The product is added as it is: the paper's `alpha` is the rank. A network with adapters is one of residual blocks, so that the engines
//! know nothing of them, and what is frozen keeps its names. [`Architecture::merged`] adds `B A` to `W`: the network without adapters.

use std::collections::BTreeSet;

use super::frozen::matches;
use super::{Architecture, ArchitectureError, Frozen, Layer};
use crate::params::{Array, ParamSet};

/// How the names of an adapter's layers end: A, and B.
const ENDINGS: [&str; 2] = ["-lora-a", "-lora-b"];

/// Why a network cannot have these adapters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdapterError {
    /// A pattern names no linear layer.
    #[error("no weight of a linear layer has a name such as {pattern:?}; there are {}", .linear.join(", "))]
    Nothing {
        /// The pattern.
        pattern: String,
        /// Weights of linear layers, as many as a message has room for.
        linear: Vec<String>,
    },
    /// The network with them is none.
    #[error(transparent)]
    Architecture(#[from] ArchitectureError),
}

impl Architecture {
    /// This network with adapters of `rank` beside all linear layers whose weights have names that one of the patterns stands for.
    /// All else is frozen but for what `learned` says to be learned as well, such as a new head.
    ///
    /// # Errors
    /// [`AdapterError`].
    pub fn with_adapters(
        &self,
        rank: usize,
        on: &[String],
        learned: &dyn Fn(&str) -> bool,
    ) -> Result<Self, AdapterError> {
        let linear: Vec<String> = self.linear_weights();
        if let Some(pattern) = on.iter().find(|pattern| !linear.iter().any(|name| matches(pattern, name))) {
            const SHOWN: usize = 4;
            let linear = linear.into_iter().take(SHOWN).collect();
            return Err(AdapterError::Nothing { pattern: pattern.clone(), linear });
        }
        let mut adapted = self.clone();
        for (part, layers) in adapted.parts_mut() {
            for layer in layers {
                adapt(layer, rank, &|name| {
                    let weight = format!("{part}.{name}.weight");
                    on.iter().any(|pattern| matches(pattern, &weight)) && !learned(&weight)
                });
            }
        }
        let specs = adapted.all_parameter_specs()?;
        let names = specs.into_iter().map(|spec| spec.name);
        let frozen = names.filter(|name| !is_adapter(name) && !learned(name)).collect();
        adapted.frozen = Some(Frozen::named(frozen));
        Ok(adapted)
    }

    /// The weights of all linear layers, in their order.
    pub(super) fn linear_weights(&self) -> Vec<String> {
        fn collect(part: &str, layers: &[Layer], names: &mut Vec<String>) {
            for layer in layers {
                match layer {
                    Layer::Linear { name, .. } => names.push(format!("{part}.{name}.weight")),
                    Layer::Residual { body, shortcut } => {
                        collect(part, body, names);
                        collect(part, shortcut, names);
                    }
                    Layer::SqueezeExcite { body } => collect(part, body, names),
                    _ => {}
                }
            }
        }
        let mut names = Vec::new();
        self.parts().iter().for_each(|(part, layers)| collect(part, layers, &mut names));
        names
    }

    /// Whether it has adapters.
    #[must_use]
    pub fn has_adapters(&self) -> bool {
        self.linear_weights().iter().any(|name| is_adapter(name))
    }

    /// Sets what of the adapters begins with 0, so that the network begins as the one without them.
    pub fn begin_adapters(&self, params: &mut ParamSet) {
        let ending = format!("{}.weight", ENDINGS[1]);
        let names: Vec<String> =
            params.names().filter(|name| name.ends_with(&ending)).map(str::to_owned).collect();
        for name in names {
            if let Some(mut array) = params.remove(&name) {
                array.values_mut().fill(0.0);
                params.insert(name, array);
            }
        }
    }

    /// The network without adapters that does the same as this one with all of its parameters, and its parameters. Nothing of it is
    /// frozen.
    #[must_use]
    pub fn merged(&self, mut whole: ParamSet) -> (Self, ParamSet) {
        let mut merged = self.unfrozen();
        let adapted: BTreeSet<String> = self
            .linear_weights()
            .into_iter()
            .filter_map(|name| name.strip_suffix(&format!("{}.weight", ENDINGS[0])).map(str::to_owned))
            .collect();
        for name in adapted {
            let [down, up] = ENDINGS.map(|ending| whole.remove(&format!("{name}{ending}.weight")));
            let weight = format!("{name}.weight");
            if let (Some(down), Some(up), Some(base)) = (down, up, whole.remove(&weight)) {
                whole.insert(weight, plus_product(base, &up, &down));
            }
        }
        for (_, layers) in merged.parts_mut() {
            layers.iter_mut().for_each(merge);
        }
        (merged, whole)
    }
}

/// Whether a parameter is an adapter's.
#[must_use]
pub fn is_adapter(name: &str) -> bool {
    ENDINGS.iter().any(|ending| name.strip_suffix(".weight").is_some_and(|layer| layer.ends_with(ending)))
}

/// Puts adapters beside the linear layers that `wanted` names.
fn adapt(layer: &mut Layer, rank: usize, wanted: &dyn Fn(&str) -> bool) {
    match layer {
        Layer::Linear { name, out, .. } if wanted(name) => {
            let [down, up] = ENDINGS.map(|ending| format!("{name}{ending}"));
            let body = vec![
                Layer::Linear { name: down, out: rank, bias: false },
                Layer::Linear { name: up, out: *out, bias: false },
            ];
            *layer = Layer::Residual { body, shortcut: vec![layer.clone()] };
        }
        Layer::Residual { body, shortcut } => {
            body.iter_mut().chain(shortcut).for_each(|layer| adapt(layer, rank, wanted));
        }
        Layer::SqueezeExcite { body } => body.iter_mut().for_each(|layer| adapt(layer, rank, wanted)),
        _ => {}
    }
}

/// Takes adapters away.
fn merge(layer: &mut Layer) {
    match layer {
        Layer::Residual { body, shortcut } => match (&body[..], &shortcut[..]) {
            (
                [Layer::Linear { name: down, .. }, Layer::Linear { .. }],
                [linear @ Layer::Linear { name, .. }],
            ) if down.strip_suffix(ENDINGS[0]) == Some(name) => {
                *layer = linear.clone();
            }
            _ => body.iter_mut().chain(shortcut).for_each(merge),
        },
        Layer::SqueezeExcite { body } => body.iter_mut().for_each(merge),
        _ => {}
    }
}

/// `W + B A`, each value of the product summed in double precision.
fn plus_product(mut base: Array, up: &Array, down: &Array) -> Array {
    let (&[_, rank], &[_, inputs]) = (up.shape(), down.shape()) else { return base };
    let (up, down) = (up.values().to_vec(), down.values().to_vec());
    let rows = base.values_mut().chunks_exact_mut(inputs).zip(up.chunks_exact(rank));
    for (row, factors) in rows {
        let mut sums = vec![0.0_f64; inputs];
        for (&factor, line) in factors.iter().zip(down.chunks_exact(inputs)) {
            sums.iter_mut().zip(line).for_each(|(sum, &value)| *sum += f64::from(factor) * f64::from(value));
        }
        row.iter_mut().zip(sums).for_each(|(value, sum)| *value = (f64::from(*value) + sum) as f32);
    }
    base
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::architecture::encode_frozen;
    use crate::{Backend, Mode, Network};

    /// A transformer with adapters on its attention and a new head, and all of its parameters.
    fn adapted() -> (Architecture, Architecture, ParamSet) {
        let plain = Architecture::by_name("vit-tiny", &[3, 32, 32], 5).unwrap();
        let on = vec!["*attn-*".to_owned()];
        let adapted = plain.with_adapters(3, &on, &|name| name.starts_with("head.")).unwrap();
        let params = adapted.initialise(|name| ChaCha8Rng::seed_from_u64(name.len() as u64)).unwrap();
        (plain, adapted, params)
    }

    fn logits(architecture: &Architecture, whole: &ParamSet) -> Vec<f32> {
        let (learned, frozen) = architecture.divide(whole.clone());
        let architecture = match architecture.frozen {
            Some(_) => architecture.clone().with_frozen(&encode_frozen(&frozen).into()).unwrap(),
            None => architecture.clone(),
        };
        let mut network = Network::new(&architecture, &learned, &Backend::cpu()).unwrap();
        let x: Vec<f32> = (0..2 * 3 * 32 * 32).map(|pixel| (pixel * 37 % 251) as f32 / 251.0).collect();
        network.forward(&x, &[2, 3, 32, 32], Mode::Evaluation).unwrap();
        network.logits().to_vec()
    }

    #[test]
    fn adapters_and_the_head_are_learned_and_nothing_else() {
        let (plain, adapted, whole) = adapted();
        let (learned, frozen) = adapted.divide(whole);
        assert!(learned.names().all(|name| is_adapter(name) || name.starts_with("head.")));
        // Twelve blocks with two linear layers of attention each.
        assert_eq!(learned.names().filter(|name| is_adapter(name)).count(), 12 * 2 * 2);
        // The head has a weight and a bias.
        assert_eq!(frozen.len() + 2, plain.parameter_specs().unwrap().len());
        assert!(adapted.has_adapters() && !plain.has_adapters());
    }

    #[test]
    fn in_the_beginning_they_do_nothing_and_merged_they_do_the_same() {
        let (plain, adapted, mut whole) = adapted();
        adapted.begin_adapters(&mut whole);
        let mut without = whole.clone();
        let names: Vec<String> = without.names().filter(|name| is_adapter(name)).map(str::to_owned).collect();
        for name in &names {
            drop(without.remove(name));
        }
        assert_eq!(logits(&adapted, &whole), logits(&plain, &without));
        // As they are after some training.
        for name in names {
            let mut array = whole.remove(&name).unwrap();
            array
                .values_mut()
                .iter_mut()
                .zip(0..)
                .for_each(|(value, at)| *value += (at % 7) as f32 * 0.01 - 0.03);
            whole.insert(name, array);
        }
        let (merged, params) = adapted.merged(whole.clone());
        assert_eq!(merged, plain);
        let (with, without) = (logits(&adapted, &whole), logits(&merged, &params));
        assert_ne!(
            with,
            logits(
                &plain,
                &adapted
                    .merged({
                        adapted.begin_adapters(&mut whole);
                        whole
                    })
                    .1
            )
        );
        for (with, without) in with.iter().zip(&without) {
            assert!((with - without).abs() < 1e-4, "{with} and {without}");
        }
    }

    #[test]
    fn a_pattern_that_names_no_linear_layer_is_refused() {
        let plain = Architecture::by_name("lenet-5", &[1, 28, 28], 10).unwrap();
        let said =
            plain.with_adapters(2, &["*.conv1.weight".to_owned()], &|_| false).unwrap_err().to_string();
        assert!(said.contains("*.conv1.weight") && said.contains("fc"), "{said}");
    }
}
