//! Folders of images: what is read, and what each mistake is called.

use std::io::Cursor;

use image::{DynamicImage, GrayImage, ImageEncoder as _, ImageFormat, Luma, Rgb, RgbImage, RgbaImage};
use proptest::prelude::*;

use super::*;
use crate::data::Samples;

fn options(shape: Option<&[usize]>, on_error: OnError) -> ReadOptions {
    let labels = Labels::Names(vec!["cat".to_owned(), "dog".to_owned()]);
    let shape = shape.map(<[usize]>::to_vec);
    ReadOptions { shape, labels: Some(labels), on_error, ..ReadOptions::default() }
}

fn encoded(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// Red in the left column, green in the right, of two by two pixels.
fn flag() -> DynamicImage {
    let colour = |x, _| if x == 0 { Rgb([250, 0, 10]) } else { Rgb([0, 240, 20]) };
    RgbImage::from_fn(2, 2, colour).into()
}

fn put(folder: &Path, name: &str, content: &[u8]) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn two_classes() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "dog/b.png", &encoded(&flag(), ImageFormat::Png));
    put(folder.path(), "cat/a.PNG", &encoded(&flag().grayscale(), ImageFormat::Png));
    put(folder.path(), "dog/.hidden", b"x");
    folder
}

fn bytes(loaded: &Dataset) -> &[u8] {
    let Samples::Bytes(pixels) = loaded.samples() else { panic!("images are bytes") };
    pixels
}

fn load(folder: &Path, options: &ReadOptions) -> Result<Dataset, DataError> {
    Images.load(folder, Split::Train, options)
}

#[test]
fn folders_are_classes_and_pixels_lie_channel_by_channel() {
    let folder = two_classes();
    let all = load(folder.path(), &options(Some(&[3, 2, 2]), OnError::Stop)).unwrap();
    assert_eq!((all.labels(), all.classes(), all.skipped().count), (&[0, 1][..], 2, 0));
    assert_eq!(bytes(&all)[12..], [250, 0, 250, 0, 0, 240, 0, 240, 10, 20, 10, 20]);
    // The first image is grey: the other becomes so, by the brightness of its colours.
    let grey = load(folder.path(), &options(None, OnError::Stop)).unwrap();
    assert_eq!(grey.shape(), [1, 2, 2]);
    let (cat, dog) = bytes(&grey).split_at(4);
    assert!(cat.iter().zip(dog).all(|(a, b)| a.abs_diff(*b) <= 1), "{cat:?} {dog:?}");
}

#[cfg(unix)]
#[test]
fn a_pipe_among_the_images_is_not_waited_for() {
    let folder = two_classes();
    let pipe = folder.path().join("cat/pipe.png");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let refused = Images.load(folder.path(), Split::Train, &options(None, OnError::Stop)).unwrap_err();
    assert!(refused.to_string().contains("pipe.png"), "{refused}");
    let loaded = Images.load(folder.path(), Split::Train, &options(None, OnError::Skip)).unwrap();
    assert_eq!(loaded.skipped().in_words("sample").map(|said| said.contains("pipe.png")), Some(true));
}

#[test]
fn splits_have_folders_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "train/cat/a.png", &encoded(&flag(), ImageFormat::Png));
    put(folder.path(), "test/dog/a.png", &encoded(&flag(), ImageFormat::Png));
    let labels = |split| {
        let loaded = Images.load(folder.path(), split, &options(None, OnError::Stop)).unwrap();
        loaded.labels().to_vec()
    };
    assert_eq!((labels(Split::Train), labels(Split::Test)), (vec![0], vec![1]));
    let bare = two_classes();
    let none = Images.load(bare.path(), Split::Test, &options(None, OnError::Stop)).unwrap_err();
    assert!(none.to_string().contains("contains no `test`"), "{none}");
}

#[test]
fn other_sizes_are_scaled_to_cover_and_cut() {
    let folder = tempfile::tempdir().unwrap();
    // Eight wide, four tall: black, then white, then black, each a quarter but for the middle half.
    let wide = GrayImage::from_fn(8, 4, |x, _| Luma([if (2..6).contains(&x) { 255 } else { 0 }]));
    put(folder.path(), "cat/a.png", &encoded(&wide.into(), ImageFormat::Png));
    let middle = load(folder.path(), &options(Some(&[1, 2, 2]), OnError::Stop)).unwrap();
    // Scaled to 4x2, of which the middle 2x2 is cut: nearly white, the scaling reaches into its neighbours.
    assert!(bytes(&middle).iter().all(|&pixel| pixel > 200), "{:?}", bytes(&middle));
    let natural = load(folder.path(), &options(None, OnError::Stop)).unwrap();
    assert_eq!(natural.shape(), [1, 4, 8]);
    put(folder.path(), "cat/b.png", &encoded(&flag(), ImageFormat::Png));
    let differ = load(folder.path(), &options(None, OnError::Stop)).unwrap_err().to_string();
    assert!(differ.contains("b.png: is 2x2") && differ.contains("4x8"), "{differ}");
}

