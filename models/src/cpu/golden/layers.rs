//! Golden tests of every operator, loss and optimiser, by `models/tests/golden/kernels.py`.

use std::collections::BTreeMap;

use super::{Case, Golden};
use crate::adam::Adam;
use crate::architecture::Layer;
use crate::cpu::operator::PassContext;
use crate::cpu::parameter::Parameter;
use crate::cpu::plan::Planner;
use crate::dropout_masks::Masks;
use crate::engine::UpdateMode;
use crate::kernels::update::Step;
use crate::loss::cross_entropy;
use crate::mode::Mode;
use crate::optimizer::{AdamSettings, Optimizer};
use crate::params::Array;
use crate::sgd::Sgd;
use crate::targets::Targets;
use crate::task::Task;

const TRAINING: Mode = Mode::Training(Masks::new([0; 32], 0));

/// The results of a forward and a backward pass; gradients and parameters by name.
struct Pass {
    output: Vec<f32>,
    gradients: BTreeMap<String, Vec<f32>>,
    parameters: BTreeMap<String, Vec<f32>>,
    by_input: Vec<f32>,
}

/// Runs layers of a part called `p` forward and, in training, backward. Parameters are given by name.
fn run(
    layers: &[Layer],
    (shape, x): (&[usize], &[f32]),
    parameters: BTreeMap<String, Array>,
    mode: Mode,
    gradient: &[f32],
) -> Pass {
    let mut parameters: Vec<Parameter> =
        parameters.into_iter().map(|(name, values)| Parameter::new(name, values, false)).collect();
    let mut sequence = Planner::new(&shape[1..], &parameters).sequence("p", "p", layers).unwrap();
    sequence.forward(&mut parameters, x, shape[0], mode).unwrap();
    let output = sequence.output(x).to_vec();
    let mut by_input = gradient.to_vec();
    if matches!(mode, Mode::Training(_)) {
        let context = &mut PassContext { n: shape[0], update: UpdateMode::Accumulate, free: &mut Vec::new() };
        by_input = sequence.backward(&mut parameters, x, by_input, true, context);
    }
    let by_name = |values: fn(&Parameter) -> &[f32]| {
        parameters.iter().map(|p| (p.name.clone(), values(p).to_vec())).collect()
    };
    Pass {
        output,
        gradients: by_name(|parameter| &parameter.gradient),
        parameters: by_name(|parameter| parameter.values.values()),
        by_input,
    }
}

/// Runs one layer, called `l`, on a case. `kinds` are those of its parameters, with the tensors that hold them.
fn run_case(case: &Case, layer: Layer, kinds: &[(&str, &str)], mode: Mode) -> Pass {
    let present = kinds.iter().filter(|(_, tensor)| case.has(tensor));
    let parameters = present.map(|(kind, tensor)| (format!("p.l.{kind}"), case.array(tensor)));
    let x = case.values("input");
    run(&[layer], (case.shape("input"), &x), parameters.collect(), mode, &case.values("grad_output"))
}

/// Checks a layer with a weight and perhaps a bias in every case of a family.
fn check_family(family: &str, layer: impl Fn(&Case) -> Layer) {
    for case in Golden::open(family).cases() {
        let pass = run_case(&case, layer(&case), &[("weight", "weight"), ("bias", "bias")], TRAINING);
        case.check("output", &pass.output);
        case.check("grad_input", &pass.by_input);
        for (name, gradient) in &pass.gradients {
            case.check(&format!("grad_{}", &name["p.l.".len()..]), gradient);
        }
    }
}

#[test]
fn linear() {
    check_family("linear", |case| Layer::Linear {
        name: "l".into(),
        out: case.shape("weight")[0],
        bias: case.has("bias"),
    });
}

#[test]
fn convolution() {
    check_family("conv2d", |case| Layer::Conv {
        name: "l".into(),
        out: case.shape("weight")[0],
        kernel: case.setting("kernel"),
        stride: case.setting("stride"),
        padding: case.setting("padding"),
        bias: case.has("bias"),
    });
}

