//! The gradient of the weights: products of two runs summed over all places.

use pulp::Simd;

/// Partial sums of the gradient of the weights, one vector per output channel and tap: summed over the vector only at the
/// end, since images have few places.
pub(super) struct Partial {
    out: usize,
    lanes: Vec<f32>,
}

/// Taps and output channels whose sums are held in registers.
const TAPS: usize = 4;

impl Partial {
    pub(super) fn new(out: usize) -> Self {
        Self { out, lanes: Vec::new() }
    }

    /// Makes room for the sums of `taps`, all zero.
    #[inline(always)]
    pub(super) fn clear<S: Simd>(&mut self, _simd: S, taps: usize) {
        self.lanes.clear();
        self.lanes.resize(self.out * taps * S::F32_LANES, 0.0);
    }

    /// Adds the products of one image: for output channel `o` and each tap, the sum over the places of the gradient from
    /// `starts(o)` and the image from the tap's offset. Beyond `span`, the gradient is zero for an overrun.
    #[inline(always)]
    pub(super) fn add<S: Simd>(
        &mut self,
        simd: S,
        gradient: &[f32],
        starts: impl Fn(usize) -> usize,
        x: &[f32],
        offsets: &[usize],
        span: usize,
    ) {
        let length = span.next_multiple_of(S::F32_LANES);
        let (sums, _) = S::as_mut_simd_f32s(&mut self.lanes);
        let mut first = 0;
        while first < self.out {
            let rows = (self.out - first).min(if S::REGISTER_COUNT >= 32 { 6 } else { 2 });
            let gradient = |o: usize| &gradient[starts(first + o)..][..length];
            let sums = &mut sums[first * offsets.len()..];
            match rows {
                6.. => rows_of::<S, 6>(simd, gradient, x, offsets, sums),
                4.. => rows_of::<S, 4>(simd, gradient, x, offsets, sums),
                2.. => rows_of::<S, 2>(simd, gradient, x, offsets, sums),
                _ => rows_of::<S, 1>(simd, gradient, x, offsets, sums),
            }
            first += match rows {
                6.. => 6,
                4.. => 4,
                2.. => 2,
                _ => 1,
            };
        }
    }

    /// Writes the gradient, `[out, taps]`.
    #[inline(always)]
    pub(super) fn finish<S: Simd>(&self, simd: S, weight: &mut [f32]) {
        let (sums, _) = S::as_simd_f32s(&self.lanes);
        for (weight, &sum) in weight.iter_mut().zip(sums) {
            *weight = simd.reduce_sum_f32s(sum);
        }
    }
}

#[inline(always)]
fn rows_of<'a, S: Simd, const O: usize>(
    simd: S,
    gradient: impl Fn(usize) -> &'a [f32],
    x: &[f32],
    offsets: &[usize],
    sums: &mut [S::f32s],
) {
    let gradient: [&[S::f32s]; O] = std::array::from_fn(|o| S::as_simd_f32s(gradient(o)).0);
    let (groups, rest) = offsets.as_chunks::<TAPS>();
    for (index, group) in groups.iter().enumerate() {
        tile::<S, O, TAPS>(simd, gradient, x, group, &mut sums[index * TAPS..], offsets.len());
    }
    for (index, tap) in rest.iter().enumerate() {
        let first = groups.len() * TAPS + index;
        tile::<S, O, 1>(simd, gradient, x, &[*tap], &mut sums[first..], offsets.len());
    }
}

#[inline(always)]
fn tile<S: Simd, const O: usize, const T: usize>(
    simd: S,
    gradient: [&[S::f32s]; O],
    x: &[f32],
    offsets: &[usize; T],
    sums: &mut [S::f32s],
    taps: usize,
) {
    let vectors = gradient[0].len();
    let gradient: [&[S::f32s]; O] = std::array::from_fn(|o| &gradient[o][..vectors]);
    let x: [&[S::f32s]; T] = std::array::from_fn(|t| {
        let (x, _) = S::as_simd_f32s(&x[offsets[t]..offsets[t] + vectors * S::F32_LANES]);
        &x[..vectors]
    });
    let mut partial: [[S::f32s; T]; O] = std::array::from_fn(|o| std::array::from_fn(|t| sums[o * taps + t]));
    for place in 0..vectors {
        let x: [S::f32s; T] = std::array::from_fn(|t| x[t][place]);
        for o in 0..O {
            let gradient = gradient[o][place];
            for t in 0..T {
                partial[o][t] = simd.mul_add_e_f32s(gradient, x[t], partial[o][t]);
            }
        }
    }
    for o in 0..O {
        for t in 0..T {
            sums[o * taps + t] = partial[o][t];
        }
    }
}
