//! What a leaf has of its devices: where commands for them go, and their updates that nothing was decided on yet.

use std::collections::{BTreeMap, BTreeSet};
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
