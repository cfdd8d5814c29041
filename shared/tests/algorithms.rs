//! What FedAvg and FedSGD must compute exactly, on hand-sized data (McMahan et al., AISTATS 2017).

#![allow(clippy::unwrap_used)] // Outside functions marked `#[test]`, clippy does not know that this is a test.

use std::ops::ControlFlow;
use std::sync::Arc;

use models::{Array, Backend, Batch, Learner, Limits, ParamSet, Precision, Sgd};
use shared::aggregation::{Scale, Weights};
use shared::algorithm::{
    Checked, Client, ErasedAlgorithm, Global, Partial, Round, Template, TrainError, Trained, registry,
};
use shared::data::{Dataset, View};
use shared::frame;
use shared::id::ClientId;
use shared::message::{Progress, Rejection, ToClient, TrainReport, Verdict};
use shared::parcel::Parcel;
use shared::seed::{Seed, shuffle};
use shared::spec::{RunSpec, Training, WirePrecision};

const MAX_ABS: f32 = 1000.0;

/// The example run with `algorithm`: softmax regression on 1x2x2 samples of two classes.
fn spec(algorithm: &str) -> RunSpec {
    let specified = registry::specify(algorithm, toml::Table::new()).unwrap();
    RunSpec { algorithm: specified, ..RunSpec::example(algorithm) }
}

fn with(spec: &RunSpec, training: Training) -> RunSpec {
    RunSpec { training, ..spec.clone() }
}

fn training(epochs: u32, batch: u32) -> Training {
    Training { epochs, batch, sgd: Sgd::plain(0.5) }
}

/// `count` samples, other ones for every `salt`.
fn view(count: usize, salt: usize) -> View {
    let mut rng = Seed::root(salt as u64).rng();
    let pixels: Vec<u8> = (0..count * 4).map(|_| shared::seed::below(256, &mut rng) as u8).collect();
    let labels = pixels.chunks(4).map(|sample| u8::from(sample[0] > sample[3])).collect();
    View::whole(Arc::new(Dataset::new(vec![1, 2, 2], pixels, labels, 2).unwrap()))
}

fn initial(spec: &RunSpec) -> ParamSet {
    spec.architecture.initialise(|tensor| spec.root_seed().derive("initial").derive(tensor).rng()).unwrap()
}

fn client_id(index: usize) -> ClientId {
    ClientId::from_bytes([index as u8 + 1; 16])
}

fn client_seed(spec: &RunSpec, round: u32, client: ClientId) -> Seed {
    spec.root_seed().derive_numbered("round", u64::from(round)).derive_bytes("client", client.as_bytes())
}

/// One client's work in one round; `monitor` hears of each step.
fn train_monitored(
    spec: &RunSpec,
    round: u32,
    index: usize,
    data: &View,
    broadcast: Parcel,
    monitor: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<(Trained, TrainReport), TrainError> {
    let backend = Backend::cpu();
    let seed = client_seed(spec, round, client_id(index));
    let mut client = Client::new(spec, round, seed, data, &backend, monitor);
    let trained = registry::build(&spec.algorithm).unwrap().train(&mut client, broadcast, None)?;
    let (samples, steps, loss) = (client.samples(), client.steps(), client.loss());
    Ok((trained, TrainReport { samples, steps, loss, ..TrainReport::default() }))
}

fn train(spec: &RunSpec, round: u32, index: usize, data: &View, w_t: &ParamSet) -> (ParamSet, TrainReport) {
    let broadcast = Parcel { tensors: w_t.clone(), scalars: Vec::new() };
    let mut monitor = |_| ControlFlow::Continue(());
    let (trained, report) = train_monitored(spec, round, index, data, broadcast, &mut monitor).unwrap();
    assert!(trained.local.is_none(), "these algorithms keep nothing on the device");
    // What the server gets is what crossed the wire.
    let bytes = trained.update.to_bytes(spec.precision.update);
    (Parcel::read_from(&mut bytes.as_slice(), Limits::default()).unwrap().tensors, report)
}

/// The server's side of one round.
struct Server<'a> {
    spec: &'a RunSpec,
    algorithm: Box<dyn ErasedAlgorithm>,
    template: Template,
    scale: Scale,
}

impl<'a> Server<'a> {
    fn new(spec: &'a RunSpec, shares: &[View]) -> Self {
        let heaviest = shares.iter().map(|share| spec.weights.of(share.len() as u64)).max().unwrap_or(1);
        Self {
            spec,
            algorithm: registry::build(&spec.algorithm).unwrap(),
            template: Template::of(&initial(spec)),
            scale: Scale::agree(MAX_ABS, heaviest, shares.len()),
        }
    }

