//! `FedMatch`: labels at the server, and devices that ask models like their own for a second opinion.
//!
//! Jeong, Yoon, Yang, Hwang: *Federated Semi-Supervised Learning with Inter-Client Consistency & Disjoint Learning*, ICLR 2021
//! (arXiv 2006.12097), with labels at the server.
//!
//! ```text
//! theta = sigma + psi
//! server:    sigma = E_s epochs of minibatch SGD on lambda_s CE(f(x), y), psi fixed; before the first round and after each
//! client k:  psi_k = E epochs of minibatch SGD from psi on, sigma fixed, on the mean over the u with max f(u) >= gate of
//!              lambda_a CE(y_hat, f(pi(u))) + lambda_i (1/H) sum_j KL(f_j(u) || f(u))
//!            + lambda_l1 |psi|_1 + lambda_l2 ||sigma - psi||^2
//!            y_hat: what most of f, f_1, ..., f_H predict for u; f's own prediction if as many predict that
//! server:    psi = psi + mean_k (psi_k - psi)
//! ```
//!
//! where pi is a shift, a mirror image every other time if `flip` is set, and as many operations of RandAugment as `rand-augment`
//! says. The authors' program does six of its own in place of shift and mirror image, with other ranges: it turns by up to 160 degrees
//! one way, and moves and changes values less. The helpers `f_j = sigma + psi_j` are the H models whose outputs for one fixed image of
//! Gaussian noise are nearest to those of the client's own last model. Since psi is fixed while the server trains, sigma moves as theta
//! does: the server trains theta, and psi is taken off it again. psi begins as zero, or as a share of sigma: the authors' program begins
//! with a fifth.
//!
//! The paper averages psi uniformly, which is `aggregation.weights = "uniform"`: weights are an axis like elsewhere. Its weight
//! of the supervised loss, 10, is `server.weight`.
//!
//! In the authors' program the server and every client lower their rates to a third when the loss on labelled validation samples does
//! not fall for twenty of their own epochs. `server.plateau` does that at the server (with `server.epochs = 1`). Devices have no labels
//! here and follow the run's schedule; of a hundred clients, five a round, each trains for about eight epochs in 150 rounds.
//!
//! # Helpers
//!
//! A cohort is sent one broadcast, so helpers are not chosen by the server: it keeps a *bank* of what a few clients have sent,
//! drawn anew from the cohort every `refresh` rounds, and every device picks its own H of them. It knows its own there, by a tag
//! that is drawn from the run's seed, the round and the client's id, and leaves it out. As every round's broadcast has the bank,
//! a device that comes in any round can be helped. The price: a broadcast is `2 + bank` models long, and the server keeps that number
//! between rounds, on disk and, while a round is closed, in memory, for any number of clients. Without helpers it is two.
//!
//! # What clients see of each other
//!
//! Each device is sent the models of up to `bank` others, as these have trained them, and not an average: what a model gives away
//! of the samples that it was trained on, it gives away to every client of the run. The tags hide the origin from parties that
//! do not know the ids. Where that is not acceptable, `helpers = 0` sends no client's model to others, or use `FedMix`.
//!
//! The loss that is reported is that of the samples above the gate without what pulls at psi, which says nothing of the samples;
//! beside it coverage, class coverage and entropy as in [`FedMix`](super::fedmix::FedMix).

mod helpers;
mod opinion;
mod parts;

use models::params::{Array, ParamSet};
use models::{Architecture, Batch, LossGradients, ModelError, Network, Sgd, pseudo_label};

use super::unlabelled::{Seen, perturbed, suit};
use super::{
    AggregateError, Algorithm, Client, ClientNeeds, Closed, Contribution, Drawn, Incompatible, Round,
    ServerModel, Setting, Supervised, TrainError,
};
use crate::aggregation::{MergeError, WeightedSum};
use crate::data::{Augmentation, Preparation, PreparationError};
use crate::message::Rejection;
use crate::record::{Record, RecordError, ToRecord};
use crate::settings::{self, Kind};
use crate::spec::{DataSpec, Training};
use helpers::{Bank, Candidates, FixedImage, tag_of};
use opinion::Opinion;
use parts::Parts;

