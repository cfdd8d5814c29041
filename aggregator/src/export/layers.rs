//! Layers in Python: how the modules of `PyTorch` and the functions in numpy are called, and what they call their tensors.

use models::Layer;

/// A layer in Python.
#[derive(Debug)]
pub(super) struct Spelling {
    /// What layers of this kind are called that have no name, before a number.
    pub(super) stem: &'static str,
    /// The module: `nn.Conv2d(1, 6, 5, padding=2)`.
    pub(super) torch: String,
    /// `None` if it does nothing in evaluation.
    pub(super) numpy: Option<Function>,
    pub(super) tensors: &'static [Tensor],
}

/// A function in numpy.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: &'static str,
    /// Its call: `conv2d(x, **w["extractor.conv1"], padding=2)`.
    pub(super) call: String,
}

/// A tensor of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensor {
    /// In `PyTorch`.
    pub(super) torch: &'static str,
    /// The argument of the function in numpy; `None` for zeros, which it does without.
    pub(super) numpy: Option<&'static str>,
    /// Ours that it is, or whose shape the zeros have.
    pub(super) like: &'static str,
}

const fn tensor(torch: &'static str, numpy: &'static str, ours: &'static str) -> Tensor {
    Tensor { torch, numpy: Some(numpy), like: ours }
}

const AFFINE: &[Tensor] = &[tensor("weight", "weight", "weight"), tensor("bias", "bias", "bias")];
/// `num_batches_tracked`, which `PyTorch` counts in training and no step depends on, is absent: `load_state_dict` completes it.
const BATCH_NORM: &[Tensor] = &[
    AFFINE[0],
    AFFINE[1],
    tensor("running_mean", "running_mean", "running-mean"),
    tensor("running_var", "running_var", "running-var"),
];
/// `PyTorch` adds two biases, of which one would do.
const LSTM: &[Tensor] = &[
    tensor("weight_ih_l0", "weight_ih", "weight-ih"),
    tensor("weight_hh_l0", "weight_hh", "weight-hh"),
    tensor("bias_ih_l0", "bias", "bias"),
    Tensor { torch: "bias_hh_l0", numpy: None, like: "bias" },
];

/// How a layer with this label is spelled for an input of this shape, which fits it.
///
/// # Panics
/// If the layer is a block: the plan walks into it.
pub(super) fn spelled(layer: &Layer, label: &str, input: &[usize]) -> Spelling {
    // The first axis of a sample is that of channels, the last one that of features.
    let (channels, features) = (input[0], input[input.len() - 1]);
    let dimensions = if input.len() == 1 { 1 } else { 2 };
    let with = format!("**w[\"{label}\"]");
    match *layer {
        Layer::Conv { out, kernel, stride, padding, bias, .. } => {
            convolution(with, [channels, out, kernel], [stride, padding, 1], bias)
        }
        Layer::GroupedConv { out, kernel, stride, padding, groups, bias, .. } => {
            convolution(with, [channels, out, kernel], [stride, padding, groups], bias)
        }
        Layer::Linear { out, bias, .. } => linear(with, [features, out], bias),
        Layer::MaxPool { size, stride, partial } => {
            let more = partial.then_some(["ceil_mode=True", "partial=True"]);
            pool(["nn.MaxPool2d", "max_pool"], size, stride, more)
        }
        Layer::AvgPool { size, stride } => pool(["nn.AvgPool2d", "avg_pool"], size, stride, None),
        Layer::GlobalAvgPool => simple("pool", "GlobalAvgPool", "global_avg_pool"),
        Layer::Flatten => simple("flatten", "nn.Flatten", "flatten"),
        Layer::BatchNorm { .. } => spelling(
            "norm",
            format!("nn.BatchNorm{dimensions}d({channels})"),
            function("batch_norm", [with]),
            BATCH_NORM,
        ),
        Layer::BatchNormWith { epsilon, momentum, .. } => spelling(
            "norm",
            format!("nn.BatchNorm{dimensions}d({channels}, eps={epsilon:?}, momentum={momentum:?})"),
            function("batch_norm", [with, format!("epsilon={epsilon:?}")]),
            BATCH_NORM,
        ),
        Layer::GroupNorm { groups, .. } => spelling(
            "norm",
            format!("nn.GroupNorm({groups}, {channels})"),
            function("group_norm", [with, format!("groups={groups}")]),
            AFFINE,
        ),
        Layer::LayerNorm { epsilon, .. } => spelling(
            "norm",
            format!("nn.LayerNorm({features}, eps={epsilon:?})"),
            function("layer_norm", [with, format!("epsilon={epsilon:?}")]),
            AFFINE,
        ),
        Layer::SimplexEtf { .. } => {
            spelling("norm", "SimplexEtf()".to_owned(), function("simplex_etf", [with]), &AFFINE[..1])
        }
        Layer::LocalResponseNorm { size, alpha, beta, k } => local_response_norm(size, [alpha, beta, k]),
        Layer::Embedding { vocabulary, dim, .. } => {
            let torch = format!("nn.Embedding({vocabulary}, {dim})");
            spelling("embedding", torch, function("embedding", [with]), &AFFINE[..1])
        }
        Layer::Lstm { hidden, .. } => {
            spelling("lstm", format!("Lstm({features}, {hidden})"), function("lstm", [with]), LSTM)
        }
        Layer::Dropout { rate } => {
            Spelling { stem: "dropout", torch: format!("nn.Dropout({rate:?})"), numpy: None, tensors: &[] }
        }
        Layer::ZeroPad { pixels } => {
            let numpy = function("zero_pad", [pixels.to_string()]);
            spelling("pad", format!("nn.ZeroPad2d({pixels})"), numpy, &[])
        }
        Layer::ToSequence => simple("sequence", "ToSequence", "to_sequence"),
        Layer::ClassToken { .. } => {
            let torch = format!("ClassToken({features})");
            spelling("token", torch, function("class_token", [with]), &AFFINE[..1])
        }
        Layer::Positions { .. } => {
            let torch = format!("Positions({channels}, {features})");
            spelling("positions", torch, function("positions", [with]), &AFFINE[..1])
        }
        Layer::SinusoidalPositions => simple("positions", "SinusoidalPositions", "sinusoidal_positions"),
        Layer::Attention { heads, causal } => attention(heads, causal),
        Layer::FirstPosition => simple("first", "FirstPosition", "first_position"),
        Layer::MeanPositions => simple("mean", "MeanPositions", "mean_positions"),
        Layer::Relu => simple("relu", "nn.ReLU", "relu"),
        Layer::Relu6 => simple("relu", "nn.ReLU6", "relu6"),
        Layer::HardSigmoid => simple("sigmoid", "nn.Hardsigmoid", "hard_sigmoid"),
        Layer::HardSwish => simple("swish", "nn.Hardswish", "hard_swish"),
        Layer::Sigmoid => simple("sigmoid", "nn.Sigmoid", "sigmoid"),
        Layer::Silu => simple("silu", "nn.SiLU", "silu"),
        Layer::Gelu => simple("gelu", "nn.GELU", "gelu"),
        Layer::Residual { .. } | Layer::SqueezeExcite { .. } => {
            unreachable!("blocks are walked into by the plan")
        }
    }
}

