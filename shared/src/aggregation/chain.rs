//! Networks whose hidden units can be matched: one layer after the other.

use models::{Architecture, Layer};

/// Why the hidden units of a network cannot be matched layer by layer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAChain {
    /// A layer of this kind.
    #[error(
        "the rule fedma matches units of convolutions and linear layers that stand one after the other, and the model has \
         {layer}"
    )]
    Layer {
        /// What stands there, for people.
        layer: &'static str,
    },
    /// The architecture itself makes no sense.
    #[error("the model makes no sense: {reason}")]
    Architecture {
        /// Why.
        reason: String,
    },
}

/// The layers with parameters of such a network, in the order in which they are applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain(Vec<Link>);

/// One of its layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// The tensor of its weights: a row for each unit.
    pub(super) weight: String,
    /// That of its biases: a value for each unit.
    pub(super) bias: Option<String>,
    /// Its units: features of a linear layer, channels of a convolution.
    pub(super) units: usize,
    /// The units that it reads: those of the layer before, 1 for the input as a whole.
    pub(super) inputs: usize,
    /// Weights of a unit for each unit that it reads, in the order of these: kernels, or pixels of a flattened channel.
    pub(super) block: usize,
}

impl Chain {
    /// That of a network.
    ///
    /// # Errors
    /// [`NotAChain`] for one with normalisation, residual blocks, embeddings or recurrence: their units are tied to others.
    pub fn of(architecture: &Architecture) -> Result<Self, NotAChain> {
        if architecture.is_opaque() {
            return Err(NotAChain::Layer { layer: "none here, but tensors alone" });
        }
        let specs = architecture
            .parameter_specs()
            .map_err(|error| NotAChain::Architecture { reason: error.to_string() })?;
        let shape =
            |name: &str| specs.iter().find(|spec| spec.name == name).map(|spec| spec.shape.as_slice());
        let mut links: Vec<Link> = Vec::new();
        for (part, layers) in architecture.parts() {
            for layer in layers {
                let (name, units) = match layer {
                    Layer::Conv { name, out, .. } | Layer::Linear { name, out, .. } => (name, *out),
                    Layer::Relu
                    | Layer::Relu6
                    | Layer::HardSigmoid
                    | Layer::HardSwish
                    | Layer::Sigmoid
                    | Layer::Silu
                    | Layer::Gelu
                    | Layer::Dropout { .. }
                    | Layer::MaxPool { .. }
                    | Layer::AvgPool { .. }
                    | Layer::ZeroPad { .. }
                    | Layer::GlobalAvgPool
                    | Layer::Flatten => continue,
                    Layer::GroupedConv { .. } => {
                        return Err(NotAChain::Layer { layer: "a grouped convolution" });
                    }
                    Layer::BatchNorm { .. }
                    | Layer::BatchNormWith { .. }
                    | Layer::GroupNorm { .. }
                    | Layer::LayerNorm { .. }
                    | Layer::SimplexEtf { .. }
                    | Layer::LocalResponseNorm { .. } => {
                        return Err(NotAChain::Layer { layer: "a normalisation" });
                    }
                    Layer::Residual { .. } => return Err(NotAChain::Layer { layer: "a residual block" }),
                    Layer::SqueezeExcite { .. } => {
                        return Err(NotAChain::Layer { layer: "a squeeze-and-excitation block" });
                    }
                    Layer::ToSequence
                    | Layer::ClassToken { .. }
                    | Layer::Positions { .. }
                    | Layer::SinusoidalPositions
                    | Layer::Attention { .. }
                    | Layer::FirstPosition
                    | Layer::MeanPositions => return Err(NotAChain::Layer { layer: "a layer of sequences" }),
                    Layer::Embedding { .. } => return Err(NotAChain::Layer { layer: "an embedding" }),
                    Layer::Lstm { .. } => return Err(NotAChain::Layer { layer: "a recurrence" }),
                };
                let weight = format!("{part}.{name}.weight");
                let bias = format!("{part}.{name}.bias");
                let row: usize = shape(&weight).map_or(0, |shape| shape.iter().skip(1).product());
                let inputs = links.last().map_or(1, |before| before.units);
                if inputs == 0 || !row.is_multiple_of(inputs) {
                    return Err(NotAChain::Layer { layer: "a layer that mixes the units of the one before" });
                }
                let bias = shape(&bias).map(|_| bias);
                links.push(Link { weight, bias, units, inputs, block: row / inputs });
            }
        }
        Ok(Self(links))
    }

    /// How many pairs of weights are compared to match one client's units: for each layer but the last, of every unit of the global
    /// model with every unit of the client.
    #[must_use]
    pub fn comparisons(&self) -> u64 {
        let matched = self.0.iter().rev().skip(1);
        let of = |link: &Link| (link.units * link.units) as u64 * (link.inputs * link.block) as u64;
        matched.map(of).fold(0, u64::saturating_add)
    }

    /// Its layers; the units of the last are the classes, which have names.
    pub(super) fn links(&self) -> &[Link] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(model: &str, shape: &[usize]) -> Result<Chain, NotAChain> {
        Chain::of(&Architecture::by_name(model, shape, 10).expect(model))
    }

    #[test]
    fn units_and_what_they_read() {
        let sizes = |model: &str| -> Vec<(usize, usize, usize)> {
            let chain = chain(model, &[1, 28, 28]).expect(model);
            chain.links().iter().map(|link| (link.units, link.inputs, link.block)).collect()
        };
        assert_eq!(sizes("mlp-2nn"), [(200, 1, 784), (200, 200, 1), (10, 200, 1)]);
        // Channels of 7 by 7 pixels are flattened before the first linear layer.
        assert_eq!(sizes("cnn-mnist"), [(32, 1, 25), (64, 32, 25), (512, 64, 49), (10, 512, 1)]);
        assert_eq!(sizes("linear"), [(10, 1, 784)]);
        let comparisons = |model: &str| chain(model, &[1, 28, 28]).expect(model).comparisons();
        assert_eq!((comparisons("mlp-2nn"), comparisons("linear")), (200 * 200 * 784 + 200 * 200 * 200, 0));
    }

    #[test]
    fn other_networks_are_refused_with_what_is_in_the_way() {
        let mut normalised = Architecture::by_name("linear", &[1, 28, 28], 10).expect("linear");
        normalised.head.insert(1, Layer::BatchNorm { name: "norm".to_owned() });
        assert_eq!(Chain::of(&normalised), Err(NotAChain::Layer { layer: "a normalisation" }));
        for name in models::BUILT_INS.iter().map(|built_in| built_in.name) {
            let shape: &[usize] = if name == "char-lstm" { &[80] } else { &[3, 32, 32] };
            let Ok(architecture) = Architecture::by_name(name, shape, 90) else { continue };
            let refused = Chain::of(&architecture).is_err();
            let text = format!("{architecture:?}");
            let tied = ["Norm", "Residual", "Embedding", "Lstm"].iter().any(|layer| text.contains(layer));
            assert_eq!(refused, tied, "{name}");
        }
    }
}
