//! When pages are drawn anew: visitors are told what has changed, and fetch that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep;

use super::lab::Lab;

/// How often is looked while a page is open.
const LOOK: Duration = Duration::from_millis(150);
/// Progress of devices is told at most this often; a closed round at once.
const STATUS: Duration = Duration::from_secs(1);
/// To look takes at most this share of the time.
const SHARE: u32 = 20;

/// What visitors are told.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The changes.
    pub(super) changes: watch::Sender<Changes>,
    /// How often was looked: what changes after the next time is told to those who wait now.
    pub(super) looks: watch::Sender<u64>,
}

/// A count of changes by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Rounds that closed, runs that began or ended.
    pub(super) rounds: u64,
    /// Anything else: progress, devices, events.
    pub(super) status: u64,
}

/// Looks for changes while pages are open, for ever.
pub(super) async fn watch(lab: Arc<Lab>, told: Arc<Told>) {
    let mut seen = None;
    let mut status_told = Instant::now();
    loop {
        if told.changes.receiver_count() == 0 {
            sleep(LOOK).await;
            continue;
        }
        let begun = Instant::now();
        let looking = lab.clone();
        let look = tokio::task::spawn_blocking(move || {
            (looking.rounds_mark(), (looking.database_mark(), looking.together_mark()))
        });
        let Ok(now) = look.await else { return };
        let before = *seen.get_or_insert(now);
        if now.0 != before.0 {
            told.changes.send_modify(|changes| {
                *changes = Changes { rounds: changes.rounds + 1, status: changes.status + 1 }
            });
            (seen, status_told) = (Some(now), Instant::now());
        } else if now.1 != before.1 && status_told.elapsed() >= STATUS {
            told.changes.send_modify(|changes| changes.status += 1);
            (seen, status_told) = (Some(now), Instant::now());
        }
        told.looks.send_modify(|looks| *looks += 1);
        sleep(LOOK.max(begun.elapsed() * SHARE)).await;
    }
}
