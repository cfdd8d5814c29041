//! The driver between a store that fails and a server that is played by hand.

mod frozen;
mod hiding;
#[cfg(target_os = "linux")]
mod samples;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use models::Backend;
use shared::data::{Dataset, View};
use shared::id::{ClientId, RunId};
use shared::message::{TaskId, TaskKind, ToServer, TrainReport, Verdict};
use shared::payload::Payload;
use shared::spec::{RunSpec, SpecText};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;
use crate::address_book::Pass;
use crate::pool::TrainPool;
use crate::sensors::Sensors;
use crate::session::DeviceProfile;
use crate::store::{MemoryStore, SaveHandle, Standing, SyncHandle, Update};
use crate::task::tests::{PERSONALISE, personal_run};
use crate::task::{Task, TestSamples};
use crate::transport::Outgoing;

/// The server's end of a connection.
struct Server {
    incoming: UnboundedSender<Incoming>,
    outgoing: UnboundedReceiver<Outgoing>,
}

fn connection() -> (Channel, Server) {
    let (to_server, outgoing) = unbounded_channel();
    let (to_client, incoming) = unbounded_channel();
    let link = Channel { server: "lab:4433".to_owned(), elsewhere: false, outgoing: to_server, incoming };
    (link, Server { incoming: to_client, outgoing })
}

impl Server {
    fn says(&self, message: ToClient) {
        self.incoming.send(Incoming::Message(message)).unwrap();
    }

    fn welcomes(&self, wants: Option<u32>) {
        self.says(ToClient::Welcome { spec: SpecText::of(&spec()), wants });
    }

    /// Hears the client's hello and asks it for this work in round 3 of a run that makes personal models.
    async fn asks(&mut self, work: TaskKind) {
        assert!(matches!(self.message().await, ToServer::Hello(_)));
        let (spec, payload) = personal_run();
        self.says(ToClient::Welcome { spec: SpecText::of(&spec), wants: None });
        self.incoming.send(Incoming::Task { round: 3, work, failed: 0, payload }).unwrap();
    }

    /// What the client sends next; what it says on every connection is left out.
    async fn hears(&mut self) -> Outgoing {
        loop {
            let outgoing = self.outgoing.recv().await.expect("the client is there");
            match &outgoing {
                Outgoing::Message(message)
                    if matches!(
                        **message,
                        ToServer::Heartbeat(_) | ToServer::SkippedSamples { .. } | ToServer::Untested { .. }
                    ) => {}
                _ => return outgoing,
            }
        }
    }

    async fn message(&mut self) -> ToServer {
        match self.hears().await {
            Outgoing::Message(message) => *message,
            update @ Outgoing::Update(..) => panic!("{update:?}"),
        }
    }

    /// Says that the run is over and, as a transport does, that nothing follows.
    fn finishes(self) {
        self.says(ToClient::Finished { rounds: 3 });
        self.incoming.send(Incoming::Closed { reason: "closed".to_owned() }).unwrap();
    }
}

/// What each attempt to connect brings; those after the last take for ever.
#[derive(Clone)]
struct Attempts(Arc<Mutex<VecDeque<Result<Channel, ConnectError>>>>);

impl Attempts {
    fn new<const N: usize>(attempts: [Result<Channel, ConnectError>; N]) -> Self {
        Self(Arc::new(Mutex::new(attempts.into())))
    }
}

impl Connector for Attempts {
    async fn connect(&mut self, _: Pass) -> Result<Channel, ConnectError> {
        let next = self.0.lock().unwrap().pop_front();
        match next {
            Some(attempt) => attempt,
            None => std::future::pending().await,
        }
    }
}

/// A store whose operations fail as often as they are told to.
#[derive(Default)]
struct Failing {
    memory: MemoryStore,
    local: Option<fn() -> StoreError>,
    /// So often forgetting finds no room; how often it was tried is counted, and told with the verdict.
    full: usize,
    forgotten: Option<UnboundedSender<(usize, Option<Verdict>)>>,
    forgets: usize,
    /// What keeping personal models fails with, first to last, before it succeeds; how it ended is told.
    personal: VecDeque<std::io::ErrorKind>,
    personals: Option<UnboundedSender<bool>>,
    /// What is kept is durable once it is released.
    durable: Mutex<Option<Slow>>,
    /// Frozen parameters are kept once this is released.
    frozen: Mutex<Option<Slow>>,
}

/// Work of a store that ends once it is released, and then says so.
type Slow = (std::sync::mpsc::Receiver<()>, Arc<AtomicBool>);

fn slow((released, done): Slow) -> SyncHandle {
    Box::new(move || {
        released.recv().unwrap();
        done.store(true, Ordering::SeqCst);
        Ok(())
    })
}

impl Store for Failing {
    fn pending(&mut self) -> Result<Option<(TaskId, TrainReport)>, StoreError> {
        self.memory.pending()
    }

