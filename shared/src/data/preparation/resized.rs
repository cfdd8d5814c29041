//! A part of an image, scaled to the size of the whole.

use rand::Rng;

use crate::seed::{below, uniform_f32};

/// Bounds of the ratio of a part's sides, width by height (Szegedy et al. 2015, "Going deeper with convolutions", section 6).
const RATIO: (f32, f32) = (3.0 / 4.0, 4.0 / 3.0);
/// Draws of a part that would not fit into the image, before the whole image is taken.
const DRAWS: usize = 10;

/// A rectangle of an image, in whole pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) top: usize,
    pub(super) left: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Part {
    /// A part with at least the share `least` of the area: the share is drawn evenly, the ratio of the sides evenly on a
    /// logarithmic scale, and the place evenly.
    pub(super) fn draw<R: Rng>(least: f32, height: usize, width: usize, rng: &mut R) -> Self {
        for _ in 0..DRAWS {
            let area = (height * width) as f32 * (least + (1.0 - least) * uniform_f32(rng));
            let (low, high) = (RATIO.0.ln(), RATIO.1.ln());
            let ratio = (low + (high - low) * uniform_f32(rng)).exp();
            let side = |length: f32| (length.sqrt().round() as usize).max(1);
            let (rows, columns) = (side(area / ratio), side(area * ratio));
            if rows <= height && columns <= width {
                let top = below(height - rows + 1, rng);
                return Self { top, left: below(width - columns + 1, rng), rows, columns };
            }
        }
        Self { top: 0, left: 0, rows: height, columns: width }
    }

    /// The part of every channel of an image `[channels, height, width]`, scaled to the size of the image with straight lines
    /// between the centres of pixels.
    pub(super) fn scaled(&self, image: &[f32], height: usize, width: usize) -> Vec<f32> {
        let down = steps(self.top, self.rows, height);
        let right = steps(self.left, self.columns, width);
        let mut out = Vec::with_capacity(image.len());
        for plane in image.chunks_exact(height * width) {
            for &(upper, lower, below) in &down {
                let (upper, lower) = (&plane[upper * width..][..width], &plane[lower * width..][..width]);
                out.extend(right.iter().map(|&(left, right, beside)| {
                    let of = |row: &[f32]| row[left] + beside * (row[right] - row[left]);
                    let (above, under) = (of(upper), of(lower));
                    above + below * (under - above)
                }));
            }
        }
        out
    }
}

/// For each of `whole` pixels the two pixels of a part that it lies between, and how far it is from the first.
fn steps(first: usize, part: usize, whole: usize) -> Vec<(usize, usize, f32)> {
    let scale = part as f32 / whole as f32;
    let step = |at: usize| {
        let place = ((at as f32 + 0.5) * scale - 0.5).clamp(0.0, (part - 1) as f32);
        let before = (place as usize).min(part - 1);
        (first + before, first + (before + 1).min(part - 1), place - before as f32)
    };
    (0..whole).map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    #[test]
    fn the_whole_image_stays_as_it_is_and_a_part_is_interpolated() {
        let image: Vec<f32> = (0..12).map(|value| value as f32).collect();
        let whole = Part { top: 0, left: 0, rows: 2, columns: 3 };
        assert_eq!(whole.scaled(&image, 2, 3), image);
        // One row of two pixels, 1 and 2, over three columns: at -1/6, 1/2 and 7/6, the ends held.
        let part = Part { top: 0, left: 1, rows: 1, columns: 2 };
        let row = [1.0, 1.5, 2.0];
        let scaled = part.scaled(&image[..6], 2, 3);
        assert!(
            scaled.iter().zip(row.repeat(2)).all(|(found, expected)| (found - expected).abs() < 1e-6),
            "{scaled:?}"
        );
    }

    #[test]
    fn parts_have_the_drawn_area_and_ratio_and_lie_inside() {
        let mut rng = Seed::root(5).rng();
        let parts: Vec<Part> = (0..2000).map(|_| Part::draw(0.2, 32, 32, &mut rng)).collect();
        assert!(parts.iter().all(|part| part.top + part.rows <= 32 && part.left + part.columns <= 32));
        let shares: Vec<f32> = parts.iter().map(|part| (part.rows * part.columns) as f32 / 1024.0).collect();
        // Large parts that do not fit are drawn again: 0.55, and not 0.6.
        let mean = shares.iter().sum::<f32>() / 2000.0;
        assert!(
            shares.iter().all(|&share| (0.18..=1.0).contains(&share)) && (0.53..0.57).contains(&mean),
            "{mean}"
        );
        let ratio = |part: &Part| part.columns as f32 / part.rows as f32;
        assert!(parts.iter().all(|part| (0.7..1.43).contains(&ratio(part))));
        assert!(
            parts.iter().any(|part| part.top == 0) && parts.iter().any(|part| part.top + part.rows == 32)
        );
        assert_eq!(
            Part::draw(1.0, 1, 8, &mut rng),
            Part { top: 0, left: 0, rows: 1, columns: 8 },
            "nothing else fits"
        );
    }
}
