//! A client in this process whose training waits until the test lets it go on.
//!
//! Tiny federations rush through their rounds faster than a test can look. With one of these among the clients, and
//! a round that needs all of them, a round stays open for as long as the test likes, without any sleep. All else about
//! it is the real client.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use edge_client::driver::{DeviceSamples, Notice, Participant, Source, take_part};
use edge_client::pool::TrainPool;
use edge_client::quic::QuicConnector;
use edge_client::sensors::Sensors;
use edge_client::session::SessionEnd;
use edge_client::store::MemoryStore;
use edge_client::task::TestSamples;
use edge_client::trust::Trust;
use models::Backend;
use shared::data::View;
use shared::identity::{PublicKey, SecretKey};
use shared::message::Verdict;
use tokio::sync::watch;

use crate::process::PATIENCE;

/// The held client. It leaves when this is dropped.
pub struct Gate {
    reached: Receiver<(u32, Sender<()>)>,
    receipts: Receiver<(u32, Verdict)>,
    signs: Receiver<Sign>,
    ended: Receiver<SessionEnd>,
    _leave: watch::Sender<bool>,
}

/// What the client tells while it trains, or should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// How far it is: told every few milliseconds of a training, also of one that waits.
    Progress,
    /// It gets on. Asked for more often than a training takes.
    Alive,
    /// A training came to its end.
    Trained,
}

/// A training that waits.
#[must_use = "the training waits until this is opened or dropped"]
pub struct Held {
    /// The round.
    pub round: u32,
    _open: Sender<()>,
}

impl Held {
    /// Lets the training begin.
    pub fn open(self) {}
}

impl Gate {
    /// Joins the server at `address` as the device that has `key`.
    ///
    /// # Panics
    /// If the system gives no threads.
    #[must_use]
    pub fn join(address: String, server: PublicKey, key: &SecretKey, data: View) -> Self {
        let (reach, reached) = mpsc::channel();
        let (receive, receipts) = mpsc::channel();
        let (tell, signs) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let (leave, left) = watch::channel(false);
        let pool = TrainPool::single(1).expect("the system gives two threads");
        let participant = Participant {
            client: key.public().client(),
            identity: Some(key.clone()),
            secure_only: None,
            private_only: None,
            samples: Source::Read(DeviceSamples {
                data,
                skipped: 0,
                tests: TestSamples::none(),
                trainer: None,
            }),
            sensors: Sensors::none(),
            backend: Backend::cpu(),
            pool: pool.clone(),
            memory: None,
            at_rest: || {},
            alive: Some(Duration::from_millis(20)),
            progress: Some(Duration::from_millis(5)),
        };
        let key = key.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            let outcome = runtime.expect("the system gives two threads").block_on(async {
                let mut notice = |notice: Notice| match notice {
                    Notice::Training { round, .. } => {
                        let (open, opened) = mpsc::channel::<()>();
                        let _ = reach.send((round, open));
                        // The one worker takes jobs in turn: the training is queued behind this.
                        pool.submit(move |_| {
                            let _ = opened.recv();
                        });
                    }
                    Notice::Receipt { round, verdict } => drop(receive.send((round, verdict))),
                    Notice::Progress(_) => drop(tell.send(Sign::Progress)),
                    Notice::Alive => drop(tell.send(Sign::Alive)),
                    Notice::Trained { .. } => drop(tell.send(Sign::Trained)),
                    _ => {}
                };
                let connector = QuicConnector::new(vec![address], Trust::new(Some(server)), &key);
                take_part(participant, connector, MemoryStore::new(), left, &mut notice).await
            });
            if let Ok(outcome) = outcome {
                let _ = end.send(outcome);
            }
        });
        Self { reached, receipts, signs, ended, _leave: leave }
    }

    /// Waits until a training is due, and holds it.
    ///
    /// # Panics
    /// If none ever is.
    pub fn held(&self) -> Held {
        let (round, open) = self.reached.recv_timeout(PATIENCE).expect("the held client is asked to train");
        Held { round, _open: open }
    }

    /// Waits for the next sign of life.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn sign(&self) -> Sign {
        self.signs.recv_timeout(PATIENCE).expect("the held client tells how it gets on")
    }

    /// Waits for the receipt of `round` and returns the verdict. Receipts of earlier rounds are passed over; one may
    /// also have been lost with its connection.
    ///
    /// # Panics
    /// If it never comes.
    #[must_use]
    pub fn receipt(&self, round: u32) -> Verdict {
        loop {
            let (of, verdict) = self.receipts.recv_timeout(PATIENCE).expect("an update is answered");
            assert!(of <= round, "the receipt of round {round} never came, that of {of} did");
            if of == round {
                return verdict;
            }
        }
    }

    /// Waits until the run is over for this client.
    ///
    /// # Panics
    /// If it never is, or the client failed.
    #[must_use]
    pub fn outcome(&self) -> SessionEnd {
        self.ended.recv_timeout(PATIENCE).expect("the held client comes to an end")
    }
}
