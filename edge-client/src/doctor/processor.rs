//! The processors that train: cores, or a GPU.

use std::num::NonZeroUsize;

use models::Backend;
use shared::cli::counted;

use super::Finding;
use crate::system::System;

/// Files that NVIDIA's drivers make, on servers and on Jetsons.
const NVIDIA: [&str; 4] = ["proc/driver/nvidia/version", "dev/nvidia0", "dev/nvhost-gpu", "sys/module/nvgpu"];

/// The findings about both.
#[must_use]
pub fn look_at(system: &System) -> Vec<Finding> {
    let answer = cfg!(feature = "cuda").then(|| Backend::cuda().map(drop).map_err(|error| error.to_string()));
    vec![cores(system), gpu(system, answer)]
}

fn cores(system: &System) -> Finding {
    let count = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    // On ARM, the board reports its model and the processor does not.
    let board = system.read("proc/device-tree/model").map(|text| text.trim_end_matches('\0').to_owned());
    let model = board.or_else(|| {
        let text = system.read("proc/cpuinfo")?;
        let line = text.lines().find_map(|line| line.strip_prefix("model name"))?;
        Some(line.trim_start_matches([' ', '\t', ':']).to_owned())
    });
    let model = model.map(|model| format!(" ({model})")).unwrap_or_default();
    Finding::ok("processor", format!("{}, {}{model}", counted(count, "thread"), std::env::consts::ARCH))
}

/// Compares `answer`, that of CUDA if this program was built for it, with the GPU that the system has.
fn gpu(system: &System, answer: Option<Result<(), String>>) -> Finding {
    const SUBJECT: &str = "gpu";
    let there = NVIDIA.iter().any(|path| system.exists(path));
    match (answer, there) {
        (Some(Ok(())), _) => Finding::ok(SUBJECT, "CUDA answers: training runs on the GPU"),
        (Some(Err(reason)), true) => Finding::warning(
            SUBJECT,
            format!(
                "there is one, and CUDA does not answer, so that training runs on the processor: {reason}"
            ),
            "let this user read and write /dev/nvidia* or /dev/nvhost* (groups video and render), and look for the \
             driver's own messages: nvidia-smi, dmesg",
        ),
        (Some(Err(_)), false) => Finding::warning(
            SUBJECT,
            "none, and this program was built for CUDA: training runs on the processor",
            "take the plain build of the client, which is smaller and needs no libraries",
        ),
        (None, true) => Finding::warning(
            SUBJECT,
            "there is one from NVIDIA, and this program was not built for it: training runs on the processor",
            "build the client for it: edge-client/cuda/build.sh, or on a Jetson cargo build --release -p edge-client \
             --features cuda",
        ),
        (None, false) => Finding::ok(SUBJECT, "none; training runs on the processor"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;
    use crate::system::tests::system;

    #[test]
    fn a_board_says_what_it_is_and_else_the_processor_does() {
        let cpuinfo = ("proc/cpuinfo", "processor\t: 0\nmodel name\t: A Processor\nflags\t: x\n");
        assert!(cores(&system(&[cpuinfo]).1).found.ends_with("(A Processor)"));
        let board = ("proc/device-tree/model", "Raspberry Pi 4 Model B Rev 1.4\0");
        assert!(cores(&system(&[cpuinfo, board]).1).found.ends_with("(Raspberry Pi 4 Model B Rev 1.4)"));
    }

    #[test]
    fn an_unused_gpu_is_reported() {
        let (_none, without) = system(&[]);
        let (_some, with) = system(&[("dev/nvhost-gpu", "")]);
        let fails = || Some(Err("no driver".to_owned()));
        for (system, answer, level, says) in [
            (&without, None, Level::Ok, "none;"),
            (&without, fails(), Level::Warning, "built for CUDA"),
            (&with, None, Level::Warning, "not built for it"),
            (&with, fails(), Level::Warning, "no driver"),
            (&with, Some(Ok(())), Level::Ok, "answers"),
        ] {
            let finding = gpu(system, answer);
            assert_eq!(finding.level, level, "{finding:?}");
            assert!(finding.found.contains(says), "{finding:?}");
        }
    }
}
