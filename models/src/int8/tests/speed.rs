//! How fast predictions are, side by side with `f32`.

use std::time::Instant;

use super::*;

/// Milliseconds of a pass.
fn once(network: &mut Network, x: &[f32], shape: &[usize]) -> f64 {
    let start = Instant::now();
    network.forward(x, shape, Mode::Evaluation).unwrap();
    start.elapsed().as_secs_f64() * 1e3
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
#[ignore = "it measures"]
fn predictions_of_8_bits_beside_those_of_32() {
    let only = std::env::var("INT8_ONLY").unwrap_or_default();
    println!(
        "{:<30} {:>5} {:>7} {:>9} {:>9} {:>6}",
        "model", "batch", "threads", "f32 ms", "int8 ms", "ratio"
    );
    for (name, input) in [
        ("mobilenet-v2", &[3, 96, 96][..]),
        ("mobilenet-v2", &[3, 224, 224]),
        ("resnet-18", &[3, 32, 32]),
        ("lenet-5", &[3, 32, 32]),
        ("vit-tiny", &[3, 64, 64]),
        ("mobilenet-v3-small", &[3, 96, 96]),
        ("resnet-18-imagenet", &[3, 224, 224]),
        ("char-lstm", &[80]),
        ("mlp-2nn", &[1, 28, 28]),
    ] {
        if !name.starts_with(&only) {
            continue;
        }
        let (architecture, params) = drawn(name, input, None);
        for batch in [1, 32] {
            let shape = [&[batch], input].concat();
            let x = samples(&architecture, batch, 1);
            for threads in [1, 2] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| {
                    let mut whole = Network::new(&architecture, &params, &Backend::cpu()).unwrap();
                    let mut quantised = Network::new(&architecture, &params, &Backend::int8()).unwrap();
                    let estimate = once(&mut whole, &x, &shape);
                    let turns = ((1500.0 / estimate) as usize).clamp(5, 300);
                    let mut times = [vec![], vec![]];
                    for _ in 0..turns {
                        times[0].push(once(&mut whole, &x, &shape));
                        times[1].push(once(&mut quantised, &x, &shape));
                    }
                    let [f32_ms, int8_ms] = times.map(median);
                    let model = format!("{name} {input:?}");
                    println!(
                        "{model:<30} {batch:>5} {threads:>7} {f32_ms:>9.3} {int8_ms:>9.3} {:>6.2}",
                        f32_ms / int8_ms
                    );
                });
            }
        }
    }
}
