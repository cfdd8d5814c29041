//! What a leaf has of its devices: where commands for them go, and their updates that nothing was decided on yet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::UnboundedSender;

use super::message::ToRoot;
use crate::peer::{FromPeer, ToPeer};
use crate::run::Upload;

/// The devices of a leaf, for both of its threads.
#[derive(Clone, Debug, Default)]
pub struct LeafDevices(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Where commands for them go.
    commands: BTreeMap<u64, UnboundedSender<ToPeer>>,
    /// Updates in the spool that nothing was decided on yet, by number.
    uploads: BTreeMap<u64, Upload>,
    next_upload: u64,
    /// Those of which the root knows.
    here: BTreeSet<u64>,
}

/// What follows from what a transport says about a device.
#[derive(Debug)]
pub enum Said {
    /// It is for the root.
    ToRoot(ToRoot),
    /// An update is not needed.
    Unneeded(Upload),
    /// It is for the operator of this machine.
    Here(FromPeer),
    /// Nothing.
    Nothing,
}

impl LeafDevices {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of what a transport says about a device.
    #[must_use]
    pub fn said(&self, event: FromPeer) -> Said {
        let mut state = self.state();
        let said = match event {
            FromPeer::Connected { peer, commands } => {
                state.commands.insert(peer.0, commands);
                state.here.insert(peer.0);
                ToRoot::Connected { peer: peer.0 }
            }
            FromPeer::Uploaded { peer, header, upload, turn: _, bytes } => {
                if !state.here.contains(&peer.0) {
                    return Said::Unneeded(upload);
                }
                let number = state.next_upload;
                state.next_upload += 1;
                state.uploads.insert(number, upload);
                ToRoot::Uploaded { peer: peer.0, header, number, bytes }
            }
            FromPeer::Disconnected { peer, reason, parted } => {
                state.commands.remove(&peer.0);
                if !state.here.remove(&peer.0) {
                    return Said::Nothing;
                }
                ToRoot::Disconnected { peer: peer.0, reason, parted }
            }
            FromPeer::Message { peer, message, bytes, place: _ } if state.here.contains(&peer.0) => {
                ToRoot::Message { peer: peer.0, message, bytes }
            }
            FromPeer::Waits { peer } if state.here.contains(&peer.0) => ToRoot::Waits { peer: peer.0 },
            FromPeer::CutOff { client } => ToRoot::CutOff { client },
            FromPeer::Revoked { client } => ToRoot::Revoked { client },
            other => return Said::Here(other),
        };
        Said::ToRoot(said)
    }

    /// Disconnects all devices. Gives the updates that nothing was decided on: the devices have them still.
    #[must_use]
    pub fn dismiss(&self) -> Vec<Upload> {
        let mut state = self.state();
        state.here.clear();
        for commands in std::mem::take(&mut state.commands).into_values() {
            let _ = commands.send(ToPeer::Disconnect);
        }
        std::mem::take(&mut state.uploads).into_values().collect()
    }

    /// An update, on which something is decided now.
    #[must_use]
    pub fn take_upload(&self, number: u64) -> Option<Upload> {
        self.state().uploads.remove(&number)
    }

    /// Tells a device something. One that has left has dropped its end.
    pub fn command(&self, peer: u64, command: ToPeer) {
        if let Some(commands) = self.state().commands.get(&peer) {
            let _ = commands.send(command);
        }
    }
}

/// What devices have said since there was a root.
#[derive(Debug, Default)]
pub struct Waiting(VecDeque<FromPeer>);

impl Waiting {
    /// Lets something wait for the next root. Of a device that has left, that root is to hear nothing: it may be at another leaf by now.
    /// Gives the updates that are not needed.
    #[must_use]
    pub fn push(&mut self, event: FromPeer) -> Vec<Upload> {
        let FromPeer::Disconnected { peer: left, .. } = event else {
            self.0.push_back(event);
            return Vec::new();
        };
        let mut unneeded = Vec::new();
        for event in std::mem::take(&mut self.0) {
            match event {
                FromPeer::Uploaded { peer, upload, .. } if peer == left => unneeded.push(upload),
                FromPeer::Connected { peer, .. }
                | FromPeer::Message { peer, .. }
                | FromPeer::Waits { peer }
                    if peer == left => {}
                event => self.0.push_back(event),
            }
        }
        unneeded
    }

    /// The first of it.
    pub fn pop(&mut self) -> Option<FromPeer> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use shared::message::{ToServer, TrainReport, UpdateHeader};
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::coordinator::PeerId;

    #[test]
    fn of_a_device_that_has_left_the_next_root_hears_nothing() {
        let mut waiting = Waiting::default();
        for peer in [PeerId(1), PeerId(2)] {
            let (commands, _) = unbounded_channel();
            let message = ToServer::Goodbye;
            let (header, path) =
                (UpdateHeader { round: 1, report: TrainReport::default() }, PathBuf::from("update"));
            let upload = Upload::File(path);
            for event in [
                FromPeer::Connected { peer, commands },
                FromPeer::Message { peer, message, bytes: 0, place: None },
                FromPeer::Uploaded { peer, header, upload, turn: None, bytes: 0 },
                FromPeer::Waits { peer },
            ] {
                assert!(waiting.push(event).is_empty());
            }
        }
        let left = FromPeer::Disconnected { peer: PeerId(1), reason: String::new(), parted: false };
        assert_eq!(waiting.push(left).len(), 1, "its update is not needed");
        let (devices, mut heard) = (LeafDevices::default(), 0);
        while let Some(event) = waiting.pop() {
            assert!(matches!(
                devices.said(event),
                Said::ToRoot(
                    ToRoot::Connected { peer: 2 }
                        | ToRoot::Message { peer: 2, .. }
                        | ToRoot::Uploaded { peer: 2, .. }
                        | ToRoot::Waits { peer: 2 }
                )
            ));
            heard += 1;
        }
        assert_eq!(heard, 4);
    }
}
