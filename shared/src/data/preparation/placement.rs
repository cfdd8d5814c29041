//! Shifting, cropping and mirroring of an image: a window onto it that may extend beyond its edges.

use serde::{Deserialize, Serialize};

crate::named!(Padding);

/// What lies beyond the edge of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Padding {
    /// Black.
    #[default]
    Zero,
    /// The image's mirror image, whose first row is the second of the image.
    Reflect,
}

/// A window onto an image `[channels, height, width]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placement {
    height: usize,
    width: usize,
    /// Rows of the window.
    rows: usize,
    /// Columns of the window.
    columns: usize,
    edge: Padding,
    /// The row of the image that the window begins with; negative above it.
    pub(super) top: isize,
    /// First column of the window in the image; negative to the left of it.
    pub(super) left: isize,
    /// Whether the window is mirrored left to right.
    pub(super) mirrored: bool,
    /// Whether the window is mirrored top to bottom.
    pub(super) upside_down: bool,
}

impl Placement {
    /// The whole image, or the upper left corner if `crop` is not 0.
    pub(super) fn new(shape: &[usize], crop: usize, edge: Padding) -> Self {
        let &[_, height, width] = shape else { panic!("an image has shape [channels, height, width]") };
        let (rows, columns) = if crop == 0 { (height, width) } else { (crop, crop) };
        Self { height, width, rows, columns, edge, top: 0, left: 0, mirrored: false, upside_down: false }
    }

    /// Rows and columns by which the image is larger than the window.
    pub(super) fn room(&self) -> (usize, usize) {
        (self.height - self.rows, self.width - self.columns)
    }

    /// Rows and columns of the window.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    /// Appends the window's content, channel by channel.
    pub(super) fn copy(&self, image: &[f32], out: &mut Vec<f32>) {
        out.reserve(image.len() / (self.height * self.width) * self.rows * self.columns);
        // The window's columns that are within the image.
        let inside = |at: isize| at.clamp(0, self.columns.cast_signed()).cast_unsigned();
        let (first, last) = (inside(-self.left), inside(self.width.cast_signed() - self.left));
        for plane in image.chunks_exact(self.height * self.width) {
            for row in 0..self.rows {
                let row = if self.upside_down { self.rows - 1 - row } else { row };
                let begin = out.len();
                match self.source(self.top + row.cast_signed(), self.height) {
                    None => out.resize(begin + self.columns, 0.0),
                    Some(row) => {
                        let row = &plane[row * self.width..][..self.width];
                        let beyond = |column: usize| {
                            let source = self.source(self.left + column.cast_signed(), self.width);
                            source.map_or(0.0, |source| row[source])
                        };
                        out.extend((0..first).map(beyond));
                        if first < last {
                            let from = (self.left + first.cast_signed()).cast_unsigned();
                            out.extend_from_slice(&row[from..from + (last - first)]);
                        }
                        out.extend((last..self.columns).map(beyond));
                    }
                }
                if self.mirrored {
                    out[begin..].reverse();
                }
            }
        }
    }

    /// The row or column of the image at `at`, which is less than `length` beyond either end; `None` is black.
    fn source(&self, at: isize, length: usize) -> Option<usize> {
        let length = length.cast_signed();
        let within = match self.edge {
            Padding::Reflect if at < 0 => -at,
            Padding::Reflect if at >= length => 2 * (length - 1) - at,
            _ => at,
        };
        (0..length).contains(&within).then_some(within.cast_unsigned())
    }
}
