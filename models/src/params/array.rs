//! One tensor in host memory.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// A dense row-major tensor of `f32` in host memory.
///
/// The number of values always equals the product of the shape; the fields are private to keep it so. A shape of `[]`
/// is a scalar with one value, and a shape with a zero in it has no values.
///
/// Clones share the values until one of them changes them. So does an array whose values lie in a message
/// ([`codec::from_shared`](super::codec::from_shared)): it reads them there, keeps the whole message for that, and takes them
/// into a memory of its own when it changes them.
#[derive(Clone)]
pub struct Array {
    shape: Vec<usize>,
    values: Values,
}

/// Where the values are.
#[derive(Clone)]
enum Values {
    /// In a memory that is this array's and its clones' alone.
    Own(Arc<Vec<f32>>),
    /// In a message, as bytes that can be read as `f32` where they are.
    Lent(Bytes),
}

/// A shape and a number of values that do not belong together: a mistake of the code that built the array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an array of shape {shape:?} cannot hold {values} values; give as many values as the product of the shape"
)]
pub struct ShapeError {
    /// The shape asked for.
    pub shape: Vec<usize>,
    /// The number of values that came with it.
    pub values: usize,
}

impl Array {
    /// An array of this shape over these values, in row-major order.
    ///
    /// # Errors
    /// [`ShapeError`] if the product of the shape is not the number of values, or overflows.
    pub fn new(shape: impl Into<Vec<usize>>, values: Vec<f32>) -> Result<Self, ShapeError> {
        let shape = shape.into();
        if element_count(&shape) == Some(values.len()) {
            Ok(Self { shape, values: Values::Own(Arc::new(values)) })
        } else {
            Err(ShapeError { shape, values: values.len() })
        }
    }

    /// An array of this shape filled with zeros.
    ///
    /// # Panics
    /// If the product of the shape overflows `usize`, like `vec!` does for an impossible length. Check shapes that come
    /// from outside with [`element_count`] first.
    #[must_use]
    pub fn zeros(shape: impl Into<Vec<usize>>) -> Self {
        let shape = shape.into();
        let count = element_count(&shape).expect("the caller gives a shape that fits into memory");
        Self { shape, values: Values::Own(Arc::new(vec![0.0; count])) }
    }

    /// An array over little-endian values that stay where they are; `None` if they cannot be read there, because they are not
    /// aligned or this machine has another order of bytes.
    pub(super) fn lent(shape: &[usize], bytes: Bytes) -> Option<Self> {
        let values =
            bytemuck::try_cast_slice::<u8, f32>(&bytes).ok().filter(|_| cfg!(target_endian = "little"))?;
        (element_count(shape) == Some(values.len()))
            .then(|| Self { shape: shape.to_vec(), values: Values::Lent(bytes) })
    }

    /// The extent of each dimension, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The values in row-major order.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        match &self.values {
            Values::Own(values) => values,
            // They could be when the array was made, and memory that is shared does not move.
            Values::Lent(bytes) => bytemuck::cast_slice(bytes),
        }
    }

    /// The values in row-major order, to be changed in place; copied first if a clone or a message shares them.
    pub fn values_mut(&mut self) -> &mut [f32] {
        if let Values::Lent(bytes) = &self.values {
            self.values = Values::Own(Arc::new(bytemuck::cast_slice(bytes).to_vec()));
        }
        match &mut self.values {
            Values::Own(values) => Arc::make_mut(values).as_mut_slice(),
            Values::Lent(_) => unreachable!("they were taken into a memory of their own"),
        }
    }

    /// Becomes `other`: its values are copied into this array's memory if they fit and it is not shared, and shared otherwise.
    pub(crate) fn become_like(&mut self, other: &Self) {
        if self.shape == other.shape
            && let Values::Own(own) = &mut self.values
            && let Some(own) = Arc::get_mut(own)
        {
            own.copy_from_slice(other.values());
        } else {
            self.clone_from(other);
        }
    }

    /// Replaces each value by `f(own, other's)`; in a memory of its own if a clone or a message shares this one. The shapes are
    /// the same.
    pub(super) fn combine(&mut self, other: &Self, f: impl Fn(f32, f32) -> f32) {
        debug_assert_eq!(self.shape, other.shape);
        if let Values::Own(own) = &mut self.values
            && let Some(own) = Arc::get_mut(own)
        {
            for (own, &other) in own.iter_mut().zip(other.values()) {
                *own = f(*own, other);
            }
        } else {
            let pairs = self.values().iter().zip(other.values());
            self.values = Values::Own(Arc::new(pairs.map(|(&own, &other)| f(own, other)).collect()));
        }
    }

    /// The values as they lie in memory, without a copy: what they are in little-endian order, on a machine of that order.
    pub(super) fn memory(&self) -> Bytes {
        match &self.values {
            Values::Own(values) => Bytes::from_owner(Owned(values.clone())),
            Values::Lent(bytes) => bytes.clone(),
        }
    }

    /// The number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values().len()
    }

    /// Whether there are no values, which means that the shape holds a zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values().is_empty()
    }

    /// Gives the values up, in row-major order; a copy of them if a clone or a message shares them.
    #[must_use]
    pub fn into_values(self) -> Vec<f32> {
        match self.values {
            Values::Own(values) => Arc::unwrap_or_clone(values),
            Values::Lent(bytes) => bytemuck::cast_slice(&bytes).to_vec(),
        }
    }
}

