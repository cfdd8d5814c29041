//! What each kind of layer computes, in candle's operations.

mod convolution;
mod normalisation;
mod pooling;
mod sequence;

use std::collections::BTreeMap;

use candle_core::{Result, Tensor, Var};

use crate::architecture::Layer;
use crate::error::ModelError;
use crate::masks::{Masks, scale};
use crate::mode::Mode;

use convolution::convolution;
use normalisation::{BatchNorm, GroupNorm, LocalResponseNorm};
use sequence::{Embedding, Lstm};

/// A layer with its variables.
#[derive(Debug)]
pub(super) enum Step {
    Conv { weight: Var, bias: Option<Var>, stride: usize, padding: usize },
    Linear { weight: Var, bias: Option<Var> },
    Relu,
    MaxPool { size: usize, stride: usize, partial: bool },
    AvgPool { size: usize, stride: usize },
    GlobalAvgPool,
    Flatten,
    BatchNorm(BatchNorm),
    GroupNorm(GroupNorm),
    LocalResponseNorm(LocalResponseNorm),
    Dropout { label: String, rate: f64 },
    Residual { body: Vec<Self>, shortcut: Vec<Self> },
    Embedding(Embedding),
    Lstm(Lstm),
}

/// The steps of some layers of a part, with their variables looked up once. `place` is the part or the branch of a block
/// that they are in, as in [`Layer::label`]. The variables were checked against the architecture.
pub(super) fn plan(
    part: &str,
    place: &str,
    layers: &[Layer],
    variables: &BTreeMap<String, Var>,
) -> Vec<Step> {
    let step =
        |(index, layer): (usize, &Layer)| Step::new(layer, part, &layer.label(part, place, index), variables);
    layers.iter().enumerate().map(step).collect()
}

/// Runs steps one after the other.
pub(super) fn run(steps: &[Step], x: Tensor, mode: Mode) -> std::result::Result<Tensor, ModelError> {
    steps.iter().try_fold(x, |x, step| step.forward(&x, mode))
}

impl Step {
    fn new(layer: &Layer, part: &str, label: &str, variables: &BTreeMap<String, Var>) -> Self {
        let optional = |kind: &str| variables.get(&format!("{label}.{kind}")).cloned();
        let variable =
            |kind: &str| optional(kind).expect("the parameters were checked against the architecture");
        match layer {
            &Layer::Conv { stride, padding, .. } => {
                Self::Conv { weight: variable("weight"), bias: optional("bias"), stride, padding }
            }
            Layer::Linear { .. } => Self::Linear { weight: variable("weight"), bias: optional("bias") },
            Layer::Relu => Self::Relu,
            &Layer::MaxPool { size, stride, partial } => Self::MaxPool { size, stride, partial },
            &Layer::AvgPool { size, stride } => Self::AvgPool { size, stride },
            Layer::GlobalAvgPool => Self::GlobalAvgPool,
            Layer::Flatten => Self::Flatten,
            Layer::BatchNorm { .. } => Self::BatchNorm(BatchNorm {
                label: label.to_owned(),
                weight: variable("weight"),
                bias: variable("bias"),
                running_mean: variable("running-mean"),
                running_var: variable("running-var"),
            }),
            &Layer::GroupNorm { groups, .. } => {
                Self::GroupNorm(GroupNorm { weight: variable("weight"), bias: variable("bias"), groups })
            }
            &Layer::Dropout { rate } => Self::Dropout { label: label.to_owned(), rate },
            &Layer::LocalResponseNorm { size, alpha, beta, k } => {
                Self::LocalResponseNorm(LocalResponseNorm { size, alpha, beta, k })
            }
            Layer::Residual { body, shortcut } => Self::Residual {
                body: plan(part, &format!("{label}.body"), body, variables),
                shortcut: plan(part, &format!("{label}.shortcut"), shortcut, variables),
            },
            &Layer::Embedding { vocabulary, .. } => {
                Self::Embedding(Embedding { weight: variable("weight"), vocabulary })
            }
            Layer::Lstm { .. } => Self::Lstm(Lstm {
                weight_ih: variable("weight-ih"),
                weight_hh: variable("weight-hh"),
                bias: variable("bias"),
            }),
        }
    }

    fn forward(&self, x: &Tensor, mode: Mode) -> std::result::Result<Tensor, ModelError> {
        match self {
            Self::Residual { body, shortcut } => {
                let y = run(body, x.clone(), mode)?;
                (y + run(shortcut, x.clone(), mode)?).map_err(FAILED)
            }
            Self::BatchNorm(norm) => norm.forward(x, mode),
            Self::Embedding(embedding) => embedding.forward(x),
            Self::Dropout { label, rate } => match mode {
                Mode::Training(masks) => drop_out(x, masks, label, *rate).map_err(FAILED),
                Mode::Evaluation => Ok(x.clone()),
            },
            step => step.compute(x).map_err(FAILED),
        }
    }

    /// The layers that can fail only as the tensor library does.
    fn compute(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Conv { weight, bias, stride, padding } => {
                let y = convolution(x, weight, *stride, *padding)?;
                match bias {
                    Some(bias) => y.broadcast_add(&bias.reshape((1, bias.elem_count(), 1, 1))?),
                    None => Ok(y),
                }
            }
            Self::Linear { weight, bias } => linear(x, weight, bias.as_deref()),
            Self::Relu => x.relu(),
            &Self::MaxPool { size, stride, partial } => pooling::max(x, size, stride, partial),
            Self::AvgPool { size, stride } => pooling::mean(x, *size, *stride),
            Self::GlobalAvgPool => x.flatten_from(2)?.mean(2),
            Self::Flatten => x.flatten_from(1),
            Self::GroupNorm(norm) => norm.forward(x),
            Self::LocalResponseNorm(norm) => norm.forward(x),
            Self::Lstm(lstm) => lstm.forward(x),
            Self::Residual { .. } | Self::BatchNorm(_) | Self::Embedding(_) | Self::Dropout { .. } => {
                unreachable!("`forward` keeps these to itself")
            }
        }
    }
}

/// For `map_err`: the tensor library failed while the network ran.
const FAILED: fn(candle_core::Error) -> ModelError =
    |source| ModelError::Candle { operation: "running the network", source };

/// Leaves out what the mask, which is made on the host, does not keep.
fn drop_out(x: &Tensor, masks: Masks, label: &str, rate: f64) -> Result<Tensor> {
    let scale = scale(rate);
    let kept = masks.kept(label, rate).take(x.elem_count());
    let factors: Vec<f32> = kept.map(|kept| if kept { scale } else { 0.0 }).collect();
    x * Tensor::from_vec(factors, x.shape(), x.device())?
}

/// `x W^T + b` for `x` of `[n, in]`, or at each position of `[n, t, in]`.
fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
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
