//! The aggregator's peak memory.

use clap::Args;
use federation_tests::serving::{Serving, split_data};
use shared::aggregation::Rule;

/// The aggregator's peak memory with a 100 MB model, its growth with the number of clients, and that of rules that store
/// updates.
///
/// Real processes over QUIC, `mlp-25m` (25,021,930 parameters), no local epochs, two rounds. Needs 10 GB for 20 clients.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Numbers of clients, one run each.
    #[arg(default_values_t = [2, 20])]
    clients: Vec<usize>,
}

const MODEL_BYTES: f64 = 25_021_930.0 * 4.0;

pub(crate) fn run(arguments: &Arguments) {
    println!("aggregator's peak memory, model of {:.1} MB, real processes over QUIC", MODEL_BYTES / 1e6);
    let most = arguments.clients.iter().copied().max().unwrap_or(0);
    let mut first = None;
    for &clients in &arguments.clients {
        let peak = peak(clients, &[]) as f64;
        let base = *first.get_or_insert(peak);
        println!(
            "  {clients:3} clients: {:6.1} MB = {:.2} x the model, {:+.1} % against the first line",
            peak / 1e6,
            peak / MODEL_BYTES,
            100.0 * (peak / base - 1.0)
        );
    }
    // Matching thousands of units with each other takes far longer than a bench should: FedMA is left to its test.
    for rule in Rule::ALL.iter().copied().filter(Rule::counts_alike) {
        let clients = most.max(rule.least());
        let rule_as_toml = toml::Value::try_from(rule).expect("a rule is a table");
        let chosen = format!("aggregation.rule={rule_as_toml}");
        let peak = peak(clients, &[&chosen, "aggregation.weights=uniform"]) as f64;
        let (name, models) = (rule.name(), peak / MODEL_BYTES);
        println!("  {clients:3} clients, {name:12}: {:6.1} MB = {models:.2} x the model", peak / 1e6);
    }
    println!("for reference, at 2 clients: Flower 8.6 x the model, NVFLARE 19 x");
}

/// The peak in bytes with this number of clients, under these overrides too.
fn peak(clients: usize, more: &[&str]) -> u64 {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let overrides: Vec<String> = [
        "model.name=mlp-25m",
        "training.epochs=0",
        "evaluate.every=0",
        "run.rounds=2",
        &format!("data.clients={clients}"),
        &format!("data.max-samples={}", 10 * clients),
        &format!("round.min-updates={clients}"),
    ]
    .iter()
    .chain(more)
    .map(|&change| change.to_owned())
    .collect();
    split_data(directory.path(), &overrides);
    let mut serving = Serving::start(directory.path(), &overrides);
    let processes: Vec<_> = (0..clients).map(|index| serving.join(directory.path(), index)).collect();
    let mut peak = 0;
    while serving.next_round().is_some() {
        peak = serving.process.memory("VmHWM").unwrap_or(0).max(peak);
    }
    drop(processes);
    peak
}
