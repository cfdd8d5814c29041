//! Who leads: each process registers as a leaf of the run, and one of them has its lease.

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tracing::warn;

use super::contest::Contest;
use super::standing::{LEASE, ServedRun, Standing};
use super::store::RunStore as _;
use crate::cluster::connection::{Connection, Patience};
use crate::cluster::error::StoreError;
use crate::cluster::experiments::{Claim, enter, give_back};
use crate::run::{Confirmed, Lease, LeavesError};

/// How often each says that it is alive.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// This process among the leaves of a run.
#[derive(Debug)]
pub struct Membership {
    standing: watch::Receiver<Standing>,
    confirmed: watch::Receiver<Confirmed>,
    released: mpsc::Sender<Command>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread is asked.
enum Command {
    /// The run is not led here any more, under this epoch.
    Release(Claim),
}

struct Member {
    run: ServedRun,
    /// The name of this leaf, and where it is reached.
    leaf: String,
    address: String,
    commands: mpsc::Receiver<Command>,
    standing: watch::Sender<Standing>,
    confirmed: watch::Sender<Confirmed>,
    told: bool,
    contest: Contest,
}

impl Membership {
    /// Registers the leaf of this name, which is reached at `address`, and seeks to lead the run, until this is dropped.
    #[must_use]
    pub fn start(connection: Connection, run: ServedRun, (leaf, address): (String, String)) -> Self {
        let (released, commands) = mpsc::channel();
        let (sender, standing) = watch::channel(Standing::Unknown);
        let now = Instant::now();
        let (told, confirmed) = watch::channel(Confirmed { epoch: 0, asked: now, until: now });
        let member = Member {
            run,
            leaf,
            address,
            commands,
            standing: sender,
            confirmed: told,
            told: false,
            contest: Contest::default(),
        };
        let thread = std::thread::Builder::new().name("cluster".to_owned());
        let thread = thread.spawn(move || member.work(connection)).expect("the system gives one thread");
        Self { standing, confirmed, released, thread: Some(thread) }
    }

    /// Where the run stands.
    #[must_use]
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// The lease under this claim, for its driver.
    #[must_use]
    pub fn lease(&self, claim: &Claim) -> Lease {
        Lease::new(self.confirmed.clone(), claim.epoch)
    }

    /// What the root's disk worker knows of its lease. `stopped` ends it.
    #[must_use]
    pub fn led(&self, run: ServedRun, claim: Claim, stopped: watch::Receiver<bool>) -> Led {
        let confirmed = Some(self.confirmed.clone());
        Led { confirmed, ..Led::new(run, claim, self.standing.clone(), stopped) }
    }

