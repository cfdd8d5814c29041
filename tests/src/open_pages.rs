//! Open pages of a run, as in browsers: each fetches what has changed, as the page's script does.

use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::Instant;

use crate::http::request;
use crate::visitor::Visitor;

/// Open pages. They are closed when this is dropped.
pub struct OpenPages {
    visitor: Option<Visitor>,
    pages: Vec<JoinHandle<()>>,
    seen: Arc<Mutex<Vec<Instant>>>,
}

impl OpenPages {
    /// Opens `count` pages of the run in `directory`, each of which was told from when on changes are told.
    ///
    /// # Panics
    /// If the page is not served.
    #[must_use]
    pub fn of(visitor: Visitor, directory: &Path, count: usize) -> Self {
        let name = directory.file_name().expect("a run has a name").to_string_lossy();
        let (page, seen) = (format!("/runs/{name}"), Arc::<Mutex<Vec<Instant>>>::default());
        let open = |_| {
            let mut changes = visitor.changes();
            let first = changes.next();
            assert!(first.is_some(), "the page ends");
            let (address, page, seen) = (visitor.address.clone(), page.clone(), seen.clone());
            std::thread::spawn(move || {
                for kind in changes {
                    let parts: &[&str] = if kind == "rounds" { &["rounds", "status"] } else { &["status"] };
                    for part in parts {
                        let fetched = request(&address, ("GET", &format!("{page}?part={part}")), &[], "");
                        // The page may end meanwhile.
                        if fetched.is_ok_and(|answer| answer.status == 200) && *part == "rounds" {
                            seen.lock().expect("no thread panics with it").push(Instant::now());
                        }
                    }
                }
            })
        };
        let pages = (0..count).map(open).collect();
        Self { visitor: Some(visitor), pages, seen }
    }

    /// When pages had fetched the curves and tables after a round.
    ///
    /// # Panics
    /// Never: no thread panics while it holds them.
    #[must_use]
    pub fn seen(&self) -> Vec<Instant> {
        self.seen.lock().expect("no thread panics with it").clone()
    }

    /// The process that serves them.
    ///
    /// # Panics
    /// Never: it is there until this is dropped.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.visitor.as_ref().expect("it is there until this is dropped").process.id()
    }
}

impl Drop for OpenPages {
    fn drop(&mut self) {
        // The streams end with the process.
        drop(self.visitor.take());
        for page in self.pages.drain(..) {
            let _ = page.join();
        }
    }
}
