//! Where networks run.

use candle_core::Device;

use crate::error::ModelError;

/// A processor to run networks on: the CPU or, with the `cuda` feature, the first CUDA device.
#[derive(Clone, Debug)]
pub struct Backend(Device);

impl Backend {
    /// The CPU.
    #[must_use]
    pub fn cpu() -> Self {
        Self(Device::Cpu)
    }

    /// The first CUDA device.
    ///
    /// # Errors
    /// [`ModelError::Candle`] if the crate was built without the `cuda` feature or no such device answers.
    pub fn cuda() -> Result<Self, ModelError> {
        Device::new_cuda(0).map(Self).map_err(ModelError::candle("opening the CUDA device"))
    }

    /// The first CUDA device if the crate was built with the `cuda` feature and one answers, the CPU otherwise. Show
    /// [`Backend::name`] to say which it became.
    #[must_use]
    pub fn best() -> Self {
        Self::cuda().unwrap_or_else(|_| Self::cpu())
    }

    /// `cpu` or `cuda`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        if self.0.is_cuda() { "cuda" } else { "cpu" }
    }

    pub(crate) fn device(&self) -> &Device {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_always_a_backend() {
        assert_eq!(Backend::cpu().name(), "cpu");
        let best = Backend::best().name();
        assert_eq!(best, if Backend::cuda().is_ok() { "cuda" } else { "cpu" });
    }
}
