//! A run on disk: the durable steps that the coordinator asks for.
//!
//! [`Run`] carries out [`Action::Open`], [`Action::Fold`] and [`Action::Close`], and settles what was closed; it is
//! synchronous and is given a thread of its own by the driver.
//!
//! # Durability
//!
//! Three steps are durable, each by an atomic rename after a sync, or a synced append:
//!
//! 1. *open*: `round-N.json` with the cohort;
//! 2. *accept*: an update moves from the spool into `accepted-N/`, before its receipt; one sync serves all updates that
//!    waited for it;
//! 3. *close*: the decision, with all whose updates count, in `round-N.json`, unless the whole cohort has contributed and
//!    there is nothing to decide; from then on the round has one outcome.
//!
//! The roster is saved as well when it changes between rounds: the scale of the next round's sums depends on all of it.
//!
//! After a close come the line in `rounds.jsonl` and, last, `checkpoint-N` (*settle*). Both can be computed again, so they wait until
//! the next round is open and its clients are at work; no update of that round is accepted before. They do not wait where that
//! would need memory, where updates were in memory alone, after a void round or after the last one.
//!
//! Where models travel as differences, what devices have of them is durable before the checkpoint is (`bases.rs`).
//!
//! If the process dies at any moment, the newest checkpoint says which rounds are settled, the opening record and
//! the accepted updates restore the round that was open, and folding them again gives the same bits, because sums
//! are exact. If the next round was open already, that round is closed again before any client connects; what its clients
//! hold then rests on the two processes computing the same bits. Nothing else is needed: half-written files carry
//! other names, and files of closed rounds are removed.
//!
//! Where [updates are hidden](shared::secure), *agree* and *decide* are durable steps as well (`hidden.rs`).
//!
//! # The server's own training
//!
//! If the server has labelled samples, it trains a model of its own while clients train (`supervised.rs`), and mixes it with
//! what they have learned. Nothing of that is durable: a process that resumes an open round computes it again, to the same
//! bits. Of `FedMatch` it is a step: it is done in beginning the run and in closing every round, and is in the checkpoint.
//!
//! # Memory
//!
//! Between opening and closing the server's state rests on disk, unless it is small: in memory are the sums and one update
//! for each thread that folds (`fold.rs`). When the round closes, the sums shrink tensor by tensor as the mean is taken. What the cohort is sent is
//! read from its file when it is sent. A server that trains itself has one more model in memory, and when the round
//! closes the one that it began with, if that has a share in the mixture. `FedMatch`'s state is as many models as its bank has,
//! and two.
//!
//! Under an aggregation rule that needs every update, none is summed up: `accepted-N/` is where they wait, and when the
//! round closes the rule reads them from there, in step with each other and a few thousand values at a time (`stored.rs`,
//! a [`StoredUpdates`](shared::aggregation::StoredUpdates)). Memory is then that of one model and a little per update.
//!
//! Where the clients' models stay side by side, the accepted updates become members of `ensemble.safetensors`
//! (`ensemble.rs`), which is written anew, a few values at a time.
//!
//! [`Action::Open`]: crate::coordinator::Action::Open
//! [`Action::Fold`]: crate::coordinator::Action::Fold
//! [`Action::Close`]: crate::coordinator::Action::Close

mod accept;
mod artifacts;
mod at_leaves;
mod bases;
mod broadcast;
mod change;
mod checkpoint;
mod client_metrics;
mod clip;
mod clock;
mod close;
mod collapse;
pub mod directory;
mod ensemble;
mod error;
mod fold;
mod foreign;
mod frozen;
mod hidden;
mod init;
mod initial_model;
mod initial_model_error;
mod leaf;
mod lease;
mod leaves;
mod leaves_error;
mod manifest;
mod misfit;
mod newest;
mod open_round;
mod opening;
mod payload;
mod plateau;
pub mod reader;
mod recovery;
mod roster_file;
mod rounds_file;
mod secret;
mod stored;
mod supervised;
mod tester;
mod testing;
pub(crate) mod update_file;
mod upload;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use models::Backend;
use serde::{Deserialize, Serialize};
use shared::aggregation::Template;
use shared::algorithm::{ErasedAlgorithm, registry};
use shared::data::View;
use shared::record::Record;
use shared::secret::Secret;
use shared::spec::RunSpec;

use crate::config::Config;
use crate::data::{self, KeptSamples, TestSet};
use crate::privacy::account::Account;
use crate::round::stopping::EarlyEnd;
use crate::round::{ClosedRound, PlateauState, Poisson, RoundRecord, stopping};
use crate::storage::FileLayer;

