//! The lock of a run that is being served. It ends with the process, however that ends.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::SocketAddr;

use crate::run::directory::RunDirectory;
use crate::storage::held::is_held_together;
use shared::chown::chown_like_parent;

/// Held by the process that serves a run.
#[derive(Debug)]
pub struct RunLock(File);

impl RunLock {
    /// Takes the lock. A process that only looks holds it for a moment, which is waited for.
    pub fn of(directory: &RunDirectory) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(directory.presence())?;
        chown_like_parent(&file, &directory.presence());
        file.lock_shared()?;
        Ok(Self(file))
    }

    /// Records the address that the run is served at, for tickets.
    pub fn note_address(&self, address: SocketAddr) -> io::Result<()> {
        self.0.set_len(0)?;
        writeln!(&self.0, "{address}")
    }

    /// The address that the run is served at, or was by the newest process.
    #[must_use]
    pub fn address(directory: &RunDirectory) -> Option<SocketAddr> {
        std::fs::read_to_string(directory.presence()).ok()?.trim().parse().ok()
    }

    /// Whether some process serves the run.
    #[must_use]
    pub fn in_place(directory: &RunDirectory) -> bool {
        is_held_together(&directory.presence())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_that_of_the_newest_process() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let directory = RunDirectory::new(folder.path());
        std::fs::create_dir(directory.state()).expect("a folder");
        assert_eq!(RunLock::address(&directory), None);
        for port in [4433, 80] {
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            let lock = RunLock::of(&directory).expect("no other process holds it");
            lock.note_address(address).expect("it can be written");
            assert!(RunLock::in_place(&directory));
            assert_eq!(RunLock::address(&directory), Some(address));
        }
        assert!(!RunLock::in_place(&directory), "the process has ended");
    }
}
