//! Step *close*: the sums become the next model.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use models::{ParamSet, Precision};
use shared::aggregation::{Contributor, Mixture, NoisedShare, Private, Weights};
use shared::algorithm::{AggregateError, Global, Round};
use shared::by_class::ByClass;
use shared::id::ClientId;
use shared::message::TrainReport;

use tracing::warn;

use super::collapse::Outlook;
use super::leaves::Leaves;
use super::opening::Decision;
use super::stored::StoredRound;
use super::supervised::{OwnLoss, OwnTraining};
use super::{OpenRound, Run, RunError, SMALL, Traffic, client_metrics};
use crate::coordinator::{Opening, Revealed};
use crate::round::{ClosedRound, Dominance, EarlyStopping, RoundRecord, Tally, UpdateWork, stopping};

impl Run {
    /// Step *close*: the decision, then the new model, its evaluation and the next broadcast. The record and the checkpoint may be
    /// left to [`Run::settle`]. A decision of an earlier process is carried out as it was made.
    pub fn close(&mut self, round: u32, tally: &Tally, traffic: Traffic) -> Result<RoundRecord, RunError> {
        self.close_revealed(round, tally, traffic, &Revealed::new())
    }

    /// The same where updates are hidden: takes their masks away with what was revealed.
    pub fn close_revealed(
        &mut self,
        round: u32,
        tally: &Tally,
        traffic: Traffic,
        revealed: &Revealed,
    ) -> Result<RoundRecord, RunError> {
        self.checkpoint()?;
        let mut open = self.open.take().expect("a round is closed after it was opened");
        let begun = Instant::now();
        let mut decision = match open.decision.take() {
            Some(decision) => decision,
            None => self.decide(&open, tally, traffic)?,
        };
        if open.hidden.is_some() {
            // Devices that were to take the masks away may have been lost since it was decided.
            decision.closing.tally.void |= tally.void;
            self.gather_decided(&mut open, &decision)?;
        } else {
            let clients = open.reports.keys().copied().collect();
            self.sum_at_leaves(&mut open, &clients)?;
        }
        let hidden = open.hidden.take();
        let is_hidden = hidden.is_some();
        let train_loss = if let Some(hidden) = hidden {
            let (partial, loss) = self.unmask(&open.opening, hidden, &mut decision, revealed)?.unzip();
            open.partials = vec![partial];
            loss.flatten()
        } else {
            mean(&open.reports, |report| report.loss)
        };
        let tally = decision.closing.tally;
        let mut global = match self.resident.take() {
            Some(state) => self.algorithm.restore(state)?,
            None => self.load(round - 1)?,
        };
        let share = NoisedShare::default();
        let own_loss = self.learn(&mut global, &mut open, &tally, &share)?;
        let mut leaves = self.leaves.take();
        let measured = self.measure(&global, &open, &decision, (train_loss, own_loss), leaves.as_mut());
        self.leaves = leaves;
        let (mut record, test) = measured?;
        self.adapt_clip(&mut record, &share);
        self.adapt_plateau(&record);
        self.clock.closed(&mut record, begun, test);
        let recorded = Instant::now();
        self.failed += u32::from(record.void && !record.closing);
        self.records.push(record.clone());
        client_metrics::keep_newest(&mut self.records);
        let more = self.config.spec.work_after(round, self.last()).is_some();
        // What devices have of the next round's model follows from all before, also if there are to be more rounds one day.
        if more || self.config.spec.update.broadcast().is_difference() {
            self.write_broadcast(round + 1, self.algorithm.broadcast(&global))?;
        }
        let state = self.algorithm.store(global);
        let small = state.encoded_len(Precision::F32) <= SMALL;
        self.resident = Some(state);
        self.closed = round;
        // Only a receiver asks for it, and a simulation has none.
        let work = if self.on_closed.is_some() { self.work(round, &open.reports) } else { BTreeMap::new() };
        let contributors = open.reports.into_keys().collect();
        self.unsettled = Some(Box::new(ClosedRound { record: record.clone(), contributors, work }));
        // The accepted updates are durable and give this model again, so that its checkpoint may wait until the next
        // round's clients are at work; but not if that needs memory, or if the updates were in memory alone. After a
        // failed round and after the last nothing is in a hurry.
        if !small || is_hidden || open.fleeting || tally.void || !more || self.leaves.is_some() {
            self.checkpoint()?;
        }
        self.keep()?;
        self.clock.stepped(recorded);
        Ok(record)
    }

    /// What the accepted updates of a round took.
    fn work(&self, round: u32, reports: &BTreeMap<ClientId, TrainReport>) -> BTreeMap<ClientId, UpdateWork> {
        let took = |(&client, report): (&ClientId, &TrainReport)| {
            let path = self.directory.accepted_update(round, client);
            let length = self.files.length(&path).map(|length| length.map(|length| self.came(&path, length)));
            let seconds = report.duration.as_secs_f64();
            (client, UpdateWork { seconds, bytes: length.ok().flatten() })
        };
        reports.iter().map(took).collect()
    }

