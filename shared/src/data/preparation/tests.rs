//! What preparation does to samples, and what it depends on.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::data::Dataset;
use crate::data::{ReadOptions, SampleFormat as _, Split, idx::Idx, sets};

const PLAIN: Augmentation = Augmentation {
    random_resized_crop: 0.0,
    random_shift: 0,
    padding: Padding::Zero,
    random_crop: 0,
    horizontal_flip: 0.0,
    vertical_flip: 0.0,
    random_rotation: 0.0,
    rand_augment: 0,
    rand_augment_strength: 0.3,
    brightness: 0.0,
    contrast: 0.0,
    saturation: 0.0,
    hue: 0.0,
    colour_probability: 1.0,
    grey: 0.0,
    random_erasing: 0.0,
};

/// Everything of before there were parts, hues and greys, for 32x32 images in colour.
const ALL: Augmentation = Augmentation {
    random_resized_crop: 0.0,
    random_shift: 4,
    padding: Padding::Reflect,
    random_crop: 24,
    horizontal_flip: 0.5,
    vertical_flip: 0.0,
    random_rotation: 0.0,
    rand_augment: 0,
    rand_augment_strength: 0.3,
    brightness: 0.2,
    contrast: 0.8,
    saturation: 0.3,
    hue: 0.0,
    colour_probability: 1.0,
    grey: 0.0,
    random_erasing: 0.5,
};

/// The same with turns.
const TURNED: Augmentation = Augmentation { random_rotation: 15.0, ..ALL };

/// The same with the newer parts.
const NEWER: Augmentation =
    Augmentation { random_resized_crop: 0.2, hue: 0.1, colour_probability: 0.8, grey: 0.2, ..ALL };

/// The same with the newest.
const NEWEST: Augmentation =
    Augmentation { vertical_flip: 0.5, rand_augment: 2, rand_augment_strength: 0.6, ..NEWER };

fn drawn(augmentation: Augmentation, image: &[f32], shape: &[usize], number: u64) -> Vec<f32> {
    let mut out = Vec::new();
    augmentation.apply(image, shape, &Seed::root(number), &mut out);
    out
}

