//! Where a simulation's clients and the server itself train and test.

use clap::ValueEnum;
use models::Backend;

use super::exit::Failure;

/// A processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Processor {
    /// The cores.
    Cpu,
    /// The first CUDA device.
    Cuda,
}

/// The processor that was asked for; if none was, the best one that answers. Why no CUDA device answered is logged.
pub(super) fn backend(asked: Option<Processor>) -> Result<Backend, Failure> {
    match asked {
        Some(Processor::Cpu) => Ok(Backend::cpu()),
        Some(Processor::Cuda) => Backend::cuda().map_err(|error| {
            Failure::Environment(format!(
                "CUDA cannot be used: {error}; build the program with `--features cuda` (see edge-client/cuda/build.sh), or \
                 take `--device cpu`"
            ))
        }),
        None => {
            let (backend, unanswered) = Backend::best();
            if let Some(error) = unanswered {
                tracing::warn!("no CUDA device answers, so the CPU does the work: {error}");
            }
            Ok(backend)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_refused_only_if_it_was_asked_for() {
        let there = Backend::cuda().is_ok();
        assert_eq!(
            backend(None).map(|backend| backend.name()).ok(),
            Some(if there { "cuda" } else { "cpu" })
        );
        assert_eq!(backend(Some(Processor::Cpu)).map(|backend| backend.name()).ok(), Some("cpu"));
        match backend(Some(Processor::Cuda)) {
            Ok(backend) => assert!(there && backend.name() == "cuda"),
            Err(Failure::Environment(said)) => assert!(!there && said.contains("--device cpu"), "{said}"),
            Err(other) => panic!("{other:?}"),
        }
    }
}
