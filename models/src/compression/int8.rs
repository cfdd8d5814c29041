//! Stochastic rounding to 8 bits: each 256 values are divided by a scale that makes the greatest magnitude 127, and rounded to one of the
//! two nearest whole numbers, to each the likelier the nearer it is.
//!
//! ```text
//! s = max |x| / 127        q = floor(x / s + u),  u uniform in [0, 1)        E[s q] = x
//! ```

use rand_chacha::rand_core::Rng;

use crate::kernels::vectorised;

/// Values that share a scale.
pub(super) const CHUNK: usize = 256;
const LARGEST: f32 = 127.0;
/// The least greatest magnitude of a chunk that is not taken for zeros: its reciprocal is finite.
const LEAST: f32 = 1e-35;
/// The greatest magnitude that is not taken for infinite: far beyond all that is trained, and 127 scales are finite.
const MOST: f32 = 1e37;
/// 1.5 * 2^23: a sum with it has whole numbers alone in its last bits.
const WHOLE: f32 = 12_582_912.0;
/// 2^-16.
const PART: f32 = 1.0 / 65_536.0;

/// Number of scales of a number of values.
pub(super) fn scales(values: usize) -> usize {
    values.div_ceil(CHUNK)
}

/// Appends the rounded values as bytes and the scales. A chunk with a value that is not finite has a scale that is not, and no value of it
/// is finite afterwards.
pub(super) fn compress(values: &[f32], rng: &mut impl Rng, bytes: &mut Vec<u8>, scales: &mut Vec<f32>) {
    let mut random = [0; 2 * CHUNK];
    for chunk in values.chunks(CHUNK) {
        rng.fill_bytes(&mut random[..2 * chunk.len()]);
        let begin = bytes.len();
        bytes.resize(begin + chunk.len(), 0);
        let out = &mut bytes[begin..];
        scales.push(vectorised(
            #[inline(always)]
            || round(chunk, &random, out),
        ));
    }
}

#[allow(clippy::inline_always, reason = "only what is inlined is compiled with the vectors of its caller")]
#[inline(always)]
fn round(values: &[f32], random: &[u8], out: &mut [u8]) -> f32 {
    const LANES: usize = 16;
    // The bits of magnitudes are ordered as they are, and those of infinity and of what is no number are beyond all.
    let mut most = [0u32; LANES];
    let (lanes, rest) = values.as_chunks::<LANES>();
    for lane in lanes {
        for (most, value) in most.iter_mut().zip(lane) {
            *most = (*most).max(value.to_bits() & 0x7fff_ffff);
        }
    }
    let most = rest.iter().map(|value| value.to_bits() & 0x7fff_ffff).chain(most).max().unwrap_or(0);
    let most = f32::from_bits(most);
    if most.is_nan() || most > MOST {
        return f32::NAN;
    }
    if most < LEAST {
        return 0.0;
    }
    let inverse = LARGEST / most;
    let (outs, out_rest) = out.as_chunks_mut::<LANES>();
    let (randoms, random_rest) = random.as_chunks::<{ 2 * LANES }>();
    for ((out, values), random) in outs.iter_mut().zip(lanes).zip(randoms) {
        round_each(values, random, inverse, out);
    }
    let random_rest = if randoms.len() > lanes.len() { &randoms[lanes.len()][..] } else { random_rest };
    round_each(rest, random_rest, inverse, out_rest);
    most / LARGEST
}

#[allow(clippy::inline_always, reason = "only what is inlined is compiled with the vectors of its caller")]
#[inline(always)]
fn round_each(values: &[f32], random: &[u8], inverse: f32, out: &mut [u8]) {
    for ((out, value), random) in out.iter_mut().zip(values).zip(random.as_chunks::<2>().0) {
        // floor(t + u) is the whole number nearest to t + u - 1/2.
        let shift = (f32::from(u16::from_le_bytes(*random)) + 0.5) * PART - 0.5;
        let nearest =
            (value * inverse + shift + WHOLE).to_bits().cast_signed() - WHOLE.to_bits().cast_signed();
        *out = (nearest.clamp(-127, 127) as i8).cast_unsigned();
    }
}