/// The most models that a bank may have.
const MOST: u32 = 64;

crate::section! {
    /// Two parts of a model, one of the server and one of the clients, and helpers among these.
    #[derive(Copy)]
    pub struct FedMatch {
        /// The weight of the cross-entropy with pseudo-labels.
        pub lambda_a: f64 = 0.01, in Kind::NOT_NEGATIVE;
        /// The weight of the distance to the helpers' predictions.
        pub lambda_i: f64 = 0.01, in Kind::NOT_NEGATIVE;
        /// The weight of the sum of psi's absolute values.
        pub lambda_l1: f64 = 1e-5, in Kind::NOT_NEGATIVE;
        /// The weight of the squared distance of sigma and psi.
        pub lambda_l2: f64 = 10.0, in Kind::NOT_NEGATIVE;
        /// The least probability of a class that makes a pseudo-label.
        pub gate: f64 = 0.75, in Kind::PROBABILITY;
        /// H: number of other models that vote on pseudo-labels.
        pub helpers: u32 = 2, in Kind::COUNT;
        /// Greatest number of models that each client picks its helpers from.
        pub bank: u32 = 5, in Kind::COUNT;
        /// Rounds after which the bank is filled anew.
        pub refresh: u32 = 10, in Kind::COUNT;
        /// Pixels by which pi shifts at most, in each direction.
        pub shift: u32 = 2, in Kind::COUNT;
        /// Whether pi mirrors every other time.
        pub flip: bool = true;
        /// What psi begins with, as a share of sigma; 0.2 in the authors' program.
        pub psi_start: f64 = 0.0, in Kind::NOT_NEGATIVE;
        /// Operations of RandAugment that pi does beside; the authors' program does 6 of ranges of its own.
        pub rand_augment: u32 = 0, in Kind::Whole(0, 100);
        /// Greatest strength of these operations, from 0 to 1.
        pub rand_augment_strength: f64 = 0.4, in Kind::PROBABILITY;
    }
}

/// What the updates of a round fold into.
#[derive(Debug, PartialEq)]
pub struct Folded {
    sum: WeightedSum,
    /// Whose models the next rounds' helpers are, if it is time for others.
    candidates: Option<Candidates>,
}

/// Prefixes of the two in a record.
const SUM: &str = "sum.";
const CANDIDATES: &str = "candidates.";

impl ToRecord for Folded {
    fn into_record(self) -> Record {
        let candidates = self.candidates.map(|candidates| (CANDIDATES.to_owned(), candidates.into_record()));
        Record::join(&(), [(SUM.to_owned(), self.sum.into_record())].into_iter().chain(candidates))
    }

    fn from_record(record: Record) -> Result<Self, RecordError> {
        const EXPECTED: &str = "a sum and candidates for helpers";
        let ((), mut parts) = record.split(EXPECTED)?;
        let sum = parts.remove(SUM).ok_or(RecordError::Incomplete { expected: EXPECTED })?;
        let candidates = parts.remove(CANDIDATES).map(Candidates::from_record).transpose()?;
        Ok(Self { sum: WeightedSum::from_record(sum)?, candidates })
    }
}