#[test]
fn jpeg_and_transparency_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let grey = DynamicImage::from(GrayImage::from_pixel(16, 16, Luma([100])));
    put(folder.path(), "cat/a.jpg", &encoded(&grey, ImageFormat::Jpeg));
    let clear = RgbaImage::from_pixel(16, 16, image::Rgba([9, 8, 7, 0]));
    put(folder.path(), "cat/b.png", &encoded(&clear.into(), ImageFormat::Png));
    let both = load(folder.path(), &options(Some(&[3, 16, 16]), OnError::Stop)).unwrap();
    assert!(bytes(&both)[..768].iter().all(|pixel| pixel.abs_diff(100) <= 2));
    assert_eq!([0, 256, 512].map(|at| bytes(&both)[768 + at]), [9, 8, 7]);
}

#[test]
fn what_lies_beside_images_by_habit_stops_nobody() {
    let folder = two_classes();
    for name in ["cat/Thumbs.db", "cat/readme.txt", "dog/desktop.ini", "LICENSE", "labels.csv"] {
        put(folder.path(), name, b"x");
    }
    let dataset = load(folder.path(), &options(Some(&[3, 2, 2]), OnError::Stop)).unwrap();
    assert_eq!((dataset.len(), dataset.skipped().others), (2, 0));
    let unnamed = encoded(&flag(), ImageFormat::Png);
    put(folder.path(), "cat/IMG_1", &unnamed);
    let error = load(folder.path(), &options(Some(&[3, 2, 2]), OnError::Stop)).unwrap_err().to_string();
    assert!(error.contains("IMG_1: cannot be read"), "an image that has lost its ending counts: {error}");
}

#[test]
fn each_mistake_names_its_file_or_is_skipped_and_counted() {
    let png = encoded(&flag(), ImageFormat::Png);
    let jpeg = encoded(&flag(), ImageFormat::Jpeg);
    let mut wrong_checksum = png.clone();
    let at = png.len() - 20;
    wrong_checksum[at] ^= 0x55;
    for (name, content, said) in [
        ("cat/z.png", &png[..png.len() / 2], "z.png: cannot be decoded"),
        ("cat/z.png", &wrong_checksum[..], "z.png: cannot be decoded"),
        ("cat/z.jpg", &jpeg[..jpeg.len() / 3], "z.jpg: cannot be decoded"),
        ("cat/z.jpeg", b"no image", "z.jpeg: cannot be decoded"),
        ("cat/z.png", b"GIF89a\x01\0\x01\0", "it is Gif"),
        ("cat/z.png", b"", "z.png: cannot be decoded"),
        ("cat/notes.gif", b"x", "notes.gif: cannot be read"),
        ("notes.gif", b"x", "notes.gif: is no folder of a class"),
    ] {
        let folder = two_classes();
        put(folder.path(), name, content);
        let shape: Option<&[usize]> = Some(&[3, 2, 2]);
        let error = load(folder.path(), &options(shape, OnError::Stop)).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        let dataset = load(folder.path(), &options(shape, OnError::Skip)).unwrap();
        let skipped = dataset.skipped();
        // What is no image is not one that is lost.
        let lost = usize::from(!name.contains("notes"));
        assert_eq!(
            (dataset.labels(), skipped.count, skipped.others),
            (&[0, 1][..], lost, 1 - lost),
            "{name}"
        );
        assert_eq!(skipped.reasons, [error]);
    }
    let folder = two_classes();
    std::fs::remove_file(folder.path().join("cat/a.PNG")).unwrap();
    let empty = load(folder.path(), &options(None, OnError::Stop)).unwrap_err().to_string();
    assert!(empty.contains("cat: is the folder of a class and holds no image"), "{empty}");
    let skipped = load(folder.path(), &options(None, OnError::Skip)).unwrap();
    assert_eq!((skipped.len(), skipped.skipped().count, skipped.skipped().others), (1, 0, 1));
}

/// Nothing but ones is no code in any JPEG.
#[test]
fn a_jpeg_with_what_is_no_code_in_its_pixels_is_refused() {
    let noise = RgbImage::from_fn(64, 64, |x, y| Rgb([(x * 37) as u8, (y * 91) as u8, (x * y * 7) as u8]));
    let whole = encoded(&noise.into(), ImageFormat::Jpeg);
    let scan = whole.windows(2).position(|pair| pair == [0xff, 0xda]).unwrap() + 14;
    for at in (scan..whole.len() - 40).step_by(97) {
        let mut damaged = whole.clone();
        damaged[at..at + 16].copy_from_slice(&[0xff, 0].repeat(8));
        assert!(decode_bytes(&damaged).is_err(), "at {at}");
    }
    let grey: DynamicImage = GrayImage::from_fn(16, 8, |x, y| Luma([(x * 9 + y) as u8])).into();
    let read = decode_bytes(&encoded(&grey, ImageFormat::Jpeg)).unwrap();
    assert!(matches!(read, DynamicImage::ImageLuma8(_)), "grey stays grey");
}

