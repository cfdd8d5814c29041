//! Shape inference for each kind of layer.

use super::Inference;
use crate::architecture::MAX_ELEMENTS;
use crate::architecture::specs::{Initial, ParameterKind, check_size, too_large};
use crate::architecture::{ArchitectureError, Layer, Quantity};
use crate::kernels::pooling::{MAX_WINDOW, along};

/// The largest vocabulary: samples hold tokens as f32, which represents every integer up to 2^24.
const MAX_VOCABULARY: usize = 1 << 24;

/// A layer and the shape of its input, for errors.
#[derive(Clone, Copy)]
struct Place<'a> {
    label: &'a str,
    got: &'a [usize],
}

impl Place<'_> {
    fn image(self) -> Result<[usize; 3], ArchitectureError> {
        self.got.try_into().map_err(|_| self.needs("[channels, height, width]"))
    }

    fn sequence(self) -> Result<[usize; 2], ArchitectureError> {
        self.got.try_into().map_err(|_| self.needs("[positions, features]"))
    }

    fn needs(self, needs: impl Into<String>) -> ArchitectureError {
        ArchitectureError::Input { layer: self.label.to_owned(), needs: needs.into(), got: self.got.to_vec() }
    }

    fn wrong(self, problem: &'static str) -> ArchitectureError {
        ArchitectureError::Layer { layer: self.label.to_owned(), problem }
    }
}

impl Inference {
    /// Adds one layer and returns the shape of its output.
    pub(super) fn layer(
        &mut self,
        layer: &Layer,
        label: &str,
        got: &[usize],
    ) -> Result<Vec<usize>, ArchitectureError> {
        let place = Place { label, got };
        match *layer {
            Layer::Conv { out, kernel, stride, padding, bias, .. } => {
                self.convolution(place, out, [kernel, stride, padding], 1, bias)
            }
            Layer::GroupedConv { out, kernel, stride, padding, groups, bias, .. } => {
                if groups == 0 || !out.is_multiple_of(groups) {
                    return Err(place.wrong("`groups` must be at least 1 and divide `out`"));
                }
                self.convolution(place, out, [kernel, stride, padding], groups, bias)
            }
            Layer::Linear { out, bias, .. } => {
                if out == 0 {
                    return Err(place.wrong("`out` must be at least 1"));
                }
                let (positions, features) = match *got {
                    [features] => (1, features),
                    [positions, features] => (positions, features),
                    _ => return Err(place.needs("[features], so a flatten layer before it")),
                };
                let weights = self.affine(label, &[out, features], bias)?;
                self.multiply(positions as u64, weights);
                Ok([&got[..got.len() - 1], &[out]].concat())
            }
            Layer::Relu
            | Layer::Relu6
            | Layer::HardSigmoid
            | Layer::HardSwish
            | Layer::Sigmoid
            | Layer::Silu
            | Layer::Gelu => Ok(got.to_vec()),
            Layer::MaxPool { size, stride, .. } | Layer::AvgPool { size, stride } => {
                if size == 0 || stride == 0 {
                    return Err(place.wrong("`size` and `stride` must be at least 1"));
                }
                let [channels, height, width] = place.image()?;
                if matches!(layer, Layer::MaxPool { .. }) && size > MAX_WINDOW {
                    return Err(place.wrong("`size` of the maximum must be at most 255"));
                }
                if height < size || width < size {
                    return Err(place.needs(format!("at least {size} x {size} pixels")));
                }
                let partial = matches!(layer, Layer::MaxPool { partial: true, .. });
                Ok(vec![channels, along(height, size, stride, partial), along(width, size, stride, partial)])
            }
            Layer::GlobalAvgPool => place.image().map(|[channels, ..]| vec![channels]),
            Layer::Flatten => Ok(vec![got.iter().product()]),
            Layer::BatchNorm { .. } => self.normalisation(place, None),
            Layer::GroupNorm { groups, .. } => self.normalisation(place, Some(groups)),
            Layer::Dropout { rate } => {
                if !(0.0..1.0).contains(&rate) || rate as f32 >= 1.0 {
                    return Err(place.wrong("`rate` must be at least 0 and less than 1"));
                }
                Ok(got.to_vec())
            }
            Layer::LocalResponseNorm { size, alpha, beta, k } => {
                if size == 0 {
                    return Err(place.wrong("`size` must be at least 1"));
                }
                // NaN is in no range.
                let finite = |value: f64| value >= 0.0 && (value as f32).is_finite();
                if !(finite(alpha) && finite(beta) && finite(k) && k as f32 > 0.0) {
                    return Err(place.wrong("`alpha` and `beta` must be at least 0 and `k` greater than 0"));
                }
                place.image()?;
                Ok(got.to_vec())
            }
            Layer::Embedding { vocabulary, dim, .. } => self.embedding(place, vocabulary, dim),
            Layer::Lstm { hidden, .. } => self.lstm(place, hidden),
            Layer::BatchNormWith { epsilon, momentum, .. } => {
                check_epsilon(place, epsilon)?;
                if !(0.0..1.0).contains(&momentum) {
                    return Err(place.wrong("`momentum` must be at least 0 and less than 1"));
                }
                self.normalisation(place, None)
            }
            Layer::ZeroPad { pixels } => zero_pad(place, pixels),
            Layer::ToSequence
            | Layer::ClassToken { .. }
            | Layer::Positions { .. }
            | Layer::SinusoidalPositions
            | Layer::Attention { .. }
            | Layer::FirstPosition
            | Layer::MeanPositions => self.of_sequences(place, layer),
            Layer::LayerNorm { epsilon, .. } => self.layer_norm(place, epsilon),
            Layer::SimplexEtf { .. } => self.simplex_etf(place),
            Layer::Residual { .. } | Layer::SqueezeExcite { .. } => {
                unreachable!("blocks are walked into by `layers`")
            }
        }
    }

