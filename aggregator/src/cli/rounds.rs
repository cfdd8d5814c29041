//! `simulate` and `serve`: rounds, from start to report.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use shared::data::View;

use super::exit::Failure;
use super::processor::backend;
use super::recording::Recording;
use super::supervised::Supervised;
use super::terminal::{self, Display};
use super::{ConfigArgs, RunArgs};
use crate::attack::Attackers;
use crate::config::Config;
use crate::coordinator::Outcome;
use crate::data::TestSet;
use crate::database::Database;
use crate::enrolment::{Admission, Device, Issued, Listening, Policy, Register};
use crate::history::StoredLeftOut;
use crate::report::{Report, Summary, console, render};
use crate::run::Run;
use crate::serve::{ServeError, Served, serve as serve_run};
use crate::start::{StartError, Started, completed, start_on};
use crate::storage::descriptors::allow_all_descriptors;
use crate::storage::patient::Patient;
#[cfg(feature = "simulate")]
use crate::storage::unsynced::Unsynced;
use crate::storage::{Disk, FileLayer};
use crate::transport::Listener;
use crate::transport::identity::ServerIdentity;

impl ConfigArgs {
    /// The configuration, of a run that has no identity yet.
    pub(super) fn validated(&self) -> Result<Config, Failure> {
        let nobody = shared::id::RunId::from_bytes([0; 8]);
        Ok(Config::read(self.config.as_deref(), &self.overrides, nobody)?)
    }
}

impl RunArgs {
    /// `prepare` as [`start_on`] has it.
    fn start<T>(
        &self,
        config: Config,
        files: Arc<dyn FileLayer>,
        prepare: impl FnOnce(&Config) -> Result<T, StartError>,
    ) -> Result<(Started, T), Failure> {
        let (started, prepared) = start_on(files, config, &self.runs, self.fresh, prepare)?;
        let place = started.run.directory().root().display().to_string();
        let closed = started.run.closed();
        for passed in &started.passed {
            terminal::tell(passed);
        }
        for mended in started.run.mended() {
            terminal::tell(mended);
        }
        if started.continued {
            terminal::tell(&format!("continuing {place} after round {closed} (--fresh begins a new run)"));
        } else {
            terminal::tell(&format!("new run in {place}"));
        }
        Ok((started, prepared))
    }
}

#[cfg(feature = "simulate")]
pub(super) fn simulate(
    arguments: &RunArgs,
    transport: crate::simulate::Transport,
    threads: Option<usize>,
    remarks: bool,
) -> Result<(), Failure> {
    use crate::simulate::{SimulateError, simulate};

    edge_client::memory::keep_freed(edge_client::memory::Heaps::Each);
    let backend = backend(arguments.device)?;
    let (started, ()) = arguments.start(arguments.config.validated()?, Arc::new(Unsynced), |_| Ok(()))?;
    let shares = crate::data::shares(started.run.config()).map_err(Failure::environment)?;
    let threads = threads.unwrap_or_else(cores);
    if let Some(attackers) = &started.run.config().attackers {
        let (clients, seed) = (started.run.config().data.clients, started.run.spec().root_seed());
        terminal::tell(&format!("attack: {}", attackers.describe(clients, &seed)));
    }
    let (mut run, resume, _lock) = started.into_parts();
    run.compute_on(backend);
    let left_out = left_out(&shares, &run);
    let mut display = Display::new(run.spec().rounds, resume.closed, arguments.json, remarks);
    let histograms = histograms(&shares);
    let (mut run, outcome) = simulating(transport)?
        .block_on(async {
            let stop = terminal::stop_on_signal();
            simulate(run, resume, shares, transport, threads, stop, &mut |notice| display.show(&notice)).await
        })
        .map_err(|error| match error {
            SimulateError::Run(error) => error.into(),
            error => Failure::environment(error),
        })?;
    let shown = display.finish();
    conclude(&mut run, &outcome, Some(&histograms), |_| left_out, arguments.json).and(shown)
}

