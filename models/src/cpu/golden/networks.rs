//! Golden tests of whole networks: three steps of one by `models/tests/golden/kernels.py`, and a forward pass of each by
//! `models.py`.

use super::{Case, Golden, noise};
use crate::architecture::{Architecture, BUILT_INS, Initial, Norm, ParameterKind, ParameterSpec, Variant};
use crate::batch::Batch;
use crate::device::Backend;
use crate::mode::Mode;
use crate::network::Network;
use crate::params::{Array, ParamSet};
use crate::sgd::Sgd;
use crate::train::Learner;

#[test]
fn three_steps_of_a_network() {
    for case in Golden::open("training").cases() {
        let architecture = Architecture::by_name(&case.name, &[1, 28, 28], 10).unwrap();
        let mut params = ParamSet::new();
        for (stream, spec) in architecture.parameter_specs().unwrap().into_iter().enumerate() {
            let bound = 1.0 / (spec.fan_in as f32).sqrt();
            let count = spec.shape.iter().product();
            let values = noise(stream as u32, count).map(|value| value * bound).collect();
            params.insert(spec.name, Array::new(spec.shape, values).unwrap());
        }
        let samples = case.setting("samples");
        let labels = case.values("labels").iter().map(|&label| label as u32).collect();
        let batch = Batch::new(noise(100, samples * 784).collect(), [samples, 1, 28, 28], labels).unwrap();
        let sgd = Sgd::plain(case.settings["rate"].as_f64().unwrap());
        let mut learner = Learner::new(&architecture, &params, sgd, &Backend::cpu()).unwrap();

        let (_, first) = learner.gradient(&batch).unwrap();
        let mut losses: Vec<f32> =
            (0..case.setting("steps")).map(|_| learner.step(&batch).unwrap()).collect();
        let after = learner.params().unwrap();
        losses.push(learner.gradient(&batch).unwrap().0);
        case.check("losses", &losses);
        for (what, set) in [("first_gradient", &first), ("after", &after)] {
            for (name, array) in set {
                let values = array.values();
                let indices = case.values(&format!("{name}.indices"));
                let chosen: Vec<f32> = indices.iter().map(|&index| values[index as usize]).collect();
                case.check(&format!("{name}.{what}.values"), &chosen);
                let squares: f64 = values.iter().map(|&value| f64::from(value).powi(2)).sum();
                case.check(&format!("{name}.{what}.sum_of_squares"), &[squares as f32]);
            }
        }
    }
}

/// The values with which `models.py` fills tensor number `stream`.
fn filled(stream: usize, spec: &ParameterSpec) -> Array {
    let (scale, offset) = match (spec.initial, spec.kind) {
        (Initial::Uniform { fan }, ParameterKind::Weight) if is_recurrent(spec) => {
            (1.0 / (fan as f64).sqrt(), 0.0)
        }
        (Initial::Uniform { fan } | Initial::He { fan }, ParameterKind::Weight) => {
            ((6.0 / fan as f64).sqrt(), 0.0)
        }
        (Initial::Uniform { fan }, _) => (1.0 / (fan as f64).sqrt(), 0.0),
        // Biases that start as 0 beside weights that He et al. would draw.
        (Initial::Zero, ParameterKind::Bias) if spec.fan_in > 1 => (1.0 / (spec.fan_in as f64).sqrt(), 0.0),
        (Initial::One, ParameterKind::Buffer) => (0.5, 1.0),
        (Initial::One, _) => (0.25, 1.0),
        (Initial::Zero, _) => (0.25, 0.0),
        (Initial::Normal | Initial::Small, _) => (1.0, 0.0),
        (Initial::He { .. }, _) => unreachable!("it is how weights start"),
    };
    let count = spec.shape.iter().product();
    let values = noise(stream as u32, count).map(|value| value * scale as f32 + offset).collect();
    Array::new(spec.shape.clone(), values).unwrap()
}

fn is_recurrent(spec: &ParameterSpec) -> bool {
    ["weight-ih", "weight-hh"].iter().any(|kind| spec.name.ends_with(kind))
}

fn numbers(case: &Case, name: &str) -> Vec<usize> {
    case.settings[name].as_array().unwrap().iter().map(|number| number.as_u64().unwrap() as usize).collect()
}

#[test]
fn a_forward_pass_of_every_model() {
    let golden = Golden::open("models");
    for built_in in BUILT_INS {
        let mut cases =
            golden.cases().filter(|case| case.name.split(' ').next() == Some(built_in.name)).peekable();
        assert!(cases.peek().is_some(), "{} has no golden numbers", built_in.name);
        for case in cases {
            let norm = match case.name.split_once(' ') {
                None => None,
                Some((_, "none")) => Some(Norm::None),
                Some((_, "batch")) => Some(Norm::Batch),
                Some((_, "group")) => Some(Norm::Group),
                Some((_, other)) => panic!("{other} is no normalisation"),
            };
            let variant = Variant { norm, ..Variant::default() };
            let (input, classes) = (numbers(&case, "input"), case.setting("classes"));
            let architecture = Architecture::variant(built_in.name, &input, classes, variant).unwrap();
            assert_eq!(architecture.parameters(), Ok(case.setting("parameters")), "{}", case.name);
            let specs = architecture.parameter_specs().unwrap();
            let params: ParamSet = specs
                .iter()
                .enumerate()
                .map(|(stream, spec)| (spec.name.clone(), filled(stream, spec)))
                .collect();
            let samples = case.setting("samples");
            let mut x: Vec<f32> = noise(1000, samples * input.iter().product::<usize>()).collect();
            if let Some(vocabulary) = architecture.vocabulary() {
                for x in &mut x {
                    *x = (f64::midpoint(f64::from(*x), 1.0) * vocabulary as f64).floor() as f32;
                }
            }
            let mut network = Network::new(&architecture, &params, &Backend::cpu()).unwrap();
            network.forward(&x, &[&[samples], &input[..]].concat(), Mode::Evaluation).unwrap();
            let rows: Vec<&[f32]> = network.logits().chunks(classes).collect();
            let wanted = case.shape("logits")[1];
            let ends = [rows[0], rows[rows.len() - 1]].map(|row| row[..wanted].to_vec());
            case.check_within(5e-5, "logits", &ends.concat());
            let squares: f64 = network.features().iter().map(|&value| f64::from(value).powi(2)).sum();
            case.check_within(5e-5, "squares", &[squares as f32]);
        }
    }
}
