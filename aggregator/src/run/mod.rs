//! A run on disk: the durable steps that the coordinator asks for.
//!
//! [`Run`] carries out [`Action::Open`], [`Action::Fold`] and [`Action::Close`] and nothing else; it is synchronous
//! and is given a thread of its own by the driver.
//!
//! # Durability
//!
//! Three steps are durable, each by an atomic rename after a sync, or a synced append:
//!
//! 1. *open*: `round-N.json` with the cohort;
//! 2. *accept*: an update moves from the spool into `accepted-N/`, before it is folded and before its receipt;
//! 3. *close*: the line in `rounds.jsonl`, then `checkpoint-N`.
//!
//! Whatever moment the process dies at, the newest checkpoint says which rounds are closed, the opening record and the
//! accepted updates restore the round that was open, and folding them again gives the same bits, because sums are
//! exact. Nothing else is needed: half-written files carry other names, and files of closed rounds are removed.
//!
//! # Memory
//!
//! Between opening and closing the server's state rests on disk, unless it is small: in memory are the sums and at most
//! one update. When the round closes, the sums shrink tensor by tensor as the mean is taken. What the cohort is sent is
//! read from its file by whoever sends it.
//!
//! [`Action::Open`]: crate::coordinator::Action::Open
//! [`Action::Fold`]: crate::coordinator::Action::Fold
//! [`Action::Close`]: crate::coordinator::Action::Close

pub mod directory;
mod error;
mod evaluation;
mod recovery;
mod update_file;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use models::{Limits, ParamSet, Precision};
use serde::{Deserialize, Serialize};
use shared::aggregation::Scale;
use shared::algorithm::{Checked, ErasedAlgorithm, Global, Partial, Round, Template, registry};
use shared::id::ClientId;
use shared::message::{Rejection, UpdateHeader};
use shared::parcel::Parcel;
use shared::spec::RunSpec;

use crate::config::Config;
use crate::coordinator::{Opening, Tally};
use crate::files::{FileLayer, write_durably};
use crate::report::{RoundRecord, jsonl};

use directory::{RunDirectory, round_in};
pub(crate) use error::{damaged, disk};

pub use error::RunError;
pub use evaluation::TestSet;

/// A payload may exceed the plain encoding of the model by this much: headers and metadata.
const PAYLOAD_SLACK: u64 = 1 << 20;

/// State and broadcasts up to this size stay in memory as well, where they cost little and save copies.
const SMALL: u64 = 16 << 20;

/// What a round's cohort is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broadcast {
    /// The round.
    pub round: u32,
    /// The file that holds it.
    pub path: PathBuf,
    /// Its length in bytes.
    pub length: u64,
    /// Its bytes, shared by all who send it, if they are few.
    pub content: Option<Bytes>,
}

/// Bytes on the wire, as the driver counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Server to clients.
    pub down: u64,
    /// Clients to server.
    pub up: u64,
}

/// The opening of a round, on disk.
#[derive(Serialize, Deserialize)]
struct OpeningRecord {
    cohort: BTreeMap<ClientId, u64>,
    roster: BTreeMap<ClientId, u64>,
}

/// The sums of the open round.
struct Sums {
    round: u32,
    scale: Scale,
    partial: Option<Partial>,
    opened: Instant,
    loss_sum: f64,
    folded: usize,
}

/// A run on disk.
pub struct Run {
    files: Arc<dyn FileLayer>,
    directory: RunDirectory,
    config: Config,
    algorithm: Box<dyn ErasedAlgorithm>,
    template: Template,
    tests: Option<TestSet>,
    records: Vec<RoundRecord>,
    /// The newest checkpoint's round.
    closed: u32,
    open: Option<Sums>,
    /// The state of the newest checkpoint, if it is small.
    resident: Option<Parcel>,
}

