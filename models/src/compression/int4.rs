//! Four bits a value after a random rotation, which makes any values nearly normal, for which the best 16 levels are known.
//!
//! Vargaftik, Basat, Portnoy, Mendelson, Itzhak, Mitzenmacher: *EDEN: Communication-Efficient and Robust Distributed Mean Estimation for
//! Federated Learning*, ICML 2022 (arXiv 2108.08842), sections 3 and 4. In place of a uniform rotation there stands Hadamard's transform with
//! random signs, as there, but twice: after one, a value that is greater than all others leaves a block that is not normal, and the mean of
//! many estimates misses it by a thousandth.
//!
//! ```text
//! y = H D' H D x / n          D, D': random signs
//! q_i = the level nearest to y_i sqrt(n) / |x|
//! s = |x|^2 / <y, q>          so that the estimate, s times the rotation of q back, is unbiased
//! ```

use rand_chacha::rand_core::Rng;

use super::hadamard::{MOST, blocks, transform};
use super::int8;
use crate::kernels::vectorised;

/// The eight positive ones of the 16 levels with the least mean squared error for a standard normal value (Max 1960, table I), which lie
/// symmetrically.
const LEVELS: [f32; 8] = [0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733];
/// Terms that are added side by side.
const LANES: usize = 16;

/// Bytes that a number of values take: two a byte in blocks, one each in what is left.
pub(super) fn bytes(values: usize) -> usize {
    let in_blocks: usize = blocks(values).sum();
    in_blocks / 2 + (values - in_blocks)
}

/// Number of scales of a number of values.
pub(super) fn scales(values: usize) -> usize {
    let in_blocks: usize = blocks(values).sum();
    blocks(values).count() + int8::scales(values - in_blocks)
}

/// Appends the bytes of all values and their scales. Of a block with a value that is not finite no value is finite afterwards.
pub(super) fn compress(
    values: &[f32],
    signs: &mut impl Rng,
    rounding: &mut impl Rng,
    bytes: &mut Vec<u8>,
    scales: &mut Vec<f32>,
) {
    let mut rest = values;
    let mut block = Vec::new();
    for length in blocks(values.len()) {
        let (own, left) = rest.split_at(length);
        rest = left;
        block.clear();
        block.extend_from_slice(own);
        for turn in &Turns::draw(length, signs).0 {
            flip(&mut block, turn);
            transform(&mut block);
        }
        let begin = bytes.len();
        bytes.resize(begin + length / 2, 0);
        let out = &mut bytes[begin..];
        scales.push(vectorised(
            #[inline(always)]
            || quantise(&block, out),
        ));
    }
    int8::compress(rest, rounding, bytes, scales);
}

/// Appends what the bytes of `count` values stand for. There are as many bytes and scales as these functions say.
pub(super) fn decompress(
    count: usize,
    mut bytes: &[u8],
    mut scales: &[f32],
    signs: &mut impl Rng,
    values: &mut Vec<f32>,
) {
    for length in blocks(count) {
        let (own, left) = bytes.split_at(length / 2);
        let (scale, others) = scales.split_first().expect("a scale for each block");
        (bytes, scales) = (left, others);
        let begin = values.len();
        values.resize(begin + length, 0.0);
        let block = &mut values[begin..];
        vectorised(
            #[inline(always)]
            || expand(own, *scale, block),
        );
        for turn in Turns::draw(length, signs).0.iter().rev() {
            transform(block);
            flip(block, turn);
        }
    }
    int8::decompress(bytes, scales, values);
}

/// The signs of the two turns of a block, a bit each.
struct Turns([[u64; MOST / 64]; 2]);

impl Turns {
    fn draw(length: usize, rng: &mut impl Rng) -> Self {
        let mut turns = [[0; MOST / 64]; 2];
        for turn in &mut turns {
            turn[..length / 64].fill_with(|| rng.next_u64());
        }
        Self(turns)
    }
}

/// Changes the signs of the values whose bits are set.
fn flip(block: &mut [f32], bits: &[u64]) {
    vectorised(
        #[inline(always)]
        || {
            for (values, bits) in block.as_chunks_mut::<64>().0.iter_mut().zip(bits) {
                for half in 0..2 {
                    let bits = (bits >> (32 * half)) as u32;
                    for (place, value) in (0..).zip(&mut values[32 * half..][..32]) {
                        let sign = (bits >> place & 1) << 31;
                        *value = f32::from_bits(value.to_bits() ^ sign);
                    }
                }
            }
        },
    );
}

