//! Exact results of the algorithms on hand-sized data.

mod aggregation;
mod axes;
mod ensemble;
mod fedetf;
mod fedmatch;
mod fedmix;
mod hidden;
mod matching;
mod moon;
mod objectives;
mod quadratics;
mod rejection;
mod robust;
mod top_k;
mod training;
mod variates;

use std::ops::ControlFlow;
use std::sync::Arc;

use models::{
    AdamSettings, Array, Backend, Batch, Learner, Limits, Optimizer, ParamSet, Precision, Sgd, Targets,
};
use shared::aggregation::{
    Aggregation, Buffers, Chunk, Contributor, Rule, Scale, ServerOptimizer, StoredError, StoredUpdates,
    Template, Weights,
};
use shared::algorithm::{
    AggregateError, Checked, Client, Contribution, ErasedAlgorithm, Partial, Round, TrainError, Trained,
    registry,
};
use shared::data::{Dataset, View};
use shared::frame;
use shared::id::ClientId;
use shared::message::{Progress, Rejection, ToClient, TrainReport, Verdict};
use shared::record::Record;
use shared::schedule::Schedule;
use shared::seed::{Seed, shuffle};
use shared::spec::{RunSpec, Training, Update};

const MAX_ABS: f32 = 1000.0;

/// The example run with `algorithm`: softmax regression on 1x2x2 samples of two classes.
fn spec(algorithm: &str) -> RunSpec {
    specified(algorithm, "")
}

/// The same with these hyper-parameters.
fn specified(algorithm: &str, table: &str) -> RunSpec {
    let mut table: toml::Table = table.parse().unwrap();
    let known = registry::complete(algorithm, toml::Table::new()).unwrap();
    // Images of two pixels a side cannot be moved by more; and as fast as these tests learn, the published pull of lambda-l2 would
    // overshoot.
    for (key, small) in [("shift", toml::Value::from(1)), ("lambda-l2", toml::Value::from(0.1))] {
        if known.contains_key(key) {
            table.entry(key).or_insert(small);
        }
    }
    let specified = registry::specify(algorithm, table).unwrap();
    fitted(RunSpec { algorithm: specified, ..RunSpec::example(algorithm) })
}

/// The run with the network that its algorithm makes of its own.
fn fitted(spec: RunSpec) -> RunSpec {
    let architecture = registry::build(&spec.algorithm).unwrap().network(spec.architecture.clone()).unwrap();
    RunSpec { architecture, ..spec }
}

fn with(spec: &RunSpec, training: Training) -> RunSpec {
    RunSpec { training, ..spec.clone() }
}

fn training(epochs: u32, batch: u32) -> Training {
    Training { epochs, batch, optimizer: Sgd::plain(0.5).into(), ..RunSpec::example("fedavg").training }
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
    broadcast: Record,
    local: Option<Record>,
    monitor: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<(Trained, TrainReport), TrainError> {
    let backend = Backend::cpu();
    let seed = client_seed(spec, round, client_id(index));
    let mut client = Client::new(spec, round, seed, data, &backend, monitor).with_id(client_id(index));
    let trained = registry::build(&spec.algorithm).unwrap().train(&mut client, broadcast, local)?;
    let (samples, steps, loss) = (client.samples(), client.steps(), client.loss());
    let metrics = client.metrics();
    Ok((trained, TrainReport { samples, steps, loss, metrics, ..TrainReport::default() }))
}

/// What is left of a record that crossed the wire.
fn wire(record: &Record, precision: Precision) -> Record {
    let bytes = record.to_bytes(precision);
    Record::read_from(&mut bytes.as_slice(), Limits::default()).unwrap()
}

/// The server's side of one round.
struct Server<'a> {
    spec: &'a RunSpec,
    algorithm: Box<dyn ErasedAlgorithm>,
    template: Template,
    scale: Scale,
    clients: usize,
}

impl<'a> Server<'a> {
    fn new(spec: &'a RunSpec, shares: &[View]) -> Self {
        let weights = spec.aggregation.weights;
        let heaviest = shares.iter().map(|share| weights.of(share.len() as u64)).max().unwrap_or(1);
        Self {
            spec,
            algorithm: registry::build(&spec.algorithm).unwrap(),
            template: Template::of_updates(
                spec.architecture.parameter_specs().unwrap(),
                spec.aggregation.buffers,
            ),
            scale: Scale::agree_in(spec.secure.integers, MAX_ABS, heaviest, shares.len()),
            clients: shares.len(),
        }
    }

