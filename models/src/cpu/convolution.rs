//! Convolutional layers.

use super::operator::{Backward, Forward, Operator, Reads};
use super::parameter::Parameter;
use crate::engine::UpdateMode;
use crate::error::ModelError;
use crate::kernels::bias;
use crate::kernels::depthwise::Depthwise;
use crate::kernels::direct::Direct;
use crate::kernels::geometry::Geometry;
use crate::kernels::grouped::Grouped;
use crate::kernels::im2col::Im2col;
use crate::kernels::pointwise::Pointwise;
use crate::kernels::update;
use crate::kernels::winograd::{Winograd, pays};
use crate::kernels::workspace::Workspace;

/// `y = W * x + b`, then `max(y, 0)` if `rectified`. Bias and rectifier are applied while an image is in the cache.
pub(crate) struct Convolution {
    algorithm: Algorithm,
    /// The index of `W`, `[out, channels, kernel, kernel]`.
    weight: usize,
    /// The index of `b`, `[out]`.
    bias: Option<usize>,
    /// Values of one channel of an output image.
    places: usize,
    rectified: bool,
}

/// Algorithms for convolution; the shapes decide which is the fastest.
pub(crate) enum Algorithm {
    Depthwise(Box<Depthwise>),
    Direct(Box<Direct>),
    Grouped(Box<Grouped>),
    Im2col(Box<Im2col>),
    Pointwise(Box<Pointwise>),
    Winograd(Box<Winograd>),
}

/// Which algorithm is the fastest for some shapes.
enum Fastest {
    Depthwise,
    Direct,
    Grouped,
    Im2col,
    Pointwise,
    Winograd,
}

impl Fastest {
    fn of(geometry: Geometry, (out, groups): (usize, usize)) -> Self {
        if groups > 1 && groups == geometry.channels && groups == out {
            Self::Depthwise
        } else if groups > 1 {
            Self::Grouped
        } else if Pointwise::is(geometry) {
            Self::Pointwise
        } else if pays(geometry, out) {
            Self::Winograd
        } else if Direct::suits(geometry, out) {
            Self::Direct
        } else {
            Self::Im2col
        }
    }
}

/// The scratch memory of a convolution for batches of `n`, in values: its own, and what it shares with the others of its network.
/// `learns` if it has a backward pass too.
pub(super) fn scratch(
    geometry: Geometry,
    (out, groups): (usize, usize),
    n: u64,
    learns: bool,
) -> (u64, [u64; 4]) {
    let n = usize::try_from(n).unwrap_or(usize::MAX);
    match Fastest::of(geometry, (out, groups)) {
        Fastest::Depthwise => (Depthwise::scratch(geometry, n, learns), [0; 4]),
        Fastest::Grouped => (Grouped::scratch(geometry, (out, groups), n, learns), [0; 4]),
        Fastest::Pointwise => (0, Pointwise::scratch(geometry, out, n, learns)),
        Fastest::Winograd => (0, Winograd::scratch(geometry, out, n, learns)),
        Fastest::Direct => (Direct::scratch(geometry, out, n, learns), [0; 4]),
        Fastest::Im2col => (Im2col::scratch(geometry, out, n, learns), [0; 4]),
    }
}

impl Algorithm {
    /// For images of this geometry, with `out` channels after it, in groups.
    pub(crate) fn new(geometry: Geometry, (out, groups): (usize, usize), workspace: &Workspace) -> Self {
        match Fastest::of(geometry, (out, groups)) {
            Fastest::Winograd => {
                let winograd = Winograd::new(geometry, out, workspace);
                Self::Winograd(Box::new(winograd.expect("it only pays where it applies")))
            }
            Fastest::Depthwise => Self::Depthwise(Box::new(Depthwise::new(geometry))),
            Fastest::Direct => Self::Direct(Box::new(Direct::new(geometry, out))),
            Fastest::Grouped => Self::Grouped(Box::new(Grouped::new(geometry, (out, groups)))),
            Fastest::Im2col => Self::Im2col(Box::new(Im2col::new(geometry, out))),
            Fastest::Pointwise => Self::Pointwise(Box::new(Pointwise::new(geometry, out, workspace))),
        }
    }
}

