//! The processes of simulated servers: their start and their death, stops, and who leads.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aggregator::coordinator::Event;
use aggregator::leaves::leadership::{INTERVAL, Led};
use aggregator::leaves::shown::folder_of;
use aggregator::leaves::standing::{LEASE, Standing};
use aggregator::run::LeafRun;
use aggregator::run::directory::RunDirectory;
use rand::RngExt as _;
use tokio::sync::watch;

use super::baton::Pause;
use super::leaf::Leaf;
use super::queue::{Happening, Life};
use super::root::{Ended, Root, Setup};
use super::{Several, name, place};
use crate::faulty_disk::{FaultyDisk, Loss};

/// Disk operations among which a drawn death falls.
const DISK_LIFE: usize = 250;
/// Links and connections that are silent for this duration are broken.
const SILENCE: Duration = Duration::from_secs(5);

/// A server: its machine, and its process while it is up.
pub(super) struct Server {
    pub(super) index: usize,
    /// Counts its processes.
    pub(super) life: u32,
    pub(super) up: bool,
    /// It is stopped, and goes on later.
    pub(super) frozen: bool,
    frozen_at: Duration,
    /// What happens to a stopped process, which it finds when it goes on.
    pub(super) deferred: Vec<Happening>,
    pub(super) runs: PathBuf,
    pub(super) disk: FaultyDisk,
    root_disk: FaultyDisk,
    pub(super) standing: watch::Sender<Standing>,
    stopped: watch::Sender<bool>,
    /// Counts its looks at the store.
    looks: u64,
    pub(super) leaf: Option<Leaf>,
    pub(super) root: Option<Root>,
}

impl Server {
    pub(super) fn new(index: usize, folder: &Path) -> Self {
        Self {
            index,
            life: 0,
            up: false,
            frozen: false,
            frozen_at: Duration::ZERO,
            deferred: Vec::new(),
            runs: place(folder, index),
            disk: FaultyDisk::counting(),
            root_disk: FaultyDisk::counting(),
            standing: watch::Sender::new(Standing::Unknown),
            stopped: watch::Sender::new(false),
            looks: 0,
            leaf: None,
            root: None,
        }
    }

    /// Whether its process is there and not stopped.
    pub(super) fn runs(&self) -> bool {
        self.up && !self.frozen
    }

    pub(super) fn now(&self) -> Life {
        Life { server: self.index, life: self.life }
    }
}

impl Several {
    pub(super) fn start_server(&mut self, index: usize) {
        let (mut fatal, mut loss) = (usize::MAX, Loss::Nothing);
        let dies = self.to_come > 0 && self.happens(self.faults.disk_death);
        if dies {
            let seed = self.chance.random();
            loss = if self.chance.random() { Loss::Some(seed) } else { Loss::Nothing };
            fatal = self.chance.random_range(0..DISK_LIFE);
        }
        let root_fatal = if dies { self.chance.random_range(0..2 * DISK_LIFE) } else { usize::MAX };
        let config = self.scenario.config.clone();
        let server = &mut self.servers[index];
        server.life += 1;
        (server.up, server.frozen) = (true, false);
        server.deferred.clear();
        server.disk = server.disk.next_life(fatal, loss);
        server.root_disk = server.root_disk.next_life(root_fatal, Loss::Nothing);
        server.standing = watch::Sender::new(Standing::Unknown);
        server.stopped = watch::Sender::new(false);
        let folder = RunDirectory::new(folder_of(&server.runs, &config.spec.name));
        match LeafRun::new(Arc::new(server.disk.clone()), folder, config) {
            Ok(run) => {
                server.leaf = Some(Leaf::new(run));
                let life = server.now();
                let turn = server.looks;
                self.schedule(Duration::ZERO, Happening::Looks(life, turn));
                self.schedule(Duration::ZERO, Happening::Seeks(life));
            }
            Err(error) => self.fails(index, &error.to_string()),
        }
    }

    /// A process ends by itself: with its disk, or it has a bug.
    pub(super) fn fails(&mut self, index: usize, why: &str) {
        let server = &self.servers[index];
        if !server.disk.dead() && !server.root_disk.dead() {
            self.failures.push(format!("{:?} {}: {why}", self.now, name(index)));
        }
        self.dies(index);
    }