    /// This process does not lead the run under that claim any more; it may seek to do so again.
    pub fn release(&self, claim: &Claim) {
        // A thread that has ended has released it.
        let _ = self.released.send(Command::Release(claim.clone()));
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // The end of the queue is the sign to end.
        self.released = mpsc::channel().0;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Patience for Member {
    fn outage(&mut self, why: &StoreError) {
        warn!("{why}; rounds pause until it is back, devices stay connected, and those that come wait");
        self.told = true;
    }

    fn over(&mut self) {
        if std::mem::take(&mut self.told) {
            warn!("the store is back: rounds go on");
        }
    }

    fn wait(&mut self, time: Duration) -> bool {
        self.paused(time)
    }
}

impl Member {
    /// Waits this long, or until it was asked something, and does that. `false` if this is to end.
    fn paused(&mut self, time: Duration) -> bool {
        match self.commands.recv_timeout(time) {
            Ok(Command::Release(claim)) => {
                self.standing.send_if_modified(|standing| standing.release(&claim));
                true
            }
            Err(mpsc::RecvTimeoutError::Timeout) => true,
            Err(mpsc::RecvTimeoutError::Disconnected) => false,
        }
    }

    fn work(mut self, mut connection: Connection) {
        let description = self.run.described();
        let entered = connection.lasting(&mut self, &mut |client| enter(client, &description));
        if !self.is_usable(entered) {
            return;
        }
        loop {
            let held = self.standing.borrow().claim().cloned();
            let (run, leaf, address) = (self.run.clone(), self.leaf.clone(), self.address.clone());
            // The store extends the lease later than this, however long it is waited for.
            let asked = Instant::now();
            let looked = connection.stand(&mut self, &run, (&leaf, &address), held.as_ref());
            match looked {
                Ok(Some(now)) if self.contest.sees(&now) => {
                    let why = format!(
                        "another process serves this run as {leaf}, and the two take the lead from each other: give each server an \
                         --address or a --peer-address of its own"
                    );
                    self.standing.send_replace(Standing::Failed(why));
                    return;
                }
                Ok(Some(now)) => {
                    if let Some(claim) = now.claim() {
                        let (epoch, until) = (claim.epoch, asked + LEASE);
                        self.confirmed.send_replace(Confirmed { epoch, asked, until });
                    }
                    self.standing.send_if_modified(|standing| {
                        let changed = *standing != now;
                        *standing = now.clone();
                        changed
                    });
                    if now == Standing::Over {
                        return;
                    }
                }
                failed => {
                    if !self.is_usable(failed) {
                        break;
                    }
                }
            }
            if !self.paused(INTERVAL) {
                break;
            }
        }
        self.leave(&mut connection);
    }

    /// Gives the lease back and takes the leaf off the list, so that no other one waits for it. Tried once.
    fn leave(&mut self, connection: &mut Connection) {
        let held = self.standing.borrow().claim().cloned();
        let (run, leaf) = (self.run.clone(), self.leaf.clone());
        let left = connection.once(&mut |client| {
            if let Some(claim) = &held {
                give_back(client, &run.id, claim)?;
            }
            client.execute("DELETE FROM leaves WHERE experiment = $1 AND leaf = $2", &[&&run.id[..], &leaf])
        });
        if let Err(error) = left {
            warn!("the other servers find out in {} s that this one has left: {error}", LEASE.as_secs());
        }
    }

    /// Whether it was done. Otherwise this is to end, or the store will not become usable.
    fn is_usable<T>(&self, done: Result<Option<T>, StoreError>) -> bool {
        match done {
            Ok(Some(_)) => true,
            Ok(None) => false,
            Err(error) => {
                self.standing.send_replace(Standing::Failed(error.to_string()));
                false
            }
        }
    }
}

/// What the root's disk worker knows of its lease.
#[derive(Clone, Debug)]
pub struct Led {
    run: ServedRun,
    claim: Claim,
    standing: watch::Receiver<Standing>,
    confirmed: Option<watch::Receiver<Confirmed>>,
    stopped: watch::Receiver<bool>,
}

impl Led {
    /// The lease under this claim, as long as the run stands so. `stopped` ends it.
    #[must_use]
    pub fn new(
        run: ServedRun,
        claim: Claim,
        standing: watch::Receiver<Standing>,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        Self { run, claim, standing, confirmed: None, stopped }
    }

    /// Whether the store has renewed the lease lately.
    pub(super) fn is_confirmed(&self) -> bool {
        let confirmed = self.confirmed.as_ref().map(|confirmed| *confirmed.borrow());
        confirmed.is_some_and(|lease| lease.epoch == self.claim.epoch && Instant::now() < lease.until)
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> &ServedRun {
        &self.run
    }

    /// The claim under which it is led.
    #[must_use]
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// An error if it is not led here any more, or this process is to stop.
    pub fn check(&self) -> Result<(), LeavesError> {
        if *self.stopped.borrow() {
            return Err(LeavesError::Stopped);
        }
        match &*self.standing.borrow() {
            Standing::Leads(claim) if claim.epoch == self.claim.epoch => Ok(()),
            Standing::Failed(reason) => Err(LeavesError::Store(reason.clone().into())),
            _ => Err(LeavesError::Superseded),
        }
    }

    /// Resolves when it is not led here any more.
    pub async fn over(mut self) {
        let epoch = self.claim.epoch;
        let led = |standing: &Standing| matches!(standing, Standing::Leads(claim) if claim.epoch == epoch);
        let _ = self.standing.wait_for(|standing| !led(standing)).await;
    }

    /// Waits this long. `false` if it is not led here any more.
    pub(super) fn wait(&self, time: Duration) -> bool {
        wait_while(time, &|| self.check().is_ok())
    }
}

/// Waits this long, as long as it is `wanted`. Whether it still is.
pub(super) fn wait_while(time: Duration, wanted: &dyn Fn() -> bool) -> bool {
    let until = Instant::now() + time;
    while wanted() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
    false
}