/// Values that are lent as bytes.
struct Owned(Arc<Vec<f32>>);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// Equal shapes and equal values, wherever these are.
impl PartialEq for Array {
    fn eq(&self, other: &Self) -> bool {
        self.shape == other.shape && self.values() == other.values()
    }
}

/// The shape alone: millions of values are not readable.
impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array{:?}", self.shape)
    }
}

/// The number of values in a tensor of this shape, or `None` if that overflows `usize`.
#[must_use]
pub fn element_count(shape: &[usize]) -> Option<usize> {
    // A zero anywhere makes the count zero, even if the other dimensions would overflow.
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_decides_the_number_of_values() {
        assert_eq!(Array::new([2, 3], vec![0.0; 6]).map(|a| a.len()), Ok(6));
        assert_eq!(Array::new([], vec![1.0]).map(|a| a.len()), Ok(1));
        assert_eq!(Array::new([0, 3], vec![]).map(|a| a.len()), Ok(0));
        assert_eq!(Array::new([2, 3], vec![0.0; 5]), Err(ShapeError { shape: vec![2, 3], values: 5 }));
        assert_eq!(Array::new([], vec![]), Err(ShapeError { shape: vec![], values: 0 }));
    }

    #[test]
    fn an_overflowing_shape_is_an_error_and_not_a_wrap() {
        // 2^63 * 2 wraps to zero, which would match an empty vector.
        let shape = [1usize << (usize::BITS - 1), 2];
        assert_eq!(element_count(&shape), None);
        assert!(Array::new(shape, vec![]).is_err());
        assert_eq!(element_count(&[usize::MAX, usize::MAX, 0]), Some(0));
    }

    #[test]
    fn values_in_a_message_are_read_there_and_never_changed_there() {
        let sent = [1.5f32, -2.0, 0.25];
        let message = Bytes::from_owner(sent.map(f32::to_le_bytes).concat());
        if !cfg!(target_endian = "little") || !message.as_ptr().addr().is_multiple_of(align_of::<f32>()) {
            return;
        }
        let lent = Array::lent(&[3], message.clone()).expect("as many as the shape says");
        assert_eq!(lent.values(), sent);
        assert_eq!(lent.values().as_ptr().addr(), message.as_ptr().addr());
        assert_eq!(lent, Array::new([3], sent.to_vec()).unwrap());
        assert_eq!((lent.len(), lent.is_empty()), (3, false));
        let (mut changed, mut combined) = (lent.clone(), lent.clone());
        changed.values_mut()[1] = 7.0;
        combined.combine(&lent, |own, other| own + other);
        assert_eq!((changed.values(), combined.values()), (&[1.5, 7.0, 0.25][..], &[3.0, -4.0, 0.5][..]));
        assert_eq!(lent.values(), sent);
        assert_eq!(lent.into_values(), sent);
        assert!(Array::lent(&[2], message.clone()).is_none());
        assert!(Array::lent(&[2], message.slice(1..9)).is_none(), "not aligned");
        assert!(Array::lent(&[2], message.slice(0..9)).is_none(), "not whole");
    }

    #[test]
    fn an_array_that_becomes_another_leaves_its_clones_alone() {
        let other = Array::new([2], vec![3.0, 4.0]).unwrap();
        let mut own = Array::zeros([2]);
        let memory = own.values().as_ptr();
        own.become_like(&other);
        assert_eq!((&own, own.values().as_ptr()), (&other, memory));
        let clone = own.clone();
        own.become_like(&Array::zeros([2]));
        assert_eq!((own.values(), clone.values()), (&[0.0; 2][..], &[3.0, 4.0][..]));
        own.become_like(&Array::zeros([1, 2]));
        assert_eq!(own.shape(), [1, 2]);
    }

    #[test]
    fn debug_output_is_short() {
        assert_eq!(format!("{:?}", Array::zeros([1000, 1000])), "Array[1000, 1000]");
    }
}
