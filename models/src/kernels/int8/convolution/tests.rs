//! Convolutions against the products of the same integers.

use proptest::prelude::*;

use super::*;
use crate::kernels::noise;

struct Case {
    geometry: Geometry,
    groups: usize,
    weight: Vec<f32>,
    bias: Vec<f32>,
    x: Vec<f32>,
    n: usize,
}

impl Case {
    fn new(geometry: Geometry, (out, groups): (usize, usize), n: usize) -> Self {
        let weight = noise(out * geometry.taps() / groups, 1);
        Self { geometry, groups, weight, bias: noise(out, 2), x: noise(n * geometry.image(), 3), n }
    }

    fn found(&self, function: Function) -> Vec<f32> {
        let convolution = Convolution::new(self.geometry, self.groups, &self.weight, &self.bias, function);
        let mut y = vec![f32::NAN; self.n * self.bias.len() * self.geometry.places()];
        // Scratch memory that an earlier convolution has left.
        let mut scratch = vec![Scratch { frame: vec![77; 100], panels: vec![[77; PANEL]; 9] }];
        convolution.forward(&mut scratch, &self.x, &mut y, self.n);
        y
    }

    /// The sums of the integers in the order of the definition, with the same rounding at the end.
    fn expected(&self, function: impl Fn(f32) -> f32) -> Vec<f32> {
        let Geometry { channels, height, width, kernel, stride, padding, rows, columns } = self.geometry;
        let (out, each) = (self.bias.len(), self.geometry.taps() / self.groups);
        let mut y = Vec::new();
        for image in self.x.chunks_exact(self.geometry.image()) {
            let how = Quantisation::of(image);
            let integer = |x: f32| {
                let mut group = [0];
                how.group(&[x], &mut group);
                i32::from(group[0] as u8) - i32::from(how.zero)
            };
            for (output, weight) in self.weight.chunks_exact(each).enumerate() {
                let largest = weight.iter().fold(0.0f32, |largest, weight| largest.max(weight.abs()));
                let scale = largest / 127.0;
                for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                    let mut sum = 0;
                    for (index, weight) in weight.iter().enumerate() {
                        let (channel, tap) = (index / (kernel * kernel), index % (kernel * kernel));
                        let channel = output / (out / self.groups) * (channels / self.groups) + channel;
                        let pixel =
                            (row * stride + tap / kernel).checked_sub(padding).filter(|&y| y < height);
                        let across =
                            (column * stride + tap % kernel).checked_sub(padding).filter(|&x| x < width);
                        if let (Some(down), Some(across)) = (pixel, across) {
                            let weight = (weight * (1.0 / scale)).round_ties_even() as i32;
                            sum += weight * integer(image[(channel * height + down) * width + across]);
                        }
                    }
                    y.push(function(sum as f32 * (scale * how.scale) + self.bias[output]));
                }
            }
        }
        y
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

proptest! {
    #[test]
    fn the_same_bits_as_the_definition(
        n in 1usize..3, (channels, out, groups) in (1usize..7, 1usize..12, 1usize..4),
        (height, width) in (1usize..20, 1usize..40), kernel in 1usize..6, stride in 1usize..4, padding in 0usize..3,
    ) {
        prop_assume!(padding < kernel && height.min(width) + 2 * padding >= kernel);
        let geometry = Geometry::of(&[channels * groups, height, width], kernel, stride, padding);
        let case = Case::new(geometry, (out * groups, groups), n);
        prop_assert_eq!(bits(&case.found(Function::Identity)), bits(&case.expected(|x| x)));
        let rectified = |x: f32| if x < 0.0 { 0.0 } else { x };
        prop_assert_eq!(bits(&case.found(Function::Relu)), bits(&case.expected(rectified)));
    }
}

#[test]
fn panels_that_end_where_the_image_ends() {
    for columns in 1..40 {
        for rows in 1..4 {
            let geometry = Geometry::of(&[4, rows + 1, columns + 1], 2, 1, 0);
            let case = Case::new(geometry, (3, 1), 1);
            assert!(
                bits(&case.found(Function::Identity)) == bits(&case.expected(|x| x)),
                "{rows} x {columns}"
            );
        }
    }
}

#[test]
fn large_images_in_parts_and_threads() {
    // Enough work for threads, and more columns than are kept together.
    for (shape, kernel, out, n) in [
        ([24, 40, 40], 1, 50, 1),
        ([24, 40, 40], 3, 20, 1),
        ([8, 150, 150], 1, 9, 3),
        ([64, 16, 16], 3, 24, 1),
    ] {
        let geometry = Geometry::of(&shape, kernel, 1, kernel / 2);
        let case = Case::new(geometry, (out, 1), n);
        let found = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            bits(&pool.install(|| case.found(Function::Relu6)))
        };
        let expected = bits(&case.expected(|x| if x < 0.0 { 0.0 } else { x.min(6.0) }));
        for threads in [1, 2, 3] {
            assert!(found(threads) == expected, "{shape:?} {kernel} with {threads} threads");
        }
    }
}
