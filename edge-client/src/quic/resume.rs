//! Resumable downloads: the next connection brings the rest of an interrupted task.

use std::sync::{Arc, Mutex, PoisonError};

use shared::message::ResumePoint;

/// The received part of the newest interrupted task. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupted(Arc<Mutex<Option<Part>>>);

#[derive(Debug)]
struct Part {
    round: u32,
    payload: Vec<u8>,
}

/// A task that is arriving. When dropped before it is complete, its received part is [kept](Interrupted).
#[derive(Debug)]
pub(crate) struct Arriving {
    part: Part,
    kept: Interrupted,
}

impl Interrupted {
    /// The resume point for the server, if enough was received.
    pub(crate) fn partial(&self) -> Option<ResumePoint> {
        let part = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let part = part.as_ref().filter(|part| part.payload.len() >= ResumePoint::MIN_BYTES)?;
        Some(ResumePoint::of(part.round, &part.payload))
    }

    /// Begins a task from its first byte, and drops the received part of another.
    pub(crate) fn begin(&self, round: u32, capacity: usize) -> Arriving {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Arriving { part: Part { round, payload: Vec::with_capacity(capacity) }, kept: self.clone() }
    }

    /// Resumes a task at `offset`; `None` if that is not where the received part ends.
    pub(crate) fn go_on(&self, round: u32, offset: u64) -> Option<Arriving> {
        let part = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let part = part.filter(|part| part.round == round && part.payload.len() as u64 == offset)?;
        Some(Arriving { part, kept: self.clone() })
    }
}

impl Arriving {
    /// The bytes received so far.
    pub(crate) fn payload(&mut self) -> &mut Vec<u8> {
        &mut self.part.payload
    }

    /// Takes the payload: it is complete, or no longer wanted.
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
