//! How long one step of training takes: milliseconds per step of stochastic gradient descent, by built-in model, batch
//! size and number of threads. The median over many steps, after a few to warm up.
//!
//! ```text
//! cargo run --release -p models --example step_time [-- MODEL...]
//! ```

use std::error::Error;
use std::time::{Duration, Instant};

use models::{Architecture, BUILT_INS, Backend, Batch, Learner, Sgd};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const BATCHES: [usize; 3] = [10, 16, 64];
const THREADS: [usize; 2] = [1, 2];
const CLASSES: usize = 10;
/// Steps before the clock runs, which fill the caches and grow the heap to its size.
const WARM_UP: usize = 3;
/// At least so many steps, and then more until the time is used up.
const MIN_STEPS: usize = 15;
const MEASURE: Duration = Duration::from_millis(600);

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let pools = THREADS
        .map(|threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build())
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    println!("{:<12} {:>5} {:>13} {:>13}", "model", "batch", "1 thread, ms", "2 threads, ms");
    for built_in in BUILT_INS {
        if !chosen.is_empty() && !chosen.iter().any(|name| name == built_in.name) {
            continue;
        }
        for samples in BATCHES {
            print!("{:<12} {samples:>5}", built_in.name);
            for pool in &pools {
                let median = pool.install(|| median_step(built_in.name, built_in.input, samples))?;
                print!(" {:>13.3}", median.as_secs_f64() * 1e3);
            }
            println!();
        }
    }
    Ok(())
}

/// The median duration of a step on noise.
fn median_step(
    model: &str,
    input: &[usize],
    samples: usize,
) -> Result<Duration, Box<dyn Error + Send + Sync>> {
    let architecture = Architecture::by_name(model, input, CLASSES)?;
    let params = architecture.initialise(|name| ChaCha8Rng::seed_from_u64(name.len() as u64))?;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let count = samples * input.iter().product::<usize>();
    let x = (0..count).map(|_| (rng.next_u32() >> 8) as f32 / (1 << 24) as f32).collect();
    let y = (0..samples).map(|i| (i % CLASSES) as u32).collect();
    let batch = Batch::new(x, [&[samples], input].concat(), y)?;
    // Momentum and decay are on, as in most configurations; the rate is small, so that noise never diverges.
    let sgd = Sgd { rate: 1e-3, momentum: 0.9, decay: 1e-4 };
    let mut learner = Learner::new(&architecture, &params, sgd, &Backend::cpu())?;
    for _ in 0..WARM_UP {
        learner.step(&batch)?;
    }
    let mut durations = Vec::new();
    let start = Instant::now();
    while durations.len() < MIN_STEPS || start.elapsed() < MEASURE {
        let step = Instant::now();
        learner.step(&batch)?;
        durations.push(step.elapsed());
    }
    durations.sort_unstable();
    Ok(durations[durations.len() / 2])
}
