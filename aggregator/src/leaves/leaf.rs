//! A leaf: its devices, whose words go to the root, and the thread that carries out what the root asks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use models::Precision;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tracing::{debug, warn};

use super::link::Link;
use super::message::{Frame, ToLeaf, ToRoot};
use crate::coordinator::Opening;
use crate::peer::{FromPeer, ToPeer};
use crate::run::{Broadcast, LeafRun, RunError, Upload};

/// What a leaf has of its devices, for both of its threads.
#[derive(Debug, Default)]
struct Devices {
    /// Where commands for them go.
    commands: BTreeMap<u64, UnboundedSender<ToPeer>>,
    /// Updates in the spool that nothing was decided on yet, by number, with whose they are.
    uploads: BTreeMap<u64, (u64, Upload)>,
    next_upload: u64,
}

/// A leaf of a run.
#[derive(Debug)]
pub struct Leaf {
    peers: UnboundedReceiver<FromPeer>,
    /// What devices have said since there was a root.
    waiting: VecDeque<FromPeer>,
    devices: Arc<Mutex<Devices>>,
    /// Between two roots.
    run: Option<Box<LeafRunBox>>,
}

/// The run's part at this leaf, which has no other representation for people.
struct LeafRunBox(LeafRun);

impl std::fmt::Debug for LeafRunBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LeafRun")
    }
}

fn lock(devices: &Mutex<Devices>) -> MutexGuard<'_, Devices> {
    devices.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Leaf {
    /// The leaf whose devices speak through `peers`.
    #[must_use]
    pub fn new(run: LeafRun, peers: UnboundedReceiver<FromPeer>) -> Self {
        let run = Some(Box::new(LeafRunBox(run)));
        Self { peers, waiting: VecDeque::new(), devices: Arc::default(), run }
    }

    /// Listens to devices, without a root, until `until` is over; what they say waits.
    pub async fn wait<T>(&mut self, until: impl Future<Output = T>) -> T {
        let mut until = std::pin::pin!(until);
        loop {
            tokio::select! {
                over = &mut until => return over,
                Some(event) = self.peers.recv() => self.waiting.push_back(event),
            }
        }
    }

    /// Serves the root at the other end of a link until that breaks, or `until` is over. Devices that were connected are then
    /// disconnected: they come again, and are known to the next root.
    ///
    /// # Errors
    /// This machine cannot do what it must.
    pub async fn serve(
        &mut self,
        link: Link<ToRoot, ToLeaf>,
        hello: ToRoot,
        until: impl Future<Output = ()>,
    ) -> Result<(), RunError> {
        let Link { sender, mut receiver } = link;
        let _ = sender.send(hello.into());
        let (jobs, queue) = std::sync::mpsc::channel();
        let mut worker = Worker {
            run: self.run.take().expect("a leaf serves one root at a time").0,
            devices: self.devices.clone(),
            root: sender.clone(),
            broadcast: None,
        };
        let working = tokio::task::spawn_blocking(move || {
            let result = worker.work(&queue);
            (worker.run, result)
        });
        let mut here = BTreeSet::new();
        let mut until = std::pin::pin!(until);
        loop {
            if let Some(event) = self.waiting.pop_front() {
                self.forward(event, &sender, &mut here);
                continue;
            }
            tokio::select! {
                () = &mut until => break,
                frame = receiver.recv() => {
                    if frame.is_none_or(|frame| jobs.send(frame).is_err()) {
                        break;
                    }
                }
                Some(event) = self.peers.recv() => self.forward(event, &sender, &mut here),
            }
        }
        // The worker ends with its queue.
        drop((jobs, receiver, sender));
        self.dismiss();
        let (run, result) =
            working.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        self.run = Some(Box::new(LeafRunBox(run)));
        result
    }

    /// Passes on to the root what a transport says about a device.
    fn forward(&mut self, event: FromPeer, root: &UnboundedSender<Frame<ToRoot>>, here: &mut BTreeSet<u64>) {
        let said = match event {
            FromPeer::Connected { peer, commands } => {
                lock(&self.devices).commands.insert(peer.0, commands);
                here.insert(peer.0);
                ToRoot::Connected { peer: peer.0 }
            }
            FromPeer::Uploaded { peer, header, upload, turn: _, bytes } => {
                if !here.contains(&peer.0) {
                    discard(upload);
                    return;
                }
                let mut devices = lock(&self.devices);
                let number = devices.next_upload;
                devices.next_upload += 1;
                devices.uploads.insert(number, (peer.0, upload));
                ToRoot::Uploaded { peer: peer.0, header, number, bytes }
            }
            FromPeer::Disconnected { peer, reason, parted } => {
                lock(&self.devices).commands.remove(&peer.0);
                if !here.remove(&peer.0) {
                    return;
                }
                ToRoot::Disconnected { peer: peer.0, reason, parted }
            }
            FromPeer::Message { peer, message, bytes, place: _ } if here.contains(&peer.0) => {
                ToRoot::Message { peer: peer.0, message, bytes }
            }
            FromPeer::Waits { peer } if here.contains(&peer.0) => ToRoot::Waits { peer: peer.0 },
            FromPeer::CutOff { client } => ToRoot::CutOff { client },
            FromPeer::Revoked { client } => ToRoot::Revoked { client },
            other => return told(&other),
        };
        let _ = root.send(said.into());
    }

    /// Disconnects all devices, and removes updates that nothing was decided on: the devices have them still.
    fn dismiss(&mut self) {
        let mut devices = lock(&self.devices);
        for commands in std::mem::take(&mut devices.commands).into_values() {
            let _ = commands.send(ToPeer::Disconnect);
        }
        let uploads = std::mem::take(&mut devices.uploads);
        drop(devices);
        for (_, upload) in uploads.into_values() {
            discard(upload);
        }
    }
}

