//! An image, turned about its centre.

/// An image `[channels, height, width]`, turned by `angle` radians, counter-clockwise as seen: with straight lines between the
/// centres of pixels, and 0 where the image has not been.
pub(super) fn rotated(image: &[f32], height: usize, width: usize, angle: f32) -> Vec<f32> {
    let (sin, cos) = angle.sin_cos();
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
                let from_y = middle + cos * down + sin * right;
                let from_x = centre - sin * down + cos * right;
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

#[cfg(test)]
mod tests {
    use std::f32::consts::{FRAC_PI_2, PI};

    use super::*;

    fn assert_near(found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len());
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4), "{found:?} {expected:?}");
    }

    #[test]
    fn right_angles_move_pixels_to_pixels() {
        let image: Vec<f32> = (0..18).map(|value| value as f32).collect();
        assert_eq!(rotated(&image, 3, 3, 0.0), image);
        // The right column becomes the top row.
        let quarter = [2.0, 5.0, 8.0, 1.0, 4.0, 7.0, 0.0, 3.0, 6.0];
        let both: Vec<f32> = quarter.into_iter().chain(quarter.map(|value| value + 9.0)).collect();
        assert_near(&rotated(&image, 3, 3, FRAC_PI_2), &both);
        let half: Vec<f32> = image[..9].iter().rev().copied().collect();
        assert_near(&rotated(&image[..9], 3, 3, PI), &half);
    }

    #[test]
    fn what_was_outside_is_zero_and_small_turns_interpolate() {
        let ones = vec![1.0; 16 * 16];
        let turned = rotated(&ones, 16, 16, PI / 4.0);
        assert!(turned[0] == 0.0 && (turned[8 * 16 + 8] - 1.0).abs() < 1e-5);
        // A plane stays a plane, with its slope turned.
        let (angle, side) = (0.2f32, 9);
        let slope: Vec<f32> = (0..side * side).map(|at| (at % side) as f32 - 4.0).collect();
        let turned = rotated(&slope, side, side, angle);
        let pixel = |y: usize, x: usize| turned[y * side + x];
        assert!((pixel(4, 5) - angle.cos()).abs() < 1e-5 && (pixel(5, 4) + angle.sin()).abs() < 1e-5);
    }
}
