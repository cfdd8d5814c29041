//! `aggregator serve`: the rounds of a run with real devices.

mod rounds;
#[cfg(feature = "cluster")]
mod several;
#[cfg(all(feature = "cluster", feature = "simulate"))]
mod simulated;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use shared::cli::{Processor, Systemd, address as host_and_port};
use shared::message::MAX_SERVERS;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::dashboard::{ADDRESS, Beside};
use super::exit::Failure;
use super::lost_identity::refuse_if_lost;
use super::parse::{address, count};
use super::run::runtime;
use super::{RunArgs, lab_options, state_directory, terminal};
use crate::attack::Attackers;
use crate::commands::{command, set_options};
#[cfg(feature = "simulate")]
use crate::compare::shard::Shard;
use crate::config::Config;
use crate::database::Database;
use crate::enrolment::{Admission, Device, IssuedTicket, ListenAddress, Policy, Register};
use crate::events::sinks::json::JsonLines;
use crate::events::sinks::systemd::Service;
use crate::history::StoredSkipped;
use crate::issue::own_addresses;
use crate::report::units::counted;
use crate::run::Run;
use crate::serve::{Shutdown, serve as serve_run};
use crate::start::completed;
use crate::storage::Disk;
use crate::storage::descriptors::allow_all_descriptors;
use crate::storage::retry_full::RetryingDisk;
use crate::transport::Listener;
use crate::transport::identity::ServerIdentity;
use rounds::{Hosting, Over, Rounds, rounds};

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Address to listen on; port 0 takes any free port
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:4433", value_parser = address)]
    listen: SocketAddr,
    /// Another address at which devices reach this server, or another server with its key; may be given more than once
    ///
    /// Devices learn it after their welcome, keep it, and try it when the address that they came by is silent. With it they learn the
    /// addresses of this server: those of --address, or those that a ticket has.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', value_parser = host_and_port)]
    also_at: Vec<String>,
    /// Where devices reach this server, if not at this machine's own addresses; may be given more than once
    ///
    /// Devices learn it, as with --also-at. Give it to `aggregator ticket` as well.
    #[arg(long = "address", value_name = "HOST:PORT", value_delimiter = ',', value_parser = host_and_port)]
    addresses: Vec<String>,
    /// Where the other servers of the run reach this one, if not at the first --address
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port, requires = "store")]
    peer_address: Option<String>,
    /// Serve the run together with other servers, over this `PostgreSQL` database: the same command on each, with the same key in its
    /// --identity, and --address. Needs a program that was built with the feature cluster
    #[arg(long, value_name = "URL", conflicts_with = "fresh")]
    store: Option<String>,
    /// Simulate this part of the run's clients in this process, I of N, so that one simulation runs on several machines
    #[cfg(feature = "simulate")]
    #[arg(long, value_name = "I/N", requires = "store")]
    simulate: Option<Shard>,
    /// Write address, key and process id here, as JSON, once devices can join
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Append every event to this file, as one JSON object per line
    #[arg(long, value_name = "FILE")]
    event_log: Option<PathBuf>,
    /// Directory of the server's key and of what it knows of devices, made at the first start [default: RUNS/identity where
    /// that exists or --runs is given, else ~/.local/state/aggregator]
    #[arg(long, alias = "state", value_name = "DIR")]
    identity: Option<PathBuf>,
    /// Where the server's key or what it knows of devices is lost, begin with new ones: every device then needs a new ticket
    #[arg(long)]
    new_identity: bool,
    /// Which devices may take part that the server does not know yet
    #[arg(long, alias = "admit", value_enum, default_value_t)]
    enrolment: Policy,
    /// After the run, seconds to wait for known devices that are away, to tell them that it is over
    #[arg(long, alias = "linger", value_name = "SECONDS", default_value_t = 30, value_parser = count, allow_negative_numbers = true)]
    drain_timeout: u32,
    /// Show the run in a browser as well: `aggregator page` beside it, at this address [default: 127.0.0.1:8420]
    #[arg(long, value_name = "IP:PORT", num_args = 0..=1, default_missing_value = ADDRESS, value_parser = address)]
    page: Option<SocketAddr>,
    /// End at once if a run of this very configuration is complete, instead of beginning another: for services, which are
    /// started whenever the machine is
    #[arg(long, conflicts_with = "fresh")]
    once: bool,
}

