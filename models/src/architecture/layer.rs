//! Layers.

use serde::{Deserialize, Serialize};

use super::nesting;

/// One layer. Layers with parameters have a name, unique within their part.
///
/// Images are `[c, h, w]`: channels, height, width. Sequences are `[t, d]`: positions, features of each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Layer {
    /// Two-dimensional cross-correlation, `[c, h, w]` to `[out, h', w']` with `h' = (h + 2 padding - kernel) / stride + 1`
    /// rounded down. Its weight has the shape `[out, c, kernel, kernel]`.
    Conv {
        /// The layer's name, such as `conv1`.
        name: String,
        /// Output channels.
        out: usize,
        /// Height and width of the kernel in pixels.
        kernel: usize,
        /// Distance between applications in pixels.
        stride: usize,
        /// Rows and columns of zeros added on each side; less than `kernel`.
        padding: usize,
        /// Whether there is a bias per channel.
        bias: bool,
    },
    /// `y = W x + b`, `[n]` to `[out]`, or at each position of a sequence, `[t, n]` to `[t, out]`. Its weight has the
    /// shape `[out, n]`.
    Linear {
        /// The layer's name, such as `fc1`.
        name: String,
        /// Output features.
        out: usize,
        /// Whether there is a bias per feature.
        bias: bool,
    },
    /// `max(x, 0)`.
    Relu,
    /// The maximum over windows, `[c, h, w]` to `[c, h', w']` with `h' = (h - size) / stride + 1` rounded down. Windows may
    /// overlap. Rows and columns at the end that fill no window are dropped. The first of equal maxima gets the gradient, as in
    /// `PyTorch`.
    MaxPool {
        /// Height and width of the window in pixels, at most 255.
        size: usize,
        /// Distance between windows in pixels.
        stride: usize,
        /// Whether windows that begin inside the image may reach beyond it: `h' = (h - size) / stride + 1` rounded up. The same
        /// as `ceil_mode` in `PyTorch`, and as padding "SAME" in `TensorFlow` where that adds one row below and one column to
        /// the right.
        #[serde(default)]
        partial: bool,
    },
    /// Reshapes the input to one dimension, row-major.
    Flatten,
    /// The mean over windows, which are placed as in [`Layer::MaxPool`].
    AvgPool {
        /// Height and width of the window in pixels.
        size: usize,
        /// Distance between windows in pixels.
        stride: usize,
    },
    /// The mean over all pixels of a channel, `[c, h, w]` to `[c]`.
    GlobalAvgPool,
    /// Batch normalisation (Ioffe and Szegedy 2015) of each channel of `[c, h, w]` or `[c]`:
    /// `y = weight (x - mean) / sqrt(variance + 1e-5) + bias`.
    ///
    /// In training, mean and biased variance are those of the batch, and the buffers `running-mean` and `running-var` move a
    /// tenth of the way to the batch's mean and unbiased variance. In evaluation, mean and variance are the buffers. A batch
    /// with one value per channel has no variance: training on it is an error, as in `PyTorch`.
    BatchNorm {
        /// The layer's name, such as `norm1`.
        name: String,
    },
    /// Group normalisation (Wu and He 2018): as batch normalisation, but over all values of a group of channels of one
    /// sample, in training and evaluation alike. There are no buffers.
    GroupNorm {
        /// The layer's name, such as `norm1`.
        name: String,
        /// The number of groups, which divides the channels.
        groups: usize,
    },
    /// `body(x) + shortcut(x)` (He et al. 2016). Both must have the same output shape. Names inside the block must be unique in
    /// the whole part. Blocks nest at most [`MAX_NESTING`](super::MAX_NESTING) deep.
    Residual {
        /// The layers of the body.
        #[serde(deserialize_with = "nesting::deserialize_layers")]
        body: Vec<Layer>,
        /// The layers of the shortcut; empty for the identity.
        #[serde(deserialize_with = "nesting::deserialize_layers")]
        shortcut: Vec<Layer>,
    },
    /// A vector for each token, `[t]` to `[t, dim]`. Tokens are integers from 0, below `vocabulary`; they get no gradient. Its
    /// weight has the shape `[vocabulary, dim]`.
    Embedding {
        /// The layer's name, such as `embedding`.
        name: String,
        /// The number of different tokens.
        vocabulary: usize,
        /// Features of each token.
        dim: usize,
    },
    /// A long short-term memory (Hochreiter and Schmidhuber 1997, with forget gates), `[t, d]` to `[t, hidden]`:
    ///
    /// ```text
    /// i, f, g, o = weight-ih x_t + weight-hh h_(t-1) + bias       each of [hidden], in this order
    /// c_t = sigmoid(f) c_(t-1) + sigmoid(i) tanh(g)               h_t = sigmoid(o) tanh(c_t)
    /// ```
    ///
    /// from `h = c = 0`. The weights have the shapes `[4 hidden, d]` and `[4 hidden, hidden]`. The one bias is the sum of the two
    /// of `PyTorch`.
    Lstm {
        /// The layer's name, such as `lstm1`.
        name: String,
        /// Features of the state.
        hidden: usize,
    },
    /// Local response normalisation (Krizhevsky et al. 2012, section 3.3) of each pixel over `size` neighbouring channels, from
    /// `size / 2` before to `(size - 1) / 2` after, with zeros beyond the first and last channel:
    /// `y = x / (k + alpha / size * sum of squares)^beta`. There are no parameters.
    ///
    /// `PyTorch` divides `alpha` by the size, and so does this; the paper and `TensorFlow` do not.
    LocalResponseNorm {
        /// Channels of a neighbourhood.
        size: usize,
        /// The factor of the mean of the squares, at least 0.
        alpha: f64,
        /// The exponent, at least 0.
        beta: f64,
        /// The constant term, greater than 0.
        k: f64,
    },
    /// In training, each value is 0 with the probability `rate`, and otherwise divided by `1 - rate` (Srivastava et al. 2014, as
    /// inverted dropout, which does nothing in evaluation). The masks come from the run's seed: [`Masks`](crate::Masks).
    Dropout {
        /// The fraction of values set to 0: at least 0, less than 1.
        rate: f64,
    },
    /// Squeeze-and-excitation (Hu et al. 2018): each channel of `[c, h, w]` times a factor that `body` computes from the means of
    /// all channels, `[c, 1, 1]` to `[c, 1, 1]` or `[c]`. Usually two 1x1 convolutions with a rectifier between them and a
    /// logistic function after them. Names inside the block must be unique in the whole part.
    SqueezeExcite {
        /// The layers between means and factors.
        #[serde(deserialize_with = "nesting::deserialize_layers")]
        body: Vec<Layer>,
    },
    /// As [`Layer::BatchNorm`], with settings of its own, such as those of `MobileNetV3`.
    BatchNormWith {
        /// The layer's name, such as `norm1`.
        name: String,
        /// Added to variances, greater than 0: 1e-5 in [`Layer::BatchNorm`].
        epsilon: f64,
        /// How far the buffers move towards a batch, at least 0 and less than 1: 0.1 in [`Layer::BatchNorm`].
        momentum: f64,
    },
    /// Rows and columns of zeros around an image, `[c, h, w]` to `[c, h + 2 pixels, w + 2 pixels]`. Before max pooling of rectified
    /// values the same as that pooling's padding in `PyTorch`.
    ZeroPad {
        /// Rows and columns on each side.
        pixels: usize,
    },
    /// The pixels of an image as a sequence, row by row, `[c, h, w]` to `[h w, c]`.
    ToSequence,
    /// A learned position before the others (Devlin et al. 2019), `[t, d]` to `[t + 1, d]`. Its weight has the shape `[1, 1, d]`.
    ClassToken {
        /// The layer's name, such as `class-token1`.
        name: String,
    },
    /// Adds a learned value to each value of a sequence `[t, d]`, so that positions differ. Its weight has the shape `[1, t, d]`.
    Positions {
        /// The layer's name, such as `positions1`.
        name: String,
    },
    /// Adds waves to a sequence `[t, d]`, so that positions differ (Vaswani et al. 2017, section 3.5): to the features `2 i` and
    /// `2 i + 1` of position `p` sine and cosine of `p / 10000^(2 i / d)`. There are no parameters.
    SinusoidalPositions,
    /// Scaled dot-product attention of several heads (Vaswani et al. 2017, section 3.2), `[t, 3 d]` to `[t, d]`: the input has the
    /// queries of all heads, then their keys, then their values, each of `d` features, of which every head has an equal run. A
    /// linear layer before it and one after it make it multi-head self-attention. There are no parameters.
    Attention {
        /// The number of heads, which divides `d`.
        heads: usize,
        /// Whether a position sees no later one, as where the next token is predicted.
        causal: bool,
    },
    /// The first position of a sequence, `[t, d]` to `[d]`: that of a class token.
    FirstPosition,
    /// The mean over the positions of a sequence, `[t, d]` to `[d]`.
    MeanPositions,
    /// Layer normalisation (Ba et al. 2016) of the features of a sample, `[d]`, or of each position of a sequence, `[t, d]`:
    /// `y = weight (x - mean) / sqrt(variance + epsilon) + bias`, with the biased variance. There are no buffers.
    LayerNorm {
        /// The layer's name, such as `norm1`.
        name: String,
        /// Added to variances, greater than 0: 1e-5 in `PyTorch`, 1e-6 in vision transformers.
        epsilon: f64,
    },
    /// A convolution in `groups` (Krizhevsky et al. 2012): as [`Layer::Conv`], but each of `groups` equal runs of output channels
    /// sees only the corresponding run of input channels. With as many groups as channels it is depthwise (Howard et al. 2017).
    /// Its weight has the shape `[out, c / groups, kernel, kernel]`.
    GroupedConv {
        /// The layer's name, such as `conv1`.
        name: String,
        /// Output channels, which the groups divide.
        out: usize,
        /// Height and width of the kernel in pixels.
        kernel: usize,
        /// Distance between applications in pixels.
        stride: usize,
        /// Rows and columns of zeros added on each side; less than `kernel`.
        padding: usize,
        /// The number of groups, which divides the input channels.
        groups: usize,
        /// Whether there is a bias per channel.
        bias: bool,
    },
    /// `min(max(x, 0), 6)` (Sandler et al. 2018).
    Relu6,
    /// `min(max(x + 3, 0), 6) / 6` (Howard et al. 2019), nearly a logistic function.
    HardSigmoid,
    /// `x min(max(x + 3, 0), 6) / 6` (Howard et al. 2019).
    HardSwish,
    /// The logistic function `1 / (1 + e^-x)`.
    Sigmoid,
    /// `x / (1 + e^-x)` (Elfwing et al. 2017), also called swish.
    Silu,
    /// `x P(X <= x)` for a standard normal `X` (Hendrycks and Gimpel 2016), not its approximation by the hyperbolic tangent.
    Gelu,
    /// A fixed classifier (Li et al. 2023): the cosines of the `c` features of a sample, `[c]`, or of each position of a sequence,
    /// `[t, c]`, with the `c` vertices of a regular simplex (a simplex equiangular tight frame), times one learned factor:
    ///
    /// ```text
    /// u = x / sqrt(sum(x^2) + 1e-12),   y = weight sqrt(c / (c - 1)) (u - mean(u))
    /// ```
    ///
    /// So classes are as far apart as they can be, and alike for all clients. A linear layer before it learns which direction stands
    /// for which class. Its weight has the shape `[1]` and starts at 1.
    SimplexEtf {
        /// The layer's name, such as `norm1`.
        name: String,
    },
}

