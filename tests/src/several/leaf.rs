//! The leaves of simulated servers, and their links to the root.

use std::collections::VecDeque;
use std::time::Duration;

use aggregator::leaves::hub::Joined;
use aggregator::leaves::leaf_devices::{LeafDevices, Said, Waiting};
use aggregator::leaves::leaf_worker::Worker;
use aggregator::leaves::message::{Frame, ToLeaf, ToRoot};
use aggregator::leaves::process::RETRY;
use aggregator::leaves::standing::{Root as Where, Standing};
use aggregator::peer::FromPeer;
use aggregator::run::{LeafRun, Upload};
use aggregator::storage::FileLayer as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::queue::{Happening, Life};
use super::{Several, name};
use crate::simulator::across;

/// A leaf of a server's process.
pub(super) struct Leaf {
    devices: LeafDevices,
    /// Between two roots.
    run: Option<LeafRun>,
    worker: Option<Worker>,
    /// Its link, and what it says over it.
    link: Option<(u64, UnboundedSender<Frame<ToRoot>>)>,
    /// What the root has asked and is not done yet.
    queue: VecDeque<Frame<ToLeaf>>,
    /// What devices have said since there was a root.
    waiting: Waiting,
}

impl Leaf {
    pub(super) fn new(run: LeafRun) -> Self {
        let (devices, queue, waiting) = (LeafDevices::default(), VecDeque::new(), Waiting::default());
        Self { devices, run: Some(run), worker: None, link: None, queue, waiting }
    }
}

/// A link between a leaf and the root, which may be in one process.
pub(super) struct Link {
    leaf: Life,
    pub(super) root: Life,
    epoch: i64,
    /// The root's end, once it has let the leaf in.
    joined: Option<Joined>,
    to_leaf: UnboundedSender<Frame<ToLeaf>>,
    up: UnboundedReceiver<Frame<ToRoot>>,
    down: UnboundedReceiver<Frame<ToLeaf>>,
    /// Deliveries in one direction keep their order.
    last: [Duration; 2],
    /// Nothing gets through any more but what is under way.
    cut: bool,
    /// Whether the root, and the leaf, know of its end.
    over: [bool; 2],
}

impl Link {
    pub(super) fn is_of(&self, life: Life) -> bool {
        self.leaf == life || self.root == life
    }

    fn is_inside(&self) -> bool {
        self.leaf == self.root
    }
}

fn copied<M: Serialize + DeserializeOwned>(Frame { message, payload }: Frame<M>) -> Frame<M> {
    Frame { message: across(&message), payload }
}

impl Several {
    /// A leaf without a link looks for the root.
    pub(super) fn seeks(&mut self, life: Life) {
        let server = &self.servers[life.server];
        let linked = server.leaf.as_ref().is_none_or(|leaf| leaf.worker.is_some());
        if linked {
            return;
        }
        let standing = server.standing.borrow().clone();
        let found = match standing.root() {
            Where::Here(epoch) => {
                server.root.as_ref().filter(|root| root.epoch == epoch).map(|_| (life, epoch))
            }
            Where::At(leaf, epoch, _) => {
                let root = self.servers.iter().find(|server| name(server.index) == leaf && server.runs());
                root.map(|root| (root.now(), epoch))
            }
            Where::Over | Where::Unknown | Where::Failed(_) => None,
        };
        match found {
            Some((root, epoch)) if root == life || !self.happens(self.faults.link_cut) => {
                self.make_link(life, root, epoch);
            }
            _ => self.schedule(RETRY, Happening::Seeks(life)),
        }
    }

    fn make_link(&mut self, leaf: Life, root: Life, epoch: i64) {
        let number = self.number();
        let ((from_leaf, up), (to_leaf, down)) = (unbounded_channel(), unbounded_channel());
        let hello = ToRoot::Hello { leaf: name(leaf.server), epoch, version: String::new(), part: None };
        let _ = from_leaf.send(hello.into());
        let last = [self.now; 2];
        let link =
            Link { leaf, root, epoch, joined: None, to_leaf, up, down, last, cut: false, over: [false; 2] };
        self.links.insert(number, link);
        let Some(its) = &mut self.servers[leaf.server].leaf else { return };
        let run = its.run.take().expect("a leaf serves one root at a time");
        its.worker = Some(Worker::new(run, its.devices.clone(), from_leaf.clone()));
        its.link = Some((number, from_leaf));
        let mut waiting = std::mem::take(&mut its.waiting);
        while let Some(event) = waiting.pop() {
            self.leaf_said(leaf.server, event);
        }
        self.flush(leaf.server);
    }

