//! Loading a model or an ensemble and its samples, for `evaluate`, `predict` and `export`.

mod checks;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use models::params::codec::TensorStream;
use models::{Architecture, Limits, ParamSet};
use shared::algorithm::Fusion;
use shared::cli::{Names, causes};
use shared::data::{DataError, Inputs, Preparation, ReadOptions, Split, View, inputs};
use shared::personalisation::Personal;
use shared::spec::{DataSpec, SAMPLES_KEY};

use super::exit::Failure;
use super::named_run::NamedRuns;
use super::{ConfigArgs, terminal};
use crate::config::Source;
use crate::data;
use crate::ensemble::{Bundle, MANIFEST_KEY};
use crate::run::directory::RunDirectory;
use crate::run::{FoundModel, Which};
use crate::storage::Disk;
use checks::check_whole;

/// Samples that are looked at together.
pub(super) const BATCH: usize = 500;

/// Which model, and on which samples.
#[derive(Debug, Args)]
pub(super) struct ModelArgs {
    /// The model or the ensemble, as a run leaves it; or the run, by its name or its directory, also while it goes on
    #[arg(long, value_name = "PATH|RUN")]
    pub(super) model: PathBuf,
    #[command(flatten)]
    named: NamedRuns,
    /// Of a run's directory, take the best of the models that were tested instead of the newest
    #[arg(long)]
    best: bool,
    /// The samples: a directory in any known format; without it the test set of CONFIG, or without that of the model's run.
    /// For predict also a directory of images, an image, a CSV table, or - for one from standard input
    ///
    /// The configuration of the run lies beside the model; where it does not, the built-in glyphs are taken.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["config", "overrides"])]
    data: Option<PathBuf>,
    /// Column of a CSV table that holds the labels [default: as the model says, else label]
    #[arg(long, value_name = "COLUMN", requires = "data")]
    label: Option<String>,
    /// Use the training split of the data instead
    #[arg(long)]
    train: bool,
    /// How the members of an ensemble become one answer [default: as its run says]
    #[arg(long, value_enum, value_name = "FUSION")]
    pub(super) fusion: Option<Fusion>,
    #[command(flatten)]
    config: ConfigArgs,
}

impl ModelArgs {
    /// Where the model lies: a file, or else a run, or else a directory with the files of one.
    fn place(&self) -> Result<PathBuf, Failure> {
        if self.model.is_file() {
            return Ok(self.model.clone());
        }
        match self.named.find(&self.model) {
            Ok(run) => Ok(run.root().to_owned()),
            Err(_) if self.model.exists() => Ok(self.model.clone()),
            Err(unknown) => Err(Failure::Environment(format!("there is no such model: {unknown}"))),
        }
    }

    /// The model, and its samples.
    pub(super) fn open(&self) -> Result<Opened, Failure> {
        let (path, usable) = self.model()?;
        let Samples { view, called, names } = self.samples(&path, &usable, self.split())?;
        Ok(Opened { usable, view, called, names })
    }

    /// The model, and its file.
    pub(super) fn model(&self) -> Result<(PathBuf, Usable), Failure> {
        let which = if self.best { Which::Best } else { Which::Newest };
        let (path, usable) = open_model(&self.place()?, which)?;
        usable.check_fusion(&self.model, self.fusion)?;
        Ok((path, usable))
    }

    /// The split that is asked for.
    pub(super) fn split(&self) -> Split {
        if self.train { Split::Train } else { Split::Test }
    }

    /// A split of the samples, which fits the model of the file at `path`.
    pub(super) fn samples(&self, path: &Path, usable: &Usable, split: Split) -> Result<Samples, Failure> {
        let (inputs, called) = match &self.data {
            Some(place) => (usable.read(place, split, self.label.as_deref())?, place.display().to_string()),
            None => usable.configured(path, &self.config, split)?,
        };
        usable.check(path, &inputs.dataset)?;
        let names = Names::of(&usable.class_names(), &inputs);
        let called = match &self.data {
            Some(place) if !place.is_dir() => called,
            _ => format!("the {} split of {called}", split.name()),
        };
        Ok(Samples { view: View::whole(Arc::new(inputs.dataset)), called, names })
    }

    /// Whether the samples are one file, which has no splits.
    pub(super) fn is_file(&self) -> bool {
        self.data.as_ref().is_some_and(|place| !place.is_dir())
    }
}

/// A model with samples that fit it.
pub(super) struct Opened {
    pub(super) usable: Usable,
    pub(super) view: View,
    /// What messages call the samples.
    pub(super) called: String,
    pub(super) names: Names,
}

/// Samples that fit a model.
pub(super) struct Samples {
    pub(super) view: View,
    /// What messages call them.
    pub(super) called: String,
    pub(super) names: Names,
}

