//! The table of faults of processes, networks and disks: what happens, when, and what must hold afterwards. A new fault is a
//! row; a new kind of fault is a variant of [`What`] and its arm in [`fault_run`](crate::fault_run).
//!
//! Disks that are slow and clocks that are set are not faults of processes here: nothing of them is real without root. The
//! simulator has them (`Faults::disk`, `Faults::jump`), and the tables of flipped bits and power failures are tests of their
//! own.

use std::time::Duration;

use crate::netem::Conditions;

/// A program of the federation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The server.
    Aggregator,
    /// One of the devices.
    Device,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A device gets another address.
    Moves,
    /// Nothing gets through between a device and the aggregator for this duration.
    Partition(Duration),
    /// The process ends as by `kill -9`, and is started again.
    Kill(Side),
    /// The process stands still for this duration, as on a machine that is suspended: to it, its clocks jump.
    Suspend(Side, Duration),
    /// There is no room on the disk of the aggregator's runs, or of a device's state, until the program has said so.
    FullDisk(Side),
    /// The process is killed, and finds its file system read-only, as after an error of the disk. It says so and ends; once
    /// the file system is writable again, it is started again.
    ReadOnly(Side),
    /// This folder of the run is deleted under the aggregator; an empty name is the run's own.
    Removed(&'static str),
}

/// In the middle of what it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amid {
    /// The model arrives at the device that it concerns.
    Download,
    /// The device has just begun to train.
    Training,
    /// The device's update is under way.
    Upload,
    /// The aggregator has decided to close a round, and writes the next model.
    Closing,
}

/// What must hold afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// The run ends, with the bytes of the undisturbed one.
    SameBytes,
    /// The aggregator ends with exit code 3 and says this.
    Told(&'static str),
}

/// One row: faults, one after the other, on one network.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// For people.
    pub name: &'static str,
    /// What the network is always like.
    pub conditions: Conditions,
    /// What happens.
    pub faults: &'static [(What, Amid)],
    /// What must hold afterwards.
    pub holds: Holds,
}

/// 1 Mbit/s.
const MEGABIT: f64 = 125_000.0;
const DELAYED: Conditions = Conditions { delay: Duration::from_millis(100), ..Conditions::PERFECT };
const NARROW: Conditions = Conditions { width: Some(MEGABIT), ..Conditions::PERFECT };
/// Narrow enough that there is a middle of a transfer.
const LAN: Conditions = Conditions { width: Some(12.0 * MEGABIT), ..Conditions::PERFECT };
/// 200 ms there and back, 5 % of the datagrams lost each way, 1 Mbit/s.
const ALL: Conditions = Conditions { delay: DELAYED.delay, loss: 0.05, width: Some(MEGABIT), closed: false };

const SAME: Row = Row { name: "", conditions: LAN, faults: &[], holds: Holds::SameBytes };
const PARTITION: What = What::Partition(Duration::from_secs(30));
const REMOVED: Holds = Holds::Told("it was removed");

/// Nothing is wrong.
pub const CALM: Row = Row { name: "nothing", conditions: Conditions::PERFECT, ..SAME };

/// What a suite has time for, of networks.
pub const SHORT_NETWORK: Row = Row {
    name: "short: 5 % loss, 20 ms, 4 Mbit/s, an address change, a partition of 3 s, kill -9 of a device",
    conditions: Conditions {
        delay: Duration::from_millis(10),
        loss: 0.05,
        width: Some(4.0 * MEGABIT),
        closed: false,
    },
    faults: &[
        (What::Moves, Amid::Upload),
        (What::Partition(Duration::from_secs(3)), Amid::Upload),
        (What::Kill(Side::Device), Amid::Upload),
    ],
    ..SAME
};

/// And of processes and disks.
pub const SHORT_DISK: Row = Row {
    name: "short: full and read-only disks, kills while a round closes and a device trains, a suspended device",
    faults: &[
        (What::FullDisk(Side::Aggregator), Amid::Download),
        (What::Kill(Side::Aggregator), Amid::Closing),
        (What::FullDisk(Side::Device), Amid::Download),
        (What::ReadOnly(Side::Aggregator), Amid::Upload),
        (What::Kill(Side::Device), Amid::Training),
        (What::ReadOnly(Side::Device), Amid::Upload),
        (What::Suspend(Side::Device, Duration::from_millis(500)), Amid::Download),
    ],
    ..SAME
};

