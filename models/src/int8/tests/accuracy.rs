//! What 8 bits cost in accuracy, on images.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;

use super::*;
use crate::{Batch, Learner, evaluate};

/// The bytes of an IDX file after its header of `header` bytes.
fn read(path: &Path, header: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes.split_off(header)
}

/// Batches of one of the two sets, with pixels from 0 to 1.
fn batches(folder: &Path, set: &str, size: usize) -> Vec<Batch> {
    let images = read(&folder.join(format!("{set}-images-idx3-ubyte.gz")), 16);
    let labels = read(&folder.join(format!("{set}-labels-idx1-ubyte.gz")), 8);
    let batch = |(images, labels): (&[u8], &[u8])| {
        let x = images.iter().map(|&pixel| f32::from(pixel) / 255.0).collect();
        Batch::new(x, [labels.len(), 1, 28, 28], labels.iter().map(|&label| label.into()).collect()).unwrap()
    };
    images.chunks(28 * 28 * size).zip(labels.chunks(size)).map(batch).collect()
}

#[test]
#[ignore = "a minute on Fashion-MNIST: FEDERATION_DATA=DIR cargo test --release -p models --lib -- --ignored fashion"]
fn fashion_loses_less_than_a_point() {
    let Some(data) = std::env::var_os("FEDERATION_DATA") else {
        println!("skipped: FEDERATION_DATA is not set");
        return;
    };
    let folder = Path::new(&data).join("fashion-mnist");
    let (train, test) = (batches(&folder, "train", 32), batches(&folder, "t10k", 500));
    for name in ["lenet-5", "cnn-small", "mlp-2nn"] {
        let (architecture, params) = drawn(name, &[1, 28, 28], None);
        let sgd = Sgd { rate: 0.05, momentum: 0.9, decay: 0.0 };
        let mut learner = Learner::new(&architecture, &params, sgd, &Backend::cpu()).unwrap();
        for batch in train.iter().chain(&train) {
            learner.step(batch).unwrap();
        }
        let params = learner.params().unwrap();
        let whole = evaluate(learner.network(), &test).unwrap().accuracy.unwrap();
        let mut quantised = Network::new(&architecture, &params, &Backend::int8()).unwrap();
        let found = evaluate(&mut quantised, &test).unwrap().accuracy.unwrap();
        println!("{name}: {whole:.4} in f32, {found:.4} with 8 bits");
        assert!(whole > 0.8 && found > whole - 0.01, "{name}: {whole} {found}");
    }
}
