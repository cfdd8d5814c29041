//! The processor to train on.

use models::Backend;

use super::arguments::Processor;
use super::error::{CliError, chain};

/// The requested processor. Without a request, the first CUDA device if this program was built for CUDA and one answers, or else
/// the CPU. Why no device answered is logged.
pub(super) fn backend(asked: Option<Processor>) -> Result<Backend, CliError> {
    match asked {
        Some(Processor::Cpu) => Ok(Backend::cpu()),
        Some(Processor::Cuda) => Backend::cuda().map_err(CliError::NoCuda),
        None => Ok(best()),
    }
}

/// As [`backend`] without a request.
pub(super) fn best() -> Backend {
    let (backend, unanswered) = Backend::best();
    if let Some(error) = unanswered {
        tracing::warn!("no CUDA device answers, so the CPU does the work: {}", chain(&error));
    }
    backend
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_cuda_device_the_cpu_does_the_work() {
        assert_eq!(best().name(), if Backend::cuda().is_ok() { "cuda" } else { "cpu" });
        assert_eq!(backend(Some(Processor::Cpu)).unwrap().name(), "cpu");
        assert_eq!(backend(Some(Processor::Cuda)).is_ok(), Backend::cuda().is_ok());
    }
}
