//! Pooling of images by windows without padding; rows and columns that fill no window are left out, as in `PyTorch`.

use std::ops::Range;

use super::groups::{for_groups, groups};
use super::rows::copy_row;
use super::vectorised::vectorised;

/// The sizes of a pooling of images `[channels, height, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
    pub(crate) channels: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) size: usize,
    pub(crate) stride: usize,
}

impl Windows {
    /// Rows of windows; none if none fits.
    pub(crate) fn rows(&self) -> usize {
        self.along(self.height)
    }

    /// Columns of windows; none if none fits.
    pub(crate) fn columns(&self) -> usize {
        self.along(self.width)
    }

    fn along(&self, input: usize) -> usize {
        input.checked_sub(self.size).map_or(0, |room| room / self.stride + 1)
    }

    /// Values of one image.
    pub(crate) fn image(&self) -> usize {
        self.channels * self.height * self.width
    }

    /// Values that one image is pooled to.
    pub(crate) fn pooled(&self) -> usize {
        self.channels * self.rows() * self.columns()
    }

    /// The groups for `n` images: a value takes about as long as ten multiplications of a convolution.
    fn groups(&self, n: usize) -> usize {
        groups(n, 10 * self.image())
    }

    /// The index in a plane of the first pixel of a window.
    fn corner(&self, row: usize, column: usize) -> usize {
        (row * self.width + column) * self.stride
    }
}

/// In place of the place of a maximum: the rectifier lets nothing through.
const NOWHERE: u16 = u16::MAX;
/// The most rows and columns of a window of [`MaxPool`]: it has fewer pixels than [`NOWHERE`]. Architectures with larger
/// ones are refused.
pub(crate) const MAX_WINDOW: usize = 255;

/// The maxima of windows, which remembers where they were; if wanted, rectified: `max(x, 0)`.
///
/// Among equals the first counts, by rows. NaN counts as the largest of all and does not hide.
pub(crate) struct MaxPool {
    windows: Windows,
    rectify: bool,
    groups: Vec<Maxima>,
}

/// What one group of images remembers and works with.
#[derive(Default)]
struct Maxima {
    /// The place of each maximum in its window, by rows.
    places: Vec<u16>,
    /// The upper and lower rows of windows, with room for some planes.
    upper: Vec<f32>,
    lower: Vec<f32>,
}

impl MaxPool {
    /// None for windows of more than 255 x 255.
    pub(crate) fn new(windows: Windows, rectify: bool) -> Option<Self> {
        assert!(windows.size > 0 && windows.stride > 0, "windows have pixels and differ");
        (windows.size <= MAX_WINDOW).then(|| Self { windows, rectify, groups: Vec::new() })
    }

    /// `y` `[n, channels, rows, columns]` from `x` `[n, channels, height, width]`.
    pub(crate) fn forward(&mut self, x: &[f32], y: &mut [f32], n: usize) {
        let Self { windows, rectify, .. } = *self;
        let (image, pooled) = (windows.image(), windows.pooled());
        assert!(x.len() == n * image && y.len() == n * pooled);
        if pooled == 0 {
            return;
        }
        let count = windows.groups(n);
        if self.groups.len() < count {
            self.groups.resize_with(count, Maxima::default);
        }
        for_groups(&mut self.groups[..count], n, y, pooled, &|group, images, y| {
            group.places.resize(y.len(), 0);
            let x = &x[images.start * image..images.end * image];
            vectorised(
                #[inline(always)]
                || {
                    if windows.size == 2 && windows.stride == 2 {
                        group.by_pairs(&windows, rectify, x, y);
                    } else {
                        group.by_windows(&windows, rectify, x, y);
                    }
                },
            );
        });
    }