    fn convolution(
        &mut self,
        place: Place<'_>,
        out: usize,
        [kernel, stride, padding]: [usize; 3],
        groups: usize,
        bias: bool,
    ) -> Result<Vec<usize>, ArchitectureError> {
        if out == 0 || kernel == 0 || stride == 0 {
            return Err(place.wrong("`out`, `kernel` and `stride` must be at least 1"));
        }
        if padding >= kernel {
            return Err(place.wrong("`padding` must be less than `kernel`, or outputs would see zeros alone"));
        }
        let [channels, height, width] = place.image()?;
        if !channels.is_multiple_of(groups) {
            return Err(place.needs(format!("channels that {groups} groups divide")));
        }
        // Of one group.
        let channels = channels / groups;
        let extent = |input: usize| {
            let room = input.checked_add(padding.checked_mul(2)?)?.checked_sub(kernel)?;
            Some(room / stride + 1)
        };
        let (Some(rows), Some(columns)) = (extent(height), extent(width)) else {
            return Err(place.needs(format!("at least {kernel} x {kernel} pixels with the padding")));
        };
        let weights = self.affine(place.label, &[out, channels, kernel, kernel], bias)?;
        // The im2col matrix of one row of outputs: large kernels with wide padding blow a small image up.
        check_size(place.label, &[channels, kernel, kernel, columns])?;
        // Saturates, because the shape of the output is checked only afterwards.
        self.multiply((rows as u64).saturating_mul(columns as u64), weights);
        Ok(vec![out, rows, columns])
    }

    /// Batch normalisation, or with `groups` group normalisation: scale and offset of each channel, and for batch normalisation
    /// its running statistics.
    fn normalisation(
        &mut self,
        place: Place<'_>,
        groups: Option<usize>,
    ) -> Result<Vec<usize>, ArchitectureError> {
        let (channels, pixels) = match *place.got {
            [channels] => (channels, 1),
            [channels, height, width] => (channels, height * width),
            _ => return Err(place.needs("[channels, height, width] or [channels]")),
        };
        if let Some(groups) = groups {
            if groups == 0 || !channels.is_multiple_of(groups) {
                return Err(place.needs(format!("channels that {groups} groups divide")));
            }
            if channels / groups * pixels == 1 {
                return Err(place.needs("at least two values in each group, since one has no variance"));
            }
        }
        let mut declare = |suffix, kind, initial| {
            self.declare(place.label, suffix, &[channels], (1, 1), kind, initial).map(drop)
        };
        declare("weight", ParameterKind::Weight, Initial::One)?;
        declare("bias", ParameterKind::Bias, Initial::Zero)?;
        if groups.is_none() {
            declare("running-mean", ParameterKind::Buffer, Initial::Zero)?;
            declare("running-var", ParameterKind::Buffer, Initial::One)?;
        }
        Ok(place.got.to_vec())
    }

    fn of_sequences(&mut self, place: Place<'_>, layer: &Layer) -> Result<Vec<usize>, ArchitectureError> {
        match *layer {
            Layer::ToSequence => {
                let [channels, height, width] = place.image()?;
                Ok(vec![height * width, channels])
            }
            Layer::ClassToken { .. } => {
                let [positions, features] = place.sequence()?;
                let (shape, kind) = ([1, 1, features], ParameterKind::Weight);
                self.declare(place.label, "weight", &shape, (1, 1), kind, Initial::Zero)?;
                Ok(vec![positions + 1, features])
            }
            Layer::Positions { .. } => {
                let [positions, features] = place.sequence()?;
                let (shape, kind) = ([1, positions, features], ParameterKind::Weight);
                self.declare(place.label, "weight", &shape, (1, 1), kind, Initial::Small)?;
                Ok(place.got.to_vec())
            }
            Layer::SinusoidalPositions => place.sequence().map(Vec::from),
            Layer::Attention { heads, .. } => self.attention(place, heads),
            Layer::FirstPosition | Layer::MeanPositions => {
                let [_, features] = place.sequence()?;
                Ok(vec![features])
            }
            ref other => unreachable!("{other:?} is no layer of sequences"),
        }
    }