pub(super) fn serve(arguments: &ServeArgs) -> Result<(), Failure> {
    let ServeArgs { run: given, enrolment, .. } = arguments;
    if arguments.once && is_complete(given)? {
        return Ok(());
    }
    check_number(arguments)?;
    allow_all_descriptors();
    // An invalid configuration leaves no files, not even a key.
    let config = given.validated()?;
    if config.promise.is_some() && config.effective.simulation.reproducible_noise {
        return Err(Failure::Usage(
            "the noise of the run would come from run.seed, which devices are told: simulation.reproducible-noise is for `aggregator \
             simulate` alone; take it out, or give --set simulation.reproducible-noise=false"
                .to_owned(),
        ));
    }
    if let Some(Attackers { attack, .. }) = config.attackers {
        return Err(Failure::Usage(format!(
            "the configuration asks for an attack ({attack}), and real devices are not asked to attack: simulation.attack is \
             for `aggregator simulate` alone; take it out, or give --set simulation.attack.none={{}}"
        )));
    }
    let backend = Processor::backend(given.device)?;
    let directory = state_directory::of(&given.runs, arguments.identity.as_deref());
    set_options(lab_options(&given.runs, arguments.identity.as_deref()));
    if !arguments.new_identity {
        refuse_if_lost(&directory, &given.runs)?;
    }
    let database = Database::open(&directory)?;
    Device::verify(&database)?;
    let identity = ServerIdentity::load_or_create(&Disk, &directory)?;
    if let Some(store) = &arguments.store {
        return serve_shared(arguments, store, config, (&database, &identity, &directory));
    }
    let runtime = runtime()?;
    let inside = runtime.enter();
    let bind = |config: &Config| {
        let admission = Admission::new(Register::Lab { database: database.clone(), policy: *enrolment });
        let (timeout, congestion) =
            (config.policy.connection_timeout, config.effective.connection.congestion);
        let mut listener = Listener::bind(arguments.listen, &identity, admission, timeout, congestion)?;
        listener.directory = Some(directory.clone());
        listener.announce(told(arguments, listener.address()));
        Ok(listener)
    };
    let files = RetryingDisk::default();
    let shortage = files.shortage.clone();
    let (started, listener) = given.start(config, Arc::new(files), bind)?;
    ListenAddress::note(&database, listener.address())?;
    let _page = arguments.page.and_then(|at| Beside::start(at, &given.runs, arguments.identity.as_deref()));
    if *enrolment == Policy::Ticket && Device::all(&database)?.is_empty() {
        let good = IssuedTicket::good(&database, SystemTime::now())?;
        terminal::tell(&no_devices(&good));
    }
    let stop = terminal::stop_on_signal();
    let address = listener.address();
    let load = listener.load();
    drop(inside);
    let hosting = Hosting {
        arguments,
        runtime: &runtime,
        database: &database,
        directory: &directory,
        backend,
        address,
        load: Box::new(move || load.now()),
        shortage: &shortage,
        stop: &stop,
    };
    let ready_file = arguments.ready_file.as_deref();
    let over = rounds(hosting, started, |run, resume, sink| {
        let serving = serve_run(run, resume, listener, &identity, ready_file, stop.stopped.clone(), sink);
        runtime.block_on(Box::pin(serving))
    })?;
    let Over { shutdown, concluded, lock: _lock, .. } = match over {
        Rounds::Over(over) => *over,
        Rounds::GoOn(left) => return Err(Failure::internal(left)),
    };
    // Model and report are written by now.
    let over = matches!(concluded, Ok(()) | Err(Failure::NoProgress(_)));
    let timeout = Duration::from_secs(if over { arguments.drain_timeout.into() } else { 0 });
    drain(&runtime, shutdown, over, timeout, stop.stopped.clone());
    concluded
}

/// Whether devices keep this number of addresses.
fn check_number(ServeArgs { addresses, also_at, .. }: &ServeArgs) -> Result<(), Failure> {
    if addresses.len() + also_at.len() <= MAX_SERVERS {
        return Ok(());
    }
    let text = format!(
        "devices keep at most {MAX_SERVERS} addresses of a server: give fewer --also-at and --address"
    );
    Err(Failure::Usage(text))
}

