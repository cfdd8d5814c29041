//! Who leads: each process registers as a leaf of the run, and one of them has its lease.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use postgres::{Client, Error};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::cluster::connection::{Connection, Patience};
use crate::cluster::error::StoreError;
use crate::cluster::experiments::{Claim, Description, ExperimentId, enter, give_back, renew, take};
use crate::run::LeavesError;

/// How long the root, or a leaf, may be silent before it counts as dead.
pub const LEASE: Duration = Duration::from_secs(5);
/// How often each says that it is alive.
const INTERVAL: Duration = Duration::from_secs(1);

/// Where a run that is served stands, as far as this process knows.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// Nothing is known yet.
    Unknown,
    /// This process leads it.
    Leads(Claim),
    /// Another one does.
    Follows {
        /// Its name.
        leaf: String,
        /// Its epoch.
        epoch: i64,
        /// Where it is reached.
        address: String,
    },
    /// The run is over.
    Over,
    /// The store cannot be used, and will not become usable by itself.
    Failed(String),
}

/// A run that is served, in the store: an experiment of one run.
#[derive(Clone, Debug)]
pub struct ServedRun {
    /// Its identity: of the lab, and what the run learns.
    pub id: ExperimentId,
    /// Its name.
    pub name: String,
}

impl ServedRun {
    /// As it is entered in the store.
    #[must_use]
    pub fn described(&self) -> Description {
        let Self { id, name } = self.clone();
        Description { id, name: name.clone(), form: "serve".to_owned(), runs: vec![name] }
    }
}

/// This process among the leaves of a run.
#[derive(Debug)]
pub struct Membership {
    standing: watch::Receiver<Standing>,
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
    told: bool,
}

impl Membership {
    /// Registers the leaf of this name, which is reached at `address`, and seeks to lead the run, until this is dropped.
    #[must_use]
    pub fn start(connection: Connection, run: ServedRun, (leaf, address): (String, String)) -> Self {
        let (released, commands) = mpsc::channel();
        let (sender, standing) = watch::channel(Standing::Unknown);
        let member = Member { run, leaf, address, commands, standing: sender, told: false };
        let thread = std::thread::Builder::new().name("cluster".to_owned());
        let thread = thread.spawn(move || member.work(connection)).expect("the system gives one thread");
        Self { standing, released, thread: Some(thread) }
    }

    /// Where the run stands.
    #[must_use]
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// What the root's disk worker knows of its lease. `stopped` ends it.
    #[must_use]
    pub fn led(&self, run: ServedRun, claim: Claim, stopped: watch::Receiver<bool>) -> Led {
        Led { run, claim, standing: self.standing.clone(), stopped }
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
        warn!("{why}; rounds pause until it is back, and devices stay connected");
        self.told = true;
    }

    fn over(&mut self) {
        if std::mem::take(&mut self.told) {
            info!("the store is back: rounds go on");
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
                self.standing.send_if_modified(|standing| {
                    let leads = matches!(standing, Standing::Leads(held) if held.epoch == claim.epoch);
                    if leads {
                        *standing = Standing::Unknown;
                    }
                    leads
                });
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
            let held = match &*self.standing.borrow() {
                Standing::Leads(claim) => Some(claim.clone()),
                _ => None,
            };
            let (run, leaf, address) = (self.run.clone(), self.leaf.clone(), self.address.clone());
            let looked = connection.lasting(&mut self, &mut |client| {
                present(client, &run, (&leaf, &address))?;
                stand(client, &run, &leaf, held.as_ref())
            });
            match looked {
                Ok(Some(now)) => {
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
        let held = match &*self.standing.borrow() {
            Standing::Leads(claim) => Some(claim.clone()),
            _ => None,
        };
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

/// Says that a leaf is alive.
fn present(client: &mut Client, run: &ServedRun, (leaf, address): (&str, &str)) -> Result<(), Error> {
    client.execute(
        "INSERT INTO leaves (experiment, leaf, address, expires) VALUES ($1, $2, $3, now() + $4 * interval '1 second')
         ON CONFLICT (experiment, leaf) DO UPDATE SET address = excluded.address, expires = excluded.expires",
        &[&&run.id[..], &leaf, &address, &LEASE.as_secs_f64()],
    )?;
    Ok(())
}

/// Renews the lease that is `held`, or takes it if it is free, and says where the run stands.
fn stand(client: &mut Client, run: &ServedRun, leaf: &str, held: Option<&Claim>) -> Result<Standing, Error> {
    if let Some(claim) = held {
        let renewed = renew(client, &run.id, &[(claim.name.clone(), claim.epoch)], LEASE)?;
        if !renewed.is_empty() {
            return Ok(Standing::Leads(claim.clone()));
        }
    }
    let row = client.query_one(
        "SELECT run.ended, run.epoch, run.worker, run.expires > now(), leaves.address
         FROM experiment_runs run LEFT JOIN leaves ON leaves.experiment = run.experiment AND leaves.leaf = run.worker
         WHERE run.experiment = $1 AND run.name = $2",
        &[&&run.id[..], &run.name],
    )?;
    if row.get(0) {
        return Ok(Standing::Over);
    }
    let (worker, alive, address): (Option<String>, Option<bool>, Option<String>) =
        (row.get(2), row.get(3), row.get(4));
    // A process of this very name that went away without a word is no reason to wait.
    let is_free = alive != Some(true) || worker.as_deref() == Some(leaf);
    if is_free {
        release(client, run, leaf)?;
        if let Some(claim) = take(client, &run.id, &[&run.name], (leaf, LEASE))? {
            return Ok(Standing::Leads(claim));
        }
    }
    Ok(match (worker, address) {
        (Some(worker), Some(address)) if worker != leaf => {
            Standing::Follows { leaf: worker, epoch: row.get(1), address }
        }
        _ => Standing::Unknown,
    })
}

/// Ends the lease that an earlier process of this leaf has left.
fn release(client: &mut Client, run: &ServedRun, leaf: &str) -> Result<(), Error> {
    client.execute(
        "UPDATE experiment_runs SET expires = NULL WHERE experiment = $1 AND name = $2 AND worker = $3",
        &[&&run.id[..], &run.name, &leaf],
    )?;
    Ok(())
}

/// The leaves that are alive.
///
/// # Errors
/// Those of the database.
pub(super) fn living(client: &mut Client, run: &ExperimentId) -> Result<BTreeSet<String>, Error> {
    let rows =
        client.query("SELECT leaf FROM leaves WHERE experiment = $1 AND expires > now()", &[&&run[..]])?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// What the root's disk worker knows of its lease.
#[derive(Clone, Debug)]
pub struct Led {
    run: ServedRun,
    claim: Claim,
    standing: watch::Receiver<Standing>,
    stopped: watch::Receiver<bool>,
}

impl Led {
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
