//! A configuration for the user's own data: what a folder holds, and the `run.toml` that learns from it.
//!
//! * [`choice`]: a model and settings that suit the samples;
//! * `document`: the configuration as text, with comments.

pub mod choice;
mod document;

use std::path::Path;

use shared::data::survey::{Survey, SurveyError, survey};

pub use choice::Choice;

/// A configuration that was written for a folder.
#[derive(Debug)]
pub struct Suggestion {
    /// What the folder holds.
    pub survey: Survey,
    /// What was chosen for it.
    pub choice: Choice,
    /// The configuration.
    pub text: String,
}

impl Suggestion {
    /// For this folder. `path` is how the configuration names it, and `name` the run's name.
    ///
    /// # Errors
    /// [`SurveyError`] with everything that is in the way.
    pub fn of(folder: &Path, path: &str, name: &str) -> Result<Self, SurveyError> {
        let survey = survey(folder)?;
        let choice = Choice::of(&survey);
        let text = document::of(&survey, &choice, path, name);
        Ok(Self { survey, choice, text })
    }
}

#[cfg(test)]
mod tests;
