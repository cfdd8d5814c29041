//! Events of a run: typed notices from the driver, throttled, to sinks.
//!
//! ```text
//!  driver ──Notice──> Events (throttles) ──> dyn Sink: terminal, systemd, history, JSON lines, ...
//! ```
//!
//! A [`Notice`] is data; [`text`] alone makes sentences of it. A new sink is a type that implements [`Sink`], and one line where
//! a command puts its sinks together.

pub mod notice;
pub mod remaining;
pub mod sinks;
mod text;
mod throttle;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use shared::id::ClientId;
use shared::message::CountedUpdate;

use crate::coordinator::MAX_ROSTER;
use crate::round::RoundRecord;

pub use notice::{Level, Notice, Party, TaskResult};
pub use text::{printable, printable_reasons, text};
use throttle::{Admission, RateLimit, Throttle};

/// How often a device's connections are told until a round closes: enough for a bad link, too few for abuse.
const MAX_CONNECTIONS_TOLD: u32 = 50;

/// How many devices that are not admitted are told apart.
const MAX_NOT_ADMITTED: usize = 1000;

/// How many addresses that speak another protocol are told apart.
const MAX_FOREIGN: usize = 32;

/// How often connections are told that end before a device says hello.
const UNIDENTIFIED_PERIOD: Duration = Duration::from_mins(1);

/// Receives notices: shows, stores or counts them. It must not block, since the driver waits for it.
pub trait Sink: Send {
    /// Something happened.
    fn receive(&mut self, notice: &Notice<'_>);
}

impl<F: FnMut(&Notice<'_>) + Send> Sink for F {
    fn receive(&mut self, notice: &Notice<'_>) {
        self(notice);
    }
}

/// Several sinks, in order.
impl Sink for Vec<&mut dyn Sink> {
    fn receive(&mut self, notice: &Notice<'_>) {
        for sink in self {
            sink.receive(notice);
        }
    }
}

/// Where the driver's notices go: past throttles to a sink.
///
/// A device may send anything about any round, and connect any number of times. Of each current round every kind of message is
/// told once per device and recorded; about all other rounds one of a kind is told until the next round closes. The rest is
/// counted and told as a number when the round closes, so neither log nor database grows with what is made up.
pub struct Events<'s> {
    sink: &'s mut dyn Sink,
    /// By device, current round (0 for all others) and kind.
    messages: Throttle<(ClientId, u32, &'static str)>,
    connections: Throttle<ClientId>,
    not_admitted: Throttle<(ClientId, String)>,
    foreign: Throttle<IpAddr>,
    skipped: Throttle<ClientId, u64>,
    untested: Throttle<ClientId, ()>,
    /// By device: the rounds of the difference that was told last.
    states: Throttle<ClientId, (Option<CountedUpdate>, Option<CountedUpdate>)>,
    /// By device, until it declares another number of samples.
    dominant: Throttle<ClientId, u64>,
    lookups: Throttle<()>,
    unidentified: RateLimit<String>,
    /// Messages that were not told, and whose.
    suppressed: (u64, BTreeSet<ClientId>),
}

impl<'s> Events<'s> {
    /// Nothing has happened yet.
    pub fn new(sink: &'s mut dyn Sink) -> Self {
        Self {
            sink,
            messages: Throttle::once(),
            connections: Throttle::new(MAX_CONNECTIONS_TOLD, usize::MAX),
            not_admitted: Throttle::new(1, MAX_NOT_ADMITTED),
            foreign: Throttle::new(1, MAX_FOREIGN),
            skipped: Throttle::new(1, MAX_ROSTER - 1),
            untested: Throttle::new(1, MAX_ROSTER - 1),
            states: Throttle::new(1, MAX_ROSTER - 1),
            dominant: Throttle::new(1, MAX_ROSTER - 1),
            lookups: Throttle::once(),
            unidentified: RateLimit::every(UNIDENTIFIED_PERIOD),
            suppressed: Default::default(),
        }
    }

