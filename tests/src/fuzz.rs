//! Fuzz targets: every decoder, and the state machines by lists of operations.
//!
//! A [`Target`] is a plain function of bytes that must neither panic, nor allocate beyond its limit, nor take long, for any
//! the bytes are. All are in [`TARGETS`]; a new decoder is one function and one line. Three programs use them:
//!
//! * the suite (`tests/tests/fuzz.rs`) plays the corpus and a fixed number of mutations of it;
//! * `cargo run -p federation-tests -- fuzz --seconds 600` looks for more, for as long as it is told;
//! * the same with `--replay FILE --target NAME` plays one input that failed before.
//!
//! The corpus is what each target makes itself by encoding real values, and the files in `tests/corpus/TARGET/`: inputs that
//! once failed. The compiler's instrumentation, by which libFuzzer sees that an input is new, is nightly's; here an input
//! is new when its target says that [something else came of it](Seen), and then it is mutated further.
//!
//! | module | what it gives |
//! |---|---|
//! | [`mutate`] | inputs from inputs, from a seed |
//! | [`fuzz_loop`] | playing inputs, and noticing what goes wrong |
//! | [`tmp`] | folders in memory for what is read from files |
//! | [`messages`], [`parameters`], [`updates`], [`tasks`] | what crosses the network |
//! | [`identities`], [`device_state`], [`run_state`], [`ensembles`] | what lies on disks |
//! | [`configuration`], [`samples`] | what users bring |
//! | [`coordinator`], [`session`] | lists of operations |
//! | [`hidden`], [`masking`] | the same of both sides where updates are hidden |

pub mod configuration;
pub mod coordinator;
pub mod device_state;
pub mod ensembles;
pub mod fuzz_loop;
pub mod hidden;
pub mod identities;
pub mod masking;
pub mod messages;
pub mod mutate;
pub mod parameters;
pub mod run_state;
pub mod samples;
pub mod session;
pub mod tasks;
pub mod tmp;
pub mod updates;

use std::fmt::{Debug, Write as _};
use std::path::PathBuf;

/// What came of an input, so that an input of which something new comes is known: the skeleton of its `Debug` text, without
/// numbers and quotations.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seen(String);

impl Seen {
    /// Characters of a skeleton.
    const LENGTH: usize = 160;

    /// Of an outcome; what is long and of no interest should not be in it.
    pub fn of(outcome: &impl Debug) -> Self {
        let mut skeleton = Skeleton::default();
        // It refuses to take more than it has room for.
        let _ = write!(skeleton, "{outcome:?}");
        Self(skeleton.text)
    }

    /// Of a result whose value is not told.
    pub fn result<T, E: Debug>(result: &Result<T, E>) -> Self {
        Self::of(&result.as_ref().map(|_| ()))
    }
}

#[derive(Default)]
struct Skeleton {
    text: String,
    quoted: bool,
}

impl std::fmt::Write for Skeleton {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for letter in text.chars() {
            if self.text.len() >= Seen::LENGTH {
                return Err(std::fmt::Error);
            }
            self.quoted ^= letter == '"';
            if !self.quoted && letter.is_ascii_alphabetic() {
                self.text.push(letter);
            } else if !self.text.ends_with(' ') {
                self.text.push(' ');
            }
        }
        Ok(())
    }
}

/// Something that reads bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name on the command line, and of its folder in the corpus.
    pub name: &'static str,
    /// What reads the bytes.
    pub about: &'static str,
    /// Reads them, and asserts what must be so.
    pub run: fn(&[u8]) -> Seen,
    /// Inputs that are right, from real values.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Pieces that mean something to it.
    pub words: &'static [&'static str],
    /// Bytes that it may allocate at a time, beside [`PER_BYTE`] for each byte of input.
    pub room: usize,
}

/// What a byte of input may cost in memory.
pub const PER_BYTE: usize = 64;

const MIB: usize = 1 << 20;

impl Target {
    const fn new(
        name: &'static str,
        about: &'static str,
        run: fn(&[u8]) -> Seen,
        seeds: fn() -> Vec<Vec<u8>>,
    ) -> Self {
        Self { name, about, run, seeds, words: &[], room: MIB }
    }

