//! What can be wrong with a configuration. The operator corrects all of it, and every message says where, what
//! was given and what is accepted.

use models::shape::spelled;
use std::fmt;
use std::path::PathBuf;

use shared::data::DataSet;
use thiserror::Error;

/// The environment variable that names the folder of data sets, one sub-folder each.
pub const DATA_VARIABLE: &str = "FEDERATION_DATA";

/// The layer of the configuration that a mistake is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A line of a configuration file.
    File {
        /// The file, as it was named.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
    /// One `--set` override.
    Override(String),
    /// The configuration as a whole, after all layers were joined.
    Configuration,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Override(text) => write!(f, "--set {text}"),
            Self::Configuration => f.write_str("the configuration"),
        }
    }
}

/// Everything that is wrong with a configuration, as far as one mistake does not follow from another. At least one.
#[derive(Debug)]
pub struct ConfigErrors(pub(super) Vec<ConfigError>);

impl ConfigErrors {
    /// Errors that are shown. A file with more is no configuration, and a screen has an end.
    pub const SHOWN: usize = 20;

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[ConfigError] {
        &self.0
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = &self.0[..] {
            return only.fmt(f);
        }
        write!(f, "the configuration has {} mistakes:", self.0.len())?;
        for error in self.0.iter().take(Self::SHOWN) {
            write!(f, "\n  {error}")?;
        }
        match self.0.len().saturating_sub(Self::SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

/// One thing that is wrong with a configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file is absent or cannot be read.
    #[error("cannot read the configuration {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file is no configuration by its size alone.
    #[error("{}: a configuration has at most {limit} bytes and this file has more", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The greatest size in bytes.
        limit: u64,
    },
    /// The text is not TOML.
    #[error("{origin}:{column}: not valid TOML: {reason}")]
    Syntax {
        /// Where.
        origin: Origin,
        /// Column in characters, counted from 1.
        column: usize,
        /// What the parser says.
        reason: String,
    },
    /// An override is not of the form `KEY=VALUE`, or sets what an override cannot.
    #[error("--set {given}: {reason}; an override is KEY=VALUE, as in --set training.epochs=5")]
    Override {
        /// The override.
        given: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The file of an experiment where that of a run should be.
    #[error(
        "{origin}: `{key}` is a key of experiments, not of runs: `aggregator compare FILE` runs an experiment"
    )]
    Experiment {
        /// Where.
        origin: Origin,
        /// What gives it away.
        key: &'static str,
    },
    /// A key that does not exist.
    #[error("{}: unknown key `{}`, given {}; accepted here: {}", .0.origin, .0.key, .0.given, .0.accepted())]
    UnknownKey(Box<Mistake>),
    /// A value of the wrong type.
    #[error("{}: `{}` is {}; accepted: {}", .0.origin, .0.key, .0.given, .0.accepted())]
    WrongType(Box<Mistake>),
    /// A value of the right type that is not accepted: a number outside its range, a text of the wrong form.
    #[error("{}: `{}` cannot be {}; accepted: {}", .0.origin, .0.key, .0.given, .0.accepted())]
    OutOfRange(Box<Mistake>),
    /// A name that is none of those there are: a data set, model, algorithm, or number format.
    #[error("{}: `{}`: there is no {:?}; accepted: {}", .0.origin, .0.key, .0.given, .0.accepted())]
    UnknownName(Box<Mistake>),
    /// Something that must be there and is not.
    #[error("{}: `{}`, given {}, lacks {}", .0.origin, .0.key, .0.given, .0.accepted())]
    Missing(Box<Mistake>),
    /// Not exactly one alternative where exactly one is needed.
    #[error("{}: `{}` holds exactly one alternative, given {}; accepted: one of {}", .0.origin, .0.key, .0.given, .0.accepted())]
    Alternatives(Box<Mistake>),
    /// The algorithm's own hyper-parameters.
    #[error("{origin}: {source}")]
    Algorithm {
        /// Where.
        origin: Origin,
        /// What it refuses.
        source: shared::algorithm::registry::RegistryError,
    },
    /// The model does not take this data set's samples.
    #[error("{origin}: `model.name` = {name:?} does not take samples of {set} (shape {}): {source}", spelled(.shape))]
    Model {
        /// Where the model is named.
        origin: Origin,
        /// The model.
        name: String,
        /// The data set.
        set: &'static DataSet,
        /// Shape of one of its samples, as the model would see it.
        shape: Vec<usize>,
        /// What does not fit.
        source: Box<models::ArchitectureError>,
    },
    /// The layers of a network do not fit each other, or not the samples.
    #[error("{origin}: `{layer}` does not fit, with samples of {set} (shape {}): {source}", spelled(.shape))]
    Network {
        /// Where the layer was given.
        origin: Origin,
        /// Which one it is.
        layer: String,
        /// The data set.
        set: &'static DataSet,
        /// Shape of one of its samples, as the network would see it.
        shape: Vec<usize>,
        /// What does not fit.
        source: Box<models::ArchitectureError>,
    },
    /// Values that are fine alone and make no sense together.
    #[error("{} {}: {reason}", keys.join(" and "), if keys.len() == 1 { "is refused" } else { "do not go together" })]
    Combination {
        /// The keys with their values and where they were given.
        keys: Vec<String>,
        /// Why not, and what to do.
        reason: String,
    },
    /// A data set of files, and no files.
    #[error(
        "{origin}: `data.set` = \"{set}\" is read from files, and `data.path` is unset: set it to the folder of {}, or set \
         {DATA_VARIABLE} to a folder that has {set}/ ({})",
        set.files,
        variable.as_ref().map_or_else(
            || "it is not set, or empty".to_owned(),
            |folder| format!("it is {}, which has no {set}/", folder.display())
        )
    )]
    NoData {
        /// Where the data set is named.
        origin: Origin,
        /// The data set.
        set: &'static DataSet,
        /// The value of the variable, if it is set.
        variable: Option<PathBuf>,
    },
    /// A file or a folder cannot be named in full: the working directory was deleted, or its name is not Unicode, which TOML
    /// cannot hold.
    #[error("`{key}`: {} has no absolute Unicode name: {reason}", path.display())]
    Path {
        /// The key that names it.
        key: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The checks let something through that they should not have.
    #[error("the checks of the configuration and its types disagree: {reason}; please report this")]
    Internal {
        /// What the types say.
        reason: String,
    },
}

impl ConfigError {
    /// The line of the file that it is in, where it is in one.
    pub(super) fn line(&self) -> Option<usize> {
        let origin = match self {
            Self::UnknownKey(mistake)
            | Self::WrongType(mistake)
            | Self::OutOfRange(mistake)
            | Self::UnknownName(mistake)
            | Self::Missing(mistake)
            | Self::Alternatives(mistake) => &mistake.origin,
            Self::Syntax { origin, .. } => origin,
            _ => return None,
        };
        match origin {
            Origin::File { line, .. } => Some(*line),
            _ => None,
        }
    }
}

/// One key or value that is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where it is.
    pub origin: Origin,
    /// The full path of the key.
    pub key: String,
    /// What was given, shortened; with its type where that matters.
    pub given: String,
    /// What is accepted: names, or words for a type and range.
    pub accepted: Vec<String>,
    /// One of the accepted names, or a key elsewhere, that looks like what was meant.
    pub suggestion: Option<String>,
}

impl Mistake {
    fn accepted(&self) -> String {
        let accepted = self.accepted.join(", ");
        match &self.suggestion {
            None => accepted,
            Some(suggestion) => format!("{accepted}; did you mean `{suggestion}`?"),
        }
    }
}
