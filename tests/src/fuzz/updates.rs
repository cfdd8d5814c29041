//! Updates and checkpoints of every algorithm, as the server reads them.

use std::sync::OnceLock;

use models::{Limits, Precision};
use shared::aggregation::{Scale, Template};
use shared::algorithm::registry::{self, ALGORITHMS};
use shared::algorithm::{Contribution, ErasedAlgorithm, Round};
use shared::id::ClientId;
use shared::message::TrainReport;
use shared::record::Record;
use shared::seed::Seed;
use shared::spec::RunSpec;

use super::Seen;

/// Greatest absolute value of an acceptable update.
const MAX_ABS: f32 = 1000.0;

struct Federation {
    spec: RunSpec,
    algorithm: Box<dyn ErasedAlgorithm>,
    template: Template,
    scale: Scale,
    /// The server's state, as a checkpoint.
    state: Record,
}

impl Federation {
    fn new(name: &str) -> Option<Self> {
        let mut spec = RunSpec::example("fedavg");
        spec.algorithm = registry::specify(name, toml::Table::new()).expect("a registered algorithm");
        let algorithm = registry::build(&spec.algorithm).expect("it was specified by this build");
        spec.architecture = algorithm.network(spec.architecture.clone()).ok()?;
        let template =
            Template::of_updates(spec.architecture.parameter_specs().ok()?, spec.aggregation.buffers);
        let initial = spec
            .architecture
            .initialise(|tensor| Seed::root(1).derive(tensor).rng())
            .expect("a valid network");
        let state = algorithm.store(algorithm.init(initial));
        let scale = Scale::agree(MAX_ABS, 10, 2);
        Some(Self { spec, algorithm, template, scale, state })
    }

    fn round(&self) -> Round<'_> {
        Round {
            number: 1,
            failed: 0,
            spec: &self.spec,
            template: &self.template,
            scale: self.scale,
            clients: 2,
            private: None,
        }
    }
}

fn federations() -> &'static [Federation] {
    static ALL: OnceLock<Vec<Federation>> = OnceLock::new();
    ALL.get_or_init(|| ALGORITHMS.iter().filter_map(|entry| Federation::new(entry.name)).collect())
}

/// The first byte says whose update or checkpoint the others are.
///
/// # Panics
/// If something is accepted that cannot be folded.
#[must_use]
pub fn run(bytes: &[u8]) -> Seen {
    let Some((&first, mut rest)) = bytes.split_first() else { return Seen::of(&"empty") };
    let federations = federations();
    let federation = &federations[usize::from(first >> 1) % federations.len()];
    let Federation { algorithm, .. } = federation;
    let limits = Limits { max_bytes: rest.len() as u64, max_values: 4 << 20, ..Limits::default() };
    let record = match Record::read_update(&mut rest, limits) {
        Ok(record) => record,
        Err(error) => return Seen::of(&error),
    };
    if first & 1 == 1 {
        let restored = algorithm.restore(record);
        return match restored {
            Ok(global) => {
                let _ = algorithm.store(global);
                Seen::of(&algorithm.name().chars().collect::<Vec<_>>())
            }
            Err(error) => Seen::of(&error),
        };
    }
    let round = federation.round();
    let checked = match algorithm.check(&round, record) {
        Ok(checked) => checked,
        Err(rejection) => return Seen::of(&rejection),
    };
    let begin = || algorithm.begin(&round).expect("a rule with partial results");
    let mut partial = begin();
    let report = TrainReport { samples: 10, steps: 3, loss: 0.5, ..TrainReport::default() };
    let client = ClientId::from_bytes([1; 16]);
    algorithm.fold(&mut partial, Contribution { client, weight: 10, report, update: checked }, &round);
    let mut merged = begin();
    algorithm.merge(&mut merged, partial).expect("partial results of one round");
    let mut global = algorithm.restore(federation.state.clone()).expect("an own checkpoint");
    Seen::of(&algorithm.close(&mut global, merged, &round))
}

/// For each algorithm its checkpoint and its broadcast, which for most is an update too.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (number, federation) in (0_u8..).zip(federations()) {
        let Federation { algorithm, state, .. } = federation;
        let global = algorithm.restore(state.clone()).expect("an own checkpoint");
        let seed = |first: u8, record: &Record| [&[first][..], &record.to_bytes(Precision::F32)].concat();
        seeds.push(seed(number << 1 | 1, state));
        seeds.push(seed(number << 1, &algorithm.broadcast(&global)));
        let bare = Record { tensors: algorithm.current_model(&global).clone(), ..Record::default() };
        seeds.push(seed(number << 1, &bare));
    }
    seeds
}
