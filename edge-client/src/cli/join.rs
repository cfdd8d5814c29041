//! `edge-client join`.

use std::path::PathBuf;
use std::sync::Arc;

use shared::cli::{Processor, Signals, Systemd, cores};
use shared::data::{DataError, Dataset, Format, ReadOptions, Split, View, registry};
use tokio::sync::watch;
use tracing::warn;

use super::arguments::JoinArguments;
use super::error::{CliError, Exit};
use super::event::{self, Event, Output};
use super::server::{Server, take_ticket};
use super::summary::Summary;
use super::systemd::Service;
use super::terminal;
use crate::allowance::Allowance;
use crate::driver::{self, Notice, Participant};
use crate::failure::{Blame, Failure};
use crate::memory;
use crate::pool::TrainPool;
use crate::quic::QuicConnector;
use crate::sensors::Sensors;
use crate::session::SessionEnd;
use crate::store::{DiskStore, Store as _};
use crate::task::TestSamples;

pub(super) fn run(arguments: &JoinArguments) -> Result<(), CliError> {
    memory::keep_freed(memory::Heaps::One);
    let output = Output::new(arguments.json);
    // The ticket leaves the list of processes first.
    let state = arguments.state.directory();
    if let Ok(state) = &state {
        take_ticket(arguments, state)?;
    }
    let (format, options, data) = samples(arguments).map_err(|problem| or_unlabelled(problem, arguments))?;
    let skipped = data.skipped().clone();
    // Reading the data has freed large buffers, which are not needed before the first round.
    memory::give_back();
    let data = View::whole(Arc::new(data));
    let store = DiskStore::open(&state?)?;
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
        data,
        skipped: skipped.count as u64,
        tests: if arguments.reading.unlabelled {
            TestSamples::none()
        } else {
            tests(format, arguments.samples.data.clone(), options)
        },
        sensors: Sensors::of_device(&store.directory),
        memory,
        backend,
        pool: TrainPool::single(threads)?,
        at_rest: memory::give_back,
        progress: output.progress().or(systemd.progress()),
        alive: systemd.alive(),
    };
    let started = Event::Started {
        client: participant.client,
        format,
        skipped,
        samples: participant.data.len(),
        shape: participant.data.shape().to_vec(),
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
        .with_max_task(participant.memory.map(|memory| memory.left()));
    let result = runtime.block_on(async {
        let signals = Signals::new().map_err(|error| CliError::system("receive signals", &error))?;
        output.show(&started);
        let addresses = server.addresses.join(" or ");
        systemd.ready(&addresses);
        output.show(&Event::Connecting { server: addresses });
        take_part(participant, connector, store, server, signals, &output, systemd).await
    });
    // The driver has finished. Only a name lookup by the system may still run, which cannot be cancelled.
    runtime.shutdown_background();
    if result.is_err() {
        terminal::status("");
    }
    let (end, summary) = result?;
    let result = outcome(&end, summary);
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
        // The run refuses samples that do not fit, although it is the device that can compare them.
        SessionEnd::Refused(_) | SessionEnd::Unfit(Failure { blame: Blame::Owner, .. }) => Exit::Server,
        SessionEnd::Unfit(failure) => failure.blame.into(),
    };
    Err(CliError::new(exit, event::ending(end)))
}

/// The device's training samples, their format, and how they are read.
fn samples(arguments: &JoinArguments) -> Result<(Format, ReadOptions, Dataset), DataError> {
    let directory = &arguments.samples.data;
    let options = arguments.reading.options(&arguments.samples.label, arguments.samples.on_error);
    let (format, data) = registry::read(directory, Split::Train, &options)?;
    options.check_shape(directory, data.shape())?;
    Ok((format, options, data))
}

/// The error of a device whose samples cannot be read. Names `--unlabelled` if only the labels are missing.
fn or_unlabelled(problem: DataError, arguments: &JoinArguments) -> CliError {
    // Images outside class folders are only found by a reader without labels.
    let unsorted = || {
        let options = ReadOptions::unlabelled();
        matches!(problem, DataError::Unclear { .. })
            && registry::detect(&arguments.samples.data, Split::Train, &options).is_ok()
    };
    if !arguments.reading.unlabelled && (problem.lacks_labels() || unsorted()) {
        let way = "join with --unlabelled if the run's labels are at the server";
        return CliError::new(Exit::Local, format!("{problem}; {way}"));
    }
    problem.into()
}