#[test]
fn grouped_convolution() {
    check_family("grouped_conv2d", |case| Layer::GroupedConv {
        name: "l".into(),
        out: case.shape("weight")[0],
        kernel: case.setting("kernel"),
        stride: case.setting("stride"),
        padding: case.setting("padding"),
        groups: case.setting("groups"),
        bias: case.has("bias"),
    });
}

#[test]
fn pooling() {
    check_family("max_pool2d", |case| Layer::MaxPool {
        size: case.setting("kernel"),
        stride: case.setting("stride"),
        partial: false,
    });
    check_family("avg_pool2d", |case| Layer::AvgPool {
        size: case.setting("kernel"),
        stride: case.setting("stride"),
    });
}

#[test]
fn rectifier() {
    check_family("relu", |_| Layer::Relu);
}

#[test]
fn activations() {
    check_family("activations", |case| activation(&case.name));
}

/// The layer of this kind.
fn activation(kind: &str) -> Layer {
    serde_json::from_value(kind.into()).unwrap()
}

#[test]
fn losses() {
    for case in Golden::open("cross_entropy").cases() {
        let labels: Vec<u32> = case.values("labels").iter().map(|&label| label as u32).collect();
        let mut gradient = Vec::new();
        let loss = cross_entropy(&case.values("logits"), &labels, &mut gradient);
        case.check("loss", &[loss]);
        case.check("grad_logits", &gradient);
    }
    for case in Golden::open("value_losses").cases() {
        let task = match &case.name[..] {
            "binary_cross_entropy" => Task::MultiLabel,
            "squared_error" => Task::Regression { huber: None },
            "huber" => Task::Regression { huber: Some(0.75) },
            other => panic!("{other}"),
        };
        let (mut gradient, targets) = (Vec::new(), Targets::Values(case.values("targets")));
        let loss = task.loss(&case.values("outputs"), &targets, &mut gradient);
        case.check("loss", &[loss]);
        case.check("grad_outputs", &gradient);
    }
}

fn adam_of(case: &Case) -> AdamSettings {
    let setting = |name: &str| case.settings[name].as_f64().unwrap_or(0.0);
    let [beta1, beta2] = [0, 1].map(|place| case.settings["betas"][place].as_f64().unwrap());
    AdamSettings {
        rate: setting("lr"),
        beta1,
        beta2,
        epsilon: setting("eps"),
        decay: setting("weight_decay"),
    }
}

#[test]
fn descent() {
    for case in Golden::open("optimisers").cases() {
        let setting = |name: &str| case.settings[name].as_f64().unwrap_or(0.0);
        let (rate, decay) = (setting("lr"), setting("weight_decay"));
        let sgd = Sgd { rate, momentum: setting("momentum"), decay };
        let adam = || adam_of(&case);
        let optimizer = match case.name.split('_').next() {
            Some("sgd") => Optimizer::Sgd(sgd),
            Some("nesterov") => Optimizer::Nesterov(sgd),
            Some("adam") => Optimizer::Adam(adam()),
            Some("adamw") => Optimizer::AdamW(adam()),
            _ => panic!("no optimiser: {}", case.name),
        };
        let &[steps, count] = case.shape("gradients") else { panic!("one row a step") };
        let (gradients, expected) = (case.values("gradients"), case.values("parameters"));
        let start = Array::new([count], expected[..count].to_vec()).unwrap();
        let mut parameter = Parameter::new("w".into(), start, false);
        for step in 0..steps {
            let number = step as u32 + 1;
            parameter.step_along(&Step::of(&optimizer, number), &gradients[step * count..][..count]);
            for (found, expected) in parameter.values.values().iter().zip(&expected[(step + 1) * count..]) {
                assert!((found - expected).abs() < 1e-6, "{} step {step}: {found} {expected}", case.name);
            }
        }
    }
}

