//! Convolutional layers.

use super::operator::{Backward, Mode, Operator};
use super::parameter::Parameter;
use crate::kernels::columns::Columns;
use crate::kernels::im2col::Geometry;
use crate::kernels::winograd::Winograd;
use crate::kernels::{bias, rectifier};

/// `y = W * x + b`, and then `max(y, 0)` if `rectified`, image by image while it is in the cache.
#[derive(Debug)]
pub(crate) struct Convolution {
    algorithm: Algorithm,
    /// The index of `W`, `[out, channels, kernel, kernel]`.
    weight: usize,
    /// The index of `b`, `[out]`.
    bias: Option<usize>,
    /// Values of one channel of one output image.
    places: usize,
    rectified: bool,
}

/// Ways to the same numbers, of which the shapes say which is the fastest.
#[derive(Debug)]
enum Algorithm {
    Columns(Columns),
    Winograd(Box<Winograd>),
}

impl Convolution {
    pub(crate) fn new(
        geometry: Geometry,
        out: usize,
        weight: usize,
        bias: Option<usize>,
        rectified: bool,
    ) -> Self {
        let winograd = Winograd::new(geometry, out).filter(|_| Winograd::pays(geometry, out));
        let algorithm = match winograd {
            Some(winograd) => Algorithm::Winograd(Box::new(winograd)),
            None => Algorithm::Columns(Columns::new(geometry, out)),
        };
        Self { algorithm, weight, bias, places: geometry.places(), rectified }
    }
}

impl Operator for Convolution {
    fn forward(&mut self, parameters: &mut [Parameter], x: &[f32], y: &mut [f32], n: usize, _mode: Mode) {
        let weight = parameters[self.weight].values.values();
        let bias = self.bias.map(|bias| parameters[bias].values.values());
        let (places, rectified) = (self.places, self.rectified);
        let finish = |image: &mut [f32]| match (bias, rectified) {
            (Some(bias), true) => bias::add_to_planes_and_rectify(image, bias, places),
            (Some(bias), false) => bias::add_to_planes(image, bias, places),
            (None, true) => rectifier::rectify(image),
            (None, false) => {}
        };
        match &mut self.algorithm {
            Algorithm::Columns(columns) => columns.forward(weight, x, y, n, finish),
            Algorithm::Winograd(winograd) => winograd.forward(weight, x, y, n, finish),
        }
    }

    fn backward(&mut self, parameters: &mut [Parameter], pass: Backward<'_>) {
        let Backward { x, y, dy, dx, n, .. } = pass;
        if self.rectified {
            rectifier::mask(dy, y);
        }
        if let Some(bias) = self.bias {
            bias::sum_planes(dy, self.places, parameters[bias].renew().0);
        }
        let (gradient, weight) = parameters[self.weight].renew();
        match &mut self.algorithm {
            Algorithm::Columns(columns) => columns.backward(weight, x, dy, n, gradient, dx),
            Algorithm::Winograd(winograd) => winograd.backward(weight, x, dy, n, gradient, dx),
        }
    }
}
