//! Memory for the values between layers, which the next layers use again.

use std::ops::{Deref, DerefMut};

/// Buffers that no layer uses at the moment.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    free: Vec<Vec<f32>>,
}

/// Values between two layers. What it holds is undefined until it is overwritten.
#[derive(Debug)]
pub(super) struct Buffer {
    /// At least `length`, so that a buffer that shrinks and grows again is not filled again.
    memory: Vec<f32>,
    length: usize,
}

impl Buffers {
    /// A buffer of this length, to be given back.
    pub(super) fn take(&mut self, length: usize) -> Buffer {
        let long = |&index: &usize| self.free[index].len();
        // One that is long enough, but not by far: others need a much longer one. Else the longest of those to be extended.
        let fits = (0..self.free.len()).filter(|index| (length..=3 * length).contains(&long(index)));
        let short = (0..self.free.len()).filter(|index| long(index) < length);
        let best = fits.min_by_key(long).or_else(|| short.max_by_key(long));
        let mut memory = best.map(|index| self.free.swap_remove(index)).unwrap_or_default();
        if memory.len() < length {
            // What it held is of no use, so that it need not be copied.
            memory.clear();
            memory.reserve_exact(length);
            memory.resize(length, 0.0);
        }
        Buffer { memory, length }
    }

    pub(super) fn give_back(&mut self, buffer: Buffer) {
        self.free.push(buffer.memory);
    }

    /// The bytes that they take.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.free.iter().map(|memory| memory.capacity() * size_of::<f32>()).sum()
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.memory[..self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.memory[..self.length]
    }
}
