//! The status line: what the client is doing now.

use shared::message::{Progress, Purpose};

use crate::driver::Notice;

/// Characters of a bar.
const BAR: usize = 24;

/// What the client is doing now.
#[derive(Clone, Debug)]
pub(super) struct Status {
    now: Now,
    /// Epochs per round of the joined run.
    epochs: u64,
}

#[derive(Clone, Debug)]
enum Now {
    Connecting {
        server: String,
    },
    Waiting,
    Approval,
    Receiving {
        round: u32,
        received: u64,
        total: u64,
    },
    Training(Progress),
    Testing {
        round: u32,
    },
    Personalising {
        round: u32,
    },
    /// The server asks again later.
    Ineligible {
        round: u32,
        reason: String,
    },
    Sending {
        round: u32,
        bytes: usize,
    },
    Over,
}

impl Status {
    pub(super) fn new() -> Self {
        Self { now: Now::Over, epochs: 0 }
    }

    pub(super) fn connecting(&mut self, server: &str) {
        self.now = Now::Connecting { server: server.to_owned() };
    }

    pub(super) fn over(&mut self) {
        self.now = Now::Over;
    }

    pub(super) fn handle(&mut self, notice: &Notice) {
        self.now = match notice {
            // Training goes on without a server.
            Notice::Connected { .. } | Notice::Disconnected { .. } if self.works() => {
                return;
            }
            Notice::Connected { .. } | Notice::Disconnected { .. } if matches!(self.now, Now::Approval) => {
                return;
            }
            Notice::Disconnected { server, .. } => Now::Connecting { server: server.clone() },
            Notice::Joined { spec } => {
                self.epochs = spec.training.epochs.into();
                if self.works() || matches!(self.now, Now::Sending { .. }) {
                    return;
                }
                Now::Waiting
            }
            // The task of a newer round may arrive while this one is trained.
            Notice::Receiving { .. } if self.works() => return,
            &Notice::Receiving { round, received, total } => Now::Receiving { round, received, total },
            &Notice::Training { round, work } => match work.purpose() {
                Purpose::Training => Now::Training(Progress { round: Some(round), done: 0, total: 0 }),
                Purpose::Personalising => Now::Personalising { round },
                Purpose::Testing => Now::Testing { round },
            },
            Notice::NoRoom { .. }
            | Notice::NoRoomForState { .. }
            | Notice::ServerKey { .. }
            | Notice::Alive => return,
            Notice::Progress(_) if matches!(self.now, Now::Testing { .. } | Now::Personalising { .. }) => {
                return;
            }
            Notice::Progress(progress) => Now::Training(*progress),
            &Notice::Trained { round, bytes, .. } => Now::Sending { round, bytes },
            Notice::TurnedBack { .. } => Now::Approval,
            &Notice::Ineligible { round, reason } => Now::Ineligible { round, reason: reason.to_string() },
            Notice::Connected { .. } | Notice::Failed { .. } | Notice::Receipt { .. } => Now::Waiting,
        };
    }

    /// Whether it works on a task, which needs no connection.
    fn works(&self) -> bool {
        matches!(self.now, Now::Training(_) | Now::Testing { .. } | Now::Personalising { .. })
    }

    /// The line; empty if there is nothing to show.
    pub(super) fn line(&self) -> String {
        match &self.now {
            Now::Connecting { server } => format!("connecting to {server}"),
            Now::Waiting => "waiting for a task".to_owned(),
            Now::Approval => "waiting for the operator's approval".to_owned(),
            Now::Receiving { round, received, total } => {
                let bar = bar(*received, *total);
                format!("round {round}: receiving {bar} {} of {}", megabytes(*received), megabytes(*total))
            }
            Now::Training(Progress { round, done, total }) => {
                let round = round.map(|round| format!("round {round}: ")).unwrap_or_default();
                let bar = bar(*done, *total);
                // All epochs have the same number of steps.
                let epoch = (u128::from(*done) * u128::from(self.epochs)).checked_div((*total).into());
                match epoch.filter(|_| self.epochs > 0) {
                    Some(ended) => {
                        let epoch = (ended + 1).min(self.epochs.into());
                        format!("{round}training {bar} epoch {epoch}/{}, step {done}/{total}", self.epochs)
                    }
                    None => format!("{round}training {bar}"),
                }
            }
            Now::Testing { round } => format!("round {round}: testing the model"),
            Now::Personalising { round } => format!("round {round}: making a model of its own"),
            Now::Ineligible { round, reason } => {
                format!("round {round}: not trained ({reason}); waiting for a task")
            }
            Now::Sending { round, bytes } => {
                format!("round {round}: sending {}", megabytes(*bytes as u64))
            }
            Now::Over => String::new(),
        }
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
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
        let mut status = Status::new();
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
                "round 2: receiving [============            ] 0.5 MB of 1.0 MB",
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
