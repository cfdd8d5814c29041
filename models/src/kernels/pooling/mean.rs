//! Average pooling.

use std::ops::Range;

use super::Windows;
use crate::kernels::batch_groups::for_groups;
use crate::kernels::vectorised::vectorised;

/// The means of windows.
pub(crate) struct AveragePool {
    windows: Windows,
    /// Groups need no scratch memory.
    groups: Vec<()>,
}

impl AveragePool {
    pub(crate) fn new(windows: Windows) -> Self {
        assert!(windows.size > 0 && windows.stride > 0, "windows have pixels and differ");
        assert!(!windows.partial, "means are of whole windows");
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
