//! Layers in candle's operations.

mod attention;
mod convolution;
mod normalisation;
mod pooling;
mod sequence;

use candle_core::Tensor;

use crate::architecture::Layer;
use crate::dropout_masks::{Masks, scale};
use crate::error::ModelError;
use crate::kernels::normalisation::{EPSILON, MOMENTUM};
use crate::mode::Mode;

use super::variables::Variables;
use convolution::convolution;
use normalisation::{BatchNorm, GroupNorm, LayerNorm, LocalResponseNorm};
use sequence::{Embedding, Lstm};

/// A layer with its variables: the function from its input to its output.
pub(super) type Operator = Box<dyn Fn(&Tensor, Mode) -> Result<Tensor, ModelError> + Send + Sync>;

/// The operators of some layers of a part, which look their variables up once. `place` is the part or the branch of a
/// residual block that they are in, as in [`Layer::label`]. The variables were checked against the architecture.
pub(super) fn plan(part: &str, place: &str, layers: &[Layer], variables: &Variables) -> Vec<Operator> {
    let planned =
        |(index, layer): (usize, &Layer)| operator(layer, part, &layer.label(part, place, index), variables);
    layers.iter().enumerate().map(planned).collect()
}

/// Runs operators one after the other.
pub(super) fn run(operators: &[Operator], x: Tensor, mode: Mode) -> Result<Tensor, ModelError> {
    operators.iter().try_fold(x, |x, operator| operator(&x, mode))
}

fn operator(layer: &Layer, part: &str, label: &str, variables: &Variables) -> Operator {
    let optional = |kind: &str| variables.tensor(&format!("{label}.{kind}"));
    let variable = |kind: &str| optional(kind).expect("the parameters were checked against the architecture");
    match *layer {
        Layer::Conv { stride, padding, .. } | Layer::GroupedConv { stride, padding, .. } => {
            let groups = if let Layer::GroupedConv { groups, .. } = *layer { groups } else { 1 };
            let (weight, bias) = (variable("weight"), optional("bias"));
            pure(move |x| {
                let y = convolution(x, &weight, [stride, padding, groups])?;
                match &bias {
                    Some(bias) => y.broadcast_add(&bias.reshape((1, bias.elem_count(), 1, 1))?),
                    None => Ok(y),
                }
            })
        }
        Layer::Linear { .. } => {
            let (weight, bias) = (variable("weight"), optional("bias"));
            pure(move |x| linear(x, &weight, bias.as_ref()))
        }
        Layer::Relu => pure(Tensor::relu),
        Layer::Relu6 => pure(|x| x.relu()?.minimum(6.0)),
        Layer::HardSigmoid => pure(hard_sigmoid),
        Layer::HardSwish => pure(|x| x * hard_sigmoid(x)?),
        Layer::Sigmoid => pure(candle_nn::ops::sigmoid),
        Layer::Silu => pure(Tensor::silu),
        Layer::Gelu => pure(Tensor::gelu_erf),
        Layer::MaxPool { size, stride, partial } => pure(move |x| pooling::max(x, size, stride, partial)),
        Layer::AvgPool { size, stride } => pure(move |x| pooling::mean(x, size, stride)),
        Layer::GlobalAvgPool => pure(|x| x.flatten_from(2)?.mean(2)),
        Layer::Flatten => pure(|x| x.flatten_from(1)),
        Layer::BatchNorm { .. } | Layer::BatchNormWith { .. } => {
            let (epsilon, momentum) = match *layer {
                Layer::BatchNormWith { epsilon, momentum, .. } => (epsilon, momentum),
                _ => (EPSILON, MOMENTUM),
            };
            let norm = BatchNorm {
                label: label.to_owned(),
                weight: variable("weight"),
                bias: variable("bias"),
                running_mean: variables.buffer(&format!("{label}.running-mean")),
                running_var: variables.buffer(&format!("{label}.running-var")),
                frozen: ["running-mean", "running-var"]
                    .iter()
                    .any(|kind| variables.is_frozen(&format!("{label}.{kind}"))),
                epsilon,
                momentum,
            };
            Box::new(move |x, mode| norm.forward(x, mode))
        }
        Layer::GroupNorm { groups, .. } => {
            let norm = GroupNorm { weight: variable("weight"), bias: variable("bias"), groups };
            pure(move |x| norm.forward(x))
        }
        Layer::LocalResponseNorm { size, alpha, beta, k } => {
            let norm = LocalResponseNorm { size, alpha, beta, k };
            pure(move |x| norm.forward(x))
        }
        Layer::Dropout { rate } => {
            let label = label.to_owned();
            Box::new(move |x, mode| match mode {
                Mode::Training(masks) => drop_out(x, masks, &label, rate).map_err(FAILED),
                Mode::Evaluation => Ok(x.clone()),
            })
        }
        Layer::Residual { ref body, ref shortcut } => {
            let body = plan(part, &format!("{label}.body"), body, variables);
            let shortcut = plan(part, &format!("{label}.shortcut"), shortcut, variables);
            Box::new(move |x, mode| {
                let y = run(&body, x.clone(), mode)?;
                (y + run(&shortcut, x.clone(), mode)?).map_err(FAILED)
            })
        }
        Layer::SqueezeExcite { ref body } => {
            let body = plan(part, &format!("{label}.body"), body, variables);
            Box::new(move |x, mode| {
                let means = || x.flatten_from(2)?.mean(2)?.reshape((x.dim(0)?, x.dim(1)?, 1, 1));
                let factors = run(&body, means().map_err(FAILED)?, mode)?;
                let scaled = || x.broadcast_mul(&factors.reshape((x.dim(0)?, x.dim(1)?, 1, 1))?);
                scaled().map_err(FAILED)
            })
        }
        Layer::ZeroPad { pixels } => {
            pure(move |x| x.pad_with_zeros(2, pixels, pixels)?.pad_with_zeros(3, pixels, pixels))
        }
        Layer::LayerNorm { .. }
        | Layer::SimplexEtf { .. }
        | Layer::Embedding { .. }
        | Layer::Lstm { .. }
        | Layer::ToSequence
        | Layer::ClassToken { .. }
        | Layer::Positions { .. }
        | Layer::SinusoidalPositions
        | Layer::Attention { .. }
        | Layer::FirstPosition
        | Layer::MeanPositions => of_sequences(layer, label, variables),
    }
}

