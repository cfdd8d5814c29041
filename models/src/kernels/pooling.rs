//! Pooling of images by windows without padding; rows and columns that fill no window are left out, as in `PyTorch`.

use std::ops::Range;

use pulp::Arch;

use super::groups::{for_groups, groups};

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
/// Windows have fewer pixels than [`NOWHERE`].
const LARGEST: usize = 255;

/// The maxima of windows, which remembers where they were; if wanted, rectified: `max(x, 0)`.
///
/// Among equals the first counts, by rows. NaN counts as the largest of all and does not hide.
pub(crate) struct MaxPool {
    arch: Arch,
    windows: Windows,
    rectify: bool,
    groups: Vec<Maxima>,
}

/// What one group of images remembers and works with.
#[derive(Default)]
struct Maxima {
    /// The place of each maximum in its window, by rows.
    places: Vec<u16>,
    /// The larger of each pair of neighbours in a plane.
    pairs: Vec<f32>,
    /// Which of the pair it is.
    sides: Vec<u16>,
}

impl MaxPool {
    /// None for windows of more than 255 x 255.
    pub(crate) fn new(windows: Windows, rectify: bool) -> Option<Self> {
        assert!(windows.size > 0 && windows.stride > 0, "windows have pixels and differ");
        (windows.size <= LARGEST).then(|| Self { arch: Arch::new(), windows, rectify, groups: Vec::new() })
    }