use bases::Bases;
use clock::RunClock;
use directory::RunDirectory;
pub(crate) use error::{damaged, disk};
use open_round::OpenRound;
use tester::Tester;

pub use broadcast::{Broadcast, Delivery, Difference, Part};
pub use change::Extent;
pub use error::RunError;
pub use foreign::NamesError;
pub use initial_model::InitialModel;
pub use initial_model_error::InitialModelError;
pub use leaf::{LeafRun, Sent};
pub use lease::{Confirmed, Lease};
pub use leaves::{HeldUpdate, LeafUpload, Leaves, RoundAtLeaves};
pub use leaves_error::LeavesError;
pub use manifest::RunManifest;
pub use misfit::Misfit;
pub use newest::{FoundModel, Which};
pub use supervised::OwnProgress;
pub use upload::Upload;

/// State and broadcasts up to this size stay in memory as well, where they cost little and save copies.
const SMALL: u64 = 16 << 20;

/// Bytes on the wire, as the driver counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Server to clients.
    pub down: u64,
    /// Clients to server.
    pub up: u64,
}

/// A run on disk.
pub struct Run {
    files: Arc<dyn FileLayer>,
    directory: RunDirectory,
    config: Box<Config>,
    algorithm: Box<dyn ErasedAlgorithm>,
    template: Template,
    /// What noise and cohorts are drawn from, if the run is private.
    secret: Option<Secret>,
    /// What its rounds give away, once it was asked for.
    account: OnceLock<Account>,
    /// The length to which updates are clipped in the open round or the next one, if that adapts.
    clip: Option<f64>,
    /// Where the rule of `server.plateau` stands after the closed rounds, if there is one.
    plateau: Option<PlateauState>,
    /// What the model is tested on, if it is.
    pub tests: Option<TestSet>,
    /// The operator's own program that tests it, where its network has no layers here.
    tester: Option<Tester>,
    /// The samples whose labels the server has.
    labelled: Option<View>,
    /// What models are chosen by, if that is kept apart.
    validation: Option<TestSet>,
    /// How far the server's own training is.
    own_progress: Arc<OwnProgress>,
    /// Threads that it takes.
    own_threads: usize,
    /// Whether the clients are in this process.
    simulated: bool,
    /// Where the server trains and tests, and simulated clients train: other processors give other bits. By default it is the
    /// CPU. Starting or resuming the run computes there in any case.
    pub backend: Backend,
    records: Vec<RoundRecord>,
    /// Whether missing records may still come back ([`Run::restore_rounds`]).
    records_are_expected: bool,
    /// Whether the copy of the rounds has every line of their file.
    rounds_are_copied: bool,
    /// Closed rounds of training without a result. Also where their records are lost.
    failed: u32,
    /// The last closed round.
    closed: u32,
    open: Option<OpenRound>,
    /// Repairs that resuming needed, and failures before the first round, for the operator.
    warnings: Vec<String>,
    /// The state after the last closed round, if it is small or not written yet.
    resident: Option<Record>,
    /// What devices have, where models travel as differences.
    bases: Box<Bases>,
    /// The last closed round, until its line is written down.
    unsettled: Option<Box<ClosedRound>>,
    /// The newest checkpoint's round.
    settled: u32,
    /// A round that was closed again when the run was resumed, until it is reported.
    reclosed: Option<RoundRecord>,
    /// What the time of this process goes to.
    clock: RunClock,
    /// Receives every closed round once its checkpoint is durable.
    on_closed: Option<Box<dyn FnMut(ClosedRound) + Send>>,
    /// Where the updates are, in a cluster.
    leaves: Option<Box<dyn Leaves>>,
}

impl Run {
    fn assemble(
        files: Arc<dyn FileLayer>,
        directory: RunDirectory,
        mut config: Config,
        tests: Option<TestSet>,
    ) -> Result<Self, RunError> {
        let algorithm = registry::build(&config.spec.algorithm)?;
        let specs = config.spec.architecture.parameter_specs().map_err(models::ModelError::from)?;
        let template = Template::of_updates(specs, config.spec.aggregation.buffers);
        let KeptSamples { labelled, validation } = data::kept(&config)?;
        let tester = Tester::of(&config, &directory);
        let secret = config.promise.map(|_| secret::of(&config, &*files, &directory)).transpose()?;
        // Where devices add the noise they are not drawn by chance: it hides none of them from the server.
        let drawn = config.promise.filter(|promise| promise.device_noise.is_none());
        config.policy.poisson = drawn.zip(secret).map(|(promise, secret)| Poisson {
            rate: promise.mechanism.rate,
            most: promise.most(),
            devices: promise.mechanism.devices,
            secret,
        });
        Ok(Self {
            tester,
            secret,
            clip: clip::first(&config),
            plateau: plateau::first(config.server.plateau),
            files,
            directory,
            config: Box::new(config),
            algorithm,
            template,
            tests,
            labelled,
            validation,
            own_progress: Arc::default(),
            simulated: false,
            own_threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            backend: Backend::cpu(),
            records: Vec::new(),
            records_are_expected: false,
            rounds_are_copied: false,
            failed: 0,
            closed: 0,
            open: None,
            warnings: Vec::new(),
            resident: None,
            bases: Box::default(),
            account: OnceLock::new(),
            unsettled: None,
            settled: 0,
            reclosed: None,
            clock: RunClock::start(),
            on_closed: None,
            leaves: None,
        })
    }

