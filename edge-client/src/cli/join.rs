//! `edge-client join`.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use shared::calendar::moment;
use shared::cli::{Processor, Signals, StopSignal, Systemd, cores};
use tokio::sync::watch;

use super::arguments::JoinArguments;
use super::error::{CliError, Exit};
use super::event::{self, Event, Output};
use super::reading;
use super::server::{Server, take_ticket};
use super::summary::Summary;
use super::systemd::Service;
use super::terminal;
use crate::allowance::Allowance;
use crate::answer::Address;
use crate::driver::{self, Notice, Participant};
use crate::memory;
use crate::pool::TrainPool;
use crate::quic::QuicConnector;
use crate::sensors::Sensors;
use crate::session::SessionEnd;
use crate::status::{DeviceStatus, StatusFile, StatusSocket};
use crate::store::{DiskStore, Store as _};

/// The interval of progress where no terminal and no service manager shows it.
const PROGRESS: Duration = Duration::from_secs(10);

pub(super) fn run(arguments: &JoinArguments) -> Result<(), CliError> {
    memory::keep_freed(memory::Heaps::One);
    let output = Output::new(arguments.json);
    // The ticket leaves the list of processes first.
    let state = arguments.state.directory();
    if let Ok(state) = &state {
        take_ticket(arguments, state)?;
    }
    let state = state?;
    let (store, samples, data, _trainers) = if arguments.trainer.is_given() {
        // The state directory is this process's alone before the trainer's files are put there.
        let store = DiskStore::open(&state)?;
        let started = arguments.trainer.start(&state)?;
        (store, started.samples, event::Learned::By(started.command), Some(started.ending))
    } else {
        let (format, samples) = reading::source(arguments, &output)?;
        let folder = arguments.samples.folder().to_owned();
        (DiskStore::open(&state)?, samples, event::Learned::From { format, folder }, None)
    };
    let server = Server::new(store.server(), arguments, output.clone())?;
    let threads = arguments.threads.unwrap_or_else(cores).get();
    let mut systemd = Service::new();
    let backend = Processor::best();
    // What a run takes of a GPU's memory is not known here.
    let on_cpu = backend.name() == "cpu";
    let memory = match arguments.max_memory {
        bound @ Some(_) => Allowance::of_process(bound),
        None if on_cpu => Allowance::of_process(None),
        None => None,
    };
    let participant = Participant {
        client: store.client(),
        identity: Some(store.key.clone()),
        secure_only: arguments.privacy.secure_only.map(NonZeroU32::get),
        private_only: arguments.privacy.private_only(),
        samples,
        sensors: Sensors::of_device(&store.directory),
        memory,
        backend,
        pool: TrainPool::single(threads)?,
        at_rest: memory::give_back,
        progress: output.progress().or(systemd.progress()).or(Some(PROGRESS)),
        alive: systemd.alive(),
    };
    let addresses = server.addresses.lock().to_string();
    let mut live = LiveStatus::begin(&store, &addresses, arguments.listen.as_ref())?;
    let started = Event::Started {
        client: participant.client,
        data,
        device: participant.backend.name(),
        threads,
        state: store.directory.clone(),
    };
    // One thread is enough for one connection; training has its own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::system("start a thread for the network", &error))?;
    let connector = QuicConnector::new(server.addresses.clone(), server.trust.clone(), &store.key)
        .with_ticket(server.ticket())
        .with_download(store.download())
        .with_congestion(arguments.congestion)
        .with_max_task(participant.memory.map(|memory| memory.left()));
    let result = runtime.block_on(async {
        let signals = Signals::new().map_err(|error| CliError::system("receive signals", &error))?;
        output.show(&started);
        systemd.ready(&addresses);
        output.show(&Event::Connecting { server: addresses });
        let watchers = Watchers { systemd, live: &mut live, output: &output };
        take_part(participant, connector, store, server, signals, watchers).await
    });
    // The driver has finished. Only a name lookup by the system may still run, which cannot be cancelled.
    runtime.shutdown_background();
    if result.is_err() {
        terminal::status("");
    }
    let ended = match &result {
        Ok((end, ..)) => event::ending(end),
        Err(error) => error.to_string(),
    };
    live.end(&ended);
    let (end, summary, signal) = result?;
    let result = match (&end, signal) {
        (SessionEnd::Stopped, Some(signal)) => Err(CliError::stopped(signal)),
        _ => outcome(&end, summary),
    };
    // People read a refusal in the error that this command ends with.
    let refused = !matches!(end, SessionEnd::Completed { .. } | SessionEnd::Stopped);
    if refused && !matches!(output, Output::Json) {
        terminal::status("");
    } else {
        output.show(&Event::Ended(end));
    }
    result
}

/// What the command ends with, after a session with these rounds.
fn outcome(end: &SessionEnd, rounds: Summary) -> Result<(), CliError> {
    let exit = match end {
        SessionEnd::Completed { .. } => {
            let Some((rounds, last)) = rounds.nothing() else { return Ok(()) };
            let text = format!(
                "none of this device's rounds brought an update that counts, in {rounds} tried; the last one {last}"
            );
            return Err(CliError::new(last.exit(), text));
        }
        SessionEnd::Stopped => return Ok(()),
        SessionEnd::Outdated(_) => Exit::Declined,
        // Memory that others take now may be free when the service is started again.
        SessionEnd::TooLarge(_) => Exit::Local,
        SessionEnd::Refused(_) => Exit::Server,
        SessionEnd::Unfit(failure) => failure.blame.into(),
    };
    Err(CliError::new(exit, event::ending(end)))
}

