//! Max pooling.

use super::Windows;
use crate::kernels::batch_groups::for_groups;
use crate::kernels::copy::copy_row;
use crate::kernels::vectorised::vectorised;

/// Instead of the place of a maximum: the rectifier set it to 0, and it gets no gradient.
const NO_MAXIMUM: u16 = u16::MAX;
/// The largest size of a window of [`MaxPool`], so that every place in it is below [`NO_MAXIMUM`]. Architectures with larger
/// windows are refused.
pub(crate) const MAX_WINDOW: usize = 255;

/// The maxima of windows, optionally rectified, `max(x, 0)`. Remembers the place of each maximum for the backward pass.
///
/// Among equal values the first one counts, in row-major order. NaN counts as the largest of all, so that it stays visible.
pub(crate) struct MaxPool {
    windows: Windows,
    rectify: bool,
    groups: Vec<Maxima>,
}

/// The places of the maxima of one group of images, and its scratch memory.
#[derive(Default)]
struct Maxima {
    /// The place of each maximum in its window, in row-major order.
    places: Vec<u16>,
    /// The upper and lower rows of windows, with room for some planes.
    upper: Vec<f32>,
    lower: Vec<f32>,
}

impl MaxPool {
    /// `None` for windows larger than [`MAX_WINDOW`].
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
                    if windows.size == 2 && windows.stride == 2 && !windows.overhangs() {
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
                    if windows.size == 2 && windows.stride == 2 && !windows.overhangs() {
                        group.back_by_pairs(&windows, dy, dx);
                    } else {
                        group.back_by_windows(&windows, dy, dx);
                    }
                },
            );
        });
    }
}

/// The larger of two values with its place; the second only if it is larger or NaN.
#[inline(always)]
fn larger((a, at_a): (f32, u16), (b, at_b): (f32, u16)) -> (f32, u16) {
    // No comparison with a NaN in `a` is true, so that it is kept.
    let second = (b > a) | b.is_nan();
    (if second { b } else { a }, if second { at_b } else { at_a })
}

#[inline(always)]
fn rectified((value, place): (f32, u16), rectify: bool) -> (f32, u16) {
    let kept = !rectify || value > 0.0;
    (if rectify && value < 0.0 { 0.0 } else { value }, if kept { place } else { NO_MAXIMUM })
}

impl Maxima {
    /// Adjacent windows of 2 x 2. The upper rows of all windows are copied into one buffer and the lower rows into another, so
    /// that the loop over windows is long even for the short rows of small images.
    #[inline(always)]
    fn by_pairs(&mut self, windows: &Windows, rectify: bool, x: &[f32], y: &mut [f32]) {
        let (height, width) = (windows.height, windows.width);
        let (row, pooled) = (2 * windows.columns(), windows.rows() * windows.columns());
        let planes = planes_per_block(windows);
        self.upper.resize(planes * 2 * pooled, 0.0);
        self.lower.resize(planes * 2 * pooled, 0.0);
        let outputs = y.chunks_mut(planes * pooled).zip(self.places.chunks_mut(planes * pooled));
        for (x, (y, places)) in x.chunks(planes * height * width).zip(outputs) {
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
        let planes = planes_per_block(windows);
        let inputs = dy.chunks(planes * pooled).zip(self.places.chunks(planes * pooled));
        for (dx, (dy, places)) in dx.chunks_mut(planes * height * width).zip(inputs) {
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
                let (row, column) = (window / columns, window % columns);
                let corner = windows.corner(row, column);
                // The rows and columns of a partial window that are inside the image.
                let high = size.min(windows.height - row * windows.stride);
                let wide = size.min(windows.width - column * windows.stride);
                let mut maximum = (x[corner], 0);
                for down in 0..high {
                    let row = &x[corner + down * windows.width..][..wide];
                    for (at, &value) in ((down * size) as u16..).zip(row) {
                        maximum = larger(maximum, (value, at));
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
                if place != NO_MAXIMUM {
                    let corner = windows.corner(window / columns, window % columns);
                    let place = usize::from(place);
                    dx[corner + place / size * windows.width + place % size] += dy;
                }
            }
        }
    }
}

// Separate functions, so that the compiler knows that their arguments do not overlap and vectorises them.

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

/// Planes processed at a time: enough for long loops, few enough for the first-level cache.
fn planes_per_block(windows: &Windows) -> usize {
    (2048 / (windows.height * windows.width)).max(1)
}