    /// The specification that clients are told.
    #[must_use]
    pub fn spec(&self) -> &RunSpec {
        &self.config.spec
    }

    /// The run's configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The clients are simulated, and there are this many. The first round waits for no others, a void round is not waited out, since
    /// nothing about them changes meanwhile, no time limit counts, and the server's own training leaves them the processors but
    /// one.
    pub fn simulates(&mut self, clients: usize) {
        // There is no server here to hide anything from: the same sums without masks, in rounds of the same least size.
        self.config.spec.secure.enabled = false;
        let policy = &mut self.config.policy;
        policy.start = policy.start.min(clients.max(1));
        policy.void_pause = Duration::ZERO;
        self.config.ignore_time_limits();
        self.own_threads = 1;
        self.simulated = true;
    }

    /// Whether the clients are [simulated](Self::simulates).
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.simulated
    }

    /// How far the server's own training is, also when the run is elsewhere.
    #[must_use]
    pub fn own_progress(&self) -> Arc<OwnProgress> {
        self.own_progress.clone()
    }

    /// The lease under which this server leads the run, where others may come to do so.
    #[must_use]
    pub fn lease(&self) -> Option<Lease> {
        self.leaves.as_ref()?.lease()
    }

    /// The disk that the run lives on.
    #[must_use]
    pub fn files(&self) -> Arc<dyn FileLayer> {
        self.files.clone()
    }

    /// Where the run lives.
    #[must_use]
    pub fn directory(&self) -> &RunDirectory {
        &self.directory
    }

    /// Number of closed rounds.
    #[must_use]
    pub fn closed(&self) -> u32 {
        self.closed
    }

    /// The round that training ended with before all were over, if it did.
    #[must_use]
    pub fn ended(&self) -> Option<u32> {
        stopping::ended(&self.records, &self.config.stop).or_else(|| self.budget_is_spent())
    }

    /// Why a run that is complete has fewer rounds than it was asked for; `None` if it has all of them.
    #[must_use]
    pub fn early_end(&self) -> Option<EarlyEnd> {
        let early = self.last_trained() < stopping::planned(&self.records, self.config.spec.rounds);
        if early && stopping::ended(&self.records, &self.config.stop).is_some() {
            return Some(EarlyEnd::EarlyStopping);
        }
        if self.spent() || early && self.budget_is_spent().is_some() {
            return Some(EarlyEnd::Budget);
        }
        let bounded = self.config.promise.is_some_and(|promise| promise.participations.is_some());
        (early && bounded).then_some(EarlyEnd::Participations)
    }

    /// Closed rounds of training without a result: each adds one to the rounds of the run.
    #[must_use]
    pub fn failed(&self) -> u32 {
        self.failed
    }

    /// The number of the last round of training, as far as it is known.
    #[must_use]
    pub fn last(&self) -> u32 {
        let ended = self.ended().or_else(|| stopping::before_closing(&self.records));
        ended.unwrap_or_else(|| self.config.spec.rounds.saturating_add(self.failed))
    }

    /// The round whose model is the best of those that were tested.
    #[must_use]
    pub fn best(&self) -> Option<stopping::Best> {
        stopping::best(&self.records, self.config.stop.metric)
    }

    /// Whether the last closed round has its checkpoint.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.settled == self.closed
    }

    /// Takes the round that was closed again to resume the run, so that it is reported once.
    pub fn take_reclosed(&mut self) -> Option<RoundRecord> {
        self.reclosed.take()
    }

    /// The closed rounds.
    #[must_use]
    pub fn records(&self) -> &[RoundRecord] {
        &self.records
    }

    /// Repairs that resuming needed, and failures before the first round, for the operator.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Hands every closed round to `receiver` from now on, once its checkpoint is durable and before the files are removed
    /// that say whose updates it is made of.
    pub fn on_closed(&mut self, receiver: impl FnMut(ClosedRound) + Send + 'static) {
        self.on_closed = Some(Box::new(receiver));
    }
}
