//! The synchroniser's thread: it looks for changes on both sides, carries them, and claims uses of tickets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use tracing::warn;

use super::claim::{Message, Wanted, claim};
use super::error::RegisterError;
use super::rows::Place;
use super::{apply::apply, local, store};
use crate::cluster::connection::{Connection, Patience};
use crate::cluster::error::StoreError;
use crate::database::Database;
use crate::enrolment::Claim;

/// How often the store is asked for changes.
const POLL: Duration = Duration::from_millis(500);
/// How often the database of this server is asked whether it has changed.
const LOOK: Duration = Duration::from_millis(100);
/// After what does not pass by itself, how soon it is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// Claims that are answered in one transaction.
const TOGETHER: usize = 64;
/// How long a claim lasts through what is over in a moment.
const MOMENT: Duration = Duration::from_secs(1);
/// How often other servers may be faster before a look is over. They are served first, and the next look is soon.
const ATTEMPTS: usize = 20;

pub(super) struct Worker {
    pub(super) database: Database,
    pub(super) connection: Connection,
    pub(super) lab: Vec<u8>,
    pub(super) inbox: Receiver<Message>,
    pub(super) away: Arc<AtomicBool>,
}

/// What the thread knows between two looks.
#[derive(Default)]
struct State {
    prepared: bool,
    at: Option<Place>,
    /// The state of the database of which all is in the store.
    seen: Option<i64>,
    stopped: bool,
    /// What is in the way was told.
    told: bool,
}

/// Waits through an outage, in which claims are refused.
struct Outage<'a> {
    inbox: &'a Receiver<Message>,
    away: &'a AtomicBool,
    stopped: &'a mut bool,
    /// How long it is waited; for ever, if this is not said.
    left: Option<Duration>,
}

impl Patience for Outage<'_> {
    fn outage(&mut self, why: &StoreError) {
        warn!(
            "{why}; until it is there again, this server does not hear of devices of the others, nor they of its, and devices with a new \
             ticket are told to try again"
        );
    }

    fn over(&mut self) {
        warn!("the store is there again, and so are tickets and the devices of other servers");
    }

    fn wait(&mut self, time: Duration) -> bool {
        self.away.store(true, Ordering::Relaxed);
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(time);
            if left.is_zero() {
                return false;
            }
        }
        let until = Instant::now() + time;
        while !*self.stopped {
            match self.inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Message::Claim(_, reply)) => drop(reply.send(Claim::Unavailable)),
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => *self.stopped = true,
                Err(RecvTimeoutError::Timeout) => return true,
            }
        }
        false
    }
}

