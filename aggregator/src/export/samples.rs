//! What samples are in files, and the functions that read them.

use models::{Architecture, Task};
use shared::data::text::VOCABULARY;
use shared::spec::DataSpec;

use super::python::{definition, literal, tuple};

/// The functions that read files.
const READING: &str = include_str!("python/reading.py");

/// What samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Images, grey or in colour.
    Image,
    /// Rows of a table.
    Table,
    /// Characters, in the vocabulary that is the same for every text.
    Text,
    /// Texts of a table's column, whose bytes are tokens.
    Bytes,
    /// Tokens whose vocabulary is not in the model.
    Tokens,
    /// Numbers of another shape.
    Array,
}

impl Kind {
    /// Of samples of this shape before they are prepared.
    pub(super) fn of(architecture: &Architecture, samples: Option<&DataSpec>, shape: &[usize]) -> Self {
        let unnamed = samples.is_none_or(|samples| samples.class_names.is_empty());
        if samples.is_some_and(|samples| samples.text.is_some()) {
            return Self::Bytes;
        }
        match (architecture.vocabulary(), shape) {
            (Some(VOCABULARY), _) if architecture.predictions() != Ok(1) && unnamed => Self::Text,
            (Some(_), _) => Self::Tokens,
            (None, [1 | 3, _, _]) => Self::Image,
            (None, [_]) => Self::Table,
            (None, _) => Self::Array,
        }
    }

    pub(super) fn is_tokens(self) -> bool {
        matches!(self, Self::Text | Self::Bytes | Self::Tokens)
    }

    /// What the axes of a sample are.
    pub(super) fn axes(self, shape: &[usize]) -> &'static str {
        match (self, shape) {
            (Self::Image, _) | (Self::Array, [_, _, _]) => "channels, height, width",
            (Self::Text | Self::Bytes | Self::Tokens, _) => "positions",
            (Self::Table, _) => "features",
            (Self::Array, _) => "its axes",
        }
    }

    /// Arguments of the command, and what they do.
    pub(super) fn usage(self, task: Task, is_sequence: bool) -> Vec<(&'static str, &'static str)> {
        let arrays = ("SAMPLES.npy", "the same for an array of samples");
        let texts = ("TEXT.txt", "the same for one text");
        if !task.is_classification() {
            return match self {
                Self::Image => vec![("IMAGE.png ...", "what is predicted for each image"), arrays],
                Self::Table => vec![("TABLE.csv", "what is predicted for each row"), arrays],
                Self::Bytes => vec![("TABLE.csv", "what is predicted for each text"), texts, arrays],
                Self::Text | Self::Tokens | Self::Array => {
                    vec![("SAMPLES.npy", "what is predicted for each sample")]
                }
            };
        }
        match self {
            Self::Image => vec![("IMAGE.png ...", "the most probable class of each image"), arrays],
            Self::Table => vec![("TABLE.csv", "the most probable class of each row"), arrays],
            Self::Text => vec![("TEXT.txt", "the most probable next character"), arrays],
            Self::Bytes => vec![("TABLE.csv", "the most probable class of each text"), texts, arrays],
            Self::Tokens if is_sequence => {
                vec![("SAMPLES.npy", "the most probable next token of each sample")]
            }
            Self::Tokens | Self::Array => vec![("SAMPLES.npy", "the most probable class of each sample")],
        }
    }

    /// What files the command takes.
    pub(super) fn help(self) -> &'static str {
        match self {
            Self::Image => "images (PNG, JPEG), or arrays of samples (.npy)",
            Self::Table => "CSV tables with a header, or arrays of samples (.npy)",
            Self::Text => "texts in UTF-8, or arrays of tokens (.npy)",
            Self::Bytes => "CSV tables with a header, texts in UTF-8, or arrays of tokens (.npy)",
            Self::Tokens => "arrays of tokens (.npy)",
            Self::Array => "arrays of samples (.npy)",
        }
    }

    /// What the functions that read go by.
    pub(super) fn constants(self, columns: &[String], text: Option<&str>, features: &[String]) -> String {
        match self {
            Self::Bytes => {
                format!(
                    "# The column of a table that holds the texts.\nCOLUMN = {}\n\n",
                    literal(text.unwrap_or_default())
                )
            }
            Self::Table => {
                let names =
                    |names: &[String]| tuple(&names.iter().map(|name| literal(name)).collect::<Vec<_>>());
                format!(
                    "# The columns of a table that are no features, and those that are, in order; all others if none are named.\n\
                     TARGETS = {}\nFEATURES = {}\n\n",
                    names(columns),
                    names(features)
                )
            }
            Self::Text => {
                // As `shared::data::text::token` has them.
                "# The characters in the order of their tokens; one more token is for all others.\n\
                 CHARACTERS = \"\\n\" + \"\".join(map(chr, range(32, 127)))\n\n"
                    .to_owned()
            }
            Self::Image | Self::Tokens | Self::Array => String::new(),
        }
    }

    /// The functions of [`READING`] that it takes; the first one reads a file.
    fn functions(self) -> &'static [&'static str] {
        match self {
            Self::Image => &["read_image"],
            Self::Table => &["read_table"],
            Self::Text => &["read_text", "tokens"],
            Self::Bytes => &["read_texts", "tokens_of"],
            Self::Tokens | Self::Array => &[],
        }
    }
}

/// The functions that read samples from files.
pub(super) fn reading(kind: Kind) -> Vec<String> {
    let functions = kind.functions();
    let array = "np.load(path)";
    let read = functions.first().map_or_else(
        || array.to_owned(),
        |function| format!("{array} if path.suffix == \".npy\" else {function}(path)"),
    );
    let read = format!(
        "def read(path: Path) -> np.ndarray:\n    \"\"\"The samples of a file.\"\"\"\n    return {read}"
    );
    functions.iter().map(|name| definition(READING, name).to_owned()).chain([read]).collect()
}
