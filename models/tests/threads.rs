//! Training gives the same bytes for any number of threads.
//!
//! Two numbers matter: the size of the rayon pool that the training runs in, and the number of parts that candle cuts a
//! matrix product into, which it takes from `RAYON_NUM_THREADS` or the processor. The first is varied within a process,
//! the second by starting this test again as another process.

#![allow(clippy::unwrap_used)] // Outside functions marked `#[test]`, clippy does not know that this is a test.

use std::collections::BTreeMap;
use std::process::Command;

use models::{Architecture, Backend, Batch, Learner, Precision, Sgd, codec};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};

const MODELS: [&str; 2] = ["cnn-small", "mlp-2nn"];
const POOLS: [usize; 3] = [1, 2, 3];
const STEPS: usize = 5;
/// The batch is large enough that candle cuts the products up.
const SAMPLES: usize = 32;

/// The parameters after some steps in a pool of so many threads.
fn trained(model: &str, threads: usize) -> Vec<u8> {
    let train = || {
        let architecture = Architecture::by_name(model, &[1, 28, 28], 10).unwrap();
        let params = architecture.initialise(|name| ChaCha8Rng::seed_from_u64(name.len() as u64)).unwrap();
        let sgd = Sgd { rate: 0.05, momentum: 0.9, decay: 1e-4 };
        let mut learner = Learner::new(&architecture, &params, sgd, &Backend::cpu()).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        for _ in 0..STEPS {
            let x = (0..SAMPLES * 28 * 28).map(|_| (rng.next_u32() >> 8) as f32 / (1 << 24) as f32).collect();
            let y = (0..SAMPLES as u32).map(|i| i % 10).collect();
            learner.step(&Batch::new(x, [SAMPLES, 1, 28, 28], y).unwrap()).unwrap();
        }
        let after = learner.params().unwrap();
        assert_ne!(after, params, "training that changes nothing proves nothing");
        codec::to_bytes(&after, Precision::F32, &BTreeMap::new()).unwrap()
    };
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(train)
}

/// One line that stands for the parameters of all models in all pools, which must be the same in all pools.
fn digests() -> String {
    let digest = |model| {
        let [first, others @ ..] = POOLS.map(|threads| trained(model, threads));
        for (other, threads) in others.iter().zip(&POOLS[1..]) {
            assert!(*other == first, "{model} differs in a pool of {threads} threads");
        }
        format!("{:?}", Sha256::digest(&first))
    };
    format!("digests {}", MODELS.map(digest).join(" "))
}

#[test]
fn the_size_of_the_pool_does_not_show() {
    println!("{}", digests());
}

#[test]
fn the_parts_of_a_matrix_product_do_not_show() {
    let in_process_with = |parts: &str| {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_size_of_the_pool_does_not_show", "--nocapture", "--test-threads=1"])
            .env("RAYON_NUM_THREADS", parts)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        text.split_once("digests").unwrap().1.lines().next().unwrap().to_owned()
    };
    let [first, others @ ..] = ["1", "2", "5"].map(in_process_with);
    for other in others {
        assert_eq!(other, first);
    }
}
