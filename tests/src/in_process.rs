//! An aggregator that serves real connections from this process.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use aggregator::coordinator::{Outcome, Resume};
use aggregator::enrolment::{Admission, Register};
use aggregator::events::{Notice, text};
use aggregator::round::RoundRecord;
use aggregator::run::Run;
use aggregator::run::directory::RunDirectory;
use aggregator::serve::{Served, serve};
use aggregator::storage::Disk;
use aggregator::transport::Listener;
use aggregator::transport::identity::ServerIdentity;
use models::ParamSet;
use tokio::sync::watch;

use crate::gate::Gate;
use crate::keys::device_key;
use crate::process::PATIENCE;
use crate::scenario::Scenario;
use shared::congestion::Congestion;
use shared::id::ClientId;
use shared::identity::PublicKey;

/// An aggregator on a thread of this process. It stops when this is dropped.
pub struct InProcessServer {
    scenario: Scenario,
    address: SocketAddr,
    pin: PublicKey,
    remarks: mpsc::Receiver<String>,
    ended: Option<JoinHandle<(Outcome, Vec<RoundRecord>, ParamSet)>>,
    stop: watch::Sender<bool>,
}

impl InProcessServer {
    /// Serves `scenario`, its run in `root`, on a port of the system's choice.
    ///
    /// # Panics
    /// If the run cannot be begun or served.
    #[must_use]
    pub fn start(scenario: Scenario, root: &Path) -> Self {
        Self::start_with(scenario, root, |listener| listener)
    }

    /// The same, with a listener that is changed in some way.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_with(
        scenario: Scenario,
        root: &Path,
        change: impl FnOnce(Listener) -> Listener + Send + 'static,
    ) -> Self {
        let run = Run::begin(Arc::new(Disk), RunDirectory::new(root), scenario.config.clone(), None);
        let run = run.expect("the temporary directory can be written");
        let identity = ServerIdentity::generate().expect("a key can be made");
        let pin = identity.key();
        let (stop, stopped) = watch::channel(false);
        let (remark, remarks) = mpsc::channel();
        let ended = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            runtime.expect("the system gives two threads").block_on(async {
                let mut sink = |notice: &Notice<'_>| {
                    if let Some(text) = text(notice) {
                        let _ = remark.send(text);
                    }
                };
                let any = SocketAddr::from(([127, 0, 0, 1], 0));
                let listener = Listener::bind(
                    any,
                    &identity,
                    Admission::new(Register::Anyone),
                    run.config().policy.connection_timeout,
                    Congestion::default(),
                );
                let listener = change(listener.expect("some port is free"));
                let served = Box::pin(serve(
                    run,
                    Resume::default(),
                    listener,
                    &identity,
                    None,
                    stopped.clone(),
                    &mut sink,
                ))
                .await;
                let Served { run, outcome, shutdown } = served.expect("no peer ends a run");
                shutdown.finish(Duration::ZERO, stopped).await;
                let model = run.current_model().expect("the checkpoint can be read");
                (outcome, run.records().to_vec(), model)
            })
        });
        let in_process = remarks.recv_timeout(PATIENCE).expect("the aggregator listens");
        let address = in_process.strip_prefix("listening on ").and_then(|rest| rest.split(',').next());
        let address = address.and_then(|text| text.parse().ok()).expect("it says where");
        Self { scenario, address, pin, remarks, ended: Some(ended), stop }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its key.
    #[must_use]
    pub fn pin(&self) -> PublicKey {
        self.pin
    }

    /// What it serves.
    #[must_use]
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The identity of a client.
    #[must_use]
    pub fn client(&self, index: u32) -> ClientId {
        device_key(index).public().client()
    }

    /// Joins an honest client whose training waits.
    #[must_use]
    pub fn gate(&self, index: u32) -> Gate {
        let share = self.scenario.shares[index as usize].clone();
        Gate::join(self.address.to_string(), self.pin, &device_key(index), share)
    }

    /// Waits until the operator is told something that has all of `parts` in it.
    ///
    /// # Panics
    /// If it is not reported.
    pub fn remark(&self, parts: &[&str]) {
        let mut heard = Vec::new();
        loop {
            let Ok(text) = self.remarks.recv_timeout(PATIENCE) else {
                panic!("{parts:?} was not reported, only {heard:#?}")
            };
            if parts.iter().all(|part| text.contains(part)) {
                return;
            }
            heard.push(text);
        }
    }

    /// The messages to the operator that have not been read yet.
    #[must_use]
    pub fn said(&self) -> Vec<String> {
        self.remarks.try_iter().collect()
    }

    /// Waits until the run is over: how it ended, its rounds, its model.
    ///
    /// # Panics
    /// If the aggregator panicked.
    #[must_use]
    pub fn end(mut self) -> (Outcome, Vec<RoundRecord>, ParamSet) {
        let ended = self.ended.take().expect("it ends once");
        ended.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for InProcessServer {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
    }
}