impl Run {
    /// Begins a run in `directory`: writes the configuration and the initial model.
    pub fn begin(
        files: Arc<dyn FileLayer>,
        directory: RunDirectory,
        config: Config,
        tests: Option<TestSet>,
    ) -> Result<Self, RunError> {
        let run = Self::assemble(files, directory, config, tests)?;
        let files = &*run.files;
        for path in [run.directory.state(), run.directory.spool()] {
            files.create_dir(&path).map_err(disk("create", &path))?;
        }
        let root = crate::files::parent(run.directory.root());
        files.sync_dir(root).map_err(disk("sync", root))?;
        let path = run.directory.config();
        let text = run.config.effective.to_toml();
        write_durably(files, &path, |out| out.write_all(text.as_bytes())).map_err(disk("write", &path))?;
        let initial = run.initial_params();
        let global = run.algorithm.init(initial);
        run.write_broadcast(1, &run.algorithm.broadcast(&global))?;
        run.write_checkpoint(0, &run.algorithm.store(global))?;
        let path = run.directory.identity();
        let identity =
            serde_json::json!({ "run": run.config.spec.run, "version": env!("CARGO_PKG_VERSION") });
        write_durably(files, &path, |out| out.write_all(format!("{identity}\n").as_bytes()))
            .map_err(disk("write", &path))?;
        Ok(run)
    }

    fn assemble(
        files: Arc<dyn FileLayer>,
        directory: RunDirectory,
        config: Config,
        tests: Option<TestSet>,
    ) -> Result<Self, RunError> {
        let algorithm = registry::build(&config.spec.algorithm)?;
        let mut run = Self {
            files,
            directory,
            config,
            algorithm,
            template: Template::of(&ParamSet::new()),
            tests,
            records: Vec::new(),
            closed: 0,
            open: None,
            resident: None,
        };
        let specs = run.config.spec.architecture.parameter_specs().map_err(models::ModelError::from)?;
        run.template = Template::new(specs.into_iter().map(|spec| (spec.name, spec.shape)));
        Ok(run)
    }

    fn initial_params(&self) -> ParamSet {
        let seed = self.config.spec.root_seed().derive("initial parameters");
        let initialised = self.config.spec.architecture.initialise(|tensor| seed.derive(tensor).rng());
        initialised.expect("a configuration's architecture was checked when it was read")
    }

    /// What the run does.
    #[must_use]
    pub fn spec(&self) -> &RunSpec {
        &self.config.spec
    }

    /// The run's configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
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

    /// The closed rounds.
    #[must_use]
    pub fn records(&self) -> &[RoundRecord] {
        &self.records
    }

    /// Largest payload that an honest client sends.
    #[must_use]
    pub fn max_payload(&self) -> u64 {
        let width = self.config.spec.precision.update.bytes() as u64;
        // An algorithm may send more than one set of parameters; four are more than any sends.
        4 * width * self.template.parameters() as u64 + PAYLOAD_SLACK
    }

    /// Step *open*. Reopening a round with a larger cohort keeps its sums.
    pub fn open(&mut self, opening: &Opening) -> Result<Broadcast, RunError> {
        let path = self.directory.opening(opening.round);
        let record = OpeningRecord { cohort: opening.cohort.clone(), roster: opening.roster.clone() };
        let json = serde_json::to_vec(&record).expect("ids and counts are JSON");
        let accepted = self.directory.accepted(opening.round);
        self.files.create_dir(&accepted).map_err(disk("create", &accepted))?;
        write_durably(&*self.files, &path, |out| out.write_all(&json)).map_err(disk("write", &path))?;
        if self.open.as_ref().is_none_or(|sums| sums.round != opening.round) {
            self.open = Some(self.sums(opening));
        }
        self.broadcast(opening.round)
    }

    /// What the cohort of `round` is sent, made from the checkpoint if the file is gone.
    pub fn broadcast(&self, round: u32) -> Result<Broadcast, RunError> {
        let path = self.directory.broadcast(round);
        let present = self.files.length(&path).map_err(disk("look at", &path))?;
        let length = match present {
            Some(length) => length,
            None => self.write_broadcast(round, &self.algorithm.broadcast(&self.load(round - 1)?))?,
        };
        let mut content = None;
        if length <= SMALL {
            let mut bytes = Vec::with_capacity(length as usize);
            let mut file = self.files.open(&path).map_err(disk("open", &path))?;
            file.read_to_end(&mut bytes).map_err(disk("read", &path))?;
            content = Some(bytes.into());
        }
        Ok(Broadcast { round, path, length, content })
    }

