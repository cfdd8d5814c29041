//! Grouped convolution: groups of channels, each convolved on its own.
//!
//! The channels of one group of all images are copied together, convolved as images of their own, and copied back. The
//! convolution shares its work out among threads; groups come one after the other.

use super::copy::copy_row;
use super::direct::Direct;
use super::geometry::Geometry;
use super::im2col::Im2col;

/// A grouped convolution with its scratch memory.
pub(crate) struct Grouped {
    groups: usize,
    /// Of one group.
    geometry: Geometry,
    /// Output channels of one group.
    out: usize,
    algorithm: Algorithm,
    /// Images and outputs of one group.
    x: Vec<f32>,
    y: Vec<f32>,
}

enum Algorithm {
    Direct(Box<Direct>),
    Im2col(Box<Im2col>),
}

impl Grouped {
    /// For images of this geometry. The groups divide its channels and the `out` channels.
    pub(crate) fn new(geometry: Geometry, (out, groups): (usize, usize)) -> Self {
        let (geometry, out) = (of_one_group(geometry, groups), out / groups);
        let algorithm = if Direct::suits(geometry, out) {
            Algorithm::Direct(Box::new(Direct::new(geometry, out)))
        } else {
            Algorithm::Im2col(Box::new(Im2col::new(geometry, out)))
        };
        Self { groups, geometry, out, algorithm, x: Vec::new(), y: Vec::new() }
    }

    /// The values of scratch memory for batches of `n`, at most; `learns` if there is a backward pass too.
    pub(crate) fn scratch(geometry: Geometry, (out, groups): (usize, usize), n: usize, learns: bool) -> u64 {
        let (geometry, out) = (of_one_group(geometry, groups), out / groups);
        let copies = (n as u64).saturating_mul((geometry.image() + out * geometry.places()) as u64);
        let own = if Direct::suits(geometry, out) {
            Direct::scratch(geometry, out, n, learns)
        } else {
            Im2col::scratch(geometry, out, n, learns)
        };
        own.saturating_add(copies)
    }

    /// `y` `[n, out, rows, columns]` from `x` `[n, channels, height, width]` and `weight`
    /// `[out, channels / groups, kernel, kernel]`. `finish` is called with each image's complete output.
    pub(crate) fn forward(
        &mut self,
        weight: &[f32],
        x: &[f32],
        y: &mut [f32],
        n: usize,
        finish: impl Fn(&mut [f32]),
    ) {
        let Self { groups, geometry, out, .. } = *self;
        let (image, image_output) = (geometry.image(), out * geometry.places());
        self.y.resize(n * image_output, 0.0);
        for (group, weight) in weight.chunks_exact(out * geometry.taps()).enumerate() {
            gather(x, &mut self.x, image, (group, groups));
            match &mut self.algorithm {
                Algorithm::Direct(direct) => direct.forward(weight, &self.x, &mut self.y, n, |_| {}),
                Algorithm::Im2col(columns) => columns.forward(weight, &self.x, &mut self.y, n, |_| {}),
            }
            scatter(&self.y, y, image_output, (group, groups));
        }
        y.chunks_exact_mut((groups * image_output).max(1)).for_each(finish);
    }

    /// From the gradient `dy` of the output, computes that of the weights, `dweight`, and optionally that of the images, `dx`.
    pub(crate) fn backward(
        &mut self,
        weight: &[f32],
        x: &[f32],
        dy: &[f32],
        n: usize,
        dweight: &mut [f32],
        mut dx: Option<&mut [f32]>,
    ) {
        let Self { groups, geometry, out, .. } = *self;
        let (image, image_output, size) = (geometry.image(), out * geometry.places(), out * geometry.taps());
        let mut own_dx = vec![0.0; if dx.is_some() { n * image } else { 0 }];
        let kernels = weight.chunks_exact(size).zip(dweight.chunks_exact_mut(size));
        for (group, (weight, dweight)) in kernels.enumerate() {
            gather(x, &mut self.x, image, (group, groups));
            gather(dy, &mut self.y, image_output, (group, groups));
            let (x, dy, by_x) = (&self.x, &self.y, dx.is_some().then_some(own_dx.as_mut_slice()));
            match &mut self.algorithm {
                Algorithm::Direct(direct) => direct.backward(weight, x, dy, n, dweight, by_x),
                Algorithm::Im2col(columns) => columns.backward(weight, x, dy, n, dweight, by_x),
            }
            if let Some(dx) = &mut dx {
                scatter(&own_dx, dx, image, (group, groups));
            }
        }
    }
}

fn of_one_group(geometry: Geometry, groups: usize) -> Geometry {
    Geometry { channels: geometry.channels / groups, ..geometry }
}

