//! Initialisation of a run directory: configuration, initial model, identity.

use std::sync::Arc;

use models::ParamSet;
use shared::record::ToRecord as _;
use shared::seed::Seed;

use super::directory::RunDirectory;
use super::error::disk;
use super::supervised::{DIVERGED, OwnLoss};
use super::{InitialModel, Run, RunError, RunManifest};
use crate::config::Config;
use crate::data::TestSet;
use crate::storage::{FileLayer, create_dir_durably, write_durably};

impl Run {
    /// Begins a run in `directory`: writes the configuration and the initial model.
    pub fn begin(
        files: Arc<dyn FileLayer>,
        directory: RunDirectory,
        config: Config,
        tests: Option<TestSet>,
    ) -> Result<Self, RunError> {
        let initial = InitialModel::read(&*files, &config)?;
        Self::begin_with(files, directory, config, tests, initial)
    }

    /// The same with what [`InitialModel::read`] has found.
    pub fn begin_with(
        files: Arc<dyn FileLayer>,
        directory: RunDirectory,
        config: Config,
        tests: Option<TestSet>,
        initial: Option<InitialModel>,
    ) -> Result<Self, RunError> {
        let mut run = Self::assemble(files, directory, config, tests)?;
        let given = initial.map(|InitialModel { params, origin, remarks, .. }| {
            run.config.effective.model.from = Some(origin);
            run.warnings.extend(remarks);
            params
        });
        let files = run.files.clone();
        let files = &*files;
        let spool = run.directory.spool();
        create_dir_durably(files, &spool).map_err(disk("create", &spool))?;
        // They may exist already, left by a process that was killed before it synced them.
        let root = run.directory.root();
        for folder in [crate::storage::parent(root), root] {
            files.sync_dir(folder).map_err(disk("sync", folder))?;
        }
        let path = run.directory.config();
        let text = run.config.effective.to_toml();
        write_durably(files, &path, |out| out.write_all(text.as_bytes())).map_err(disk("write", &path))?;
        let mut initial = run.initial_params();
        if let Some(given) = given {
            initial.overlay(given).expect("what was given was compared with the network");
        }
        let initial = run.freeze(initial)?;
        let initial = run.start(initial);
        let mut global = run.algorithm.init(initial);
        if run.supervise(&mut global, 1)? == Some(OwnLoss::Diverged) {
            run.warnings.push(format!("before the first round {DIVERGED}"));
        }
        run.write_broadcast(1, run.algorithm.broadcast(&global))?;
        run.write_checkpoint(0, &run.algorithm.store(global))?;
        RunManifest::new(&run).write(files, &run.directory)?;
        Ok(run)
    }

    /// The initial model. Where a client's own model is rebuilt from its difference to this one, it is exactly what clients are
    /// sent, rounded to the number format of the broadcast.
    fn start(&self, initial: ParamSet) -> ParamSet {
        if self.algorithm.ensemble().is_none() && self.algorithm.personal().is_none() {
            return initial;
        }
        let sent = initial.into_record().sent(self.config.spec.update.broadcast().whole());
        sent.expect("what has just been encoded is decoded").tensors
    }

    fn initial_params(&self) -> ParamSet {
        let seed = Seed::root(self.config.initial_seed).derive("initial parameters");
        let initialised = self.config.spec.architecture.initialise(|tensor| seed.derive(tensor).rng());
        let mut initial = initialised.expect("a configuration's architecture was checked when it was read");
        self.config.spec.architecture.begin_adapters(&mut initial);
        self.algorithm.start(&self.config.spec.architecture, &mut initial, &seed);
        initial
    }
}
