//! `aggregator privacy`: how much noise a private run needs, and what a noise gives away.

mod plan;
mod spent;

use clap::Subcommand;

use super::exit::Failure;

#[derive(Debug, Subcommand)]
pub(super) enum PrivacyCommand {
    /// Print the noise with which a run stays within epsilon, for this cohort and larger ones
    #[command(after_long_help = super::help::PRIVACY_PLAN)]
    Plan(plan::Plan),
    /// Print the epsilon of a noise
    #[command(after_long_help = super::help::PRIVACY_SPENT)]
    Spent(spent::Asked),
}

pub(super) fn privacy(command: &PrivacyCommand) -> Result<(), Failure> {
    match command {
        PrivacyCommand::Plan(plan) => plan::plan(plan),
        PrivacyCommand::Spent(asked) => spent::spent(asked),
    }
}

/// A number above 0.
fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => Err("a number above 0 is needed".to_owned()),
    }
}