impl Algorithm for FedMatch {
    const NAME: &'static str = "fedmatch";
    const INCOMPATIBLE: &'static [Incompatible] = &[
        (
            Setting::Secure,
            "fedmatch sends every client's model on to others, and the server would see a sum alone: use fedmix",
        ),
        (
            Setting::Private,
            "fedmatch sends the models of single devices to others, and no noise on a sum hides those: use fedmix",
        ),
        (Setting::Numbers, "fedmatch learns from classes that models agree on: use fedavg"),
        (
            Setting::Opaque,
            "fedmatch needs two losses of our engine, and a trainer of a device's owner has its own: use fedavg",
        ),
        (
            Setting::Mixed,
            "fedmatch adds what its server has trained to what its clients have, and mixes nothing: leave server.mixing out",
        ),
        (
            Setting::Robust,
            "fedmatch gives clients each other's models, also those that a robust rule would not believe: use the mean",
        ),
        (
            Setting::Matched,
            "fedmatch's clients train a part of a model, whose units do nothing without the server's: use the mean",
        ),
        (
            Setting::Late,
            "fedmatch keeps its clients together by the models of the round, and a late update comes from another one: leave \
             round.staleness.enabled out",
        ),
        (
            Setting::TopK,
            "fedmatch keeps single clients' models as helpers of others, and the model of a few values of an update is no client's: leave \
             update.top-k out",
        ),
    ];
    type Global = Parts<ServerModel>;
    /// What the client's own last model gives for the fixed image; without tensors before its first round.
    type Local = ParamSet;
    type Broadcast = Parts<ParamSet>;
    /// `psi_k - psi`.
    type Update = ParamSet;
    type Partial = Folded;

    fn later() -> Vec<u8> {
        let Self { psi_start, rand_augment, rand_augment_strength, .. } = Self::default();
        postcard::to_stdvec(&(psi_start, rand_augment, rand_augment_strength)).expect("numbers are encoded")
    }

    fn validate(&self) -> Result<(), String> {
        settings::check(self)?;
        if self.lambda_a == 0.0 && (self.lambda_i == 0.0 || self.helpers == 0) {
            return Err("lambda-a is 0 and no helper counts: clients would learn nothing".to_owned());
        }
        if self.helpers > self.bank {
            return Err(format!(
                "helpers are picked from the bank: {} of {} cannot be, raise bank or lower helpers",
                self.helpers, self.bank
            ));
        }
        if self.bank > MOST {
            return Err(format!(
                "bank must be at most {MOST}, since it is part of every broadcast, not {}",
                self.bank
            ));
        }
        if self.refresh == 0 {
            return Err("refresh must be at least 1: it is a number of rounds".to_owned());
        }
        Ok(())
    }

    /// A device needs no labels, but images; and the pull towards sigma must not overshoot.
    fn check_data(&self, data: &DataSpec, training: &Training) -> Result<(), String> {
        // Adaptive steps are as long as their rate, however hard a term pulls.
        let pulled = |sgd: Sgd| 2.0 * self.lambda_l2 * sgd.rate;
        let pull = training.optimizer.to_engine().descent().map_or(0.0, pulled);
        if pull > 1.0 && training.epochs > 0 {
            return Err(format!(
                "every step of fedmatch moves psi towards sigma by 2 lambda-l2 times the rate, here {pull} times the \
                 distance, and beyond it: lower the learning rate or algorithm.fedmatch.lambda-l2"
            ));
        }
        suit(Self::NAME, &[self.moved(&data.preparation)], data)
    }

    /// A helper is what the server trains by now and what a client has trained a while ago, and statistics are of the two
    /// together.
    fn network(&self, configured: Architecture) -> Result<Architecture, String> {
        if self.helpers > 0 && configured.has_buffers() {
            return Err("fedmatch makes its helpers of parts from different rounds, which have no statistics of normalisation in \
                        common: use a model without batch normalisation (model.norm = \"group\"), or \
                        algorithm.fedmatch.helpers = 0"
                .to_owned());
        }
        Ok(configured)
    }

    fn init(&self, params: ParamSet) -> Self::Global {
        let mut psi = params.zeros_like();
        let mut theta = params.clone();
        if self.psi_start > 0.0 {
            psi.add_scaled(self.psi_start as f32, &params).expect("zeros of the same shapes");
            theta.add(&psi).expect("zeros of the same shapes");
        }
        Parts { theta, sigma: params, psi: ServerModel::new(psi), bank: Bank::default() }
    }

    /// theta.
    fn current_model<'a>(&self, global: &'a Self::Global) -> &'a ParamSet {
        &global.theta
    }

    fn broadcast(&self, global: &Self::Global) -> Self::Broadcast {
        let Parts { sigma, psi, theta, bank } = global;
        Parts { sigma: sigma.clone(), psi: psi.w.clone(), theta: theta.clone(), bank: bank.clone() }
    }

    fn client_needs(&self) -> ClientNeeds {
        // Helpers are put together from their parts. Where they are asked, samples and their moved copies are learned from together.
        let helpers = self.helpers.min(self.bank);
        ClientNeeds {
            received: 2 + if helpers > 0 { self.bank } else { 0 },
            held: 1 + helpers,
            frozen: helpers,
            views: if helpers > 0 && self.lambda_i > 0.0 { 2 } else { 1 },
            predictions: 1,
            ..ClientNeeds::default()
        }
    }

    fn train(
        &self,
        client: &mut Client<'_>,
        received: Self::Broadcast,
        outputs: &mut ParamSet,
    ) -> Result<ParamSet, TrainError> {
        let spec = client.spec;
        // A server is not believed that this is so.
        self.check_data(&spec.data, &spec.training).map_err(TrainError::Broadcast)?;
        let (architecture, backend) = (&spec.architecture, client.device);
        let (input, classes) = (&architecture.input, architecture.classes);
        let image = FixedImage::of(spec)?;
        let mut helpers = Vec::new();
        if self.helpers > 0 && !received.bank.is_empty() {
            let own = match outputs.get(OUTPUTS) {
                Some(kept) => kept.values().to_vec(),
                None => image.seen_by(&mut Network::new(
                    architecture,
                    &*client.start(&received.theta)?,
                    backend,
                )?)?,
            };
            helpers = received.bank.nearest(&received.sigma, client, &image, &own, self.helpers as usize)?;
        }
        let pulls = Pulls::of(self, client, &received.sigma)?;
        let moved = self.moved(&spec.data.preparation);
        moved.check(client.data).map_err(unsuited)?;
        let (gate, lambda_a, lambda_i) = (self.gate as f32, self.lambda_a as f32, self.lambda_i as f32);
        let mut seen = Seen::of(classes);
        let psi_k = client.epochs_of(&received.theta, |learner, batch, drawn: &Drawn<'_>| {
            let n = batch.len();
            let mut own = vec![0.0; n * classes];
            pseudo_label::add_probabilities(learner.predict(batch)?, classes, &mut own);
            let passes = seen.look_at(&own, gate);
            let passed = passes.iter().filter(|&&passes| passes).count();
            let opinion = Opinion::of(batch, &own, classes, &mut helpers)?;
            // The mean is over the samples that pass, and what it is taken with divides by all.
            let share = n as f32 / passed.max(1) as f32;
            let asks = !helpers.is_empty() && lambda_i > 0.0;
            let mut x = if asks { batch.x().to_vec() } else { Vec::new() };
            drawn.view(&moved, "pi", &mut x);
            let shape = [&[if asks { 2 * n } else { n }], &input[..]].concat();
            let loss = learner.step_with_loss(&Batch::unlabelled(x, shape)?, &mut |network, by| {
                let logits = network.logits();
                by.representation.clear();
                by.logits.clear();
                by.logits.resize(logits.len(), 0.0);
                let at = if asks { n * classes } else { 0 };
                let (u, pi_u) = logits.split_at(at);
                let (by_u, by_pi_u) = by.logits.split_at_mut(at);
                let weight = lambda_a * share;
                let mut loss = weight
                    * pseudo_label::soft_cross_entropy(pi_u, &opinion.labels, &passes, weight, by_pi_u);
                if asks {
                    loss += opinion.distance(u, &passes, lambda_i * share, by_u);
                }
                pulls.write(network, by)?;
                Ok(loss)
            })?;
            Ok(loss)
        })?;
        seen.report(client);
        if self.helpers > 0 {
            let seen = image.seen_by(&mut Network::new(architecture, &psi_k, backend)?)?;
            outputs.insert(
                OUTPUTS,
                Array::new([seen.len()], seen).map_err(|error| TrainError::Local(error.to_string()))?,
            );
        }
        client.delta(psi_k, &received.theta)
    }

    fn eval_model<'a>(&self, received: &'a Self::Broadcast, _outputs: &'a ParamSet) -> Option<&'a ParamSet> {
        Some(&received.theta)
    }

    fn check(&self, round: &Round<'_>, update: &ParamSet) -> Result<(), Rejection> {
        round.check(update)
    }

    fn begin(&self, round: &Round<'_>) -> Folded {
        let due = self.helpers > 0 && round.number.saturating_sub(1).is_multiple_of(self.refresh);
        Folded { sum: round.sum(), candidates: due.then(Candidates::default) }
    }

    fn fold(&self, partial: &mut Folded, contribution: Contribution<ParamSet>, round: &Round<'_>) {
        let Contribution { client, weight, report, update } = contribution;
        round.add(&mut partial.sum, &update, weight, report.loss);
        if let Some(candidates) = &mut partial.candidates {
            candidates.add(tag_of(round, client), update, self.bank);
        }
    }

    fn merge(&self, into: &mut Folded, other: Folded) -> Result<(), MergeError> {
        match (&mut into.candidates, other.candidates) {
            (None, None) => {}
            (Some(into), Some(other)) => into.merge(other, self.bank),
            _ => return Err(MergeError::Different { of: "the candidates for helpers".to_owned() }),
        }
        into.sum.merge(&other.sum)
    }

    fn close(&self, global: &mut Self::Global, partial: Folded, round: &Round<'_>) -> Closed {
        if let Some(candidates) = partial.candidates {
            global.bank = candidates.trained_from(&global.psi.w, round.number);
        }
        global.psi.step(partial.sum, 1.0, round)?;
        Ok(global.join()?)
    }

    fn supervised(&self) -> Option<&dyn Supervised<Self::Global>> {
        Some(self)
    }
}

