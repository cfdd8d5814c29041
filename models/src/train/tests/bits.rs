//! Training gives the same bits on every processor that fuses multiplications with additions: with AVX2, AVX-512 and NEON.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::*;
use crate::kernels::{arch, noise};
use crate::params::{Precision, codec};

const STEPS: usize = 2;

/// The beginning of the SHA-256 of the parameters after some steps.
fn trained(model: &str, input: &[usize], classes: usize, samples: usize) -> String {
    let architecture = Architecture::by_name(model, input, classes).unwrap();
    let specs = architecture.parameter_specs().unwrap();
    // No logarithms or cosines, which are not the same on every system.
    let params: ParamSet = (0..)
        .zip(specs)
        .map(|(seed, spec)| {
            let count = spec.shape.iter().product();
            let spread = 0.1 / (1.0 + (count as f32 / spec.shape[0] as f32).sqrt().sqrt());
            let values = noise(count, seed).into_iter().map(|value| spread * value).collect();
            (spec.name, Array::new(spec.shape, values).unwrap())
        })
        .collect();
    let sgd = Sgd { rate: 0.05, momentum: 0.9, decay: 1e-4 };
    let mut learner = Learner::new(&architecture, &params, sgd, &Backend::cpu()).unwrap().with_seed(SEED);
    for step in 0..STEPS {
        let shape = [&[samples], input].concat();
        let values = noise(shape.iter().product(), 1000 + step as u32).into_iter();
        let x = match architecture.vocabulary() {
            Some(vocabulary) => {
                values.map(|value| ((0.5 * value + 0.5) * vocabulary as f32).floor()).collect()
            }
            None => values.collect(),
        };
        let labels = (samples * architecture.predictions().unwrap()) as u32;
        let y = (0..labels).map(|i| (i * 7 + step as u32) % classes as u32).collect();
        learner.step(&Batch::new(x, shape.as_slice(), y).unwrap()).unwrap();
    }
    let after = learner.params().unwrap();
    assert_ne!(after, params, "training that changes nothing proves nothing");
    let bytes = codec::to_bytes(&after, Precision::F32, &BTreeMap::new()).unwrap();
    Sha256::digest(bytes)[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// With the tests of the kernels, this one is run with all vector instructions that the processor has.
#[test]
fn training_has_the_same_bits_on_every_processor() {
    if matches!(arch(), pulp::Arch::Scalar) {
        return; // Products are rounded before they are added.
    }
    // Few samples and many, since products of few rows are summed otherwise.
    let networks: [(&str, &[usize], usize, usize, &str); 10] = [
        ("linear", &[1, 28, 28], 10, 1, "c08769c4be2c30bc"),
        ("mlp-2nn", &[1, 28, 28], 10, 1, "1fcabf54b0d1d28d"),
        ("mlp-2nn", &[1, 28, 28], 10, 10, "6e46826c227bd66d"),
        ("mlp-2nn", &[1, 28, 28], 10, 70, "17f2a77b2b9eea34"),
        ("cnn-small", &[1, 28, 28], 10, 6, "c2746ec2cea100b2"),
        ("cnn-mnist", &[1, 28, 28], 10, 3, "1be7992b5da7f88c"),
        ("mobilenet-v2", &[3, 32, 32], 10, 2, "0d9668e2ff6c0e3b"),
        ("resnet-9", &[3, 32, 32], 10, 2, "095be131d9e61a4c"),
        ("text-transformer", &[19], 80, 3, "2c23f1db6f780343"),
        ("char-lstm", &[11], 80, 5, "f73fa4af93b8455f"),
    ];
    let found = networks.map(|(model, input, classes, samples, _)| trained(model, input, classes, samples));
    let expected = networks.map(|(.., digest)| digest.to_owned());
    assert_eq!(found, expected, "{:?}", networks.map(|(model, ..)| model));
}
