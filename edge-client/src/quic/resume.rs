//! A task that a connection did not bring to its end: the next one brings the rest.

use std::sync::{Arc, Mutex, PoisonError};

use shared::message::ResumePoint;

/// What is here of the newest task that was interrupted. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupted(Arc<Mutex<Option<Part>>>);

#[derive(Debug)]
struct Part {
    round: u32,
    payload: Vec<u8>,
}

/// A task that is coming in; what is here of it when it is dropped is [kept](Interrupted), unless it was whole.
#[derive(Debug)]
pub(crate) struct Arriving {
    part: Part,
    kept: Interrupted,
}

impl Interrupted {
    /// What the server is to be told, if it is worth it.
    pub(crate) fn partial(&self) -> Option<ResumePoint> {
        let part = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let part = part.as_ref().filter(|part| part.payload.len() >= ResumePoint::MIN_BYTES)?;
        Some(ResumePoint::of(part.round, &part.payload))
    }

    /// A task comes in from its beginning. What was here of others is of no use any more.
    pub(crate) fn begin(&self, round: u32, capacity: usize) -> Arriving {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Arriving { part: Part { round, payload: Vec::with_capacity(capacity) }, kept: self.clone() }
    }

    /// The rest of a task comes in; `None` if this is not the rest of what is here.
    pub(crate) fn go_on(&self, round: u32, offset: u64) -> Option<Arriving> {
        let part = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let part = part.filter(|part| part.round == round && part.payload.len() as u64 == offset)?;
        Some(Arriving { part, kept: self.clone() })
    }
}

impl Arriving {
    /// What is here.
    pub(crate) fn payload(&mut self) -> &mut Vec<u8> {
        &mut self.part.payload
    }

    /// It is whole, or of no use any more.
    pub(crate) fn take(mut self) -> Vec<u8> {
        std::mem::take(&mut self.part.payload)
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if !self.part.payload.is_empty() {
            let part = Part { round: self.part.round, payload: std::mem::take(&mut self.part.payload) };
            *self.kept.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_interrupted_goes_on_and_what_is_whole_is_forgotten() {
        let interrupted = Interrupted::default();
        let mut arriving = interrupted.begin(3, 0);
        arriving.payload().extend(vec![7; ResumePoint::MIN_BYTES - 1]);
        drop(arriving);
        assert_eq!(interrupted.partial(), None, "little is not worth it");
        let mut arriving = interrupted.go_on(3, ResumePoint::MIN_BYTES as u64 - 1).unwrap();
        arriving.payload().push(7);
        drop(arriving);
        let partial = interrupted.partial().unwrap();
        let mut payload = vec![7; ResumePoint::MIN_BYTES + 1];
        assert_eq!(partial.offset_in(3, &payload), Some(ResumePoint::MIN_BYTES));
        assert_eq!(partial.offset_in(3, &payload[..ResumePoint::MIN_BYTES]), None, "nothing is left");
        assert_eq!(partial.offset_in(4, &payload), None, "of another round");
        payload[9] = 8;
        assert_eq!(partial.offset_in(3, &payload), None, "of another payload");
        let arriving = interrupted.go_on(3, partial.bytes).unwrap();
        assert_eq!(arriving.take().len(), ResumePoint::MIN_BYTES);
        assert_eq!(interrupted.partial(), None);
        assert!(interrupted.go_on(3, partial.bytes).is_none());
    }

    #[test]
    fn a_rest_that_does_not_fit_is_none() {
        let interrupted = Interrupted::default();
        for (round, offset) in [(4, ResumePoint::MIN_BYTES as u64), (3, 1)] {
            interrupted.begin(3, 0).payload().extend(vec![7; ResumePoint::MIN_BYTES]);
            assert!(interrupted.go_on(round, offset).is_none());
        }
    }
}
