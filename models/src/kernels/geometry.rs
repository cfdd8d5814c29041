//! Sizes of convolutions.

/// The sizes of a convolution of images `[channels, height, width]` with kernels `[channels, kernel, kernel]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) channels: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) padding: usize,
    /// Rows and columns produced.
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Geometry {
    /// The geometry for images of this shape, `[channels, height, width]`, which the kernel fits into.
    pub(crate) fn of(shape: &[usize], kernel: usize, stride: usize, padding: usize) -> Self {
        let &[channels, height, width] = shape else {
            panic!("the architecture was checked: images have three dimensions");
        };
        let extent = |input: usize| (input + 2 * padding - kernel) / stride + 1;
        let (rows, columns) = (extent(height), extent(width));
        Self { channels, height, width, kernel, stride, padding, rows, columns }
    }

    /// Values of one image.
    pub(crate) fn image(&self) -> usize {
        self.channels * self.height * self.width
    }

    /// Inputs that one output sums over: the height of the im2col matrix.
    pub(crate) fn taps(&self) -> usize {
        self.channels * self.kernel * self.kernel
    }

    /// Outputs per image and output channel: the width of the im2col matrix.
    pub(crate) fn places(&self) -> usize {
        self.rows * self.columns
    }
}