/// The operator of a layer of sequences.
fn of_sequences(layer: &Layer, label: &str, variables: &Variables) -> Operator {
    let variable = |kind: &str| {
        let variable = variables.tensor(&format!("{label}.{kind}"));
        variable.expect("the parameters were checked against the architecture")
    };
    match *layer {
        Layer::LayerNorm { epsilon, .. } => {
            let norm = LayerNorm { weight: variable("weight"), bias: variable("bias"), epsilon };
            pure(move |x| norm.forward(x))
        }
        Layer::SimplexEtf { .. } => {
            let weight = variable("weight");
            pure(move |x| normalisation::simplex_etf(x, &weight))
        }
        Layer::ToSequence => pure(|x| x.flatten_from(2)?.transpose(1, 2)?.contiguous()),
        Layer::ClassToken { .. } => {
            let weight = variable("weight");
            pure(move |x| {
                let token = weight.broadcast_as((x.dim(0)?, 1, x.dim(2)?))?;
                Tensor::cat(&[&token, x], 1)
            })
        }
        Layer::Positions { .. } => {
            let weight = variable("weight");
            pure(move |x| x.broadcast_add(&weight))
        }
        Layer::SinusoidalPositions => pure(attention::add_waves),
        Layer::Attention { heads, causal } => pure(move |x| attention::attention(x, heads, causal)),
        // Products on CUDA take no view with gaps between its rows.
        Layer::FirstPosition => pure(|x| x.narrow(1, 0, 1)?.squeeze(1)?.contiguous()),
        Layer::MeanPositions => pure(|x| x.mean(1)),
        Layer::Embedding { vocabulary, .. } => {
            let embedding = Embedding { weight: variable("weight"), vocabulary };
            Box::new(move |x, _| embedding.forward(x))
        }
        Layer::Lstm { .. } => {
            let [weight_ih, weight_hh, bias] = ["weight-ih", "weight-hh", "bias"].map(variable);
            let lstm = Lstm { weight_ih, weight_hh, bias };
            pure(move |x| lstm.forward(x))
        }
        ref other => unreachable!("{other:?} is no layer of sequences"),
    }
}

/// The operator of a layer that does the same in training and evaluation and fails only if candle does.
fn pure(f: impl Fn(&Tensor) -> candle_core::Result<Tensor> + Send + Sync + 'static) -> Operator {
    Box::new(move |x, _| f(x).map_err(FAILED))
}

/// The error of a failed pass, for `map_err`.
const FAILED: fn(candle_core::Error) -> ModelError =
    |source| ModelError::Candle { operation: "running the network", source: source.into() };

/// Applies the dropout mask, which is generated on the host.
fn drop_out(x: &Tensor, masks: Masks, label: &str, rate: f64) -> candle_core::Result<Tensor> {
    let scale = scale(rate);
    let kept = masks.kept(label, rate).take(x.elem_count());
    let factors: Vec<f32> = kept.map(|kept| if kept { scale } else { 0.0 }).collect();
    x * Tensor::from_vec(factors, x.shape(), x.device())?
}

/// `min(max(x + 3, 0), 6) / 6`.
fn hard_sigmoid(x: &Tensor) -> candle_core::Result<Tensor> {
    (x + 3.0)?.relu()?.minimum(6.0)? / 6.0
}

/// `x W^T + b` for `x` of `[n, in]`, or at each position of `[n, t, in]`.
fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> candle_core::Result<Tensor> {
    if let &[n, positions, features] = x.dims() {
        let y = linear(&x.reshape((n * positions, features))?, weight, bias)?;
        return y.reshape((n, positions, weight.dim(0)?));
    }
    let y = x.matmul(&weight.t()?)?;
    match bias {
        Some(bias) => y.broadcast_add(bias),
        None => Ok(y),
    }
}
