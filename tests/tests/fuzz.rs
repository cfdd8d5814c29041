//! Every fuzz target with its corpus and a fixed number of mutations of it, the same ones every time.

use std::path::Path;
use std::time::Instant;

use federation_tests::fuzz::fuzz_loop::{Failure, FuzzLoop, Watch};
use federation_tests::fuzz::{TARGETS, Target};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Mutations of each target.
const MUTATIONS: usize = 500;

fn fuzz_loop(target: &Target) -> Result<(u64, usize), (Vec<u8>, Failure)> {
    // Time says nothing while other tests run.
    let mut fuzz_loop = FuzzLoop::begin(target, 1, Watch { memory: Some(&MEMORY), patience: None })?;
    for _ in 0..MUTATIONS {
        let input = fuzz_loop.next_input();
        fuzz_loop.play(&input).map_err(|failure| (input, failure))?;
    }
    Ok((fuzz_loop.played, fuzz_loop.outcomes()))
}

// One test for all: each looks at the memory of the whole process.
#[test]
fn no_bytes_make_a_decoder_or_a_machine_panic_or_take_memory_that_it_has_not_been_sent() {
    let mut failures = Vec::new();
    for target in TARGETS {
        let begun = Instant::now();
        match fuzz_loop(target) {
            Ok((_, 0 | 1)) => failures.push(format!("{}: the same came of everything", target.name)),
            Ok((played, outcomes)) => {
                println!("{:16} {played} inputs, {outcomes} outcomes, {:?}", target.name, begun.elapsed());
            }
            Err((input, failure)) => {
                let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-failed", target.name));
                std::fs::write(&path, input).expect("the target directory can be written");
                failures.push(format!("{}: {failure}\n    of what is in {}", target.name, path.display()));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
