//! Requests of the operator from another shell: to pause, resume or stop a run that is served.
//!
//! A request is a file in the run's state directory, which the server looks for. There is no further listener, and who may write there
//! may ask. A pause stays over restarts, until `aggregator resume` deletes its file.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use shared::chown::chown_like_parent;
use tokio::sync::mpsc::UnboundedSender;

use crate::peer::{FromPeer, Request};
use crate::run::directory::RunDirectory;

/// Interval at which the server looks for requests.
const INTERVAL: Duration = Duration::from_millis(300);

/// Whether no new round is to be opened.
#[must_use]
pub fn is_paused(directory: &RunDirectory) -> bool {
    directory.paused().exists()
}

/// Makes a request. True if it changes anything.
pub fn ask(directory: &RunDirectory, request: Request) -> io::Result<bool> {
    match request {
        Request::Pause => create(&directory.paused()),
        Request::Resume => remove(&directory.paused()),
        Request::Stop => create(&stop(directory)),
    }
}

/// Forgets a stop that an earlier process was asked for. Before others see this one at work, and may ask it.
pub(crate) fn forget_stop(directory: &RunDirectory) -> io::Result<()> {
    remove(&stop(directory)).map(drop)
}

/// Looks for requests on a thread of its own, as long as the driver listens. A pause of before is told at once: no round is opened first.
pub(crate) fn watch(directory: &RunDirectory, driver: UnboundedSender<FromPeer>) -> io::Result<()> {
    let directory = directory.clone();
    let mut paused = is_paused(&directory);
    if paused {
        let _ = driver.send(FromPeer::Asked(Request::Pause));
    }
    let look = move || {
        while !driver.is_closed() {
            let now = is_paused(&directory);
            if now != paused {
                paused = now;
                let request = if now { Request::Pause } else { Request::Resume };
                let _ = driver.send(FromPeer::Asked(request));
            }
            if matches!(remove(&stop(&directory)), Ok(true)) {
                let _ = driver.send(FromPeer::Asked(Request::Stop));
            }
            std::thread::sleep(INTERVAL);
        }
    };
    std::thread::Builder::new().name("requests".to_owned()).spawn(look).map(drop)
}

fn stop(directory: &RunDirectory) -> PathBuf {
    directory.state().join("stop")
}

fn create(path: &Path) -> io::Result<bool> {
    match File::create_new(path) {
        Ok(file) => {
            chown_like_parent(&file, path);
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

fn remove(path: &Path) -> io::Result<bool> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn a_pause_of_before_is_told_and_a_stop_of_before_is_forgotten() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let directory = RunDirectory::new(folder.path());
        std::fs::create_dir(directory.state()).expect("a folder");
        let asked = |request| ask(&directory, request).expect("it can be asked");
        assert!(asked(Request::Pause) && !asked(Request::Pause) && asked(Request::Stop));
        forget_stop(&directory).expect("it can be deleted");
        assert!(asked(Request::Stop), "that of before was deleted");
        let (driver, mut requests) = mpsc::unbounded_channel();
        watch(&directory, driver).expect("it looks");
        let mut next = || match requests.blocking_recv() {
            Some(FromPeer::Asked(request)) => request,
            other => panic!("{other:?}"),
        };
        let both = [next(), next()];
        assert_eq!(both, [Request::Pause, Request::Stop], "what was asked before it looked");
        assert!(is_paused(&directory) && asked(Request::Resume));
        assert_eq!(next(), Request::Resume);
    }
}
