//! Who works on an experiment: one process, or workers that share it over a store.

use std::path::Path;

use super::super::exit::Failure;
use crate::compare::plan::Plan;
use crate::compare::queue::{Own, Queue};

/// Those who work on an experiment.
pub(super) trait Team {
    /// Exchanges what has ended with the others. Whether anything came.
    fn meet(&self, plan: &Plan, runs: &Path) -> Result<bool, Failure>;

    /// Hands out the runs `left` of `plan`.
    fn queue<'a>(&'a self, plan: &'a Plan, left: &'a [usize], runs: &'a Path) -> Box<dyn Queue + 'a>;

    /// What ended the work of all, if something did.
    fn trouble(&self) -> Option<Failure>;

    /// What is to be known of all results.
    fn remark(&self) -> Result<Option<String>, Failure>;
}

/// This process alone.
pub(super) struct Alone;

impl Team for Alone {
    fn meet(&self, _: &Plan, _: &Path) -> Result<bool, Failure> {
        Ok(false)
    }

    fn queue<'a>(&'a self, _: &'a Plan, left: &'a [usize], _: &'a Path) -> Box<dyn Queue + 'a> {
        Box::new(Own::new(left))
    }

    fn trouble(&self) -> Option<Failure> {
        None
    }

    fn remark(&self) -> Result<Option<String>, Failure> {
        Ok(None)
    }
}
