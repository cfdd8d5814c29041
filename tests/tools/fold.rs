//! The speed of the exact fold.

use std::hint::black_box;
use std::time::Instant;

use clap::Args;
use federation_tests::serving::median;
use models::{Array, ParamSet};
use shared::aggregation::{ExactSum, Scale, Template};

/// How fast one f32 update is folded into the exact sums, beside the machine's memory-copy rate.
///
/// Per parameter the fold reads 4 bytes and reads and writes an accumulator of 8: 20 bytes moved. A copy moves every byte
/// twice. Both are measured alternately on 25 million parameters; the ratio is what counts.
#[derive(Args)]
pub(crate) struct Arguments {}

const PARAMETERS: usize = 25_000_000;
const REPEATS: usize = 15;

pub(crate) fn run(_: &Arguments) {
    let values: Vec<f32> = (0..PARAMETERS).map(|i| (i % 1000) as f32 * 1e-4 - 0.05).collect();
    let mut update = ParamSet::new();
    update.insert("w", Array::new(vec![PARAMETERS], values.clone()).expect("one axis"));
    let mut sum = ExactSum::new(&Template::of(&update), Scale::agree(1000.0, 1000, 100));
    let mut target = vec![0.0f32; PARAMETERS];
    let (mut copies, mut folds) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        let start = Instant::now();
        black_box(&mut target).copy_from_slice(black_box(&values));
        copies.push(start.elapsed().as_secs_f64());
        let start = Instant::now();
        black_box(&mut sum).add(black_box(&update), 600);
        folds.push(start.elapsed().as_secs_f64());
    }
    let copy = 8.0 * PARAMETERS as f64 / median(copies);
    let fold = 20.0 * PARAMETERS as f64 / median(folds);
    println!("folding {PARAMETERS} f32 parameters, medians of {REPEATS}, alternately:");
    println!("  memory copy  {:6.2} GB/s moved", copy / 1e9);
    println!("  exact fold   {:6.2} GB/s moved", fold / 1e9);
    println!("  ratio        {:6.2}   (aim: at least 0.5)", fold / copy);
}