    /// Decides which updates make the new model, and writes it down where another process might decide otherwise.
    fn decide(&self, open: &OpenRound, tally: &Tally, traffic: Traffic) -> Result<Decision, RunError> {
        let decision = open.decision(tally, traffic);
        // A round to which the whole cohort has contributed, and nothing else came of it, has one outcome anyway: any process
        // that finds these updates decides the same.
        let cohort = &open.opening.cohort;
        // An empty cohort looks like one of which no update has come yet.
        let evident = !cohort.is_empty()
            && *tally == Tally::of_whole(cohort.len())
            && decision.closing.contributors.iter().eq(cohort.keys());
        // The updates of a simulation end with this process. After a failed round an algorithm may keep something of them, so the
        // next process runs that round again instead of resuming its close.
        let made_again = tally.void && open.fleeting;
        if !evident && !made_again {
            self.write_opening(&open.opening, Some(&decision))?;
        }
        Ok(decision)
    }

    /// Makes the new state of what was accepted, and notes the noised share of updates that were not clipped; gives the loss of the
    /// server's own training.
    fn learn(
        &self,
        global: &mut Global,
        open: &mut OpenRound,
        tally: &Tally,
        share: &NoisedShare,
    ) -> Result<Option<OwnLoss>, RunError> {
        let partial = open.merged(&*self.algorithm)?;
        let private = self.private().map(|private| Private { share: Some(share), ..private });
        let round = Round { private, ..self.round_of(open) };
        let counts = !tally.void && open.opening.work.train;
        // In a private round noise alone tells that no device has come as little as that one has.
        let partial = match partial {
            None if counts && round.private.is_some() => Some(self.algorithm.begin(&round)?),
            partial => partial,
        };
        if !counts || open.reports.is_empty() && round.private.is_none() {
            // Nothing counts, or nothing was learned: the model stays. But clients keep what they were told that counts.
            if let Some(partial) = partial {
                self.algorithm.close_failed(global, partial, &round)?;
            }
            return Ok(None);
        }
        let mixture = self.config.server.mixture;
        // If the server's model has the whole weight and there is none, the previous model is kept.
        let omega = (mixture.gamma > 0.0 || mixture.alpha == 0.0)
            .then(|| self.algorithm.current_model(global).clone());
        if self.config.spec.aggregation.rule.needs_every_update() {
            self.algorithm.close_stored(global, &mut self.stored(&open.opening, &open.reports), &round)?;
        } else if let Some(partial) = partial {
            self.algorithm.close(global, partial, &round)?;
        }
        if let Some(answering) = self.algorithm.ensemble() {
            let start = self.algorithm.current_model(global);
            self.extend_ensemble(answering, start, &open.opening, &open.reports)?;
        }
        self.mix(round.number, global, open.own.take(), omega.as_ref())
    }

    /// The record of a round, with the test of its model where one is due, and the time of the test.
    fn measure(
        &self,
        global: &Global,
        open: &OpenRound,
        decision: &Decision,
        (train_loss, own_loss): (Option<f64>, Option<OwnLoss>),
        leaves: Option<&mut Box<dyn Leaves>>,
    ) -> Result<(RoundRecord, Option<Duration>), RunError> {
        let OpenRound { opening, reports, .. } = open;
        let (round, work, tally) = (opening.round, opening.work, &decision.closing.tally);
        let mut metrics = client_metrics::means(reports, work);
        let last = self.config.spec.rounds.saturating_add(self.failed);
        let is_last = round >= last || self.ends_with(round, &metrics, tally.void);
        let due = work.train && (is_last || self.config.spec.evaluate.after(round, last));
        let begun = Instant::now();
        let tests = self.tests.as_ref().filter(|_| due);
        let tested = match tests {
            Some(tests) => self.tested(global, open, tests, leaves)?,
            None => None,
        };
        metrics.extend(self.validated(global, due)?);
        let own = self.tester.as_ref().filter(|_| due).and_then(|tester| {
            let params = self.algorithm.current_model(global);
            let found = tester.test(&self.config.spec, round, params, is_last);
            found.map_err(|error| warn!("round {round}: the model is not tested: {error}")).ok()
        });
        let took = (tests.is_some() || own.is_some()).then(|| begun.elapsed());
        let (evaluation, more) = tested.map(|tested| (tested.evaluation, tested.metrics)).unzip();
        metrics.extend(more.unwrap_or_default());
        let trained = work.train && !reports.is_empty();
        let by_samples = trained && !tally.void && self.config.spec.aggregation.weights == Weights::Samples;
        let samples = reports.iter().map(|(&client, report)| (client, report.samples));
        let mut record = RoundRecord {
            round,
            accuracy: evaluation.and_then(|tested| tested.accuracy).or(own.and_then(|own| own.accuracy)),
            loss: evaluation
                .map(|evaluation| evaluation.loss)
                .or(own.map(|own| own.loss))
                .filter(|loss| loss.is_finite()),
            train_loss: train_loss.filter(|_| trained),
            steps: if trained { mean(reports, |report| report.steps as f64) } else { None },
            metrics,
            closing: !work.train,
            // Of single devices a private run keeps nothing.
            clients: if work.tests() && self.config.promise.is_none() {
                client_metrics::of_model(reports, work)
            } else {
                BTreeMap::new()
            },
            by_class: if work.tests() { ByClass::sum(open.tested.values()) } else { ByClass::default() },
            diverged: own_loss == Some(OwnLoss::Diverged),
            dominance: if by_samples { Dominance::among(samples, opening.sample_cap) } else { None },
            ..counted(tally, decision.traffic, decision.seconds)
        };
        if let Some(epsilon) = self.epsilon_after(round).filter(|_| work.train) {
            record.metrics.insert(self.config.epsilon_is_called().to_owned(), epsilon);
        }
        if let Some(OwnLoss::Mean(loss)) = own_loss {
            record.metrics.insert("server-loss".to_owned(), loss);
            if self.plateau.is_some() {
                record.metrics.insert("server-rate-share".to_owned(), self.server_rate_share());
            }
        }
        if let Some(labelled) = self.labelled.as_ref().filter(|_| work.train) {
            let spec = &self.config.spec;
            let params = self.algorithm.current_model(global);
            let (preparation, batch) = (&spec.data.preparation, self.config.spec.evaluate.batch as usize);
            Outlook::of(labelled, preparation, &spec.architecture, params, batch)?
                .note(&mut record, &self.records);
        }
        Ok((record, took))
    }