    /// `dx` from the gradient `dy` of the output of the last call of [`MaxPool::forward`], which had the same `n`.
    pub(crate) fn backward(&mut self, dy: &[f32], dx: &mut [f32], n: usize) {
        let windows = self.windows;
        let (image, pooled) = (windows.image(), windows.pooled());
        assert!(dx.len() == n * image && dy.len() == n * pooled);
        if pooled == 0 {
            dx.fill(0.0);
            return;
        }
        let count = windows.groups(n);
        for_groups(&mut self.groups[..count], n, dx, image, &|group, images, dx| {
            let dy = &dy[images.start * pooled..images.end * pooled];
            vectorised(
                #[inline(always)]
                || {
                    if windows.size == 2 && windows.stride == 2 {
                        group.back_by_pairs(&windows, dy, dx);
                    } else {
                        group.back_by_windows(&windows, dy, dx);
                    }
                },
            );
        });
    }
}

/// The larger of two values with its place: the second only if it is larger or NaN.
#[inline(always)]
fn larger((a, at_a): (f32, u16), (b, at_b): (f32, u16)) -> (f32, u16) {
    // The negation makes NaN count as larger, and comes first, so that NaN is not replaced either.
    let second = (b > a) | b.is_nan();
    (if second { b } else { a }, if second { at_b } else { at_a })
}

#[inline(always)]
fn rectified((value, place): (f32, u16), rectify: bool) -> (f32, u16) {
    let kept = !rectify || value > 0.0;
    (if rectify && value < 0.0 { 0.0 } else { value }, if kept { place } else { NOWHERE })
}

impl Maxima {
    /// Windows of 2 x 2 side by side. The upper rows of all windows are brought together, and the lower ones: then all
    /// windows are alike, and the short rows of small images take no time of their own.
    #[inline(always)]
    fn by_pairs(&mut self, windows: &Windows, rectify: bool, x: &[f32], y: &mut [f32]) {
        let (height, width) = (windows.height, windows.width);
        let (row, pooled) = (2 * windows.columns(), windows.rows() * windows.columns());
        let together = planes_together(windows);
        self.upper.resize(together * 2 * pooled, 0.0);
        self.lower.resize(together * 2 * pooled, 0.0);
        let outputs = y.chunks_mut(together * pooled).zip(self.places.chunks_mut(together * pooled));
        for (x, (y, places)) in x.chunks(together * height * width).zip(outputs) {
            let rows = x.chunks_exact(height * width).flat_map(|x| x.chunks_exact(2 * width));
            let to = self.upper.chunks_exact_mut(row).zip(self.lower.chunks_exact_mut(row));
            for (x, (upper, lower)) in rows.zip(to) {
                copy_row(&x[..row], upper);
                copy_row(&x[width..width + row], lower);
            }
            maxima(&self.upper, &self.lower, y, places, rectify);
        }
    }

    #[inline(always)]
    fn back_by_pairs(&mut self, windows: &Windows, dy: &[f32], dx: &mut [f32]) {
        let (height, width) = (windows.height, windows.width);
        let (row, pooled) = (2 * windows.columns(), windows.rows() * windows.columns());
        let together = planes_together(windows);
        let inputs = dy.chunks(together * pooled).zip(self.places.chunks(together * pooled));
        for (dx, (dy, places)) in dx.chunks_mut(together * height * width).zip(inputs) {
            back_from_maxima(dy, places, &mut self.upper, &mut self.lower);
            let mut from = self.upper.chunks_exact(row).zip(self.lower.chunks_exact(row));
            for plane in dx.chunks_exact_mut(height * width) {
                let mut rows = plane.chunks_exact_mut(2 * width);
                for (dx, (upper, lower)) in rows.by_ref().zip(from.by_ref()) {
                    copy_row(upper, &mut dx[..row]);
                    copy_row(lower, &mut dx[width..width + row]);
                    if row < width {
                        dx[row..width].fill(0.0);
                        dx[width + row..].fill(0.0);
                    }
                }
                rows.into_remainder().fill(0.0);
            }
        }
    }

