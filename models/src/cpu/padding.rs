//! Padding layers.

use super::operator::{Backward, Forward, Operator, Reads};
use super::parameter::Parameter;
use crate::error::ModelError;

/// Zeros around images `[channels, height, width]`, `pixels` wide on each side.
#[derive(Debug)]
pub(crate) struct ZeroPad {
    pub(crate) channels: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) pixels: usize,
}

impl ZeroPad {
    /// The first index in the padded images and that in the images, for every row of every image.
    fn rows(&self, n: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let &Self { channels, height, width, pixels } = self;
        let (outer_height, outer_width) = (height + 2 * pixels, width + 2 * pixels);
        (0..n * channels).flat_map(move |plane| {
            let padded = move |row: usize| (plane * outer_height + row + pixels) * outer_width + pixels;
            (0..height).map(move |row| (padded(row), (plane * height + row) * width))
        })
    }
}

impl Operator for ZeroPad {
    fn forward(&mut self, _: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        pass.y.fill(0.0);
        for (to, from) in self.rows(pass.n) {
            pass.y[to..to + self.width].copy_from_slice(&pass.x[from..from + self.width]);
        }
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: false, output: false }
    }

    fn backward(&mut self, _: &mut [Parameter], pass: Backward<'_>) {
        let Some(dx) = pass.dx else { return };
        for (from, to) in self.rows(pass.n) {
            dx[to..to + self.width].copy_from_slice(&pass.dy[from..from + self.width]);
        }
    }
}
