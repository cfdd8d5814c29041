//! A whole exchange of secure aggregation: three devices with state directories, and a server that is played by hand.

use std::collections::BTreeMap;
use std::path::Path;

use models::{Array, Limits, ParamSet, Precision};
use sha2::{Digest as _, Sha256};
use shared::aggregation::{Scale, Template};
use shared::algorithm::hidden::{HiddenSum, terms};
use shared::algorithm::{Contribution, ErasedAlgorithm, Round, registry};
use shared::message::{Rounding, SecureAnswer, SecureStep, UpdateHeader};
use shared::record::Record;
use shared::secure::{Advertised, Exchange, Recovery, Sealed, Share};
use shared::spec::UpdateFormat;

use super::*;
use crate::store::DiskStore;
use crate::task::{TaskHandle, run_task};

const ROUND: u32 = 2;
const ATTEMPT: u32 = 1;

/// A run whose updates lose bits on their way.
fn spec(secure: bool) -> Arc<RunSpec> {
    let mut spec = RunSpec::example("fedavg");
    (spec.secure.enabled, spec.secure.min_devices) = (secure, 3);
    spec.update.precision = UpdateFormat::F16;
    Arc::new(spec)
}

fn broadcast() -> Bytes {
    let mut tensors = ParamSet::new();
    tensors.insert("head.fc.weight", Array::zeros([2, 4]));
    tensors.insert("head.fc.bias", Array::zeros([2]));
    Record { tensors, ..Record::default() }.to_bytes(Precision::F32).into()
}

/// Each device has samples of its own.
fn data(index: u8) -> View {
    let pixels = (0..12).map(|pixel: u8| pixel * 7 + index * 50).collect();
    View::whole(Arc::new(Dataset::new(vec![1, 2, 2], pixels, vec![0_u8, 1, index % 2], 2).unwrap()))
}

/// A device as the server sees it, and the end of its process.
struct Member {
    client: ClientId,
    server: Server,
    notices: UnboundedReceiver<Notice>,
    stop: watch::Sender<bool>,
    process: JoinHandle<Result<SessionEnd, DriverError>>,
}

impl Member {
    /// Starts the process of a device.
    fn start(index: u8, state: &Path) -> Self {
        let store = DiskStore::open(state).unwrap();
        let (link, server) = connection();
        let (stop, stopped) = watch::channel(false);
        let (tell, notices) = unbounded_channel();
        let (client, identity) = (store.client(), Some(store.key.clone()));
        let participant = Participant { client, identity, samples: of(data(index)), ..participant() };
        let process = tokio::spawn(async move {
            let mut notice = |notice: Notice| drop(tell.send(notice));
            take_part(participant, Attempts::new([Ok(link)]), store, stopped, &mut notice).await
        });
        Self { client, server, notices, stop, process }
    }

    async fn is_welcomed(&mut self, wants: Option<u32>) -> Option<TaskId> {
        let ToServer::Hello(hello) = self.server.message().await else { panic!("the hello comes first") };
        self.server.says(ToClient::Welcome { spec: SpecText::of(&spec(true)), wants });
        hello.holds
    }

    fn is_asked(&self, step: SecureStep) {
        self.server.says(ToClient::Secure { round: ROUND, attempt: ATTEMPT, step: Box::new(step) });
    }

    async fn answers(&mut self) -> SecureAnswer {
        match self.server.message().await {
            ToServer::Secure { round: ROUND, attempt: ATTEMPT, answer } => *answer,
            other => panic!("{other:?}"),
        }
    }

    async fn sends(&mut self) -> (UpdateHeader, Bytes) {
        let Outgoing::Update(header, payload) = self.server.hears().await else { panic!("no update") };
        (*header, payload.to_bytes())
    }

    async fn notice<T>(&mut self, of: impl Fn(&Notice) -> Option<T>) -> T {
        loop {
            let notice = self.notices.recv().await.expect("the process runs");
            if let Some(found) = of(&notice) {
                return found;
            }
        }
    }
}

