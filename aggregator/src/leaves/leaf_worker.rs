//! What a leaf does for the root: durable steps, and commands to its devices.

use bytes::Bytes;
use models::Precision;
use tokio::sync::mpsc::UnboundedSender;
use tracing::warn;

use super::leaf_devices::LeafDevices;
use super::message::{Frame, ToLeaf, ToRoot};
use super::shown::Shown;
use crate::coordinator::Opening;
use crate::peer::ToPeer;
use crate::run::{Broadcast, LeafRun, LeavesError, RunError, Sent};

/// Carries out what the root asks, in order.
pub struct Worker {
    run: LeafRun,
    devices: LeafDevices,
    root: UnboundedSender<Frame<ToRoot>>,
    broadcast: Option<Broadcast>,
    /// The frozen parameters, with their digest, once a device has asked for them.
    frozen: Option<(String, Bytes)>,
    /// What it shows of the run could not be written.
    shows_nothing: bool,
}

impl Worker {
    /// For the root at the other end of `root`.
    #[must_use]
    pub fn new(run: LeafRun, devices: LeafDevices, root: UnboundedSender<Frame<ToRoot>>) -> Self {
        Self { run, devices, root, broadcast: None, frozen: None, shows_nothing: false }
    }

    /// Gives the run's part back, for the next root.
    #[must_use]
    pub fn into_run(self) -> LeafRun {
        self.run
    }

    /// Does what the root asks.
    ///
    /// # Errors
    /// This machine cannot do it.
    pub fn carry_out(&mut self, Frame { message, payload }: Frame<ToLeaf>) -> Result<(), RunError> {
        match message {
            ToLeaf::Welcome { run } => self.run.is_of(run),
            ToLeaf::Open { round, opening, failed, clip, agreement, digest, differences } => {
                let Ok(mut opening) = serde_json::from_str::<Opening>(&opening) else {
                    warn!(
                        "the root opens a round in words that this version does not understand: run the same version on all servers, or the one before"
                    );
                    return Ok(());
                };
                opening.round = round;
                let Some(sent) = Sent::of(payload, digest, &differences) else {
                    warn!(
                        "the root sends a broadcast that is shorter than it says: run the same version on all servers, or the one before"
                    );
                    return Ok(());
                };
                let (broadcast, held) =
                    self.run.open(&opening, (failed, clip), agreement.as_deref(), &sent)?;
                self.broadcast = Some(broadcast);
                self.tell(ToRoot::Opened { round, held }, Bytes::new());
            }
            ToLeaf::Agreed { round, agreement } => self.run.agree(round, &agreement)?,
            ToLeaf::Accept { round, uploads } => {
                let found: Vec<_> = uploads
                    .iter()
                    .map(|(client, number)| Some((*client, self.devices.take_upload(*number)?)))
                    .collect();
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
            ToLeaf::Fetch { round, client } => {
                let update = self.run.update(round, client)?.unwrap_or_default();
                self.tell(ToRoot::Fetched { round, client }, update.into());
            }
            ToLeaf::Closed { round } => self.run.closed(round)?,
            ToLeaf::Discard { number } => {
                if let Some(upload) = self.devices.take_upload(number) {
                    self.run.remove(&upload)?;
                }
            }
            ToLeaf::Message { peer, message } => self.devices.command(peer, ToPeer::Message(message)),
            ToLeaf::Task { peer, round, differences } => {
                let broadcast = self.broadcast.as_ref().filter(|broadcast| broadcast.round == round);
                if let Some(broadcast) = broadcast {
                    self.devices.command(peer, ToPeer::Task(broadcast.of_last(differences as usize)));
                }
            }
            ToLeaf::Frozen { peer, digest } => {
                if !payload.is_empty() {
                    self.frozen = Some((digest.clone(), payload));
                }
                if let Some((_, encoded)) = self.frozen.as_ref().filter(|(of, _)| *of == digest) {
                    self.devices.command(peer, ToPeer::Frozen(digest, encoded.clone()));
                }
            }
            ToLeaf::Refused { why } => return Err(LeavesError::Refused { why }.into()),
            // People see that it is old if it cannot be written.
            ToLeaf::Shown { text } => {
                let written = self.run.write_beside(|files, folder| Shown::write(&text, files, folder));
                let fails = written.is_err();
                if let Err(error) = written
                    && !self.shows_nothing
                {
                    warn!("what this server shows of the run cannot be written: {error}");
                }
                self.shows_nothing = fails;
            }
            ToLeaf::Disconnect { peer } => self.devices.command(peer, ToPeer::Disconnect),
        }
        Ok(())
    }

    fn tell(&self, message: ToRoot, payload: Bytes) {
        let _ = self.root.send(Frame { message, payload });
    }
}
