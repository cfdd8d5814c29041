//! Diagnosis: whether this device can take part, and what to do if it cannot.
//!
//! | module | checks |
//! |---|---|
//! | [`clock`] | the time of day, and its synchronisation |
//! | [`disk`] | free space for the state directory, and durable writes |
//! | [`memory`] | free memory for training |
//! | [`power`] | temperature, voltage, battery |
//! | [`processor`] | the processors that train: cores, a GPU |
//! | [`samples`] | the device's data |
//! | [`server`] | whether the server answers, latency and datagram size |
//! | [`state`] | the content of the state directory: the device's identity and its server |
//!
//! What the [system](crate::system) does not report is no finding. Nothing is changed, except that a file is written to the state
//! directory and removed again.

pub mod clock;
pub mod disk;
pub mod memory;
pub mod power;
pub mod processor;
pub mod samples;
pub mod server;
pub mod state;

use serde::Serialize;

use crate::allowance::size as bytes;
use crate::system::System;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// No problem.
    Ok,
    /// The device can take part, but may be slow or stop.
    Warning,
    /// The device cannot take part.
    Problem,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The subject: `clock`, `disk`, `memory`, ...
    pub subject: &'static str,
    /// The severity.
    pub level: Level,
    /// What was found, for people.
    pub found: String,
    /// What to do about it; `None` if there is no problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    fn ok(subject: &'static str, found: impl Into<String>) -> Self {
        Self { subject, level: Level::Ok, found: found.into(), advice: None }
    }

    fn warning(subject: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { subject, level: Level::Warning, found: found.into(), advice: Some(advice.into()) }
    }

    fn problem(subject: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { subject, level: Level::Problem, found: found.into(), advice: Some(advice.into()) }
    }
}

/// All checks that need only the system.
#[must_use]
pub fn look_at(system: &System) -> Vec<Finding> {
    let mut findings = clock::look_at(system);
    findings.extend(memory::look_at(system));
    findings.extend(processor::look_at(system));
    findings.extend(power::look_at(system));
    findings
}

/// The highest severity; [`Level::Ok`] without findings.
#[cfg(test)]
fn worst(findings: &[Finding]) -> Level {
    findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::tests::system;

    #[test]
    fn a_system_that_tells_nothing_is_no_problem() {
        let (_root, system) = system(&[]);
        let findings = look_at(&system);
        assert_eq!(worst(&findings), Level::Ok, "{findings:?}");
    }

    #[test]
    fn this_system_can_be_looked_at() {
        let findings = look_at(&System::this());
        let subjects: Vec<&str> = findings.iter().map(|finding| finding.subject).collect();
        for subject in ["clock", "memory", "processor"] {
            assert!(subjects.contains(&subject), "{subjects:?}");
        }
        for finding in findings {
            assert_eq!(finding.level == Level::Ok, finding.advice.is_none(), "{finding:?}");
        }
    }
}