/// What the server has learned.
#[derive(Default)]
struct Lab {
    said: BTreeMap<ClientId, Advertised>,
    sealed: BTreeMap<ClientId, Vec<(ClientId, Sealed)>>,
    updates: BTreeMap<ClientId, (UpdateHeader, Record)>,
    shares: BTreeMap<ClientId, Vec<Share>>,
}

impl Lab {
    fn neighbours(&self, of: ClientId) -> SecureStep {
        let others = self.said.values().filter(|said| said.client() != of);
        SecureStep::Neighbours { members: self.said.len() as u32, neighbours: others.copied().collect() }
    }

    fn mask(&self, of: ClientId) -> SecureStep {
        SecureStep::Mask { rounding: rounding(), present: self.sealed[&of].clone() }
    }

    /// The sum of the updates.
    fn sum(&self) -> Record {
        let exchange = Exchange { run: spec(true).run, round: ROUND, attempt: ATTEMPT };
        let clients: Vec<ClientId> = self.said.keys().copied().collect();
        let others = |one: &ClientId| clients.iter().copied().filter(|other| other != one).collect();
        let neighbours = clients.iter().map(|client| (*client, others(client))).collect();
        let (members, neighbours) = (&self.said, &neighbours);
        let sent = Sha256::digest(broadcast()).into();
        let terms = &terms(&spec(true), &rounding(), 0, &sent);
        let share = spec(true).secure.threshold;
        let recovery = Recovery { exchange, terms, members, neighbours, share };
        let masks = recovery.masks(&clients, &self.shares);
        with_round(|algorithm, round| {
            let mut sum = HiddenSum::new(algorithm, round).unwrap();
            for (client, (header, record)) in &self.updates {
                sum.check(&record.integers).unwrap();
                sum.add(algorithm, round, (*client, header.report), &record.integers);
            }
            algorithm.encode_partial(sum.reveal(algorithm, &masks.unwrap(), clients.len()).unwrap().0)
        })
    }
}

fn rounding() -> Rounding {
    Rounding { scale: Scale::agree(1000.0, 3, 3), most_samples: 3 }
}

