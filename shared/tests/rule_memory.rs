//! Memory of rules that need every update: a few models, for any number of updates.
//!
//! In a process of its own, since the memory of a process is what is measured; where the system tells it.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;

use models::Architecture;
use shared::aggregation::{Chunk, Contributor, Rule, Scale, StoredError, StoredUpdates, Template, Weights};
use shared::algorithm::{Round, registry};
use shared::id::ClientId;
use shared::spec::RunSpec;

/// Values of one update that are in memory at a time: less than a hundredth of the model.
const AT_ONCE: usize = 4096;

/// Updates that are nowhere: their values follow from their places.
struct MadeUp {
    contributors: Vec<Contributor>,
    /// In the order of their names.
    tensors: Vec<(String, usize)>,
}

impl MadeUp {
    fn value(update: usize, place: usize) -> f32 {
        let mixed = (place as u64 ^ (update as u64) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as f32 / (1 << 24) as f32 - 0.5
    }
}

impl StoredUpdates for MadeUp {
    fn contributors(&self) -> &[Contributor] {
        &self.contributors
    }

    fn pass(&mut self, visit: &mut dyn FnMut(&Chunk<'_>)) -> Result<(), StoredError> {
        let mut rows = vec![Vec::new(); self.contributors.len()];
        for (tensor, length) in &self.tensors {
            for offset in (0..*length).step_by(AT_ONCE) {
                let end = (offset + AT_ONCE).min(*length);
                for (update, row) in rows.iter_mut().enumerate() {
                    row.clear();
                    row.extend((offset..end).map(|place| Self::value(update, place)));
                }
                visit(&Chunk { tensor, offset, rows: &rows });
            }
        }
        Ok(())
    }

    fn tensor(&mut self, contributor: usize, tensor: &str) -> Result<Vec<f32>, StoredError> {
        let (_, length) = self.tensors.iter().find(|(name, _)| name == tensor).unwrap();
        Ok((0..*length).map(|place| Self::value(contributor, place)).collect())
    }
}

/// Bytes of a line of what the system says of this process.
fn status(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// The peak memory of this process while it combines this number of updates.
fn peak(rule: Rule, updates: usize) -> u64 {
    let mut spec = RunSpec::example("fedavg");
    spec.architecture = Architecture::by_name("mlp-2nn", &[1, 96, 96], 10).unwrap();
    spec.aggregation.rule = rule;
    spec.aggregation.weights = Weights::Uniform;
    let specs = spec.architecture.parameter_specs().unwrap();
    let template = Template::of_updates(specs, spec.aggregation.buffers);
    let contributor =
        |index: usize| Contributor { client: ClientId::from_bytes([index as u8; 16]), weight: 1 };
    let tensors = template.iter().map(|(name, shape)| (name.to_owned(), shape.iter().product()));
    let mut made_up =
        MadeUp { tensors: tensors.collect(), contributors: (0..updates).map(contributor).collect() };
    let algorithm = registry::build(&spec.algorithm).unwrap();
    let initial = spec.architecture.initialise(|tensor| spec.root_seed().derive(tensor).rng()).unwrap();
    let mut global = algorithm.init(initial);
    let scale = Scale::agree(1000.0, 1, updates);
    let round = Round {
        number: 1,
        failed: 0,
        spec: &spec,
        template: &template,
        scale,
        clients: updates,
        private: None,
    };
    // The system forgets the greatest that there was before.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    algorithm.close_stored(&mut global, &mut made_up, &round).unwrap();
    status("VmHWM")
}

#[test]
fn a_rule_that_needs_every_update_does_not_need_them_in_memory() {
    const FEW: usize = 7;
    const MANY: usize = 21;
    /// The model itself, a layer's sums in twice its precision, and a few copies of that layer.
    const MODELS: u64 = 7;
    let parameters = Architecture::by_name("mlp-2nn", &[1, 96, 96], 10).unwrap().parameters().unwrap();
    let model = 4 * parameters as u64;
    let before = status("VmRSS");
    // What the allocator keeps of a first time is there for both.
    peak(Rule::Median {}, FEW);
    for rule in Rule::ALL.iter().copied().filter(Rule::needs_every_update) {
        let [few, many] = [FEW, MANY].map(|updates| peak(rule, updates));
        println!("{}: {few} and {many} bytes at most, {before} before", rule.name());
        let more = many.saturating_sub(few);
        assert!(2 * more < model, "{}: {more} bytes for {} updates more", rule.name(), MANY - FEW);
        let taken = many.saturating_sub(before);
        assert!(taken < MODELS * model, "{}: {taken} bytes for a model of {model}", rule.name());
    }
}
