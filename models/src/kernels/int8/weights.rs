//! Quantised weights, packed.

/// Weights `[outputs, depth]` as integers from -127 to 127 with a scale for each output, packed for a product.
///
/// `W` outputs that follow each other are stored together, group after group of their depth: `[outputs / W][depth / 4][W]`.
/// Missing outputs and the end of the depth are filled with 0.
#[derive(Debug)]
pub(super) struct Weights<const W: usize> {
    packed: Vec<[u32; W]>,
    outputs: usize,
    groups: usize,
    /// Of each output: the weight is about its scale times the integer. NaN if a weight is not finite.
    pub(super) scales: Vec<[f32; W]>,
    /// The sum of the integers of each output: what the zero point of the activations adds.
    pub(super) sums: Vec<[i32; W]>,
    pub(super) bias: Vec<[f32; W]>,
}

impl<const W: usize> Weights<W> {
    /// Quantises weights `[outputs, depth]` of a layer with a bias, `[outputs]`.
    pub(super) fn new(weight: &[f32], bias: &[f32], depth: usize) -> Self {
        let outputs = bias.len();
        assert_eq!(weight.len(), outputs * depth, "weights of this shape");
        let groups = depth.div_ceil(4);
        let blocks = outputs.div_ceil(W);
        let mut packed = vec![[0; W]; blocks * groups];
        let (mut scales, mut sums) = (vec![[0.0; W]; blocks], vec![[0; W]; blocks]);
        for output in 0..outputs {
            let row = &weight[output * depth..(output + 1) * depth];
            let (scale, integers) = quantised(row);
            let (block, lane) = (output / W, output % W);
            scales[block][lane] = scale;
            sums[block][lane] = integers.iter().map(|&integer| i32::from(integer)).sum();
            let to = packed[block * groups..][..groups].iter_mut();
            for (to, group) in to.zip(integers.chunks(4)) {
                let mut bytes = [0; 4];
                bytes.iter_mut().zip(group).for_each(|(byte, integer)| *byte = integer.cast_unsigned());
                to[lane] = u32::from_le_bytes(bytes);
            }
        }
        let mut padded = vec![[0.0; W]; blocks];
        padded.as_flattened_mut()[..outputs].copy_from_slice(bias);
        Self { packed, outputs, groups, scales, sums, bias: padded }
    }

    pub(super) fn outputs(&self) -> usize {
        self.outputs
    }

    /// Groups of four along the depth.
    pub(super) fn groups(&self) -> usize {
        self.groups
    }

    /// The weights of the outputs from `W block` on.
    #[inline(always)]
    pub(super) fn block(&self, block: usize) -> &[[u32; W]] {
        &self.packed[block * self.groups..(block + 1) * self.groups]
    }

    /// The bytes that they take.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.packed) + self.scales.len() * (2 * size_of::<[f32; W]>() + size_of::<[i32; W]>())
    }
}

/// The scale of a row of weights, and their integers.
fn quantised(row: &[f32]) -> (f32, Vec<i8>) {
    let largest = row.iter().fold(0.0f32, |largest, weight| largest.max(weight.abs()));
    if !row.iter().all(|weight| weight.is_finite()) {
        return (f32::NAN, vec![0; row.len()]);
    }
    // Weights so small that the division would not be one of normal numbers are 0.
    let scale = largest / 127.0;
    let inverse = if scale > f32::MIN_POSITIVE { 1.0 / scale } else { 0.0 };
    let integer = |weight: &f32| (weight * inverse).round_ties_even() as i8;
    (scale, row.iter().map(integer).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernels::noise;

    proptest! {
        #[test]
        fn weights_come_back_within_half_a_step(
            outputs in 1usize..20, depth in 1usize..20, factor in prop::sample::select(vec![1e-20f32, 0.1, 1e20]),
        ) {
            let weight: Vec<f32> = noise(outputs * depth, 1).iter().map(|weight| weight * factor).collect();
            let packed = Weights::<8>::new(&weight, &vec![0.0; outputs], depth);
            for (output, row) in weight.chunks_exact(depth).enumerate() {
                let scale = packed.scales[output / 8][output % 8];
                let largest = row.iter().fold(0.0f32, |largest, weight| largest.max(weight.abs()));
                prop_assert_eq!(scale, largest / 127.0);
                let block = packed.block(output / 8);
                let bytes: Vec<i8> =
                    block.iter().flat_map(|group| group[output % 8].to_le_bytes()).map(u8::cast_signed).collect();
                for (weight, &integer) in row.iter().zip(&bytes) {
                    let back = scale * f32::from(integer);
                    prop_assert!((back - weight).abs() <= 0.5001 * scale, "{weight} became {integer}, {back}");
                }
                prop_assert!(bytes[depth..].iter().all(|&integer| integer == 0));
                prop_assert_eq!(packed.sums[output / 8][output % 8], bytes.iter().map(|&integer| i32::from(integer)).sum::<i32>());
            }
        }
    }

    #[test]
    fn zeros_stay_zeros_and_nan_does_not_hide() {
        let packed = Weights::<8>::new(&[0.0, -0.0, 1.0, f32::NAN], &[0.0; 2], 2);
        assert_eq!((packed.scales[0][0], packed.block(0)[0][0]), (0.0, 0));
        assert!(packed.scales[0][1].is_nan());
    }
}
