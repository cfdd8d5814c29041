//! The status line: what the client is doing now.

use shared::message::{Progress, Purpose};

use crate::driver::Notice;

/// Characters of a bar.
const BAR: usize = 24;

const WAITING: &str = "waiting for a task";

/// What the client is doing now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatusLine {
    doing: Doing,
    line: String,
    /// Epochs per round of the joined run.
    epochs: u64,
}

/// What decides which notices change the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Doing {
    /// The next notice is shown.
    #[default]
    Waiting,
    /// The operator has to approve the device, whether it is connected or not.
    Approval,
    /// Training, which needs no connection.
    Training,
    /// A test, or a personal model: as training, but without progress.
    OtherTask,
    Sending,
}

impl StatusLine {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn connecting(&mut self, server: &str) {
        (self.doing, self.line) = (Doing::Waiting, format!("connecting to {server}"));
    }

    pub(crate) fn over(&mut self) {
        *self = Self::new();
    }

    pub(crate) fn handle(&mut self, notice: &Notice) {
        let works = self.works();
        (self.doing, self.line) = match notice {
            // The task of a newer round may arrive while this one is trained.
            // So may the receipt of an older one.
            Notice::Connected { .. }
            | Notice::Disconnected { .. }
            | Notice::Receiving { .. }
            | Notice::Receipt { .. }
                if works =>
            {
                return;
            }
            Notice::Connected { .. } | Notice::Disconnected { .. } if self.doing == Doing::Approval => return,
            Notice::Disconnected { server, .. } => return self.connecting(server),
            Notice::Joined { spec } => {
                self.epochs = spec.training.epochs.into();
                if works || self.doing == Doing::Sending {
                    return;
                }
                (Doing::Waiting, WAITING.to_owned())
            }
            &Notice::Receiving { round, received, total } => {
                let (bar, received, total) = (bar(received, total), size(received), size(total));
                (Doing::Waiting, format!("round {round}: receiving {bar} {received} of {total}"))
            }
            &Notice::Training { round, work } => match work.purpose() {
                Purpose::Training => {
                    let progress = Progress { round: Some(round), done: 0, total: 0 };
                    (Doing::Training, self.training(progress))
                }
                Purpose::Personalising => {
                    (Doing::OtherTask, format!("round {round}: making a model of its own"))
                }
                Purpose::Testing => (Doing::OtherTask, format!("round {round}: testing the model")),
            },
            Notice::NoRoom { .. }
            | Notice::NoRoomForState { .. }
            | Notice::ServerKey { .. }
            | Notice::Servers { .. }
            | Notice::State { .. }
            | Notice::Untested { .. }
            | Notice::Refused { .. }
            | Notice::Hidden { .. }
            | Notice::Alive => return,
            Notice::Progress(_) if self.doing == Doing::OtherTask => return,
            Notice::Progress(progress) => (Doing::Training, self.training(*progress)),
            Notice::Hiding { round } => (
                Doing::OtherTask,
                format!("round {round}: waiting for others to hide the update among theirs"),
            ),
            &Notice::Trained { round, bytes, .. } => {
                (Doing::Sending, format!("round {round}: sending {}", size(bytes as u64)))
            }
            Notice::TurnedBack { .. } => (Doing::Approval, "waiting for the operator's approval".to_owned()),
            // The server asks again later.
            Notice::Ineligible { round, reason } => {
                (Doing::Waiting, format!("round {round}: not trained ({reason}); {WAITING}"))
            }
            Notice::Connected { .. } | Notice::Failed { .. } | Notice::Receipt { .. } => {
                (Doing::Waiting, WAITING.to_owned())
            }
        };
    }

    /// Whether the device works on a task.
    pub(crate) fn works(&self) -> bool {
        matches!(self.doing, Doing::Training | Doing::OtherTask)
    }

    /// What decides which notices change it.
    pub(crate) fn kind(&self) -> Doing {
        self.doing
    }

    /// The line; empty if there is nothing to show.
    pub(crate) fn line(&self) -> &str {
        &self.line
    }

