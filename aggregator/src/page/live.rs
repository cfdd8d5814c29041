//! The page while a run goes on: written from the first round on, at most every few seconds, by a thread of its own.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tracing::{debug, warn};

use super::{Found, PageError};
use crate::events::{Notice, Sink};
use crate::run::directory::RunDirectory;
use crate::run::disk;
use crate::storage::unsynced::Unsynced;
use crate::storage::write_durably;

/// The least time from one page to the next.
pub const INTERVAL: Duration = Duration::from_secs(5);
/// Writing pages may take this part of the time: those of long runs take a while.
pub(crate) const SHARE: u32 = 50;

/// Writes the page of a run whenever rounds have closed. Pages are not waited for, and no failure of them ends the run.
pub struct LivePage {
    closed: Sender<()>,
    thread: JoinHandle<()>,
}

impl LivePage {
    /// Begins with the pages of the run in `directory`. `prepare` is called first, on the thread that writes them, and `refresh`
    /// before each page.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(
        directory: RunDirectory,
        prepare: impl FnOnce() + Send + 'static,
        mut refresh: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let (closed, rounds) = channel();
        let thread = std::thread::Builder::new().name("page".to_owned()).spawn(move || {
            prepare();
            write_pages(&directory, &rounds, &mut refresh);
        })?;
        Ok(Self { closed, thread })
    }

    /// No page is written from now on. The last one is the caller's.
    pub fn finish(self) {
        drop(self.closed);
        if self.thread.join().is_err() {
            warn!(
                "internal error: the page's thread has panicked, please report it; the run is not affected"
            );
        }
    }
}

impl Sink for LivePage {
    fn receive(&mut self, notice: &Notice<'_>) {
        if matches!(notice, Notice::Round(_)) {
            // The thread ends with this sender alone.
            let _ = self.closed.send(());
        }
    }
}

fn write_pages(directory: &RunDirectory, rounds: &Receiver<()>, refresh: &mut dyn FnMut()) {
    let mut due = Instant::now();
    while rounds.recv().is_ok() {
        // What closes until the next page is due is in it.
        loop {
            match rounds.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        let begun = Instant::now();
        refresh();
        if let Err(error) = write_page(directory) {
            debug!("no page is written: {error}");
        }
        due = Instant::now() + INTERVAL.max(begun.elapsed() * SHARE);
    }
}

fn write_page(directory: &RunDirectory) -> Result<(), PageError> {
    let page = Found::read(&Unsynced, directory, true)?.page();
    let path = directory.report();
    // It is written again soon, and at the end with care.
    Ok(write_durably(&Unsynced, &path, |out| out.write_all(page.as_bytes())).map_err(disk("write", &path))?)
}