/// A convolution: channels, outputs and size of the kernel; stride, padding and groups.
fn convolution(
    with: String,
    sizes: [usize; 3],
    [stride, padding, groups]: [usize; 3],
    bias: bool,
) -> Spelling {
    let settings = [("stride", stride, 1), ("padding", padding, 0), ("groups", groups, 1)];
    let set = settings.iter().filter(|(_, value, default)| value != default);
    let set: Vec<String> = set.map(|(name, value, _)| format!("{name}={value}")).collect();
    let no_bias = (!bias).then(|| "bias=False".to_owned());
    let sizes = sizes.map(|size| size.to_string());
    let torch = call("nn.Conv2d", sizes.into_iter().chain(set.clone()).chain(no_bias));
    spelling("conv", torch, function("conv2d", [with].into_iter().chain(set)), AFFINE)
}

/// A linear layer with this number of features and of outputs.
fn linear(with: String, sizes: [usize; 2], bias: bool) -> Spelling {
    let no_bias = (!bias).then(|| "bias=False".to_owned());
    let torch = call("nn.Linear", sizes.map(|size| size.to_string()).into_iter().chain(no_bias));
    spelling("linear", torch, function("linear", [with]), AFFINE)
}

/// A pooling by the module and the function of these names, with an argument more for each.
fn pool([module, name]: [&'static str; 2], size: usize, stride: usize, more: Option<[&str; 2]>) -> Spelling {
    // In PyTorch the stride is the size unless it is said.
    let said = (stride != size).then_some(stride);
    let torch = [size].into_iter().chain(said).map(|side| side.to_string());
    let torch = call(module, torch.chain(more.map(|[torch, _]| torch.to_owned())));
    let numpy = [size, stride].into_iter().map(|side| side.to_string());
    spelling("pool", torch, function(name, numpy.chain(more.map(|[_, numpy]| numpy.to_owned()))), &[])
}

fn local_response_norm(size: usize, [alpha, beta, k]: [f64; 3]) -> Spelling {
    let settings = [("alpha", alpha), ("beta", beta), ("k", k)];
    let settings = settings.map(|(name, value)| format!("{name}={value:?}"));
    let arguments: Vec<String> = [size.to_string()].into_iter().chain(settings).collect();
    let torch = call("nn.LocalResponseNorm", arguments.clone());
    spelling("norm", torch, function("local_response_norm", arguments), &[])
}

fn attention(heads: usize, causal: bool) -> Spelling {
    let causal = causal.then(|| "causal=True".to_owned());
    let arguments: Vec<String> = [heads.to_string()].into_iter().chain(causal).collect();
    let torch = call("Attention", arguments.clone());
    spelling("attention", torch, function("attention", arguments), &[])
}

/// A layer without settings and tensors.
fn simple(stem: &'static str, module: &str, name: &'static str) -> Spelling {
    spelling(stem, call(module, []), function(name, []), &[])
}

fn spelling(stem: &'static str, torch: String, numpy: Function, tensors: &'static [Tensor]) -> Spelling {
    Spelling { stem, torch, numpy: Some(numpy), tensors }
}

fn call(module: &str, arguments: impl IntoIterator<Item = String>) -> String {
    format!("{module}({})", arguments.into_iter().collect::<Vec<_>>().join(", "))
}

/// A function of `x`.
fn function(name: &'static str, arguments: impl IntoIterator<Item = String>) -> Function {
    Function { name, call: call(name, ["x".to_owned()].into_iter().chain(arguments)) }
}