    fn payload(&mut self) -> Result<Payload, StoreError> {
        self.memory.payload()
    }

    fn save(&mut self, update: &Update) -> Result<(), StoreError> {
        self.memory.save(update)
    }

    fn sync_handle(&self) -> Option<SyncHandle> {
        let durable = self.durable.lock().unwrap().take();
        durable.map(slow).or_else(|| self.memory.sync_handle())
    }

    fn save_frozen(&self, _: &str, _: &Bytes) -> Option<SaveHandle> {
        self.frozen.lock().unwrap().take().map(slow)
    }

    fn forget(&mut self, verdict: Option<&Verdict>) -> Result<(), StoreError> {
        self.forgets += 1;
        if let Some(forgotten) = &self.forgotten {
            forgotten.send((self.forgets, verdict.cloned())).unwrap();
        }
        if self.forgets <= self.full {
            let (path, error) = ("runs/1".into(), std::io::ErrorKind::StorageFull.into());
            return Err(StoreError::Io { action: "create the directory", path, error });
        }
        self.memory.forget(verdict)
    }

    fn client_state(&mut self, run: RunId) -> Result<Option<Vec<u8>>, StoreError> {
        match self.local {
            Some(error) => Err(error()),
            None => self.memory.client_state(run),
        }
    }

    fn standing(&mut self, run: RunId) -> Result<Standing, StoreError> {
        self.memory.standing(run)
    }

    fn save_personal(&mut self, run: RunId, bytes: &[u8]) -> Result<(), StoreError> {
        let fails = self.personal.pop_front();
        if let Some(personals) = &self.personals {
            personals.send(fails.is_none()).unwrap();
        }
        if let Some(kind) = fails {
            let (path, error) = ("personal/1.safetensors".into(), kind.into());
            return Err(StoreError::Io { action: "write", path, error });
        }
        self.memory.save_personal(run, bytes)
    }
}

fn spec() -> Arc<RunSpec> {
    Arc::new(RunSpec { run: RunId::from_bytes([1; 8]), ..RunSpec::example("scaffold") })
}

fn data() -> View {
    View::whole(Arc::new(Dataset::new(vec![1, 2, 2], vec![0; 8], vec![0_u8, 1], 2).unwrap()))
}

fn of(data: View) -> Source {
    Source::Read(DeviceSamples { data, skipped: 0, tests: TestSamples::none(), trainer: None })
}

fn participant() -> Participant {
    Participant {
        client: ClientId::from_bytes([1; 16]),
        identity: None,
        secure_only: None,
        private_only: None,
        samples: of(data()),
        sensors: Sensors::none(),
        backend: Backend::cpu(),
        pool: TrainPool::single(1).unwrap(),
        memory: None,
        at_rest: || (),
        progress: None,
        alive: None,
    }
}

/// Client and server, neither of whom waits for the other for ever.
async fn together<A, B>(client: impl Future<Output = A>, server: impl Future<Output = B>) -> (A, B) {
    let both = async { tokio::join!(client, server) };
    tokio::time::timeout(Duration::from_mins(1), both).await.expect("the two get on with each other")
}

/// Takes part until the end. Returns how it ended, and the notices.
async fn takes_part(attempts: Attempts, store: Failing) -> (Result<SessionEnd, DriverError>, Vec<Notice>) {
    let (_stop, stopped) = watch::channel(false);
    let mut told = Vec::new();
    let mut notice = |notice: Notice| told.push(notice);
    let result = Box::pin(take_part(participant(), attempts, store, stopped, &mut notice)).await;
    (result, told)
}

#[tokio::test]
async fn client_state_that_cannot_be_read_fails_the_round_and_not_the_client() {
    let damaged = || StoreError::Damaged {
        path: "runs/1/local".into(),
        problem: "it ends".to_owned(),
        remedy: "remove it",
    };
    let store = Failing { local: Some(damaged), ..Failing::default() };
    let (link, mut server) = connection();
    let served = async {
        assert!(matches!(server.message().await, ToServer::Hello(_)));
        server.welcomes(None);
        for round in [1, 2] {
            server
                .incoming
                .send(Incoming::Task { round, work: TaskKind::TRAIN, failed: 0, payload: Bytes::new() })
                .unwrap();
            match server.message().await {
                ToServer::Failed { round: of, reason } => {
                    assert_eq!(of, round);
                    assert!(reason.contains("runs/1/local is damaged"), "{reason}");
                }
                other => panic!("{other:?}"),
            }
        }
        server.finishes();
    };
    let ((result, told), ()) = together(takes_part(Attempts::new([Ok(link)]), store), served).await;
    assert_eq!(result.unwrap(), SessionEnd::Completed { rounds: 3 });
    let failed = told.iter().filter(|notice| matches!(notice, Notice::Failed { .. })).count();
    assert_eq!(failed, 2, "{told:?}");
}

