//! An image, turned, slanted or moved.

/// Where the pixels of a changed image are in the old one: `matrix (y, x) + offset`, with coordinates about the centre, `y` downwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Affine {
    matrix: [[f32; 2]; 2],
    /// In pixels.
    offset: [f32; 2],
}

impl Affine {
    const NONE: Self = Self { matrix: [[1.0, 0.0], [0.0, 1.0]], offset: [0.0, 0.0] };

    /// Turns by this angle in radians, counter-clockwise as seen.
    pub(super) fn turned(angle: f32) -> Self {
        let (sin, cos) = angle.sin_cos();
        Self { matrix: [[cos, sin], [-sin, cos]], ..Self::NONE }
    }

    /// Moves every row sideways, by this share of its distance from the centre: rows above it to the right, those below to the left.
    pub(super) fn slanted_sideways(share: f32) -> Self {
        Self { matrix: [[1.0, 0.0], [share, 1.0]], ..Self::NONE }
    }

    /// Moves every column, by this share of its distance from the centre: columns left of it down, those to the right up.
    pub(super) fn slanted_upright(share: f32) -> Self {
        Self { matrix: [[1.0, share], [0.0, 1.0]], ..Self::NONE }
    }

    /// Moves all by these numbers of pixels, up and to the left.
    pub(super) fn moved(up: f32, left: f32) -> Self {
        Self { offset: [up, left], ..Self::NONE }
    }

    /// What it makes of an image `[channels, height, width]`: with straight lines between the centres of pixels, and 0 where the image
    /// has not been.
    pub(super) fn of(&self, image: &[f32], height: usize, width: usize) -> Vec<f32> {
        let Self { matrix: [to_y, to_x], offset } = *self;
        let (middle, centre) = ((height as f32 - 1.0) / 2.0, (width as f32 - 1.0) / 2.0);
        let mut out = Vec::with_capacity(image.len());
        for plane in image.chunks_exact(height * width) {
            let at = |y: f32, x: f32| {
                let inside = y >= 0.0 && x >= 0.0 && y < height as f32 && x < width as f32;
                if inside { plane[y as usize * width + x as usize] } else { 0.0 }
            };
            for y in 0..height {
                for x in 0..width {
                    let (down, right) = (y as f32 - middle, x as f32 - centre);
                    let from_y = middle + to_y[0] * down + to_y[1] * right + offset[0];
                    let from_x = centre + to_x[0] * down + to_x[1] * right + offset[1];
                    let (top, left) = (from_y.floor(), from_x.floor());
                    let (below, beside) = (from_y - top, from_x - left);
                    let upper = at(top, left) * (1.0 - beside) + at(top, left + 1.0) * beside;
                    let lower = at(top + 1.0, left) * (1.0 - beside) + at(top + 1.0, left + 1.0) * beside;
                    out.push(upper * (1.0 - below) + lower * below);
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use std::f32::consts::{FRAC_PI_2, PI};

    use super::*;

    fn turned(image: &[f32], height: usize, width: usize, angle: f32) -> Vec<f32> {
        Affine::turned(angle).of(image, height, width)
    }

    fn assert_near(found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len());
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4), "{found:?} {expected:?}");
    }

    #[test]
    fn right_angles_move_pixels_to_pixels() {
        let image: Vec<f32> = (0..18).map(|value| value as f32).collect();
        assert_eq!(turned(&image, 3, 3, 0.0), image);
        // The right column becomes the top row.
        let quarter = [2.0, 5.0, 8.0, 1.0, 4.0, 7.0, 0.0, 3.0, 6.0];
        let both: Vec<f32> = quarter.into_iter().chain(quarter.map(|value| value + 9.0)).collect();
        assert_near(&turned(&image, 3, 3, FRAC_PI_2), &both);
        let half: Vec<f32> = image[..9].iter().rev().copied().collect();
        assert_near(&turned(&image[..9], 3, 3, PI), &half);
    }

    #[test]
    fn what_was_outside_is_zero_and_small_turns_interpolate() {
        let ones = vec![1.0; 16 * 16];
        let around = turned(&ones, 16, 16, PI / 4.0);
        assert!(around[0] == 0.0 && (around[8 * 16 + 8] - 1.0).abs() < 1e-5);
        // A plane stays a plane, with its slope turned.
        let (angle, side) = (0.2f32, 9);
        let slope: Vec<f32> = (0..side * side).map(|at| (at % side) as f32 - 4.0).collect();
        let around = turned(&slope, side, side, angle);
        let pixel = |y: usize, x: usize| around[y * side + x];
        assert!((pixel(4, 5) - angle.cos()).abs() < 1e-5 && (pixel(5, 4) + angle.sin()).abs() < 1e-5);
    }

    #[test]
    fn images_are_moved_and_slanted_about_their_centre() {
        let image = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
        let up = [4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 0.0, 0.0, 0.0];
        assert_eq!(Affine::moved(1.0, 0.0).of(&image, 3, 3), up);
        let half_left = [1.5, 2.5, 1.5, 4.5, 5.5, 3.0, 7.5, 8.5, 4.5];
        assert_eq!(Affine::moved(0.0, 0.5).of(&image, 3, 3), half_left);
        // The top row goes right, the bottom row left; the middle stays.
        let sideways = [0.0, 1.0, 2.0, 4.0, 5.0, 6.0, 8.0, 9.0, 0.0];
        assert_eq!(Affine::slanted_sideways(1.0).of(&image, 3, 3), sideways);
        let upright = [0.0, 2.0, 6.0, 1.0, 5.0, 9.0, 4.0, 8.0, 0.0];
        assert_eq!(Affine::slanted_upright(1.0).of(&image, 3, 3), upright);
    }
}