    /// Step *accept*, if the update in the spool file `upload` is believable; then it is part of the sums. The bytes of
    /// `upload` have been synced by whoever received them.
    pub fn fold(
        &mut self,
        round: u32,
        client: ClientId,
        upload: &Path,
    ) -> Result<Result<(), Rejection>, RunError> {
        let checked = self.read_update(round, upload).and_then(|(header, update)| {
            let sums = self.open.as_ref().expect("updates are folded between open and close");
            Ok((header, self.algorithm.check(&self.round(sums.round, sums.scale), update)?))
        });
        let (header, update) = match checked {
            Ok(checked) => checked,
            Err(rejection) => {
                self.files.remove(upload).map_err(disk("remove", upload))?;
                return Ok(Err(rejection));
            }
        };
        let path = self.directory.accepted_update(round, client);
        self.files.rename(upload, &path).map_err(disk("move an update to", &path))?;
        let accepted = self.directory.accepted(round);
        self.files.sync_dir(&accepted).map_err(disk("sync", &accepted))?;
        self.add(client, header, update);
        Ok(Ok(()))
    }

    /// Step *close*: the new model, its evaluation, the next broadcast, the record, the checkpoint.
    pub fn close(&mut self, round: u32, tally: &Tally, traffic: Traffic) -> Result<RoundRecord, RunError> {
        let sums = self.open.take().expect("a round is closed after it was opened");
        let (partial, folded, loss_sum) = (sums.partial, sums.folded, sums.loss_sum);
        let mut global = match self.resident.take() {
            Some(state) => self.algorithm.restore(state)?,
            None => self.load(round - 1)?,
        };
        if let (Some(partial), false) = (partial, tally.void) {
            self.algorithm.close(&mut global, partial, &self.round(round, sums.scale))?;
        }
        let due = self.config.evaluate.after(round, self.config.spec.rounds);
        let evaluation = match (&self.tests, due) {
            (Some(tests), true) => {
                Some(tests.evaluate(&self.config.spec.architecture, self.algorithm.published(&global))?)
            }
            _ => None,
        };
        if round < self.config.spec.rounds {
            self.write_broadcast(round + 1, &self.algorithm.broadcast(&global))?;
        }
        let record = RoundRecord {
            round,
            accuracy: evaluation.map(|evaluation| evaluation.accuracy),
            loss: evaluation.map(|evaluation| evaluation.loss).filter(|loss| loss.is_finite()),
            train_loss: (folded > 0).then(|| loss_sum / folded as f64),
            sampled: tally.sampled,
            accepted: tally.accepted,
            rejected: tally.rejected,
            discarded: tally.discarded,
            failed: tally.failed,
            lost: tally.lost,
            bytes_down: traffic.down,
            bytes_up: traffic.up,
            seconds: sums.opened.elapsed().as_secs_f64(),
            waited_for: tally.waited_for,
        };
        let path = self.directory.rounds();
        let line = jsonl::line(&record);
        self.files.append(&path, line.as_bytes()).map_err(disk("append to", &path))?;
        let state = self.algorithm.store(global);
        self.write_checkpoint(round, &state)?;
        self.closed = round;
        if state.encoded_len(Precision::F32) <= SMALL {
            self.resident = Some(state);
        }
        self.records.push(record.clone());
        Ok(record)
    }

    /// The model that would be published now.
    pub fn published(&self) -> Result<ParamSet, RunError> {
        let global = self.load(self.closed)?;
        Ok(self.algorithm.published(&global).clone())
    }

    /// Writes `model.safetensors`.
    pub fn write_model(&self) -> Result<PathBuf, RunError> {
        let path = self.directory.model();
        let params = self.published()?;
        let spec = &self.config.spec;
        let mut extra = BTreeMap::new();
        extra.insert("run".to_owned(), spec.name.clone());
        extra.insert("data".to_owned(), self.config.data.set.name().to_owned());
        extra.insert("rounds".to_owned(), self.closed.to_string());
        let mut failure = None;
        let written = write_durably(&*self.files, &path, |out| {
            models::write_model(&spec.architecture, &params, &extra, out).map_err(|error| {
                let text = error.to_string();
                failure = Some(error);
                std::io::Error::other(text)
            })
        });
        match (written, failure) {
            (Ok(()), _) => Ok(path),
            (Err(_), Some(failure)) => Err(failure.into()),
            (Err(source), None) => Err(disk("write", &path)(source)),
        }
    }