    /// Windows of any size and stride.
    #[inline(always)]
    fn by_windows(&mut self, windows: &Windows, rectify: bool, x: &[f32], y: &mut [f32]) {
        let (rows, columns, size) = (windows.rows(), windows.columns(), windows.size);
        let outputs = y.chunks_exact_mut(rows * columns).zip(self.places.chunks_exact_mut(rows * columns));
        for (x, (y, places)) in x.chunks_exact(windows.height * windows.width).zip(outputs) {
            for (window, (y, place)) in y.iter_mut().zip(places).enumerate() {
                let corner = windows.corner(window / columns, window % columns);
                let mut maximum = (x[corner], 0);
                let mut at = 0;
                for down in 0..size {
                    for &value in &x[corner + down * windows.width..][..size] {
                        maximum = larger(maximum, (value, at));
                        at += 1;
                    }
                }
                (*y, *place) = rectified(maximum, rectify);
            }
        }
    }

    #[inline(always)]
    fn back_by_windows(&self, windows: &Windows, dy: &[f32], dx: &mut [f32]) {
        let (rows, columns, size) = (windows.rows(), windows.columns(), windows.size);
        dx.fill(0.0);
        let inputs = dy.chunks_exact(rows * columns).zip(self.places.chunks_exact(rows * columns));
        for (dx, (dy, places)) in dx.chunks_exact_mut(windows.height * windows.width).zip(inputs) {
            for (window, (dy, &place)) in dy.iter().zip(places).enumerate() {
                if place != NOWHERE {
                    let corner = windows.corner(window / columns, window % columns);
                    let place = usize::from(place);
                    dx[corner + place / size * windows.width + place % size] += dy;
                }
            }
        }
    }
}

// Functions of their own, since then the compiler knows that their arguments do not overlap, and takes vectors.

#[inline(always)]
fn maxima(upper: &[f32], lower: &[f32], y: &mut [f32], places: &mut [u16], rectify: bool) {
    let (upper, lower) = (upper.as_chunks::<2>().0, lower.as_chunks::<2>().0);
    for ((a, b), (y, place)) in upper.iter().zip(lower).zip(y.iter_mut().zip(places)) {
        let (upper, lower) = (larger((a[0], 0), (a[1], 1)), larger((b[0], 2), (b[1], 3)));
        (*y, *place) = rectified(larger(upper, lower), rectify);
    }
}

#[inline(always)]
fn back_from_maxima(dy: &[f32], places: &[u16], upper: &mut [f32], lower: &mut [f32]) {
    let (upper, lower) = (upper.as_chunks_mut::<2>().0, lower.as_chunks_mut::<2>().0);
    for ((a, b), (&dy, &place)) in upper.iter_mut().zip(lower).zip(dy.iter().zip(places)) {
        let at = |this: u16| if place == this { dy } else { 0.0 };
        *a = [at(0), at(1)];
        *b = [at(2), at(3)];
    }
}

/// Planes of images worked on at once: enough for long loops, few enough for the first cache.
fn planes_together(windows: &Windows) -> usize {
    (2048 / (windows.height * windows.width)).max(1)
}

/// The means of windows.
pub(crate) struct AveragePool {
    windows: Windows,
    /// Groups have nothing of their own.
    groups: Vec<()>,
}

impl AveragePool {
    pub(crate) fn new(windows: Windows) -> Self {
        assert!(windows.size > 0 && windows.stride > 0, "windows have pixels and differ");
        Self { windows, groups: Vec::new() }
    }

    /// `y` `[n, channels, rows, columns]` from `x` `[n, channels, height, width]`.
    pub(crate) fn forward(&mut self, x: &[f32], y: &mut [f32], n: usize) {
        let windows = self.windows;
        let (image, pooled) = (windows.image(), windows.pooled());
        assert!(x.len() == n * image && y.len() == n * pooled);
        if pooled == 0 {
            return;
        }
        self.groups.resize(windows.groups(n), ());
        for_groups(&mut self.groups, n, y, pooled, &|(), images: Range<usize>, y| {
            let x = &x[images.start * image..images.end * image];
            vectorised(
                #[inline(always)]
                || means(&windows, x, y),
            );
        });
    }

