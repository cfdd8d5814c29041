//! The choice of a processor to compute on.

use std::num::NonZeroUsize;

use clap::ValueEnum;
use models::{Backend, ModelError};

use super::causes::causes;

/// A processor to compute on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Processor {
    /// On the processor's cores.
    Cpu,
    /// On the first CUDA device.
    Cuda,
}

/// No CUDA device answers, and one was asked for.
#[derive(Debug, thiserror::Error)]
#[error(
    "CUDA cannot be used: {0}; build the program with `--features cuda` (see edge-client/cuda/build.sh), or take \
     `--device cpu`"
)]
pub struct NoCuda(ModelError);

impl Processor {
    /// The requested processor; without a request, the [best](Self::best).
    pub fn backend(asked: Option<Self>) -> Result<Backend, NoCuda> {
        match asked {
            Some(Self::Cpu) => Ok(Backend::cpu()),
            Some(Self::Cuda) => Backend::cuda().map_err(NoCuda),
            None => Ok(Self::best()),
        }
    }

    /// What answers: on request with weights of 8 bits, which the CPU does; else the [best](Self::best).
    #[must_use]
    pub fn for_answers(int8: bool) -> Backend {
        if int8 { Backend::int8() } else { Self::best() }
    }

    /// The first CUDA device if the program was built for CUDA and one answers, or else the CPU. Why no device answered is logged.
    #[must_use]
    pub fn best() -> Backend {
        let (backend, unanswered) = Backend::best();
        if let Some(error) = unanswered {
            tracing::warn!("no CUDA device answers, so the CPU does the work: {}", causes(&error));
        }
        backend
    }
}

/// How many threads this machine runs at once; one if it does not say.
#[must_use]
pub fn cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_refused_only_if_it_was_asked_for() {
        let there = Backend::cuda().is_ok();
        let name = |asked| Processor::backend(asked).map(|backend| backend.name()).ok();
        assert_eq!(name(None), Some(if there { "cuda" } else { "cpu" }));
        assert_eq!(name(Some(Processor::Cpu)), Some("cpu"));
        match Processor::backend(Some(Processor::Cuda)) {
            Ok(backend) => assert!(there && backend.name() == "cuda"),
            Err(error) => assert!(!there && error.to_string().contains("--device cpu"), "{error}"),
        }
    }
}
