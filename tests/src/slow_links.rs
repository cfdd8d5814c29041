//! A federation of processes in which every device has a slow link of its own to the aggregator.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};

use crate::netem::{Conditions, Netem};
use crate::process::Process;
use crate::testbed::Testbed;

/// Devices behind slow links, and their aggregator.
pub struct SlowLinks {
    /// The folder of the federation.
    pub testbed: Testbed,
    links: Vec<Netem>,
}

impl SlowLinks {
    /// One round among this number of devices, over links of `width` bytes per second; `overrides` as on the command line.
    ///
    /// # Panics
    /// If the folder or the links cannot be made.
    #[must_use]
    pub fn new(devices: u8, overrides: &[&str], width: f64) -> Self {
        let patient = ["run.rounds=1", "round.timeout=1800", "round.reconnect-grace=1800"];
        let overrides = [&patient[..], overrides].concat();
        let testbed = Testbed::new(u32::from(devices), &overrides);
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, testbed.port()));
        let link = |index| {
            let link = Netem::open((front(index), testbed.port()).into(), server, u64::from(index));
            link.set(Conditions { width: Some(width), ..Conditions::PERFECT });
            link
        };
        let links = (0..devices).map(link).collect();
        Self { testbed, links }
    }

    /// Starts a device.
    #[must_use]
    pub fn start(&self, index: u8) -> Process {
        let address = format!("{}:{}", front(index), self.testbed.port());
        Process::start(&format!("device {index}"), &mut self.testbed.join_command(u32::from(index), &address))
    }

    /// Bytes that the aggregator has sent towards a device, in datagrams.
    #[must_use]
    pub fn sent_to(&self, index: u8) -> u64 {
        self.links[usize::from(index)].received()
    }

    /// Bytes that a device has sent towards the aggregator, in datagrams.
    #[must_use]
    pub fn sent_by(&self, index: u8) -> u64 {
        self.links[usize::from(index)].sent()
    }

    /// Bytes of the largest part of its update that the aggregator keeps.
    #[must_use]
    pub fn spooled(&self, index: u8) -> u64 {
        let client = self.testbed.client(u32::from(index)).to_string();
        let spool = fs::read_dir(self.testbed.run().join("state/spool")).into_iter().flatten().flatten();
        let of_it = spool.filter(|file| file.file_name().to_string_lossy().starts_with(&client));
        of_it.filter_map(|file| Some(file.metadata().ok()?.len())).max().unwrap_or(0)
    }

    /// Bytes of the file in which a device keeps its download.
    #[must_use]
    pub fn kept(&self, index: u8) -> u64 {
        let file = self.testbed.state(u32::from(index)).join("download");
        fs::metadata(file).map_or(0, |file| file.len())
    }
}

/// Where a device finds the aggregator: each has an address of this machine's loopback for itself.
fn front(index: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, index + 1)
}
