//! One task from the broadcast to the update, and what of it the server is told.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use models::{Array, Layer, ModelError, Precision};
use shared::algorithm::registry::RegistryError;
use shared::data::Dataset;
use shared::message::{ToServer, UpdateHeader};
use shared::personalisation::{GateTraining, Method, Methods, Mix, Personalisation, Reports, Tuning};

use super::*;
use crate::failure::Blame;

#[test]
fn a_slice_of_the_data_is_trained_on_as_if_there_were_no_more() {
    let mut spec = RunSpec::example("fedavg");
    spec.training.chunks = 3;
    let pixels = (0..4 * 11).map(|pixel| (pixel * 37 % 251) as u8).collect();
    let labels: Vec<u8> = (0..11).map(|sample| sample % 2).collect();
    let whole = View::whole(Arc::new(Dataset::new(vec![1, 2, 2], pixels, labels, 2).unwrap()));
    let mut params = ParamSet::new();
    params.insert("head.fc.weight", Array::zeros([2, 4]));
    params.insert("head.fc.bias", Array::zeros([2]));
    let broadcast: Bytes = Record { tensors: params, ..Record::default() }.to_bytes(Precision::F32).into();
    let client = ClientId::from_bytes([5; 16]);
    let trained = |slices: u32, round: u32, data: View| {
        let mut spec = spec.clone();
        spec.training.chunks = slices;
        let spec = Arc::new(spec);
        let (backend, broadcast) = (Backend::cpu(), broadcast.clone());
        let (work, tests) = (TaskKind::TRAIN, TestSamples::none());
        let task = Task {
            spec,
            round,
            failed: 0,
            work,
            client,
            data,
            tests,
            backend,
            trainer: None,
            broadcast,
            local: None,
        };
        let result = run_task(&task, &TaskHandle::default(), None).unwrap().ready().unwrap();
        (result.update.report.samples, result.update.payload)
    };
    let mut all = Vec::new();
    for round in 1..=3 {
        let slice = spec.data_in(round, client, &whole);
        let found = trained(3, round, whole.clone());
        assert_eq!(found.0, spec.samples_in(round, 11));
        assert_eq!(found, trained(1, round, slice.clone()));
        assert_ne!(found.1, trained(1, round, whole.clone()).1);
        all.extend_from_slice(slice.indices());
    }
    all.sort_unstable();
    assert_eq!(all, (0..11).collect::<Vec<u32>>());
}

#[test]
fn a_task_about_other_samples_is_refused_whatever_the_server_says() {
    let mut spec = RunSpec::example("fedavg");
    let data = View::whole(Arc::new(Dataset::new(vec![1, 2, 2], vec![0; 8], [0_u8, 1], 2).unwrap()));
    spec.data.shape = vec![1, 28, 28];
    let spec = Arc::new(spec);
    let (backend, tests, client) = (Backend::cpu(), TestSamples::none(), ClientId::from_bytes([5; 16]));
    let (work, broadcast) = (TaskKind::TRAIN, Bytes::new());
    let task = Task {
        spec,
        round: 1,
        failed: 0,
        work,
        client,
        data,
        tests,
        backend,
        trainer: None,
        broadcast,
        local: None,
    };
    let refused = run_task(&task, &TaskHandle::default(), None).unwrap_err();
    assert!(matches!(refused, TaskError::Shape { .. }), "{refused}");
}