impl Convolution {
    /// With the indices of its weight and its bias.
    pub(crate) fn new(
        algorithm: Algorithm,
        geometry: Geometry,
        (weight, bias): (usize, Option<usize>),
        rectified: bool,
    ) -> Self {
        Self { algorithm, weight, bias, places: geometry.places(), rectified }
    }
}

impl Operator for Convolution {
    fn forward(&mut self, parameters: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        let Forward { x, y, n, .. } = pass;
        let weight = parameters[self.weight].values.values();
        let bias = self.bias.map(|bias| parameters[bias].values.values());
        let rectified = self.rectified;
        let finish = |image: &mut [f32]| match bias {
            Some(bias) => bias::add_channel_bias(image, bias, rectified),
            None if rectified => bias::rectify(image),
            None => {}
        };
        match &mut self.algorithm {
            Algorithm::Depthwise(depthwise) => {
                depthwise.forward(weight, x, y, n, |channel, plane| match bias {
                    Some(bias) => bias::add_channel_bias(plane, &bias[channel..=channel], rectified),
                    None if rectified => bias::rectify(plane),
                    None => {}
                });
            }
            Algorithm::Grouped(grouped) => grouped.forward(weight, x, y, n, finish),
            Algorithm::Direct(direct) => direct.forward(weight, x, y, n, finish),
            Algorithm::Im2col(columns) => columns.forward(weight, x, y, n, finish),
            Algorithm::Pointwise(pointwise) => pointwise.forward(weight, x, y, n, finish),
            Algorithm::Winograd(winograd) => winograd.forward(weight, x, y, n, finish),
        }
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: true, output: self.rectified }
    }

    fn backward(&mut self, parameters: &mut [Parameter], pass: Backward<'_>) {
        let Backward { x, y, dy, dx, n, update, free } = pass;
        if self.rectified {
            bias::rectify_gradient(dy, y);
        }
        if let Some(bias) = self.bias {
            bias::channel_bias_gradient(dy, parameters[bias].new_gradient().0, self.places);
        }
        let parameter = &mut parameters[self.weight];
        let UpdateMode::Fused(rate) = update else {
            let (gradient, weight) = parameter.new_gradient();
            return self.gradients((weight, x, dy), n, gradient, dx);
        };
        // The gradient goes into a buffer that the next layer reuses, and is applied while it is in the cache.
        let mut gradient = free.pop().unwrap_or_default();
        gradient.resize(parameter.values.len(), 0.0);
        self.gradients((parameter.values.values(), x, dy), n, &mut gradient, dx);
        update::subtract(parameter.begin_fused_step(rate), rate, &gradient);
        free.push(gradient);
    }
}

impl Convolution {
    fn gradients(
        &mut self,
        (weight, x, dy): (&[f32], &[f32], &[f32]),
        n: usize,
        by_weight: &mut [f32],
        dx: Option<&mut [f32]>,
    ) {
        match &mut self.algorithm {
            Algorithm::Depthwise(depthwise) => depthwise.backward(weight, x, dy, n, by_weight, dx),
            Algorithm::Grouped(grouped) => grouped.backward(weight, x, dy, n, by_weight, dx),
            Algorithm::Direct(direct) => direct.backward(weight, x, dy, n, by_weight, dx),
            Algorithm::Im2col(columns) => columns.backward(weight, x, dy, n, by_weight, dx),
            Algorithm::Pointwise(pointwise) => pointwise.backward(weight, x, dy, n, by_weight, dx),
            Algorithm::Winograd(winograd) => winograd.backward(weight, x, dy, n, by_weight, dx),
        }
    }
}