#[allow(clippy::inline_always, reason = "only what is inlined is compiled with the vectors of its caller")]
#[inline(always)]
fn sum_of(values: &[f32], term: impl Fn(f32) -> f32) -> f64 {
    let mut sums = [0.0f64; LANES];
    for lane in values.as_chunks::<LANES>().0 {
        for (sum, &value) in sums.iter_mut().zip(lane) {
            *sum += f64::from(term(value));
        }
    }
    sums.iter().sum()
}

/// The number of the level nearest to a magnitude.
#[allow(clippy::inline_always, reason = "only what is inlined is compiled with the vectors of its caller")]
#[inline(always)]
fn nearest(magnitude: f32) -> u32 {
    let mut level = 0;
    for pair in LEVELS.windows(2) {
        level += u32::from(magnitude > 0.5 * (pair[0] + pair[1]));
    }
    level
}

/// Writes the levels of a rotated block, two a byte: first the lower half of the block, then the upper. Gives the scale.
#[allow(clippy::inline_always, reason = "only what is inlined is compiled with the vectors of its caller")]
#[inline(always)]
fn quantise(block: &[f32], out: &mut [u8]) -> f32 {
    let square = sum_of(block, |value| value * value);
    if !square.is_finite() {
        return f32::NAN;
    }
    let length = (square / block.len() as f64).sqrt();
    let inverse = (1.0 / length) as f32;
    if !inverse.is_finite() {
        return 0.0;
    }
    let code = |value: f32| nearest((value * inverse).abs()) | (value.to_bits() >> 31) << 3;
    let (lower, upper) = block.split_at(block.len() / 2);
    for ((out, &lower), &upper) in out.iter_mut().zip(lower).zip(upper) {
        *out = (code(lower) | code(upper) << 4) as u8;
    }
    let product = sum_of(block, |value| value.abs() * level(nearest((value * inverse).abs())));
    (square / product) as f32
}

/// The level of this number.
#[allow(clippy::inline_always, reason = "only what is inlined is compiled with the vectors of its caller")]
#[inline(always)]
fn level(number: u32) -> f32 {
    let mut found = LEVELS[0];
    for (at, pair) in (1..).zip(LEVELS.windows(2)) {
        found += if number >= at { pair[1] - pair[0] } else { 0.0 };
    }
    found
}