#[test]
fn classes_of_other_names_are_refused_where_the_devices_labels_are_used() {
    let refused = |labels, device: [&str; 2]| {
        let mut spec = RunSpec::example("fedavg");
        spec.data.class_names = vec!["cat".to_owned(), "dog".to_owned()];
        spec.data.labels = labels;
        let spec = Arc::new(spec);
        let data = Dataset::new(vec![1, 2, 2], vec![0; 8], [0_u8, 1], 2).unwrap();
        let data = View::whole(Arc::new(data.named(device.map(str::to_owned).to_vec())));
        let (backend, tests, client) = (Backend::cpu(), TestSamples::none(), ClientId::from_bytes([5; 16]));
        // What comes after this is that the broadcast is read, and there is none.
        let (work, broadcast) = (TaskKind::TRAIN, Bytes::new());
        let task = Task {
            spec,
            round: 1,
            failed: 0,
            work,
            client,
            data,
            tests,
            backend,
            trainer: None,
            broadcast,
            local: None,
        };
        run_task(&task, &TaskHandle::default(), None).unwrap_err()
    };
    for other in [["dog", "cat"], ["cat", "bird"]] {
        let error = refused(LabelsAt::Device, other);
        assert!(matches!(error, TaskError::ClassNames { .. }), "{error}");
        assert!(error.to_string().contains(&other.join(", ")) && error.to_string().contains("cat, dog"));
        let goes_on = refused(LabelsAt::Server, other);
        assert!(matches!(goes_on, TaskError::Broadcast(_)), "{goes_on}");
    }
    assert!(matches!(refused(LabelsAt::Device, ["cat", "dog"]), TaskError::Broadcast(_)));
}

#[test]
fn each_failure_says_who_can_fix_it_and_whether_it_is_permanent() {
    let shape = || TaskError::Shape { device: vec![4], run: vec![2] };
    let names = || TaskError::ClassNames { device: "a, b".to_owned(), run: "b, a".to_owned() };
    let unknown = || RegistryError::Unknown { name: "fedfuture".to_owned() }.into();
    let model = |error: ModelError| TrainError::from(error).into();
    let cases: [(TaskError, Blame, bool); 9] = [
        (names(), Blame::Owner, true),
        (shape(), Blame::Owner, true),
        (unknown(), Blame::Server, true),
        (model(ModelError::Token { token: 0.5, vocabulary: 3 }), Blame::Owner, false),
        (model(ModelError::Diverged { step: 1, loss: f32::NAN }), Blame::Server, false),
        (TrainError::Broadcast("no tensors".to_owned()).into(), Blame::Server, false),
        (TrainError::Local("no tensors".to_owned()).into(), Blame::Machine, false),
        (TrainError::NoModel.into(), Blame::Server, false),
        (model(ModelError::NoSeed), Blame::Program, false),
    ];
    for (error, blame, permanent) in cases {
        let failure = error.failure();
        assert_eq!((failure.blame, failure.permanent), (blame, permanent), "{error}");
        assert_eq!(failure.reason, error.to_string());
    }
    assert!(
        unknown().to_string().contains("fedfuture") && unknown().to_string().contains("update edge-client")
    );
}

/// A network of two layers, on 1x2x2 samples of two classes, whose clients make personal models.
fn personal_spec(report: Reports) -> Arc<RunSpec> {
    let mut spec = RunSpec::example("fedavg");
    let linear = |name: &str, out| Layer::Linear { name: name.into(), out, bias: true };
    spec.architecture.extractor = vec![Layer::Flatten, linear("a", 3), Layer::Relu];
    spec.architecture.head = vec![linear("fc", 2)];
    let tuning = Tuning { learning_rate: 0.5, ..Tuning::default() };
    spec.personalisation = Box::new(Personalisation {
        method: Some(Methods(vec![Method::Mfe, Method::Mf])),
        every: 0,
        expert_share: 0.75,
        mix: Mix::Logits,
        augment: false,
        whole: tuning,
        head: tuning,
        gate: GateTraining { learning_rate: 0.1, ..GateTraining::default() },
        report,
    });
    Arc::new(spec)
}

/// What the server sends to clients that make personal models.
pub(crate) fn personal_run() -> (Arc<RunSpec>, Bytes) {
    let spec = personal_spec(Reports::default());
    let broadcast = broadcast(&spec);
    (spec, broadcast)
}

