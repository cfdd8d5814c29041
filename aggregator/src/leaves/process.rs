//! One process that serves a run with others: a leaf always, and the root while it leads.

use std::time::Duration;

use shared::identity::SecretKey;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use super::answers::Queue;
use super::at_leaves::AtLeaves;
use super::hub::Hub;
use super::keeper::Keeper;
use super::leadership::{Led, Membership};
use super::leaf::Leaf;
use super::link::{Link, pair};
use super::message::{Part, ToLeaf, ToRoot};
use super::network::{accept, dial};
use super::standing::{Root, ServedRun, Standing};
use crate::cluster::address::StoreAddress;
use crate::cluster::connection::Connection;
use crate::cluster::experiments::Claim;
use crate::peer::FromPeer;
use crate::run::{LeafRun, RunError};

/// The time between two attempts to reach the root.
pub const RETRY: Duration = Duration::from_millis(300);

/// What a process needs to serve a run with others.
pub struct Setup {
    /// What they share.
    pub store: StoreAddress,
    /// The run.
    pub run: ServedRun,
    /// Where other servers reach this one, by which they also tell it from others.
    pub address: String,
    /// The identity of all of them.
    pub key: SecretKey,
    /// Its part of the run.
    pub leaf: LeafRun,
    /// What its devices say.
    pub peers: UnboundedReceiver<FromPeer>,
    /// Other leaves that have connected.
    pub links: UnboundedReceiver<quinn::Connection>,
    /// The part of the run's clients that this process simulates.
    pub part: Option<Part>,
}

/// A process among those that serve a run.
pub struct Process {
    store: StoreAddress,
    run: ServedRun,
    membership: Membership,
    here: watch::Sender<Option<Here>>,
    /// Until it has ended.
    leaf: Option<JoinHandle<Result<(), String>>>,
}

/// The root, while it is in this process.
#[derive(Clone, Debug)]
struct Here {
    epoch: i64,
    hub: Hub,
}

/// What comes next for a process.
#[derive(Debug, PartialEq)]
pub enum Turn {
    /// It leads the run under this claim.
    Lead(Claim),
    /// The run is over.
    Over,
    /// It is to stop.
    Stopped,
    /// It cannot go on.
    Failed(String),
}

/// What leading takes.
pub struct Leading {
    /// What devices of all leaves say.
    pub peers: UnboundedReceiver<FromPeer>,
    /// Where more of that may be put.
    pub to_driver: UnboundedSender<FromPeer>,
    /// The leaves, for the run.
    pub leaves: AtLeaves,
    /// Their links.
    pub hub: Hub,
    /// The lease.
    pub led: Led,
}

impl Process {
    /// Begins to be a leaf, and seeks to lead. Called inside the runtime.
    #[must_use]
    pub fn start(setup: Setup) -> Self {
        let Setup { store, run, address, key, leaf, peers, links, part } = setup;
        let connection = Connection::new(store.clone());
        let membership = Membership::start(connection, run.clone(), (address.clone(), address.clone()));
        let (here, root) = watch::channel(None);
        tokio::spawn(admit(links, root.clone()));
        let member = Member { address, key, part, standing: membership.standing(), here: root };
        let leaf = Some(tokio::spawn(member.serve(Leaf::new(leaf, peers))));
        Self { store, run, membership, here, leaf }
    }

    /// Waits until there is something to do.
    pub async fn turn(&mut self, mut stopped: watch::Receiver<bool>) -> Turn {
        let mut standing = self.membership.standing();
        loop {
            match &*standing.borrow_and_update() {
                Standing::Leads(claim) => return Turn::Lead(claim.clone()),
                Standing::Over => return Turn::Over,
                Standing::Failed(reason) => return Turn::Failed(reason.clone()),
                Standing::Unknown | Standing::Follows { .. } => {}
            }
            tokio::select! {
                changed = standing.changed() => if changed.is_err() { return Turn::Stopped },
                _ = stopped.wait_for(|stopped| *stopped) => return Turn::Stopped,
                ended = ended(&mut self.leaf) => return match ended {
                    Ok(Err(reason)) => Turn::Failed(reason),
                    Ok(Ok(())) => Turn::Over,
                    Err(error) => Turn::Failed(error.to_string()),
                },
            }
        }
    }

    /// Takes the lead under a claim, until [`rest`](Self::rest).
    #[must_use]
    pub fn lead(&self, claim: &Claim, arithmetic: &'static str, stopped: watch::Receiver<bool>) -> Leading {
        let led = self.membership.led(self.run.clone(), claim.clone(), stopped);
        let (to_driver, peers) = unbounded_channel();
        let (answers, queue) = std::sync::mpsc::channel();
        let hub = Hub::new(claim.epoch, to_driver.clone(), answers);
        let keeper = self.keeper(led.clone(), arithmetic);
        let leaves = AtLeaves::new(hub.clone(), Box::new(Queue::new(queue)), keeper);
        let leaves = leaves.under(self.membership.lease(claim));
        self.here.send_replace(Some(Here { epoch: claim.epoch, hub: hub.clone() }));
        Leading { peers, to_driver, leaves, hub, led }
    }

