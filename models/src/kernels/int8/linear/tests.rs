//! Rows against the products of the same integers.

use proptest::prelude::*;

use super::*;
use crate::kernels::noise;

fn expected(weight: &[f32], bias: &[f32], x: &[f32], inputs: usize) -> Vec<u32> {
    let mut y = Vec::new();
    for row in x.chunks_exact(inputs) {
        let how = Quantisation::of(row);
        let integer = |x: f32| {
            let mut group = [0];
            how.group(&[x], &mut group);
            i32::from(group[0] as u8) - i32::from(how.zero)
        };
        for (weight, bias) in weight.chunks_exact(inputs).zip(bias) {
            let scale = weight.iter().fold(0.0f32, |largest, weight| largest.max(weight.abs())) / 127.0;
            let products = weight
                .iter()
                .zip(row)
                .map(|(weight, &x)| (weight * (1.0 / scale)).round_ties_even() as i32 * integer(x));
            y.push((products.sum::<i32>() as f32 * (scale * how.scale) + bias).to_bits());
        }
    }
    y
}

proptest! {
    #[test]
    fn the_same_bits_as_the_definition(rows in 1usize..40, inputs in 1usize..70, outputs in 1usize..70) {
        let (weight, bias, x) = (noise(outputs * inputs, 1), noise(outputs, 2), noise(rows * inputs, 3));
        let mut y = vec![f32::NAN; rows * outputs];
        Linear::new(&weight, inputs, &bias, Function::Identity).forward(&x, &mut y);
        let found: Vec<u32> = y.iter().map(|y| y.to_bits()).collect();
        prop_assert_eq!(found, expected(&weight, &bias, &x, inputs));
    }

    #[test]
    fn rows_from_minus_one_to_one_are_added(rows in 1usize..20, inputs in 1usize..30, outputs in 1usize..40, gap in 0usize..3) {
        let (weight, x) = (noise(outputs * inputs, 1), noise(rows * (inputs + gap), 3));
        let before = noise(rows * (outputs + gap), 4);
        let mut y = before.clone();
        let linear = Linear::new(&weight, inputs, &vec![0.0; outputs], Function::Identity);
        linear.add_unit(rows, (&x, inputs + gap), (&mut y, outputs + gap));
        for (row, (y, before)) in y.chunks(outputs + gap).zip(before.chunks(outputs + gap)).enumerate() {
            prop_assert_eq!(&y[outputs..], &before[outputs..]);
            for output in 0..outputs {
                let weight = &weight[output * inputs..][..inputs];
                let sum: f32 = weight.iter().zip(&x[row * (inputs + gap)..]).map(|(w, x)| w * x).sum();
                // Half a step of either factor for every term.
                let bound = 0.01 * inputs as f32;
                prop_assert!((y[output] - before[output] - sum).abs() < bound, "({row}, {output})");
            }
        }
    }
}

#[test]
fn threads_do_not_show() {
    for (rows, inputs, outputs) in [(1, 700, 3000), (2, 64, 64), (200, 300, 200), (33, 1000, 77)] {
        let (weight, bias, x) = (noise(outputs * inputs, 1), noise(outputs, 2), noise(rows * inputs, 3));
        let linear = Linear::new(&weight, inputs, &bias, Function::Identity);
        let found = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut y = vec![f32::NAN; rows * outputs];
            pool.install(|| linear.forward(&x, &mut y));
            y.iter().map(|y| y.to_bits()).collect::<Vec<_>>()
        };
        let expected = expected(&weight, &bias, &x, inputs);
        assert!(
            [1, 2, 3].into_iter().all(|threads| found(threads) == expected),
            "{rows} x {inputs} x {outputs}"
        );
    }
}
