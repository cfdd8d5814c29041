//! `aggregator simulate`: a whole federation in this process.

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use shared::cli::{Processor, cores};
use tokio::runtime::{Builder, Runtime};

use super::RunArgs;
use super::dashboard::{ADDRESS, Beside};
use super::exit::Failure;
use super::page::RunPage;
use super::parse::{address, whole};
use super::run::{conclude, report_skipped, runtime, tensorboard};
use super::terminal;
use crate::events::Sink;
use crate::events::sinks::terminal::Terminal;
use crate::simulate::{Clients, SimulateError, Transport, simulate as simulate_run};
use crate::storage::unsynced::Unsynced;

#[derive(Debug, Args)]
pub(super) struct SimulateArgs {
    #[command(flatten)]
    run: RunArgs,
    /// How clients and coordinator talk; either gives the same model
    #[arg(long, value_enum, default_value_t)]
    transport: Transport,
    /// Clients that train at the same time, one thread each [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1024), allow_negative_numbers = true)]
    threads: Option<u16>,
    /// Show the run in a browser as well: `aggregator page` beside it, at this address [default: 127.0.0.1:8420]
    #[arg(long, value_name = "IP:PORT", num_args = 0..=1, default_missing_value = ADDRESS, value_parser = address)]
    page: Option<SocketAddr>,
}

/// Runs the federation; `verbose` shows remarks, too.
pub(super) fn simulate(arguments: &SimulateArgs, verbose: bool) -> Result<(), Failure> {
    edge_client::memory::keep_freed(edge_client::memory::Heaps::Each);
    let SimulateArgs { run: given, transport, threads, page } = arguments;
    let backend = Processor::backend(given.device)?;
    let (started, clients) = given.start(given.validated()?, Arc::new(Unsynced), Clients::of)?;
    let shares = &clients.shares;
    let _page = page.and_then(|at| Beside::start(at, &given.runs, None));
    let threads = threads.map_or_else(|| cores().get(), usize::from);
    if let Some(attackers) = &started.run.config().attackers {
        let (clients, seed) = (started.run.config().data.clients, started.run.spec().root_seed());
        terminal::tell(&format!("attack: {}", attackers.describe(clients, &seed)));
    }
    let (mut run, resume, _lock) = started.into_parts();
    run.backend = backend;
    let skipped = report_skipped(shares, &run);
    let planned = run.spec().rounds.saturating_add(resume.failed);
    let mut display = Terminal::new(planned, resume.closed, given.json, verbose);
    let name = |index| format!("client {index}");
    let histograms =
        shares.iter().enumerate().map(|(index, share)| (name(index), share.histogram())).collect();
    let tests = run.tests.as_ref().map(|tests| ("test", tests.view().dataset().clone()));
    let data = shares.first().map(|share| ("training", share.dataset().clone())).into_iter().chain(tests);
    let mut page = RunPage::begin(&run, None, Some(histograms), skipped, data.collect())?;
    let mut tensorboard = tensorboard(given, &run)?;
    let mut sinks: Vec<&mut dyn Sink> = vec![page.sink(), &mut display];
    sinks.extend(tensorboard.as_mut().map(|file| file as &mut dyn Sink));
    let runtime = runtime_for(*transport)?;
    let stop = {
        let _inside = runtime.enter();
        terminal::stop_on_signal()
    };
    let stopped = stop.stopped.clone();
    let simulated =
        runtime.block_on(simulate_run(run, resume, clients, *transport, threads, stopped, &mut sinks));
    let failed = |error| match error {
        SimulateError::Run(error) => error.into(),
        error => Failure::environment(error),
    };
    let (mut run, outcome) = match simulated.map_err(failed) {
        Ok(simulated) => simulated,
        Err(failure) => {
            page.failed(&failure);
            return Err(failure);
        }
    };
    let shown = display.finish().map_err(|error| Failure::output(&error));
    conclude(&mut run, &outcome, page, Vec::new(), &stop, given.json).and(shown)
}

/// Besides training and the disk worker, which have threads of their own, a simulation in memory is nothing but messages, and
/// fewer threads to wake leave more time for training. Over QUIC messages are encrypted, which is worth all cores.
fn runtime_for(transport: Transport) -> Result<Runtime, Failure> {
    match transport {
        Transport::Memory => Builder::new_current_thread().enable_all().build().map_err(Failure::environment),
        Transport::Quic => runtime(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: SimulateArgs,
    }

    #[test]
    fn data_that_cannot_be_read_leave_no_directory_of_a_run() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (runs, train) = (folder.path().join("runs"), folder.path().join("train.csv"));
        std::fs::write(&train, "a,label\nabc,0\n").expect("a file in it");
        let path = format!("data.path={}", folder.path().display());
        let settings = [
            "data.set=csv",
            "data.shape=[1]",
            "data.classes=2",
            "data.clients=1",
            "model.name=linear",
            "evaluate.every=0",
            &path,
        ];
        let settings = settings.into_iter().flat_map(|setting| ["--set", setting]);
        let runs_option = ["simulate", "--device", "cpu", "--runs", runs.to_str().expect("UTF-8")];
        let line = Line::try_parse_from(runs_option.into_iter().chain(settings)).expect("a command line");
        let refused = simulate(&line.arguments, false).expect_err("no number").to_string();
        assert!(refused.contains("line 2: column `a` holds \"abc\""), "{refused}");
        assert!(!runs.exists(), "the corrected run would be NAME-2");
    }
}
