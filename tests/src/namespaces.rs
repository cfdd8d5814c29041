//! Devices in network namespaces of their own, each on a wire to the namespace that the test is in.
//!
//! Root is not needed: the program starts itself again in a user namespace, in which it may change networks that no
//! other process sees.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};

use crate::process::until;

/// Set in the process that is inside.
const INSIDE: &str = "FEDERATION_TESTS_NAMESPACE";

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
    let tried = Command::new("unshare").args(["--map-root-user", "--net"]).args(wire).output();
    let tried = tried.map_err(|error| NotPermitted(format!("there is no `unshare`: {error}")))?;
    if !tried.status.success() {
        return Err(NotPermitted(String::from_utf8_lossy(&tried.stderr).trim().to_owned()));
    }
    let own = std::env::current_exe().map_err(|error| NotPermitted(error.to_string()))?;
    let status = Command::new("unshare")
        .args(["--map-root-user", "--net"])
        .arg(own)
        .args(arguments)
        .env(INSIDE, "1")
        .status()
        .map_err(|error| NotPermitted(error.to_string()))?;
    Ok(status.code().unwrap_or(101))
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
        succeeds(self.command("ip", arguments));
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

fn ip(arguments: &[&str]) {
    let mut command = Command::new("ip");
    command.args(arguments);
    succeeds(command);
}

fn succeeds(mut command: Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
