//! What all requests share.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::Settings;
use super::access::Access;
use super::changes::{Told, watch as watch_changes};
use super::drawings::Drawings;
use super::lab::Lab;

/// Pages that watch at a time.
const WATCHERS: usize = 128;

/// What all requests share.
#[derive(Clone)]
pub(super) struct State(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) access: Access,
    pub(super) lab: Arc<Lab>,
    pub(super) told: Arc<Told>,
    pub(super) watchers: Arc<Semaphore>,
    pub(super) drawings: Drawings,
}

impl State {
    pub(super) fn new(settings: Settings, secret: [u8; 32]) -> Self {
        let Settings { runs, experiments, directory, token, hosts, read_only } = settings;
        Self(Arc::new(Inner {
            access: Access::new(token, hosts, read_only, secret),
            lab: Arc::new(Lab::new(runs, experiments, directory)),
            told: Arc::default(),
            watchers: Arc::new(Semaphore::new(WATCHERS)),
            drawings: Drawings::default(),
        }))
    }

    /// Looks for changes as long as the page is served.
    pub(super) async fn watch(self) {
        watch_changes(self.0.lab.clone(), self.0.told.clone()).await;
    }
}