    /// `y` `[n, channels, rows, columns]` from `x` `[n, channels, height, width]`.
    pub(crate) fn forward(&mut self, x: &[f32], y: &mut [f32], n: usize) {
        let Self { arch, windows, rectify, .. } = *self;
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
            arch.dispatch(
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
        let Self { arch, windows, .. } = *self;
        let (image, pooled) = (windows.image(), windows.pooled());
        assert!(dx.len() == n * image && dy.len() == n * pooled);
        if pooled == 0 {
            dx.fill(0.0);
            return;
        }
        let count = windows.groups(n);
        for_groups(&mut self.groups[..count], n, dx, image, &|group, images, dx| {
            let dy = &dy[images.start * pooled..images.end * pooled];
            arch.dispatch(
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
    let kept = !rectify | (value > 0.0);
    (if rectify & (value < 0.0) { 0.0 } else { value }, if kept { place } else { NOWHERE })
}

impl Maxima {
    /// Windows of 2 x 2 side by side: first neighbours in rows, then in columns, which keeps the order.
    #[inline(always)]
    fn by_pairs(&mut self, windows: &Windows, rectify: bool, x: &[f32], y: &mut [f32]) {
        let (rows, columns, width) = (windows.rows(), windows.columns(), windows.width);
        self.pairs.resize(2 * rows * columns, 0.0);
        self.sides.resize(2 * rows * columns, 0);
        let (pairs, sides) = (&mut self.pairs[..], &mut self.sides[..]);
        let outputs = y.chunks_exact_mut(rows * columns).zip(self.places.chunks_exact_mut(rows * columns));
        for (x, (y, places)) in x.chunks_exact(windows.height * width).zip(outputs) {
            if width == 2 * columns {
                pair_maxima(x, pairs, sides);
            } else {
                let to = pairs.chunks_exact_mut(columns).zip(sides.chunks_exact_mut(columns));
                for (x, (pairs, sides)) in x.chunks_exact(width).zip(to) {
                    pair_maxima(x, pairs, sides);
                }
            }
            let from = pairs.chunks_exact(2 * columns).zip(sides.chunks_exact(2 * columns));
            let to = y.chunks_exact_mut(columns).zip(places.chunks_exact_mut(columns));
            for ((pairs, sides), (y, places)) in from.zip(to) {
                let (top, bottom) = pairs.split_at(columns);
                let (top_sides, bottom_sides) = sides.split_at(columns);
                let upper = top.iter().zip(top_sides);
                let lower = bottom.iter().zip(bottom_sides);
                for (((a, s), (b, t)), (y, place)) in upper.zip(lower).zip(y.iter_mut().zip(places)) {
                    (*y, *place) = rectified(larger((*a, *s), (*b, *t + 2)), rectify);
                }
            }
        }
    }

    #[inline(always)]
    fn back_by_pairs(&self, windows: &Windows, dy: &[f32], dx: &mut [f32]) {
        let (rows, columns, width) = (windows.rows(), windows.columns(), windows.width);
        let inputs = dy.chunks_exact(rows * columns).zip(self.places.chunks_exact(rows * columns));
        for (dx, (dy, places)) in dx.chunks_exact_mut(windows.height * width).zip(inputs) {
            let (pooled, rest) = dx.split_at_mut(2 * rows * width);
            rest.fill(0.0);
            let from = dy.chunks_exact(columns).zip(places.chunks_exact(columns));
            for (dx, (dy, places)) in pooled.chunks_exact_mut(2 * width).zip(from) {
                let (top, bottom) = dx.split_at_mut(width);
                spread(dy, places, 0, top);
                spread(dy, places, 2, bottom);
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

/// The larger of each pair of values, and which of the two it is.
#[inline(always)]
fn pair_maxima(x: &[f32], maxima: &mut [f32], sides: &mut [u16]) {
    for (&[a, b], (maximum, side)) in x.as_chunks::<2>().0.iter().zip(maxima.iter_mut().zip(sides)) {
        (*maximum, *side) = larger((a, 0), (b, 1));
    }
}

/// One row of the gradient: each window has the places `first` and `first + 1` in it.
#[inline(always)]
fn spread(dy: &[f32], places: &[u16], first: u16, row: &mut [f32]) {
    let (pairs, _) = row.as_chunks_mut::<2>();
    for (pair, (&dy, &place)) in pairs.iter_mut().zip(dy.iter().zip(places)) {
        *pair = [if place == first { dy } else { 0.0 }, if place == first + 1 { dy } else { 0.0 }];
    }
    row[2 * dy.len()..].fill(0.0);
}

/// The means of windows.
pub(crate) struct AveragePool {
    arch: Arch,
    windows: Windows,
    /// Groups have nothing of their own.
    groups: Vec<()>,
}

impl AveragePool {
    pub(crate) fn new(windows: Windows) -> Self {
        assert!(windows.size > 0 && windows.stride > 0, "windows have pixels and differ");
        Self { arch: Arch::new(), windows, groups: Vec::new() }
    }

    /// `y` `[n, channels, rows, columns]` from `x` `[n, channels, height, width]`.
    pub(crate) fn forward(&mut self, x: &[f32], y: &mut [f32], n: usize) {
        let Self { arch, windows, .. } = *self;
        let (image, pooled) = (windows.image(), windows.pooled());
        assert!(x.len() == n * image && y.len() == n * pooled);
        if pooled == 0 {
            return;
        }
        self.groups.resize(windows.groups(n), ());
        for_groups(&mut self.groups, n, y, pooled, &|(), images: Range<usize>, y| {
            let x = &x[images.start * image..images.end * image];
            arch.dispatch(
                #[inline(always)]
                || means(&windows, x, y),
            );
        });
    }

    /// `dx` from the gradient `dy` of the output.
    pub(crate) fn backward(&mut self, dy: &[f32], dx: &mut [f32], n: usize) {
        let Self { arch, windows, .. } = *self;
        let (image, pooled) = (windows.image(), windows.pooled());
        assert!(dx.len() == n * image && dy.len() == n * pooled);
        if pooled == 0 {
            dx.fill(0.0);
            return;
        }
        self.groups.resize(windows.groups(n), ());
        for_groups(&mut self.groups, n, dx, image, &|(), images: Range<usize>, dx| {
            let dy = &dy[images.start * pooled..images.end * pooled];
            arch.dispatch(
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