    /// Another hand on the store, for the end of the run.
    #[must_use]
    pub fn keeper(&self, led: Led, arithmetic: &'static str) -> Keeper {
        Keeper::new(Box::new(Connection::new(self.store.clone())), led, arithmetic)
    }

    /// Leads no more, and may do so again.
    pub fn rest(&self, claim: &Claim) {
        self.here.send_replace(None);
        self.membership.release(claim);
    }

    /// Waits until the leaf has ended, which it does when the run is over and its root has hung up.
    pub async fn end(&mut self) {
        self.here.send_replace(None);
        if self.leaf.is_some() {
            let _ = ended(&mut self.leaf).await;
        }
    }
}

/// Waits until a task has ended. One that has been waited for does not end again.
async fn ended<T>(task: &mut Option<JoinHandle<T>>) -> Result<T, tokio::task::JoinError> {
    let Some(running) = task else { return std::future::pending().await };
    let result = running.await;
    *task = None;
    result
}

/// Lets other leaves in while the root is here.
async fn admit(mut links: UnboundedReceiver<quinn::Connection>, root: watch::Receiver<Option<Here>>) {
    while let Some(connection) = links.recv().await {
        let Some(Here { hub, .. }) = root.borrow().clone() else {
            connection.close(1u32.into(), b"the run is led elsewhere");
            continue;
        };
        tokio::spawn(async move {
            if let Some(link) = accept(connection).await {
                hub.serve(link).await;
            }
        });
    }
}

/// Why this server cannot go on as a leaf, and what to do.
fn why(error: &RunError) -> String {
    match error {
        RunError::Removed { action, path } => format!(
            "cannot {action} {}: it was removed, or its folder was; start this server again: it begins with an empty folder, and its \
             devices deliver again what it had",
            path.display()
        ),
        error => error.to_string(),
    }
}

/// After how many attempts it is told that the root is not reached: one that ends leaves a moment before it is known.
const TOLD: u32 = 5;

/// This leaf, in search of its root.
struct Member {
    address: String,
    key: SecretKey,
    part: Option<Part>,
    standing: watch::Receiver<Standing>,
    here: watch::Receiver<Option<Here>>,
}

impl Member {
    async fn serve(mut self, mut leaf: Leaf) -> Result<(), String> {
        // The root that was reached last, and how often the present one was not.
        let (mut reached, mut failed) = (None::<String>, 0_u32);
        loop {
            let now = self.standing.borrow_and_update().clone();
            let found = match now.root() {
                // The root hears of what devices of this leaf say until it hangs up.
                Root::Over => return Ok(()),
                Root::Failed(reason) => return Err(reason.to_owned()),
                Root::Unknown => None,
                Root::Here(epoch) => self.inside(epoch).map(|link| (epoch, link)),
                Root::At(root, epoch, address) => match leaf.wait(dial(address, &self.key)).await {
                    Ok(link) => {
                        let former = reached.replace(root.to_owned());
                        if std::mem::take(&mut failed) >= TOLD {
                            warn!("the server that leads the run is reached: it is {root}");
                        } else if former.as_deref() != Some(root) {
                            info!("the run is led by {root}; this server is a leaf of it");
                        }
                        Some((epoch, link))
                    }
                    Err(error) => {
                        failed = failed.saturating_add(1);
                        if failed == TOLD {
                            warn!(
                                "the server that leads the run is not reached: {error}; devices of this server wait until it is"
                            );
                        }
                        None
                    }
                },
            };
            let Some((epoch, link)) = found else {
                if leaf.wait(self.changed(RETRY)).await {
                    continue;
                }
                return Ok(());
            };
            let (name, version) = (self.address.clone(), env!("CARGO_PKG_VERSION").to_owned());
            let hello = ToRoot::Hello { leaf: name, epoch, version, part: self.part };
            let served = leaf.serve(link, hello, self.replaced(epoch)).await;
            served.map_err(|error| why(&error))?;
            // A root that refuses is asked again, but not without end at once.
            if !leaf.wait(self.changed(RETRY)).await {
                return Ok(());
            }
        }
    }

    /// A link to the root in this process, if it is there.
    fn inside(&self, epoch: i64) -> Option<Link<ToRoot, ToLeaf>> {
        let here = self.here.borrow().clone().filter(|here| here.epoch == epoch)?;
        let (near, far) = pair();
        tokio::spawn(async move { here.hub.serve(far).await });
        Some(near)
    }

    /// Waits until something has changed, or for this long. `false` if nothing will change any more and the run is over.
    async fn changed(&mut self, most: Duration) -> bool {
        tokio::select! {
            changed = self.standing.changed() => changed.is_ok(),
            _ = self.here.changed() => true,
            () = tokio::time::sleep(most) => true,
        }
    }

    /// Resolves when another one leads the run. Not when it is over: then the root hangs up.
    async fn replaced(&mut self, epoch: i64) {
        if self.standing.wait_for(|standing| !standing.keeps(epoch)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