    fn round(&self, number: u32) -> Round<'_> {
        Round { number, spec: self.spec, template: &self.template, scale: self.scale }
    }

    fn check(&self, update: &ParamSet) -> Result<Checked, Rejection> {
        self.algorithm.check(&self.round(1), Parcel { tensors: update.clone(), scalars: Vec::new() })
    }

    fn fold(&self, partial: &mut Partial, index: usize, update: &ParamSet, report: TrainReport) {
        let weight = self.spec.weights.of(report.samples);
        self.algorithm.fold(partial, client_id(index), weight, report, self.check(update).unwrap());
    }

    fn close(&self, w_t: &ParamSet, partial: Partial, number: u32) -> ParamSet {
        let mut global: Global = self.algorithm.init(w_t.clone());
        self.algorithm.close(&mut global, partial, &self.round(number)).unwrap();
        self.algorithm.published(&global).clone()
    }
}

/// `rounds` rounds with every client; gives the model after each.
fn federate(spec: &RunSpec, shares: &[View], rounds: u32) -> Vec<ParamSet> {
    let server = Server::new(spec, shares);
    let mut w_t = initial(spec);
    let mut models = Vec::new();
    for number in 1..=rounds {
        let mut partial = server.algorithm.begin(&server.round(number));
        for (index, share) in shares.iter().enumerate() {
            let (update, report) = train(spec, number, index, share, &w_t);
            server.fold(&mut partial, index, &update, report);
        }
        w_t = server.close(&w_t, partial, number);
        models.push(w_t.clone());
    }
    models
}

/// The largest difference of two values in the same place.
fn apart(a: &ParamSet, b: &ParamSet) -> f32 {
    a.difference(b).unwrap().max_abs()
}

fn bytes(params: &ParamSet) -> Vec<u8> {
    Parcel { tensors: params.clone(), scalars: Vec::new() }.to_bytes(Precision::F32)
}

#[test]
fn fedsgd_is_fedavg_with_one_epoch_of_one_batch() {
    // The largest client's gradient is computed in two chunks.
    let shares = [view(3, 1), view(12, 2), view(1100, 3)];
    for decay in [0.0, 0.1] {
        let one_step = Training { epochs: 1, batch: 0, sgd: Sgd { rate: 0.5, momentum: 0.0, decay } };
        let fedavg = federate(&with(&spec("fedavg"), one_step), &shares, 6);
        let fedsgd = federate(&with(&spec("fedsgd"), one_step), &shares, 6);
        for (round, (a, b)) in fedavg.iter().zip(&fedsgd).enumerate() {
            assert!(apart(a, b) < 1e-6, "decay {decay}, round {}: {}", round + 1, apart(a, b));
        }
        assert!(apart(&fedavg[5], &fedavg[0]) > 0.01, "a model that stands still proves nothing");
    }
}

/// Algorithm 1's `ClientUpdate`, written out.
fn plain_sgd(spec: &RunSpec, round: u32, index: usize, data: &View, start: &ParamSet) -> ParamSet {
    let mut learner = Learner::new(&spec.architecture, start, spec.training.sgd, &Backend::cpu()).unwrap();
    let seed = client_seed(spec, round, client_id(index));
    let mut order: Vec<usize> = (0..data.len()).collect();
    for epoch in 0..spec.training.epochs {
        shuffle(&mut order, &mut seed.derive_numbered("epoch", u64::from(epoch)).rng());
        for positions in order.chunks(spec.training.batch as usize) {
            let (mut x, mut y) = (Vec::new(), Vec::new());
            data.fill(positions, &mut x, &mut y);
            learner.step(&Batch::new(x, [positions.len(), 1, 2, 2], y).unwrap()).unwrap();
        }
    }
    learner.params().unwrap()
}

#[test]
fn fedavg_with_one_client_is_plain_sgd() {
    let sgd = Sgd { rate: 0.3, momentum: 0.9, decay: 0.01 };
    let spec = with(&spec("fedavg"), Training { epochs: 3, batch: 4, sgd });
    let data = view(10, 1);
    let mut expected = initial(&spec);
    for (round, found) in (1..).zip(federate(&spec, std::slice::from_ref(&data), 3)) {
        expected = plain_sgd(&spec, round, 0, &data, &expected);
        // w_t + (w_k - w_t) is w_k up to two roundings of f32.
        let bound = 4.0 * f32::EPSILON * expected.max_abs() * round as f32;
        assert!(apart(&found, &expected) <= bound, "round {round}: {} of {bound}", apart(&found, &expected));
    }
}

