//! Devices that networks run on.

use candle_core::Device;

use crate::error::ModelError;

/// A processor to run networks on: the CPU or, with the `cuda` feature, the first CUDA device.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The device that candle runs networks on; `None` for the crate's own engine on the CPU.
    candle: Option<Device>,
}

impl Backend {
    /// The CPU.
    #[must_use]
    pub fn cpu() -> Self {
        Self { candle: None }
    }

    /// The first CUDA device.
    ///
    /// # Errors
    /// [`ModelError::Candle`] if the crate was built without the `cuda` feature or no such device answers.
    pub fn cuda() -> Result<Self, ModelError> {
        let device = Device::new_cuda(0).map_err(ModelError::candle("opening the CUDA device"))?;
        Ok(Self { candle: Some(device) })
    }

    /// The first CUDA device if the program was built for CUDA and the device answers, else the CPU. In a program built for
    /// CUDA, the CPU comes with the reason why no device answered.
    #[must_use]
    pub fn best() -> (Self, Option<ModelError>) {
        if !cfg!(feature = "cuda") {
            return (Self::cpu(), None);
        }
        match Self::cuda() {
            Ok(cuda) => (cuda, None),
            Err(error) => (Self::cpu(), Some(error)),
        }
    }

    /// `cpu` or `cuda`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        if self.candle.as_ref().is_some_and(Device::is_cuda) { "cuda" } else { "cpu" }
    }

    pub(crate) fn candle_device(&self) -> Option<&Device> {
        self.candle.as_ref()
    }

    /// Candle's engine on the CPU: slow, but a second implementation of every layer for tests.
    #[cfg(test)]
    pub(crate) fn candle_on_cpu() -> Self {
        Self { candle: Some(Device::Cpu) }
    }
}
