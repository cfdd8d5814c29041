//! Files of samples, as users and devices bring them.

use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use flate2::Compression;
use flate2::Crc;
use flate2::write::GzEncoder;
use image::{ColorType, ImageFormat};
use models::Targets;
use shared::data::cifar::Cifar;
use shared::data::{
    DataError, Dataset, Labels, OnError, ReadOptions, SampleFormat as _, Samples, Split, View, csv,
    idx as mnist, images as pictures, registry, safetensors, text as plays,
};

use super::{Seen, tmp};

/// A whole set is as it should be.
fn sound(read: &Result<Dataset, DataError>) -> Seen {
    if let Ok(set) = read {
        let each = set.targets().len() / set.len();
        assert_eq!(set.len() * each, set.targets().len());
        assert!(set.targets().values().iter().all(|value| value.is_finite()));
        assert!(set.labels().iter().all(|&label| (label as usize) < set.classes()));
        assert_eq!(set.sample_len(), set.shape().iter().product::<usize>());
        if set.len() > 0 {
            let view = View::whole(Arc::new(set.clone()));
            let (mut x, mut y) = (Vec::new(), Targets::default());
            view.fill(&[set.len() - 1], &mut x, &mut y);
            assert_eq!((x.len(), y.len()), (set.sample_len(), each));
            assert!(x.iter().all(|value| value.is_finite()));
        }
    }
    Seen::result(read)
}

/// Images, then labels after four bytes with the length of the images.
///
/// # Panics
/// If what is read is not a sound set.
#[must_use]
pub fn idx(bytes: &[u8]) -> Seen {
    let (images, labels) = match bytes.split_first_chunk() {
        Some((length, rest)) => rest.split_at((u32::from_le_bytes(*length) as usize).min(rest.len())),
        None => (bytes, bytes),
    };
    let folder = tmp::folder();
    tmp::write(&folder.join("train-images-idx3-ubyte"), images);
    tmp::write(&folder.join("train-labels-idx1-ubyte"), labels);
    let _ = (mnist::read_images(images), mnist::read_labels(labels));
    sound(&mnist::Idx.load(&folder, Split::Train, &ReadOptions::default()))
}

/// Plain and compressed.
#[must_use]
pub fn idx_seeds() -> Vec<Vec<u8>> {
    let images = [&[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2][..], &[9; 8]].concat();
    let labels = [0, 0, 8, 1, 0, 0, 0, 2, 3, 4].to_vec();
    let packed = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        std::io::Write::write_all(&mut encoder, bytes).expect("memory takes all bytes");
        encoder.finish().expect("memory takes all bytes")
    };
    let both =
        |images: &[u8], labels: &[u8]| [&(images.len() as u32).to_le_bytes()[..], images, labels].concat();
    vec![both(&images, &labels), both(&packed(&images), &packed(&labels))]
}

/// One file, of CIFAR-10 or of CIFAR-100.
///
/// # Panics
/// If what is read is not a sound set.
#[must_use]
pub fn cifar(bytes: &[u8]) -> Seen {
    let Some((&first, content)) = bytes.split_first() else { return Seen::of(&"empty") };
    let variant = if first & 1 == 0 { &Cifar::TEN } else { &Cifar::HUNDRED };
    let folder = tmp::folder();
    for name in variant.files(Split::Test) {
        tmp::write(&folder.join(name), content);
    }
    sound(&variant.load(&folder, Split::Test, &ReadOptions::default()))
}

/// One image of each.
#[must_use]
pub fn cifar_seeds() -> Vec<Vec<u8>> {
    [(0, 1), (1, 2)].map(|(variant, labels)| [&[variant][..], &vec![3; labels + 3072]].concat()).into()
}

/// How a table is read: the first byte says it.
fn options(first: u8) -> ReadOptions {
    let labels = match first & 9 {
        0 => Labels::Numbers(3),
        1 => Labels::Names(vec!["cat".to_owned(), "dog".to_owned()]),
        flags => Labels::Values {
            outputs: 2,
            names: vec!["cat".to_owned(), "label".to_owned()],
            flags: flags == 8,
        },
    };
    let on_error = if first & 2 == 0 { OnError::Stop } else { OnError::Skip };
    let shape = (first & 4 != 0).then(|| vec![1, 2]);
    ReadOptions { labels: Some(labels), on_error, shape, ..ReadOptions::default() }
}

/// A table, read in one of the ways that there are.
///
/// # Panics
/// If what is read is not a sound set.
#[must_use]
pub fn table(bytes: &[u8]) -> Seen {
    let Some((&first, content)) = bytes.split_first() else { return Seen::of(&"empty") };
    sound(&csv::read(content, Path::new("train.csv"), &options(first)))
}

/// Numbers and names.
#[must_use]
pub fn tables() -> Vec<Vec<u8>> {
    let numbers = "a,label,b\n1.5,0,2\n-3e2,2,\"0.25\"\n";
    let names = "label,a,b\ncat,1,2\ndog,3,4\nbird,5,6\n";
    (0_u8..8)
        .map(|first| [&[first][..], if first & 1 == 0 { numbers } else { names }.as_bytes()].concat())
        .collect()
}

