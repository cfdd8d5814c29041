//! The bytes of every message, kept in `tests/golden/`: deployed clients and servers speak them.
//!
//! A message that is new is added with `UPDATE_GOLDEN=1 cargo test -p shared --test suite golden`, which writes
//! the files that are missing and never changes one that is there.

use std::collections::BTreeSet;
use std::fmt::{Debug, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use models::{Architecture, Measure, Precision, Sgd};
use serde::Serialize;
use serde::de::DeserializeOwned;
use shared::aggregation::{Aggregation, Buffers, Rule, Scale, ServerOptimizer, Weights};
use shared::data::{Augmentation, Normalisation, Padding, Preparation};
use shared::eligibility::{Eligibility, Ineligible};
use shared::frame;
use shared::id::{ClientId, RunId};
use shared::identity::{PublicKey, SecretKey};
use shared::message::positional::{PositionalPersonalisation, PositionalSpec, PositionalTraining};
use shared::message::{
    CountedUpdate, Discard, Fraction, Hello, Metric, Metrics, Progress, Refusal, Rejection, ResumePoint,
    Rounding, SecureAnswer, SecureStep, TaskId, TaskKind, ToClient, ToServer, TrainReport, UpdateHeader,
    Verdict,
};
use shared::schedule::Schedule;
use shared::secure::{Advertised, Exchange, Party, PartySecret, Sealed};
use shared::spec::personalisation::{GateTraining, Method, Methods, Mix, Reports, Tuning};
use shared::spec::{
    AlgorithmSpec, DataSpec, Evaluation, LabelsAt, Measures, ModelFormat, Personalisation, RunSpec,
    SecureAggregation, SpecText, Training, Update,
};
use shared::ticket::TicketSecret;

fn metrics(measured: &[Metric]) -> Metrics {
    let mut metrics = Metrics::default();
    metrics.iter_mut().zip(measured).for_each(|(slot, metric)| *slot = Some(*metric));
    metrics
}

fn to_server() -> Vec<(&'static str, ToServer)> {
    let hello = Hello {
        client: ClientId::from_bytes(*b"0123456789abcdef"),
        software: "edge-client 0.1.0".to_owned(),
        samples: 60_000,
        shape: vec![1, 28, 28],
        classes: 10,
        holds: None,
    };
    let holding =
        Hello { holds: Some(TaskId { run: RunId::from_bytes(*b"01234567"), round: 300 }), ..hello.clone() };
    let report = TrainReport {
        samples: 600,
        steps: 300,
        loss: 0.125,
        duration: Duration::from_millis(2_500),
        metrics: metrics(&[
            Metric::Alignment(0.5),
            Metric::Drift(2.0),
            Metric::OwnAccuracy(0.25),
            Metric::OwnLoss(1.5),
        ]),
    };
    let mut unlabelled = report;
    unlabelled.metrics[0] = Some(Metric::Coverage(0.25));
    unlabelled.metrics[1] = Some(Metric::ClassCoverage(0.75));
    unlabelled.metrics[2] = Some(Metric::Entropy(0.125));
    let (low, high) = (Fraction::of(0.25), Fraction::of(1.0));
    let personal = TrainReport {
        metrics: metrics(&[
            Metric::Tests(None, Some(low), Some(high)),
            Metric::Tests(Some(Method::Mfe), None, Some(low)),
            Metric::Gate(Method::Mfe, 0.75),
        ]),
        ..report
    };
    let newer = TrainReport {
        metrics: metrics(&[
            Metric::TrainAccuracy(0.75),
            Metric::Own(Measure::Mae, 1.25),
            Metric::Contrast(0.5),
        ]),
        ..report
    };
    vec![
        ("hello", ToServer::Hello(hello)),
        ("hello-holding", ToServer::Hello(holding)),
        ("heartbeat", ToServer::Heartbeat(Progress { round: Some(3), done: 7, total: 1_000 })),
        ("heartbeat-idle", ToServer::Heartbeat(Progress::default())),
        ("update", ToServer::Update(UpdateHeader { round: 3, report })),
        ("update-unlabelled", ToServer::Update(UpdateHeader { round: 3, report: unlabelled })),
        ("update-personal", ToServer::Update(UpdateHeader { round: 4, report: personal })),
        ("update-newer", ToServer::Update(UpdateHeader { round: 5, report: newer })),
        ("failed", ToServer::Failed { round: 3, reason: "out of memory".to_owned() }),
        ("goodbye", ToServer::Goodbye),
        ("partial", ToServer::ResumePoint(ResumePoint { round: 300, bytes: 1 << 20, digest: [5; 32] })),
        ("update-rest", ToServer::UpdateRest { header: UpdateHeader { round: 3, report }, offset: 1 << 20 }),
        (
            "not-now-hot",
            ToServer::Ineligible { round: 3, reason: Ineligible::Hot { celsius: 83, limit: 75 } },
        ),
        ("not-now-battery", ToServer::Ineligible { round: 3, reason: Ineligible::Battery }),
        (
            "not-now-charge",
            ToServer::Ineligible { round: 3, reason: Ineligible::Charge { percent: 20, limit: 30 } },
        ),
        (
            "not-now-memory",
            ToServer::Ineligible { round: 3, reason: Ineligible::Memory { free: 100, limit: 200 } },
        ),
        (
            "not-now-disk",
            ToServer::Ineligible { round: 3, reason: Ineligible::Disk { free: 300, limit: 400 } },
        ),
        ("left-out", ToServer::SkippedSamples { samples: 300 }),
        ("declined", ToServer::Declined { reason: "privacy.clip".to_owned() }),
        (
            "client-state",
            ToServer::ClientState {
                after: Some(CountedUpdate { round: 300, fingerprint: Some(0xcafe_f00d) }),
            },
        ),
        ("client-state-none", ToServer::ClientState { after: None }),
        ("untested", ToServer::Untested { reason: "there are no test samples".to_owned() }),
        ("wants-frozen", ToServer::WantsFrozen { digest: "0123456789abcdef".repeat(4) }),
        ("base", ToServer::Base { digest: [6; 32] }),
        ("redeem", ToServer::Redeem(TicketSecret::from_bytes(*b"sixteen  letters"))),
        ("secure-keys", answer(SecureAnswer::Keys(advertised()))),
        ("secure-shares", answer(SecureAnswer::Shares(vec![(client(), sealed())]))),
        ("secure-revealed", answer(SecureAnswer::Revealed(vec![(client(), party().own_share(3, 0.55))]))),
    ]
}

/// An answer of secure aggregation.
fn answer(answer: SecureAnswer) -> ToServer {
    ToServer::Secure { round: 300, attempt: 1, answer: Box::new(answer) }
}

/// Who gives it.
fn client() -> ClientId {
    SecretKey::from_bytes([3; 32]).public().client()
}

/// A specification in which no two neighbouring fields could be exchanged unnoticed; its model has every layer.
fn spec() -> RunSpec {
    RunSpec {
        run: RunId::from_bytes(*b"01234567"),
        name: "digits".to_owned(),
        seed: 42,
        rounds: 1_000,
        data: DataSpec {
            shape: vec![1, 36, 36],
            class_names: vec!["zero".to_owned(), "one".to_owned()],
            preparation: Preparation {
                augmentation: Augmentation {
                    random_resized_crop: 0.0,
                    random_shift: 2,
                    padding: Padding::Reflect,
                    random_crop: 28,
                    horizontal_flip: 0.5,
                    vertical_flip: 0.0,
                    random_rotation: 0.0,
                    rand_augment: 0,
                    rand_augment_strength: 0.3,
                    brightness: 0.1,
                    contrast: 0.2,
                    saturation: 0.3,
                    hue: 0.0,
                    colour_probability: 1.0,
                    grey: 0.0,
                    random_erasing: 0.4,
                },
                normalisation: Normalisation::Channels { mean: vec![0.25], deviation: vec![0.75] },
            },
            labels: LabelsAt::Server,
            column: shared::spec::data::label_column(),
            text: None,
            features: Vec::new(),
        },
        architecture: Architecture::by_name("lenet-5", &[1, 28, 28], 10).unwrap(),
        training: Training {
            epochs: 5,
            batch: 10,
            drop_last: true,
            optimizer: Sgd { rate: 0.05, momentum: 0.9, decay: 5e-4 }.into(),
            schedule: Schedule::Exponential { gamma: 0.9 },
            clip_norm: Some(2.5),
            measure: Measures { alignment: true, drift: false },
            chunks: 10,
            ..Training::default()
        },
        algorithm: AlgorithmSpec {
            name: "fedprox".to_owned(),
            parameters: "mu = 0.25".parse().expect("TOML"),
        },
        aggregation: Aggregation { buffers: Buffers::Local, ..Aggregation::default() },
        update: Update {
            broadcast: Some(ModelFormat::BF16),
            precision: Precision::F16.into(),
            ..Update::default()
        },
        evaluate: Evaluation { on_clients_every: 6, hold_out: 0.125, ..Evaluation::default() },
        personalisation: Box::new(Personalisation {
            method: Some(Methods(vec![Method::Mfe, Method::Fixed])),
            every: 2,
            expert_share: 0.625,
            mix: Mix::Probabilities,
            whole: Tuning { epochs: 1, ..Tuning::default() },
            head: Tuning::default(),
            gate: GateTraining::default(),
            report: Reports { gate: false, ..Reports::default() },
            ..Personalisation::default()
        }),
        secure: SecureAggregation::default(),
        device_noise: None,
        heartbeat: Duration::from_millis(5_500),
    }
}

/// As it travelled before version 6. The bytes of these are those of version 5.
fn positional() -> PositionalSpec {
    PositionalSpec {
        algorithm: ("fedavg".to_owned(), vec![1, 2, 3]),
        aggregation: (
            Weights::Uniform,
            Rule::Median {},
            ServerOptimizer::Sgd { learning_rate: 0.5, momentum: 0.75 },
            Buffers::Local,
        ),
        training: PositionalTraining {
            epochs: 5,
            batch: 10,
            drop_last: true,
            sgd: Sgd { rate: 0.05, momentum: 0.9, decay: 5e-4 },
            schedule: Schedule::Exponential { gamma: 0.99 },
            clip_norm: Some(2.5),
            measure: Measures { alignment: true, drift: false },
            chunks: 10,
        },
        personalisation: PositionalSpec::of(&spec())
            .and_then(|spec| spec.personalisation)
            .map(|settings| Box::new(PositionalPersonalisation { expert_share: 0.75, ..*settings })),
        ..PositionalSpec::of(&spec()).expect("fedprox is known")
    }
}

fn to_client() -> Vec<(&'static str, ToClient)> {
    let receipt = |verdict| ToClient::Receipt { round: 3, verdict };
    let rejected = |rejection| receipt(Verdict::Rejected(rejection));
    let discarded = |discard| receipt(Verdict::Discarded(discard));
    let text = str::to_owned;
    let client = ClientId::from_bytes(*b"0123456789abcdef");
    vec![
        (
            "positional-welcome",
            ToClient::PositionalWelcome { spec: Box::new(positional()), wants: Some(300) },
        ),
        (
            "positional-welcome-idle",
            ToClient::PositionalWelcome {
                spec: Box::new(PositionalSpec {
                    algorithm: ("fedsgd".to_owned(), Vec::new()),
                    ..PositionalSpec::of(&RunSpec::example("fedsgd")).expect("fedsgd is known")
                }),
                wants: None,
            },
        ),
        ("welcome", ToClient::Welcome { spec: SpecText::of(&spec()), wants: Some(300) }),
        ("welcome-idle", ToClient::Welcome { spec: SpecText::of(&RunSpec::example("fedsgd")), wants: None }),
        (
            "refused-shape",
            ToClient::Refused(Refusal::Shape { expected: vec![1, 28, 28], found: vec![3, 32, 32] }),
        ),
        ("refused-classes", ToClient::Refused(Refusal::Classes { expected: 10, found: 62 })),
        ("refused-no-samples", ToClient::Refused(Refusal::NoSamples)),
        ("refused-replaced", ToClient::Refused(Refusal::Replaced)),
        ("refused-unlabelled", ToClient::Refused(Refusal::Unlabelled)),
        ("refused-protocol", ToClient::Refused(Refusal::Protocol(text("it said hello twice")))),
        ("task", ToClient::Task { round: 300, work: TaskKind::TRAIN }),
        (
            "task-closing",
            ToClient::Task {
                round: 301,
                work: TaskKind { train: false, evaluate: true, personalise: false },
            },
        ),
        ("receipt-accepted", receipt(Verdict::Accepted)),
        ("receipt-not-in-cohort", rejected(Rejection::NotInCohort { round: 3 })),
        ("receipt-unknown-round", rejected(Rejection::UnknownRound { round: 300, current: 4 })),
        ("receipt-malformed", rejected(Rejection::Malformed { reason: text("cut off") })),
        ("receipt-layout", rejected(Rejection::Layout { reason: text("tensor `head.fc.bias` is missing") })),
        ("receipt-not-finite", rejected(Rejection::NotFinite { tensor: text("head.fc.bias") })),
        (
            "receipt-too-large",
            rejected(Rejection::TooLarge {
                tensor: "head.fc.bias".to_owned(),
                found: 2_000.5,
                limit: 1_000.0,
            }),
        ),
        ("receipt-samples", rejected(Rejection::Samples { declared: 600, reported: 601 })),
        ("receipt-loss", rejected(Rejection::Loss { loss: f64::INFINITY })),
        ("receipt-diverged", rejected(Rejection::Diverged)),
        ("receipt-nothing-to-learn", rejected(Rejection::NothingToLearn)),
        ("receipt-late", discarded(Discard::Late)),
        ("receipt-duplicate", discarded(Discard::Duplicate)),
        ("receipt-void", discarded(Discard::Void)),
        ("finished", ToClient::Finished { rounds: 1_000 }),
        ("partial", ToClient::ResumePoint(ResumePoint { round: 300, bytes: 1 << 20, digest: [5; 32] })),
        ("counted", ToClient::Counted { update: Some(CountedUpdate { round: 300, fingerprint: None }) }),
        ("counted-none", ToClient::Counted { update: None }),
        ("frozen", ToClient::Frozen { digest: "0123456789abcdef".repeat(4) }),
        (
            "samples",
            ToClient::Samples {
                reading: "shape = [3, 32, 32]\nclasses = 3\nclass-names = [\"cat\", \"dog\", \"fox\"]\n"
                    .to_owned(),
            },
        ),
        (
            "conditions",
            ToClient::Conditions(Eligibility {
                max_temperature: 75,
                require_mains: true,
                min_charge: 30,
                min_memory: 200,
                min_disk: 400,
            }),
        ),
        ("task-rest", ToClient::TaskRest { round: 300, work: TaskKind::TRAIN, offset: 1 << 20 }),
        (
            "task-after-failures",
            ToClient::TaskAfterFailures { round: 300, work: TaskKind::TRAIN, failed: 2, offset: 1 << 20 },
        ),
        ("server-key", ToClient::ServerKey { key: PublicKey::from_bytes([7; 32]) }),
        ("refused-identity", ToClient::Refused(Refusal::Identity { known: client })),
        ("refused-unknown", ToClient::Refused(Refusal::Unknown)),
        ("refused-pending", ToClient::Refused(Refusal::Pending { client })),
        ("refused-revoked", ToClient::Refused(Refusal::Revoked)),
        ("refused-ticket-unknown", ToClient::Refused(Refusal::TicketUnknown)),
        ("refused-ticket-expired", ToClient::Refused(Refusal::TicketExpired)),
        ("refused-ticket-used-up", ToClient::Refused(Refusal::TicketUsedUp)),
        (
            "refused-too-many-samples",
            ToClient::Refused(Refusal::TooManySamples { declared: 1 << 32, bound: 100_000 }),
        ),
    ]
}

/// Tasks whose models devices have from then on.
fn base_tasks() -> Vec<(&'static str, ToClient)> {
    let task = |offset, differences| {
        let work = TaskKind::TRAIN;
        ToClient::BaseTask { round: 300, work, failed: 2, offset, digest: [6; 32], differences }
    };
    vec![("base-task", task(1 << 18, vec![1 << 20, 300])), ("base-task-whole", task(0, Vec::new()))]
}

/// What a server may say.
fn all_to_client() -> Vec<(&'static str, ToClient)> {
    [to_client(), secure_steps(), base_tasks(), servers()].concat()
}

/// Where a server is reached.
fn servers() -> Vec<(&'static str, ToClient)> {
    let addresses = ["lab.example:4433", "192.0.2.7:4434", "[2001:db8::7]:4433"].map(str::to_owned).into();
    vec![
        ("servers", ToClient::Servers { addresses }),
        ("servers-none", ToClient::Servers { addresses: Vec::new() }),
    ]
}

/// The steps of secure aggregation.
fn secure_steps() -> Vec<(&'static str, ToClient)> {
    let client = client();
    vec![
        ("secure-advertise", secure(SecureStep::Advertise)),
        (
            "secure-neighbours",
            secure(SecureStep::Neighbours { members: 100, neighbours: vec![advertised(); 2] }),
        ),
        (
            "secure-mask",
            secure(SecureStep::Mask {
                rounding: Rounding { scale: Scale::agree(1000.0, 600, 10), most_samples: 600 },
                present: vec![(client, sealed())],
            }),
        ),
        ("secure-reveal", secure(SecureStep::Reveal { counted: vec![client; 2], missing: vec![client] })),
    ]
}

/// A step of secure aggregation.
fn secure(step: SecureStep) -> ToClient {
    ToClient::Secure { round: 300, attempt: 1, step: Box::new(step) }
}

/// A member of an exchange.
fn party() -> Party {
    let exchange = Exchange { run: RunId::from_bytes([7; 8]), round: 300, attempt: 1 };
    Party::new(exchange, client(), PartySecret::new([9; 32]))
}

/// What it says of itself.
fn advertised() -> Advertised {
    party().advertise(&SecretKey::from_bytes([3; 32]))
}

/// What it seals for itself.
fn sealed() -> Sealed {
    party().shares(&[advertised()], 0.55).expect("its own key").remove(0).1
}

fn folder(direction: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(direction)
}

/// Sixteen bytes a line, so that a difference can be read.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(16) {
        let digits: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "{}", digits.join(" ")).unwrap();
    }
    text
}

fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(
    direction: &str,
    messages: &[(&'static str, T)],
) {
    let folder = folder(direction);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
    }
    for (name, message) in messages {
        let found = postcard::to_stdvec(message).unwrap();
        let file = folder.join(format!("{name}.hex"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() && !file.exists() {
            std::fs::write(&file, hex(&found)).unwrap();
        }
        let golden = std::fs::read_to_string(&file).unwrap_or_else(|error| {
            panic!(
                "the golden bytes of a new message are missing, write them with UPDATE_GOLDEN=1: {}: {error}",
                file.display()
            )
        });
        assert_eq!(
            hex(&found),
            golden,
            "the bytes of `{name}` have changed: DEPLOYED CLIENTS AND SERVERS CANNOT READ THEM. Undo the change (new \
             variants go last, fields are never moved); see shared::protocol for what may change and how",
        );
        assert_eq!(frame::decode::<T>(&found).as_ref(), Ok(message), "{name}");
        assert!(found.len() <= frame::MAX_MESSAGE as usize, "{name}");
    }
    let known: BTreeSet<String> = messages.iter().map(|(name, _)| format!("{name}.hex")).collect();
    let kept: BTreeSet<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(kept, known, "every file in {} is tested", folder.display());
}

#[test]
fn messages_to_the_server_keep_their_bytes() {
    check("to-server", &to_server());
}

#[test]
fn messages_to_the_client_keep_their_bytes() {
    check("to-client", &all_to_client());
}

/// Fails to compile when a variant is added: then give it an example above.
#[test]
fn every_variant_has_an_example() {
    let to_server: BTreeSet<u8> = to_server()
        .iter()
        .map(|(_, message)| match message {
            ToServer::Hello(_) => 0,
            ToServer::Heartbeat(_) => 1,
            ToServer::Update(_) => 2,
            ToServer::Failed { .. } => 3,
            ToServer::Goodbye => 4,
            ToServer::Redeem(_) => 5,
            ToServer::ResumePoint(_) => 6,
            ToServer::UpdateRest { .. } => 7,
            ToServer::Ineligible { .. } => 8,
            ToServer::SkippedSamples { .. } => 9,
            ToServer::Declined { .. } => 10,
            ToServer::ClientState { .. } => 11,
            ToServer::Untested { .. } => 12,
            ToServer::WantsFrozen { .. } => 13,
            ToServer::Secure { answer, .. } => match **answer {
                SecureAnswer::Keys(_) => 14,
                SecureAnswer::Shares(_) => 15,
                SecureAnswer::Revealed(_) => 16,
            },
            ToServer::Base { .. } => 17,
        })
        .collect();
    assert_eq!(to_server, (0..=17).collect());
    let to_client: BTreeSet<u8> = all_to_client()
        .iter()
        .map(|(_, message)| match message {
            ToClient::PositionalWelcome { .. } => 0,
            ToClient::Task { .. } => 1,
            ToClient::Finished { .. } => 2,
            ToClient::ServerKey { .. } => 27,
            ToClient::ResumePoint(_) => 28,
            ToClient::TaskRest { .. } => 29,
            ToClient::Conditions(_) => 30,
            ToClient::Welcome { .. } => 31,
            ToClient::Counted { .. } => 34,
            ToClient::Samples { .. } => 35,
            ToClient::TaskAfterFailures { .. } => 36,
            ToClient::Frozen { .. } => 37,
            ToClient::Secure { step, .. } => match **step {
                SecureStep::Advertise => 38,
                SecureStep::Neighbours { .. } => 39,
                SecureStep::Mask { .. } => 40,
                SecureStep::Reveal { .. } => 41,
            },
            ToClient::BaseTask { .. } => 43,
            ToClient::Servers { .. } => 44,
            ToClient::Refused(refusal) => match refusal {
                Refusal::Shape { .. } => 3,
                Refusal::Classes { .. } => 4,
                Refusal::NoSamples => 5,
                Refusal::Replaced => 6,
                Refusal::Protocol(_) => 7,
                Refusal::Unlabelled => 19,
                Refusal::Identity { .. } => 20,
                Refusal::Unknown => 21,
                Refusal::Pending { .. } => 22,
                Refusal::Revoked => 23,
                Refusal::TicketUnknown => 24,
                Refusal::TicketExpired => 25,
                Refusal::TicketUsedUp => 26,
                Refusal::TooManySamples { .. } => 34,
            },
            ToClient::Receipt { verdict, .. } => match verdict {
                Verdict::Accepted => 8,
                Verdict::Discarded(Discard::Late) => 9,
                Verdict::Discarded(Discard::Duplicate) => 10,
                Verdict::Discarded(Discard::Void) => 42,
                Verdict::Rejected(rejection) => match rejection {
                    Rejection::NotInCohort { .. } => 11,
                    Rejection::UnknownRound { .. } => 12,
                    Rejection::Malformed { .. } => 13,
                    Rejection::Layout { .. } => 14,
                    Rejection::NotFinite { .. } => 15,
                    Rejection::TooLarge { .. } => 16,
                    Rejection::Samples { .. } => 17,
                    Rejection::Loss { .. } => 18,
                    Rejection::Diverged => 32,
                    Rejection::NothingToLearn => 33,
                },
            },
        })
        .collect();
    assert_eq!(to_client, (0..=44).collect());
}

fn truncate<T: Serialize + DeserializeOwned + Debug>(messages: &[(&'static str, T)]) {
    for (name, message) in messages {
        let bytes = postcard::to_stdvec(message).unwrap();
        for length in 0..bytes.len() {
            let decoded = frame::decode::<T>(&bytes[..length]);
            assert!(decoded.is_err(), "{length} of the {} bytes of `{name}` are {decoded:?}", bytes.len());
        }
    }
}

#[test]
fn a_message_that_was_cut_off_does_not_decode() {
    truncate(&to_server());
    truncate(&all_to_client());
}
