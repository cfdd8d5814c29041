//! The sizes of a convolution.

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
    /// The geometry for images of a shape, `[channels, height, width]`, that the kernel fits into.
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

    /// Inputs that one output sums over: the height of a matrix of all windows as columns.
    pub(crate) fn taps(&self) -> usize {
        self.channels * self.kernel * self.kernel
    }

    /// Outputs per image and kernel: the width of that matrix.
    pub(crate) fn places(&self) -> usize {
        self.rows * self.columns
    }
}