#[tokio::test]
async fn a_device_whose_classes_are_not_the_runs_ends_and_says_whose_fault_it_is() {
    let (link, mut server) = connection();
    let served = async {
        assert!(matches!(server.message().await, ToServer::Hello(_)));
        let mut spec = RunSpec::clone(&spec());
        spec.data.shape = vec![1, 2, 2];
        spec.data.class_names = vec!["cat".to_owned(), "dog".to_owned()];
        server.says(ToClient::Welcome { spec: SpecText::of(&spec), wants: None });
        let ToServer::Declined { reason } = server.message().await else { panic!("before any task") };
        assert!(reason.contains("--classes"), "{reason}");
        drop(server);
    };
    let data = Dataset::new(vec![1, 2, 2], vec![0; 8], vec![0_u8, 1], 2).unwrap();
    let data = View::whole(Arc::new(data.named(vec!["dog".to_owned(), "cat".to_owned()])));
    let participant = Participant { samples: of(data), ..participant() };
    let (attempts, (_stop, stopped)) = (Attempts::new([Ok(link)]), watch::channel(false));
    let mut told = Vec::new();
    let mut notice = |notice: Notice| told.push(notice);
    let takes_part = Box::pin(take_part(participant, attempts, Failing::default(), stopped, &mut notice));
    let (result, ()) = together(takes_part, served).await;
    let Ok(SessionEnd::Unfit(failure)) = result else { panic!("{result:?}") };
    assert_eq!((failure.blame, failure.permanent), (Blame::Owner, true));
    assert!(failure.reason.contains("--classes"), "{failure}");
    assert!(!told.iter().any(|notice| matches!(notice, Notice::Failed { .. })), "{told:?}");
}

fn other_server() -> ConnectError {
    let key = |byte| shared::identity::SecretKey::from_bytes([byte; 32]).public();
    ConnectError::Untrusted { server: "lab:4433".to_owned(), found: key(2), trusted: key(1) }
}

#[tokio::test]
async fn another_server_ends_a_client_that_has_not_found_its_own_yet() {
    let (result, told) = takes_part(Attempts::new([Err(other_server())]), Failing::default()).await;
    assert!(matches!(result, Err(DriverError::Connect(ConnectError::Untrusted { .. }))), "{told:?}");
}

#[tokio::test]
async fn another_server_is_waited_for_to_go_once_the_right_one_has_been_there() {
    let (first, mut server) = connection();
    let (second, mut again) = connection();
    let served = async {
        server.message().await;
        server.welcomes(None);
        drop(server);
        again.message().await;
        again.welcomes(None);
        again.finishes();
    };
    let attempts = Attempts::new([Ok(first), Err(other_server()), Ok(second)]);
    let ((result, told), ()) = together(takes_part(attempts, Failing::default()), served).await;
    assert_eq!(result.unwrap(), SessionEnd::Completed { rounds: 3 });
    let said = |notice: &&Notice| matches!(notice, Notice::Disconnected { reason, .. } if reason.contains("another server answers"));
    assert_eq!(told.iter().filter(said).count(), 1, "{told:?}");
}

#[tokio::test]
async fn a_receipt_on_a_full_disk_is_settled_as_soon_as_there_is_room() {
    let (tell, mut forgotten) = unbounded_channel();
    let mut store = Failing { full: 2, forgotten: Some(tell), ..Failing::default() };
    let held = TaskId { run: spec().run, round: 4 };
    let payload = Bytes::from_static(b"update").into();
    store.save(&Update { id: held, report: TrainReport::default(), payload, local: None }).unwrap();
    let (link, mut server) = connection();
    let served = async {
        assert!(matches!(server.message().await, ToServer::Hello(hello) if hello.holds == Some(held)));
        server.welcomes(Some(4));
        assert!(matches!(server.hears().await, Outgoing::Update(header, _) if header.round == 4));
        server.says(ToClient::Receipt { round: 4, verdict: Verdict::Accepted });
        for attempt in 1..=3 {
            assert_eq!(forgotten.recv().await, Some((attempt, Some(Verdict::Accepted))));
        }
        server.finishes();
    };
    let ((result, told), ()) = together(takes_part(Attempts::new([Ok(link)]), store), served).await;
    assert_eq!(result.unwrap(), SessionEnd::Completed { rounds: 3 });
    let full = |notice: &&Notice| matches!(notice, Notice::NoRoomForState { round: 4, .. });
    assert_eq!(told.iter().filter(full).count(), 1, "{told:?}");
    assert!(told.iter().any(|notice| matches!(notice, Notice::Receipt { round: 4, .. })), "{told:?}");
}