    fn round(&self, number: u32, scale: Scale) -> Round<'_> {
        Round { number, spec: &self.config.spec, template: &self.template, scale }
    }

    fn sums(&self, opening: &Opening) -> Sums {
        let weights = self.config.spec.weights;
        let largest = opening.roster.values().map(|&samples| weights.of(samples)).max().unwrap_or(1);
        let scale = Scale::agree(self.config.policy.max_abs, largest, opening.roster.len());
        Sums { round: opening.round, scale, partial: None, opened: Instant::now(), loss_sum: 0.0, folded: 0 }
    }

    fn add(&mut self, client: ClientId, header: UpdateHeader, update: Checked) {
        let mut sums = self.open.take().expect("updates are folded between open and close");
        let mut partial =
            sums.partial.take().unwrap_or_else(|| self.algorithm.begin(&self.round(sums.round, sums.scale)));
        let weight = self.config.spec.weights.of(header.report.samples);
        self.algorithm.fold(&mut partial, client, weight, header.report, update);
        sums.partial = Some(partial);
        sums.loss_sum += header.report.loss;
        sums.folded += 1;
        self.open = Some(sums);
    }

    fn read_update(&self, round: u32, path: &Path) -> Result<(UpdateHeader, Parcel), Rejection> {
        let unreadable = |error: std::io::Error| Rejection::Malformed { reason: error.to_string() };
        let mut input = self.files.open(path).map_err(unreadable)?;
        let (header, parcel) = update_file::read(&mut input, self.max_payload())?;
        if header.round == round {
            Ok((header, parcel))
        } else {
            Err(Rejection::UnknownRound { round: header.round, current: round })
        }
    }

    fn load(&self, round: u32) -> Result<Global, RunError> {
        let path = self.directory.checkpoint(round);
        let mut input = self.files.open(&path).map_err(disk("open", &path))?;
        let parcel = Parcel::read_from(&mut input, Limits { max_bytes: u64::MAX, ..Limits::default() })
            .map_err(damaged(&path))?;
        Ok(self.algorithm.restore(parcel)?)
    }

    fn write_checkpoint(&self, round: u32, state: &Parcel) -> Result<(), RunError> {
        let path = self.directory.checkpoint(round);
        write_durably(&*self.files, &path, |out| state.write_to(Precision::F32, out))
            .map_err(disk("write", &path))
    }

    /// Not durable: it can be made again from the checkpoint.
    fn write_broadcast(&self, round: u32, parcel: &Parcel) -> Result<u64, RunError> {
        let path = self.directory.broadcast(round);
        let partial = crate::files::partial(&path);
        let precision = self.config.spec.precision.broadcast;
        let write = || {
            let mut file = self.files.create(&partial)?;
            parcel.write_to(precision, &mut *file)?;
            file.flush()?;
            drop(file);
            self.files.rename(&partial, &path)
        };
        write().map_err(disk("write", &path))?;
        Ok(parcel.encoded_len(precision))
    }

    /// Removes what closed rounds left. Nothing waits for it: the driver does it while clients train.
    pub fn tidy(&self) -> Result<(), RunError> {
        let closed = self.closed;
        let state = self.directory.state();
        for name in self.files.list(&state).map_err(disk("list", &state))? {
            let path = state.join(&name);
            let superseded = round_in(&name, "checkpoint-", ".safetensors")
                .is_some_and(|round| round < closed)
                || round_in(&name, "broadcast-", ".safetensors").is_some_and(|round| round <= closed)
                || round_in(&name, "round-", ".json").is_some_and(|round| round < closed)
                || name.ends_with(".partial");
            if superseded {
                self.files.remove(&path).map_err(disk("remove", &path))?;
            } else if round_in(&name, "accepted-", "").is_some_and(|round| round <= closed) {
                self.files.remove_dir(&path).map_err(disk("remove", &path))?;
            }
        }
        Ok(())
    }
}
