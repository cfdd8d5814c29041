//! The tasks by the names that configurations have for them.

use serde::{Deserialize, Serialize};
use shared::named;

/// What a network learns, as the configuration has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskName {
    /// One class of several.
    #[default]
    Classification,
    /// Any number of classes.
    MultiLabel,
    /// Numbers.
    Regression,
}

named!(TaskName);
