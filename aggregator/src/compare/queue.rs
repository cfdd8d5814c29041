//! Where the runs come from that are executed: those of one process, or those that several workers share.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use super::step::Step;

/// Hears what happens to a run, by its position in the plan.
pub type Told<'a> = dyn Fn(usize, &Step<'_>) + Sync + 'a;

/// How the execution of a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nothing is left to do: it is complete, or a candidate that stops before.
    Over,
    /// It was stopped and can be continued: all are, or the queue [interrupted](Queue::interrupts) it.
    Stopped,
    /// This process cannot go on with it.
    Failed,
}

/// Hands out runs, several at a time.
pub trait Queue: Sync {
    /// The next run, by its position in the plan. Waits while other workers may leave one. `None` if there is none, or all stop.
    fn take(&self, stop: &watch::Receiver<bool>, tell: &Told<'_>) -> Option<usize>;

    /// Whether a run is to stop after the round that closed, to be looked at.
    fn interrupts(&self, position: usize) -> bool;

    /// Takes a run whose execution ended. Whether it is to go on at once.
    fn put(&self, position: usize, ended: Ended, stop: &watch::Receiver<bool>, tell: &Told<'_>) -> bool;
}

/// The runs of one process.
#[derive(Debug)]
pub struct Own(Mutex<VecDeque<usize>>);

impl Own {
    /// These runs, in this order.
    #[must_use]
    pub fn new(left: &[usize]) -> Self {
        Self(Mutex::new(left.iter().copied().collect()))
    }
}

impl Queue for Own {
    fn take(&self, stop: &watch::Receiver<bool>, _: &Told<'_>) -> Option<usize> {
        if *stop.borrow() {
            return None;
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn interrupts(&self, _: usize) -> bool {
        false
    }

    fn put(&self, _: usize, _: Ended, _: &watch::Receiver<bool>, _: &Told<'_>) -> bool {
        false
    }
}
