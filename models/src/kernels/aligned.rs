//! Buffers aligned to cache lines.

/// Values in a vector of AVX-512 and in a cache line.
const LINE: usize = 16;

/// A scratch buffer that begins at a cache line: loading a vector that crosses two lines takes twice as long. (The allocator
/// puts large blocks 16 bytes after the start of a page.)
#[derive(Debug, Default)]
pub(super) struct Aligned {
    values: Vec<f32>,
    first: usize,
    length: usize,
}

impl Aligned {
    /// Makes room for at least `length` values. The old values are lost if the buffer has to grow.
    pub(super) fn prepare(&mut self, length: usize) {
        if length > self.length {
            self.values = vec![0.0; length + LINE];
            // Without an offset the buffer is unaligned, and only slower.
            self.first = self.values.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
            self.length = length;
        }
    }

    /// The first values, for which it makes room.
    pub(super) fn first(&mut self, length: usize) -> &mut [f32] {
        self.prepare(length);
        &mut self.get_mut()[..length]
    }

    pub(super) fn get(&self) -> &[f32] {
        &self.values[self.first..][..self.length]
    }

    pub(super) fn get_mut(&mut self) -> &mut [f32] {
        &mut self.values[self.first..][..self.length]
    }
}