impl Samples {
    /// Refuses samples without labels.
    pub(super) fn labelled(self) -> Result<Self, Failure> {
        if self.view.dataset().targets().is_empty() {
            return Err(Failure::Environment(format!(
                "{} has no labels to compare with: aggregator predict says what the model answers; of a CSV table --label names \
                 the column that holds them",
                self.called
            )));
        }
        Ok(self)
    }
}

/// The model that `given` names, and its file: a file is taken as it is, and of a run's directory what is asked for.
pub(super) fn open_model(given: &Path, which: Which) -> Result<(PathBuf, Usable), Failure> {
    if !given.is_dir() {
        if which == Which::Best {
            return Err(Failure::Usage(format!(
                "--best chooses among the models of a run, and {} is a file: name the run's directory, or leave --best out",
                given.display()
            )));
        }
        return Ok((given.to_owned(), Usable::open(given)?));
    }
    let run = RunDirectory::new(given.to_owned());
    let file = model_file(&run, which);
    // The files are what the run has left when it was over; a run that was continued since has something newer.
    if run.finished().is_file()
        && let Some(file) = &file
    {
        return Ok((file.clone(), Usable::open(file)?));
    }
    if !run.ensemble().is_file()
        && let Some(FoundModel { round, config, params }) = FoundModel::read(&Disk, &run, which)?
    {
        let usable = Usable::one(given, config.spec.architecture, params, Some(config.spec.data))?;
        terminal::tell(&format!("the run is not over: its model after round {round}"));
        // What lies beside the model is found by its path.
        return Ok((run.model(), usable));
    }
    let Some(file) = file else {
        let what = match which {
            Which::Newest => "model.safetensors, an ensemble.safetensors or the checkpoint of a run",
            Which::Best => "best.safetensors, or a checkpoint of a round whose model was tested",
        };
        return Err(Failure::Environment(format!(
            "{} is a directory without a {what}: name a model's file, or the directory of a run",
            given.display()
        )));
    };
    let usable = Usable::open(&file)?;
    Ok((file, usable))
}

/// The personal model in this file; `None` if it is another one.
pub(super) fn open_personal(path: &Path) -> Result<Option<Personal>, Failure> {
    if !path.is_file() || !Personal::has_metadata(&metadata(path)?) {
        return Ok(None);
    }
    let bytes = std::fs::read(path).map_err(|error| Failure::file("read", path, error))?;
    let personal =
        Personal::from_bytes(&bytes).map_err(|error| Failure::file("use the model", path, causes(&error)))?;
    check_whole(path, &personal.model.architecture, Some(&personal.samples))?;
    Ok(Some(personal))
}

/// The metadata of a model's file; errors in its header are reported when the rest is read.
fn metadata(path: &Path) -> Result<BTreeMap<String, String>, Failure> {
    let file = File::open(path).map_err(|error| Failure::file("open", path, error))?;
    let limits = Limits {
        max_bytes: u64::MAX,
        max_header: 256 << 20,
        max_tensors: 1 << 20,
        max_values: 0,
        any_order: true,
    };
    let described = TensorStream::open_described(BufReader::new(file), limits);
    Ok(described.map(|(_, metadata)| metadata).unwrap_or_default())
}

/// The file that a run has left.
fn model_file(run: &RunDirectory, which: Which) -> Option<PathBuf> {
    // Where the last model is the best, it is not left twice.
    let best = (which == Which::Best).then(|| run.best());
    best.into_iter().chain([run.model(), run.ensemble()]).find(|path| path.is_file())
}

/// A file that answers.
pub(super) enum Usable {
    /// One model, and what its samples are if it says so.
    Model(Box<Architecture>, ParamSet, Option<Box<DataSpec>>),
    /// Many.
    Ensemble(Box<Bundle>),
}

