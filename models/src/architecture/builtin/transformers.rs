//! Transformers, whose blocks normalise first.

use super::{Given, Parts, linear};
use crate::architecture::Layer;

/// The tiny vision transformer of Touvron et al. (ICML 2021) for patches of 16x16 pixels: 5 717 416 parameters for 3x224x224 and a
/// thousand classes.
///
/// Layers are called as in `timm` (`vit_tiny_patch16_224`), with `-` for `.`: `extractor.blocks-0-attn-qkv.weight` is its
/// `blocks.0.attn.qkv.weight`. Its `cls_token` and `pos_embed` are `extractor.cls_token.weight` and `extractor.pos_embed.weight`, and
/// come after those of `patch_embed.proj`. All shapes are the same.
pub(super) fn vit_tiny(given: &Given<'_>) -> Parts {
    const PATCH: usize = 16;
    let named = str::to_owned;
    let mut extractor = vec![
        Layer::Conv {
            name: named("patch_embed-proj"),
            out: 192,
            kernel: PATCH,
            stride: PATCH,
            padding: 0,
            bias: true,
        },
        Layer::ToSequence,
        Layer::ClassToken { name: named("cls_token") },
        Layer::Positions { name: named("pos_embed") },
    ];
    let settings = Block { features: 192, heads: 3, causal: false, dropout: 0.0, epsilon: 1e-6 };
    (0..12).for_each(|number| extractor.extend(settings.layers(number)));
    extractor.extend([settings.norm(named("norm")), Layer::FirstPosition]);
    Parts::plain(extractor, vec![linear("head", given.classes)])
}

/// A transformer of four blocks of 256 features. Positions are waves, so that it takes sequences of any length. It predicts the
/// next token at each position, and sees those before alone; with `V` tokens 3 159 552 + 513 `V` parameters. Given a vocabulary it
/// sees all of a text, and tells texts apart by the mean over the positions: with `C` classes 3 159 552 + 256 `V` + 257 `C`.
pub(super) fn text_transformer(given: &Given<'_>) -> Parts {
    let embedding = Layer::Embedding { name: "embedding".to_owned(), vocabulary: given.tokens(), dim: 256 };
    let settings =
        Block { features: 256, heads: 4, causal: given.vocabulary.is_none(), dropout: 0.1, epsilon: 1e-5 };
    let mut extractor =
        vec![embedding, Layer::SinusoidalPositions, Layer::Dropout { rate: settings.dropout }];
    (0..4).for_each(|number| extractor.extend(settings.layers(number)));
    extractor.push(settings.norm("norm".to_owned()));
    extractor.extend(given.whole_text());
    Parts::plain(extractor, vec![linear("fc", given.classes)])
}

/// What the blocks of a transformer have in common.
struct Block {
    features: usize,
    heads: usize,
    causal: bool,
    /// The rate of dropout after attention and after the two linear layers; none if 0.
    dropout: f64,
    epsilon: f64,
}

impl Block {
    /// Self-attention, then two linear layers with four times as many features between them, each added to its input.
    fn layers(&self, number: usize) -> [Layer; 2] {
        let name = |name: &str| format!("blocks-{number}-{name}");
        let Self { features, heads, causal, .. } = *self;
        let attention = vec![
            self.norm(name("norm1")),
            linear(&name("attn-qkv"), 3 * features),
            Layer::Attention { heads, causal },
            linear(&name("attn-proj"), features),
        ];
        let perceptron = vec![
            self.norm(name("norm2")),
            linear(&name("mlp-fc1"), 4 * features),
            Layer::Gelu,
            linear(&name("mlp-fc2"), features),
        ];
        [attention, perceptron].map(|mut body| {
            if self.dropout > 0.0 {
                body.push(Layer::Dropout { rate: self.dropout });
            }
            Layer::Residual { body, shortcut: vec![] }
        })
    }

    fn norm(&self, name: String) -> Layer {
        Layer::LayerNorm { name, epsilon: self.epsilon }
    }
}
