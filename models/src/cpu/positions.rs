//! Layers between images, sequences and features: which positions a sequence has, where each is, and what is left of them.

use super::operator::{Backward, Forward, Operator, Reads};
use super::parameter::Parameter;
use crate::error::ModelError;
use crate::kernels::update::add_multiple;

const NOTHING: Reads = Reads { input: false, output: false };

/// `[channels, pixels]` to `[pixels, channels]`.
#[derive(Debug)]
pub(crate) struct ToSequence {
    pub(crate) channels: usize,
    pub(crate) pixels: usize,
}

impl Operator for ToSequence {
    fn forward(&mut self, _: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        transpose(pass.x, pass.y, self.channels, self.pixels);
        Ok(())
    }

    fn reads(&self) -> Reads {
        NOTHING
    }

    fn backward(&mut self, _: &mut [Parameter], pass: Backward<'_>) {
        if let Some(dx) = pass.dx {
            transpose(pass.dy, dx, self.pixels, self.channels);
        }
    }
}

/// Transposes matrices that follow each other.
fn transpose(from: &[f32], to: &mut [f32], rows: usize, columns: usize) {
    let matrices = from.chunks_exact(rows * columns).zip(to.chunks_exact_mut(rows * columns));
    for (from, to) in matrices {
        for (column, to) in to.chunks_exact_mut(rows).enumerate() {
            let from = from[column..].iter().step_by(columns);
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        }
    }
}

/// A learned position before the others, of `features` values.
#[derive(Debug)]
pub(crate) struct ClassToken {
    /// The index of its values.
    pub(crate) weight: usize,
    /// Positions of the input.
    pub(crate) positions: usize,
    pub(crate) features: usize,
}

impl Operator for ClassToken {
    fn forward(&mut self, parameters: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        let token = parameters[self.weight].values.values();
        let samples = pass.y.chunks_exact_mut((self.positions + 1) * self.features);
        for (y, x) in samples.zip(pass.x.chunks_exact(self.positions * self.features)) {
            let (first, rest) = y.split_at_mut(self.features);
            first.copy_from_slice(token);
            rest.copy_from_slice(x);
        }
        Ok(())
    }

    fn reads(&self) -> Reads {
        NOTHING
    }

    fn backward(&mut self, parameters: &mut [Parameter], pass: Backward<'_>) {
        let Backward { dy, mut dx, .. } = pass;
        let (gradient, _) = parameters[self.weight].new_gradient();
        gradient.fill(0.0);
        for (index, dy) in dy.chunks_exact((self.positions + 1) * self.features).enumerate() {
            let (first, rest) = dy.split_at(self.features);
            add_multiple(gradient, 1.0, first);
            if let Some(dx) = &mut dx {
                dx[index * rest.len()..][..rest.len()].copy_from_slice(rest);
            }
        }
    }
}

/// Adds to each position what is learned of it.
#[derive(Debug)]
pub(crate) struct Positions {
    /// The index of the values, one for each of a sample.
    pub(crate) weight: usize,
}

impl Operator for Positions {
    fn forward(&mut self, parameters: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        add_table(pass.x, parameters[self.weight].values.values(), pass.y);
        Ok(())
    }

    fn reads(&self) -> Reads {
        NOTHING
    }

    fn backward(&mut self, parameters: &mut [Parameter], pass: Backward<'_>) {
        let (gradient, _) = parameters[self.weight].new_gradient();
        gradient.fill(0.0);
        let length = gradient.len().max(1);
        pass.dy.chunks_exact(length).for_each(|dy| add_multiple(gradient, 1.0, dy));
        if let Some(dx) = pass.dx {
            dx.copy_from_slice(pass.dy);
        }
    }
}

/// Adds to each position a wave of its own.
#[derive(Debug)]
pub(crate) struct SinusoidalPositions {
    /// One value for each of a sample.
    pub(crate) table: Vec<f32>,
}

impl Operator for SinusoidalPositions {
    fn forward(&mut self, _: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        add_table(pass.x, &self.table, pass.y);
        Ok(())
    }

    fn reads(&self) -> Reads {
        NOTHING
    }

    fn backward(&mut self, _: &mut [Parameter], pass: Backward<'_>) {
        if let Some(dx) = pass.dx {
            dx.copy_from_slice(pass.dy);
        }
    }
}

/// `y = x + table` for each sample.
fn add_table(x: &[f32], table: &[f32], y: &mut [f32]) {
    y.copy_from_slice(x);
    y.chunks_exact_mut(table.len().max(1)).for_each(|y| add_multiple(y, 1.0, table));
}

/// The first position alone, of `features` values.
#[derive(Debug)]
pub(crate) struct FirstPosition {
    pub(crate) positions: usize,
    pub(crate) features: usize,
}

impl Operator for FirstPosition {
    fn forward(&mut self, _: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        let samples = pass.x.chunks_exact(self.positions * self.features);
        for (y, x) in pass.y.chunks_exact_mut(self.features).zip(samples) {
            y.copy_from_slice(&x[..self.features]);
        }
        Ok(())
    }

    fn reads(&self) -> Reads {
        NOTHING
    }

    fn backward(&mut self, _: &mut [Parameter], pass: Backward<'_>) {
        let Some(dx) = pass.dx else { return };
        dx.fill(0.0);
        let samples = dx.chunks_exact_mut(self.positions * self.features);
        for (dx, dy) in samples.zip(pass.dy.chunks_exact(self.features)) {
            dx[..self.features].copy_from_slice(dy);
        }
    }
}

/// The mean over positions, of `features` values each.
#[derive(Debug)]
pub(crate) struct MeanPositions {
    pub(crate) positions: usize,
    pub(crate) features: usize,
}

impl Operator for MeanPositions {
    fn forward(&mut self, _: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        let share = 1.0 / self.positions as f32;
        pass.y.fill(0.0);
        let samples = pass.x.chunks_exact(self.positions * self.features);
        for (y, x) in pass.y.chunks_exact_mut(self.features).zip(samples) {
            x.chunks_exact(self.features).for_each(|x| add_multiple(y, share, x));
        }
        Ok(())
    }

    fn reads(&self) -> Reads {
        NOTHING
    }

    fn backward(&mut self, _: &mut [Parameter], pass: Backward<'_>) {
        let Some(dx) = pass.dx else { return };
        let share = 1.0 / self.positions as f32;
        dx.fill(0.0);
        let samples = dx.chunks_exact_mut(self.positions * self.features);
        for (dx, dy) in samples.zip(pass.dy.chunks_exact(self.features)) {
            dx.chunks_exact_mut(self.features).for_each(|dx| add_multiple(dx, share, dy));
        }
    }
}
