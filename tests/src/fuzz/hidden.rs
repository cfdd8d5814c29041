//! The server's state machine in rounds whose updates are hidden, by a list of operations: devices that answer, lie, are silent or lost
//! at any step, durable steps, time and restarts; and what the server makes of the secrets that it was told.
//!
//! A device that signs and shares as it should is played by its real [`Party`](shared::secure::Party). For any answers of others, the masks that are taken away are
//! those that honest devices have added, or none are: never others.

mod driver;
mod lies;

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use shared::frame;
use shared::message::SecureAnswer;

use super::Seen;
use driver::{DEVICES, Driver};
use lies::Lie;

/// Operations of one list.
const MOST: usize = 300;
/// Steps without faults in which the run ends, with all of its rounds or with too many that are void.
const PATIENCE: usize = 4_000;

#[derive(Arbitrary, Debug)]
enum Op {
    Hello {
        device: u8,
    },
    /// It does the oldest thing that it was asked for.
    Answers {
        device: u8,
    },
    /// It does so in this wrong way.
    Lies {
        device: u8,
        kind: u8,
        about: u8,
    },
    /// It says anything in the exchange that is open, or in another.
    Says {
        device: u8,
        answer: Vec<u8>,
        later: u8,
    },
    /// It says anything at all.
    Anything {
        device: u8,
        message: Vec<u8>,
    },
    /// It forgets what it was asked for.
    Sleeps {
        device: u8,
    },
    Disconnects {
        device: u8,
    },
    Revoked {
        device: u8,
    },
    Step {
        fine: bool,
    },
    Passes {
        milliseconds: u32,
    },
    Deadline,
    /// The process dies: this number of the steps under way were durable.
    Restarts {
        steps: u8,
    },
    /// All answer what they were asked for, and this number of durable steps are made.
    Goes {
        steps: u8,
    },
}

impl Driver {
    fn play(&mut self, op: Op) {
        match op {
            Op::Hello { device } => self.hello(device % DEVICES),
            Op::Answers { device } => self.answers(device % DEVICES, None),
            Op::Lies { device, kind, about } => {
                self.answers(device % DEVICES, Some(Lie::of(kind, about % DEVICES)));
            }
            Op::Says { device, answer, later } => {
                if let Ok(answer) = frame::decode::<SecureAnswer>(&answer) {
                    self.says(device % DEVICES, u32::from(later % 3), answer);
                }
            }
            Op::Anything { device, message } => {
                if let Ok(message) = frame::decode(&message) {
                    self.anything(device % DEVICES, message);
                }
            }
            Op::Sleeps { device } => self.sleeps(device % DEVICES),
            Op::Disconnects { device } => self.disconnects(device % DEVICES),
            Op::Revoked { device } => self.revoked(device % DEVICES),
            Op::Step { fine } => self.step(fine),
            Op::Passes { milliseconds } => {
                self.passes(self.now + Duration::from_millis(u64::from(milliseconds)));
            }
            Op::Deadline => self.deadline(),
            Op::Restarts { steps } => self.restarts(steps),
            Op::Goes { steps } => {
                for _ in 0..steps % 16 {
                    (0..DEVICES).for_each(|device| self.answers(device, None));
                    self.step(true);
                }
            }
        }
        let deadline = self.coordinator.deadline(self.now);
        assert!(deadline.is_none_or(|moment| moment > self.now), "a deadline that is over is a busy loop");
    }

    /// From now on all devices are there and honest: the run ends.
    fn without_faults(&mut self) {
        (0..DEVICES).for_each(|device| self.disconnects(device));
        for _ in 0..PATIENCE {
            if self.finished {
                return;
            }
            (0..DEVICES).for_each(|device| self.hello_if_away(device));
            let busy = (0..DEVICES).any(|device| self.is_asked(device));
            (0..DEVICES).for_each(|device| self.answers(device, None));
            if self.has_steps() {
                self.step(true);
            } else if !busy {
                self.deadline();
            }
        }
        panic!("the run does not end: {}", self.coordinator.status(self.now));
    }
}

/// Operations.
///
/// # Panics
/// If the machine does what it must not, or the run does not end.
#[must_use]
pub fn run(bytes: &[u8]) -> Seen {
    let mut input = Unstructured::new(bytes);
    let mut driver = Driver::new();
    (0..DEVICES).for_each(|device| driver.hello(device));
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        let Ok(op) = Op::arbitrary(&mut input) else { break };
        driver.play(op);
    }
    let before = driver.closed();
    driver.without_faults();
    let few = |count: usize| ["none", "some", "many"][count.min(2)].chars().collect::<Vec<_>>();
    Seen::of(&(few(before as usize), few(driver.unmasked), few(driver.kept_secret), few(driver.voids)))
}

/// Bytes that mean anything, and the steps of honest devices.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    super::session::noise("hidden")
}
