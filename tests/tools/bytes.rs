//! Bytes of updates by their precision.

use std::fs;
use std::path::Path;

use aggregator::round::jsonl;
use clap::Args;
use federation_tests::programs::simulate;

/// What the devices of a round send by `update.precision`: `bytes_up` of simulated rounds, with all that is sent beside the values.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Models.
    #[arg(long, value_delimiter = ',', default_values_t = ["cnn-mnist".to_owned(), "resnet-9".to_owned()])]
    models: Vec<String>,
}

/// Clients of the round.
const CLIENTS: u64 = 2;
const PRECISIONS: [&str; 5] = ["f32", "f16", "bf16", "int8", "int4"];

pub(crate) fn run(Arguments { models }: &Arguments) {
    println!("{:<12} {:<9} {:>20} {:>8}", "model", "precision", "bytes of an update", "of f32");
    for model in models {
        let mut full = None;
        for precision in PRECISIONS {
            let bytes = bytes_up(model, precision) / CLIENTS;
            let full = *full.get_or_insert(bytes);
            println!("{model:<12} {precision:<9} {bytes:>20} {:>6.2} x", full as f64 / bytes as f64);
        }
    }
}

/// Files of CIFAR-10 with made images: what is sent does not depend on what they show, and 32x32 suits every model for images.
fn cifar(folder: &Path) {
    let record = |class: u8| [vec![class], vec![class; 3 * 32 * 32]].concat();
    let records: Vec<u8> = (0..10).flat_map(record).collect();
    fs::create_dir(folder).expect("created");
    let batches = (1..=5).map(|batch| format!("data_batch_{batch}.bin"));
    for name in batches.chain(["test_batch.bin".to_owned()]) {
        fs::write(folder.join(name), &records).expect("written");
    }
}

/// What all devices have sent in one round.
fn bytes_up(model: &str, precision: &str) -> u64 {
    let runs = tempfile::tempdir().expect("the system has a place for temporary files");
    let images = runs.path().join("images");
    cifar(&images);
    let settings = [
        "data.set=cifar-10".to_owned(),
        format!("data.path={}", images.display()),
        format!("model.name={model}"),
        format!("update.precision={precision}"),
        format!("data.clients={CLIENTS}"),
        "training.epochs=1".to_owned(),
        "evaluate.every=0".to_owned(),
        "run.rounds=1".to_owned(),
        "run.name=bytes".to_owned(),
    ];
    simulate(runs.path(), &settings.each_ref().map(String::as_str));
    let text = fs::read_to_string(runs.path().join("bytes/rounds.jsonl")).expect("a round was closed");
    let rounds = jsonl::read(&text).expect("whole lines").records;
    rounds.iter().map(|round| round.bytes_up).sum()
}
