//! The file with many clients' models.

use std::sync::{Arc, OnceLock};

use aggregator::ensemble::{Bundle, EnsembleError, Manifest, Member, Origin, Values, write};
use aggregator::storage::Disk;
use models::{Architecture, Array, ParamSet};
use shared::aggregation::Weights;
use shared::algorithm::{Answering, registry};
use shared::id::ClientId;
use shared::seed::Seed;
use shared::spec::RunSpec;

use super::{Seen, tmp};

/// Opens it, and reads every member.
#[must_use]
pub fn run(bytes: &[u8]) -> Seen {
    let path = tmp::file("ensemble.safetensors", bytes);
    let bundle = match Bundle::open(Arc::new(Disk), &path) {
        Ok(bundle) => bundle,
        Err(error) => return Seen::of(&error),
    };
    let members = 0..bundle.manifest.members.len();
    let read: Result<Vec<ParamSet>, EnsembleError> = members.map(|member| bundle.member(member)).collect();
    Seen::of(&(read.map(|_| ()), bundle.dimensions() > 0))
}

struct Model(ParamSet);

impl Origin for Model {
    fn pass(&self, visit: &mut Values<'_>) -> Result<(), EnsembleError> {
        self.0.iter().try_for_each(|(tensor, array): (&str, &Array)| visit(tensor, array.values()))
    }
}

/// Ensembles of one and of three.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    static SEEDS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    SEEDS.get_or_init(|| [1, 3].map(written).into()).clone()
}

fn written(members: u8) -> Vec<u8> {
    let fafi = registry::specify("fafi", toml::Table::new()).expect("a registered algorithm");
    let fafi = registry::build(&fafi).expect("it was specified by this build");
    let network = Architecture::by_name("mlp-2nn", &[1, 2, 2], 2).expect("it fits every input");
    let network = fafi.network(network).expect("it has a last layer");
    let manifest = Manifest {
        data: RunSpec::example("fafi").data,
        answering: Answering { temperature: 0.07, ..Answering::default() },
        noise_seed: 3,
        weights: Weights::default(),
        start: String::new(),
        members: Vec::new(),
        architecture: narrow(network),
    };
    let of = |seed: u8| {
        let root = Seed::root(u64::from(seed));
        let params = manifest.architecture.initialise(|tensor| root.derive(tensor).rng());
        let member =
            Member { client: ClientId::from_bytes([seed; 16]), samples: 10, run: "a-run".to_owned() };
        (member, Box::new(Model(params.expect("a valid network"))) as Box<dyn Origin>)
    };
    let members: Vec<_> = (1..=members).map(of).collect();
    let path = tmp::folder().join("ensemble.safetensors");
    write(&Disk, &path, &manifest, &members).expect("there is room");
    std::fs::read(path).expect("just written")
}

/// Inputs are mutated anywhere: most of it should not be weights.
fn narrow(mut network: Architecture) -> Architecture {
    for layer in &mut network.extractor {
        if let models::Layer::Linear { out, .. } = layer {
            *out = 3;
        }
    }
    network
}
