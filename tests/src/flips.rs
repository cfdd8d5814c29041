//! Flipped bits: every file of a folder is damaged by one bit at a time, and a reader of the folder is asked what it sees.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::copy_folder::copy_folder;
use crate::fuzz::tmp;

/// What came of a flipped bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// All that counts is as without it.
    Same,
    /// A person is told.
    Told,
    /// Something differs, and no person is told: what it is.
    Silent(String),
}

impl Seen {
    /// What a reader sees that gives a value or an error, where `whole` is the value of the undamaged files.
    pub fn of<T: PartialEq, E>(read: Result<T, E>, whole: &T, what: &str) -> Self {
        match read {
            Err(_) => Self::Told,
            Ok(value) if value == *whole => Self::Same,
            Ok(_) => Self::Silent(format!("{what}: something else is read")),
        }
    }

    /// What is seen of two parts together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Silent(what), _) | (_, Self::Silent(what)) => Self::Silent(what),
            (Self::Told, _) | (_, Self::Told) => Self::Told,
            (Self::Same, Self::Same) => Self::Same,
        }
    }
}

/// Numbers of flips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flips {
    /// All of them.
    pub all: usize,
    /// Those that a person was told about. The others change nothing.
    pub told: usize,
}

/// Flips `each` random bits, one at a time, in every file in `folder` whose path within it `wanted` accepts. `look` is given a
/// copy of the folder with the flipped bit.
///
/// # Panics
/// If a flip changes something in silence, `look` panics, or there is no such file.
pub fn flip_bits(
    name: &str,
    folder: &Path,
    each: usize,
    wanted: impl Fn(&Path) -> bool,
    look: impl Fn(&Path) -> Seen,
) -> Flips {
    let mut chance = ChaCha8Rng::seed_from_u64(20);
    let mut flips = Flips::default();
    for (file, whole) in tmp::files(folder) {
        let within = file.strip_prefix(folder).expect("it lies there");
        if whole.is_empty() || !wanted(within) {
            continue;
        }
        for _ in 0..each {
            let bit = chance.random_range(0..8 * whole.len());
            let what = format!("{name}: bit {bit} of {}", within.display());
            let trial = tempfile::tempdir().expect("the system has a place for temporary files");
            copy_folder(folder, trial.path());
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(trial.path().join(within), bytes).expect("an own folder");
            flips.all += 1;
            let seen = catch_unwind(AssertUnwindSafe(|| look(trial.path())));
            match seen.unwrap_or_else(|_| panic!("{what}: it panics")) {
                Seen::Same => {}
                Seen::Told => flips.told += 1,
                Seen::Silent(why) => panic!("{what}: {why}, and it is not told"),
            }
        }
    }
    assert!(flips.all > 0, "{name}: there is no file to damage");
    flips
}