/// What `count` seeds make of an image, each once, in order of its numbers.
fn outcomes(augmentation: Augmentation, image: &[f32], shape: &[usize], count: u64) -> Vec<Vec<u32>> {
    let mut all: Vec<Vec<u32>> = (0..count)
        .map(|number| drawn(augmentation, image, shape, number).iter().map(|value| value.to_bits()).collect())
        .collect();
    all.sort();
    all.dedup();
    all
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn photographs(count: usize) -> View {
    let mut rng = Seed::root(3).rng();
    let pixels = (0..count * 3072).map(|_| crate::seed::below(256, &mut rng) as u8).collect();
    let labels = (0..count).map(|sample| sample as u32 % 10);
    View::whole(Arc::new(Dataset::new(vec![3, 32, 32], pixels, labels, 10).unwrap()))
}

#[test]
fn a_shift_is_a_padded_crop() {
    let image = [1.0, 2.0, 3.0, 4.0];
    // Of 2x2, by at most one: nine places.
    let zero = outcomes(Augmentation { random_shift: 1, ..PLAIN }, &image, &[1, 2, 2], 200);
    let mut expected = Vec::new();
    let padded = [[0.0; 4], [0.0, 1.0, 2.0, 0.0], [0.0, 3.0, 4.0, 0.0], [0.0; 4]];
    let mirrored = [[4.0, 3.0, 4.0, 3.0], [2.0, 1.0, 2.0, 1.0], [4.0, 3.0, 4.0, 3.0], [2.0, 1.0, 2.0, 1.0]];
    let crops = |padded: [[f32; 4]; 4]| {
        let at =
            |y: usize, x: usize| [padded[y][x], padded[y][x + 1], padded[y + 1][x], padded[y + 1][x + 1]];
        let mut all: Vec<Vec<u32>> = (0..9).map(|place| bits(&at(place / 3, place % 3))).collect();
        all.sort();
        all.dedup();
        all
    };
    expected.clone_from(&crops(padded));
    assert_eq!(zero, expected);
    let reflect = Augmentation { random_shift: 1, padding: Padding::Reflect, ..PLAIN };
    assert_eq!(outcomes(reflect, &image, &[1, 2, 2], 200), crops(mirrored));
}

#[test]
fn a_crop_is_any_square_and_in_evaluation_the_centre() {
    let image: Vec<f32> = (0..32).map(|value| value as f32).collect();
    let crop = Augmentation { random_crop: 2, ..PLAIN };
    // Two channels of 4x4: nine places, the same in both channels.
    let found = outcomes(crop, &image, &[2, 4, 4], 300);
    let mut expected: Vec<Vec<u32>> = (0..9)
        .map(|place| 4 * (place / 3) + place % 3)
        .map(|corner| [0, 1, 4, 5, 16, 17, 20, 21].map(|offset| (corner + offset) as f32))
        .map(|square| bits(&square))
        .collect();
    expected.sort();
    assert_eq!(found, expected);
    let mut centre = Vec::new();
    crop.centre(&image, &[2, 4, 4], &mut centre);
    assert_eq!(centre, [5.0, 6.0, 9.0, 10.0, 21.0, 22.0, 25.0, 26.0]);
    centre.clear();
    PLAIN.centre(&image, &[2, 4, 4], &mut centre);
    assert_eq!(centre, image);
}

#[test]
fn a_flip_mirrors_every_row() {
    let image = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let flip = |probability| Augmentation { horizontal_flip: probability, ..PLAIN };
    assert_eq!(drawn(flip(1.0), &image, &[1, 2, 3], 0), [3.0, 2.0, 1.0, 6.0, 5.0, 4.0]);
    let mirrored = (0..1000).filter(|&number| drawn(flip(0.3), &image, &[1, 2, 3], number) != image).count();
    // Standard deviation 14.
    assert!(mirrored.abs_diff(300) < 70, "{mirrored}");
    let upside_down = Augmentation { vertical_flip: 1.0, ..PLAIN };
    assert_eq!(drawn(upside_down, &image, &[1, 2, 3], 0), [4.0, 5.0, 6.0, 1.0, 2.0, 3.0]);
    let both = Augmentation { vertical_flip: 1.0, horizontal_flip: 1.0, ..PLAIN };
    assert_eq!(drawn(both, &image, &[1, 2, 3], 0), [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
}

#[test]
fn colours_change_as_documented() {
    let image = [0.2, 0.4, 0.5, 0.7, 0.8, 0.9];
    let shape = [3, 1, 2];
    let factors = |change: Augmentation, of: fn(&[f32]) -> f32| -> (f32, f32) {
        let all = (0..2000).map(|number| of(&drawn(change, &image, &shape, number)));
        all.fold((f32::MAX, f32::MIN), |(low, high), factor| (low.min(factor), high.max(factor)))
    };
    let near = |(low, high): (f32, f32), expected: (f32, f32)| {
        assert!((low - expected.0).abs() < 0.01 && (high - expected.1).abs() < 0.01, "{low} {high}");
    };
    near(factors(Augmentation { brightness: 0.1, ..PLAIN }, |out| out[0] / 0.2), (0.9, 1.1));
    near(factors(Augmentation { contrast: 0.1, ..PLAIN }, |out| (out[1] - out[0]) / 0.2), (0.9, 1.1));
    near(factors(Augmentation { saturation: 0.1, ..PLAIN }, |out| (out[4] - out[0]) / 0.6), (0.9, 1.1));
    // Contrast keeps the mean brightness, saturation that of each pixel.
    let brightness = |image: &[f32], pixel: usize| {
        0.299 * image[pixel] + 0.587 * image[2 + pixel] + 0.114 * image[4 + pixel]
    };
    let contrast = drawn(Augmentation { contrast: 0.1, ..PLAIN }, &image, &shape, 1);
    let saturated = drawn(Augmentation { saturation: 0.1, ..PLAIN }, &image, &shape, 1);
    let sum = |image: &[f32]| brightness(image, 0) + brightness(image, 1);
    assert!((sum(&contrast) - sum(&image)).abs() < 1e-6 && contrast != image);
    assert!((0..2).all(|pixel| (brightness(&saturated, pixel) - brightness(&image, pixel)).abs() < 1e-6));
    // Values stay in [0, 1].
    let wild = Augmentation { brightness: 1.0, contrast: 1.0, saturation: 1.0, ..PLAIN };
    for number in 0..200 {
        assert!(drawn(wild, &image, &shape, number).iter().all(|value| (0.0..=1.0).contains(value)));
    }
}

#[test]
fn a_hue_turns_in_the_circle_and_grey_has_none() {
    // Red, half a grey, and a pale blue.
    let image = [1.0, 0.5, 0.4, 0.0, 0.5, 0.6, 0.0, 0.5, 0.8];
    let shape = [3, 1, 3];
    let mut third = image;
    super::colour::turn(&mut third, 1.0 / 3.0);
    let expected = [0.0, 0.5, 0.8, 1.0, 0.5, 0.4, 0.0, 0.5, 0.6];
    assert!(third.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6), "{third:?}");
    super::colour::turn(&mut third, -1.0 / 3.0);
    assert!(
        third.iter().zip(image).all(|(found, expected)| (found - expected).abs() < 1e-6),
        "and back: {third:?}"
    );
    let turned = drawn(Augmentation { hue: 0.1, ..PLAIN }, &image, &shape, 1);
    assert!(bits(&turned[..2]) == bits(&image[..2]) && turned != image, "the value stays: {turned:?}");
    let grey = drawn(Augmentation { grey: 1.0, ..PLAIN }, &image, &shape, 1);
    assert!(
        (0..3).all(|pixel| (grey[pixel] - grey[3 + pixel]).abs() < 1e-6
            && (grey[pixel] - grey[6 + pixel]).abs() < 1e-6)
    );
    let jitter = |probability| Augmentation { brightness: 0.5, colour_probability: probability, ..PLAIN };
    let changed = (0..1000).filter(|&number| drawn(jitter(0.8), &image, &shape, number) != image).count();
    assert!(changed.abs_diff(800) < 60, "{changed}");
    assert_eq!(drawn(jitter(0.0), &image, &shape, 1), image);
    let error = Augmentation { grey: 0.1, ..PLAIN }.shape(&[1, 8, 8]).unwrap_err().to_string();
    assert!(error.contains("augment.grey") && error.contains("these have 1"), "{error}");
}

#[test]
fn a_part_is_scaled_to_the_whole_in_training_alone() {
    let image: Vec<f32> = (0..48).map(|value| value as f32 / 48.0).collect();
    let scaled = Augmentation { random_resized_crop: 0.3, ..PLAIN };
    let found = outcomes(scaled, &image, &[3, 4, 4], 100);
    assert!(found.len() > 5 && found.iter().all(|out| out.len() == 48));
    let mut centre = Vec::new();
    scaled.centre(&image, &[3, 4, 4], &mut centre);
    assert_eq!(centre, image);
}

#[test]
fn erasing_replaces_a_rectangle_by_the_mean() {
    let image: Vec<f32> = (0..400).map(|pixel| (pixel % 7) as f32 / 7.0).collect();
    let mean = image.iter().sum::<f32>() / 400.0;
    let erase = Augmentation { random_erasing: 1.0, ..PLAIN };
    for number in 0..300 {
        let out = drawn(erase, &image, &[1, 20, 20], number);
        let erased: Vec<usize> =
            (0..400).filter(|&pixel| out[pixel].to_bits() != image[pixel].to_bits()).collect();
        assert!(erased.iter().all(|&pixel| (out[pixel] - mean).abs() < 1e-5));
        let (rows, columns): (Vec<usize>, Vec<usize>) =
            erased.iter().map(|pixel| (pixel / 20, pixel % 20)).unzip();
        let span = |all: &[usize]| all.iter().max().unwrap() - all.iter().min().unwrap() + 1;
        assert_eq!(span(&rows) * span(&columns), erased.len(), "a full rectangle");
        // 2 to 33 % of 400, up to the rounding of its sides.
        assert!((4..=150).contains(&erased.len()), "{}", erased.len());
    }
}

#[test]
fn whitening_gives_mean_zero_and_deviation_one() {
    let mut sample: Vec<f32> = (0..300).map(|value| (value % 11) as f32 / 11.0).collect();
    Normalisation::Whiten.apply(&mut sample, 3);
    let mean = sample.iter().sum::<f32>() / 300.0;
    let variance = sample.iter().map(|value| value * value).sum::<f32>() / 300.0 - mean * mean;
    assert!(mean.abs() < 1e-5 && (variance - 1.0).abs() < 1e-4, "{mean} {variance}");
    let mut flat = vec![0.7; 12];
    Normalisation::Whiten.apply(&mut flat, 3);
    assert!(flat.iter().all(|value| value.abs() < 1e-3), "{flat:?}");
}

#[test]
fn channels_are_normalised_each_by_its_own() {
    let given = Normalisation::Channels { mean: vec![0.5, 1.0], deviation: vec![0.5, 2.0] };
    let mut sample = vec![0.5, 1.0, 1.0, 3.0];
    given.apply(&mut sample, 2);
    assert_eq!(sample, [0.0, 1.0, 0.0, 1.0]);
    assert!(sets::CIFAR_10.normalisation().is_some() && sets::GLYPHS.normalisation().is_none());
}

#[test]
fn the_known_statistics_are_those_of_the_files() {
    let Some(data) = std::env::var_os("FEDERATION_DATA") else {
        println!("skipped: FEDERATION_DATA is not set");
        return;
    };
    for published in [sets::MNIST, sets::FASHION_MNIST] {
        let name = published.name;
        let Some(Normalisation::Channels { mean, deviation }) = published.normalisation() else {
            panic!("{name} has statistics")
        };
        let folder = std::path::Path::new(&data).join(name);
        let Ok(set) = Idx.load(&folder, Split::Train, &ReadOptions::default()) else {
            println!("skipped: {} is not there", folder.display());
            continue;
        };
        let Samples::Bytes(pixels) = set.samples() else { panic!("images are bytes") };
        let n = pixels.len() as f64;
        let m = pixels.iter().map(|&pixel| f64::from(pixel)).sum::<f64>() / n;
        let s = (pixels.iter().map(|&pixel| (f64::from(pixel) - m).powi(2)).sum::<f64>() / n).sqrt();
        assert!((m / 255.0 - f64::from(mean[0])).abs() < 1e-4, "{name}: {}", m / 255.0);
        assert!((s / 255.0 - f64::from(deviation[0])).abs() < 1e-4, "{name}: {}", s / 255.0);
    }
}

#[test]
fn what_does_not_fit_is_refused_with_the_numbers() {
    let of = |augmentation, shape: &[usize]| {
        Preparation { augmentation, ..Preparation::default() }.shape(shape).unwrap_err().to_string()
    };
    assert!(of(ALL, &[80]).contains("has shape 80"));
    assert!(of(ALL, &[3, 23, 32]).contains("24x24 does not fit into an image of 23x32"));
    assert!(of(Augmentation { random_shift: 4, ..PLAIN }, &[1, 8, 4]).contains("a shift of 4 pixels"));
    assert!(of(Augmentation { saturation: 0.1, ..PLAIN }, &[1, 8, 8]).contains("these have 1"));
    let bright =
        Preparation { augmentation: Augmentation { brightness: 0.1, ..PLAIN }, ..Preparation::default() };
    for (values, said) in [([0.0, 1.0, 0.5, 0.25], None), ([0.0, 1.0, -0.5, 2.0], Some("a -0.5 among"))] {
        let data = Dataset::labelled(vec![1, 2, 2], Samples::Floats(values.to_vec()), vec![0], 2).unwrap();
        let data = View::whole(std::sync::Arc::new(data));
        let error = bright.check(&data).err().map(|error| error.to_string());
        assert_eq!(error.is_some(), said.is_some());
        assert!(error.is_none_or(|error| said.is_some_and(|said| error.contains(said))));
        assert_eq!(Preparation { augmentation: PLAIN, ..bright.clone() }.check(&data), Ok(()));
        let random = Augmentation { rand_augment: 1, ..PLAIN };
        let random = Preparation { augmentation: random, ..bright.clone() };
        assert_eq!(random.check(&data).is_err(), said.is_some());
    }
    let normal = |mean: &[f32], deviation: &[f32]| {
        let normalisation = Normalisation::Channels { mean: mean.to_vec(), deviation: deviation.to_vec() };
        Preparation { normalisation, ..Preparation::default() }.shape(&[3, 2, 2])
    };
    assert!(normal(&[0.5; 3], &[0.5; 1]).unwrap_err().to_string().contains("3 means and 1 deviations"));
    assert_eq!(normal(&[0.5; 3], &[0.5, 0.0, 0.5]), Err(PreparationError::Moments));
    assert_eq!(normal(&[f32::NAN; 3], &[0.5; 3]), Err(PreparationError::Moments));
    let cnn_cifar = Preparation { augmentation: ALL, normalisation: Normalisation::Whiten };
    assert_eq!(cnn_cifar.shape(&[3, 32, 32]), Ok(vec![3, 24, 24]));
    assert_eq!(Preparation::default().shape(&[80]), Ok(vec![80]));
}

#[test]
fn a_sample_depends_on_its_own_seed_and_not_on_its_batch() {
    let data = photographs(6);
    let preparation = Preparation { augmentation: ALL, normalisation: Normalisation::Whiten };
    let batch = |positions: &[usize], number| {
        let (mut x, mut y) = (vec![7.0; 3], Targets::Classes(vec![7; 3]));
        preparation.training(&data, positions, &Seed::root(number), &mut x, &mut y);
        (x, y)
    };
    let (together, labels) = batch(&[0, 1, 2, 3, 4, 5], 1);
    let size = 3 * 24 * 24;
    assert_eq!((together.len(), labels.classes()), (6 * size, &[0, 1, 2, 3, 4, 5][..]));
    for sample in 0..6 {
        assert_eq!(bits(&batch(&[sample], 1).0), bits(&together[sample * size..][..size]));
    }
    assert_ne!(bits(&batch(&[3], 2).0), bits(&together[3 * size..][..size]), "another epoch");
    let (mut x, mut y) = (Vec::new(), Targets::default());
    preparation.evaluation(&data, &[3], &mut x, &mut y);
    let again = x.clone();
    preparation.evaluation(&data, &[3], &mut x, &mut y);
    assert_eq!((x.len(), &x, y.classes()), (size, &again, &[3][..]));
}

#[test]
fn nothing_is_nothing() {
    let data = photographs(3);
    let (mut plain, mut labels) = (Vec::new(), Targets::default());
    data.fill(&[2, 0], &mut plain, &mut labels);
    let (mut x, mut y) = (Vec::new(), Targets::default());
    Preparation::default().training(&data, &[2, 0], &Seed::root(1), &mut x, &mut y);
    assert_eq!((&x, &y), (&plain, &labels));
    Preparation::default().evaluation(&data, &[2, 0], &mut x, &mut y);
    assert_eq!((&x, &y), (&plain, &labels));
    assert!(Preparation::default().is_nothing());
}

#[test]
fn golden_augmentation() {
    use sha2::{Digest, Sha256};
    let data = photographs(4);
    let golden = |augmentation: Augmentation| {
        let preparation = Preparation { augmentation, normalisation: Normalisation::None };
        let (mut x, mut y) = (Vec::new(), Targets::default());
        preparation.training(&data, &[0, 1, 2, 3], &Seed::root(42), &mut x, &mut y);
        let mut hash = Sha256::new();
        // Rounded, so that only what is drawn counts.
        for value in &x {
            hash.update([(value * 250.0).round() as u8]);
        }
        hash.finalize()[..8].to_vec()
    };
    assert_eq!(golden(ALL), [181, 248, 142, 182, 146, 239, 174, 61]);
    assert_eq!(golden(NEWER), [224, 253, 31, 163, 118, 164, 120, 175]);
    assert_eq!(golden(NEWEST), [37, 48, 70, 191, 132, 201, 65, 73]);
    assert_eq!(golden(TURNED), [123, 42, 86, 59, 63, 143, 136, 182]);
}

proptest! {
    #[test]
    fn any_accepted_augmentation_gives_its_shape(
        (channels, height, width) in (1_usize..4, 1_usize..12, 1_usize..12),
        (random_shift, random_crop, reflect) in (0_u32..12, 0_u32..12, any::<bool>()),
        (horizontal_flip, brightness, contrast, saturation, random_erasing) in
            (0.0..=1.0_f64, 0.0..=1.0_f64, 0.0..=1.0_f64, 0.0..=1.0_f64, 0.0..=1.0_f64),
        (random_resized_crop, hue, colour_probability, grey, random_rotation) in
            (0.0..=1.0_f64, 0.0..=1.0_f64, 0.0..=1.0_f64, 0.0..=1.0_f64, 0.0..=180.0_f64),
        (vertical_flip, rand_augment, rand_augment_strength) in (0.0..=1.0_f64, 0_u32..4, 0.0..=1.0_f64),
        number: u64,
    ) {
        let padding = if reflect { Padding::Reflect } else { Padding::Zero };
        let augmentation = Augmentation {
            random_resized_crop,
            random_shift,
            padding,
            random_crop,
            horizontal_flip,
            vertical_flip,
            random_rotation,
            rand_augment,
            rand_augment_strength,
            brightness,
            contrast,
            saturation,
            hue,
            colour_probability,
            grey,
            random_erasing,
        };
        let shape = [channels, height, width];
        let Ok(made) = augmentation.shape(&shape) else { return Ok(()) };
        let image = vec![0.5; shape.iter().product()];
        let out = drawn(augmentation, &image, &shape, number);
        prop_assert_eq!(out.len(), made.iter().product::<usize>());
        prop_assert!(out.iter().all(|value| (0.0..=1.0).contains(value)));
        let mut centre = Vec::new();
        augmentation.centre(&image, &shape, &mut centre);
        prop_assert_eq!(centre.len(), out.len());
    }
}
