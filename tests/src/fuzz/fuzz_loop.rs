//! The fuzzing loop: plays inputs and detects panics, excess memory and excess time.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use peak_alloc::PeakAlloc;

use super::mutate::Mutator;
use super::{PER_BYTE, Seen, Target};

/// Inputs of which something new came, and which are mutated further; of more, a new one replaces an old one.
const POOL: usize = 256;

/// Outcomes that are told apart; one more is nothing new.
const OUTCOMES: usize = 10_000;

/// What must not be.
#[derive(Clone, Debug)]
pub enum Failure {
    /// It panicked with this.
    Panicked(String),
    /// It allocated more at a time than it may.
    Allocated {
        /// Bytes.
        bytes: usize,
        /// As many are allowed.
        limit: usize,
    },
    /// It took longer than it may, twice.
    Slow {
        /// The shorter of the two times.
        took: Duration,
        /// As much is allowed.
        limit: Duration,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(message) => write!(f, "panicked: {message}"),
            Self::Allocated { bytes, limit } => write!(f, "allocated {bytes} bytes, {limit} are allowed"),
            Self::Slow { took, limit } => write!(f, "took {took:?}, {limit:?} are allowed"),
        }
    }
}

/// What watches a target beside its own assertions.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// The program's allocator, if it is one that counts.
    pub memory: Option<&'a PeakAlloc>,
    /// How long an input may take. `None` where time says nothing: other programs run beside a suite.
    pub patience: Option<Duration>,
}

thread_local! {
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}
static MESSAGE: Mutex<String> = Mutex::new(String::new());

/// Panics of targets are kept and not printed.
fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if EXPECTED.get() {
                *MESSAGE.lock().unwrap_or_else(PoisonError::into_inner) = info.to_string();
            } else {
                before(info);
            }
        }));
    });
}

/// Plays one input.
pub fn examine(target: &Target, input: &[u8], watch: Watch<'_>) -> Result<Seen, Failure> {
    listen();
    let limit = target.room + PER_BYTE * input.len();
    let play = || {
        let before = watch.memory.map(|memory| {
            memory.reset_peak_usage();
            memory.current_usage()
        });
        let begun = Instant::now();
        EXPECTED.set(true);
        let played = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
        EXPECTED.set(false);
        let took = begun.elapsed();
        let seen = played
            .map_err(|_| Failure::Panicked(MESSAGE.lock().unwrap_or_else(PoisonError::into_inner).clone()))?;
        if let (Some(memory), Some(before)) = (watch.memory, before) {
            let bytes = memory.peak_usage().saturating_sub(before);
            if bytes > limit {
                return Err(Failure::Allocated { bytes, limit });
            }
        }
        Ok((seen, took))
    };
    let (seen, took) = play()?;
    if let Some(limit) = watch.patience.filter(|limit| took > *limit) {
        let took = took.min(play()?.1);
        if took > limit {
            return Err(Failure::Slow { took, limit });
        }
    }
    Ok(seen)
}

/// Plays mutations of a target's corpus one after the other. The same seed gives the same inputs.
pub struct FuzzLoop<'a> {
    target: &'a Target,
    watch: Watch<'a>,
    mutator: Mutator,
    pool: Vec<Vec<u8>>,
    seen: HashSet<Seen>,
    /// Inputs played.
    pub played: u64,
}

impl<'a> FuzzLoop<'a> {
    /// Plays the corpus. An error is its input that fails.
    pub fn begin(target: &'a Target, seed: u64, watch: Watch<'a>) -> Result<Self, (Vec<u8>, Failure)> {
        let mutator = Mutator::new(seed, target.name, target.words);
        let mut fuzz_loop =
            Self { target, watch, mutator, pool: target.corpus(), seen: HashSet::new(), played: 0 };
        // What is allocated once and kept is not the first input's.
        if let Some(first) = fuzz_loop.pool.first() {
            let _ = examine(target, first, Watch { memory: None, patience: None });
        }
        for input in fuzz_loop.pool.clone() {
            fuzz_loop.play(&input).map_err(|failure| (input, failure))?;
        }
        Ok(fuzz_loop)
    }

    /// The next input.
    pub fn next_input(&mut self) -> Vec<u8> {
        self.mutator.mutate(&self.pool)
    }

    /// Plays an input, and keeps it if something new came of it.
    pub fn play(&mut self, input: &[u8]) -> Result<(), Failure> {
        self.played += 1;
        let seen = examine(self.target, input, self.watch)?;
        if self.seen.len() < OUTCOMES && self.seen.insert(seen) && self.played > 1 {
            if self.pool.len() < POOL {
                self.pool.push(input.to_vec());
            } else {
                let place = self.played as usize % POOL;
                self.pool[place] = input.to_vec();
            }
        }
        Ok(())
    }

    /// Different outcomes so far.
    #[must_use]
    pub fn outcomes(&self) -> usize {
        self.seen.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WATCH: Watch<'_> = Watch { memory: None, patience: None };

    #[test]
    fn a_panic_deep_in_a_format_is_found() {
        fn run(bytes: &[u8]) -> Seen {
            let depth = b"deep".iter().zip(bytes).take_while(|(a, b)| a == b).count();
            assert!(depth < 4 || bytes.len() < 6, "six bytes");
            Seen::of(&["none", "one", "two", "three", "four"][depth].chars().collect::<Vec<_>>())
        }
        let target = Target::new("test", "", run, || vec![b"dxxx".to_vec()]);
        let mut fuzz_loop =
            FuzzLoop::begin(&target, 1, WATCH).map_err(|(_, failure)| failure).expect("the corpus");
        let failure = (0..2_000_000).find_map(|_| {
            let input = fuzz_loop.next_input();
            fuzz_loop.play(&input).err().map(|failure| (input, failure))
        });
        let (input, failure) = failure.expect("it is found");
        assert!(input.starts_with(b"deep"));
        assert!(failure.to_string().contains("six bytes"), "{failure}");
        assert!(fuzz_loop.outcomes() >= 4);
    }
}
