//! `aggregator serve --store`: a run that several servers serve together.

mod agreed;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use shared::cli::Processor;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

use super::super::dashboard::Beside;
use super::super::exit::Failure;
use super::super::run::runtime;
use super::super::terminal::{self, StopRequest};
use super::rounds::{Hosting, Over, Rounds, rounds};
#[cfg(feature = "simulate")]
use super::simulated;
use super::{ServeArgs, told};
use crate::cluster::address::StoreAddress;
use crate::cluster::connection::Connection;
use crate::cluster::error::StoreError;
use crate::cluster::experiments::Claim;
use crate::cluster::register::{RegisterError, Synchroniser};
use crate::config::{Config, Raw};
use crate::coordinator::Outcome;
use crate::database::{Database, moment};
use crate::enrolment::{Admission, ListenAddress, Register};
use crate::events::{Notice, Sink};
use crate::leaves::fetch::{born, fetch_run, put_secret};
use crate::leaves::process::{Leading, Process, Setup, Turn};
use crate::leaves::shown::{Shown, folder_of};
use crate::leaves::standing::ServedRun;
use crate::run::directory::RunDirectory;
use crate::run::{LeafRun, LeavesError, Run, RunError};
use crate::serve::{Ready, ServeError, serve_peers};
use crate::start::{Started, has_room};
use crate::storage::Disk;
use crate::storage::retry_full::RetryingDisk;
use crate::transport::identity::ServerIdentity;
use crate::transport::{Listener, LoadMeter};
use agreed::{part, refuse_beside_others, refused, served};

/// How often the other servers are told what the run waits for.
const SHOW: Duration = Duration::from_secs(1);

impl From<RegisterError> for Failure {
    fn from(error: RegisterError) -> Self {
        Self::environment(error)
    }
}

/// Where the other servers reach this one.
fn reached_at(arguments: &ServeArgs) -> Result<String, Failure> {
    let listen = arguments.listen;
    match arguments.peer_address.as_ref().or(arguments.addresses.first()) {
        Some(address) => Ok(address.clone()),
        None if listen.ip().is_unspecified() || listen.port() == 0 => Err(Failure::Usage(
            "the other servers of the run must know where this one is reached: give --address HOST:PORT, which devices learn as well, or \
             --peer-address for an address that is for them alone"
                .to_owned(),
        )),
        None => Ok(listen.to_string()),
    }
}

/// All that the process has for the run, whichever server leads it.
struct Server<'a> {
    arguments: &'a ServeArgs,
    store: StoreAddress,
    run: ServedRun,
    config: Config,
    database: &'a Database,
    identity: &'a ServerIdentity,
    directory: &'a Path,
    runtime: &'a Runtime,
    stop: StopRequest,
    /// How many clients the run has, where they are simulated.
    #[cfg(feature = "simulate")]
    simulated: Option<usize>,
}

