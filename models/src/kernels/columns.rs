//! Interim.
use super::im2col::Geometry;
use super::product::{Matrix, product};

#[derive(Debug)]
pub(crate) struct Columns {
    geometry: Geometry,
    out: usize,
}

impl Columns {
    pub(crate) fn new(geometry: Geometry, out: usize) -> Self {
        Self { geometry, out }
    }

    pub(crate) fn forward(
        &mut self,
        weight: &[f32],
        x: &[f32],
        y: &mut [f32],
        _n: usize,
        finish: impl Fn(&mut [f32]) + Sync,
    ) {
        let g = self.geometry;
        for (x, y) in x.chunks(g.image()).zip(y.chunks_mut(self.out * g.places())) {
            let columns = g.gather(x, 1);
            product(
                1.0,
                Matrix::new(weight, self.out, g.taps()),
                Matrix::new(&columns, g.taps(), g.places()),
                0.0,
                y,
                g.places(),
            );
            finish(y);
        }
    }

    pub(crate) fn backward(
        &mut self,
        weight: &[f32],
        x: &[f32],
        dy: &[f32],
        _n: usize,
        dweight: &mut [f32],
        mut dx: Option<&mut [f32]>,
    ) {
        let g = self.geometry;
        dweight.fill(0.0);
        for (i, (x, dy)) in x.chunks(g.image()).zip(dy.chunks(self.out * g.places())).enumerate() {
            let columns = g.gather(x, 1);
            let dy = Matrix::new(dy, self.out, g.places());
            let columns = Matrix::new(&columns, g.taps(), g.places());
            product(1.0, dy, columns.transposed(), 1.0, dweight, g.taps());
            if let Some(dx) = dx.as_deref_mut() {
                let mut d = vec![0.0; g.taps() * g.places()];
                let w = Matrix::new(weight, self.out, g.taps());
                product(1.0, w.transposed(), dy, 0.0, &mut d, g.places());
                let dx = &mut dx[i * g.image()..][..g.image()];
                dx.fill(0.0);
                g.scatter(&d, 1, dx);
            }
        }
    }
}
