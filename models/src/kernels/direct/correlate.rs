//! Sums of shifted runs for several output channels at once.

use pulp::Simd;

/// A linear filter: the value of an output channel at an index is the sum over the taps of a weight times the input at that
/// index plus the tap's offset.
pub(super) struct Filter {
    out: usize,
    /// The offset of each tap, and the index of its weight for the first output channel.
    taps: Vec<(usize, usize)>,
    /// Distance from the weight of an output channel to that of the next.
    out_stride: usize,
    offsets: Vec<usize>,
    /// Output channels that are computed together.
    block: usize,
    /// The weights, `[blocks of channels][taps][channels of a block]`; zero for channels beyond the last.
    packed: Vec<f32>,
}

impl Filter {
    pub(super) fn new(out: usize, taps: Vec<(usize, usize)>, out_stride: usize) -> Self {
        let block = if out.next_multiple_of(8) <= out.next_multiple_of(6) && out > 4 {
            8
        } else if out > 4 {
            6
        } else {
            4
        };
        let packed = vec![0.0; out.next_multiple_of(block) * taps.len()];
        let offsets = taps.iter().map(|tap| tap.0).collect();
        Self { out, taps, out_stride, offsets, block, packed }
    }

    /// Output channels that [`Filter::apply`] computes at the same time.
    pub(super) fn block(&self) -> usize {
        self.block
    }

    /// Packs new weights.
    pub(super) fn load(&mut self, weight: &[f32]) {
        let size = self.taps.len() * self.block;
        for (index, block) in self.packed.chunks_exact_mut(size.max(1)).enumerate() {
            let channels = index * self.block..self.out.min((index + 1) * self.block);
            for (channel, lane) in channels.zip(0..) {
                let weight = &weight[channel * self.out_stride..];
                for (to, &(_, source)) in block[lane..].iter_mut().step_by(self.block).zip(&self.taps) {
                    *to = weight[source];
                }
            }
        }
    }

    /// Calls `done(channel, run)` with the results of each output channel at the indices `0..span`. `runs` has room for
    /// [`Filter::block`] runs of `span` values plus an overrun each. `x` must be longer by an overrun than the last result
    /// needs.
    #[inline(always)]
    pub(super) fn apply<S: Simd>(
        &self,
        simd: S,
        x: &[f32],
        span: usize,
        runs: &mut [f32],
        mut done: impl FnMut(usize, &[f32]),
    ) {
        if span == 0 {
            return;
        }
        let length = span.next_multiple_of(S::F32_LANES);
        let size = (self.taps.len() * self.block).max(1);
        for (index, weights) in self.packed.chunks_exact(size).enumerate() {
            let runs = &mut runs[..self.block * length];
            match (self.block, S::REGISTER_COUNT) {
                (8, 32..) => block::<S, 8, 3>(simd, weights, &self.offsets, x, runs, length),
                (6, 32..) => block::<S, 6, 4>(simd, weights, &self.offsets, x, runs, length),
                (4, 32..) => block::<S, 4, 6>(simd, weights, &self.offsets, x, runs, length),
                (8, _) => block::<S, 8, 1>(simd, weights, &self.offsets, x, runs, length),
                (6, _) => block::<S, 6, 2>(simd, weights, &self.offsets, x, runs, length),
                _ => block::<S, 4, 3>(simd, weights, &self.offsets, x, runs, length),
            }
            let channels = index * self.block..self.out.min((index + 1) * self.block);
            for (channel, run) in channels.zip(runs.chunks_exact(length)) {
                done(channel, &run[..span]);
            }
        }
    }
}

/// All results of one block of `O` channels, `V` vectors at a time.
#[inline(always)]
fn block<S: Simd, const O: usize, const V: usize>(
    simd: S,
    weights: &[f32],
    offsets: &[usize],
    x: &[f32],
    runs: &mut [f32],
    length: usize,
) {
    let weights = weights.as_chunks::<O>().0;
    let mut place = 0;
    while place + V * S::F32_LANES <= length {
        tile::<S, O, V>(simd, weights, offsets, &x[place..], &mut runs[place..], length);
        place += V * S::F32_LANES;
    }
    while place < length {
        tile::<S, O, 1>(simd, weights, offsets, &x[place..], &mut runs[place..], length);
        place += S::F32_LANES;
    }
}

/// `V` vectors of results of `O` channels, all in registers.
#[inline(always)]
fn tile<S: Simd, const O: usize, const V: usize>(
    simd: S,
    weights: &[[f32; O]],
    offsets: &[usize],
    x: &[f32],
    runs: &mut [f32],
    length: usize,
) {
    let mut sums = [[simd.splat_f32s(0.0); V]; O];
    for (weights, &offset) in weights.iter().zip(offsets) {
        let (x, _) = S::as_simd_f32s(&x[offset..offset + V * S::F32_LANES]);
        let x: &[S::f32s; V] = x.first_chunk().expect("V vectors of values were cut out");
        for o in 0..O {
            let weight = simd.splat_f32s(weights[o]);
            for v in 0..V {
                sums[o][v] = simd.mul_add_e_f32s(weight, x[v], sums[o][v]);
            }
        }
    }
    for o in 0..O {
        let (run, _) = S::as_mut_simd_f32s(&mut runs[o * length..o * length + V * S::F32_LANES]);
        run.copy_from_slice(&sums[o]);
    }
}