    const fn with_words(self, words: &'static [&'static str]) -> Self {
        Self { words, ..self }
    }

    const fn with_room(self, room: usize) -> Self {
        Self { room, ..self }
    }

    /// Where inputs of this target are kept that once failed.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus")).join(self.name)
    }

    /// All that is played before anything is mutated.
    ///
    /// # Panics
    /// If the corpus cannot be read.
    #[must_use]
    pub fn corpus(&self) -> Vec<Vec<u8>> {
        let mut inputs = (self.seeds)();
        if let Ok(entries) = std::fs::read_dir(self.folder()) {
            let mut paths: Vec<_> =
                entries.map(|entry| entry.expect("the corpus can be listed").path()).collect();
            paths.sort();
            inputs.extend(paths.iter().map(|path| std::fs::read(path).expect("the corpus can be read")));
        }
        inputs
    }
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target::new("frame", "a frame's header and message", messages::frame, messages::frames),
    Target::new("to-server", "a message to the server", messages::to_server, messages::to_server_seeds),
    Target::new("to-client", "a message to a device", messages::to_client, messages::to_client_seeds),
    Target::new("partial", "what is said of a cut transfer", messages::partial, messages::partials),
    // 16 MiB are believed before they have arrived (`models::params::codec`).
    Target::new("parameters", "safetensors", parameters::read, parameters::seeds)
        .with_words(parameters::WORDS)
        .with_room(40 * MIB),
    Target::new("stream", "safetensors, a few values at a time", parameters::stream, parameters::seeds)
        .with_words(parameters::WORDS)
        .with_room(8 * MIB),
    Target::new("model-file", "a trained model", parameters::model_file, parameters::models)
        .with_words(parameters::WORDS)
        .with_room(40 * MIB),
    Target::new(
        "compressed",
        "parameters in 8 and 4 bits",
        parameters::compressed,
        parameters::compressed_seeds,
    )
    .with_words(parameters::WORDS)
    .with_room(96 * MIB),
    Target::new(
        "difference",
        "a model as a difference to another",
        parameters::difference,
        parameters::differences,
    )
    .with_words(parameters::WORDS)
    .with_room(96 * MIB),
    Target::new("update", "an update of each algorithm", updates::run, updates::seeds)
        .with_words(parameters::WORDS)
        .with_room(40 * MIB),
    Target::new("task", "a server's specification and broadcast on a device", tasks::run, tasks::seeds)
        .with_room(64 * MIB),
    Target::new("ticket", "a ticket's text", identities::ticket, identities::tickets),
    Target::new("ticket-content", "a ticket of any origin", identities::content, identities::contents),
    Target::new("key", "keys and ids, written and shown", identities::key, identities::keys),
    Target::new("server-identity", "the files with a server's keys", identities::server, identities::servers),
    Target::new(
        "known-server",
        "what a device knows of its server",
        device_state::server,
        device_state::servers,
    ),
    Target::new("device-state", "a device's state directory", device_state::run, device_state::seeds)
        .with_room(2 * MIB),
    Target::new("personal-model", "a personal model", device_state::personal, device_state::personals)
        .with_words(parameters::WORDS)
        .with_room(40 * MIB),
    Target::new("run-state", "the directory of a run", run_state::run, run_state::seeds)
        .with_words(run_state::WORDS)
        .with_room(64 * MIB),
    Target::new("ensemble", "a file of models side by side", ensembles::run, ensembles::seeds)
        .with_words(parameters::WORDS)
        .with_room(64 * MIB),
    Target::new("configuration", "a configuration file", configuration::file, configuration::files)
        .with_words(configuration::WORDS)
        .with_room(64 * MIB),
    Target::new("overrides", "keys on the command line", configuration::overrides, configuration::lines)
        .with_words(configuration::WORDS)
        .with_room(64 * MIB),
    Target::new("idx", "MNIST's files", samples::idx, samples::idx_seeds).with_room(4 * MIB),
    Target::new("cifar", "CIFAR's files", samples::cifar, samples::cifar_seeds).with_room(4 * MIB),
    Target::new("table", "a table of samples", samples::table, samples::tables)
        .with_words(&["label", "NaN", ","]),
    Target::new("tensors", "samples as tensors", samples::tensors, samples::tensor_seeds)
        .with_words(parameters::WORDS),
    // What an image of `MAX_SIDE` needs; a compressed image is small.
    Target::new("image", "PNG and JPEG", samples::image, samples::images).with_room(1100 * MIB),
    Target::new("text", "a play", samples::text, samples::texts).with_words(&["\n\nROMEO:\n"]),
    Target::new("coordinator", "the server's state machine", coordinator::run, coordinator::seeds)
        .with_room(16 * MIB),
    Target::new(
        "hidden",
        "the server's state machine where updates are hidden, and what it makes of revealed secrets",
        hidden::run,
        hidden::seeds,
    )
    .with_room(16 * MIB),
    Target::new("masking", "the device's part in secure aggregation", masking::run, masking::seeds)
        .with_room(16 * MIB),
    Target::new("session", "the device's state machine", session::run, session::seeds).with_room(16 * MIB),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_target_has_something_to_mutate() {
        let names: std::collections::BTreeSet<_> = TARGETS.iter().map(|target| target.name).collect();
        assert_eq!(names.len(), TARGETS.len());
        for target in TARGETS {
            assert!(!target.corpus().is_empty(), "{}", target.name);
        }
    }

    #[test]
    fn outcomes_differ_by_kind_and_not_by_number() {
        let seen = |outcome: Result<u8, &str>| Seen::of(&outcome);
        assert_eq!(seen(Ok(1)), seen(Ok(2)));
        assert_eq!(seen(Err("a")), seen(Err("b")), "quotations do not count");
        assert_ne!(seen(Ok(1)), seen(Err("a")));
        assert_eq!(Seen::of(&vec!['a'; 1000]).0.len(), Seen::LENGTH);
    }
}