    fn layer_norm(&mut self, place: Place<'_>, epsilon: f64) -> Result<Vec<usize>, ArchitectureError> {
        check_epsilon(place, epsilon)?;
        let &([features] | [_, features]) = place.got else {
            return Err(place.needs("[features] or [positions, features]"));
        };
        if features == 1 {
            return Err(place.needs("at least two features, since one has no variance"));
        }
        let mut declare = |suffix, kind, initial| {
            self.declare(place.label, suffix, &[features], (1, 1), kind, initial).map(drop)
        };
        declare("weight", ParameterKind::Weight, Initial::One)?;
        declare("bias", ParameterKind::Bias, Initial::Zero)?;
        Ok(place.got.to_vec())
    }

    fn simplex_etf(&mut self, place: Place<'_>) -> Result<Vec<usize>, ArchitectureError> {
        let &([classes] | [_, classes]) = place.got else {
            return Err(place.needs("[classes] or [positions, classes]"));
        };
        if classes < 2 {
            return Err(place.needs("at least two classes, since a simplex of one vertex has no directions"));
        }
        self.declare(place.label, "weight", &[1], (1, 1), ParameterKind::Weight, Initial::One)?;
        Ok(place.got.to_vec())
    }

    fn attention(&mut self, place: Place<'_>, heads: usize) -> Result<Vec<usize>, ArchitectureError> {
        if heads == 0 {
            return Err(place.wrong("`heads` must be at least 1"));
        }
        let [positions, features] = place.sequence()?;
        let own = features / 3;
        if !features.is_multiple_of(3) || !own.is_multiple_of(heads) || own == 0 {
            return Err(place.needs(format!(
                "[positions, features], of which a third are queries, keys and values that {heads} heads divide"
            )));
        }
        // The weights of one head are in memory at the same time.
        let weights = check_size(place.label, &[positions, positions])?;
        self.multiply(weights as u64, 2 * own);
        Ok(vec![positions, own])
    }

    fn embedding(
        &mut self,
        place: Place<'_>,
        vocabulary: usize,
        dim: usize,
    ) -> Result<Vec<usize>, ArchitectureError> {
        if vocabulary == 0 || dim == 0 {
            return Err(place.wrong("`vocabulary` and `dim` must be at least 1"));
        }
        if vocabulary > MAX_VOCABULARY {
            return Err(
                place.wrong("`vocabulary` is over 2^24, from where on an f32 does not hold every token")
            );
        }
        let &[positions] = place.got else {
            return Err(place.needs("[positions] of tokens"));
        };
        // An embedding is a linear layer on a one-hot vector: each output is one weight.
        let (fans, kind) = ((1, dim), ParameterKind::Weight);
        self.declare(place.label, "weight", &[vocabulary, dim], fans, kind, Initial::Normal)?;
        Ok(vec![positions, dim])
    }

    fn lstm(&mut self, place: Place<'_>, hidden: usize) -> Result<Vec<usize>, ArchitectureError> {
        if hidden == 0 {
            return Err(place.wrong("`hidden` must be at least 1"));
        }
        let &[positions, features] = place.got else {
            return Err(place.needs("[positions, features]"));
        };
        let gates = hidden.checked_mul(4);
        let Some(gates @ ..=MAX_ELEMENTS) = gates else {
            return Err(too_large(place.label, Quantity::Values, gates));
        };
        // The gates at all positions are in memory at the same time.
        check_size(place.label, &[positions, gates])?;
        let (label, kind, initial) = (place.label, ParameterKind::Weight, Initial::Uniform { fan: hidden });
        let from_input =
            self.declare(label, "weight-ih", &[gates, features], (features, gates), kind, initial)?;
        let from_state =
            self.declare(label, "weight-hh", &[gates, hidden], (hidden, gates), kind, initial)?;
        self.declare(label, "bias", &[gates], (features, gates), ParameterKind::Bias, initial)?;
        self.multiply(positions as u64, from_input + from_state);
        Ok(vec![positions, hidden])
    }
}

/// Refuses a summand of variances that is not positive.
fn check_epsilon(place: Place<'_>, epsilon: f64) -> Result<(), ArchitectureError> {
    // NaN is not greater than 0.
    if epsilon as f32 > 0.0 && (epsilon as f32).is_finite() {
        return Ok(());
    }
    Err(place.wrong("`epsilon` must be greater than 0"))
}

fn zero_pad(place: Place<'_>, pixels: usize) -> Result<Vec<usize>, ArchitectureError> {
    let [channels, height, width] = place.image()?;
    if pixels > height.min(width) {
        return Err(place.wrong("`pixels` must be at most the image's height and width"));
    }
    Ok(vec![channels, height + 2 * pixels, width + 2 * pixels])
}
