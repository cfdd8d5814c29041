//! Secrets that a test gives to a run, so that another run has the same noise.

use std::fs;
use std::path::Path;

use edge_client::masking::State;
use edge_client::store::{DiskStore, Store as _};
use shared::id::RunId;
use shared::secret::Secret;
use shared::secure::Exchange;

use crate::testbed::Testbed;

/// The secret that simulated private runs begin with, so that all have the same noise.
pub const SECRET: [u8; 32] = [9; 32];

/// Puts this secret where the run of this name among `runs` begins, as a process leaves it that dies while it begins the run.
///
/// # Panics
/// If it cannot be written.
pub fn plant_secret(runs: &Path, name: &str, secret: [u8; 32]) {
    let state = runs.join(name).join("state");
    fs::create_dir_all(&state).expect("created");
    fs::write(state.join("lock"), "").expect("written");
    fs::write(state.join("secret"), secret).expect("written");
}

/// Gives a device the secret that its noise has in a simulation that began with `secret`, as it would have kept it of a round before the
/// first one.
///
/// # Panics
/// If it cannot be kept.
pub fn plant_noise(testbed: &Testbed, index: u32, run: RunId, secret: &[u8; 32]) {
    let device =
        Secret::new(secret).seed("device noise").derive_bytes("client", testbed.client(index).as_bytes());
    let exchange = Exchange { run, round: 0, attempt: u32::MAX };
    let none: Option<[u8; 32]> = None;
    let bytes = postcard::to_stdvec(&(exchange, [[0; 32], *device.as_bytes()], none, none, none))
        .expect("ids and digests are encoded");
    assert!(State::from_bytes(&bytes).is_some(), "it is a state");
    let mut store = DiskStore::open(&testbed.state(index)).expect("the device is not running");
    store.keep_masking(run, &bytes).expect("the disk works");
}
