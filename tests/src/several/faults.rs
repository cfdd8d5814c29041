//! What may go wrong with several servers, and how often.

use std::time::Duration;

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

/// What may go wrong, as probabilities and ranges.
#[derive(Clone, Copy, Debug)]
pub struct SeveralFaults {
    /// A delivery to or from a device takes up to this.
    pub delay: Duration,
    /// The same between servers.
    pub link_delay: Duration,
    /// Every training takes up to this.
    pub training: Duration,
    /// Every durable step takes up to this.
    pub disk: Duration,
    /// A question to the store, and its answer, take up to this.
    pub latency: Duration,
    /// Probability that the store does what it was asked and its answer is lost.
    pub lost: f64,
    /// Probability that a delivery cuts a device's connection instead.
    pub cut: f64,
    /// Probability that a device dies at one of its steps.
    pub device_crash: f64,
    /// The same of a link between servers.
    pub link_cut: f64,
    /// Probability that from a delivery on a link drops everything silently.
    pub link_silence: f64,
    /// Probability that the root is stopped, and goes on later, when it is about to use the store or has just done so.
    pub freeze: f64,
    /// Probability that it dies there.
    pub root_death: f64,
    /// Probability that a life of a server ends at one of its first few hundred disk operations.
    pub disk_death: f64,
    /// Troubles that come by themselves: the time between two of them is up to this.
    pub trouble: Duration,
    /// How many come in all.
    pub troubles: u32,
    /// How long the dead stay dead, the stopped stopped, and the store away.
    pub downtime: Duration,
    /// Probability that a server does not reach the store for a while, when it is about to say that it lives. Others do.
    pub cut_off: f64,
}

impl SeveralFaults {
    /// Any fault profile: of each kind of fault there may be none, some or much.
    #[must_use]
    pub fn drawn(rng: &mut ChaCha8Rng) -> Self {
        let mut up_to = |most: f64| match rng.random_range(0..3) {
            0 => 0.0,
            1 => most / 10.0 * rng.random_range(0.0..1.0),
            _ => most * rng.random_range(0.0..1.0),
        };
        let mut seconds = |most: f64, least: f64| Duration::from_secs_f64(up_to(most).max(least));
        let (delay, link_delay, training) = (seconds(2.0, 0.001), seconds(0.5, 0.0005), seconds(10.0, 0.001));
        let (disk, latency, downtime) = (seconds(1.0, 0.0), seconds(1.0, 0.001), seconds(20.0, 0.5));
        let trouble = seconds(15.0, 1.0);
        let (lost, cut, device_crash) = (up_to(0.1), up_to(0.05), up_to(0.03));
        let (link_cut, link_silence) = (up_to(0.03), up_to(0.02));
        let (freeze, root_death, disk_death) = (up_to(0.15), up_to(0.05), up_to(0.5));
        let troubles = rng.random_range(0..10);
        let cut_off = if rng.random() { rng.random_range(0.0..0.1) } else { 0.0 };
        Self {
            delay,
            link_delay,
            training,
            disk,
            latency,
            lost,
            cut,
            device_crash,
            link_cut,
            link_silence,
            freeze,
            root_death,
            disk_death,
            trouble,
            troubles,
            downtime,
            cut_off,
        }
    }
}

/// What went wrong, how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeveralTroubles {
    /// Deaths of servers.
    pub deaths: usize,
    /// Of these, of one that was the root.
    pub root_deaths: usize,
    /// Disks that were lost.
    pub lost_disks: usize,
    /// Servers that were stopped and went on.
    pub freezes: usize,
    /// Of these, roots that were stopped for longer than their lease.
    pub long_freezes: usize,
    /// Times that the store was away.
    pub outages: usize,
    /// Times that a server did not reach the store.
    pub cut_offs: usize,
    /// Of these, of a root for longer than its lease.
    pub long_cut_offs: usize,
    /// Links between servers that were cut or fell silent.
    pub links: usize,
    /// Connections of devices that were cut.
    pub cuts: usize,
    /// Deaths of devices.
    pub device_deaths: usize,
    /// Devices that connected to another server than before.
    pub moves: usize,
    /// Turns of leading.
    pub turns: usize,
    /// Of these, that ended because another server led or updates were lost.
    pub given_up: usize,
    /// Writes of an epoch that was over, which the store refused.
    pub refused: usize,
}

impl SeveralTroubles {
    /// Each with its name.
    #[must_use]
    pub fn named(&self) -> [(&'static str, usize); 15] {
        [
            ("deaths of servers", self.deaths),
            ("of these, of the root", self.root_deaths),
            ("disks of servers lost", self.lost_disks),
            ("servers stopped and continued", self.freezes),
            ("of these, roots for longer than their lease", self.long_freezes),
            ("outages of the store", self.outages),
            ("servers that did not reach the store", self.cut_offs),
            ("of these, roots for longer than their lease", self.long_cut_offs),
            ("links between servers cut or silent", self.links),
            ("connections of devices cut", self.cuts),
            ("deaths of devices", self.device_deaths),
            ("moves of devices to another server", self.moves),
            ("turns of leading", self.turns),
            ("turns that ended because another server led, or updates were lost", self.given_up),
            ("writes of an old epoch refused", self.refused),
        ]
    }
}