impl Usable {
    /// Opens the file as what it is.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let metadata = metadata(path)?;
        if metadata.contains_key(MANIFEST_KEY) {
            let bundle = Bundle::open_verified(Arc::new(Disk), path)?;
            check_whole(path, &bundle.manifest.architecture, Some(&bundle.manifest.data))?;
            return Ok(Self::Ensemble(Box::new(bundle)));
        }
        if Personal::has_metadata(&metadata) {
            let reason = "it is the personal model of a device, which answers with it there (edge-client predict --personal); \
                          aggregator export --to onnx takes it";
            return Err(Failure::file("use the model", path, reason));
        }
        let mut file = File::open(path).map_err(|error| Failure::file("open", path, error))?;
        let (architecture, params, metadata) = models::read_model(&mut file)
            .map_err(|error| Failure::file("read the model", path, causes(&error)))?;
        let samples = metadata.get(SAMPLES_KEY).map(|json| serde_json::from_str(json)).transpose();
        let samples = samples.map_err(|error| Failure::file("read the model", path, error))?;
        Self::one(path, architecture, params, samples)
    }

    /// One model, of the file or the run at `path`, if it can answer.
    fn one(
        path: &Path,
        architecture: Architecture,
        params: ParamSet,
        samples: Option<DataSpec>,
    ) -> Result<Self, Failure> {
        let refused = |reason: String| Err(Failure::file("use the model", path, reason));
        if architecture.is_opaque() {
            return refused(format!(
                "its network has no layers here: its file has the tensors of {} under the names of its own framework, which \
                 loads them (in Python: model.load_state_dict(safetensors.torch.load_file(...)))",
                architecture.name
            ));
        }
        check_whole(path, &architecture, samples.as_ref())?;
        if let Some(tensor) = params.first_non_finite() {
            return refused(format!(
                "tensor `{tensor}` holds a value that is not a number: its training diverged, or the file is damaged; use another \
                 model"
            ));
        }
        Ok(Self::Model(Box::new(architecture), params, samples.map(Box::new)))
    }

    /// Refuses a fusion for a single model, which `given` names, and one that an ensemble's members do not have.
    pub(super) fn check_fusion(&self, given: &Path, fusion: Option<Fusion>) -> Result<(), Failure> {
        let Some(fusion) = fusion else { return Ok(()) };
        match self {
            Self::Model(..) => Err(Failure::Usage(format!(
                "--fusion is for ensembles, and {} is one model: leave it out, or name the ensemble.safetensors of a run",
                given.display()
            ))),
            Self::Ensemble(bundle) => bundle.manifest.answering.head.check(fusion).map_err(|reason| {
                Failure::Usage(format!("--fusion {fusion} is not for {}: {reason}", given.display()))
            }),
        }
    }

    pub(super) fn architecture(&self) -> &Architecture {
        match self {
            Self::Model(architecture, ..) => architecture,
            Self::Ensemble(bundle) => &bundle.manifest.architecture,
        }
    }

    /// What its samples are, if it says so.
    pub(super) fn samples(&self) -> Option<&DataSpec> {
        match self {
            Self::Model(.., spec) => spec.as_deref(),
            Self::Ensemble(bundle) => Some(&bundle.manifest.data),
        }
    }

    pub(super) fn preparation(&self) -> Preparation {
        self.samples().map(|spec| spec.preparation.clone()).unwrap_or_default()
    }

    fn reading(&self) -> ReadOptions {
        let Architecture { task, classes, .. } = *self.architecture();
        let options = DataSpec::reading(self.samples(), task, classes);
        // A model without a description takes its samples as they are.
        let shape = options.shape.or_else(|| Some(self.architecture().input.clone()));
        ReadOptions { shape, ..options }
    }

    /// The names of the classes or of the numbers, if it says them.
    pub(super) fn class_names(&self) -> Vec<String> {
        self.samples().map(|spec| spec.output_names(self.architecture().task)).unwrap_or_default()
    }

    /// The samples at `place`.
    fn read(&self, place: &Path, split: Split, label: Option<&str>) -> Result<Inputs, Failure> {
        let options = self.reading().with_column(label);
        let inputs = options.and_then(|options| inputs::read(place, split, &options));
        inputs.map_err(|error| unread(&error, split))
    }

    /// The samples of a configuration, and what they are called. `path` is this file's.
    fn configured(
        &self,
        path: &Path,
        config: &ConfigArgs,
        split: Split,
    ) -> Result<(Inputs, String), Failure> {
        let config = config.or_of_run(path).validated()?;
        self.check_names(path, &config.spec.data)?;
        let set = config.data.set;
        let called = match &config.data.source {
            Source::Drawn { .. } => format!("{set}, which are built in"),
            Source::Trainers => "what trainers read".to_owned(),
            Source::Files { folder, .. } => format!("{set} in {}", folder.display()),
        };
        let dataset = data::load(&config, split).map_err(|error| unread(&error, split))?;
        Ok((Inputs { dataset, files: Vec::new() }, called))
    }
}

fn unread(error: &DataError, split: Split) -> Failure {
    match (error, split) {
        (DataError::OtherSplit { .. }, Split::Test) => {
            Failure::Environment(format!("{error}; --train uses these"))
        }
        (DataError::OtherSplit { .. }, Split::Train) => {
            Failure::Environment(format!("{error}; without --train these are used"))
        }
        (DataError::NoFile { .. }, Split::Test) => Failure::Environment(format!(
            "{error}: name a folder with a test split by --data, or --train for the samples that were learned"
        )),
        _ => Failure::environment(error),
    }
}

impl ConfigArgs {
    /// Where nothing is said, the configuration of the run that has left this file: it lies beside it.
    fn or_of_run(&self, path: &Path) -> Self {
        let beside = RunDirectory::new(path.parent().unwrap_or(Path::new(""))).config();
        let config = match &self.config {
            None if self.overrides.is_empty() && beside.is_file() => Some(beside),
            config => config.clone(),
        };
        Self { config, overrides: self.overrides.clone() }
    }
}

/// The model's parameters are numbers and its answers are not.
pub(super) fn no_answer(path: &Path) -> Failure {
    let reason = "its outputs for these samples are not numbers: its training diverged; use another model";
    Failure::file("use the model", path, reason)
}

#[cfg(test)]
mod tests;