/// Whether the run that is to be served is complete; whoever asked is told.
pub(super) fn is_complete(arguments: &RunArgs) -> Result<bool, Failure> {
    let config = arguments.config.validated()?;
    let Some(place) = completed(&Disk, &config, &arguments.runs)? else { return Ok(false) };
    let said = format!("the run in {} is complete: there is nothing to do", place.display());
    Supervised::has_nothing_to_do(&said);
    terminal::tell(&said);
    Ok(true)
}

pub(super) fn serve(
    arguments: &RunArgs,
    listen: SocketAddr,
    ready_file: Option<&Path>,
    identity: Option<PathBuf>,
    admit: Policy,
    linger: Duration,
) -> Result<(), Failure> {
    allow_all_descriptors();
    // A configuration that makes no sense leaves nothing behind, no key either.
    let config = arguments.config.validated()?;
    if let Some(Attackers { attack, .. }) = config.attackers {
        return Err(Failure::Usage(format!(
            "the configuration asks for an attack ({attack}), and real devices are not asked to attack: simulation.attack is \
             for `aggregator simulate` alone; take it out, or give --set simulation.attack.none={{}}"
        )));
    }
    let backend = backend(arguments.device)?;
    let directory = identity.unwrap_or_else(|| identity_directory(&arguments.runs));
    let database = Database::open(&directory).map_err(Failure::environment)?;
    let identity = ServerIdentity::load_or_create(&directory).map_err(Failure::environment)?;
    let runtime = runtime()?;
    let inside = runtime.enter();
    let bind = |config: &Config| {
        let admission = Admission::new(Register::Lab { database: database.clone(), policy: admit });
        let listener = Listener::bind(listen, &identity, admission, config.policy.lost_after)?;
        Ok(listener.with_identity_in(directory.clone()))
    };
    let files = Patient::default();
    let shortage = files.shortage.clone();
    let (started, listener) = arguments.start(config, Arc::new(files), bind)?;
    Listening::note(&database, listener.address()).map_err(Failure::environment)?;
    if admit == Policy::Ticket && Device::all(&database).map_err(Failure::environment)?.is_empty() {
        let good = Issued::good(&database, SystemTime::now()).map_err(Failure::environment)?;
        terminal::tell(nobody_yet(&good));
    }
    let (mut run, resume, _lock) = started.into_parts();
    run.compute_on(backend);
    let mut recording = Recording::begin(&database, &mut run, &resume, shortage.clone())?;
    let left_out = left_out(&[], &run);
    let stop = terminal::stop_on_signal();
    // Somebody looks from now on, until the run is to stop.
    shortage.wait_from_now_on();
    let (stopped, waiting) = (stop.clone(), shortage.clone());
    tokio::spawn(async move { waiting.give_up_when(stopped).await });
    drop(inside);
    let expected = run.config().data.clients;
    let mut display =
        Display::new(run.spec().rounds, resume.closed, arguments.json, true).expecting(expected);
    let mut supervised = Supervised::new();
    let served = runtime.block_on(async {
        let show = &mut |notice: crate::driver::Notice<'_>| {
            supervised.hear(&notice);
            recording.note(&notice, &mut display);
        };
        Box::pin(serve_run(run, resume, listener, &identity, ready_file, stop.clone(), show)).await
    });
    shortage.give_up();
    recording.finish(served.as_ref().ok().map(|served| &served.outcome));
    let Served { mut run, outcome, door } = served.map_err(|error| match error {
        ServeError::Run(error) => error.into(),
        error @ ServeError::ReadyFile { .. } => Failure::environment(error),
    })?;
    let shown = display.finish();
    let left_out = |run: &Run| [left_out, left_out_by_devices(&database, run)].concat();
    let concluded = conclude(&mut run, &outcome, None, left_out, arguments.json);
    // Whatever is to be seen of the run is there by now.
    let time = match &concluded {
        Ok(()) | Err(Failure::NoProgress(_)) => linger,
        Err(_) => Duration::ZERO,
    };
    if door.awaited() > 0 && !time.is_zero() {
        terminal::tell(&format!(
            "the run is over; {} known devices have not confirmed that they heard of it: they have {} s (--linger). Ctrl-C ends this",
            door.awaited(),
            time.as_secs()
        ));
    }
    let untold = runtime.block_on(async {
        tokio::select! {
            untold = door.close_after(time, stop) => untold,
            () = Supervised::waits() => 0,
        }
    });
    if untold > 0 && matches!(concluded, Ok(()) | Err(Failure::NoProgress(_))) {
        terminal::tell(&format!(
            "{untold} known devices were not told that the run is over: they look for this server until they are stopped there, or \
             until it serves another run (a longer --linger gives them more time)"
        ));
    }
    concluded.and(shown)
}