/// Who is told what happens.
struct Watchers<'a> {
    systemd: Service,
    live: &'a mut LiveStatus,
    output: &'a Output,
}

/// The status in the state directory and on the socket.
struct LiveStatus {
    status: Arc<Mutex<DeviceStatus>>,
    file: StatusFile,
    /// Closed when the command ends.
    _socket: Option<StatusSocket>,
}

impl LiveStatus {
    fn begin(store: &DiskStore, server: &str, listen: Option<&Address>) -> Result<Self, CliError> {
        let status = DeviceStatus::begin(store.client(), server, now());
        let mut file = StatusFile::of(&store.directory);
        let status = Arc::new(Mutex::new(status));
        let open = |address: &Address| {
            StatusSocket::open(address, status.clone())
                .map_err(|error| CliError::new(Exit::Local, format!("cannot listen at {address}: {error}")))
        };
        let socket = listen.map(open).transpose()?;
        // Only now, so that what the process before has said is not lost to one that ends at once.
        file.write(&status.lock().unwrap_or_else(PoisonError::into_inner), false);
        Ok(Self { status, file, _socket: socket })
    }

    fn handle(&mut self, notice: &Notice) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let news = status.handle(notice, now());
        self.file.write(&status, !news);
    }

    fn end(&mut self, why: &str) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.end(why, now());
        self.file.write(&status, false);
    }
}

fn now() -> i64 {
    moment(SystemTime::now())
}

/// Takes part until the run is over or a signal asks to stop, which is returned; a second one ends it at once.
async fn take_part(
    participant: Participant,
    connector: QuicConnector,
    store: DiskStore,
    mut server: Server,
    mut signals: Signals,
    Watchers { mut systemd, live, output }: Watchers<'_>,
) -> Result<(SessionEnd, Summary, Option<StopSignal>), CliError> {
    let (stop, stopped) = watch::channel(false);
    let mut summary = Summary::default();
    let mut unpinned = None;
    let mut signal = None;
    let result = {
        let mut notice = |notice: Notice| {
            systemd.handle(&notice);
            live.handle(&notice);
            if matches!(notice, Notice::Alive) {
                return;
            }
            summary.handle(&notice);
            output.show(&Event::Notice(notice.clone()));
            if let Err(error) = server.handle(&notice) {
                unpinned = Some(error);
                // Without the stored key, another server could be trusted after the next restart.
                stop.send_replace(true);
            }
        };
        let mut work = std::pin::pin!(driver::take_part(participant, connector, store, stopped, &mut notice));
        loop {
            tokio::select! {
                result = &mut work => break result,
                received = signals.next() => {
                    signal = Some(received);
                    if stop.send_replace(true) {
                        let text = "stopped at once; nothing that was finished is lost";
                        return Err(CliError::new(received.into(), text));
                    }
                    Systemd::of_environment().stopping();
                    output.show(&Event::Stopping);
                }
            }
        }
    };
    match unpinned {
        Some(error) => Err(error.into()),
        None => Ok((result?, summary, signal)),
    }
}

#[cfg(test)]
mod tests {
    use shared::memory::RoundMemory;
    use shared::message::{Refusal, Rejection, Verdict};
    use shared::spec::SpecError;

    use super::*;
    use crate::allowance::TooLarge;
    use crate::failure::{Blame, Failure};

    fn completed(notices: &[Notice]) -> Result<(), CliError> {
        let mut summary = Summary::default();
        for notice in notices {
            summary.handle(notice);
        }
        outcome(&SessionEnd::Completed { rounds: 3 }, summary)
    }

    #[test]
    fn the_exit_code_says_how_the_session_ended() {
        let end = |end| outcome(&end, Summary::default());
        let unknown = SpecError::Unknown { key: "privacy.clip".to_owned() };
        let round = RoundMemory { models: 3, batches: 4 };
        let too_large = TooLarge { needed: 9, allowed: 8, round };
        let rejected = Verdict::Rejected(Rejection::NotInCohort { round: 1 });
        let rejected = completed(&[Notice::Receipt { round: 1, verdict: rejected }]);
        for (error, exit) in [
            (end(SessionEnd::Outdated(unknown)), Exit::Declined),
            (end(SessionEnd::TooLarge(too_large)), Exit::Local),
            (end(SessionEnd::Refused(Refusal::NoSamples)), Exit::Server),
            (rejected, Exit::Rejected),
        ] {
            assert_eq!(error.unwrap_err().exit(), exit);
        }
        for good in [end(SessionEnd::Stopped), completed(&[])] {
            assert!(good.is_ok(), "{good:?}");
        }
    }

    #[test]
    fn the_exit_code_says_who_can_fix_a_failed_task() {
        for (blame, exit, says) in [
            (Blame::Owner, Exit::Local, "data or arguments"),
            (Blame::Machine, Exit::Local, "machine"),
            (Blame::Server, Exit::Server, "server or its run"),
            (Blame::Program, Exit::Unexpected, "bug"),
        ] {
            let failure = Failure::new(blame, "the reason");
            let failed = |round| Notice::Failed { round, failure: failure.clone() };
            let unfit = outcome(&SessionEnd::Unfit(failure.clone()), Summary::default());
            for error in [unfit, completed(&[failed(1), failed(2)])].map(Result::unwrap_err) {
                assert_eq!(error.exit(), exit, "{error}");
                let text = error.to_string();
                assert!(text.contains(says) && text.ends_with(": the reason"), "{text}");
            }
        }
    }
}