impl Worker {
    /// Brings the registers together for the first time, if the store answers, then tells `ready`; goes on until it is stopped.
    pub(super) fn run(mut self, ready: impl FnOnce(Result<(), RegisterError>)) {
        let mut state = State::default();
        match self.synchronise(&mut state, Some(Duration::ZERO)) {
            Err(error) => return ready(Err(error)),
            Ok(()) => ready(Ok(())),
        }
        let mut asked = Instant::now();
        while !state.stopped {
            let pause = if state.told { RETRY } else { LOOK };
            match self.inbox.recv_timeout(pause) {
                Ok(Message::Claim(wanted, reply)) => self.claims(&mut state, (wanted, reply)),
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let away = self.away.load(Ordering::Relaxed);
            if away || asked.elapsed() >= POLL || self.has_changed(&mut state) {
                self.look(&mut state, None);
                asked = Instant::now();
            }
        }
        // What was changed last. An outage is not waited for: it is carried when this server is started again.
        if !self.away.load(Ordering::Relaxed) && self.has_changed(&mut state) {
            state.stopped = false;
            self.look(&mut state, Some(Duration::ZERO));
        }
    }

    /// Synchronises, and says once what is in the way of it.
    fn look(&mut self, state: &mut State, patience: Option<Duration>) {
        match self.synchronise(state, patience) {
            Ok(()) if state.told && !self.away.load(Ordering::Relaxed) => {
                warn!("the registers of the lab's servers are one again");
                state.told = false;
            }
            Ok(()) => {}
            Err(error) => {
                self.away.store(true, Ordering::Relaxed);
                // It may be another store by then.
                state.prepared = false;
                if !std::mem::replace(&mut state.told, true) {
                    warn!(
                        "{error}; until that is over, this server does not hear of devices of the others, nor they of its, and devices with \
                         a new ticket are told to try again"
                    );
                }
            }
        }
    }

    /// Whether something here is to go to the store. What cannot be read is met again by who synchronises.
    fn has_changed(&self, state: &mut State) -> bool {
        let Ok(version) = self.database.foreign_changes() else { return true };
        if state.seen == Some(version) {
            return false;
        }
        // Most of what is written is not of devices and tickets.
        let same = local::changed(&self.database).is_ok_and(|changed| changed.is_empty());
        if same {
            state.seen = Some(version);
        }
        !same
    }

    /// Reads what is new, merges it, and writes what is new here, until both sides say the same. Without an end to `patience`, an outage
    /// is waited through.
    fn synchronise(&mut self, state: &mut State, patience: Option<Duration>) -> Result<(), RegisterError> {
        let Self { database, connection, lab, inbox, away } = self;
        let mut outage = Outage { inbox, away, stopped: &mut state.stopped, left: patience };
        if !state.prepared {
            if connection.prepare_lasting(&mut outage)?.is_none() {
                return Ok(());
            }
            state.at = local::place(database, lab)?;
            state.prepared = true;
        }
        for _ in 0..ATTEMPTS {
            let at = state.at.clone();
            // What a register is called that is begun here, or was put back.
            let mut instance = [0; 16];
            getrandom::fill(&mut instance).map_err(RegisterError::Random)?;
            let pulled = connection
                .lasting(&mut outage, &mut |client| store::pull(client, lab, at.as_ref(), &instance))?;
            let Some(pulled) = pulled else { return Ok(()) };
            if let Some(pulled) = pulled {
                apply(database, lab, &pulled, SystemTime::now())?;
                (state.at, state.seen) = (Some(pulled.place), None);
            }
            let Some(at) = state.at.clone() else { continue };
            // Before it is looked what was changed: a later change makes another version.
            let version = database.foreign_changes()?;
            if state.seen != Some(version) {
                let changed = local::changed(database)?;
                if !changed.is_empty() {
                    let pushed = connection
                        .lasting(&mut outage, &mut |client| store::push(client, lab, &at, &changed))?;
                    let Some(pushed) = pushed else { return Ok(()) };
                    // Otherwise another server was faster, or the answer was lost: what it wrote is read first.
                    let Some(place) = pushed else { continue };
                    local::settle(database, lab, &changed, &place)?;
                    state.at = Some(place);
                }
                state.seen = Some(version);
            }
            away.store(false, Ordering::Relaxed);
            return Ok(());
        }
        Ok(())
    }

    /// Answers this claim, and those that came meanwhile.
    fn claims(&mut self, state: &mut State, first: (Wanted, std::sync::mpsc::SyncSender<Claim>)) {
        let (mut wanted, mut replies) = (vec![first.0], vec![first.1]);
        while wanted.len() < TOGETHER
            && let Ok(message) = self.inbox.try_recv()
        {
            match message {
                Message::Claim(one, reply) => {
                    wanted.push(one);
                    replies.push(reply);
                }
                Message::Stop => {
                    state.stopped = true;
                    break;
                }
            }
        }
        // A ticket may have been made, or a device revoked, a moment ago.
        if self.has_changed(state) {
            self.look(state, Some(MOMENT));
        }
        let answers = self.answers(state, &wanted).unwrap_or_else(|| vec![Claim::Unavailable; wanted.len()]);
        for (reply, answer) in replies.iter().zip(answers) {
            // One that has waited for too long is told to come again.
            let _ = reply.send(answer);
        }
    }

    fn answers(&mut self, state: &mut State, wanted: &[Wanted]) -> Option<Vec<Claim>> {
        let at = state.at.clone()?;
        let Self { connection, lab, inbox, away, .. } = self;
        let mut outage = Outage { inbox, away, stopped: &mut state.stopped, left: Some(MOMENT) };
        let answers = connection.lasting(&mut outage, &mut |client| claim(client, lab, &at, wanted));
        if answers.is_err() {
            // It is told when the registers are synchronised next, which is now.
            away.store(true, Ordering::Relaxed);
        }
        answers.ok().flatten().flatten()
    }
}
