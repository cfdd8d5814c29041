//! The round that is open: what was folded in it, and whose.

use std::collections::BTreeMap;
use std::time::Instant;

use shared::aggregation::{Private, Scale, Template};
use shared::algorithm::hidden::HiddenSum;
use shared::algorithm::{AggregateError, ErasedAlgorithm, Partial, Round};
use shared::by_class::ByClass;
use shared::id::ClientId;
use shared::message::{TrainReport, UpdateHeader};
use shared::spec::RunSpec;

use super::hidden::Hidden;
use super::opening::Decision;
use super::supervised::OwnTraining;
use super::{Run, RunError, Traffic};
use crate::coordinator::{Closing, Opening};
use crate::round::Tally;

/// The open round.
pub(super) struct OpenRound {
    pub(super) opening: Opening,
    /// Number of [known](Opening::known) clients.
    pub(super) clients: usize,
    pub(super) scale: Scale,
    /// What accepted updates were folded into: a partial result for each thread that has folded any.
    pub(super) partials: Vec<Option<Partial>>,
    pub(super) opened: Instant,
    /// How the training of every accepted update went.
    pub(super) reports: BTreeMap<ClientId, TrainReport>,
    /// Their results by class of the model that clients were sent, if the run asks for them.
    pub(super) tested: BTreeMap<ClientId, ByClass>,
    /// The rounds that those of them were trained in that are late.
    pub(super) late: BTreeMap<ClientId, u32>,
    /// Bytes of the updates among them that an earlier process received.
    pub(super) received: u64,
    /// How the round closes, if an earlier process decided it.
    pub(super) decision: Option<Decision>,
    /// Whether accepted updates were in memory alone.
    pub(super) fleeting: bool,
    /// What the server itself trains in it.
    pub(super) own: Option<OwnTraining>,
    /// Where updates are hidden: their sum, and who takes part.
    pub(super) hidden: Option<Hidden>,
}

impl OpenRound {
    /// The round, as algorithms see it.
    pub(super) fn round<'a>(
        &self,
        spec: &'a RunSpec,
        template: &'a Template,
        failed: u32,
        private: Option<Private<'a>>,
    ) -> Round<'a> {
        let Self { opening, scale, clients, .. } = self;
        Round { number: opening.round, failed, spec, template, scale: *scale, clients: *clients, private }
    }

    /// All that was folded, merged; `None` if no update was.
    pub(super) fn merged(&mut self, algorithm: &dyn ErasedAlgorithm) -> Result<Option<Partial>, RunError> {
        let mut partials = std::mem::take(&mut self.partials).into_iter().flatten();
        let Some(mut whole) = partials.next() else { return Ok(None) };
        for other in partials {
            algorithm.merge(&mut whole, other).map_err(AggregateError::from)?;
        }
        Ok(Some(whole))
    }

    /// Takes note of an accepted update's report.
    /// Returns its fingerprint.
    pub(super) fn note(&mut self, client: ClientId, header: UpdateHeader, tested: ByClass) -> u32 {
        let mut report = header.report;
        if header.round < self.opening.round {
            self.late.insert(client, header.round);
            // What it found of a model is not of the one that this round's clients were sent.
            report.metrics = report.metrics.map(|metric| metric.filter(|metric| !metric.is_of_model()));
        } else if !tested.is_empty() {
            self.tested.insert(client, tested);
        }
        self.reports.insert(client, report);
        report.fingerprint()
    }

    /// The decision to close it with the updates that it has.
    pub(super) fn decision(&self, tally: &Tally, traffic: Traffic) -> Decision {
        let contributors = self.reports.keys().copied().collect();
        let closing = Closing { contributors, late: self.late.clone(), tally: *tally };
        Decision { closing, traffic, seconds: self.opened.elapsed().as_secs_f64() }
    }
}

impl Run {
    pub(super) fn open_round(&self, opening: &Opening) -> Result<OpenRound, RunError> {
        let max_abs = self.config.policy.max_abs;
        let scale = match self.private() {
            Some(private) => private.mechanism.scale(max_abs),
            None => opening.scale(&self.config.spec, max_abs),
        };
        let own = if opening.work.train { self.train_own(opening.round)? } else { None };
        let mut open = OpenRound {
            opening: opening.clone(),
            clients: opening.known().len(),
            scale,
            partials: Vec::new(),
            opened: Instant::now(),
            reports: BTreeMap::new(),
            tested: BTreeMap::new(),
            late: BTreeMap::new(),
            received: 0,
            decision: None,
            fleeting: false,
            own,
            hidden: None,
        };
        let spec = &self.config.spec;
        let noisy = spec.device_noise.is_some() && opening.work.train;
        if noisy || spec.secure.of(opening.work).is_some() {
            open.hidden = Some(Hidden::new(HiddenSum::new(&*self.algorithm, &self.round_of(&open))?));
        }
        Ok(open)
    }
}
