//! What data costs beside training: reading a folder of JPEG files once against the steps of a run of `cnn-small`, and
//! augmentation against a step of `lenet-5` with batches of ten. Everything on one thread, the median of many repetitions.
//!
//! `cargo run --release -p shared --example data_time`

use std::io::Cursor;
use std::sync::Arc;
use std::time::{Duration, Instant};

use image::{ImageFormat, Rgb, RgbImage};
use models::{Architecture, Backend, Batch, Learner, Sgd, Targets};
use shared::data::{
    Augmentation, Dataset, Labels, Normalisation, Padding, Preparation, ReadOptions, Split, View, registry,
    sets,
};
use shared::seed::{Seed, below};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const IMAGES: usize = 2_000;
const BATCH: usize = 10;
const REPEATS: usize = 201;

fn main() -> Result<(), Failure> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    pool.install(run)
}

fn run() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    write(folder.path())?;
    let names: Vec<String> = (0..10).map(|class| format!("class-{class}")).collect();
    let options = |shape: &[usize]| ReadOptions {
        shape: Some(shape.to_vec()),
        labels: Some(Labels::Names(names.clone())),
        ..ReadOptions::default()
    };

    let begin = Instant::now();
    let (format, grey) = registry::read(folder.path(), Split::Train, &options(&[1, 28, 28]))?;
    let read = begin.elapsed();
    let (fill, step) = training("cnn-small", grey, &Preparation::default())?;
    let per_epoch = step * (IMAGES / BATCH) as u32;
    println!("cnn-small, {IMAGES} JPEG files of 32x32 read as [1, 28, 28], batches of {BATCH}:");
    println!("  reading, once       {:8.1} ms, {:.0} us an image", ms(read), ms(read) * 1e3 / IMAGES as f64);
    println!("  steps of an epoch   {:8.1} ms", ms(per_epoch));
    println!(
        "  filling a batch     {:8.3} ms, a step {:.3} ms: {:.1} %",
        ms(fill),
        ms(step),
        share(fill, step)
    );
    for epochs in [1, 10, 100] {
        println!(
            "  data in {epochs:3} epochs  {:8.1} %",
            share(read + fill * (IMAGES / BATCH) as u32 * epochs, per_epoch * epochs)
        );
    }

    let colour = format.load(folder.path(), Split::Train, &options(&[3, 32, 32]))?;
    let usual = Augmentation {
        random_shift: 4,
        padding: Padding::Reflect,
        horizontal_flip: 0.5,
        ..Augmentation::default()
    };
    let all = Augmentation { brightness: 0.2, contrast: 0.8, saturation: 0.2, random_erasing: 0.5, ..usual };
    println!("lenet-5 on [3, 32, 32], batches of {BATCH}:");
    for (name, augmentation, normalisation) in [
        ("nothing", Augmentation::default(), Normalisation::None),
        ("shift, flip, normalised", usual, sets::CIFAR_10.normalisation().unwrap_or_default()),
        ("everything, whitened", all, Normalisation::Whiten),
    ] {
        let preparation = Preparation { augmentation, normalisation };
        let (fill, step) = training("lenet-5", colour.clone(), &preparation)?;
        let percent = share(fill, step);
        println!("  {name:24} {:8.3} ms a batch, a step {:.3} ms: {percent:.1} %", ms(fill), ms(step));
    }
    Ok(())
}

/// Writes noise of two scales, which is as hard to decode as a photograph.
fn write(folder: &std::path::Path) -> Result<(), Failure> {
    let mut rng = Seed::root(1).rng();
    for number in 0..IMAGES {
        let corners: [u8; 12] = std::array::from_fn(|_| below(256, &mut rng) as u8);
        let image = RgbImage::from_fn(32, 32, |x, y| {
            let (u, v) = (x * 8, y * 8);
            let channel = |c: usize| {
                let [a, b, d, e] = [0, 3, 6, 9].map(|corner| u32::from(corners[corner + c]));
                let smooth = ((a * (256 - u) + b * u) * (256 - v) + (d * (256 - u) + e * u) * v) >> 16;
                smooth.wrapping_add((x * 31 + y * 17 + number as u32) % 23) as u8
            };
            Rgb([channel(0), channel(1), channel(2)])
        });
        let class = folder.join(format!("class-{}", number % 10));
        std::fs::create_dir_all(&class)?;
        let mut bytes = Cursor::new(Vec::new());
        image.write_to(&mut bytes, ImageFormat::Jpeg)?;
        std::fs::write(class.join(format!("{number}.jpg")), bytes.into_inner())?;
    }
    Ok(())
}

/// The time to prepare a batch, and that of a step on it.
fn training(model: &str, data: Dataset, preparation: &Preparation) -> Result<(Duration, Duration), Failure> {
    let view = View::whole(Arc::new(data));
    let shape = preparation.shape(view.shape())?;
    let architecture = Architecture::by_name(model, &shape, 10)?;
    let params = architecture.initialise(|tensor| Seed::root(2).derive(tensor).rng())?;
    let sgd = Sgd { rate: 0.01, momentum: 0.0, decay: 0.0 };
    let mut learner = Learner::new(&architecture, &params, sgd, &Backend::cpu())?;
    let (mut x, mut y) = (Vec::new(), Targets::default());
    let (mut fills, mut steps) = (Vec::new(), Vec::new());
    for repeat in 0..REPEATS {
        let positions: Vec<usize> = (0..BATCH).map(|at| (repeat * BATCH + at) % view.len()).collect();
        let begin = Instant::now();
        preparation.training(&view, &positions, &Seed::root(repeat as u64), &mut x, &mut y);
        fills.push(begin.elapsed());
        let batch = Batch::with_targets(x, [&[BATCH], &shape[..]].concat(), y)?;
        let begin = Instant::now();
        learner.step(&batch)?;
        steps.push(begin.elapsed());
        (x, y) = batch.into_buffers();
    }
    fills.sort();
    steps.sort();
    Ok((fills[REPEATS / 2], steps[REPEATS / 2]))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// What the one takes of both, in percent.
fn share(of: Duration, other: Duration) -> f64 {
    100.0 * of.as_secs_f64() / (of + other).as_secs_f64()
}