impl Supervised<Parts<ServerModel>> for FedMatch {
    /// sigma is what the server has made of theta, without psi.
    fn take_in(&self, global: &mut Parts<ServerModel>, trained: ParamSet) -> Result<(), AggregateError> {
        global.sigma = trained.difference(&global.psi.w)?;
        Ok(global.join()?)
    }
}

/// Of what pi does RandAugment alone asks something of the samples' values.
fn unsuited(error: PreparationError) -> TrainError {
    let PreparationError::Range { found } = error else { return error.into() };
    TrainError::Unsuited(format!(
        "algorithm.fedmatch.rand-augment is for values from 0 to 1, and there is a {found} among these: scale them, or leave it out"
    ))
}

/// The tensor that [`Algorithm::Local`] has.
const OUTPUTS: &str = "outputs";

impl FedMatch {
    /// What pi does to samples that are prepared as in this run.
    fn moved(&self, run: &Preparation) -> Preparation {
        let changes = Augmentation {
            random_shift: self.shift,
            horizontal_flip: if self.flip { 0.5 } else { 0.0 },
            rand_augment: self.rand_augment,
            rand_augment_strength: self.rand_augment_strength,
            ..Augmentation::default()
        };
        perturbed(run, changes)
    }
}

/// The pulls on psi that do not depend on samples: towards zero, and towards sigma.
struct Pulls<'a> {
    by: [f32; 2],
    /// Of the tensors that follow a gradient; none if nothing pulls.
    sigma: Vec<(&'a str, &'a [f32])>,
}

