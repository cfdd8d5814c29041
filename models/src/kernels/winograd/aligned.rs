//! Values that begin at a cache line.

/// Values in a vector of AVX-512 and in a cache line.
const LINE: usize = 16;

/// Scratch that begins at a cache line: a vector that crosses two of them takes twice as long to load. (The
/// allocator puts large blocks 16 bytes after a page.)
#[derive(Debug, Default)]
pub(super) struct Aligned {
    values: Vec<f32>,
    first: usize,
    length: usize,
}

impl Aligned {
    /// Makes room for at least `length` values. What was there is lost if there is not enough of it.
    pub(super) fn prepare(&mut self, length: usize) {
        if length > self.length {
            self.values = vec![0.0; length + LINE];
            // An offset that cannot be found costs speed alone.
            self.first = self.values.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
            self.length = length;
        }
    }

    pub(super) fn get(&self) -> &[f32] {
        &self.values[self.first..][..self.length]
    }

    pub(super) fn get_mut(&mut self) -> &mut [f32] {
        &mut self.values[self.first..][..self.length]
    }
}
