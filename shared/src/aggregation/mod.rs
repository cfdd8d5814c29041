//! Aggregation: exact weighted sums, and the weights that go into them.

mod exact_sum;
mod weights;

pub use exact_sum::{EmptySum, ExactSum, Scale};
pub use weights::Weights;
