//! What is wrong with a trainer, a program of the device's owner.

/// What is wrong with a trainer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrainerError {
    /// It cannot be started.
    #[error("the trainer `{command}` cannot be started: {reason}")]
    Start {
        /// Its command.
        command: String,
        /// Why.
        reason: String,
    },
    /// It ended in the middle of its work.
    #[error("the trainer has ended ({how}){}", last_line(.last))]
    Ended {
        /// With which status or by which signal.
        how: String,
        /// The last line on its standard error, if there is one.
        last: String,
    },
    /// It said nothing for too long, and was ended.
    #[error(
        "the trainer gave no sign of life for {seconds} s and was ended: have it tell its progress, or raise the timeout"
    )]
    Silent {
        /// The time.
        seconds: u64,
    },
    /// It failed a moment ago, and is started again later.
    #[error("its program has failed before, and is not started for another {seconds} s")]
    Backoff {
        /// The time that is left, rounded up.
        seconds: u64,
    },
    /// It answered something else than what it was asked.
    #[error("the trainer answered {given:?}, which is {problem}: its standard output is for answers alone")]
    Answer {
        /// What it answered, cut.
        given: String,
        /// What is wrong with it.
        problem: String,
    },
    /// It says that it has failed.
    #[error("the trainer says: {reason}")]
    Failed {
        /// In its words.
        reason: String,
    },
    /// Its model cannot be used.
    #[error("the model that the trainer has written cannot be used: {reason}")]
    Model {
        /// Why.
        reason: String,
    },
    /// The machine has no room for its files.
    #[error("the files of the trainer cannot be written: {reason}")]
    Files {
        /// Why.
        reason: String,
    },
}

impl TrainerError {
    /// Whether its process is of no use any more: what is wrong with a model or with the disk is no fault of the process.
    #[must_use]
    pub fn is_of_process(&self) -> bool {
        matches!(self, Self::Start { .. } | Self::Ended { .. } | Self::Silent { .. } | Self::Answer { .. })
    }
}

fn last_line(line: &str) -> String {
    if line.is_empty() { String::new() } else { format!("; its last line: {line}") }
}
