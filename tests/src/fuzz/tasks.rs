//! Tasks from a server: a specification and a broadcast, up to the first step of training.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use edge_client::task::{self, Task, TaskHandle, TestSamples};
use models::{Backend, Precision};
use shared::algorithm::registry::{self, ALGORITHMS};
use shared::data::{Dataset, View};
use shared::id::ClientId;
use shared::message::TaskKind;
use shared::personalisation::{Method, Methods, Personalisation};
use shared::record::Record;
use shared::seed::Seed;
use shared::spec::{RunSpec, SpecText};

use super::Seen;

/// Samples of a device.
fn data() -> View {
    static DATA: OnceLock<View> = OnceLock::new();
    let make = || {
        let pixels = (0..4 * 11).map(|pixel| (pixel * 37 % 251) as u8).collect();
        let labels: Vec<u8> = (0..11).map(|sample| sample % 2).collect();
        View::whole(Arc::new(Dataset::new(vec![1, 2, 2], pixels, labels, 2).expect("samples of two classes")))
    };
    DATA.get_or_init(make).clone()
}

/// Two bytes for the length of the specification, one for what is to be done, then specification and broadcast. Training is
/// cancelled before its first step: how much of it there is to do is the server's to say.
#[must_use]
pub fn run(bytes: &[u8]) -> Seen {
    let [low, high, work, rest @ ..] = bytes else { return Seen::of(&"short") };
    let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
    let (spec, broadcast) = rest.split_at(length);
    let text = SpecText::from(String::from_utf8_lossy(spec).into_owned());
    let spec = match registry::read_spec(&text) {
        Ok(spec) => spec,
        Err(error) => return Seen::of(&error),
    };
    let task = Task {
        spec: Arc::new(spec),
        round: 1,
        failed: 0,
        work: TaskKind { train: work & 1 == 0, evaluate: work & 2 != 0, personalise: work & 4 != 0 },
        client: ClientId::from_bytes([1; 16]),
        data: data(),
        tests: TestSamples::of(data()),
        backend: Backend::cpu(),
        trainer: None,
        broadcast: broadcast.to_vec().into(),
        local: None,
    };
    let handle = TaskHandle::default();
    handle.cancel();
    Seen::result(&task::run_task(&task, &handle, None))
}

fn personalisation() -> Personalisation {
    Personalisation {
        method: Some(Methods(Method::ALL.to_vec())),
        every: 1,
        expert_share: 0.5,
        ..Personalisation::default()
    }
}

/// A task of each algorithm, in two bytes, one byte, the specification and the broadcast.
///
/// # Panics
/// Never: the specifications are those of the registry.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for entry in ALGORITHMS {
        let mut spec = RunSpec::example("fedavg");
        spec.algorithm = registry::specify(entry.name, toml::Table::new()).expect("a registered algorithm");
        let algorithm = registry::build(&spec.algorithm).expect("it was specified by this build");
        let Ok(network) = algorithm.network(spec.architecture.clone()) else { continue };
        spec.architecture = network;
        spec.evaluate.hold_out = 0.25;
        *spec.personalisation = personalisation();
        let params = spec
            .architecture
            .initialise(|tensor| Seed::root(1).derive(tensor).rng())
            .expect("a valid network");
        let broadcast: Record = algorithm.broadcast(&algorithm.init(params));
        let spec = SpecText::of(&spec).as_str().as_bytes().to_vec();
        let length = u16::try_from(spec.len()).expect("a message").to_le_bytes();
        let works: Range<u8> = 0..8;
        for work in works.step_by(3) {
            seeds.push([&length[..], &[work], &spec, &broadcast.to_bytes(Precision::F32)].concat());
        }
    }
    seeds
}