impl Layer {
    /// The layer's name, if it has parameters.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.kind_and_name().1
    }

    /// The layer's label in errors: `part.name`, or without a name `place.kind-position`, where `place` is the part or the branch
    /// of a block and positions count from 1. The names of a layer's parameters begin with its label.
    #[must_use]
    pub fn label(&self, part: &str, place: &str, index: usize) -> String {
        match self.kind_and_name() {
            (_, Some(name)) => format!("{part}.{name}"),
            (kind, None) => format!("{place}.{kind}-{}", index + 1),
        }
    }

    /// The kind, as in the stored form, and the name of a layer with parameters.
    fn kind_and_name(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Conv { name, .. } => ("conv", Some(name)),
            Self::Linear { name, .. } => ("linear", Some(name)),
            Self::Relu => ("relu", None),
            Self::MaxPool { .. } => ("max-pool", None),
            Self::Flatten => ("flatten", None),
            Self::AvgPool { .. } => ("avg-pool", None),
            Self::GlobalAvgPool => ("global-avg-pool", None),
            Self::BatchNorm { name } => ("batch-norm", Some(name)),
            Self::GroupNorm { name, .. } => ("group-norm", Some(name)),
            Self::Residual { .. } => ("residual", None),
            Self::Embedding { name, .. } => ("embedding", Some(name)),
            Self::Lstm { name, .. } => ("lstm", Some(name)),
            Self::LocalResponseNorm { .. } => ("local-response-norm", None),
            Self::Dropout { .. } => ("dropout", None),
            Self::SqueezeExcite { .. } => ("squeeze-excite", None),
            Self::BatchNormWith { name, .. } => ("batch-norm-with", Some(name)),
            Self::ZeroPad { .. } => ("zero-pad", None),
            Self::ToSequence => ("to-sequence", None),
            Self::ClassToken { name } => ("class-token", Some(name)),
            Self::Positions { name } => ("positions", Some(name)),
            Self::SinusoidalPositions => ("sinusoidal-positions", None),
            Self::Attention { .. } => ("attention", None),
            Self::FirstPosition => ("first-position", None),
            Self::MeanPositions => ("mean-positions", None),
            Self::LayerNorm { name, .. } => ("layer-norm", Some(name)),
            Self::GroupedConv { name, .. } => ("grouped-conv", Some(name)),
            Self::Relu6 => ("relu6", None),
            Self::HardSigmoid => ("hard-sigmoid", None),
            Self::HardSwish => ("hard-swish", None),
            Self::Sigmoid => ("sigmoid", None),
            Self::Silu => ("silu", None),
            Self::Gelu => ("gelu", None),
            Self::SimplexEtf { name } => ("simplex-etf", Some(name)),
        }
    }
}