/// Appends what the bytes stand for. There are as many scales as [`scales`] says.
pub(super) fn decompress(bytes: &[u8], scales: &[f32], values: &mut Vec<f32>) {
    let begin = values.len();
    values.resize(begin + bytes.len(), 0.0);
    let values = &mut values[begin..];
    vectorised(
        #[inline(always)]
        || {
            let chunks = values.chunks_mut(CHUNK).zip(bytes.chunks(CHUNK)).zip(scales);
            for ((values, bytes), &scale) in chunks {
                for (value, &byte) in values.iter_mut().zip(bytes) {
                    *value = f32::from(byte.cast_signed()) * scale;
                }
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    const TIMES: u32 = 10_000;

    fn there_and_back(values: &[f32], seed: u64) -> Vec<f32> {
        let (mut bytes, mut of_chunks, mut back) = (Vec::new(), Vec::new(), Vec::new());
        compress(values, &mut ChaCha8Rng::seed_from_u64(seed), &mut bytes, &mut of_chunks);
        assert_eq!((bytes.len(), of_chunks.len()), (values.len(), scales(values.len())));
        decompress(&bytes, &of_chunks, &mut back);
        back
    }

    #[test]
    fn values_move_by_less_than_a_step_and_the_greatest_does_not() {
        let values: Vec<f32> = (0..300).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
        for (chunk, back) in values.chunks(CHUNK).zip(there_and_back(&values, 1).chunks(CHUNK)) {
            let most = chunk.iter().fold(0.0f32, |most, value| most.max(value.abs()));
            for (value, back) in chunk.iter().zip(back) {
                assert!((value - back).abs() < most / LARGEST * 1.001, "{value} {back}");
                assert!(value.abs() < most || (value - back).abs() < 1e-6 * most, "{value} {back}");
            }
        }
    }

    #[test]
    fn the_mean_of_many_is_what_was_compressed() {
        let values: Vec<f32> = (0..CHUNK).map(|i| (i as f32 * 0.7).sin() * (1.0 + (i % 7) as f32)).collect();
        let mut sums = vec![(0.0f64, 0.0f64); values.len()];
        for seed in 0..TIMES {
            for ((sum, squares), back) in sums.iter_mut().zip(there_and_back(&values, seed.into())) {
                *sum += f64::from(back);
                *squares += f64::from(back).powi(2);
            }
        }
        let mut greatest = 0.0f64;
        for (value, (sum, squares)) in values.iter().zip(sums) {
            let mean = sum / f64::from(TIMES);
            let error = ((squares / f64::from(TIMES) - mean * mean).max(0.0) / f64::from(TIMES)).sqrt();
            assert!((mean - f64::from(*value)).abs() <= 4.0 * error + 1e-6, "{value} {mean} {error}");
            greatest = greatest.max((mean - f64::from(*value)).abs() / (error + 1e-6 / 4.0));
        }
        println!(
            "int8: the mean of {TIMES} is at most {greatest:.2} standard errors from each of {} values",
            values.len()
        );
    }

    #[test]
    fn zeros_stay_zeros_and_what_is_not_finite_does_not_become_so() {
        assert_eq!(there_and_back(&[0.0, -0.0, 1e-40], 3), [0.0; 3]);
        for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
            assert!(there_and_back(&[1.0, broken, 2.0], 3).iter().all(|value| value.is_nan()));
        }
        let large = there_and_back(&[1e37, -1e37, 1e-34], 3);
        assert!(large.iter().all(|value| value.is_finite()), "{large:?}");
    }

    #[test]
    fn golden_bytes() {
        let values: Vec<f32> = (0..8).map(|i| i as f32 / 4.0 - 1.0).collect();
        let (mut bytes, mut scales) = (Vec::new(), Vec::new());
        compress(&values, &mut ChaCha8Rng::seed_from_u64(7), &mut bytes, &mut scales);
        assert_eq!((bytes, scales), (vec![129, 160, 192, 224, 0, 31, 63, 95], vec![1.0 / 127.0]));
    }
}