/// The addresses that devices are told; none if there are no others than those by which they come.
fn told(arguments: &ServeArgs, listening: SocketAddr) -> Vec<String> {
    let ServeArgs { addresses, also_at, .. } = arguments;
    if addresses.is_empty() && also_at.is_empty() {
        return Vec::new();
    }
    let own = if addresses.is_empty() {
        // Devices that came here know this server's address, if this machine does not.
        own_addresses(Some(listening)).unwrap_or_default()
    } else {
        addresses.clone()
    };
    let room = MAX_SERVERS.saturating_sub(also_at.len());
    let mut told: Vec<String> = Vec::new();
    for address in own.iter().take(room).chain(also_at) {
        if !told.contains(address) {
            told.push(address.clone());
        }
    }
    told
}

/// Serves the run together with other servers.
#[cfg(feature = "cluster")]
fn serve_shared(
    arguments: &ServeArgs,
    store: &str,
    config: Config,
    of: (&Database, &ServerIdentity, &Path),
) -> Result<(), Failure> {
    several::serve(arguments, store, config, of)
}

#[cfg(not(feature = "cluster"))]
fn serve_shared(
    _: &ServeArgs,
    _: &str,
    _: Config,
    _: (&Database, &ServerIdentity, &Path),
) -> Result<(), Failure> {
    Err(Failure::without_store())
}

/// Gives known devices this time to hear that the run is `over`, unless it is stopped meanwhile.
fn drain(
    runtime: &Runtime,
    shutdown: Shutdown,
    over: bool,
    timeout: Duration,
    stopped: watch::Receiver<bool>,
) {
    if shutdown.pending() > 0 && !timeout.is_zero() {
        terminal::tell(&format!(
            "the run is over; {} {} not confirmed having heard of it, within {} s (--drain-timeout). Ctrl-C ends this",
            counted(shutdown.pending(), "known device"),
            if shutdown.pending() == 1 { "has" } else { "have" },
            timeout.as_secs()
        ));
    }
    let pending = runtime.block_on(async {
        tokio::select! {
            pending = shutdown.finish(timeout, stopped) => pending,
            () = Service::keep_alive() => 0,
        }
    });
    if pending > 0 && over {
        terminal::tell(&format!(
            "{} {} not told that the run is over. Such a device looks for this server until it is stopped there, or until \
             another run is served (a longer --drain-timeout gives more time)",
            counted(pending, "known device"),
            if pending == 1 { "was" } else { "were" }
        ));
    }
}

/// Whether the run that is to be served is complete, which is said then.
fn is_complete(given: &RunArgs) -> Result<bool, Failure> {
    let config = given.validated()?;
    let Some(place) = completed(&Disk, &config, &given.runs)? else { return Ok(false) };
    let text = format!(
        "the run in {} is complete: there is nothing to do (--set run.rounds=N gives it more rounds)",
        place.display()
    );
    let systemd = Systemd::of_environment();
    systemd.ready();
    systemd.status(&text);
    terminal::tell(&text);
    Ok(true)
}

fn open_log(path: &Path) -> Result<JsonLines, Failure> {
    JsonLines::append(path).map_err(|error| Failure::file("open", path, error))
}

/// What to say where no device is known, given the tickets that let one in.
fn no_devices(good: &[IssuedTicket]) -> String {
    if good.is_empty() {
        format!("no device may take part yet: `{}` prints what a device joins with", command("ticket"))
    } else {
        format!("no device has joined yet; there is a ticket for them (`{}`)", command("ticket --list"))
    }
}

/// What devices skip in the run, in words. That it cannot be read is told, and no reason to end without a report.
fn skipped_by_devices(database: &Database, run: &Run) -> Vec<String> {
    match database.left_out(&run.spec().run.to_string()) {
        Ok(devices) => StoredSkipped::in_words(&devices),
        Err(error) => {
            terminal::tell(&format!(
                "the report does not say what devices leave out (`aggregator status` does, once the database can be read): \
                 {error}"
            ));
            Vec::new()
        }
    }
}
