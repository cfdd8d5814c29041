//! A `PostgreSQL` server of the test's own: in a temporary folder, on a free port, ended with the test.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use postgres::{Client, NoTls};

use crate::proc::{ended_children_time, parent, processor_time};
use crate::process::until;
use crate::testbed::free_port;

/// Whom the server runs as where the tests run as root, which `PostgreSQL` refuses to.
const UNPRIVILEGED: u32 = 65_534;

/// A server. It is killed when this is dropped.
pub struct Postgres {
    folder: tempfile::TempDir,
    programs: PathBuf,
    port: u16,
    server: Option<Child>,
    settings: Vec<String>,
}

impl Postgres {
    /// Starts one. Without `PostgreSQL` on this machine it says so and gives `None`: the test is skipped.
    ///
    /// # Panics
    /// If it is there and does not start.
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::with(&[], |_| {})
    }

    /// The same with these settings, after `prepare` has put files into the folder of its data.
    ///
    /// # Panics
    /// If it is there and does not start.
    #[must_use]
    pub fn with(settings: &[&str], prepare: impl FnOnce(&Path)) -> Option<Self> {
        let Some(programs) = programs() else {
            eprintln!("SKIPPED: there is no PostgreSQL on this machine (Debian's package is `postgresql`)");
            return None;
        };
        let folder = tempfile::tempdir().expect("a temporary folder");
        if is_root() {
            chown(folder.path(), Some(UNPRIVILEGED), Some(UNPRIVILEGED)).expect("root may");
        }
        // None that the system gives to a connection of another process while the server is down.
        let port = free_port();
        let settings = settings.iter().flat_map(|setting| ["-c".to_owned(), (*setting).to_owned()]).collect();
        let mut this = Self { folder, programs, port, server: None, settings };
        let mut command = this.command("initdb");
        command.args([
            "--username",
            "lab",
            "--auth",
            "trust",
            "--no-sync",
            "--encoding",
            "UTF8",
            "--locale",
            "C",
            "--pgdata",
        ]);
        let made = command.arg(this.data()).output().expect("initdb starts");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        prepare(&this.data());
        if is_root() {
            for file in fs::read_dir(this.data()).expect("initdb made it").flatten() {
                chown(file.path(), Some(UNPRIVILEGED), Some(UNPRIVILEGED)).expect("root may");
            }
        }
        this.restart();
        Some(this)
    }

    /// Starts the server, which was killed.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.start_server();
        until("PostgreSQL answers", || {
            let ended = |server: &mut Child| server.try_wait().expect("it is ours").is_some();
            // What the one before had, its port and its memory, may not be free at once.
            if self.server.as_mut().is_some_and(ended) {
                let told = fs::read_to_string(self.log()).unwrap_or_default();
                eprintln!("PostgreSQL has ended, and is started again: {told}");
                self.start_server();
            }
            self.try_client().is_some()
        });
    }

    fn start_server(&mut self) {
        let log = fs::File::create(self.log()).expect("a file");
        let port = self.port.to_string();
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).args([
            "-p",
            &port,
            "-h",
            "127.0.0.1",
            "-c",
            "unix_socket_directories=",
        ]);
        command.args(&self.settings);
        let server = command.stdout(Stdio::null()).stderr(log).stdin(Stdio::null()).spawn();
        self.server = Some(server.expect("postgres starts"));
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Kills the server, and with it all connections.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill(&mut self) {
        let mut server = self.server.take().expect("the server runs");
        let id = server.id();
        server.kill().expect("it is ours");
        let _ = server.wait();
        // Those that it started see that it has ended, one after the other, and hold its memory until then.
        until("the server's processes have ended", || {
            !fs::read_dir("/proc").expect("processes").flatten().any(|process| {
                let status = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
                // The number of its group: that of the server, which has one of its own.
                status.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(2)) == Some(&id.to_string())
            })
        });
    }

    /// Seconds that its processes have been running, all together, with those that have ended.
    ///
    /// # Panics
    /// If it does not run, or the system has no `/proc`.
    #[must_use]
    pub fn processor_time(&self) -> f64 {
        let server = self.server.as_ref().expect("the server runs").id();
        let ended = ended_children_time(server).expect("the system has /proc");
        let all = fs::read_dir("/proc").expect("the system has /proc").flatten();
        let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let own = numbers.filter(|process| *process == server || parent(*process) == Some(server));
        ended + own.filter_map(processor_time).sum::<f64>()
    }

    /// Where it is, for clients.
    #[must_use]
    pub fn address(&self) -> String {
        format!("postgres://lab@127.0.0.1:{}/postgres", self.port)
    }

    /// A connection to it.
    ///
    /// # Panics
    /// If it takes none.
    #[must_use]
    pub fn client(&self) -> Client {
        self.try_client().expect("the server runs")
    }

    /// The same; `None` while it takes none.
    #[must_use]
    pub fn try_client(&self) -> Option<Client> {
        Client::connect(&self.address(), NoTls).ok()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        if is_root() {
            command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        }
        command.process_group(0).current_dir(self.folder.path()).env("LC_ALL", "C");
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// The folder of `PostgreSQL`'s programs: Debian keeps them off the path, one folder for each version.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = debian.map(|version| version.path().join("bin")).collect();
    folders.sort();
    let folders = folders.into_iter().rev().chain(std::env::split_paths(&path));
    folders.into_iter().find(|folder| ["initdb", "postgres"].iter().all(|name| folder.join(name).is_file()))
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(Path::new("/proc/self")).is_ok_and(|own| own.uid() == 0)
}