impl<'a> Pulls<'a> {
    fn of(fedmatch: &FedMatch, client: &Client<'_>, sigma: &'a ParamSet) -> Result<Self, TrainError> {
        let by = [fedmatch.lambda_l1 as f32, fedmatch.lambda_l2 as f32];
        if by.iter().all(|&weight| weight == 0.0) {
            return Ok(Self { by, sigma: Vec::new() });
        }
        let learned = client.without_buffers(sigma)?;
        let sigma = sigma.iter().filter(|(name, _)| learned.get(name).is_some());
        Ok(Self { by, sigma: sigma.map(|(name, array)| (name, array.values())).collect() })
    }

    /// The gradient, which by psi is that by theta: `lambda_l1 sign(psi) + 2 lambda_l2 (psi - sigma)`, `psi = theta - sigma`.
    fn write(&self, network: &Network, by: &mut LossGradients) -> Result<(), ModelError> {
        by.parameters.clear();
        let [l1, l2] = self.by;
        for &(name, sigma) in &self.sigma {
            let theta = network.parameter(name)?;
            let gradient = |(theta, sigma): (&f32, &f32)| {
                let psi = theta - sigma;
                let sign = if psi == 0.0 { 0.0 } else { psi.signum() };
                l1 * sign + 2.0 * l2 * (psi - sigma)
            };
            by.parameters.push((name.to_owned(), theta.values().iter().zip(sigma).map(gradient).collect()));
        }
        Ok(())
    }
}