/// Samples as tensors.
///
/// # Panics
/// If what is read is not a sound set.
#[must_use]
pub fn tensors(bytes: &[u8]) -> Seen {
    let Some((&first, content)) = bytes.split_first() else { return Seen::of(&"empty") };
    sound(&safetensors::read(content, Path::new("train.safetensors"), &options(first)))
}

/// One of each kind of sample.
#[must_use]
pub fn tensor_seeds() -> Vec<Vec<u8>> {
    let bytes = Dataset::new(vec![1, 1, 2], vec![1; 4], vec![0_u8, 1], 2);
    let floats = Dataset::labelled(vec![2], Samples::Floats(vec![0.5; 4]), vec![0_u32, 1], 2);
    let text = Dataset::labelled(vec![2], Samples::Tokens(vec![1, 2, 3, 4]), vec![1_u32, 2, 3, 4], 5);
    let none = r#"{"x":{"dtype":"F32","shape":[0,1,1],"data_offsets":[0,0]},"y":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#;
    let mut seeds = vec![[&[0][..], &(none.len() as u64).to_le_bytes(), none.as_bytes()].concat()];
    for set in [bytes, floats, text] {
        let folder = tmp::folder();
        safetensors::write_split(&folder, Split::Train, &set.expect("a sound set")).expect("there is room");
        let written = std::fs::read(folder.join(safetensors::Safetensors.signature(Split::Train)))
            .expect("just written");
        for first in [0, 2, 4] {
            seeds.push([&[first][..], &written].concat());
        }
    }
    seeds
}

/// A picture; checksums of a PNG's chunks are made right if the first byte says so.
#[must_use]
pub fn image(bytes: &[u8]) -> Seen {
    let Some((&first, content)) = bytes.split_first() else { return Seen::of(&"empty") };
    let mut content = content.to_vec();
    if first & 1 == 1 {
        make_sums_right(&mut content);
    }
    let decoded = pictures::decode_bytes(&content);
    if let Ok(image) = &decoded {
        assert!(image.width() <= pictures::MAX_SIDE && image.height() <= pictures::MAX_SIDE);
        assert!(image.as_bytes().len() as u64 <= pictures::MAX_DECODED);
    }
    let folder = tmp::folder();
    for class in ["cat", "dog"] {
        tmp::write(&folder.join("train").join(class).join("a.png"), &content);
    }
    let options = ReadOptions { shape: Some(vec![3, 4, 4]), ..options(1) };
    sound(&registry::read(&folder, Split::Train, &options).map(|(_, dataset)| dataset));
    Seen::result(&decoded)
}

/// Writes the sum that each chunk of a PNG should have.
fn make_sums_right(png: &mut [u8]) {
    let mut at = 8;
    while let Some(length) = png.get(at..).and_then(|rest| rest.first_chunk()) {
        let end = (at + 8).saturating_add(u32::from_be_bytes(*length) as usize);
        let Some(chunk) = png.get(at + 4..end) else { return };
        let mut crc = Crc::new();
        crc.update(chunk);
        if let Some(sum) = png.get_mut(end..end.saturating_add(4)) {
            sum.copy_from_slice(&crc.sum().to_be_bytes());
        }
        at = end.saturating_add(4);
    }
}

/// Grey and coloured pictures in both formats.
#[must_use]
pub fn images() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (colour, pixels) in [(ColorType::L8, vec![7; 36]), (ColorType::Rgb8, (0..108).collect())] {
        for format in [ImageFormat::Png, ImageFormat::Jpeg] {
            let mut bytes = Cursor::new(Vec::new());
            image::write_buffer_with_format(&mut bytes, &pixels, 6, 6, colour, format).expect("a picture");
            for first in [0, 1] {
                seeds.push([&[first][..], bytes.get_ref()].concat());
            }
        }
    }
    seeds
}

/// A play.
///
/// # Panics
/// If what is read is not a sound set.
#[must_use]
pub fn text(bytes: &[u8]) -> Seen {
    let path = tmp::file("play.txt", bytes);
    let folder = path.parent().expect("it is in a folder");
    let splits =
        [Split::Train, Split::Test].map(|split| plays::Text.load(folder, split, &ReadOptions::default()));
    for read in &splits {
        sound(read);
    }
    Seen::of(&splits.map(|read| read.map(|_| ())))
}

/// Two who speak, and one who says a single line.
#[must_use]
pub fn texts() -> Vec<Vec<u8>> {
    let says = |name: &str, lines: usize| {
        let line = "It is the east, and Juliet is the sun, and more of that.\n";
        format!("{name}:\n{}\n", line.repeat(lines))
    };
    vec![[says("ROMEO", 12), says("JULIET", 11), says("NURSE", 1)].concat().into_bytes()]
}