#[test]
fn fedavg_of_several_clients_is_the_weighted_mean_of_their_models() {
    let shares = [view(3, 1), view(7, 2), view(20, 3)];
    let mut means = Vec::new();
    for weights in [Weights::Samples, Weights::Uniform] {
        let spec = RunSpec { weights, ..with(&spec("fedavg"), training(2, 2)) };
        let w_0 = initial(&spec);
        let share_of = |share: &View| match weights {
            Weights::Samples => share.len() as f64 / 30.0,
            Weights::Uniform => 1.0 / 3.0,
        };
        let models: Vec<_> =
            (0..).zip(&shares).map(|(k, share)| plain_sgd(&spec, 1, k, share, &w_0)).collect();
        let found = federate(&spec, &shares, 1).remove(0);
        for (name, array) in &found {
            for (index, &value) in array.values().iter().enumerate() {
                let terms = models.iter().zip(&shares);
                let expected: f64 = terms
                    .map(|(model, share)| {
                        share_of(share) * f64::from(model.get(name).unwrap().values()[index])
                    })
                    .sum();
                assert!((f64::from(value) - expected).abs() < 1e-6, "{name}[{index}]: {value}, {expected}");
            }
        }
        means.push(found);
    }
    assert!(apart(&means[0], &means[1]) > 1e-3, "samples and uniform weights differ on these clients");
}

#[test]
fn no_order_of_folding_and_merging_changes_a_bit() {
    for name in registry::names() {
        let shares: Vec<View> = (0..7).map(|k| view(1 + 4 * k, k)).collect();
        let spec = spec(name);
        let server = Server::new(&spec, &shares);
        let w_0 = initial(&spec);
        let updates: Vec<_> = (0..).zip(&shares).map(|(k, share)| train(&spec, 1, k, share, &w_0)).collect();
        let begin = || server.algorithm.begin(&server.round(1));
        let mut in_order = begin();
        for (k, (update, report)) in updates.iter().enumerate() {
            server.fold(&mut in_order, k, update, *report);
        }
        let expected = bytes(&server.close(&w_0, in_order, 1));
        for attempt in 0..30 {
            let mut rng = Seed::root(attempt).rng();
            let mut order: Vec<usize> = (0..updates.len()).collect();
            shuffle(&mut order, &mut rng);
            // Each update goes to one of three partial sums, one of which may stay empty.
            let mut partials = [begin(), begin(), begin()];
            for k in order {
                let (update, report) = &updates[k];
                server.fold(&mut partials[shared::seed::below(3, &mut rng)], k, update, *report);
            }
            let [mut first, mut second, third] = partials;
            if attempt % 2 == 0 {
                server.algorithm.merge(&mut second, third);
                server.algorithm.merge(&mut first, second);
            } else {
                server.algorithm.merge(&mut first, third);
                server.algorithm.merge(&mut first, second);
            }
            assert_eq!(bytes(&server.close(&w_0, first, 1)), expected, "{name}, attempt {attempt}");
        }
    }
}

#[test]
fn sixteen_bits_on_the_wire_cost_a_bounded_error_and_half_the_bytes() {
    let shares = [view(3, 1), view(20, 2)];
    let spec = with(&spec("fedavg"), training(2, 2));
    let w_0 = initial(&spec);
    let largest = (0..).zip(&shares).map(|(k, share)| train(&spec, 1, k, share, &w_0).0.max_abs());
    let largest = largest.fold(0.0, f32::max);
    let exact = federate(&spec, &shares, 1).remove(0);
    for (precision, relative) in [(Precision::F16, 2f32.powi(-11)), (Precision::BF16, 2f32.powi(-8))] {
        let short =
            RunSpec { precision: WirePrecision { update: precision, ..spec.precision }, ..spec.clone() };
        let found = federate(&short, &shares, 1).remove(0);
        // A mean errs by no more than its terms; f16 errs by 2^-25 where a value is tiny.
        let bound = largest * relative + 2f32.powi(-25) + 2.0 * f32::EPSILON;
        let error = apart(&found, &exact);
        assert!(error <= bound, "{precision:?}: {error} of {bound}");
        assert!(error > bound / 1000.0, "{precision:?}: {error} is no rounding at all");
        assert_eq!(precision.bytes() * 2, Precision::F32.bytes());
    }
}