fn with_round<T>(work: impl FnOnce(&dyn ErasedAlgorithm, &Round<'_>) -> T) -> T {
    let spec = spec(true);
    let algorithm = registry::build(&spec.algorithm).unwrap();
    let template =
        Template::of_updates(spec.architecture.parameter_specs().unwrap(), spec.aggregation.buffers);
    let (number, failed, clients, private, scale) = (ROUND, 0, 0, None, rounding().scale);
    let round = Round { number, failed, spec: &spec, template: &template, scale, clients, private };
    work(&*algorithm, &round)
}

/// The sum of what these devices send in the same run without secure aggregation.
fn seen(clients: &[ClientId]) -> Record {
    with_round(|algorithm, round| {
        let mut partial = algorithm.begin(round).unwrap();
        for (index, &client) in clients.iter().enumerate() {
            let task = Task {
                spec: spec(false),
                round: ROUND,
                failed: 0,
                work: TaskKind::TRAIN,
                client,
                data: data(index as u8),
                tests: TestSamples::none(),
                backend: Backend::cpu(),
                trainer: None,
                broadcast: broadcast(),
                local: None,
            };
            let update = run_task(&task, &TaskHandle::default(), None).unwrap().ready().unwrap().update;
            let limits = Limits { max_bytes: update.payload.len() as u64, ..Limits::default() };
            let record = Record::update_from_payload(&update.payload, limits).unwrap();
            let (report, update) = (update.report, algorithm.check(round, record).unwrap());
            let contribution = Contribution { client, weight: report.samples, report, update };
            algorithm.fold(&mut partial, contribution, round);
        }
        algorithm.encode_partial(partial)
    })
}

/// Updates in which nothing is to be seen.
fn hidden(payload: &Bytes) -> Record {
    let limits = Limits { max_bytes: payload.len() as u64, ..Limits::default() };
    let record = Record::read_with_integers(&mut &payload[..], limits).unwrap();
    assert!(record.tensors.is_empty() && record.tested.is_empty());
    assert_eq!(record.scalars::<u32>("an attempt").unwrap(), ATTEMPT);
    record
}

/// Up to the shares that all have sealed.
async fn exchange_keys(lab: &mut Lab, members: &mut [Member]) {
    for member in &mut *members {
        assert_eq!(member.is_welcomed(None).await, None);
        // Before the task, which has a stream of its own.
        member.is_asked(SecureStep::Advertise);
        let SecureAnswer::Keys(keys) = member.answers().await else { panic!("keys") };
        lab.said.insert(keys.client(), keys);
        let task = Incoming::Task { round: ROUND, work: TaskKind::TRAIN, failed: 0, payload: broadcast() };
        member.server.incoming.send(task).unwrap();
    }
    for member in members {
        member.is_asked(lab.neighbours(member.client));
        let SecureAnswer::Shares(shares) = member.answers().await else { panic!("shares") };
        for (to, sealed) in shares {
            lab.sealed.entry(to).or_default().push((member.client, sealed));
        }
    }
}

#[tokio::test]
async fn three_devices_are_seen_as_their_sum_although_one_restarts_before_it_reveals() {
    let states = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let mut members: Vec<Member> =
        (0..).zip(&states).map(|(index, state)| Member::start(index, state.path())).collect();
    let mut lab = Lab::default();
    let clients: Vec<ClientId> = members.iter().map(|member| member.client).collect();
    let outbox = states[0].path().join("outbox/update");
    let played = async {
        exchange_keys(&mut lab, &mut members).await;
        members[0].notice(|notice| matches!(notice, Notice::Hiding { round: ROUND }).then_some(())).await;
        assert!(!outbox.exists(), "it is written once it is hidden");
        for member in &mut members {
            member.is_asked(lab.mask(member.client));
            let (header, payload) = member.sends().await;
            assert_eq!((header.report.samples, header.report.loss.to_bits()), (3, 0), "the loss is hidden");
            lab.updates.insert(member.client, (header, hidden(&payload)));
            let of = |notice: &Notice| match notice {
                Notice::Hidden { round: ROUND, devices } => Some(*devices),
                _ => None,
            };
            assert_eq!(member.notice(of).await, 3);
            let loss = |notice: &Notice| match notice {
                Notice::Trained { report, .. } => Some(report.loss),
                _ => None,
            };
            assert!(member.notice(loss).await > 0.0, "the owner reads it");
        }
        let before = members.remove(0);
        before.stop.send_replace(true);
        before.server.incoming.send(Incoming::Closed { reason: "closed".to_owned() }).unwrap();
        assert_eq!(before.process.await.unwrap().unwrap(), SessionEnd::Stopped);
        members.insert(0, Member::start(0, states[0].path()));
        let again = &mut members[0];
        assert_eq!(again.is_welcomed(Some(ROUND)).await, Some(TaskId { run: spec(true).run, round: ROUND }));
        let (header, payload) = again.sends().await;
        assert_eq!(lab.updates[&again.client], (header, hidden(&payload)), "the same update");
        again.is_asked(lab.neighbours(again.client));
        assert!(matches!(again.answers().await, SecureAnswer::Shares(_)));
        again.is_asked(lab.mask(again.client));
        for member in &mut members {
            let counted = clients.iter().copied().filter(|other| *other != member.client).collect();
            member.is_asked(SecureStep::Reveal { counted, missing: Vec::new() });
            let SecureAnswer::Revealed(shares) = member.answers().await else { panic!("shares") };
            for (of, values) in shares {
                let mut others = lab.said.keys().filter(|client| **client != of);
                let place = others.position(|client| *client == member.client).map_or(0, |place| place + 1);
                lab.shares.entry(of).or_default().push(Share { at: place as u8 + 1, values });
            }
            member.server.says(ToClient::Receipt { round: ROUND, verdict: Verdict::Accepted });
        }
        for member in members {
            member.server.finishes();
            assert_eq!(member.process.await.unwrap().unwrap(), SessionEnd::Completed { rounds: 3 });
        }
    };
    together(async {}, Box::pin(played)).await;
    assert_eq!(lab.sum(), seen(&clients));
}

#[tokio::test]
async fn a_device_that_refuses_its_neighbours_fails_the_round_and_stays() {
    let state = tempfile::tempdir().unwrap();
    let mut member = Member::start(0, state.path());
    let played = async {
        member.is_welcomed(None).await;
        member.is_asked(SecureStep::Advertise);
        assert!(matches!(member.answers().await, SecureAnswer::Keys(_)));
        member.is_asked(SecureStep::Neighbours { members: 2, neighbours: Vec::new() });
        member.notice(|notice| matches!(notice, Notice::Refused { round: ROUND, .. }).then_some(())).await;
        let task = |round| Incoming::Task { round, work: TaskKind::TRAIN, failed: 0, payload: broadcast() };
        member.server.incoming.send(task(ROUND)).unwrap();
        let ToServer::Failed { round: ROUND, reason } = member.server.message().await else {
            panic!("fails")
        };
        assert!(reason.contains("the run promises 3"), "{reason}");
        // In the next round it is asked again, and while it trains.
        member.server.incoming.send(task(ROUND + 1)).unwrap();
        let step = Box::new(SecureStep::Advertise);
        member.server.says(ToClient::Secure { round: ROUND + 1, attempt: 0, step });
        assert!(
            matches!(member.server.message().await, ToServer::Secure { round, .. } if round == ROUND + 1)
        );
        let step = Box::new(SecureStep::Neighbours { members: 3, neighbours: Vec::new() });
        member.server.says(ToClient::Secure { round: ROUND + 1, attempt: 0, step });
        let ToServer::Failed { round, reason } = member.server.message().await else { panic!("fails") };
        assert!(round == ROUND + 1 && reason.contains("with 0 of 3 devices"), "{reason}");
        member.server.finishes();
        assert_eq!(member.process.await.unwrap().unwrap(), SessionEnd::Completed { rounds: 3 });
    };
    together(async {}, Box::pin(played)).await;
    assert!(!state.path().join("outbox/update").exists());
}

#[tokio::test]
async fn a_device_without_a_key_trains_nothing_that_must_be_hidden() {
    let (link, mut server) = connection();
    let served = async {
        assert!(matches!(server.message().await, ToServer::Hello(_)));
        server.says(ToClient::Welcome { spec: SpecText::of(&spec(true)), wants: None });
        // It is not even read.
        let (work, payload) = (TaskKind::TRAIN, Bytes::new());
        server.incoming.send(Incoming::Task { round: ROUND, work, failed: 0, payload }).unwrap();
        let ToServer::Failed { reason, .. } = server.message().await else { panic!("it cannot sign") };
        assert!(reason.contains("no key to sign with"), "{reason}");
        server.finishes();
    };
    let ((result, _), ()) = together(takes_part(Attempts::new([Ok(link)]), Failing::default()), served).await;
    assert_eq!(result.unwrap(), SessionEnd::Completed { rounds: 3 });
}

#[tokio::test]
async fn an_owner_can_decline_runs_that_hide_too_little() {
    for (spec, asked) in [(spec(false), 1), (spec(true), 4)] {
        let (link, mut server) = connection();
        let served = async {
            assert!(matches!(server.message().await, ToServer::Hello(_)));
            server.says(ToClient::Welcome { spec: SpecText::of(&spec), wants: None });
            let ToServer::Declined { reason } = server.message().await else { panic!("before any task") };
            assert!(reason.contains("--secure-only"), "{reason}");
            drop(server);
        };
        let participant = Participant { secure_only: Some(asked), ..participant() };
        let (attempts, (_stop, stopped)) = (Attempts::new([Ok(link)]), watch::channel(false));
        let mut notice = |_: Notice| ();
        let takes_part = take_part(participant, attempts, Failing::default(), stopped, &mut notice);
        let (result, ()) = together(Box::pin(takes_part), served).await;
        let Ok(SessionEnd::Unfit(failure)) = result else { panic!("{result:?}") };
        assert_eq!((failure.blame, failure.permanent), (Blame::Owner, true));
    }
}