fn broadcast(spec: &RunSpec) -> Bytes {
    let params = spec.architecture.initialise(|name| spec.root_seed().derive(name).rng()).unwrap();
    Record { tensors: params, ..Record::default() }.to_bytes(Precision::F32).into()
}

fn personalised(report: Reports, work: TaskKind, tests: TestSamples) -> TaskOutput {
    let spec = personal_spec(report);
    let pixels = (0..4 * 20).map(|pixel| (pixel * 37 % 251) as u8).collect();
    let labels: Vec<u8> = (0..20).map(|sample| sample % 2).collect();
    let data = View::whole(Arc::new(Dataset::new(vec![1, 2, 2], pixels, labels, 2).unwrap()));
    let broadcast = broadcast(&spec);
    let client = ClientId::from_bytes([5; 16]);
    let (backend, local) = (Backend::cpu(), Some(kept()).filter(|_| !work.train));
    let task = Task {
        spec,
        round: 4,
        failed: 0,
        work,
        client,
        data,
        tests,
        backend,
        trainer: None,
        broadcast,
        local,
    };
    run_task(&task, &TaskHandle::default(), None).unwrap().ready().unwrap()
}

/// What federated averaging keeps: nothing.
fn kept() -> Vec<u8> {
    Record::default().to_bytes(Precision::F32)
}

pub(crate) const PERSONALISE: TaskKind = TaskKind { train: false, evaluate: false, personalise: true };

fn samples() -> TestSamples {
    let dataset = Dataset::new(vec![1, 2, 2], (0..16).collect(), vec![0_u8, 1, 1, 0], 2).unwrap();
    TestSamples::of(View::whole(Arc::new(dataset)))
}

#[test]
fn head_gate_and_split_stay_on_the_device() {
    let result = personalised(Reports::default(), PERSONALISE, samples());
    let personal = Personal::from_bytes(result.personal.as_ref().unwrap()).unwrap();
    assert_eq!((personal.round, personal.split.samples(), personal.model.method), (4, 20, Method::Mfe));
    assert_eq!(result.update.local, None, "what the algorithm keeps stays as it is");
    // All that crosses the network.
    let sent = [
        &shared::frame::encode(
            &ToServer::Update(UpdateHeader { round: 4, report: result.update.report }),
            result.update.payload.len() as u64,
        )[..],
        &result.update.payload.to_bytes(),
    ]
    .concat();
    assert_eq!(result.update.payload.to_bytes(), Record::default().to_bytes(Precision::F32));
    let (weights, bias) = personal.model.gate.as_ref().unwrap().parts();
    let head = personal.model.local.iter().flat_map(|(_, array)| array.values());
    let values: Vec<f32> = head.chain(weights).copied().chain([bias]).filter(|&value| value != 0.0).collect();
    assert!(values.len() > 8);
    for value in values {
        assert!(!sent.windows(4).any(|four| four == value.to_le_bytes()), "{value} was sent");
    }
    let split: Vec<u8> = personal.split.gate.iter().map(|&position| position as u8).collect();
    assert!(!sent.windows(split.len()).any(|found| found == split));
}

#[test]
fn the_server_is_told_what_it_may_know() {
    let names = |report, tests| -> Vec<String> {
        let report = personalised(report, PERSONALISE, tests).update.report;
        report.metrics.into_iter().flatten().flat_map(Metric::values).map(|(name, _)| name).collect()
    };
    let all = [
        "local-test",
        "global-test",
        "mfe-local-test",
        "mfe-global-test",
        "mfe-gate",
        "mf-local-test",
        "mf-global-test",
        "mf-gate",
    ];
    assert_eq!(names(Reports::default(), samples()), all);
    let nothing = Reports { local_test: false, global_test: false, gate: false };
    assert_eq!(names(nothing, samples()), [""; 0]);
    let local = Reports { local_test: true, ..nothing };
    assert_eq!(names(local, samples()), ["local-test", "mfe-local-test", "mf-local-test"]);
    // Without test samples it has a model all the same.
    assert_eq!(names(Reports::default(), TestSamples::none()), ["mfe-gate", "mf-gate"]);
}