/// An update of the example model's layout, all 0.5.
fn update() -> ParamSet {
    let mut update = initial(&spec("fedavg"));
    for (_, array) in update.iter_mut() {
        array.values_mut().fill(0.5);
    }
    update
}

#[test]
fn an_update_of_another_layout_is_rejected_with_the_tensors_name() {
    let mut missing = update().select("head.fc.b");
    assert_eq!(missing.names().collect::<Vec<_>>(), ["head.fc.bias"]);
    let mut extra = update();
    extra.insert("tail.fc.bias", Array::zeros([1]));
    let mut renamed = missing.clone();
    renamed.insert("head.fc.heaviness", Array::zeros([2, 4]));
    let mut reshaped = update();
    reshaped.insert("head.fc.weight", Array::zeros([4, 2]));
    let mut longer = update();
    longer.insert("head.fc.bias", Array::zeros([3]));
    missing.insert("head.fc.bias", Array::zeros([2]));
    let cases = [
        ("missing", missing, "`head.fc.weight`"),
        ("extra", extra, "`tail.fc.bias`"),
        ("renamed", renamed, "`head.fc.weight`"),
        ("reshaped", reshaped, "`head.fc.weight` has the shape [4, 2] instead of [2, 4]"),
        ("longer", longer, "`head.fc.bias` has the shape [3] instead of [2]"),
        ("empty", ParamSet::new(), "`head.fc.bias`"),
    ];
    for name in registry::names() {
        let spec = spec(name);
        let server = Server::new(&spec, &[view(3, 1)]);
        assert!(server.check(&update()).is_ok(), "{name}");
        for (case, update, tensor) in &cases {
            match server.check(update).err() {
                Some(Rejection::Layout { reason }) => {
                    assert!(reason.contains(tensor), "{name}, {case}: {reason}")
                }
                other => panic!("{name}, {case}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_rejection_fits_into_a_message_however_long_a_tensors_name_is() {
    for name in registry::names() {
        let spec = spec(name);
        let server = Server::new(&spec, &[view(3, 1)]);
        let mut extra = update();
        extra.insert("z".repeat(100_000), Array::zeros([1]));
        let rejection = server.check(&extra).err().unwrap();
        let receipt = ToClient::Receipt { round: 1, verdict: Verdict::Rejected(rejection) };
        assert!(frame::encode(&receipt, 0).len() < 1000, "{name}");
    }
}

#[test]
fn an_update_of_impossible_values_is_rejected() {
    for name in registry::names() {
        let spec = spec(name);
        let server = Server::new(&spec, &[view(3, 1)]);
        let verdict = |value: f32| {
            let mut update = update();
            update.get_mut("head.fc.weight").unwrap().values_mut()[5] = value;
            server.check(&update).err()
        };
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let tensor = "head.fc.weight".to_owned();
            assert_eq!(verdict(value), Some(Rejection::NotFinite { tensor }), "{name}, {value}");
        }
        for value in [MAX_ABS, -MAX_ABS, 0.0, -0.0, f32::MIN_POSITIVE / 2.0] {
            assert_eq!(verdict(value), None, "{name}, {value}");
        }
        for value in [MAX_ABS.next_up(), -MAX_ABS.next_up(), f32::MAX] {
            let expected = Rejection::TooLarge { found: value.abs(), limit: MAX_ABS };
            assert_eq!(verdict(value), Some(expected), "{name}, {value}");
        }
    }
}

#[test]
fn an_update_with_scalars_is_malformed() {
    for name in registry::names() {
        let spec = spec(name);
        let server = Server::new(&spec, &[view(3, 1)]);
        let parcel = Parcel { tensors: update(), scalars: vec![1] };
        let rejection = server.algorithm.check(&server.round(1), parcel).err();
        assert!(matches!(rejection, Some(Rejection::Malformed { .. })), "{name}: {rejection:?}");
    }
}

#[test]
fn fedsgd_refuses_settings_that_it_would_ignore() {
    let fedsgd = registry::build(&spec("fedsgd").algorithm).unwrap();
    let fedavg = registry::build(&spec("fedavg").algorithm).unwrap();
    let fine = training(1, 0);
    assert_eq!(fedsgd.validate(&fine), Ok(()));
    let cases = [
        (Training { epochs: 5, ..fine }, "training.epochs must be 1, not 5"),
        (Training { batch: 10, ..fine }, "training.batch must be 0 (full batch), not 10"),
        (Training { sgd: Sgd { momentum: 0.9, ..fine.sgd }, ..fine }, "sgd.momentum must be 0, not 0.9"),
    ];
    for (training, reason) in cases {
        let refusal = fedsgd.validate(&training).expect_err(reason);
        assert!(refusal.contains(reason) && refusal.contains("fedsgd"), "{refusal}");
        assert_eq!(fedavg.validate(&training), Ok(()));
    }
}

/// Progress of each step of one client with ten samples, and its update.
fn steps(training: Training) -> (Vec<(u64, u64)>, Vec<u8>) {
    let spec = with(&spec("fedavg"), training);
    let data = view(10, 1);
    let mut heard = Vec::new();
    let broadcast = Parcel { tensors: initial(&spec), scalars: Vec::new() };
    let mut monitor = |progress: Progress| {
        assert_eq!(progress.round, Some(1));
        heard.push((progress.done, progress.total));
        ControlFlow::Continue(())
    };
    let (trained, report) = train_monitored(&spec, 1, 0, &data, broadcast, &mut monitor).unwrap();
    assert_eq!((report.samples, report.steps), (10, heard.len() as u64));
    assert!(report.loss > 0.0 && report.loss.is_finite());
    (heard, trained.update.to_bytes(Precision::F32))
}

#[test]
fn a_batch_of_everything_is_one_step_per_epoch() {
    let everything = steps(training(2, 0));
    assert_eq!(everything.0, [(1, 2), (2, 2)]);
    for batch in [10, 11, u32::MAX] {
        assert_eq!(steps(training(2, batch)), everything, "B = {batch}");
    }
    assert_ne!(steps(training(2, 9)).1, everything.1);
}

#[test]
fn the_last_batch_of_an_epoch_may_be_smaller() {
    let (heard, _) = steps(training(2, 4));
    assert_eq!(heard, [(1, 6), (2, 6), (3, 6), (4, 6), (5, 6), (6, 6)]);
    assert_eq!(steps(training(1, 5)).0.len(), 2);
    assert_eq!(steps(training(1, 1)).0.len(), 10);
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_any_other_another_shuffle() {
    let spec = with(&spec("fedavg"), training(1, 1));
    let data = view(10, 1);
    let w_0 = initial(&spec);
    let update = |spec: &RunSpec, round, index| bytes(&train(spec, round, index, &data, &w_0).0);
    let one = update(&spec, 1, 0);
    assert_eq!(update(&spec, 1, 0), one);
    assert_ne!(update(&spec, 2, 0), one, "another round");
    assert_ne!(update(&spec, 1, 1), one, "another client");
    assert_ne!(update(&RunSpec { seed: 2, ..spec }, 1, 0), one, "another run");
}

#[test]
fn a_monitor_that_breaks_cancels_at_that_step() {
    for (name, last) in [("fedavg", 3), ("fedavg", 1), ("fedsgd", 1)] {
        let spec = with(&spec(name), training(5, 4));
        let broadcast = Parcel { tensors: initial(&spec), scalars: Vec::new() };
        let mut calls = 0;
        let mut monitor = |_| {
            calls += 1;
            if calls == last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let result = train_monitored(&spec, 1, 0, &view(10, 1), broadcast, &mut monitor);
        assert!(matches!(result.err(), Some(TrainError::Cancelled)), "{name}");
        assert_eq!(calls, last, "{name}: nothing happens after that");
    }
}

#[test]
fn a_broadcast_that_does_not_fit_is_the_servers_fault() {
    for name in registry::names() {
        let spec = spec(name);
        let mut monitor = |_| ControlFlow::Continue(());
        let scalars = Parcel { tensors: initial(&spec), scalars: vec![1] };
        let result = train_monitored(&spec, 1, 0, &view(3, 1), scalars, &mut monitor);
        assert!(matches!(result.err(), Some(TrainError::Broadcast(_))), "{name}");
        let result = train_monitored(&spec, 1, 0, &view(3, 1), Parcel::default(), &mut monitor);
        assert!(matches!(result.err(), Some(TrainError::Model(_) | TrainError::Broadcast(_))), "{name}");
    }
}

#[test]
fn a_round_without_updates_is_an_error_and_leaves_the_model() {
    for name in registry::names() {
        let spec = spec(name);
        let server = Server::new(&spec, &[view(3, 1)]);
        let mut global = server.algorithm.init(initial(&spec));
        let empty = server.algorithm.begin(&server.round(1));
        assert!(server.algorithm.close(&mut global, empty, &server.round(1)).is_err(), "{name}");
        assert_eq!(server.algorithm.published(&global), &initial(&spec), "{name}");
    }
}
