//! Power failures of simulated devices, and backups that are put back.

use std::fs;
use std::io;
use std::path::Path;

use aggregator::coordinator::PeerId;

use super::Simulator;
use super::queue::Happening;
use crate::device::Device;
use crate::faulty_disk::Loss;

/// Whose power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// The device's alone.
    Device,
    /// That of the device and of the aggregator, in one moment.
    Both,
}

impl Simulator {
    /// Gives every device a state directory below `folder`, on a disk that can fail.
    #[must_use]
    pub fn with_disks(mut self, folder: &Path) -> Self {
        let devices = std::mem::take(&mut self.devices).into_iter().enumerate();
        self.devices =
            devices.map(|(index, device)| device.on_disk(folder.join(index.to_string()))).collect();
        self
    }

    /// The power fails at the disk operation `fatal` of a device's first life.
    pub fn device_dies_at(&mut self, device: usize, fatal: usize, loss: Loss, power: Power) {
        self.devices[device].die_at(fatal, loss);
        self.shared_power = (power == Power::Both).then_some(loss);
    }

    /// A device, to look at what it keeps.
    pub fn device_mut(&mut self, device: usize) -> &mut Device {
        &mut self.devices[device]
    }

    /// The disk of a device has failed: with it goes the process, and what was not synced.
    pub(super) fn device_dies(&mut self, device: usize) {
        let peer = self.connection_of(device);
        self.devices[device].lose_power(Loss::Nothing);
        if let Some(loss) = self.shared_power.take()
            && self.server.is_some()
        {
            self.server = None;
            self.disk.cut_power(loss);
            self.server_dies();
        }
        self.is_down(device, peer);
    }

    /// A device's process has ended; the next one starts as time passes.
    pub(super) fn is_down(&mut self, device: usize, peer: Option<PeerId>) {
        self.troubles.device_deaths += 1;
        if let Some(peer) = peer {
            self.cut(peer);
        }
        let downtime = self.draw(self.faults.downtime);
        self.schedule(downtime, Happening::DeviceStarts(device));
    }

    /// Copies the run's directory.
    pub fn back_up(&self, to: &Path) -> io::Result<()> {
        copy(self.run_directory().root(), to)
    }

    /// Kills the aggregator and puts a copy of the run's directory back. It starts again as time passes.
    pub fn put_back(&mut self, from: &Path) -> io::Result<()> {
        self.kill_server();
        // What devices were told after the copy was made does not count any more.
        self.forgiving = true;
        replace(self.run_directory().root(), from)
    }

    /// Stops a device, and gives it a copy of its state directory, or none. It starts again as time passes.
    pub fn replace_device(&mut self, device: usize, directory: &Path, from: Option<&Path>) -> io::Result<()> {
        let peer = self.connection_of(device);
        self.devices[device].crash();
        self.is_down(device, peer);
        match from {
            Some(from) => replace(directory, from),
            None => fs::remove_dir_all(directory),
        }
    }
}

fn replace(directory: &Path, from: &Path) -> io::Result<()> {
    fs::remove_dir_all(directory)?;
    copy(from, directory)
}

/// Copies a directory with everything in it.
///
/// # Errors
/// Those of the file system.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
