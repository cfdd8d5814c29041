//! What can be wrong with a configuration. All of it is the operator's to mend, and every message says where, what
//! was given and what is accepted.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

use super::DATA_VARIABLE;

/// The layer of the configuration that a mistake is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A configuration file.
    File(PathBuf),
    /// One `--set` override.
    Override(String),
    /// The configuration as a whole, after all layers were joined.
    Configuration,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Override(text) => write!(f, "--set {text}"),
            Self::Configuration => f.write_str("the configuration"),
        }
    }
}

/// Why there is no [`Config`](super::Config).
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
    #[error("{origin}: line {line}, column {column}: not valid TOML: {reason}")]
    Syntax {
        /// Where.
        origin: Origin,
        /// Line, counted from 1.
        line: usize,
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
    /// A key that does not exist.
    #[error("{}: unknown key `{}`, given {}; accepted here: {}", .0.origin, .0.key, .0.given, .0.accepted())]
    UnknownKey(Box<Mistake>),
    /// A value of the wrong type.
    #[error("{}: `{}` is {}; accepted: {}", .0.origin, .0.key, .0.given, .0.accepted())]
    WrongType(Box<Mistake>),
    /// A value of the right type outside its range.
    #[error("{}: `{}` = {} is out of range; accepted: {}", .0.origin, .0.key, .0.given, .0.accepted())]
    OutOfRange(Box<Mistake>),
    /// A name that is none of those there are: a data set, model, algorithm, or number format.
    #[error("{}: `{}`: there is no {:?}; accepted: {}", .0.origin, .0.key, .0.given, .0.accepted())]
    UnknownName(Box<Mistake>),
    /// Not exactly one alternative where exactly one is needed.
    #[error("{}: `{}` holds exactly one alternative, given {}; accepted: one of {}", .0.origin, .0.key, .0.given, .0.accepted())]
    Alternatives(Box<Mistake>),
    /// The algorithm's own hyper-parameters.
    #[error(transparent)]
    Algorithm(#[from] shared::algorithm::registry::RegistryError),
    /// The model does not take this data set's samples.
    #[error("`model.name` = {name:?} does not take samples of {set} (shape {:?}): {source}", set.shape())]
    Model {
        /// The model.
        name: String,
        /// The data set.
        set: super::DataSet,
        /// What does not fit.
        source: Box<models::ArchitectureError>,
    },
    /// Values that are fine alone and make no sense together.
    #[error("{} do not go together: {reason}", keys.join(" and "))]
    Combination {
        /// The keys with their values.
        keys: Vec<String>,
        /// Why not, and what to do.
        reason: String,
    },
    /// A data set of files, and no files.
    #[error(
        "`data.set` = \"{set}\" is read from files, and `data.path` is unset: set it to the folder of the IDX files, or set \
         {DATA_VARIABLE} to a folder that has {set}/ ({})",
        variable.as_ref().map_or_else(
            || "it is not set".to_owned(),
            |folder| format!("it is {}, which has no {set}/", folder.display())
        )
    )]
    NoData {
        /// The data set.
        set: super::DataSet,
        /// The value of the variable, if it is set.
        variable: Option<PathBuf>,
    },
    /// The folder cannot be named in full: the working directory is gone, or its name is not Unicode, which TOML
    /// cannot hold.
    #[error("`data.path`: the folder {} has no absolute Unicode name: {reason}", path.display())]
    Path {
        /// The folder.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The checks let something through that they should not have.
    #[error(
        "internal error: the checks of the configuration and its types disagree: {reason}; please report this"
    )]
    Internal {
        /// What the types say.
        reason: String,
    },
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