    /// `dx` from the gradient `dy` of the output.
    pub(crate) fn backward(&mut self, dy: &[f32], dx: &mut [f32], n: usize) {
        let windows = self.windows;
        let (image, pooled) = (windows.image(), windows.pooled());
        assert!(dx.len() == n * image && dy.len() == n * pooled);
        if pooled == 0 {
            dx.fill(0.0);
            return;
        }
        self.groups.resize(windows.groups(n), ());
        for_groups(&mut self.groups, n, dx, image, &|(), images: Range<usize>, dx| {
            let dy = &dy[images.start * pooled..images.end * pooled];
            vectorised(
                #[inline(always)]
                || back_from_means(&windows, dy, dx),
            );
        });
    }
}

#[inline(always)]
fn means(windows: &Windows, x: &[f32], y: &mut [f32]) {
    let (rows, columns, size) = (windows.rows(), windows.columns(), windows.size);
    let share = 1.0 / (size * size) as f32;
    let planes = x.chunks_exact(windows.height * windows.width).zip(y.chunks_exact_mut(rows * columns));
    for (x, y) in planes {
        for (window, y) in y.iter_mut().enumerate() {
            let corner = windows.corner(window / columns, window % columns);
            let rows = (0..size).map(|down| x[corner + down * windows.width..][..size].iter().sum::<f32>());
            *y = rows.sum::<f32>() * share;
        }
    }
}