/// Every other row. [`CALM`] stands first.
pub const ROWS: &[Row] = &[
    CALM,
    SHORT_NETWORK,
    SHORT_DISK,
    Row { name: "5 % loss", conditions: Conditions { loss: 0.05, ..Conditions::PERFECT }, ..SAME },
    Row { name: "200 ms there and back", conditions: DELAYED, ..SAME },
    Row { name: "5 % loss, 200 ms there and back", conditions: Conditions { loss: 0.05, ..DELAYED }, ..SAME },
    Row { name: "1 Mbit/s", conditions: NARROW, ..SAME },
    Row { name: "all of these", conditions: ALL, ..SAME },
    Row {
        name: "1 Mbit/s, two address changes",
        conditions: NARROW,
        faults: &[(What::Moves, Amid::Upload), (What::Moves, Amid::Upload)],
        ..SAME
    },
    Row {
        name: "1 Mbit/s, address changes and partitions amid downloads",
        conditions: NARROW,
        faults: &[(What::Moves, Amid::Download), (What::Partition(Duration::from_secs(12)), Amid::Download)],
        ..SAME
    },
    Row {
        name: "1 Mbit/s, a partition of 30 s",
        conditions: NARROW,
        faults: &[(PARTITION, Amid::Upload)],
        ..SAME
    },
    Row {
        name: "1 Mbit/s, kill -9 of a device and of the aggregator",
        conditions: NARROW,
        faults: &[(What::Kill(Side::Device), Amid::Upload), (What::Kill(Side::Aggregator), Amid::Upload)],
        ..SAME
    },
    Row {
        name: "all of these, and all of that",
        conditions: ALL,
        faults: &[
            (What::Moves, Amid::Upload),
            (PARTITION, Amid::Upload),
            (What::Kill(Side::Device), Amid::Upload),
            (What::Kill(Side::Aggregator), Amid::Upload),
        ],
        ..SAME
    },
    Row {
        name: "kill -9 of the aggregator at every moment",
        faults: &[
            (What::Kill(Side::Aggregator), Amid::Download),
            (What::Kill(Side::Aggregator), Amid::Training),
            (What::Kill(Side::Aggregator), Amid::Upload),
            (What::Kill(Side::Aggregator), Amid::Closing),
        ],
        ..SAME
    },
    Row {
        name: "kill -9 of a device at every moment",
        faults: &[
            (What::Kill(Side::Device), Amid::Download),
            (What::Kill(Side::Device), Amid::Training),
            (What::Kill(Side::Device), Amid::Upload),
        ],
        ..SAME
    },
    Row {
        name: "suspended for longer than connections last: a device, and the aggregator",
        faults: &[
            (What::Suspend(Side::Device, Duration::from_secs(15)), Amid::Upload),
            (What::Suspend(Side::Aggregator, Duration::from_secs(15)), Amid::Upload),
        ],
        ..SAME
    },
    Row {
        name: "full disks, again and again",
        faults: &[
            (What::FullDisk(Side::Aggregator), Amid::Upload),
            (What::FullDisk(Side::Device), Amid::Download),
            (What::FullDisk(Side::Aggregator), Amid::Download),
            (What::FullDisk(Side::Device), Amid::Download),
        ],
        ..SAME
    },
    Row { name: "the run is removed", faults: &[(What::Removed(""), Amid::Upload)], holds: REMOVED, ..SAME },
    Row {
        name: "the spool is removed",
        faults: &[(What::Removed("state/spool"), Amid::Upload)],
        holds: REMOVED,
        ..SAME
    },
    Row {
        name: "the run is removed amid a download",
        faults: &[(What::Removed(""), Amid::Download)],
        holds: REMOVED,
        ..SAME
    },
];
