//! Where a run that several servers serve stands.

use std::time::Duration;

use crate::cluster::experiments::{Claim, Description, ExperimentId};

/// How long the root, or a leaf, may be silent before it counts as dead.
pub const LEASE: Duration = Duration::from_secs(5);

/// Where a run that is served stands, as far as this process knows.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// Nothing is known yet.
    Unknown,
    /// This process leads it.
    Leads(Claim),
    /// Another one does.
    Follows {
        /// Its name.
        leaf: String,
        /// Its epoch.
        epoch: i64,
        /// Where it is reached.
        address: String,
    },
    /// The run is over.
    Over,
    /// The store cannot be used, and will not become usable by itself.
    Failed(String),
}

/// A run that is served, in the store: an experiment of one run.
#[derive(Clone, Debug)]
pub struct ServedRun {
    /// Its identity: of the lab, and what the run learns.
    pub id: ExperimentId,
    /// Its name.
    pub name: String,
}

impl ServedRun {
    /// As it is entered in the store.
    #[must_use]
    pub fn described(&self) -> Description {
        let Self { id, name } = self.clone();
        Description { id, name: name.clone(), form: "serve".to_owned(), runs: vec![name] }
    }
}

/// Where a leaf finds its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root<'a> {
    /// In its own process, under this epoch.
    Here(i64),
    /// At this leaf, epoch and address.
    At(&'a str, i64, &'a str),
    /// It is not known.
    Unknown,
    /// There will be none any more.
    Over,
    /// Nor can there be one, for this reason.
    Failed(&'a str),
}

impl Standing {
    /// Where the root is.
    #[must_use]
    pub fn root(&self) -> Root<'_> {
        match self {
            Self::Unknown => Root::Unknown,
            Self::Leads(claim) => Root::Here(claim.epoch),
            Self::Follows { leaf, epoch, address } => Root::At(leaf, *epoch, address),
            Self::Over => Root::Over,
            Self::Failed(reason) => Root::Failed(reason),
        }
    }

    /// Whether a link to the root of this epoch is of use. When the run is over, the root hangs up.
    #[must_use]
    pub fn keeps(&self, epoch: i64) -> bool {
        match self.root() {
            Root::Here(of) | Root::At(_, of, _) => of == epoch,
            // It is not known, for as long as the link holds.
            Root::Unknown | Root::Over | Root::Failed(_) => true,
        }
    }

    /// Takes note that the run is not led here any more under this claim. Whether it was.
    pub fn release(&mut self, claim: &Claim) -> bool {
        let leads = matches!(self, Self::Leads(held) if held.epoch == claim.epoch);
        if leads {
            *self = Self::Unknown;
        }
        leads
    }

    /// The claim under which this process leads.
    #[must_use]
    pub fn claim(&self) -> Option<&Claim> {
        if let Self::Leads(claim) = self { Some(claim) } else { None }
    }
}