    fn training(&self, Progress { round, done, total }: Progress) -> String {
        let round = round.map(|round| format!("round {round}: ")).unwrap_or_default();
        let bar = bar(done, total);
        // All epochs have the same number of steps.
        let ended = (u128::from(done) * u128::from(self.epochs)).checked_div(total.into());
        match ended.filter(|_| self.epochs > 0) {
            Some(ended) => {
                let epoch = (ended + 1).min(self.epochs.into());
                format!("{round}training {bar} epoch {epoch}/{}, step {done}/{total}", self.epochs)
            }
            None => format!("{round}training {bar}"),
        }
    }
}

/// A size for people.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.0} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

fn bar(done: u64, total: u64) -> String {
    let full = (u128::from(done.min(total)) * BAR as u128).checked_div(total.into()).unwrap_or(0) as usize;
    format!("[{}{}]", "=".repeat(full), " ".repeat(BAR - full))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shared::eligibility::Ineligible;
    use shared::message::{TaskKind, TrainReport, Verdict};
    use shared::spec::RunSpec;

    use super::*;

    #[test]
    fn a_round_is_followed_step_by_step() {
        let mut status = StatusLine::new();
        assert_eq!(status.line(), "");
        status.connecting("lab:4433");
        assert_eq!(status.line(), "connecting to lab:4433");
        let mut spec = RunSpec::example("fedavg");
        spec.training.epochs = 5;
        let progress = |done| Notice::Progress(Progress { round: Some(2), done, total: 50 });
        let lost = || Notice::Disconnected {
            server: "lab:4433".to_owned(),
            reason: "gone".to_owned(),
            retry: Duration::ZERO,
        };
        let receipt = Notice::Receipt { round: 2, verdict: Verdict::Accepted };
        for (notice, line) in [
            (Notice::Connected { server: "lab:4433".to_owned() }, "waiting for a task"),
            (Notice::Joined { spec: spec.into() }, "waiting for a task"),
            (
                Notice::Receiving { round: 2, received: 500_000, total: 1_000_000 },
                "round 2: receiving [============            ] 500 kB of 1.0 MB",
            ),
            (
                Notice::Training { round: 2, work: TaskKind { train: false, ..TaskKind::TRAIN } },
                "round 2: testing the model",
            ),
            (
                Notice::Training {
                    round: 2,
                    work: TaskKind { train: false, personalise: true, ..TaskKind::TRAIN },
                },
                "round 2: making a model of its own",
            ),
            (progress(1), "round 2: making a model of its own"),
            (
                Notice::Ineligible { round: 2, reason: Ineligible::Battery },
                "round 2: not trained (on battery, and the run asks for mains power); waiting for a task",
            ),
            (
                Notice::Training { round: 2, work: TaskKind::TRAIN },
                "round 2: training [                        ]",
            ),
            (progress(0), "round 2: training [                        ] epoch 1/5, step 0/50"),
            (progress(10), "round 2: training [====                    ] epoch 2/5, step 10/50"),
            (
                Notice::Receiving { round: 3, received: 0, total: 9 },
                "round 2: training [====                    ] epoch 2/5, step 10/50",
            ),
            (lost(), "round 2: training [====                    ] epoch 2/5, step 10/50"),
            (progress(50), "round 2: training [========================] epoch 5/5, step 50/50"),
            (
                Notice::Trained {
                    round: 2,
                    work: TaskKind::TRAIN,
                    report: TrainReport::default(),
                    bytes: 2_000_000,
                },
                "round 2: sending 2.0 MB",
            ),
            (lost(), "connecting to lab:4433"),
            (receipt, "waiting for a task"),
        ] {
            status.handle(&notice);
            assert_eq!(status.line(), line, "{notice:?}");
        }
        status.over();
        assert_eq!(status.line(), "");
    }

    #[test]
    fn no_numbers_break_a_bar() {
        for (done, total) in [(0, 0), (5, 0), (u64::MAX, 1), (u64::MAX, u64::MAX), (1, u64::MAX)] {
            assert_eq!(bar(done, total).len(), BAR + 2);
        }
    }
}