    /// A process is killed. It is started again as time passes.
    pub(super) fn dies(&mut self, index: usize) {
        if !self.servers[index].up {
            return;
        }
        if self.trace {
            println!("{:?} {} dies", self.now, name(index));
        }
        self.troubles.deaths += 1;
        let loss = match self.chance.random_range(0..3) {
            0 => Loss::Some(self.chance.random()),
            _ => Loss::Nothing,
        };
        let server = &mut self.servers[index];
        self.troubles.root_deaths += usize::from(server.root.is_some());
        (server.up, server.frozen, server.root, server.leaf) = (false, false, None, None);
        if !server.disk.dead() {
            server.disk.cut_power(loss);
        }
        let life = server.now();
        self.cut_all(life, SILENCE);
        let downtime = self.draw(self.faults.downtime);
        self.schedule(downtime, Happening::ServerStarts(index));
    }

    /// A server's disk is lost, and its process with it.
    fn loses_disk(&mut self, index: usize) {
        self.dies(index);
        self.troubles.lost_disks += 1;
        let server = &mut self.servers[index];
        let removed = std::fs::remove_dir_all(&server.runs);
        assert!(removed.is_ok() || !server.runs.exists(), "{removed:?}");
        (server.disk, server.root_disk) = (FaultyDisk::counting(), FaultyDisk::counting());
    }

    /// A process is stopped, and goes on after this time with what it was about to do.
    pub(super) fn freeze(&mut self, index: usize, time: Duration) {
        let now = self.now;
        let server = &mut self.servers[index];
        if !server.runs() {
            return;
        }
        if self.trace {
            println!("{now:?} {} is stopped for {time:?}", name(index));
        }
        (server.frozen, server.frozen_at) = (true, now);
        self.troubles.freezes += 1;
        self.troubles.long_freezes += usize::from(server.root.is_some() && time > LEASE);
        let life = server.now();
        if time > SILENCE {
            self.schedule(SILENCE, Happening::Silent(life));
        }
        self.schedule(time, Happening::Thaws(life));
    }

    /// The others give up on a stopped process, which finds out when it goes on.
    pub(super) fn falls_silent(&mut self, life: Life) {
        if self.servers[life.server].life != life.life || !self.servers[life.server].frozen {
            return;
        }
        self.cut_all(life, Duration::ZERO);
    }

    pub(super) fn thaws(&mut self, life: Life) {
        let now = self.now;
        let server = &mut self.servers[life.server];
        if server.life != life.life || !server.frozen {
            return;
        }
        server.frozen = false;
        let by = now.saturating_sub(server.frozen_at);
        for happening in std::mem::take(&mut server.deferred) {
            self.schedule(Duration::ZERO, happening);
        }
        // As the driver's watch over its own loop says.
        if by >= Duration::from_secs(3) {
            self.root_event(life.server, Event::Stalled { by });
        }
    }

    /// A server says to the store that it lives, and asks how the run stands.
    pub(super) fn looks(&mut self, life: Life, turn: u64) {
        let (now, run, latency) = (self.now, self.run.name.clone(), self.faults.latency);
        if turn != self.servers[life.server].looks {
            return;
        }
        if self.to_come > 0 && self.happens(self.faults.cut_off) {
            self.to_come -= 1;
            let time = self.stop_time();
            self.cut_off(life.server, time);
        }
        if self.store.state().is_away_for(life.server, now) {
            return self.schedule(Duration::from_millis(500), Happening::Looks(life, turn));
        }
        let held = self.servers[life.server].standing.borrow().claim().cloned();
        let standing = self.store.state().stand(now, &run, &name(life.server), held.as_ref());
        let takes = self.draw(latency);
        self.schedule(takes, Happening::Looked(life, turn, standing, now));
    }

    pub(super) fn looked(&mut self, life: Life, turn: u64, (standing, asked): (Standing, Duration)) {
        let server = &mut self.servers[life.server];
        if turn != server.looks {
            return;
        }
        let epoch = standing.claim().map(|claim| claim.epoch);
        server.standing.send_replace(standing);
        self.schedule(INTERVAL, Happening::Looks(life, turn));
        self.follows(life.server);
        let now = self.now;
        if let Some(root) = &mut self.servers[life.server].root
            && epoch == Some(root.epoch)
        {
            root.is_confirmed(now, (asked, asked + LEASE));
            self.flush(life.server);
        }
    }