/// What concerns this machine alone is for its operator.
fn told(event: &FromPeer) {
    match event {
        FromPeer::Refused { client, refusal, .. } => warn!("{client} may not take part: {refusal}"),
        FromPeer::LookupFailed { error } => warn!("a device cannot be looked up: {error}"),
        FromPeer::SpoolFailed { path, error, .. } => {
            warn!("an update cannot be written to {}: {error}", path.display());
        }
        FromPeer::Full { places } => warn!("all {places} places for connections are taken"),
        FromPeer::ForeignProtocol { address } => {
            warn!("a device at {address} speaks no version of the protocol that this program speaks");
        }
        other => debug!(?other, "not for the root"),
    }
}

fn discard(upload: Upload) {
    let Upload::File(path) = upload else { return };
    tokio::task::spawn_blocking(move || {
        if let Err(error) = std::fs::remove_file(&path) {
            debug!("cannot remove {}: {error}", path.display());
        }
    });
}

/// Carries out what the root asks, in order.
struct Worker {
    run: LeafRun,
    devices: Arc<Mutex<Devices>>,
    root: UnboundedSender<Frame<ToRoot>>,
    broadcast: Option<Broadcast>,
}

impl Worker {
    fn work(&mut self, queue: &std::sync::mpsc::Receiver<Frame<ToLeaf>>) -> Result<(), RunError> {
        while let Ok(Frame { message, payload }) = queue.recv() {
            self.carry_out(message, payload)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, message: ToLeaf, payload: Bytes) -> Result<(), RunError> {
        match message {
            ToLeaf::Welcome { run } => self.run.is_of(run),
            ToLeaf::Open { round, opening, failed, clip } => {
                let Ok(mut opening) = serde_json::from_str::<Opening>(&opening) else {
                    warn!(
                        "the root opens a round in words that this version does not understand: run the same version on all servers"
                    );
                    return Ok(());
                };
                opening.round = round;
                let (broadcast, held) = self.run.open(&opening, (failed, clip), &payload)?;
                self.broadcast = Some(broadcast);
                self.tell(ToRoot::Opened { round, held }, Bytes::new());
            }
            ToLeaf::Accept { round, uploads } => {
                let mut devices = lock(&self.devices);
                let found: Vec<_> = uploads
                    .iter()
                    .map(|(client, number)| Some((*client, devices.uploads.remove(number)?.1)))
                    .collect();
                drop(devices);
                let there: Vec<_> = found.iter().flatten().cloned().collect();
                let mut accepted = self.run.accept(round, &there)?.into_iter();
                let outcomes =
                    found.iter().map(|found| found.as_ref().and_then(|_| accepted.next())).collect();
                self.tell(ToRoot::Accepted { round, outcomes }, Bytes::new());
            }
            ToLeaf::Sum { round, clients } => match self.run.sum(round, &clients.into_iter().collect())? {
                Some(sum) => self.tell(ToRoot::Summed { round }, sum.to_bytes(Precision::F32).into()),
                None => self.tell(ToRoot::Lacks { round }, Bytes::new()),
            },
            ToLeaf::Closed { round } => self.run.closed(round)?,
            ToLeaf::Discard { number } => {
                let upload = lock(&self.devices).uploads.remove(&number);
                if let Some((_, upload)) = upload {
                    self.run.remove(&upload)?;
                }
            }
            ToLeaf::Message { peer, message } => self.command(peer, ToPeer::Message(message)),
            ToLeaf::Task { peer, round } => {
                let broadcast = self.broadcast.as_ref().filter(|broadcast| broadcast.round == round);
                if let Some(broadcast) = broadcast {
                    self.command(peer, ToPeer::Task(broadcast.to(None)));
                }
            }
            ToLeaf::Frozen { peer, digest } => self.command(peer, ToPeer::Frozen(digest, payload)),
            ToLeaf::Disconnect { peer } => self.command(peer, ToPeer::Disconnect),
        }
        Ok(())
    }

    fn tell(&self, message: ToRoot, payload: Bytes) {
        let _ = self.root.send(Frame { message, payload });
    }

    /// A device that has left has dropped its end.
    fn command(&self, peer: u64, command: ToPeer) {
        if let Some(commands) = lock(&self.devices).commands.get(&peer) {
            let _ = commands.send(command);
        }
    }
}
