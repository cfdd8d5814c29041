//! Devices in network namespaces of their own, each on a wire to the namespace that the test is in, and small file systems that
//! fill up.
//!
//! Root is not needed: the program starts itself again in a user namespace, in which it may change networks and mount file
//! systems that no other process sees.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::fuzz::tmp;
use crate::process::until;
use crate::programs::programs;

/// Set in the process that is inside.
const INSIDE: &str = "FEDERATION_TESTS_NAMESPACE";

/// Networks and mounted file systems that no other process sees.
const PRIVATE: [&str; 3] = ["--map-root-user", "--net", "--mount"];

/// Why there are no namespaces.
#[derive(Debug)]
pub struct NotPermitted(pub String);

/// Is this process in a network of its own?
#[must_use]
pub fn inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs this program again, with these arguments, in a network of its own. Its exit code.
pub fn again_inside<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Result<i32, NotPermitted> {
    let wire = ["ip", "link", "add", "wire0", "type", "veth", "peer", "name", "wire1"];
    let tried = Command::new("unshare").args(PRIVATE).args(wire).output();
    let tried = tried.map_err(|error| NotPermitted(format!("there is no `unshare`: {error}")))?;
    if !tried.status.success() {
        return Err(NotPermitted(String::from_utf8_lossy(&tried.stderr).trim().to_owned()));
    }
    let own = std::env::current_exe().map_err(|error| NotPermitted(error.to_string()))?;
    let status = Command::new("unshare")
        .args(PRIVATE)
        .arg(own)
        .args(arguments)
        .env(INSIDE, "1")
        .status()
        .map_err(|error| NotPermitted(error.to_string()))?;
    Ok(status.code().unwrap_or(101))
}

/// Whether the test of this name is where it can be run. If not, it is run again there: the caller has nothing more to do.
///
/// # Panics
/// If it fails there.
#[must_use]
pub fn inside_test(name: &str) -> bool {
    // Built where there is a network.
    let _ = programs();
    if inside() {
        return true;
    }
    match again_inside(["--exact", name, "--nocapture"]) {
        Ok(code) => assert_eq!(code, 0, "{name} failed in its namespace"),
        Err(why) => println!("skipped: namespaces are not permitted here ({})", why.0),
    }
    false
}

/// Gives this process's own namespace these addresses, of a network of 254. They can be reached from it alone.
///
/// # Panics
/// If this process is not [`inside`], or `ip` fails.
pub fn add_addresses(addresses: impl IntoIterator<Item = Ipv4Addr>) {
    assert!(inside(), "addresses are only added inside a private network namespace");
    ip(&["link", "set", "lo", "up"]);
    for address in addresses {
        ip(&["addr", "add", &format!("{address}/24"), "dev", "lo"]);
    }
}

/// A namespace with one wire to this process's.
pub struct Namespace {
    /// It lives as long as this does.
    holder: Child,
    number: u8,
    /// Last part of the address at its end.
    host: u8,
}

impl Namespace {
    /// One of the namespaces of a test; numbers differ.
    ///
    /// # Panics
    /// If this process is not [`inside`].
    #[must_use]
    pub fn new(number: u8) -> Self {
        assert!(inside(), "wires are only laid inside a private network namespace");
        let mut command = Command::new("unshare");
        command.args(["--net", "sleep", "infinity"]).stdin(Stdio::null());
        let holder = command.spawn().expect("it was possible before");
        let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
        let process = holder.id().to_string();
        until("the namespace is there", || of(&process).is_some_and(|other| Some(other) != of("self")));
        let (near, far) = (format!("near{number}"), format!("far{number}"));
        ip(&["link", "set", "lo", "up"]);
        ip(&["link", "add", &near, "type", "veth", "peer", "name", &far]);
        ip(&["link", "set", &far, "netns", &process]);
        ip(&["addr", "add", &format!("10.77.{number}.1/24"), "dev", &near]);
        ip(&["link", "set", &near, "up"]);
        let made = Self { holder, number, host: 2 };
        made.ip(&["addr", "add", &made.address(), "dev", &far]);
        made.ip(&["link", "set", &far, "up"]);
        made
    }

    /// The address of this process on the wire.
    #[must_use]
    pub fn near(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.number, 1)
    }

    fn address(&self) -> String {
        format!("10.77.{}.{}/24", self.number, self.host)
    }

    /// Gives the namespace another address and removes the former one.
    ///
    /// # Panics
    /// If `ip` fails.
    pub fn move_on(&mut self) {
        let (former, device) = (self.address(), format!("far{}", self.number));
        self.host = if self.host < 250 { self.host + 1 } else { 2 };
        self.ip(&["addr", "add", &self.address(), "dev", &device]);
        self.ip(&["addr", "del", &former, "dev", &device]);
        // Later addresses of the same network go with the first one, unless the system was told to promote them.
        let left =
            self.command("ip", ["addr", "show", "dev", &device]).output().expect("it was there before");
        if !String::from_utf8_lossy(&left.stdout).contains(&self.address()) {
            self.ip(&["addr", "add", &self.address(), "dev", &device]);
        }
    }

    /// A program in it, under the number that it has outside.
    #[must_use]
    pub fn command<A: AsRef<OsStr>>(
        &self,
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.holder.id().to_string(), "--net", "--"]).arg(program).args(arguments);
        command
    }

    fn ip(&self, arguments: &[&str]) {
        succeeds(&mut self.command("ip", arguments));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        // Its end of the wire goes with it, and this one with that, at some time.
        let _ = Command::new("ip")
            .args(["link", "del", &format!("near{}", self.number)])
            .stderr(Stdio::null())
            .status();
    }
}

/// A small file system of its own in place of a folder, whose files it has.
pub struct Mount {
    folder: PathBuf,
}

impl Mount {
    /// A file system of this number of bytes.
    ///
    /// # Panics
    /// If this process is not [`inside`].
    #[must_use]
    pub fn new(folder: &Path, bytes: usize) -> Self {
        assert!(inside(), "file systems are only mounted inside a private namespace");
        fs::create_dir_all(folder).expect("an own folder");
        let files = tmp::files(folder);
        let size = format!("size={bytes},mode=0700");
        succeeds(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(folder));
        for (path, bytes) in &files {
            tmp::write(path, bytes);
        }
        Self { folder: folder.to_owned() }
    }

    /// Leaves no room for anything more.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn fill(&self) {
        let mut ballast = File::create(self.ballast()).expect("there is room for a file");
        let full = [vec![0; 1 << 16], vec![0]].iter().all(|piece| {
            let error = std::iter::repeat_with(|| ballast.write_all(piece)).find_map(Result::err);
            error.is_some_and(|error| error.kind() == ErrorKind::StorageFull)
        });
        assert!(full, "the file system is full");
    }

    /// Makes room again.
    ///
    /// # Panics
    /// If it was not [filled](Self::fill).
    pub fn empty(&self) {
        fs::remove_file(self.ballast()).expect("it was filled");
    }

    fn ballast(&self) -> PathBuf {
        self.folder.join("ballast")
    }

    /// Makes it read-only (`ro`) or writable (`rw`). No process may have files of it open for writing.
    ///
    /// # Panics
    /// If a process has.
    pub fn remount(&self, how: &str) {
        succeeds(Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(&self.folder));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.folder).stderr(Stdio::null()).status();
    }
}

fn ip(arguments: &[&str]) {
    let mut command = Command::new("ip");
    command.args(arguments);
    succeeds(&mut command);
}

/// Runs a command to its end.
///
/// # Panics
/// If it cannot be started or fails.
pub fn succeeds(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
