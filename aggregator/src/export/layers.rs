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
            let sizes = [channels, out, kernel];
            convolution(with, sizes, [("stride", stride, 1), ("padding", padding, 0), ("groups", 1, 1)], bias)
        }
        Layer::GroupedConv { out, kernel, stride, padding, groups, bias, .. } => {
            let sizes = [channels, out, kernel];
            let geometry = [("stride", stride, 1), ("padding", padding, 0), ("groups", groups, 1)];
            convolution(with, sizes, geometry, bias)
        }
        Layer::Linear { out, bias, .. } => {
            let no_bias = (!bias).then(|| "bias=False".to_owned());
            let sizes = [features, out].map(|size| size.to_string());
            learned(
                "linear",
                call("nn.Linear", sizes.into_iter().chain(no_bias)),
                function("linear", [with]),
                AFFINE,
            )
        }
        Layer::Relu => plain("relu", "nn.ReLU()".to_owned(), function("relu", [])),
        Layer::MaxPool { size, stride, partial } => {
            let torch = partial.then(|| "ceil_mode=True".to_owned());
            let numpy = partial.then(|| "partial=True".to_owned());
            plain(
                "pool",
                call("nn.MaxPool2d", windows(size, stride).into_iter().chain(torch)),
                function("max_pool", [size, stride].map(|side| side.to_string()).into_iter().chain(numpy)),
            )
        }
        Layer::AvgPool { size, stride } => plain(
            "pool",
            call("nn.AvgPool2d", windows(size, stride)),
            function("avg_pool", [size, stride].map(|side| side.to_string())),
        ),
        Layer::Flatten => plain("flatten", "nn.Flatten()".to_owned(), function("flatten", [])),
        Layer::GlobalAvgPool => plain("pool", "GlobalAvgPool()".to_owned(), function("global_avg_pool", [])),
        Layer::BatchNorm { .. } => learned(
            "norm",
            format!("nn.BatchNorm{dimensions}d({channels})"),
            function("batch_norm", [with]),
            BATCH_NORM,
        ),
        Layer::GroupNorm { groups, .. } => learned(
            "norm",
            format!("nn.GroupNorm({groups}, {channels})"),
            function("group_norm", [with, format!("groups={groups}")]),
            AFFINE,
        ),
        Layer::Embedding { vocabulary, dim, .. } => learned(
            "embedding",
            format!("nn.Embedding({vocabulary}, {dim})"),
            function("embedding", [with]),
            &AFFINE[..1],
        ),
        Layer::Lstm { hidden, .. } => {
            learned("lstm", format!("Lstm({features}, {hidden})"), function("lstm", [with]), LSTM)
        }
        Layer::LocalResponseNorm { size, alpha, beta, k } => {
            let settings = [("alpha", alpha), ("beta", beta), ("k", k)];
            let settings = settings.map(|(name, value)| format!("{name}={value:?}"));
            let arguments: Vec<String> = [size.to_string()].into_iter().chain(settings).collect();
            plain(
                "norm",
                call("nn.LocalResponseNorm", arguments.clone()),
                function("local_response_norm", arguments),
            )
        }
        Layer::Dropout { rate } => {
            Spelling { stem: "dropout", torch: format!("nn.Dropout({rate:?})"), numpy: None, tensors: &[] }
        }
        Layer::BatchNormWith { epsilon, momentum, .. } => learned(
            "norm",
            format!("nn.BatchNorm{dimensions}d({channels}, eps={epsilon:?}, momentum={momentum:?})"),
            function("batch_norm", [with, format!("epsilon={epsilon:?}")]),
            BATCH_NORM,
        ),
        Layer::LayerNorm { epsilon, .. } => learned(
            "norm",
            format!("nn.LayerNorm({features}, eps={epsilon:?})"),
            function("layer_norm", [with, format!("epsilon={epsilon:?}")]),
            AFFINE,
        ),
        Layer::ZeroPad { pixels } => {
            plain("pad", format!("nn.ZeroPad2d({pixels})"), function("zero_pad", [pixels.to_string()]))
        }
        Layer::ToSequence => plain("sequence", "ToSequence()".to_owned(), function("to_sequence", [])),
        Layer::ClassToken { .. } => {
            learned("token", format!("ClassToken({features})"), function("class_token", [with]), &AFFINE[..1])
        }
        Layer::Positions { .. } => learned(
            "positions",
            format!("Positions({channels}, {features})"),
            function("positions", [with]),
            &AFFINE[..1],
        ),
        Layer::SinusoidalPositions => {
            plain("positions", "SinusoidalPositions()".to_owned(), function("sinusoidal_positions", []))
        }
        Layer::Attention { heads, causal } => {
            let arguments = [Some(heads.to_string()), causal.then(|| "causal=True".to_owned())];
            let arguments: Vec<String> = arguments.into_iter().flatten().collect();
            plain("attention", call("Attention", arguments.clone()), function("attention", arguments))
        }
        Layer::FirstPosition => plain("first", "FirstPosition()".to_owned(), function("first_position", [])),
        Layer::MeanPositions => plain("mean", "MeanPositions()".to_owned(), function("mean_positions", [])),
        Layer::Relu6 => plain("relu", "nn.ReLU6()".to_owned(), function("relu6", [])),
        Layer::HardSigmoid => plain("sigmoid", "nn.Hardsigmoid()".to_owned(), function("hard_sigmoid", [])),
        Layer::HardSwish => plain("swish", "nn.Hardswish()".to_owned(), function("hard_swish", [])),
        Layer::Sigmoid => plain("sigmoid", "nn.Sigmoid()".to_owned(), function("sigmoid", [])),
        Layer::Silu => plain("silu", "nn.SiLU()".to_owned(), function("silu", [])),
        Layer::Gelu => plain("gelu", "nn.GELU()".to_owned(), function("gelu", [])),
        Layer::Residual { .. } | Layer::SqueezeExcite { .. } => {
            unreachable!("blocks are walked into by the plan")
        }
    }
}

