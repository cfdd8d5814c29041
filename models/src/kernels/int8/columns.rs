//! The columns of a convolution: for each place of the output, the groups of four channels that it reads.

use pulp::{Simd, WithSimd};

use super::PANEL;
use super::quantise::Quantisation;
use crate::kernels::geometry::Geometry;

/// Rows and columns of an image with its padding.
pub(super) fn frame_of(geometry: Geometry) -> [usize; 2] {
    [geometry.height, geometry.width].map(|extent| extent + 2 * geometry.padding)
}

/// Quantises an image into the inside of its frame.
pub(super) struct Frame<'a> {
    pub(super) how: Quantisation,
    pub(super) x: &'a [f32],
    pub(super) geometry: Geometry,
    /// Everything else in it is the integer of 0.
    pub(super) to: &'a mut [u32],
}

impl WithSimd for Frame<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { how, x, geometry, to: frame } = self;
        let Geometry { channels, height, width, padding, .. } = geometry;
        let [frame_height, frame_width] = frame_of(geometry);
        for quad in 0..channels.div_ceil(4) {
            for row in 0..height {
                let to = (quad * frame_height + row + padding) * frame_width + padding;
                // Missing channels repeat the last: their weights are 0.
                let mut rows = [&x[..0]; 4];
                for (place, of) in rows.iter_mut().enumerate() {
                    let channel = (quad * 4 + place).min(channels - 1);
                    *of = &x[(channel * height + row) * width..][..width];
                }
                how.interleave(simd, rows, &mut frame[to..to + width]);
            }
        }
    }
}

/// Quantises pixels into some panels from number `first` on.
pub(super) struct Pixels<'a, 'b> {
    pub(super) how: Quantisation,
    pub(super) x: &'a [f32],
    pub(super) places: usize,
    pub(super) first: usize,
    /// `[panels][groups][PANEL]`.
    pub(super) panels: &'a mut [&'b mut [[u32; PANEL]]],
}

impl WithSimd for Pixels<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { how, x, places, first, panels } = self;
        for (quad, planes) in x.chunks(4 * places).enumerate() {
            let last = planes.len() / places - 1;
            for (panel, to) in panels.iter_mut().enumerate() {
                let start = (first + panel) * PANEL;
                let length = PANEL.min(places - start);
                // Missing channels repeat the last: their weights are 0.
                let mut rows = [&planes[..0]; 4];
                for (place, of) in rows.iter_mut().enumerate() {
                    *of = &planes[place.min(last) * places + start..][..length];
                }
                how.interleave(simd, rows, &mut to[quad][..length]);
            }
        }
    }
}

/// Copies columns out of a frame into some panels from number `first` on.
pub(super) struct Columns<'a, 'b> {
    pub(super) frame: &'a [u32],
    pub(super) geometry: Geometry,
    pub(super) first: usize,
    /// `[panels][groups][PANEL]`.
    pub(super) panels: &'a mut [&'b mut [[u32; PANEL]]],
}

/// Where the places of a panel read.
enum Corners {
    /// From the first of these on, until the lane `bend`, from which on they read as if they had begun at the second. Most
    /// panels lie in one row of the output or in two.
    Runs { from: [usize; 2], bend: u32 },
    /// Anywhere.
    Scattered([usize; PANEL]),
}

impl Corners {
    /// Of the places from `place` on. Lanes beyond the last place read what that reads; their sums are dropped.
    fn of(geometry: Geometry, place: usize) -> Self {
        let Geometry { columns, stride, .. } = geometry;
        let ([_, frame_width], last) = (frame_of(geometry), geometry.places() - 1);
        let (mut row, mut column) = (place / columns, place % columns);
        let mut corners = [0; PANEL];
        for (lane, corner) in corners.iter_mut().enumerate() {
            *corner = (row * frame_width + column) * stride;
            if place + lane < last {
                column += 1;
                if column == columns {
                    (row, column) = (row + 1, 0);
                }
            }
        }
        if place + PANEL > last + 1 {
            return Self::Scattered(corners); // A run would reach beyond the frame.
        }
        let follows = |lane: usize| corners[lane] == corners[lane - 1] + 1;
        let bend = (1..PANEL).find(|&lane| !follows(lane)).unwrap_or(PANEL);
        if bend == PANEL {
            return Self::Runs { from: [corners[0]; 2], bend: PANEL as u32 };
        }
        match corners[bend].checked_sub(bend) {
            Some(second) if (bend + 1..PANEL).all(follows) => {
                Self::Runs { from: [corners[0], second], bend: bend as u32 }
            }
            _ => Self::Scattered(corners),
        }
    }
}

impl WithSimd for Columns<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { frame, geometry, first, panels } = self;
        let kernel = geometry.kernel;
        let [frame_height, frame_width] = frame_of(geometry);
        let mut lanes = [0; PANEL];
        lanes.iter_mut().zip(0..).for_each(|(lane, number)| *lane = number);
        for (panel, to) in panels.iter_mut().enumerate() {
            let corners = Corners::of(geometry, (first + panel) * PANEL);
            for (group, to) in to.iter_mut().enumerate() {
                let (quad, tap) = (group / (kernel * kernel), group % (kernel * kernel));
                let start = (quad * frame_height + tap / kernel) * frame_width + tap % kernel;
                match &corners {
                    Corners::Runs { from: [one, two], bend } => {
                        let [one, two] = [one, two].map(|from| &frame[start + from..][..PANEL]);
                        let ((one, _), (two, _)) = (S::as_simd_u32s(one), S::as_simd_u32s(two));
                        let ((lanes, _), (to, _)) = (S::as_simd_u32s(&lanes), S::as_mut_simd_u32s(to));
                        let bend = simd.splat_u32s(*bend);
                        for ((to, &lane), (&one, &two)) in to.iter_mut().zip(lanes).zip(one.iter().zip(two)) {
                            *to = simd.select_u32s(simd.less_than_u32s(lane, bend), one, two);
                        }
                    }
                    Corners::Scattered(corners) => {
                        let frame = &frame[start..];
                        to.iter_mut().zip(corners).for_each(|(to, &corner)| *to = frame[corner]);
                    }
                }
            }
        }
    }
}