#[test]
fn personalising_costs_the_round_nothing_but_time() {
    let plain = personalised(Reports::default(), TaskKind::TRAIN, samples());
    let both = personalised(Reports::default(), TaskKind { personalise: true, ..TaskKind::TRAIN }, samples());
    assert_eq!((plain.update.payload, plain.personal), (both.update.payload.clone(), None));
    let alone = personalised(Reports::default(), PERSONALISE, samples());
    assert!(both.personal.is_some() && both.personal == alone.personal);
    // Samples that cannot be prepared: no personal model, and the round goes on.
    let wide = Dataset::new(vec![1, 1, 4], vec![0; 4], vec![0_u8], 2).unwrap();
    let tests = TestSamples::of(View::whole(Arc::new(wide)));
    let result = personalised(Reports::default(), TaskKind { personalise: true, ..TaskKind::TRAIN }, tests);
    assert_eq!((result.update.payload, result.personal), (both.update.payload, None));
}

#[test]
fn a_test_split_is_read_once_and_one_that_is_not_there_again() {
    let times = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = times.clone();
    let split = samples().get().unwrap();
    let tests = TestSamples::new(move || {
        let first = counted.fetch_add(1, Ordering::Relaxed) == 0;
        Ok(if first { None } else { split.clone() })
    });
    // A participant's tasks share it.
    let found = [tests.clone(), tests.clone(), tests].map(|tests| tests.get().unwrap().is_some());
    assert_eq!((found, times.load(Ordering::Relaxed)), ([false, true, true], 2));
}

#[test]
fn what_learns_classes_is_refused_for_another_task_whatever_the_server_says() {
    let samples = shared::data::Samples::Floats(vec![0.5; 8]);
    let data = View::whole(Arc::new(Dataset::valued(vec![4], samples, vec![0.5; 4], 2).unwrap()));
    let mut params = ParamSet::new();
    params.insert("head.fc.weight", Array::zeros([2, 4]));
    params.insert("head.fc.bias", Array::zeros([2]));
    let broadcast: Bytes = Record { tensors: params, ..Record::default() }.to_bytes(Precision::F32).into();
    let run = |algorithm: &str, change: &dyn Fn(&mut RunSpec)| {
        let mut spec = RunSpec::example(algorithm);
        (spec.data.shape, spec.architecture.input) = (vec![4], vec![4]);
        spec.architecture.task = models::Task::Regression { huber: None };
        change(&mut spec);
        let task = Task {
            spec: Arc::new(spec),
            round: 1,
            failed: 0,
            work: TaskKind { train: true, evaluate: false, personalise: true },
            client: ClientId::from_bytes([5; 16]),
            data: data.clone(),
            tests: TestSamples::of(data.clone()),
            backend: Backend::cpu(),
            trainer: None,
            broadcast: broadcast.clone(),
            local: None,
        };
        run_task(&task, &TaskHandle::default(), None).map(|output| output.ready().unwrap())
    };
    for algorithm in ["ensemble", "fafi", "fedmix", "fedmatch"] {
        let refused = run(algorithm, &|_| {}).unwrap_err();
        assert!(matches!(refused, TaskError::OtherTask { .. }), "{algorithm}: {refused}");
        assert_eq!(refused.failure().blame, Blame::Server);
    }
    let refused = run("fedavg", &|spec| spec.data.labels = LabelsAt::Server).unwrap_err();
    assert!(matches!(refused, TaskError::OtherTask { .. }), "{refused}");
    // No personal model is made, regardless of the methods, and the update counts.
    for methods in [Methods::default(), Methods(vec![Method::Ft]), Methods(vec![Method::Mfe])] {
        let output = run("fedavg", &|spec| spec.personalisation.method = Some(methods.clone())).unwrap();
        assert!(output.personal.is_none() && output.update.report.steps > 0);
    }
}