#[test]
fn adaptive_descent() {
    let mut decays = 0;
    for case in Golden::open("optimisers").cases() {
        if case.name.split('_').next() != Some("adam") {
            continue;
        }
        let &[steps, count] = case.shape("gradients") else { panic!("one row a step") };
        let (gradients, expected) = (&case.tensors["gradients"].1, case.values("parameters"));
        let settings = adam_of(&case);
        decays += usize::from(settings.decay > 0.0);
        let (mut values, mut adam) = (expected[..count].to_vec(), Adam::new(settings, count));
        for step in 0..steps {
            adam.descend(&mut values, &gradients[step * count..][..count]);
            for (found, expected) in values.iter().zip(&expected[(step + 1) * count..]) {
                assert!((found - expected).abs() < 1e-6, "{} step {step}: {found} {expected}", case.name);
            }
        }
    }
    assert!(decays > 0, "one with weight decay");
}

#[test]
fn batch_normalisation() {
    let kinds = [
        ("weight", "weight"),
        ("bias", "bias"),
        ("running-mean", "running_mean_before"),
        ("running-var", "running_var_before"),
    ];
    for case in Golden::open("batch_norm").cases() {
        let training = case.settings["training"].as_bool().unwrap();
        let mode = if training { TRAINING } else { Mode::Evaluation };
        let layer = if case.name.ends_with("_with") {
            let number = |name: &str| case.settings[name].as_f64().unwrap();
            Layer::BatchNormWith { name: "l".into(), epsilon: number("eps"), momentum: number("momentum") }
        } else {
            Layer::BatchNorm { name: "l".into() }
        };
        let pass = run_case(&case, layer, &kinds, mode);
        case.check("output", &pass.output);
        case.check("running_mean_after", &pass.parameters["p.l.running-mean"]);
        case.check("running_var_after", &pass.parameters["p.l.running-var"]);
        if training {
            case.check("grad_input", &pass.by_input);
            case.check("grad_weight", &pass.gradients["p.l.weight"]);
            case.check("grad_bias", &pass.gradients["p.l.bias"]);
        }
    }
}

#[test]
fn group_normalisation() {
    check_family("group_norm", |case| Layer::GroupNorm { name: "l".into(), groups: case.setting("groups") });
}

#[test]
fn padding_of_pooling() {
    for case in Golden::open("padded_pool").cases() {
        let pool = Layer::MaxPool { size: 3, stride: 2, partial: false };
        check_layers(&case, &[Layer::Relu, Layer::ZeroPad { pixels: 1 }, pool], &[]);
    }
}

#[test]
fn layer_normalisation() {
    check_family("layer_norm", |case| {
        let epsilon = case.settings["epsilon"].as_f64().unwrap();
        Layer::LayerNorm { name: "l".into(), epsilon }
    });
}

#[test]
fn cosines_with_a_simplex() {
    check_family("simplex_etf", |_| Layer::SimplexEtf { name: "l".into() });
}

#[test]
fn attention() {
    check_family("attention", |case| {
        let causal = case.settings["causal"].as_bool().unwrap();
        Layer::Attention { heads: case.setting("heads"), causal }
    });
}

/// Runs layers on a case. `tensors` has the names of parameters and of the tensors that hold them.
fn check_layers(case: &Case, layers: &[Layer], tensors: &[(&str, &str)]) {
    let parameters = tensors.iter().map(|(name, tensor)| ((*name).to_owned(), case.array(tensor)));
    let (x, gradient) = (case.values("input"), case.values("grad_output"));
    let pass = run(layers, (case.shape("input"), &x), parameters.collect(), TRAINING, &gradient);
    case.check("output", &pass.output);
    case.check("grad_input", &pass.by_input);
    for (name, tensor) in tensors {
        case.check(&format!("grad_{tensor}"), &pass.gradients[*name]);
    }
}

#[test]
fn self_attention() {
    for case in Golden::open("self_attention").cases() {
        let linear = |name: &str, out| Layer::Linear { name: name.into(), out, bias: true };
        let attention = Layer::Attention { heads: case.setting("heads"), causal: false };
        let layers = [linear("in", 24), attention, linear("out", 8)];
        let tensors = [
            ("p.in.weight", "weight_in"),
            ("p.in.bias", "bias_in"),
            ("p.out.weight", "weight_out"),
            ("p.out.bias", "bias_out"),
        ];
        check_layers(&case, &layers, &tensors);
    }
}