#[tokio::test]
async fn a_server_that_takes_no_last_words_is_left_without_them() {
    let (link, mut server) = connection();
    let served = async {
        server.message().await;
        server.welcomes(None);
        server.says(ToClient::Finished { rounds: 3 });
        // The transport could send nothing, and does not report it; in the end it is told to stop.
        server.incoming.closed().await;
    };
    let ((result, _), ()) = together(takes_part(Attempts::new([Ok(link)]), Failing::default()), served).await;
    assert_eq!(result.unwrap(), SessionEnd::Completed { rounds: 3 });
}

#[tokio::test]
async fn a_client_does_not_end_before_its_update_is_durable() {
    let (release, released) = std::sync::mpsc::channel();
    let durable = Arc::new(AtomicBool::new(false));
    let store = Failing { durable: Mutex::new(Some((released, durable.clone()))), ..Failing::default() };
    let device = DeviceProfile::of(participant().client, &data(), 0);
    let (finished, _) = unbounded_channel();
    let session = Session::new(device, None, Duration::ZERO);
    let mut notice = |_| ();
    let connector = Attempts::new([]);
    let mut driver =
        Driver::new(participant(), session, connector, store, Training::new(finished), &mut notice);
    let report = TrainReport { duration: Duration::from_hours(1), ..TrainReport::default() };
    let (payload, id) = (Bytes::from_static(b"update").into(), TaskId { run: spec().run, round: 1 });
    let update = Update { id, report, payload, local: None };
    let result = crate::task::TaskOutput { work: TaskKind::TRAIN, report, update, personal: None };
    assert!(driver.save(result, None).is_some());
    let left = async {
        driver.shut_down().await;
        durable.load(Ordering::SeqCst)
    };
    let (durable, ()) = tokio::join!(left, async { release.send(()).unwrap() });
    assert!(durable);
}

#[tokio::test]
async fn a_personal_model_on_a_full_disk_is_kept_before_the_server_hears_of_it() {
    let (tell, mut personals) = unbounded_channel();
    let full = [std::io::ErrorKind::StorageFull].into();
    let store = Failing { personal: full, personals: Some(tell), ..Failing::default() };
    let (link, mut server) = connection();
    let served = async {
        server.asks(PERSONALISE).await;
        let Outgoing::Update(header, _) = server.hears().await else { panic!("no update") };
        assert!(header.round == 3 && header.report.metrics.iter().any(Option::is_some));
        let attempts: Vec<_> = std::iter::from_fn(|| personals.try_recv().ok()).collect();
        assert_eq!(attempts, [false, true], "the update was sent before the model was kept");
        server.finishes();
    };
    let ((result, told), ()) = together(takes_part(Attempts::new([Ok(link)]), store), served).await;
    assert_eq!(result.unwrap(), SessionEnd::Completed { rounds: 3 });
    let full = |notice: &&Notice| matches!(notice, Notice::NoRoom { round: 3, reason } if reason.contains("personal/1"));
    assert_eq!(told.iter().filter(full).count(), 1, "{told:?}");
}

#[tokio::test]
async fn what_was_trained_for_all_does_not_wait_for_room_for_the_personal_model() {
    let (tell, mut personals) = unbounded_channel();
    let full = [std::io::ErrorKind::StorageFull].into();
    let store = Failing { personal: full, personals: Some(tell), ..Failing::default() };
    let (link, mut server) = connection();
    let served = async {
        server.asks(TaskKind { train: true, ..PERSONALISE }).await;
        let Outgoing::Update(header, _) = server.hears().await else { panic!("no update") };
        assert!(header.round == 3 && header.report.steps > 0);
        let attempts: Vec<_> = std::iter::from_fn(|| personals.try_recv().ok()).collect();
        assert_eq!(attempts, [false]);
        server.finishes();
    };
    let ((result, _), ()) = together(takes_part(Attempts::new([Ok(link)]), store), served).await;
    assert_eq!(result.unwrap(), SessionEnd::Completed { rounds: 3 });
}

#[tokio::test]
async fn a_personal_model_that_cannot_be_kept_is_a_failed_round_and_not_a_score() {
    let store = Failing { personal: [std::io::ErrorKind::PermissionDenied].into(), ..Failing::default() };
    let (link, mut server) = connection();
    let served = async {
        server.asks(PERSONALISE).await;
        match server.hears().await {
            Outgoing::Message(message) => match *message {
                ToServer::Failed { round: 3, reason } => assert!(reason.contains("personal/1"), "{reason}"),
                other => panic!("{other:?}"),
            },
            Outgoing::Update(..) => panic!("scores of a model that is not there were sent"),
        }
        server.finishes();
    };
    let ((result, _), ()) = together(takes_part(Attempts::new([Ok(link)]), store), served).await;
    assert_eq!(result.unwrap(), SessionEnd::Completed { rounds: 3 });
}