    fn round(&self, number: u32) -> Round<'_> {
        Round {
            number,
            failed: 0,
            spec: self.spec,
            template: &self.template,
            scale: self.scale,
            clients: self.clients,
            private: None,
        }
    }

    fn check(&self, update: &Record) -> Result<Checked, Rejection> {
        self.algorithm.check(&self.round(1), update.clone())
    }

    fn fold(
        &self,
        partial: &mut Partial,
        index: usize,
        update: &Record,
        report: TrainReport,
        round: &Round<'_>,
    ) {
        let weight = self.spec.aggregation.weights.of(report.samples);
        let (client, update) = (client_id(index), self.check(update).unwrap());
        self.algorithm.fold(partial, Contribution { client, weight, report, update }, round);
    }

    /// What is left of a partial result that was sent to another process.
    fn sent(&self, partial: Partial) -> Partial {
        let sent = self.algorithm.encode_partial(partial).to_bytes(Precision::F32);
        let arrived = Record::read_with_integers(&mut sent.as_slice(), Limits::default()).unwrap();
        self.algorithm.decode_partial(arrived).unwrap()
    }

    /// The state after a round of these updates, in this order.
    fn close(&self, state: &Record, updates: &[(Record, TrainReport)], number: u32) -> Record {
        let round = self.round(number);
        let mut global = self.algorithm.restore(state.clone()).unwrap();
        if self.spec.aggregation.rule.needs_every_update() {
            let mut stored = InMemory::new(self.spec, updates);
            self.algorithm.close_stored(&mut global, &mut stored, &round).unwrap();
        } else {
            let mut partial = self.algorithm.begin(&round).unwrap();
            for (index, (update, report)) in updates.iter().enumerate() {
                self.fold(&mut partial, index, update, *report, &round);
            }
            self.algorithm.close(&mut global, partial, &round).unwrap();
        }
        self.algorithm.store(global)
    }

    /// The state after a round that failed although these updates were accepted.
    fn close_failed(&self, state: &Record, updates: &[(Record, TrainReport)], number: u32) -> Record {
        let round = self.round(number);
        let mut global = self.algorithm.restore(state.clone()).unwrap();
        let mut partial = self.algorithm.begin(&round).unwrap();
        for (index, (update, report)) in updates.iter().enumerate() {
            self.fold(&mut partial, index, update, *report, &round);
        }
        self.algorithm.close_failed(&mut global, partial, &round).unwrap();
        self.algorithm.store(global)
    }

    fn current_model(&self, state: &Record) -> ParamSet {
        self.algorithm.current_model(&self.algorithm.restore(state.clone()).unwrap()).clone()
    }
}

/// Stored updates that are not on a disk, in chunks of three values.
struct InMemory<'a> {
    updates: &'a [(Record, TrainReport)],
    contributors: Vec<Contributor>,
}

impl<'a> InMemory<'a> {
    fn new(spec: &RunSpec, updates: &'a [(Record, TrainReport)]) -> Self {
        let contributor = |(index, (_, report)): (usize, &(Record, TrainReport))| Contributor {
            client: client_id(index),
            weight: spec.aggregation.weights.of(report.samples),
        };
        Self { updates, contributors: updates.iter().enumerate().map(contributor).collect() }
    }
}

impl StoredUpdates for InMemory<'_> {
    fn contributors(&self) -> &[Contributor] {
        &self.contributors
    }

    fn pass(&mut self, visit: &mut dyn FnMut(&Chunk<'_>)) -> Result<(), StoredError> {
        for (tensor, array) in &self.updates[0].0.tensors {
            for start in (0..array.len()).step_by(3) {
                let end = (start + 3).min(array.len());
                let row = |(update, _): &(Record, TrainReport)| {
                    update.tensors.get(tensor).unwrap().values()[start..end].to_vec()
                };
                let rows: Vec<Vec<f32>> = self.updates.iter().map(row).collect();
                visit(&Chunk { tensor, offset: start, rows: &rows });
            }
        }
        Ok(())
    }

    fn tensor(&mut self, contributor: usize, tensor: &str) -> Result<Vec<f32>, StoredError> {
        Ok(self.updates[contributor].0.tensors.get(tensor).unwrap().values().to_vec())
    }
}

/// A run in which every client takes part in every round. All that is sent crosses the wire, and all that is kept between
/// rounds, on either side, is stored and restored.
struct Federation<'a> {
    spec: &'a RunSpec,
    shares: &'a [View],
    server: Server<'a>,
    state: Record,
    locals: Vec<Option<Record>>,
    /// Rounds that are over.
    number: u32,
}

impl<'a> Federation<'a> {
    fn new(spec: &'a RunSpec, shares: &'a [View]) -> Self {
        let server = Server::new(spec, shares);
        let state = server.algorithm.store(server.algorithm.init(initial(spec)));
        Self { spec, shares, server, state, locals: vec![None; shares.len()], number: 0 }
    }

    fn broadcast(&self) -> Record {
        let global = self.server.algorithm.restore(self.state.clone()).unwrap();
        wire(&self.server.algorithm.broadcast(&global), self.spec.update.broadcast().whole())
    }

    /// What client `index` sends in the next round. What it keeps is kept.
    fn train(&mut self, index: usize) -> (Record, TrainReport) {
        let (broadcast, local) = (self.broadcast(), self.locals[index].clone());
        let (spec, share, mut monitor) = (self.spec, &self.shares[index], |_| ControlFlow::Continue(()));
        let (trained, report) =
            train_monitored(spec, self.number + 1, index, share, broadcast, local, &mut monitor).unwrap();
        self.locals[index] = trained.local.map(|local| wire(&local, Precision::F32));
        let seed = client_seed(spec, self.number + 1, client_id(index));
        let read = shared::outgoing::received(trained.update, spec, &seed).unwrap();
        (wire(&read, Precision::F32), report)
    }

    /// The updates of all clients of the next round.
    fn updates(&mut self) -> Vec<(Record, TrainReport)> {
        (0..self.shares.len()).map(|index| self.train(index)).collect()
    }

    /// The next round; gives the model after it.
    fn round(&mut self) -> ParamSet {
        let updates = self.updates();
        self.number += 1;
        self.state = wire(&self.server.close(&self.state, &updates, self.number), Precision::F32);
        self.server.current_model(&self.state)
    }
}

/// `rounds` rounds with every client; gives the model after each.
fn federate(spec: &RunSpec, shares: &[View], rounds: u32) -> Vec<ParamSet> {
    let mut federation = Federation::new(spec, shares);
    (0..rounds).map(|_| federation.round()).collect()
}

/// The update of one client with this data in the first round.
fn first_update(spec: &RunSpec, data: &View) -> Record {
    Federation::new(spec, std::slice::from_ref(data)).train(0).0
}

/// The largest difference of two values in the same place.
fn apart(a: &ParamSet, b: &ParamSet) -> f32 {
    a.clone().difference(b).unwrap().max_abs()
}
