//! Strokes with soft edges on a small grey image.

use rand::Rng;

use super::SIDE;

/// A point `(x, y)`: x to the right, y downwards.
pub(super) type Point = (f32, f32);

/// The ink of each pixel, between 0 and 1.
pub(super) struct Canvas([[f32; SIDE]; SIDE]);

impl Canvas {
    pub(super) fn new() -> Self {
        Self([[0.0; SIDE]; SIDE])
    }

    /// Draws a line with round ends. Where strokes cross, the darker one shows.
    pub(super) fn draw(&mut self, from: Point, to: Point, half_width: f32, ink: f32) {
        self.stroke(from, to, half_width, |pixel, cover| *pixel = pixel.max(cover * ink));
    }

    /// Erases a line with round ends.
    pub(super) fn erase(&mut self, from: Point, to: Point, half_width: f32) {
        self.stroke(from, to, half_width, |pixel, cover| *pixel *= 1.0 - cover);
    }

    /// Visits the pixels under a line with the covered fraction, computed from the distance of the pixel's centre to the line.
    fn stroke(&mut self, from: Point, to: Point, half_width: f32, mut visit: impl FnMut(&mut f32, f32)) {
        let reach = half_width + 0.5;
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let squared_length = (dx * dx + dy * dy).max(f32::MIN_POSITIVE);
        let columns = pixels_between(from.0.min(to.0) - reach, from.0.max(to.0) + reach);
        for row in pixels_between(from.1.min(to.1) - reach, from.1.max(to.1) + reach) {
            let y = row as f32 + 0.5 - from.1;
            for column in columns.clone() {
                let x = column as f32 + 0.5 - from.0;
                let along = ((x * dx + y * dy) / squared_length).clamp(0.0, 1.0);
                let (off_x, off_y) = (x - along * dx, y - along * dy);
                let cover = reach - (off_x * off_x + off_y * off_y).sqrt();
                if cover > 0.0 {
                    visit(&mut self.0[row][column], cover.min(1.0));
                }
            }
        }
    }

    /// Turns ink into bytes: lightens the range to `paper..=1`, adds noise, rounds, and appends row by row.
    ///
    /// The noise of a pixel is the sum of two uniform numbers (a triangular density) between -`noise` and `noise`.
    pub(super) fn develop<R: Rng>(&self, paper: f32, noise: f32, rng: &mut R, pixels: &mut Vec<u8>) {
        for &ink in self.0.as_flattened() {
            let draw = rng.next_u32();
            let triangular = ((draw & 0xffff) + (draw >> 16)) as f32 / 65_535.0 - 1.0;
            let value = paper + (1.0 - paper) * ink + noise * triangular;
            pixels.push((value.clamp(0.0, 1.0) * 255.0 + 0.5) as u8);
        }
    }
}

/// The rows or columns whose centres may be between two coordinates.
fn pixels_between(low: f32, high: f32) -> std::ops::Range<usize> {
    // `as` saturates: a coordinate left of the image becomes 0.
    (low as usize).min(SIDE)..(high.max(0.0) as usize + 1).min(SIDE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    fn ink(canvas: &Canvas) -> f32 {
        canvas.0.as_flattened().iter().sum()
    }

    #[test]
    fn a_level_line_covers_rows_by_their_distance() {
        let mut canvas = Canvas::new();
        // Along the centres of row 10, two pixels wide: row 10 is covered whole, rows 9 and 11 by a half.
        canvas.draw((5.5, 10.5), (15.5, 10.5), 1.0, 0.8);
        for column in 5..=15 {
            let covered: Vec<f32> = (8..=12).map(|row| canvas.0[row][column]).collect();
            assert_eq!(covered, [0.0, 0.4, 0.8, 0.4, 0.0], "column {column}");
        }
        // The round end: one pixel further, half; two further, nothing.
        assert_eq!((canvas.0[10][16], canvas.0[10][17]), (0.4, 0.0));
    }

    #[test]
    fn where_strokes_cross_the_darker_shows() {
        let mut canvas = Canvas::new();
        canvas.draw((5.5, 10.5), (15.5, 10.5), 1.0, 0.5);
        canvas.draw((10.5, 5.5), (10.5, 15.5), 1.0, 0.9);
        canvas.draw((5.5, 10.5), (15.5, 10.5), 1.0, 0.5);
        assert_eq!((canvas.0[10][10], canvas.0[10][7]), (0.9, 0.5));
    }

    #[test]
    fn erasing_undoes_drawing() {
        let mut canvas = Canvas::new();
        canvas.draw((3.0, 4.0), (20.0, 11.0), 1.0, 1.0);
        assert!(ink(&canvas) > 30.0);
        canvas.erase((3.0, 4.0), (20.0, 11.0), 3.0);
        assert!(ink(&canvas) < 1e-6);
    }

    #[test]
    fn strokes_outside_and_of_no_length_are_harmless() {
        let mut canvas = Canvas::new();
        canvas.draw((-50.0, -50.0), (-40.0, -45.0), 1.0, 1.0);
        canvas.draw((90.0, 3.0), (95.0, 1e9), 1.0, 1.0);
        assert!(ink(&canvas) == 0.0);
        canvas.draw((10.5, 10.5), (10.5, 10.5), 0.5, 1.0);
        assert!((ink(&canvas) - 1.0).abs() < 1e-6);
        canvas.draw((-5.0, 27.5), (40.0, 27.5), 0.5, 1.0);
        assert!((ink(&canvas) - 29.0).abs() < 1e-4);
    }

    #[test]
    fn developing_maps_ink_to_bytes_with_noise_of_mean_zero() {
        let mut canvas = Canvas::new();
        canvas.0[0][0] = 1.0;
        canvas.0[0][1] = 0.5;
        let mut pixels = Vec::new();
        canvas.develop(0.2, 0.0, &mut Seed::root(1).rng(), &mut pixels);
        assert_eq!((pixels.len(), &pixels[..3]), (SIDE * SIDE, &[255, 153, 51][..]));

        pixels.clear();
        canvas.0 = [[0.5; SIDE]; SIDE];
        canvas.develop(0.0, 0.2, &mut Seed::root(1).rng(), &mut pixels);
        let mean = pixels.iter().map(|&pixel| f64::from(pixel)).sum::<f64>() / pixels.len() as f64;
        assert!((mean - 128.0).abs() < 3.0, "{mean}");
        assert!(pixels.iter().all(|pixel| (76..=179).contains(pixel)));
    }
}