#[test]
fn a_jpeg_cut_short_within_its_pixels_is_refused() {
    let noise = RgbImage::from_fn(64, 64, |x, y| Rgb([(x * 37) as u8, (y * 91) as u8, (x * y * 7) as u8]));
    let whole = encoded(&noise.into(), ImageFormat::Jpeg);
    assert!(decode_bytes(&whole).is_ok());
    let error = decode_bytes(&whole[..whole.len() * 9 / 10]).unwrap_err().to_string();
    assert!(error.contains("cut short"), "{error}");
    // A photograph with a film behind it, in which any pair of bytes may stand.
    let film = [&whole[..], b"film", &[0xff, 0xda, 0x00, 0x08, 1, 2, 3]].concat();
    assert!(decode_bytes(&film).is_ok());
    // One with a small image, which has an end of its own, in front of its own data.
    let thumbnail = [0xff, 0xd8, 0xff, 0xd9];
    let segment = [&[0xff, 0xe1, 0x00, 2 + thumbnail.len() as u8][..], &thumbnail].concat();
    let photograph = [&whole[..2], &segment, &whole[2..]].concat();
    assert!(decode_bytes(&photograph).is_ok());
    assert!(decode_bytes(&photograph[..photograph.len() * 9 / 10]).is_err());
}

#[test]
fn a_strip_is_cut_before_it_is_scaled() {
    // To cover 224 x 224 it would become two and a half gigabytes.
    let strip = DynamicImage::from(GrayImage::from_fn(MAX_SIDE, 1, |x, _| {
        Luma([if x == MAX_SIDE / 2 { 200 } else { 0 }])
    }));
    assert!(pixels(&strip, 3, 224, 224).iter().all(|&pixel| pixel == 200 || pixel == 0));
    assert_eq!(pixels(&strip, 1, 3, 3), pixels(&strip.rotate90(), 1, 3, 3));
}

#[test]
fn what_is_wrong_as_a_whole_is_never_skipped() {
    let says = |folder: &Path, options: &ReadOptions, said: &str| {
        let error = load(folder, options).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    };
    let folder = two_classes();
    let skip = options(None, OnError::Skip);
    says(
        folder.path(),
        &ReadOptions { labels: Some(Labels::Numbers(2)), ..skip.clone() },
        "the names of the classes",
    );
    says(folder.path(), &options(Some(&[2, 2, 2]), OnError::Skip), "one channel or three");
    says(folder.path(), &options(Some(&[3, 1 << 15, 1]), OnError::Skip), "more than the limit");
    put(folder.path(), "bird/a.png", &encoded(&flag(), ImageFormat::Png));
    says(folder.path(), &skip, "label \"bird\" is none of cat, dog");
    says(tempfile::tempdir().unwrap().path(), &skip, "holds no sample");
}

#[test]
fn an_image_that_promises_too_much_is_refused() {
    // A PNG of a thousand million pixels whose content is a few bytes.
    let mut bytes = Vec::new();
    let encoder = image::codecs::png::PngEncoder::new(&mut bytes);
    encoder.write_image(&[0], 1, 1, image::ExtendedColorType::L8).unwrap();
    let wide = 100_000_u32.to_be_bytes();
    bytes[16..20].copy_from_slice(&wide);
    bytes[20..24].copy_from_slice(&wide);
    let checksum = crc32(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&checksum.to_be_bytes());
    let error = decode_bytes(&bytes).unwrap_err().to_string();
    assert!(error.to_lowercase().contains("limit") || error.contains("dimension"), "{error}");
}

/// The checksum of PNG, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_without_panic(bytes: Vec<u8>, kind in 0..3) {
        let start: &[u8] = match kind {
            0 => b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
            1 => b"\xff\xd8\xff\xe0\0\x10JFIF",
            _ => b"",
        };
        let _ = decode_bytes(&[start, &bytes].concat());
    }

    #[test]
    fn any_damage_is_an_error_or_an_image(
        jpeg: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let format = if jpeg { ImageFormat::Jpeg } else { ImageFormat::Png };
        let noise = RgbImage::from_fn(16, 16, |x, y| Rgb([(x * 17) as u8, (y * 31) as u8, (x * y) as u8]));
        let mut bytes = encoded(&noise.into(), format);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = decode_bytes(&bytes);
    }
}