/// Copies the parts of one group, of `size` values each, out of all images.
fn gather(from: &[f32], to: &mut Vec<f32>, size: usize, (group, groups): (usize, usize)) {
    to.clear();
    from.chunks_exact(size.max(1)).skip(group).step_by(groups).for_each(|part| to.extend_from_slice(part));
}

/// Copies the parts of one group back into all images.
fn scatter(from: &[f32], to: &mut [f32], size: usize, (group, groups): (usize, usize)) {
    let parts = to.chunks_exact_mut(size.max(1)).skip(group).step_by(groups);
    parts.zip(from.chunks_exact(size.max(1))).for_each(|(to, from)| copy_row(from, to));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::depthwise::Depthwise;
    use crate::kernels::reference::Case;

    #[test]
    fn groups_are_convolutions_of_their_own() {
        // The last one is too large for the direct algorithm.
        for (channels, out, groups, side, kernel, n) in
            [(4, 6, 2, 5, 3, 3), (6, 3, 3, 4, 2, 1), (8, 8, 8, 5, 3, 2), (128, 128, 2, 12, 3, 2)]
        {
            let whole = Case::new((channels, side, side), out, kernel, 1, 1, n);
            let size = whole.weight.len() / groups;
            let mut grouped = Grouped::new(whole.geometry, (out, groups));
            let (mut y, mut dx) = (vec![f32::NAN; whole.dy.len()], vec![f32::NAN; whole.x.len()]);
            let mut dweight = vec![f32::NAN; size];
            let weight = &whole.weight[..size];
            let finished = std::cell::Cell::new(0);
            grouped.forward(weight, &whole.x, &mut y, n, |_| finished.set(finished.get() + 1));
            assert_eq!(finished.get(), n);
            grouped.backward(weight, &whole.x, &whole.dy, n, &mut dweight, Some(&mut dx));
            let places = whole.geometry.places();
            for group in 0..groups {
                let part = |values: &[f32], size: usize| {
                    let mut part = Vec::new();
                    gather(values, &mut part, size, (group, groups));
                    part
                };
                let (image, image_output) = (whole.geometry.image() / groups, out / groups * places);
                let own = size / groups;
                let single = Case {
                    geometry: of_one_group(whole.geometry, groups),
                    out: out / groups,
                    n,
                    weight: weight[group * own..(group + 1) * own].to_vec(),
                    x: part(&whole.x, image),
                    dy: part(&whole.dy, image_output),
                };
                let (expected_y, expected_dweight, expected_dx) = single.expected();
                expected_y.assert_near("y", &part(&y, image_output));
                expected_dweight.assert_near("dweight", &dweight[group * own..(group + 1) * own]);
                expected_dx.assert_near("dx", &part(&dx, image));
            }
        }
    }

    /// How much faster the depthwise kernel is. `cargo test --release ... depthwise_against_groups -- --ignored --nocapture`
    #[test]
    #[ignore = "it measures"]
    fn depthwise_against_groups() {
        for (image, kernel, stride) in [
            ((96, 48, 48), 3, 1),
            ((96, 48, 48), 3, 2),
            ((384, 6, 6), 3, 1),
            ((120, 12, 12), 5, 1),
            ((72, 24, 24), 5, 2),
        ] {
            let n = 16;
            let case = Case::new(image, image.0, kernel, stride, kernel / 2, n);
            let weight = &case.weight[..image.0 * kernel * kernel];
            let (mut y, mut dx) = (vec![0.0; case.dy.len()], vec![0.0; case.x.len()]);
            let mut dweight = vec![0.0; weight.len()];
            let mut depthwise = Depthwise::new(case.geometry);
            let mut grouped = Grouped::new(case.geometry, (image.0, image.0));
            let least = |run: &mut dyn FnMut()| {
                let times = (0..10).map(|_| {
                    let began = std::time::Instant::now();
                    run();
                    began.elapsed().as_secs_f64()
                });
                1e3 * times.fold(f64::INFINITY, f64::min)
            };
            let fast = least(&mut || depthwise.forward(weight, &case.x, &mut y, n, |_, _| {}));
            let slow = least(&mut || grouped.forward(weight, &case.x, &mut y, n, |_| {}));
            let fast_back = least(&mut || {
                depthwise.backward(weight, &case.x, &case.dy, n, &mut dweight, Some(&mut dx));
            });
            let slow_back =
                least(&mut || grouped.backward(weight, &case.x, &case.dy, n, &mut dweight, Some(&mut dx)));
            eprintln!(
                "{image:?} {kernel}/{stride}: forward {fast:.2} ms, by groups {slow:.2}; backward {fast_back:.2}, {slow_back:.2}"
            );
        }
    }
}