#[inline(always)]
fn back_from_means(windows: &Windows, dy: &[f32], dx: &mut [f32]) {
    let (rows, columns, size) = (windows.rows(), windows.columns(), windows.size);
    let share = 1.0 / (size * size) as f32;
    dx.fill(0.0);
    let planes = dx.chunks_exact_mut(windows.height * windows.width).zip(dy.chunks_exact(rows * columns));
    for (dx, dy) in planes {
        for (window, dy) in dy.iter().enumerate() {
            let corner = windows.corner(window / columns, window % columns);
            for down in 0..size {
                dx[corner + down * windows.width..][..size].iter_mut().for_each(|dx| *dx += dy * share);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernels::reference::noise;

    fn windows() -> impl Strategy<Value = Windows> {
        (1..4usize, 1..14usize, 1..40usize, 1..5usize, 1..5usize).prop_map(
            |(channels, height, width, size, stride)| Windows { channels, height, width, size, stride },
        )
    }

    /// The pixels of each window as indices of a batch, window after window.
    fn pixels(windows: &Windows, n: usize) -> Vec<Vec<usize>> {
        let mut all = Vec::new();
        for plane in 0..n * windows.channels {
            for row in 0..windows.rows() {
                for column in 0..windows.columns() {
                    let (top, left) = (row * windows.stride, column * windows.stride);
                    let inside = (0..windows.size * windows.size).map(|at| {
                        let (down, across) = (at / windows.size, at % windows.size);
                        (plane * windows.height + top + down) * windows.width + left + across
                    });
                    all.push(inside.collect());
                }
            }
        }
        all
    }

    /// Few different values, so that there are many equals, and some of both signs.
    fn steps(count: usize) -> Vec<f32> {
        noise(count, 5).iter().map(|value| (value * 4.0).round()).collect()
    }

    proptest! {
            #[test]
            fn maxima_are_those_of_the_definition(windows in windows(), rectify: bool, n in 1..4usize) {
                let x = steps(n * windows.image());
                let mut pool = MaxPool::new(windows, rectify).expect("small windows");
                let mut y = vec![f32::NAN; n * windows.pooled()];
                let mut dx = vec![f32::NAN; x.len()];
                // Twice, so that what remains of the first time would show.
                pool.forward(&noise(x.len(), 6), &mut y, n);
                pool.forward(&x, &mut y, n);
                let dy = noise(y.len(), 7);
                pool.backward(&dy, &mut dx, n);
                let mut expected = vec![0.0; x.len()];
                for (window, pixels) in pixels(&windows, n).iter().enumerate() {
                    let mut best = pixels[0];
                    for &pixel in pixels {
                        if x[pixel] > x[best] {
                            best = pixel;
                        }
                    }
                    let value = if rectify { x[best].max(0.0) } else { x[best] };
                    prop_assert_eq!(y[window], value);
                    if !rectify || value > 0.0 {
                        expected[best] += dy[window];
                    }
                }
                prop_assert_eq!(dx, expected);
            }

            #[test]
            fn means_are_those_of_the_definition(windows in windows(), n in 1..4usize) {
                let x = noise(n * windows.image(), 5);
                let mut pool = AveragePool::new(windows);
                let mut y = vec![f32::NAN; n * windows.pooled()];
                let mut dx = vec![f32::NAN; x.len()];
                pool.forward(&x, &mut y, n);
                let dy = noise(y.len(), 7);
                pool.backward(&dy, &mut dx, n);
                let mut expected = vec![0.0f32; x.len()];
                let area = (windows.size * windows.size) as f32;
                for (window, pixels) in pixels(&windows, n).iter().enumerate() {
                    let mean = pixels.iter().map(|pixel| x[*pixel]).sum::<f32>() / area;
                    prop_assert!((y[window] - mean).abs() < 1e-6);
                    for pixel in pixels {
    expected[*pixel] += dy[window] / area;
    }
                }
                for (value, expected) in dx.iter().zip(&expected) {
                    prop_assert!((value - expected).abs() < 1e-5);
                }
            }
        }

    #[test]
    fn nan_does_not_hide() {
        for (size, rectify) in [(2, false), (2, true), (3, false)] {
            let windows = Windows { channels: 1, height: size, width: size, size, stride: size };
            for place in 0..size * size {
                let mut x: Vec<f32> = (0..size * size).map(|value| value as f32).collect();
                x[place] = f32::NAN;
                let mut y = [0.0];
                MaxPool::new(windows, rectify).expect("small windows").forward(&x, &mut y, 1);
                assert!(y[0].is_nan(), "{size} {place}");
            }
        }
    }

    #[test]
    fn the_same_bits_for_any_number_of_threads() {
        let windows = Windows { channels: 8, height: 30, width: 30, size: 3, stride: 2 };
        let (n, x) = (33, noise(33 * windows.image(), 1));
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            pool.install(|| {
                let (mut y, mut dx) = (vec![0.0; n * windows.pooled()], x.clone());
                let mut maxima = MaxPool::new(windows, true).expect("small windows");
                maxima.forward(&x, &mut y, n);
                maxima.backward(&y, &mut dx, n);
                let mut means = AveragePool::new(windows);
                let (mut z, mut dz) = (y.clone(), x.clone());
                means.forward(&x, &mut z, n);
                means.backward(&z, &mut dz, n);
                [y, dx, z, dz]
            })
        };
        let one = with(1);
        assert_eq!(with(2), one);
        assert_eq!(with(3), one);
    }

    #[test]
    fn windows_that_do_not_fit_give_nothing() {
        let windows = Windows { channels: 1, height: 1, width: 3, size: 2, stride: 2 };
        let (mut y, mut dx) = ([], [f32::NAN; 3]);
        let mut pool = MaxPool::new(windows, false).expect("small windows");
        pool.forward(&[1.0, 2.0, 3.0], &mut y, 1);
        pool.backward(&y, &mut dx, 1);
        assert_eq!(dx, [0.0; 3]);
        assert!(MaxPool::new(Windows { size: 256, ..windows }, false).is_none());
    }
}