/// What to say where no device has been here, with the tickets that let one in.
fn nobody_yet(good: &[Issued]) -> &'static str {
    if good.is_empty() {
        "no device may take part yet: `aggregator ticket` prints what a device joins with (the same --runs or --identity)"
    } else {
        "no device has joined yet; there is a ticket for them (`aggregator ticket --list`)"
    }
}

/// Where the server's key and what it knows of devices are kept, unless `--identity` says so.
pub(super) fn identity_directory(runs: &Path) -> PathBuf {
    runs.join("identity")
}

type Histograms = Vec<(String, Vec<usize>)>;

#[cfg(feature = "simulate")]
fn histograms(shares: &[View]) -> Histograms {
    shares.iter().enumerate().map(|(index, share)| (format!("client {index}"), share.histogram())).collect()
}

/// What was left out when samples were read, which is told at once.
fn left_out(shares: &[View], run: &Run) -> Vec<String> {
    let left_out = crate::data::left_out(shares, run.tests().map(TestSet::skipped));
    for what in &left_out {
        terminal::tell(&format!("left out, since they cannot be used: {what}"));
    }
    left_out
}

/// What devices leave out in the run, in words. That it cannot be read is told, and no reason to end without a report.
fn left_out_by_devices(database: &Database, run: &Run) -> Vec<String> {
    match database.left_out(&run.spec().run.to_string()) {
        Ok(devices) => StoredLeftOut::in_words(&devices),
        Err(error) => {
            terminal::tell(&format!(
                "the report does not say what devices leave out (`aggregator status` does, once the database can be read): {error}"
            ));
            Vec::new()
        }
    }
}

/// Writes the model and the report, and says how it went.
fn conclude(
    run: &mut Run,
    outcome: &Outcome,
    histograms: Option<&Histograms>,
    left_out: impl FnOnce(&Run) -> Vec<String>,
    json: bool,
) -> Result<(), Failure> {
    let model = run.write_model()?;
    let left_out = left_out(run);
    let report = Report {
        name: &run.directory().name(),
        config: run.config(),
        rounds: run.records(),
        histograms: histograms.map(Vec::as_slice),
        left_out: &left_out,
        target: None,
    };
    let page = render(&report);
    // All rounds are used up, for nothing or not: there is nothing to continue.
    let path = run.write_report(&page, *outcome != Outcome::Stopped)?;
    if !json {
        let summary = console::summary(&Summary::of(run.records(), None));
        let best = run.best().filter(|_| run.directory().best().exists());
        let best = best.map_or_else(String::new, |best| {
            format!("best    {} (round {})\n", run.directory().best().display(), best.round)
        });
        terminal::print(&format!(
            "{summary}\nmodel   {}\n{best}report  {}\n",
            model.display(),
            path.display()
        ))?;
    }
    match outcome {
        Outcome::Stopped => terminal::tell(&format!(
            "stopped after round {} of {}: the same command continues the run",
            run.closed(),
            run.spec().rounds
        )),
        Outcome::Completed | Outcome::NoProgress { .. } => {
            if let Some(round) = run.ended() {
                let planned = run.spec().rounds;
                terminal::tell(&format!("training ended after round {round} of {planned}: [stop] was met"));
            }
        }
    }
    Failure::of_outcome(outcome).map_or(Ok(()), Err)
}

pub(super) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::environment)
}

/// Beside training and the ledger, which have threads of their own, all of a simulation is messages, and fewer threads to be
/// woken by each leave more time for training. Over QUIC they are encrypted, which is worth all cores.
#[cfg(feature = "simulate")]
fn simulating(transport: crate::simulate::Transport) -> Result<tokio::runtime::Runtime, Failure> {
    match transport {
        crate::simulate::Transport::Memory => {
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::environment)
        }
        crate::simulate::Transport::Quic => runtime(),
    }
}

#[cfg(feature = "simulate")]
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
