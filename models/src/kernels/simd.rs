//! The choice of vector instructions.

use pulp::Arch;

/// The best instruction set of the CPU: AVX-512, AVX2 with FMA, NEON, or the target's baseline.
///
/// Tests can ask for a lesser one with the environment variable `KERNELS_LEVEL`, so that one machine also tests the code
/// for other CPUs.
#[inline(always)]
pub(crate) fn arch() -> Arch {
    #[cfg(test)]
    if let Some(arch) = tests::asked_for() {
        return arch;
    }
    Arch::new()
}

/// Its name, the same for those with which results have the same bits.
pub(crate) fn name() -> &'static str {
    match arch() {
        Arch::Scalar => "no vector instructions",
        _ => "AVX2, AVX-512 or NEON",
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::OnceLock;

    use super::*;

    const VARIABLE: &str = "KERNELS_LEVEL";
    const LEVELS: [&str; 3] = ["scalar", "avx2", "avx512"];

    /// The instruction set that the environment asks for, if the CPU has it.
    pub(super) fn asked_for() -> Option<Arch> {
        static ASKED_FOR: OnceLock<Option<Arch>> = OnceLock::new();
        *ASKED_FOR.get_or_init(|| level(&std::env::var(VARIABLE).ok()?))
    }

    fn level(name: &str) -> Option<Arch> {
        match name {
            "scalar" => Some(Arch::Scalar),
            #[cfg(target_arch = "x86_64")]
            "avx2" => pulp::x86::V3::try_new().map(Arch::V3),
            #[cfg(target_arch = "x86_64")]
            "avx512" => pulp::x86::V4::try_new().map(Arch::V4),
            _ => None,
        }
    }

    /// Every test of the kernels, of compression and of trained bits, in a process of its own for each level that this CPU has
    /// besides its best.
    #[test]
    fn the_kernels_pass_their_tests_with_lesser_instructions() {
        if std::env::var_os(VARIABLE).is_some() {
            return; // In one of those processes.
        }
        let best = std::mem::discriminant(&Arch::new());
        for name in LEVELS {
            let Some(arch) = level(name) else {
                eprintln!("skipped with {name}, which this CPU does not have");
                continue;
            };
            if std::mem::discriminant(&arch) == best {
                continue;
            }
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["kernels::", "compression::", "train::tests::bits", "--test-threads", "1"])
                .env(VARIABLE, name)
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "with {name}:\n{text}");
            for module in ["kernels::winograd", "compression::file", "train::tests::bits"] {
                assert!(text.contains(module), "with {name} nothing of {module} was tested:\n{text}");
            }
        }
    }
}
