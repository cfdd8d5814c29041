//! Devices that networks run on.

#[cfg(any(test, feature = "cuda"))]
use candle_core::Device;

use crate::error::ModelError;
use crate::kernels::simd;

/// What runs networks: the CPU, the CPU with weights of 8 bits, or with the `cuda` feature the first CUDA device.
#[derive(Clone, Debug)]
pub struct Backend {
    pub(crate) kind: Kind,
}

/// The engine.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// The crate's own, on the CPU.
    Cpu,
    /// The one for predictions with 8-bit integers, on the CPU.
    Int8,
    /// Candle's, on this device.
    #[cfg(any(test, feature = "cuda"))]
    Candle(Device),
}

impl Backend {
    /// The CPU.
    #[must_use]
    pub fn cpu() -> Self {
        Self { kind: Kind::Cpu }
    }

    /// The CPU, with weights of 8 bits: for predictions alone, several times as fast where the CPU has instructions for it, in a
    /// fraction of the memory, and nearly as accurate.
    ///
    /// Every output of a convolution, linear layer or LSTM has a scale of its own. The values that flow into these layers are
    /// quantised by the range of each sample (of each position of a sequence), so that an answer does not depend on the batch that a
    /// sample comes in, and nothing is needed but the parameters. If a value of a sample is not finite, all outputs of the layer for
    /// it are NaN.
    ///
    /// A network on it takes passes in [`Mode::Evaluation`](crate::Mode::Evaluation) and gives their outputs: everything about
    /// training or parameters is refused with [`ModelError::Quantised`].
    #[must_use]
    pub fn int8() -> Self {
        Self { kind: Kind::Int8 }
    }

    /// The first CUDA device.
    ///
    /// # Errors
    /// [`ModelError::Candle`] if the crate was built without the `cuda` feature or no such device answers.
    #[cfg(feature = "cuda")]
    pub fn cuda() -> Result<Self, ModelError> {
        let device = Device::new_cuda(0).map_err(ModelError::candle("opening the CUDA device"))?;
        Ok(Self { kind: Kind::Candle(device) })
    }

    /// The first CUDA device: in this build, without the `cuda` feature, always an error.
    ///
    /// # Errors
    /// [`ModelError::Candle`], which says so.
    #[cfg(not(feature = "cuda"))]
    pub fn cuda() -> Result<Self, ModelError> {
        let source = "this program was built without CUDA".into();
        Err(ModelError::Candle { operation: "opening the CUDA device", source })
    }

    /// What computes, for people: `AVX2, AVX-512 or NEON`, `CUDA`. Between two of them, results differ in their last digits.
    #[must_use]
    pub fn arithmetic(&self) -> &'static str {
        match self.kind {
            Kind::Cpu | Kind::Int8 => simd::name(),
            #[cfg(any(test, feature = "cuda"))]
            Kind::Candle(_) => "CUDA",
        }
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

    /// The same if it is on the CPU, or else the CPU.
    #[must_use]
    pub fn on_cpu(&self) -> Self {
        if self.runs_candle() { Self::cpu() } else { self.clone() }
    }

    /// Whether candle runs networks, and not one of the crate's own engines.
    pub(crate) fn runs_candle(&self) -> bool {
        !matches!(self.kind, Kind::Cpu | Kind::Int8)
    }

    /// `cpu` or `cuda`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match &self.kind {
            #[cfg(any(test, feature = "cuda"))]
            Kind::Candle(device) if device.is_cuda() => "cuda",
            _ => "cpu",
        }
    }

    /// Candle's engine on the CPU: slow, but a second implementation of every layer for tests.
    #[cfg(test)]
    pub(crate) fn candle_on_cpu() -> Self {
        Self { kind: Kind::Candle(Device::Cpu) }
    }
}