    /// A transport says something about a device of a leaf.
    pub(super) fn leaf_said(&mut self, index: usize, event: FromPeer) {
        let Some(leaf) = &mut self.servers[index].leaf else { return };
        let Some((_, root)) = &leaf.link else {
            let unneeded = leaf.waiting.push(event);
            for upload in unneeded {
                self.remove(index, upload);
            }
            return;
        };
        match leaf.devices.said(event) {
            Said::ToRoot(said) => _ = root.send(said.into()),
            Said::Unneeded(upload) => self.remove(index, upload),
            Said::Here(_) | Said::Nothing => {}
        }
    }

    fn remove(&mut self, index: usize, upload: Upload) {
        // What cannot be removed is when the leaf starts again.
        if let Upload::File(path) = upload {
            let _ = self.servers[index].disk.remove(&path);
        }
    }

    pub(super) fn root_hears(&mut self, number: u64, life: Life, frame: Frame<ToRoot>) {
        let Some(link) = self.links.get_mut(&number).filter(|link| !link.over[0]) else { return };
        let Some(root) = &mut self.servers[life.server].root else { return self.hang_up(number) };
        root.nudged = true;
        let Some(joined) = &mut link.joined else {
            let joined = root.hub.join(frame.message, link.to_leaf.clone());
            let Some(joined) = joined else { return self.hang_up(number) };
            link.joined = Some(joined);
            let leaf = link.leaf.server;
            let former = |(other, link): (&u64, &Link)| {
                let same = link.leaf.server == leaf && link.root == life && link.joined.is_some();
                (same && *other != number).then_some(*other)
            };
            let former: Vec<u64> = self.links.iter().filter_map(former).collect();
            for link in former {
                self.hang_up(link);
            }
            return self.flush(life.server);
        };
        let heard = self.runtime.block_on(async { joined.hear(frame) });
        if heard { self.flush(life.server) } else { self.hang_up(number) }
    }

    /// The root hangs up.
    pub(super) fn hang_up(&mut self, number: u64) {
        self.flush_link(number);
        let Some(link) = self.links.get_mut(&number).filter(|link| !link.over[0]) else { return };
        link.cut = true;
        let (life, leaf, inside, last) = (link.root, link.leaf, link.is_inside(), link.last[1]);
        let takes = if inside { Duration::ZERO } else { self.draw(self.faults.link_delay) };
        let after = takes.max(last.saturating_sub(self.now));
        self.schedule(after, Happening::LeafLosesLink(number, leaf));
        self.root_loses(number, life);
    }

    /// A link breaks; both sides learn of it in up to this time.
    pub(super) fn cut_link(&mut self, number: u64, up_to: Duration) {
        let Some(link) = self.links.get_mut(&number).filter(|link| !link.cut) else { return };
        if link.is_inside() && self.servers[link.root.server].up {
            return;
        }
        link.cut = true;
        let (root, leaf) = (link.root, link.leaf);
        self.troubles.links += 1;
        let (soon, later) = (self.draw(up_to), self.draw(up_to));
        self.schedule(soon, Happening::RootLosesLink(number, root));
        self.schedule(later, Happening::LeafLosesLink(number, leaf));
    }

    pub(super) fn root_loses(&mut self, number: u64, life: Life) {
        let Some(link) = self.links.get_mut(&number).filter(|link| !link.over[0]) else { return };
        (link.over[0], link.cut) = (true, true);
        if let Some(joined) = link.joined.take() {
            joined.end();
        }
        if let Some(root) = &mut self.servers[life.server].root {
            root.nudged = true;
        }
        self.flush(life.server);
    }

    /// A leaf's link has ended: its devices come again, and are known to the next root.
    pub(super) fn leaf_loses(&mut self, number: u64, life: Life) {
        if let Some(link) = self.links.get_mut(&number) {
            link.cut = true;
            link.over[1] = true;
        }
        let Some(leaf) = &mut self.servers[life.server].leaf else { return };
        if leaf.link.as_ref().is_none_or(|(its, _)| *its != number) {
            return;
        }
        leaf.link = None;
        let unneeded = leaf.devices.dismiss();
        let idle = leaf.queue.is_empty();
        for upload in unneeded {
            self.remove(life.server, upload);
        }
        if idle {
            self.leaf_rests(life);
        }
        self.flush(life.server);
    }

    /// A leaf has done all that its former root has asked.
    fn leaf_rests(&mut self, life: Life) {
        let Some(leaf) = &mut self.servers[life.server].leaf else { return };
        if let Some(worker) = leaf.worker.take() {
            leaf.run = Some(worker.into_run());
            self.schedule(RETRY, Happening::Seeks(life));
        }
    }

