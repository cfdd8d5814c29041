//! Random distortion of a symbol: rotation, shear, bend, scale and shift.

use super::SIDE;
use super::canvas::Point;

/// Tangent of half the largest rotation: 20 degrees either way.
const MAX_HALF_TURN: f32 = 0.176;
const MAX_SHEAR: f32 = 0.25;
/// Largest coefficient of the quadratic terms; it moves a corner by about as much of the half side.
const MAX_BEND: f32 = 0.12;
/// Pixels per unit of a symbol, separately for both axes.
const SCALES: (f32, f32) = (6.75, 10.0);
/// Largest shift of the centre along either axis, in pixels.
const MAX_SHIFT: f32 = 2.75;

/// A quadratic bend followed by an affine map, from the square of the symbols to pixels.
pub(super) struct Distortion {
    /// Coefficients of y^2 and xy in x, and of x^2 and xy in y.
    bend: [f32; 4],
    /// Rows of the affine map's matrix.
    matrix: [[f32; 2]; 2],
    centre: Point,
}

impl Distortion {
    /// Draws every coefficient; `between` draws uniformly between two bounds.
    pub(super) fn draw(between: &mut impl FnMut(f32, f32) -> f32) -> Self {
        let bend = std::array::from_fn(|_| between(-MAX_BEND, MAX_BEND));
        let (cos, sin) = direction(between(-MAX_HALF_TURN, MAX_HALF_TURN));
        let shear = between(-MAX_SHEAR, MAX_SHEAR);
        let (across, down) = (between(SCALES.0, SCALES.1), between(SCALES.0, SCALES.1));
        // Rotation times shear times scale.
        let matrix = [[cos * across, (cos * shear - sin) * down], [sin * across, (sin * shear + cos) * down]];
        let middle = 0.5 * SIDE as f32;
        let mut shifted = || middle + between(-MAX_SHIFT, MAX_SHIFT);
        Self { bend, matrix, centre: (shifted(), shifted()) }
    }

    /// The position of a symbol's point in the image, in pixels from the upper left corner.
    pub(super) fn apply(&self, (x, y): Point) -> Point {
        let [a, b, c, d] = self.bend;
        let (x, y) = (x + a * y * y + b * x * y, y + c * x * x + d * x * y);
        let [[xx, xy], [yx, yy]] = self.matrix;
        (self.centre.0 + xx * x + xy * y, self.centre.1 + yx * x + yy * y)
    }
}

/// Cosine and sine of the angle whose half has this tangent.
///
/// Rational, since trigonometric functions differ between platforms.
pub(super) fn direction(half_tangent: f32) -> (f32, f32) {
    let square = half_tangent * half_tangent;
    let scale = 1.0 / (1.0 + square);
    ((1.0 - square) * scale, 2.0 * half_tangent * scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Seed, uniform_f32};

    #[test]
    fn the_middle_of_every_range_only_scales() {
        let plain = Distortion::draw(&mut |low, high| 0.5 * (low + high));
        let scale = 0.5 * (SCALES.0 + SCALES.1);
        assert_eq!(plain.apply((0.0, 0.0)), (14.0, 14.0));
        assert_eq!(plain.apply((1.0, -0.5)), (14.0 + scale, 14.0 - 0.5 * scale));
    }

    #[test]
    fn area_changes_by_the_scales_alone() {
        // Rotation and shear have determinant 1.
        let mut rng = Seed::root(1).rng();
        for _ in 0..200 {
            let Distortion { matrix: [[a, b], [c, d]], .. } =
                Distortion::draw(&mut |low, high| low + (high - low) * uniform_f32(&mut rng));
            let area = a * d - b * c;
            assert!((SCALES.0.powi(2)..SCALES.1.powi(2)).contains(&area), "{area}");
        }
    }

    #[test]
    fn directions_are_those_of_trigonometry() {
        for half in [-1.0_f32, -0.5, 0.0, 0.176, 1.0] {
            let (cos, sin) = direction(half);
            let angle = 2.0 * half.atan();
            assert!((cos - angle.cos()).abs() < 1e-6 && (sin - angle.sin()).abs() < 1e-6, "{half}");
        }
        let largest = (2.0 * MAX_HALF_TURN.atan()).to_degrees();
        assert!((largest - 20.0).abs() < 0.1, "{largest}");
    }
}
