//! A thread that runs only while the simulation waits for it: what blocks in a program pauses here, in virtual time.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// What a thread does when it gives the baton back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    /// Until when it waits. `None` waits without end.
    pub(super) until: Option<Duration>,
    /// Whether it goes on before, if there is something for it.
    pub(super) listens: bool,
    /// Whether it is about to use the store, or has just done so.
    pub(super) at_store: bool,
}

/// The thread's end of it.
#[derive(Clone, Debug)]
pub(super) struct Baton(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    pauses: Mutex<Sender<Option<Pause>>>,
    turns: Mutex<Receiver<Duration>>,
    now: AtomicU64,
}

/// The process was killed: its thread unwinds.
struct Killed;

impl Baton {
    /// Virtual time.
    pub(super) fn now(&self) -> Duration {
        Duration::from_nanos(self.0.now.load(Ordering::Relaxed))
    }

    /// Waits, and gives the baton back meanwhile. Does not return if the process is killed.
    pub(super) fn pause(&self, pause: Pause) {
        let _ = self.0.pauses.lock().unwrap_or_else(PoisonError::into_inner).send(Some(pause));
        let turn = self.0.turns.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match turn {
            Ok(now) => self.0.now.store(nanos(now), Ordering::Relaxed),
            Err(_) => resume_unwind(Box::new(Killed)),
        }
    }

    /// Waits this long.
    pub(super) fn sleep(&self, time: Duration, at_store: bool) {
        self.pause(Pause { until: Some(self.now() + time), listens: false, at_store });
    }
}

/// The simulation's end of it.
#[derive(Debug)]
pub(super) struct Runner {
    turns: Option<Sender<Duration>>,
    pauses: Receiver<Option<Pause>>,
    thread: Option<JoinHandle<()>>,
}

impl Runner {
    /// A thread that waits for its first turn.
    pub(super) fn new(work: impl FnOnce(&Baton) + Send + 'static) -> Self {
        let (turns, to_thread) = channel();
        let (from_thread, pauses) = channel();
        let over = from_thread.clone();
        let baton = Baton(Arc::new(Shared {
            pauses: Mutex::new(from_thread),
            turns: Mutex::new(to_thread),
            now: AtomicU64::new(0),
        }));
        let thread = std::thread::spawn(move || {
            let first = baton.0.turns.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(now) = first else { return };
            baton.0.now.store(nanos(now), Ordering::Relaxed);
            let worked = catch_unwind(AssertUnwindSafe(|| work(&baton)));
            let _ = over.send(None);
            if let Err(panic) = worked
                && !panic.is::<Killed>()
            {
                resume_unwind(panic);
            }
        });
        Self { turns: Some(turns), pauses, thread: Some(thread) }
    }

    /// Lets the thread run until it waits again. `None` once it has ended.
    ///
    /// # Panics
    /// If it panics.
    pub(super) fn run(&mut self, now: Duration) -> Option<Pause> {
        self.turns.as_ref()?.send(now).ok()?;
        let pause = self.pauses.recv().ok().flatten();
        if pause.is_none() {
            self.end();
        }
        pause
    }

    fn end(&mut self) {
        self.turns = None;
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
            && !std::thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}

impl Drop for Runner {
    /// Kills it.
    fn drop(&mut self) {
        self.end();
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
