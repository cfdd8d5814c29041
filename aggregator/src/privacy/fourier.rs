//! The discrete Fourier transform of a power of two of complex numbers, by Cooley and Tukey's algorithm (1965).

use std::f64::consts::TAU;
use std::ops::{Add, Mul, Sub};

/// A complex number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Complex {
    pub(super) re: f64,
    pub(super) im: f64,
}

impl Complex {
    /// The number to this power, by repeated squaring.
    pub(super) fn power(self, exponent: u32) -> Self {
        let (mut found, mut square) = (Self { re: 1.0, im: 0.0 }, self);
        let mut rest = exponent;
        while rest > 0 {
            if rest & 1 == 1 {
                found = found * square;
            }
            square = square * square;
            rest >>= 1;
        }
        found
    }

    /// The distance from 0.
    pub(super) fn size(self) -> f64 {
        self.re.hypot(self.im)
    }

    /// The conjugate.
    pub(super) fn conjugate(self) -> Self {
        Self { im: -self.im, ..self }
    }
}

impl Add for Complex {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }
}

impl Sub for Complex {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { re: self.re - other.re, im: self.im - other.im }
    }
}

impl Mul for Complex {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self { re: self.re * other.re - self.im * other.im, im: self.re * other.im + self.im * other.re }
    }
}

/// Replaces values by `F[k] = sum over j of f[j] exp(-2 pi i j k / n)`. The transform of the conjugates of these, divided by n and
/// conjugated, is the values again.
///
/// # Panics
/// If the number of values is no power of two.
pub(super) fn transform(values: &mut [Complex]) {
    let count = values.len();
    assert!(count.is_power_of_two(), "windows are powers of two");
    if count < 2 {
        return;
    }
    let unused = usize::BITS - count.trailing_zeros();
    for index in 0..count {
        let reversed = index.reverse_bits() >> unused;
        if index < reversed {
            values.swap(index, reversed);
        }
    }
    let root = |index: usize| {
        let (sin, cos) = (-TAU * index as f64 / count as f64).sin_cos();
        Complex { re: cos, im: sin }
    };
    let roots: Vec<Complex> = (0..count / 2).map(root).collect();
    let mut half = 1;
    while half < count {
        let stride = count / 2 / half;
        for block in values.chunks_exact_mut(2 * half) {
            let (left, right) = block.split_at_mut(half);
            for (index, (left, right)) in left.iter_mut().zip(right).enumerate() {
                let turned = *right * roots[index * stride];
                (*left, *right) = (*left + turned, *left - turned);
            }
        }
        half *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: usize) -> Vec<Complex> {
        let at = |index: usize| (index * index * 7 % 31) as f64 / 31.0;
        (0..count).map(|index| Complex { re: at(index), im: at(index + 3) - 0.5 }).collect()
    }

    #[test]
    fn the_transform_is_its_definition_and_is_undone_by_itself() {
        for count in [1, 2, 4, 32, 128] {
            let before = values(count);
            let mut found = before.clone();
            transform(&mut found);
            for (k, found) in found.iter().enumerate() {
                let mut expected = Complex::default();
                for (j, value) in before.iter().enumerate() {
                    let (sin, cos) = (-TAU * (j * k % count) as f64 / count as f64).sin_cos();
                    expected = expected + *value * Complex { re: cos, im: sin };
                }
                let apart = *found - expected;
                assert!(apart.re.abs() + apart.im.abs() < 1e-12, "{count} {k}: {found:?}, not {expected:?}");
            }
            for value in &mut found {
                *value = value.conjugate();
            }
            transform(&mut found);
            for (value, before) in found.iter().zip(&before) {
                let apart = value.conjugate()
                    - Complex { re: before.re * count as f64, im: before.im * count as f64 };
                assert!(apart.re.abs() + apart.im.abs() < 1e-12 * count as f64);
            }
        }
    }

    #[test]
    fn powers_are_repeated_products() {
        let base = Complex { re: 0.6, im: -0.7 };
        let mut expected = Complex { re: 1.0, im: 0.0 };
        for exponent in 0..40 {
            let apart = base.power(exponent) - expected;
            assert!(apart.re.abs() + apart.im.abs() < 1e-14, "{exponent}");
            expected = expected * base;
        }
    }
}