/// A convolution of these channels and outputs with a kernel of this size; settings have their defaults behind them.
fn convolution(with: String, sizes: [usize; 3], settings: [(&str, usize, usize); 3], bias: bool) -> Spelling {
    let set = settings.iter().filter(|(_, value, default)| value != default);
    let set: Vec<String> = set.map(|(name, value, _)| format!("{name}={value}")).collect();
    let no_bias = (!bias).then(|| "bias=False".to_owned());
    let sizes = sizes.map(|size| size.to_string());
    learned(
        "conv",
        call("nn.Conv2d", sizes.into_iter().chain(set.clone()).chain(no_bias)),
        function("conv2d", [with].into_iter().chain(set)),
        AFFINE,
    )
}

/// Size and stride, which is the size unless it is said.
fn windows(size: usize, stride: usize) -> Vec<String> {
    let stride = (stride != size).then_some(stride);
    [size].into_iter().chain(stride).map(|side| side.to_string()).collect()
}

/// A layer without tensors.
fn plain(stem: &'static str, torch: String, numpy: Function) -> Spelling {
    learned(stem, torch, numpy, &[])
}

fn learned(stem: &'static str, torch: String, numpy: Function, tensors: &'static [Tensor]) -> Spelling {
    Spelling { stem, torch, numpy: Some(numpy), tensors }
}

fn call(module: &str, arguments: impl IntoIterator<Item = String>) -> String {
    format!("{module}({})", arguments.into_iter().collect::<Vec<_>>().join(", "))
}

/// A function of `x`.
fn function(name: &'static str, arguments: impl IntoIterator<Item = String>) -> Function {
    Function { name, call: call(name, ["x".to_owned()].into_iter().chain(arguments)) }
}