    /// A leaf takes leave of a root that is none any more.
    pub(super) fn leaves_former_root(&mut self, index: usize, standing: &Standing) {
        let Some((number, _)) = self.servers[index].leaf.as_ref().and_then(|leaf| leaf.link.as_ref()) else {
            return;
        };
        let number = *number;
        let Some(link) = self.links.get(&number).filter(|link| !standing.keeps(link.epoch)) else { return };
        let (root, leaf, takes) = (link.root, link.leaf, self.faults.link_delay);
        let takes = self.draw(takes);
        self.schedule(takes, Happening::RootLosesLink(number, root));
        self.leaf_loses(number, leaf);
    }

    pub(super) fn leaf_hears(&mut self, number: u64, life: Life, frame: Frame<ToLeaf>) {
        let Some(leaf) = &mut self.servers[life.server].leaf else { return };
        if leaf.link.as_ref().is_none_or(|(its, _)| *its != number) {
            return;
        }
        leaf.queue.push_back(frame);
        if leaf.queue.len() == 1 {
            self.leaf_goes_on(life);
        }
    }

    fn leaf_goes_on(&mut self, life: Life) {
        let Some(next) = self.servers[life.server].leaf.as_ref().and_then(|leaf| leaf.queue.front()) else {
            return;
        };
        let durable = matches!(
            next.message,
            ToLeaf::Open { .. } | ToLeaf::Accept { .. } | ToLeaf::Sum { .. } | ToLeaf::Closed { .. }
        );
        let takes = if durable { self.draw(self.faults.disk) } else { Duration::ZERO };
        self.schedule(takes, Happening::LeafWorks(life));
    }

    pub(super) fn leaf_works(&mut self, life: Life) {
        let Some(leaf) = &mut self.servers[life.server].leaf else { return };
        let (Some(frame), Some(worker)) = (leaf.queue.pop_front(), &mut leaf.worker) else { return };
        if let Err(error) = worker.carry_out(frame) {
            return self.fails(life.server, &error.to_string());
        }
        let (idle, over) = (leaf.queue.is_empty(), leaf.link.is_none());
        if !idle {
            self.leaf_goes_on(life);
        } else if over {
            self.leaf_rests(life);
        }
        self.flush(life.server);
    }

    /// Sends what a server has to say on its way.
    pub(super) fn flush(&mut self, index: usize) {
        let now = self.now;
        if let Some(root) = &mut self.servers[index].root {
            let ended = root.pump(now);
            let known = self.store.state().rounds;
            let early = root.receipts.drain(..).filter(|round| *round > known);
            self.too_early.extend(early.map(|round| (now, round)));
            let again = root.nudged && root.pause.is_some_and(|pause| pause.listens);
            root.nudged &= !again;
            let turn = root.turn;
            if again && ended.is_none() {
                let life = self.servers[index].now();
                self.schedule(Duration::ZERO, Happening::RootRuns(life, turn));
            }
            if let Some(ended) = ended {
                return self.root_ends(index, ended);
            }
        }
        // What is for devices goes through a task for each of them.
        self.runtime.block_on(async {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        });
        let life = self.servers[index].now();
        let links: Vec<u64> =
            self.links.iter().filter(|(_, link)| link.is_of(life)).map(|(link, _)| *link).collect();
        for link in links {
            self.flush_link(link);
        }
        self.links.retain(|_, link| link.over != [true; 2]);
        self.flush_devices(life);
    }

    fn flush_link(&mut self, number: u64) {
        loop {
            let Some(link) = self.links.get_mut(&number) else { return };
            let (inside, root, leaf) = (link.is_inside(), link.root, link.leaf);
            let (way, happening) = if let Ok(frame) = link.up.try_recv() {
                (0, Happening::ToRoot(number, root, Box::new(copied(frame))))
            } else if let Ok(frame) = link.down.try_recv() {
                (1, Happening::ToLeaf(number, leaf, Box::new(copied(frame))))
            } else {
                return;
            };
            if link.cut {
                continue;
            }
            if !inside && self.to_come > 0 && self.happens(self.faults.link_cut) {
                self.cut_link(number, self.faults.link_delay);
                continue;
            }
            if !inside && self.to_come > 0 && self.happens(self.faults.link_silence) {
                self.cut_link(number, Duration::from_secs(5));
                continue;
            }
            let takes = if inside { Duration::ZERO } else { self.draw(self.faults.link_delay) };
            let Some(link) = self.links.get_mut(&number) else { return };
            let arrival = (self.now + takes).max(link.last[way]);
            link.last[way] = arrival;
            self.schedule(arrival.saturating_sub(self.now), happening);
        }
    }
}