    /// Does what a process does when the run stands otherwise than before.
    fn follows(&mut self, index: usize) {
        let standing = self.servers[index].standing.borrow().clone();
        if let Some(epoch) = self.servers[index].root.as_ref().map(|root| root.epoch)
            && standing.claim().is_none_or(|claim| claim.epoch != epoch)
        {
            self.root_event(index, Event::Stop);
        }
        self.leaves_former_root(index, &standing);
        if let (Standing::Leads(claim), None) = (standing, &self.servers[index].root) {
            self.troubles.turns += 1;
            let server = &mut self.servers[index];
            let led = Led::new(
                self.run.clone(),
                claim.clone(),
                server.standing.subscribe(),
                server.stopped.subscribe(),
            );
            let root = Root::new(Setup {
                server: index,
                store: self.store.clone(),
                run: self.run.clone(),
                claim,
                led,
                files: server.root_disk.clone(),
                runs: server.runs.clone(),
                config: self.scenario.config.clone(),
                disk: self.faults.disk,
            });
            let turn = root.turn;
            server.root = Some(root);
            let life = server.now();
            self.schedule(Duration::ZERO, Happening::RootRuns(life, turn));
        }
    }

    /// The root's thread goes on, until it waits again.
    pub(super) fn root_runs(&mut self, life: Life, turn: u64) {
        let now = self.now;
        let Some(root) = self.servers[life.server].root.as_mut().filter(|root| root.turn == turn) else {
            return;
        };
        root.turn += 1;
        root.pause = root.runner.run(now);
        let (turn, pause) = (root.turn, root.pause);
        if let Some(Pause { until: Some(until), .. }) = pause {
            self.schedule(until.saturating_sub(now), Happening::RootRuns(life, turn));
        }
        self.flush(life.server);
        if pause.is_some_and(|pause| pause.at_store) && self.to_come > 0 {
            if self.happens(self.faults.freeze) {
                self.to_come -= 1;
                let time = self.stop_time();
                self.freeze(life.server, time);
            } else if self.happens(self.faults.root_death) {
                self.to_come -= 1;
                self.dies(life.server);
            }
        }
    }

    /// The root's coordinator takes an event in.
    pub(super) fn root_event(&mut self, index: usize, event: Event) {
        let now = self.now;
        if let Some(root) = &mut self.servers[index].root {
            root.handle(now, event);
        }
        self.flush(index);
    }

    /// The turn of a root has ended.
    pub(super) fn root_ends(&mut self, index: usize, ended: Ended) {
        if self.trace {
            println!("{:?} {} leads no more: {ended:?}", self.now, name(index));
        }
        let Some(root) = self.servers[index].root.take() else { return };
        let life = self.servers[index].now();
        let links: Vec<u64> =
            self.links.iter().filter(|(_, link)| link.root == life).map(|(link, _)| *link).collect();
        for link in links {
            self.hang_up(link);
        }
        match ended {
            Ended::Over => {}
            Ended::GoesOn => {
                self.troubles.given_up += 1;
                let server = &mut self.servers[index];
                server.standing.send_if_modified(|standing| standing.release(&root.claim));
                server.looks += 1;
                let turn = server.looks;
                self.schedule(Duration::ZERO, Happening::Looks(life, turn));
                self.follows(index);
            }
            Ended::Failed(why) => self.fails(index, &why),
        }
    }

    /// A server does not reach the store for this time, while the others do.
    fn cut_off(&mut self, index: usize, time: Duration) {
        if self.trace {
            println!("{:?} {} does not reach the store for {time:?}", self.now, name(index));
        }
        self.troubles.cut_offs += 1;
        self.troubles.long_cut_offs += usize::from(self.servers[index].root.is_some() && time > LEASE);
        self.store.state().cut_off.insert(index, self.now + time);
    }

    /// How long a root is stopped, or does not reach the store: half of them for longer than their lease.
    fn stop_time(&mut self) -> Duration {
        let least = if self.chance.random() { LEASE + Duration::from_secs(1) } else { Duration::ZERO };
        least + self.draw(self.faults.downtime)
    }

    /// Something goes wrong by itself.
    pub(super) fn trouble(&mut self) {
        if self.to_come == 0 {
            return;
        }
        self.to_come -= 1;
        let index = self.chance.random_range(0..self.servers.len());
        let time = self.draw(self.faults.downtime);
        match self.chance.random_range(0..6) {
            0 => self.dies(index),
            1 => self.loses_disk(index),
            2 => self.freeze(index, time),
            3 => {
                let root = self.servers.iter().position(|server| server.root.is_some());
                let time = self.stop_time();
                self.freeze(root.unwrap_or(index), time);
            }
            4 => {
                self.troubles.outages += 1;
                self.store.state().away_until = self.now + time;
            }
            _ => {
                let links: Vec<u64> = self.links.keys().copied().collect();
                for link in links {
                    self.cut_link(link, SILENCE);
                }
            }
        }
        let after = self.draw(self.faults.trouble);
        self.schedule(after, Happening::Trouble);
    }
}
