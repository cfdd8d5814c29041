//! The model that the device has of a run whose models travel as [differences](shared::differences).
//!
//! It is in memory alone: kept on disk it would wear a memory card with a model in every round, to save one after a start of the
//! program. A device that has none is sent the whole model, and so is one whose model is not what a difference is to.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use shared::differences::{Base, DifferenceError, Digest};
use shared::message::{ToClient, ToServer};

/// The model that the device has, if it has one. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct CurrentBase(Arc<Mutex<Option<Base>>>);

/// How the payload of a task becomes the model.
pub(super) struct Leads {
    to: Digest,
    /// The lengths of its differences; none if it is the model.
    differences: Vec<u64>,
}

impl Leads {
    /// What a task says of its payload; `None` if that is the model, which nothing is a difference to.
    pub(super) fn of(message: &ToClient) -> Option<Self> {
        match message {
            ToClient::BaseTask { digest, differences, .. } => {
                Some(Self { to: *digest, differences: differences.clone() })
            }
            _ => None,
        }
    }
}

impl CurrentBase {
    fn replace(&self, base: Option<Base>) -> Option<Base> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), base)
    }

    /// The message that tells the server which model the device has.
    pub(super) fn said(&self) -> Option<ToServer> {
        let base = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        base.as_ref().map(|base| ToServer::Base { digest: base.digest() })
    }

    /// Takes a task's payload in, and returns the model. It is the base from then on; there is none after an error, and after a task
    /// of a run without differences. It takes a while for a large model.
    pub(super) fn advance(&self, payload: Bytes, leads: Option<&Leads>) -> Result<Bytes, DifferenceError> {
        let before = self.replace(None);
        let Some(Leads { to, differences }) = leads else { return Ok(payload) };
        let base = if differences.is_empty() {
            Some(Base::new(payload)).filter(|base| base.digest() == *to).ok_or(DifferenceError::OtherModel)?
        } else {
            before.ok_or(DifferenceError::OtherBase)?.follow(&payload, differences, *to)?
        };
        let bytes = base.bytes().clone();
        self.replace(Some(base));
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use models::{Array, ParamSet};
    use shared::record::Record;
    use shared::spec::RunSpec;

    use super::*;

    fn model(value: f32) -> Record {
        let mut tensors = ParamSet::new();
        tensors.insert("w", Array::new([300], vec![value; 300]).unwrap());
        Record { tensors, ..Record::default() }
    }

    #[test]
    fn a_model_is_had_until_something_is_wrong_with_the_next() {
        let spec = RunSpec::example("fedavg");
        let first = Base::first(&model(1.0));
        let difference = first.difference(model(1.5), &spec, 2).unwrap();
        let second = first.after(&difference).unwrap();
        let leads =
            |to: &Base, differences: &[u64]| Leads { to: to.digest(), differences: differences.to_vec() };
        let (current, length) = (CurrentBase::default(), difference.len() as u64);
        let said = |base: &Base| Some(ToServer::Base { digest: base.digest() });
        assert_eq!(current.said(), None);
        let no_base = current.advance(difference.clone(), Some(&leads(&second, &[length])));
        assert!(matches!(no_base, Err(DifferenceError::OtherBase)));

        let had = |current: &CurrentBase| {
            let whole = current.advance(first.bytes().clone(), Some(&leads(&first, &[])));
            assert_eq!(whole.unwrap(), first.bytes());
        };
        had(&current);
        assert_eq!(current.said(), said(&first));
        let next = current.clone().advance(difference.clone(), Some(&leads(&second, &[length])));
        assert_eq!(next.unwrap(), second.bytes());
        assert_eq!(current.said(), said(&second), "clones share it");

        let wrong = [
            (second.bytes().clone(), Some(leads(&first, &[])), false),
            (difference, Some(leads(&first, &[length])), false),
            (first.bytes().clone(), None, true),
        ];
        for (payload, leads, fits) in wrong {
            had(&current);
            assert_eq!(current.advance(payload, leads.as_ref()).is_ok(), fits);
            assert_eq!(current.said(), None);
        }
    }
}