/// Makes the store ready, as soon as it answers. `false` if this process is to stop before.
fn prepare(store: &StoreAddress, stop: &StopRequest) -> Result<bool, Failure> {
    /// The time between two attempts.
    const RETRY: Duration = Duration::from_secs(1);
    let mut told = false;
    while !stop.is_made() {
        match Connection::new(store.clone()).prepare() {
            Err(error) if error.is_outage() => {
                if !std::mem::replace(&mut told, true) {
                    terminal::tell(&format!("{error}; it is tried again until it answers"));
                }
                std::thread::sleep(RETRY);
            }
            prepared => {
                prepared?;
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Serves a run together with other servers.
pub(super) fn serve(
    arguments: &ServeArgs,
    store: &str,
    config: Config,
    (database, identity, directory): (&Database, &ServerIdentity, &Path),
) -> Result<(), Failure> {
    let mut config = config;
    if let Some(what) = refused(&config) {
        return Err(Failure::Usage(format!(
            "several servers do not serve {what}: leave it out, or serve the run without --store"
        )));
    }
    let own = reached_at(arguments)?;
    let store = StoreAddress::from_environment(store)?;
    // What a leaf has is lost with it: devices keep their updates until the round has closed.
    config.policy.receipts_at_close = true;
    #[cfg(feature = "simulate")]
    simulated::configure(arguments, &mut config)?;
    let runtime = runtime()?;
    let inside = runtime.enter();
    let stop = terminal::stop_on_signal();
    if !prepare(&store, &stop)? {
        return stop.failure().map_or(Ok(()), Err);
    }
    let register = Synchroniser::start(database, store.clone(), identity.key())?;
    let register_of = Register::Lab { database: database.clone(), policy: arguments.enrolment };
    let admission = Admission::new(register_of).sharing(register.tickets());
    let (timeout, congestion) = (config.policy.connection_timeout, config.effective.connection.congestion);
    let mut listener = Listener::bind_as(&own, arguments.listen, identity, admission, timeout, congestion)
        .map_err(crate::start::StartError::from)?;
    listener.directory = Some(directory.to_owned());
    listener.announce(told(arguments, listener.address()));
    ListenAddress::note(database, listener.address())?;
    let (links, linked) = mpsc::unbounded_channel();
    listener.links = Some(links);
    let (address, load) = (listener.address(), listener.load());
    let part = part(arguments);
    let given = arguments.run.config.beginning_with(arguments.run.from.as_deref())?;
    let given = Raw::layered(given.config.as_deref(), &given.overrides)?;
    let run = served((&config, &given), identity, part);
    refuse_beside_others(&store, &run, &stop)?;
    let place = RunDirectory::new(folder_of(&arguments.run.runs, &run.name));
    let leaf = LeafRun::new(Arc::new(Disk), place, config.clone())?;
    let (spool, max_payload, clients) = (leaf.directory().spool(), leaf.max_payload(), config.data.clients);
    let (to_leaf, peers) = mpsc::unbounded_channel();
    #[cfg(feature = "simulate")]
    let simulated = simulated::begin(arguments, &config, &leaf, &to_leaf)?;
    let accepting = tokio::spawn(listener.accept(spool, max_payload, clients, to_leaf));
    let ready = Ready {
        address,
        key: identity.key(),
        pid: std::process::id(),
        run: arguments.run.runs.join(&run.name),
    };
    ready.write(arguments.ready_file.as_deref()).map_err(Failure::environment)?;
    terminal::tell(&format!(
        "listening on {address}, as one of the servers of {}; they share {store}",
        run.name
    ));
    let key = identity.keys(SystemTime::now()).into_iter().next().expect("an identity has a key");
    let setup =
        Setup { store: store.clone(), run: run.clone(), address: own, key, leaf, peers, links: linked, part };
    let _page =
        arguments.page.and_then(|at| Beside::start(at, &arguments.run.runs, arguments.identity.as_deref()));
    let mut process = Process::start(setup);
    drop(inside);
    let server = Server {
        arguments,
        store,
        run,
        config,
        database,
        identity,
        directory,
        runtime: &runtime,
        stop,
        #[cfg(feature = "simulate")]
        simulated: simulated.as_ref().map(|(_, clients)| *clients),
    };
    let ended = server.take_turns(&mut process, &load);
    // A process that was taken out says nothing of the run any more.
    if ended.is_ok() || server.stop.is_made() {
        Shown::forget(&folder_of(&arguments.run.runs, &server.run.name));
    }
    #[cfg(feature = "simulate")]
    if let Some((devices, _)) = simulated {
        runtime.block_on(devices.end());
    }
    drop(process);
    runtime.block_on(async {
        let _ = tokio::time::timeout(Duration::from_secs(2), accepting).await;
    });
    ended
}

impl Server<'_> {
    /// Leads the run whenever it is this process's turn, until the run is over.
    fn take_turns(&self, process: &mut Process, load: &LoadMeter) -> Result<(), Failure> {
        loop {
            match self.runtime.block_on(process.turn(self.stop.stopped.clone())) {
                Turn::Lead(claim) => {
                    if let Some(ended) = self.lead(process, &claim, load)? {
                        return ended;
                    }
                }
                Turn::Over => return self.take_home(process),
                Turn::Stopped => return self.stop.failure().map_or(Ok(()), Err),
                Turn::Failed(reason) => return Err(Failure::environment(reason)),
            }
        }
    }

    /// Leads the run. `None` if it goes on, here or elsewhere.
    fn lead(
        &self,
        process: &mut Process,
        claim: &Claim,
        load: &LoadMeter,
    ) -> Result<Option<Result<(), Failure>>, Failure> {
        let backend = Processor::backend(self.arguments.run.device)?;
        let arithmetic = backend.arithmetic();
        // Ends the rounds when this process is to stop, and when another one leads.
        let (halt, halted) = watch::channel(false);
        let inside = self.runtime.enter();
        let leading = process.lead(claim, arithmetic, self.stop.stopped.clone());
        let Leading { peers, to_driver, leaves, hub, led } = leading;
        let (mut stopped, watched) = (self.stop.stopped.clone(), led.clone());
        let watching = tokio::spawn(async move {
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => {}
                () = watched.over() => {}
            }
            let _ = halt.send(true);
        });
        terminal::tell(&format!("this server leads the run from now on (epoch {})", claim.epoch));
        let files = RetryingDisk::default();
        let shortage = files.shortage.clone();
        let started = match self.begin(files) {
            Ok(Some(started)) => started,
            not_begun => {
                process.rest(claim);
                return not_begun.map(|_| Some(self.stop.failure().map_or(Ok(()), Err)));
            }
        };
        hub.is_of(started.run.spec().run);
        let own = reached_at(self.arguments)?;
        drop(inside);
        let meter = load.clone();
        let hosting = Hosting {
            arguments: self.arguments,
            runtime: self.runtime,
            database: self.database,
            directory: self.directory,
            backend,
            address: self.arguments.listen,
            load: Box::new(move || meter.now()),
            shortage: &shortage,
            stop: &self.stop,
        };
        let ended = rounds(hosting, started, |mut run: Run, mut resume, sink| {
            #[cfg(feature = "simulate")]
            if let Some(clients) = self.simulated {
                run.simulates(clients);
            }
            run.serve_with(Box::new(leaves), &mut resume)?;
            let mut shown: Option<Instant> = None;
            let mut show = |notice: &Notice<'_>| {
                if let Notice::Status(status) = notice
                    && shown.is_none_or(|last| last.elapsed() >= SHOW)
                {
                    hub.show(&own, status, moment(SystemTime::now()));
                    shown = Some(Instant::now());
                }
            };
            let mut sink: Vec<&mut dyn Sink> = vec![sink, &mut show];
            let sink = &mut sink;
            let accepting = self.runtime.spawn(async {});
            let serving = serve_peers(run, resume, (peers, to_driver), accepting, halted, sink);
            let served = self.runtime.block_on(Box::pin(serving))?;
            if served.outcome == Outcome::Stopped {
                // Another server goes on with the run.
                led.check().map_err(|error| ServeError::Run(RunError::Leaves(error)))?;
            }
            Ok(served)
        });
        watching.abort();
        let over = match ended {
            Ok(Rounds::Over(over)) => over,
            Ok(Rounds::GoOn(left)) => return Ok(self.rest(process, claim, &left)),
            Err(failure) => {
                process.rest(claim);
                return Err(failure);
            }
        };
        let Over { run, shutdown, concluded, lock: _lock } = *over;
        if !run.directory().finished().exists() {
            // It was stopped on request, or its model or its report could not be written: another server goes on with it.
            process.rest(claim);
            return Ok(Some(concluded));
        }
        match process.keeper(led, arithmetic).keep_whole(run.directory(), run.closed()) {
            // The next server to lead finds that all rounds are over.
            Err(left) if left.goes_on() => return Ok(self.rest(process, claim, &left)),
            kept => kept.map_err(Failure::environment)?,
        }
        let timeout = Duration::from_secs(self.arguments.drain_timeout.into());
        super::drain(self.runtime, shutdown, true, timeout, self.stop.stopped.clone());
        self.runtime.block_on(process.end());
        Ok(Some(concluded))
    }

    /// Leads no more, for this reason. `None` if this server goes on as a leaf.
    fn rest(&self, process: &Process, claim: &Claim, left: &LeavesError) -> Option<Result<(), Failure>> {
        process.rest(claim);
        if self.stop.is_made() {
            return Some(self.stop.failure().map_or(Ok(()), Err));
        }
        terminal::tell(&format!("{left}: the run goes on"));
        None
    }

    /// Begins the run, or goes on with what the store has of it. `None` if this process is to stop before.
    fn begin(&self, files: RetryingDisk) -> Result<Option<Started>, Failure> {
        let given = &self.arguments.run;
        if self.fetch()?.is_none() {
            return Ok(None);
        }
        let place = RunDirectory::new(given.runs.join(&self.run.name));
        // The run would begin in a folder beside it, and all servers look for it in this one.
        let occupied = || Failure::from(StoreError::Occupied { path: place.root().to_owned() });
        if !has_room(&Disk, &place, &self.config) {
            return Err(occupied());
        }
        if self.config.promise.is_some() {
            let Some(born) = born(&self.store, &self.run, &|| !self.stop.is_made())? else { return Ok(None) };
            let purpose = format!("the private run {} of {born}", self.run.name);
            put_secret(&place, &self.identity.derive(&purpose))?;
        }
        let (started, ()) = given.start(self.config.clone(), Arc::new(files), |_| Ok(()))?;
        // Another process was faster.
        if started.passed.is_empty() { Ok(Some(started)) } else { Err(occupied()) }
    }

    /// Brings here what the store has of the run. Whether it has anything; `None` if this process is to stop before.
    fn fetch(&self) -> Result<Option<bool>, StoreError> {
        let mut store = Connection::new(self.store.clone());
        fetch_run(&mut store, &self.run, (&Disk, &self.arguments.run.runs), &|| !self.stop.is_made())
    }

    /// Brings the model and the report of a run here that is over.
    fn take_home(&self, process: &mut Process) -> Result<(), Failure> {
        self.runtime.block_on(process.end());
        if self.fetch()?.is_none() {
            return self.stop.failure().map_or(Ok(()), Err);
        }
        let place = self.arguments.run.runs.join(&self.run.name);
        terminal::tell(&format!("the run is over; its model and its report are in {}", place.display()));
        Ok(())
    }
}
