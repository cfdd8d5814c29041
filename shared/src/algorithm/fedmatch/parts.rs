//! The decomposed model of `FedMatch`, the sum of two parts, and its helper models.

use models::params::{Mismatch, ParamSet};

use super::helpers::Bank;
use crate::algorithm::ServerModel;
use crate::record::{Record, RecordError, ToRecord};

/// Prefixes of the two parts' tensor names in records. No tensor name of a model begins with them.
const SIGMA: &str = "sigma.";
const PSI: &str = "psi.";

/// `theta = sigma + psi`, and the bank of helpers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts<T> {
    /// The part that the server trains.
    pub(super) sigma: ParamSet,
    /// The part that clients train.
    pub(super) psi: T,
    /// The sum, which is not sent, because every party computes the same one.
    pub(super) theta: ParamSet,
    /// The models from which helpers are picked.
    pub(super) bank: Bank,
}

/// A value with a set of parameters.
pub trait HasParams {
    /// The parameters.
    fn params(&self) -> &ParamSet;
}

impl HasParams for ParamSet {
    fn params(&self) -> &ParamSet {
        self
    }
}

impl HasParams for ServerModel {
    fn params(&self) -> &ParamSet {
        &self.w
    }
}

impl<T: HasParams> Parts<T> {
    /// Recomputes `theta`.
    pub(super) fn join(&mut self) -> Result<(), Mismatch> {
        self.theta.clone_from(&self.sigma);
        self.theta.add(self.psi.params())
    }
}

impl<T: ToRecord + HasParams> ToRecord for Parts<T> {
    fn into_record(self) -> Record {
        let mut record = self.bank.into_record();
        record.tensors.insert_under(SIGMA, self.sigma);
        record.tensors.insert_under(PSI, self.psi.into_record().tensors);
        record
    }

    fn from_record(mut record: Record) -> Result<Self, RecordError> {
        let sigma = record.tensors.take_under(SIGMA);
        let psi = T::from_record(Record { tensors: record.tensors.take_under(PSI), ..Record::default() })?;
        let mut parts = Self { sigma, psi, theta: ParamSet::new(), bank: Bank::from_record(record)? };
        parts.join()?;
        Ok(parts)
    }
}
