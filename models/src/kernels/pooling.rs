//! Interim.

#[derive(Debug)]
pub(crate) struct MaxPool {
    height: usize,
    width: usize,
    size: usize,
    stride: usize,
    rectified: bool,
    places: Vec<u32>,
}

impl MaxPool {
    pub(crate) fn new(shape: &[usize], size: usize, stride: usize, rectified: bool) -> Self {
        Self { height: shape[1], width: shape[2], size, stride, rectified, places: vec![] }
    }

    pub(crate) fn forward(&mut self, x: &[f32], y: &mut [f32], _n: usize) {
        let (h, w) = (self.height, self.width);
        let (rows, columns) = ((h - self.size) / self.stride + 1, (w - self.size) / self.stride + 1);
        self.places.resize(y.len(), 0);
        for (p, (x, (y, at))) in x
            .chunks(h * w)
            .zip(y.chunks_mut(rows * columns).zip(self.places.chunks_mut(rows * columns)))
            .enumerate()
        {
            for r in 0..rows {
                for c in 0..columns {
                    let mut best = r * self.stride * w + c * self.stride;
                    for i in 0..self.size {
                        for j in 0..self.size {
                            let k = (r * self.stride + i) * w + c * self.stride + j;
                            if x[k] > x[best] {
                                best = k;
                            }
                        }
                    }
                    y[r * columns + c] = if self.rectified { x[best].max(0.0) } else { x[best] };
                    at[r * columns + c] = (p * h * w + best) as u32;
                }
            }
        }
    }

    pub(crate) fn backward(&self, y: &[f32], dy: &[f32], dx: &mut [f32], _n: usize) {
        dx.fill(0.0);
        for ((&at, &d), &y) in self.places.iter().zip(dy).zip(y) {
            if !self.rectified || y > 0.0 {
                dx[at as usize] += d;
            }
        }
    }
}