    /// Passes a notice on if its throttle lets it through. False if it does not.
    pub fn tell(&mut self, notice: &Notice<'_>) -> bool {
        let admission = self.admit(notice);
        match (admission, notice) {
            (Admission::Passed, notice) => self.sink.receive(notice),
            (Admission::Overflow, Notice::NotAdmitted { .. }) => self.sink.receive(&Notice::MoreNotAdmitted),
            (Admission::Overflow, _) => self.sink.receive(&Notice::MoreForeignProtocols),
            (Admission::Suppressed, _) => {}
        }
        admission == Admission::Passed
    }

    fn admit(&mut self, notice: &Notice<'_>) -> Admission {
        match notice {
            &Notice::Connected { client, .. } => {
                // It was looked up, so the next failure to look one up is news.
                self.lookups.clear();
                let admission = self.connections.admit(client, ());
                self.counted(client, admission)
            }
            Notice::NotAdmitted { client, refusal } => {
                self.not_admitted.admit((*client, refusal.to_string()), ())
            }
            Notice::ForeignProtocol { address } => self.foreign.admit(*address, ()),
            Notice::LookupFailed { .. } => self.lookups.admit((), ()),
            &Notice::SkippedSamples { client, samples, .. } => changed(&mut self.skipped, client, samples),
            &Notice::Untested { client, .. } => changed(&mut self.untested, client, ()),
            Notice::Dominates { dominance, .. } => {
                changed(&mut self.dominant, dominance.client, dominance.samples)
            }
            &Notice::ClientState { client, server, device } => {
                changed(&mut self.states, client, (server, device))
            }
            _ => Admission::Passed,
        }
    }

    /// Passes on what a device reports of its work, or what it is answered; `current` if its round still matters.
    pub fn result(&mut self, round: u32, client: ClientId, result: TaskResult<'_>, current: bool) {
        let place = if current { round } else { 0 };
        let admission = self.messages.admit((client, place, result.name()), ());
        if self.counted(client, admission) == Admission::Passed {
            // There is nothing to be done about an update of a current round that is not needed.
            let shown = !(current && matches!(result, TaskResult::Discarded(_)));
            self.sink.receive(&Notice::Result { round, client, result, shown, recorded: current });
        }
    }

    fn counted(&mut self, client: ClientId, admission: Admission) -> Admission {
        if admission != Admission::Passed {
            self.suppressed.0 += 1;
            self.suppressed.1.insert(client);
        }
        admission
    }

    /// A round was closed: says how much was suppressed. Messages about that round or a later one stay told.
    pub fn round_closed(&mut self, round: u32) {
        self.messages.retain(|(_, told, _)| *told >= round);
        self.connections.clear();
        let (messages, clients) = std::mem::take(&mut self.suppressed);
        if let Some(&first) = clients.first() {
            self.sink.receive(&Notice::Suppressed { round, messages, clients: clients.len(), first });
        }
    }

    /// Passes on the record of a closed round, and the alarms that follow from it.
    pub fn record(&mut self, record: &RoundRecord) {
        let round = record.round;
        self.tell(&Notice::Round(record));
        if record.collapsed {
            self.tell(&Notice::Collapsed { round });
        }
        if record.diverged {
            self.tell(&Notice::Diverged { round });
        }
        if let Some(dominance) = &record.dominance {
            self.tell(&Notice::Dominates { round, dominance });
        }
    }

    /// A connection ended before any device said hello on it.
    pub fn unidentified(&mut self, reason: String, now: Instant) {
        self.unidentified.add(reason);
        self.flush(now);
    }

    /// Passes on what a rate limit has held back and is due.
    pub fn flush(&mut self, now: Instant) {
        if let Some((count, reason)) = self.unidentified.due(now) {
            self.sink.receive(&Notice::Unidentified { count, reason: &reason });
        }
    }
}

/// Lets a number of a device through when it is new or has changed. Beyond the capacity some are told again.
fn changed<V: Copy + PartialEq>(
    throttle: &mut Throttle<ClientId, V>,
    client: ClientId,
    told: V,
) -> Admission {
    let admission = throttle.admit(client, told);
    if admission == Admission::Overflow {
        throttle.clear();
        return throttle.admit(client, told);
    }
    admission
}

#[cfg(test)]
mod tests;
