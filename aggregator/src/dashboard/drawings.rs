//! Pages as they were drawn, for the next visitor: of many that have one open, one draws it, and the others wait for that.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::changes::Changes;
use super::pages::{Drawn, Part};

/// Pages that are kept.
const MOST: usize = 64;
/// How long each is: how long ago something was stands on it.
const KEPT_FOR: Duration = Duration::from_secs(5);

/// The pages by their addresses.
#[derive(Default)]
pub(super) struct Drawings(Mutex<BTreeMap<String, Arc<Mutex<Option<Kept>>>>>);

struct Kept {
    at: Instant,
    /// What had changed until then; `None` if changes are not noticed.
    then: Option<Changes>,
    drawn: Drawn,
}

impl Kept {
    /// Whether this part of it is still right.
    fn is_new(&self, part: Part, now: Option<Changes>) -> bool {
        let (Some(then), Some(now)) = (self.then, now) else { return false };
        let unchanged = match part {
            Part::Rounds => then.rounds == now.rounds,
            Part::All | Part::Status | Part::Forms => then == now,
        };
        unchanged && self.at.elapsed() < KEPT_FOR
    }
}

impl Drawings {
    /// A part of the page at `place`, drawn anew if that is needed. `now` is what has changed so far; `None` if changes are not
    /// noticed, so that nothing is kept.
    pub(super) fn part<E>(
        &self,
        place: String,
        part: Part,
        now: Option<Changes>,
        draw: impl FnOnce() -> Result<Drawn, E>,
    ) -> Result<String, E> {
        let page = self.page(place);
        let mut kept = page.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = kept.as_ref().filter(|kept| kept.is_new(part, now)) {
            return Ok(kept.drawn.part(part).to_owned());
        }
        let drawn = draw()?;
        let text = drawn.part(part).to_owned();
        *kept = Some(Kept { at: Instant::now(), then: now, drawn });
        Ok(text)
    }

    fn page(&self, place: String) -> Arc<Mutex<Option<Kept>>> {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.len() >= MOST && !pages.contains_key(&place) {
            pages.clear();
        }
        pages.entry(place).or_default().clone()
    }
}
