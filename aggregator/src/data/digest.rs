//! Digests of samples and labels, to tell whether data have changed.

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use shared::data::{Dataset, Samples};

/// SHA-256 of the shape, all samples and all labels or numbers to learn, in hexadecimal.
#[must_use]
pub fn of(dataset: &Dataset) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("{:?} {} {}\n", dataset.shape(), dataset.classes(), dataset.samples().kind()));
    match dataset.samples() {
        Samples::Bytes(values) => hash.update(values),
        Samples::Floats(values) => update(&mut hash, values, f32::to_le_bytes),
        Samples::Tokens(values) => update(&mut hash, values, u16::to_le_bytes),
    }
    update(&mut hash, dataset.labels(), u32::to_le_bytes);
    update(&mut hash, dataset.targets().values(), f32::to_le_bytes);
    update(&mut hash, dataset.authors(), u32::to_le_bytes);
    HEXLOWER.encode(&hash.finalize())
}

fn update<T: Copy, const N: usize>(hash: &mut Sha256, values: &[T], bytes: fn(T) -> [u8; N]) {
    for chunk in values.chunks(4096) {
        hash.update(chunk.iter().flat_map(|&value| bytes(value)).collect::<Vec<u8>>());
    }
}
