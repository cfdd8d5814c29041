//! The samples that a device tests models on, or why it tests none.

use shared::data::{DataError, View};
use shared::id::ClientId;
use shared::spec::RunSpec;

use super::TestSamples;

/// Why a device does not test a model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Untested {
    /// There is nothing to test it on.
    #[error(
        "there are no test samples: put a test split beside the training samples, or have the run hold some of them out \
         (evaluate.hold-out)"
    )]
    NoSamples,
    /// There may be.
    #[error("the test samples cannot be read: {0}")]
    Unreadable(#[from] DataError),
}

/// The samples for tests: those that the run holds out of the device's samples, or its test split.
pub(super) fn tests(
    spec: &RunSpec,
    client: ClientId,
    data: &View,
    split: &TestSamples,
) -> Result<View, Untested> {
    let tests = if spec.evaluate.hold_out > 0.0 { Some(spec.held_out(client, data)) } else { split.get()? };
    tests.filter(|tests| !tests.is_empty()).ok_or(Untested::NoSamples)
}

/// The samples for tests of personal models: the test split, which has the classes of all clients, if the device has one.
pub(super) fn tests_of_personal(
    spec: &RunSpec,
    client: ClientId,
    data: &View,
    split: &TestSamples,
) -> Result<View, Untested> {
    match split.get() {
        Ok(Some(split)) if !split.is_empty() => Ok(split),
        _ => tests(spec, client, data, split),
    }
}

/// Looks before any round whether the device can test what the run will have it test; `None` if it can. It may read the test split.
pub(crate) fn untested(
    spec: &RunSpec,
    client: ClientId,
    data: &View,
    split: &TestSamples,
) -> Option<Untested> {
    let found = if spec.evaluate.on_clients_every > 0 {
        tests(spec, client, data, split)
    } else {
        tests_of_personal(spec, client, data, split)
    };
    found.err()
}