#[allow(clippy::inline_always, reason = "only what is inlined is compiled with the vectors of its caller")]
#[inline(always)]
fn expand(bytes: &[u8], scale: f32, block: &mut [f32]) {
    let value = |code: u32| {
        let magnitude = level(code & 7) * scale;
        f32::from_bits(magnitude.to_bits() ^ (code & 8) << 28)
    };
    let (lower, upper) = block.split_at_mut(bytes.len());
    for ((lower, upper), &byte) in lower.iter_mut().zip(upper).zip(bytes) {
        (*lower, *upper) = (value(u32::from(byte & 15)), value(u32::from(byte >> 4)));
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    const TIMES: u32 = 10_000;

    fn there_and_back(values: &[f32], seed: u64) -> Vec<f32> {
        let signs = || ChaCha8Rng::seed_from_u64(seed);
        let (mut data, mut of_blocks, mut back) = (Vec::new(), Vec::new(), Vec::new());
        compress(values, &mut signs(), &mut ChaCha8Rng::seed_from_u64(seed + 1), &mut data, &mut of_blocks);
        assert_eq!((data.len(), of_blocks.len()), (bytes(values.len()), scales(values.len())));
        decompress(values.len(), &data, &of_blocks, &mut signs(), &mut back);
        back
    }

    /// Of a normal variable, and of the third power of one, which has heavy tails.
    fn samples(count: usize) -> [Vec<f32>; 2] {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut uniform = || (f64::from(rng.next_u32()) + 0.5) / 2f64.powi(32);
        let normal: Vec<f32> = (0..count)
            .map(|_| ((-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()) as f32)
            .collect();
        let heavy = normal.iter().map(|value| value.powi(3)).collect();
        [normal, heavy]
    }

    #[test]
    fn the_error_is_that_of_the_levels_whatever_the_values() {
        for values in samples(8192 + 300) {
            let back = there_and_back(&values, 11);
            let square =
                |values: &mut dyn Iterator<Item = f32>| -> f64 { values.map(|v| f64::from(v).powi(2)).sum() };
            let error = square(&mut values.iter().zip(&back).map(|(a, b)| a - b))
                / square(&mut values.iter().copied());
            // 1 / (1 - D) - 1 with D = 0.009497, the distortion of the levels.
            assert!((0.0075..0.0115).contains(&error), "{error}");
        }
    }

    #[test]
    fn the_mean_of_many_is_what_was_compressed() {
        let [_, heavy] = samples(512 + 20);
        let mut spike = vec![0.0; 256];
        spike[3] = 2.0;
        spike[200] = -0.5;
        for values in [heavy, spike] {
            let mut sums = vec![(0.0f64, 0.0f64); values.len()];
            for seed in 0..TIMES {
                for ((sum, squares), back) in
                    sums.iter_mut().zip(there_and_back(&values, u64::from(2 * seed)))
                {
                    *sum += f64::from(back);
                    *squares += f64::from(back).powi(2);
                }
            }
            let mut greatest = 0.0f64;
            for (value, (sum, squares)) in values.iter().zip(sums) {
                let mean = sum / f64::from(TIMES);
                let error = ((squares / f64::from(TIMES) - mean * mean).max(0.0) / f64::from(TIMES)).sqrt();
                assert!((mean - f64::from(*value)).abs() <= 4.0 * error + 1e-5, "{value} {mean} {error}");
                greatest = greatest.max((mean - f64::from(*value)).abs() / (error + 1e-5 / 4.0));
            }
            println!(
                "int4: the mean of {TIMES} is at most {greatest:.2} standard errors from each of {} values",
                values.len()
            );
        }
    }

    #[test]
    #[ignore = "a measurement: cargo test --release -p models --lib compression -- --ignored --nocapture"]
    fn speed_there_and_back_on_one_core() {
        let [normal, _] = samples(1 << 20);
        let (mut data, mut scales, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let mut seconds = [Vec::new(), Vec::new()];
        let rng = || ChaCha8Rng::seed_from_u64(1);
        for _ in 0..20 {
            for (format, seconds) in seconds.iter_mut().enumerate() {
                data.clear();
                scales.clear();
                values.clear();
                let begun = std::time::Instant::now();
                if format == 0 {
                    int8::compress(&normal, &mut rng(), &mut data, &mut scales);
                    int8::decompress(&data, &scales, &mut values);
                } else {
                    compress(&normal, &mut rng(), &mut rng(), &mut data, &mut scales);
                    decompress(normal.len(), &data, &scales, &mut rng(), &mut values);
                }
                seconds.push(begun.elapsed().as_secs_f64());
            }
        }
        let [int8, int4] = seconds.map(|mut seconds| {
            seconds.sort_by(f64::total_cmp);
            4e-9 * normal.len() as f64 / seconds[seconds.len() / 2]
        });
        println!(
            "GB/s of f32, compressed and back on one core, median of 20: int8 {int8:.2}, int4 {int4:.2}"
        );
    }

    #[test]
    fn golden_bytes() {
        let [_, heavy] = samples(4096 + 512 + 20);
        let (mut data, mut of_blocks, mut back) = (Vec::new(), Vec::new(), Vec::new());
        let rng = ChaCha8Rng::seed_from_u64;
        // Without the logarithms and cosines of samples, whose last bits are the system's.
        let coarse: Vec<f32> = heavy.iter().map(|value| (value * 64.0).round() / 64.0).collect();
        compress(&coarse, &mut rng(1), &mut rng(2), &mut data, &mut of_blocks);
        decompress(coarse.len(), &data, &of_blocks, &mut rng(1), &mut back);
        let digest = |bytes: &[u8]| {
            // FNV-1a.
            let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
        };
        let digests = [&data[..], bytemuck::cast_slice(&of_blocks), bytemuck::cast_slice(&back)].map(digest);
        assert_eq!(
            digests,
            [10_534_613_291_076_324_720, 2_860_590_765_496_547_883, 3_210_492_974_167_480_177]
        );
    }

    #[test]
    fn zeros_stay_zeros_and_what_is_not_finite_does_not_become_so() {
        assert_eq!(there_and_back(&[0.0; 300], 1), [0.0; 300]);
        let mut broken = vec![1.0; 256];
        broken[9] = f32::INFINITY;
        assert!(there_and_back(&broken, 1).iter().all(|value| !value.is_finite()));
    }
}
