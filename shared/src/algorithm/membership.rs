//! Membership of an ensemble: what the server tells clients of it, and what they answer.

use std::collections::BTreeSet;

use models::params::ParamSet;

use crate::id::ClientId;
use crate::record::{Record, RecordError, ToRecord};

/// The initial parameters, and whose models are there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Invitation {
    /// What every member learns from.
    pub start: ParamSet,
    /// Whose models need not be learned any more.
    pub members: BTreeSet<ClientId>,
}

impl ToRecord for Invitation {
    fn into_record(self) -> Record {
        Record::with_scalars(self.start, &self.members)
    }

    fn from_record(record: Record) -> Result<Self, RecordError> {
        let members = record.scalars("the members of an ensemble")?;
        Ok(Self { start: record.tensors, members })
    }
}

/// What a client sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Membership {
    /// What it has learned: the difference to the start.
    New(ParamSet),
    /// It is a member already.
    Old,
}

/// The scalars of [`Membership::Old`].
const OLD: &[u8] = b"member";

impl ToRecord for Membership {
    fn into_record(self) -> Record {
        match self {
            Self::New(tensors) => tensors.into_record(),
            Self::Old => Record { scalars: OLD.to_vec(), ..Record::default() },
        }
    }

    fn from_record(record: Record) -> Result<Self, RecordError> {
        match (record.scalars.as_slice(), record.tensors.is_empty()) {
            ([], _) => Ok(Self::New(record.tensors)),
            (OLD, true) => Ok(Self::Old),
            _ => Err(RecordError::Scalars { expected: "a model or of a member of the ensemble" }),
        }
    }
}

/// Who has sent what in a round.
#[derive(Debug, Default, PartialEq)]
pub struct Joined {
    pub(super) new: BTreeSet<ClientId>,
    pub(super) answers: u64,
}

impl ToRecord for Joined {
    fn into_record(self) -> Record {
        Record::with_scalars(ParamSet::new(), &(self.new, self.answers))
    }

    fn from_record(record: Record) -> Result<Self, RecordError> {
        let (new, answers) = record.scalars("new members of an ensemble")?;
        Ok(Self { new, answers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_a_model_or_a_word() {
        let mut tensors = ParamSet::new();
        tensors.insert("w", models::Array::zeros([1]));
        for sent in [Membership::New(tensors.clone()), Membership::Old] {
            assert_eq!(Membership::from_record(sent.clone().into_record()).unwrap(), sent);
        }
        let both = Record { tensors, scalars: OLD.to_vec(), ..Record::default() };
        assert!(Membership::from_record(both).is_err());
        assert!(Membership::from_record(Record { scalars: vec![1], ..Record::default() }).is_err());
    }
}