    /// Whether training ends with a round of which clients found this: then its model is tested as the last one planned is.
    fn ends_with(&self, round: u32, metrics: &BTreeMap<String, f64>, void: bool) -> bool {
        let (evaluate, stop) = (&self.config.spec.evaluate, &self.config.stop);
        if evaluate.every == 0
            || !stop.metric.is_of_clients()
            || *stop == (EarlyStopping { metric: stop.metric, ..EarlyStopping::default() })
        {
            return false;
        }
        let mut records = self.records.clone();
        records.push(RoundRecord { round, metrics: metrics.clone(), void, ..RoundRecord::default() });
        stopping::ended(&records, stop).is_some()
    }

    /// Mixes what clients have learned with what the server has, and with the model before; gives the loss of the server's own
    /// training. Where that is a step of the algorithm it is taken now, in time for the next round, and nothing is mixed.
    fn mix(
        &self,
        round: u32,
        global: &mut Global,
        own: Option<OwnTraining>,
        omega: Option<&ParamSet>,
    ) -> Result<Option<OwnLoss>, RunError> {
        if self.algorithm.supervised().is_some() {
            return self.supervise(global, round + 1);
        }
        let mut mixture = self.config.server.mixture;
        if mixture == Mixture::CLIENTS {
            return Ok(None);
        }
        let own = own.map(OwnTraining::finish).transpose()?;
        let own_loss =
            own.as_ref().map(|own| own.as_ref().map_or(OwnLoss::Diverged, |own| OwnLoss::Mean(own.loss)));
        if own_loss == Some(OwnLoss::Diverged) {
            mixture = mixture.without_sigma();
        }
        let own = own.flatten().map(|own| own.params);
        let psi = self.algorithm.mixable(global).ok_or(AggregateError::NoMixture)?;
        mixture.mix(psi, own.as_ref(), omega).map_err(AggregateError::from)?;
        if let Some(tensor) = psi.first_non_finite() {
            return Err(AggregateError::NotFinite { tensor: tensor.to_owned() }.into());
        }
        Ok(own_loss)
    }

    /// The accepted updates of a round with these reports.
    fn stored(&self, opening: &Opening, reports: &BTreeMap<ClientId, TrainReport>) -> StoredRound<'_> {
        let weights = self.config.spec.aggregation.weights;
        let update = |(&client, report): (&ClientId, &TrainReport)| {
            let contributor =
                Contributor { client, weight: weights.of(opening.sample_cap.of(report.samples)) };
            (contributor, self.directory.accepted_update(opening.round, client))
        };
        StoredRound::new(&*self.files, reports.iter().map(update), self.max_payload())
    }
}

/// What a round's record says of its arrivals.
fn counted(tally: &Tally, traffic: Traffic, seconds: f64) -> RoundRecord {
    RoundRecord {
        sampled: tally.sampled,
        accepted: tally.accepted,
        rejected: tally.rejected,
        discarded: tally.discarded,
        failed: tally.failed,
        late: tally.late,
        not_now: tally.not_now,
        lost: tally.lost,
        void: tally.void,
        bytes_down: traffic.down,
        bytes_up: traffic.up,
        seconds,
        waited_for: tally.waited_for,
        ..RoundRecord::default()
    }
}

/// The mean over those who have trained: one who is a member of the ensemble already took no step. In the order of the clients, so
/// that it does not depend on who came first.
fn mean(reports: &BTreeMap<ClientId, TrainReport>, of: impl Fn(&TrainReport) -> f64) -> Option<f64> {
    let values: Vec<f64> = reports.values().filter(|report| report.steps > 0).map(of).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
