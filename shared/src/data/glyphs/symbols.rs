//! The ten symbols, as polylines in a square from -1 to 1, x to the right and y downwards.
//!
//! They come in pairs that differ in one detail, and no symbol becomes another one by the rotations that
//! [`Distortion`](super::distortion::Distortion) allows.

use super::canvas::Point;

/// The names of the symbols, by class number.
pub const NAMES: [&str; 10] =
    ["ring", "open ring", "plus", "saltire", "triangle", "square", "tee", "fork", "zed", "mirrored zed"];

/// cos and sin of 22.5, 45 and 67.5 degrees.
const C1: f32 = 0.923_879_5;
const C2: f32 = 0.707_106_77;
const C3: f32 = 0.382_683_43;

/// Clockwise from the right, in steps of 22.5 degrees.
const RING: [Point; 17] = [
    (1.0, 0.0),
    (C1, C3),
    (C2, C2),
    (C3, C1),
    (0.0, 1.0),
    (-C3, C1),
    (-C2, C2),
    (-C1, C3),
    (-1.0, 0.0),
    (-C1, -C3),
    (-C2, -C2),
    (-C3, -C1),
    (0.0, -1.0),
    (C3, -C1),
    (C2, -C2),
    (C1, -C3),
    (1.0, 0.0),
];

/// The ring without the 90 degrees around its right end.
const OPEN_RING: &[Point] = RING.split_at(15).0.split_at(2).1;

/// Each symbol is a few strokes, each stroke a polyline.
pub(super) const SYMBOLS: [&[&[Point]]; NAMES.len()] = [
    &[&RING],
    &[OPEN_RING],
    &[&[(-1.0, 0.0), (1.0, 0.0)], &[(0.0, -1.0), (0.0, 1.0)]],
    &[&[(-0.8, -0.8), (0.8, 0.8)], &[(-0.8, 0.8), (0.8, -0.8)]],
    &[&[(0.0, -0.9), (0.95, 0.8), (-0.95, 0.8), (0.0, -0.9)]],
    &[&[(-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8), (-0.8, -0.8)]],
    &[&[(-0.9, -0.9), (0.9, -0.9)], &[(0.0, -0.9), (0.0, 1.0)]],
    &[&[(-0.8, -0.9), (0.0, 0.0), (0.8, -0.9)], &[(0.0, 0.0), (0.0, 1.0)]],
    &[&[(-0.8, -0.9), (0.8, -0.9), (-0.8, 0.9), (0.8, 0.9)]],
    &[&[(0.8, -0.9), (-0.8, -0.9), (0.8, 0.9), (-0.8, 0.9)]],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_fit_their_square_and_fill_it() {
        for (strokes, name) in SYMBOLS.iter().zip(NAMES) {
            assert!(strokes.iter().all(|stroke| stroke.len() >= 2), "{name}");
            let points = || strokes.iter().flat_map(|stroke| stroke.iter());
            let reach = points().fold(0.0_f32, |reach, &(x, y)| reach.max(x.abs()).max(y.abs()));
            assert!((0.8..=1.0).contains(&reach), "{name} reaches to {reach}");
        }
    }

    #[test]
    fn the_ring_is_round_and_closed() {
        assert!(RING.iter().all(|(x, y)| (x * x + y * y - 1.0).abs() < 1e-6));
        let chord = |ends: &[Point]| (ends[0].0 - ends[1].0).hypot(ends[0].1 - ends[1].1);
        assert!(RING.windows(2).all(|ends| (chord(ends) - 2.0 * 0.195_090_32).abs() < 1e-5));
        assert_eq!(RING[0], RING[16]);
        assert_eq!((OPEN_RING[0], OPEN_RING[12]), ((C2, C2), (C2, -C2)));
        assert_eq!(OPEN_RING.len(), 13);
    }

    #[test]
    fn the_mirrored_zed_is_the_mirrored_zed() {
        let mirrored: Vec<Point> = SYMBOLS[8][0].iter().map(|&(x, y)| (-x, y)).collect();
        assert_eq!(SYMBOLS[9][0], mirrored);
    }
}
