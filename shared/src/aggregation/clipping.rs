//! Norm clipping.
//!
//! Sun, Kairouz, Suresh, McMahan: *Can You Really Backdoor Federated Learning?* (arXiv 1911.07963), section 4, norm
//! thresholding:
//!
//! ```text
//! D = sum of p_k D_k min(1, M / ||D_k||)
//! ```
//!
//! No client moves the model further than the bound M, and no update is kept: each is clipped when it comes.

use models::params::ParamSet;

use super::Template;

/// The bound M, for updates shaped like a template: the norm is of all parameters together. Statistics of normalisation layers
/// are neither part of it nor clipped: they are no step, and their magnitudes are those of the data.
#[derive(Clone, Copy, Debug)]
pub struct Clip<'a> {
    /// M.
    pub bound: f64,
    /// Names and shapes of the updates.
    pub template: &'a Template,
}

impl Clip<'_> {
    /// `min(1, M / ||D_k||)`, which is 1 of updates within the bound alone: of two different numbers no quotient is rounded to 1.
    ///
    /// # Panics
    /// If the update does not fit the template: it is checked before it is folded.
    pub(super) fn factor(&self, update: &ParamSet) -> f64 {
        let values = |name| update.get(name).expect("layout is checked before folding").values();
        let square = |value: &f32| f64::from(*value) * f64::from(*value);
        let clipped = self.template.iter().filter(|(name, _)| self.clips(name));
        let norm = clipped.flat_map(|(name, _)| values(name)).map(square).sum::<f64>().sqrt();
        if norm > self.bound { self.bound / norm } else { 1.0 }
    }

    /// Whether this tensor is clipped.
    pub(super) fn clips(&self, tensor: &str) -> bool {
        !self.template.is_buffer(tensor)
    }
}