/// The test split beside the device's training samples, if it has one of the same format.
fn tests(format: Format, folder: PathBuf, options: ReadOptions) -> TestSamples {
    TestSamples::new(move || {
        if !format.is_in(&folder, Split::Test)? {
            return Ok(None);
        }
        let tests = format.load(&folder, Split::Test, &options)?;
        if let Some(words) = tests.skipped().in_words("test sample") {
            warn!("left out, since they cannot be used: {words}");
        }
        Ok(Some(View::whole(Arc::new(tests))))
    })
}

/// Takes part until the run is over or the user asks to stop; a second request ends it at once.
async fn take_part(
    participant: Participant,
    connector: QuicConnector,
    store: DiskStore,
    mut server: Server,
    mut signals: Signals,
    output: &Output,
    mut systemd: Service,
) -> Result<(SessionEnd, Summary), CliError> {
    let (stop, stopped) = watch::channel(false);
    let mut summary = Summary::default();
    let mut unpinned = None;
    let result = {
        let mut notice = |notice: Notice| {
            systemd.handle(&notice);
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
                () = signals.next() => {
                    if stop.send_replace(true) {
                        let text = "stopped at once; nothing that was finished is lost";
                        return Err(CliError::new(Exit::Unexpected, text));
                    }
                    Systemd::of_environment().stopping();
                    output.show(&Event::Stopping);
                }
            }
        }
    };
    match unpinned {
        Some(error) => Err(error.into()),
        None => Ok((result?, summary)),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use models::{Array, ParamSet, Precision, codec};
    use shared::data::idx::write_split;
    use shared::memory::RoundMemory;
    use shared::message::{Refusal, Rejection, Verdict};
    use shared::spec::SpecError;

    use super::super::arguments::{Arguments, Command};
    use super::*;
    use crate::allowance::TooLarge;
    use crate::failure::{Blame, Failure};

    fn join(folder: &std::path::Path, more: &[&str]) -> JoinArguments {
        let data = folder.to_str().unwrap();
        let line = [&["edge-client", "join", "lab:1", "--data", data], more].concat();
        match Arguments::try_parse_from(line).unwrap().command {
            Command::Join(join) => join,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn samples_without_labels_are_told_of_the_way_to_join_with_them() {
        let folder = tempfile::tempdir().unwrap();
        let data = |name: &str, file: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join(file), bytes).unwrap();
            path
        };
        let idx = data("idx", "README.md", b"");
        let set = Dataset::new(vec![1, 1, 2], vec![0; 4], vec![0_u8, 1], 2).unwrap();
        write_split(&idx, Split::Train, &set).unwrap();
        std::fs::remove_file(idx.join("train-labels-idx1-ubyte")).unwrap();
        let mut x = ParamSet::new();
        x.insert("x", Array::zeros([2, 3]));
        let tensors = codec::to_bytes(&x, Precision::F32, &std::collections::BTreeMap::new()).unwrap();
        for (path, lacks) in [
            (idx, "train-labels-idx1-ubyte"),
            (data("table", "train.csv", b"a,b\n1,2\n"), "columns are named `label`"),
            (data("tensors", "train.safetensors", &tensors), "no tensor `y`"),
            (data("images", "1.png", b"damaged"), "holds no samples of the train split"),
        ] {
            let arguments = join(&path, &[]);
            let error = or_unlabelled(samples(&arguments).unwrap_err(), &arguments).to_string();
            for part in [lacks, "join with --unlabelled if the run's labels are at the server"] {
                assert!(error.contains(part), "no {part:?} in {error}");
            }
            let without = samples(&join(&path, &["--unlabelled"]));
            assert!(without.is_ok() || path.ends_with("images"), "{}", path.display());
        }
        // Where more is missing than labels, it is no way.
        let arguments = join(&data("other", "test.csv", b"a,label\n1,2\n"), &[]);
        let problem = samples(&arguments).unwrap_err();
        assert!(matches!(problem, DataError::OtherSplit { .. }), "{problem}");
        let expected = format!("the data cannot be used: {problem}");
        assert_eq!(or_unlabelled(problem, &arguments).to_string(), expected);
    }

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
            // Samples that do not fit are refused at the door, as those of another shape are.
            let at_the_door = if blame == Blame::Owner { Exit::Server } else { exit };
            let failed = completed(&[failed(1), failed(2)]);
            for (error, exit) in [(unfit, at_the_door), (failed, exit)] {
                let error = error.expect_err("no success");
                assert_eq!(error.exit(), exit, "{error}");
                let text = error.to_string();
                assert!(text.contains(says) && text.ends_with(": the reason"), "{text}");
            }
        }
    }
}
