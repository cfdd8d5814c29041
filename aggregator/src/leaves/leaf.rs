//! A leaf: its devices, whose words go to the root, and the thread that carries out what the root asks.

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tracing::{debug, warn};

use super::leaf_devices::{LeafDevices, Said, Waiting};
use super::leaf_worker::Worker;
use super::link::Link;
use super::message::{Frame, ToLeaf, ToRoot};
use crate::peer::FromPeer;
use crate::run::{LeafRun, RunError, Upload};

/// A leaf of a run.
#[derive(Debug)]
pub struct Leaf {
    peers: UnboundedReceiver<FromPeer>,
    /// What devices have said since there was a root.
    waiting: Waiting,
    devices: LeafDevices,
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

impl Leaf {
    /// The leaf whose devices speak through `peers`.
    #[must_use]
    pub fn new(run: LeafRun, peers: UnboundedReceiver<FromPeer>) -> Self {
        let run = Some(Box::new(LeafRunBox(run)));
        Self { peers, waiting: Waiting::default(), devices: LeafDevices::default(), run }
    }

    /// Listens to devices, without a root, until `until` is over; what they say waits.
    pub async fn wait<T>(&mut self, until: impl Future<Output = T>) -> T {
        let mut until = std::pin::pin!(until);
        loop {
            tokio::select! {
                over = &mut until => return over,
                Some(event) = self.peers.recv() => self.waiting.push(event).into_iter().for_each(discard),
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
        let run = self.run.take().expect("a leaf serves one root at a time").0;
        let mut worker = Worker::new(run, self.devices.clone(), sender.clone());
        let mut working = tokio::task::spawn_blocking(move || {
            let result = queue.iter().try_for_each(|frame| worker.carry_out(frame));
            (worker.into_run(), result)
        });
        let mut until = std::pin::pin!(until);
        let worked = loop {
            if let Some(event) = self.waiting.pop() {
                self.forward(event, &sender);
                continue;
            }
            tokio::select! {
                () = &mut until => break None,
                // It cannot go on. The root waits for its answer, and may have nothing more to say.
                worked = &mut working => break Some(worked),
                frame = receiver.recv() => {
                    if frame.is_none_or(|frame| jobs.send(frame).is_err()) {
                        break None;
                    }
                }
                Some(event) = self.peers.recv() => self.forward(event, &sender),
            }
        };
        // The worker ends with its queue.
        drop((jobs, receiver, sender));
        self.devices.dismiss().into_iter().for_each(discard);
        let worked = match worked {
            Some(worked) => worked,
            None => working.await,
        };
        let (run, result) = worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        self.run = Some(Box::new(LeafRunBox(run)));
        result
    }

    /// Passes on to the root what a transport says about a device.
    fn forward(&self, event: FromPeer, root: &UnboundedSender<Frame<ToRoot>>) {
        match self.devices.said(event) {
            Said::ToRoot(said) => _ = root.send(said.into()),
            Said::Unneeded(upload) => discard(upload),
            Said::Here(event) => told(&event),
            Said::Nothing => {}
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::sync::Arc;
    use std::time::Duration;

    use shared::id::RunId;
    use shared::message::TaskKind;
    use tokio::sync::mpsc::unbounded_channel;

    use super::super::link::pair;
    use super::*;
    use crate::config::Config;
    use crate::coordinator::Opening;
    use crate::round::SampleCap;
    use crate::run::directory::RunDirectory;
    use crate::storage::Disk;

    #[tokio::test]
    async fn a_leaf_that_cannot_do_what_it_is_asked_ends_though_the_root_says_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("leaf");
        let config = Config::read(None, &[], RunId::from_bytes([1; 8])).unwrap();
        let run = LeafRun::new(Arc::new(Disk), RunDirectory::new(place.clone()), config).unwrap();
        // Where its folder was is something else.
        fs::remove_dir_all(&place).unwrap();
        fs::write(&place, "").unwrap();
        let (near, far) = pair();
        let opening = Opening {
            round: 1,
            work: TaskKind::TRAIN,
            cohort: BTreeMap::new(),
            roster: BTreeMap::new(),
            sample_cap: SampleCap::NONE,
            owed: BTreeMap::new(),
            counted: BTreeMap::new(),
            ledger: None,
            participations: BTreeMap::new(),
            exchange: 0,
        };
        let opening = serde_json::to_string(&opening).unwrap().into();
        far.sender
            .send(
                ToLeaf::Open {
                    round: 1,
                    opening,
                    failed: 0,
                    clip: None,
                    agreement: None,
                    digest: None,
                    differences: Vec::new(),
                }
                .into(),
            )
            .unwrap();
        let mut leaf = Leaf::new(run, unbounded_channel().1);
        let hello = ToRoot::Hello { leaf: "leaf".to_owned(), epoch: 1, version: String::new(), part: None };
        let served = leaf.serve(near, hello, std::future::pending());
        let served = tokio::time::timeout(Duration::from_mins(1), served).await.expect("it ends");
        assert!(matches!(served, Err(RunError::Disk { .. })), "{served:?}");
        drop(far);
    }
}
