//! What `FedAvg` and `FedSGD` must compute exactly, on hand-sized data (`McMahan` et al., AISTATS 2017).

#![allow(clippy::unwrap_used)] // Outside functions marked `#[test]`, clippy does not know that this is a test.

mod aggregation;
mod rejection;
mod training;

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
    let labels: Vec<u8> = pixels.chunks(4).map(|sample| u8::from(sample[0] > sample[3])).collect();
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
