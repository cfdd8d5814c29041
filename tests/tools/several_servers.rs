//! What several servers cost a round.

use std::path::Path;
use std::time::Instant;

use clap::Args;
use federation_tests::postgres::Postgres;
use federation_tests::proc::processor_time;
use federation_tests::serving::{Serving, median, split_data};

/// What it costs a round that several servers serve it: time, memory, processor time of servers and database.
///
/// Real processes over QUIC on loopback, durable on disk. Each client trains on one sample, so that there is another model in each round.
/// The clients are spread over the servers. Runs of one server without a store, of one server over a store, and of all servers over one run alternately; medians are printed. A round
/// is the time from one closed round to the next.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Servers.
    #[arg(long, default_value_t = 3)]
    servers: usize,
    /// Clients.
    #[arg(long, default_value_t = 3)]
    clients: usize,
    /// The model; the default one has 100 MB.
    #[arg(long, default_value = "mlp-25m")]
    model: String,
    /// Rounds of each run.
    #[arg(long, default_value_t = 12)]
    rounds: usize,
    /// Runs of each kind.
    #[arg(long, default_value_t = 3)]
    repeats: usize,
}

/// What the rounds of a run took.
#[derive(Default)]
struct Found {
    /// Seconds between closed rounds.
    periods: Vec<f64>,
    /// Processor time for a round, in seconds: of the server that leads, of the others together, of the database.
    processor: [Vec<f64>; 3],
    /// The most bytes that a server had resident: the one that leads, and any other one.
    memory: [u64; 2],
}

pub(crate) fn run(arguments: &Arguments) {
    let Arguments { servers, clients, model, rounds, repeats } = arguments;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let overrides: Vec<String> = [
        &format!("model.name={model}"),
        "training.epochs=1",
        "evaluate.every=0",
        &format!("data.clients={clients}"),
        &format!("data.max-samples={clients}"),
        &format!("round.min-updates={clients}"),
        &format!("run.rounds={rounds}"),
    ]
    .map(str::to_owned)
    .to_vec();
    split_data(directory.path(), &overrides);
    let kinds = [("one server", 0), ("one server, PostgreSQL", 1), ("several servers, PostgreSQL", *servers)];
    let mut found = kinds.map(|_| Found::default());
    for _ in 0..*repeats {
        for ((_, servers), found) in kinds.iter().zip(&mut found) {
            let place = tempfile::tempdir().expect("a temporary directory");
            if *servers == 0 {
                let serving = Serving::start(place.path(), &overrides);
                found.take(directory.path(), *clients, vec![serving], None);
                continue;
            }
            let Some(postgres) = Postgres::start() else { return };
            let all = Serving::start_several(place.path(), &overrides, &postgres.address(), *servers);
            found.take(directory.path(), *clients, all, Some(&postgres));
        }
    }
    println!(
        "{model}, {clients} clients, {servers} servers, {repeats} x {rounds} rounds of each, alternately"
    );
    let base = median(found[1].periods.clone());
    for ((what, _), found) in kinds.iter().zip(found) {
        let Found { periods, processor: [root, others, database], memory } = found;
        let period = median(periods);
        println!(
            "  {what:<28} median {:7.1} ms, {:.2} of one server with PostgreSQL",
            1e3 * period,
            period / base
        );
        println!(
            "    processor time of a round: leading server {:.1} ms, others {:.1} ms, PostgreSQL {:.1} ms",
            1e3 * median(root),
            1e3 * median(others),
            1e3 * median(database)
        );
        println!(
            "    resident at most: leading server {:.1} MB, another {:.1} MB",
            memory[0] as f64 / 1e6,
            memory[1] as f64 / 1e6
        );
    }
}

impl Found {
    /// Adds what a run takes whose data are in `directory`. The first server leads, since it was the first to start.
    fn take(&mut self, directory: &Path, clients: usize, servers: Vec<Serving>, database: Option<&Postgres>) {
        let mut servers = servers;
        let joined: Vec<_> =
            (0..clients).map(|index| servers[index % servers.len()].join(directory, index)).collect();
        let mut closed: Vec<Instant> = Vec::new();
        let (mut first, mut last) = (None, [0.0; 3]);
        while let Some((moment, _)) = servers[0].next_round() {
            closed.push(moment);
            for (number, serving) in servers.iter().enumerate() {
                let peak = serving.process.memory("VmHWM").unwrap_or(0);
                let most = &mut self.memory[usize::from(number > 0)];
                *most = peak.max(*most);
            }
            let times: Vec<_> = servers.iter().map(|serving| processor_time(serving.process.id())).collect();
            let [root, others @ ..] = times.as_slice() else { continue };
            let (Some(root), Some(others)) = (root, others.iter().copied().sum::<Option<f64>>()) else {
                continue;
            };
            last = [*root, others, database.map_or(0.0, Postgres::processor_time)];
            // The first rounds wait for clients and warm caches.
            if closed.len() == 3 {
                first = Some(last);
            }
        }
        let first = first.expect("a run has more than three rounds");
        let rounds = (closed.len() - 3) as f64;
        for (place, all) in self.processor.iter_mut().enumerate() {
            all.push((last[place] - first[place]) / rounds);
        }
        self.periods.extend(closed.windows(2).skip(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()));
        drop(joined);
        for index in 0..clients {
            // A fresh client trusts the next server afresh.
            let _ = std::fs::remove_dir_all(directory.join(format!("state-{index}")));
        }
    }
}
