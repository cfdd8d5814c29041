//! What a device pays for being there: memory of an idle client, and the size of its program.
//!
//! Two clients join a run of `cnn-mnist` and finish round 1. One of them is killed; the other one has delivered its
//! update of round 2 and idles. Its resident memory is read once the receipt is in.
//!
//! `cargo bench -p federation-tests --bench idle`
//! `cargo build --profile dist --bin edge-client && ls -l target/dist/edge-client`   (the program for devices)

use std::time::{Duration, Instant};

use federation_tests::programs::programs;
use federation_tests::serving::{Serving, split_data};

fn main() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let overrides = [
        "model.name=cnn-mnist",
        "training.batch=10",
        "evaluate.every=0",
        "run.rounds=1000",
        "data.clients=2",
        "data.limit=80",
        "round.count.min=2",
    ]
    .map(str::to_owned);
    split_data(directory.path(), &overrides);
    let mut serving = Serving::start(directory.path(), &overrides);
    let idle = serving.join(directory.path(), 0);
    let other = serving.join(directory.path(), 1);
    for _ in 0..3 {
        serving.next_round().expect("rounds close while both clients are there");
    }
    drop(other);
    // The outbox is empty when the receipt of the last update is in: nothing more happens then.
    let outbox = directory.path().join("state-0/outbox");
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut quiet = Instant::now();
    while quiet.elapsed() < Duration::from_secs(3) && Instant::now() < deadline {
        if outbox.exists() {
            quiet = Instant::now();
        }
        std::thread::yield_now();
    }
    let resident = idle.memory("VmRSS").expect("this bench needs /proc");
    let peak = idle.memory("VmHWM").expect("this bench needs /proc");
    println!("idle edge-client after training cnn-mnist (6.7 MB of parameters):");
    println!("  resident {:.1} MB   (aim: below 25 MB)", resident as f64 / 1e6);
    println!("  at most  {:.1} MB   (while training)", peak as f64 / 1e6);
    let size = std::fs::metadata(&programs().edge_client).map_or(0, |metadata| metadata.len());
    println!("  program of this profile {:.1} MB   (aim for `dist`: below 10 MB)", size as f64 / 1e6);
}
