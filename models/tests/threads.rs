//! Training gives the same bytes for any number of threads.

#![allow(clippy::unwrap_used)] // Outside functions marked `#[test]`, clippy does not know that this is a test.

use std::collections::BTreeMap;

use models::{Architecture, Backend, Batch, Learner, Precision, Sgd, codec};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const POOLS: [usize; 4] = [1, 2, 3, 5];
const STEPS: usize = 3;

/// The parameters after some steps in a pool of this number of threads.
fn trained(architecture: &Architecture, samples: usize, threads: usize) -> Vec<u8> {
    let train = || {
        let params = architecture.initialise(|name| ChaCha8Rng::seed_from_u64(name.len() as u64)).unwrap();
        let sgd = Sgd { rate: 0.01, momentum: 0.9, decay: 1e-4 };
        let mut learner =
            Learner::new(architecture, &params, sgd, &Backend::cpu()).unwrap().with_seed([3; 32]);
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let shape = [&[samples], &architecture.input[..]].concat();
        for _ in 0..STEPS {
            let mut value = || match architecture.vocabulary() {
                Some(vocabulary) => (rng.next_u32() % vocabulary as u32) as f32,
                None => (rng.next_u32() >> 8) as f32 / (1 << 24) as f32,
            };
            let x = (0..shape.iter().product()).map(|_| value()).collect();
            let labels = (samples * architecture.predictions().unwrap()) as u32;
            let y = (0..labels).map(|i| i % architecture.classes as u32).collect();
            learner.step(&Batch::new(x, shape.as_slice(), y).unwrap()).unwrap();
        }
        let after = learner.params().unwrap();
        assert_ne!(after, params, "training that changes nothing proves nothing");
        codec::to_bytes(&after, Precision::F32, &BTreeMap::new()).unwrap()
    };
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(train)
}

#[test]
fn the_size_of_the_pool_does_not_show() {
    // Products, convolutions, pooling, normalisation and a recurrence, in batches large enough to be shared out.
    for (model, input, classes, samples) in [
        ("cnn-small", &[1, 28, 28][..], 10, 32),
        ("mlp-2nn", &[1, 28, 28], 10, 32),
        ("vit-tiny", &[3, 64, 64], 10, 4),
        ("text-transformer", &[48], 80, 6),
        ("mobilenet-v2", &[3, 64, 64], 10, 6),
        ("mobilenet-v3-small", &[3, 64, 64], 10, 6),
        ("resnet-18-imagenet", &[3, 64, 64], 10, 3),
        ("word-lstm", &[10], 4000, 8),
        ("resnet-9", &[3, 32, 32], 10, 4),
        ("char-lstm", &[40], 80, 6),
    ] {
        let architecture = Architecture::by_name(model, input, classes).unwrap();
        let [first, others @ ..] = POOLS.map(|threads| trained(&architecture, samples, threads));
        for (other, threads) in others.iter().zip(&POOLS[1..]) {
            assert!(*other == first, "{model} differs in a pool of {threads} threads");
        }
    }
}