#[test]
fn positions() {
    for case in Golden::open("positions").cases() {
        if case.name == "sinusoidal" {
            check_layers(&case, &[Layer::SinusoidalPositions], &[]);
            continue;
        }
        let named = str::to_owned;
        let layers = [
            Layer::ToSequence,
            Layer::ClassToken { name: named("t") },
            Layer::Positions { name: named("p") },
            Layer::Residual { body: vec![Layer::FirstPosition], shortcut: vec![Layer::MeanPositions] },
        ];
        check_layers(&case, &layers, &[("p.t.weight", "token"), ("p.p.weight", "positions")]);
    }
}

#[test]
fn squeeze_and_excitation() {
    let conv = |name: &str, out| Layer::Conv {
        name: name.into(),
        out,
        kernel: 1,
        stride: 1,
        padding: 0,
        bias: true,
    };
    for case in Golden::open("squeeze_excite").cases() {
        let [inner, outer] = if case.name == "mobilenet" {
            [Layer::Relu, Layer::HardSigmoid]
        } else {
            [Layer::Silu, Layer::Sigmoid]
        };
        let body = vec![conv("fc1", 3), inner, conv("fc2", 6), outer];
        let tensors = [
            ("p.fc1.weight", "weight1"),
            ("p.fc1.bias", "bias1"),
            ("p.fc2.weight", "weight2"),
            ("p.fc2.bias", "bias2"),
        ];
        check_layers(&case, &[Layer::SqueezeExcite { body }], &tensors);
    }
}

#[test]
fn local_response_normalisation() {
    check_family("local_response_norm", |case| {
        let number = |name: &str| case.settings[name].as_f64().unwrap();
        let (alpha, beta, k) = (number("alpha"), number("beta"), number("k"));
        Layer::LocalResponseNorm { size: case.setting("size"), alpha, beta, k }
    });
}

#[test]
fn embedding() {
    for case in Golden::open("embedding").cases() {
        let &[vocabulary, dim] = case.shape("weight") else { panic!("a row for each token") };
        let layer = Layer::Embedding { name: "l".into(), vocabulary, dim };
        let parameters = BTreeMap::from([("p.l.weight".to_owned(), case.array("weight"))]);
        let tokens = case.values("indices");
        let gradient = case.values("grad_output");
        let pass = run(&[layer], (case.shape("indices"), &tokens), parameters, TRAINING, &gradient);
        case.check("output", &pass.output);
        case.check("grad_weight", &pass.gradients["p.l.weight"]);
    }
}

#[test]
fn long_short_term_memory() {
    // One case has initial states other than 0, which the layer does not support.
    for case in Golden::open("lstm").cases().filter(|case| !case.has("h_0")) {
        let hidden = case.setting("hidden");
        let layers: Vec<Layer> = (0..case.setting("layers"))
            .map(|layer| Layer::Lstm { name: format!("l{layer}"), hidden })
            .collect();
        let mut parameters = BTreeMap::new();
        for layer in 0..layers.len() {
            let bias = case.values(&format!("bias_ih_l{layer}"));
            // The one bias is the sum of PyTorch's two, which both have its gradient.
            let bias =
                bias.iter().zip(case.values(&format!("bias_hh_l{layer}"))).map(|(a, b)| a + b).collect();
            parameters.insert(format!("p.l{layer}.bias"), Array::new([4 * hidden], bias).unwrap());
            for kind in ["ih", "hh"] {
                let weight = case.array(&format!("weight_{kind}_l{layer}"));
                parameters.insert(format!("p.l{layer}.weight-{kind}"), weight);
            }
        }
        let x = case.values("input");
        let gradient = case.values("grad_output");
        let pass = run(&layers, (case.shape("input"), &x), parameters, TRAINING, &gradient);
        case.check("output", &pass.output);
        case.check("grad_input", &pass.by_input);
        for layer in 0..layers.len() {
            case.check(&format!("grad_bias_hh_l{layer}"), &pass.gradients[&format!("p.l{layer}.bias")]);
            for kind in ["ih", "hh"] {
                let gradient = &pass.gradients[&format!("p.l{layer}.weight-{kind}")];
                case.check(&format!("grad_weight_{kind}_l{layer}"), gradient);
            }
        }
    }
}
