//! The root's end of its links: what leaves say about their devices becomes what a transport says about its peers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use shared::id::RunId;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tracing::warn;

use super::answers::Answer;
use super::link::Link;
use super::message::{Frame, Part, ToLeaf, ToRoot};
use super::shown::{Server, Shown};
use crate::coordinator::{Agreement, PeerId, Status};
use crate::peer::{FromPeer, ToPeer};
use crate::run::{LeafUpload, Upload};

/// The links of one epoch of the root.
#[derive(Clone, Debug)]
pub struct Hub(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    epoch: i64,
    state: Mutex<State>,
    driver: UnboundedSender<FromPeer>,
    answers: Mutex<std::sync::mpsc::Sender<Answer>>,
    next_link: AtomicU64,
    next_peer: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// The run, once it is known: until then leaves wait.
    run: Option<RunId>,
    /// The open round, as leaves get it.
    open: Option<Frame<ToLeaf>>,
    links: BTreeMap<u64, Linked>,
}

#[derive(Debug)]
struct Linked {
    leaf: String,
    part: Option<Part>,
    sender: UnboundedSender<Frame<ToLeaf>>,
    /// A later link of the leaf has taken its place.
    replaced: Arc<Notify>,
    /// How many devices are connected to it.
    devices: usize,
}

impl Hub {
    /// Without links. What devices say goes to `driver`, what leaves say of updates to `answers`.
    #[must_use]
    pub fn new(
        epoch: i64,
        driver: UnboundedSender<FromPeer>,
        answers: std::sync::mpsc::Sender<Answer>,
    ) -> Self {
        Self(Arc::new(Shared {
            epoch,
            state: Mutex::default(),
            driver,
            answers: Mutex::new(answers),
            next_link: AtomicU64::new(1),
            next_peer: AtomicU64::new(1),
        }))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The identity of the run, which leaves are told.
    pub fn is_of(&self, run: RunId) {
        let mut state = self.state();
        state.run = Some(run);
        for linked in state.links.values() {
            let _ = linked.sender.send(ToLeaf::Welcome { run }.into());
        }
    }

    /// Tells all leaves of the open round, and those that come later.
    pub(super) fn open(&self, frame: Frame<ToLeaf>) {
        let mut state = self.state();
        for linked in state.links.values() {
            let _ = linked.sender.send(frame.clone());
        }
        state.open = Some(frame);
    }

    /// The same of who takes part in the open round, whose updates are hidden.
    pub(super) fn agreed(&self, round: u32, agreement: &Agreement) {
        let mut state = self.state();
        let told = || Box::new(agreement.clone());
        for linked in state.links.values() {
            let _ = linked.sender.send(ToLeaf::Agreed { round, agreement: told() }.into());
        }
        if let Some(Frame { message: ToLeaf::Open { round: open, agreement, .. }, .. }) = &mut state.open
            && *open == round
        {
            *agreement = Some(told());
        }
    }

    /// Tells all leaves what they show of the run, as the server that is reached at `leads` says at `now`, in milliseconds since 1970.
    /// Servers stand in the order of their addresses.
    pub fn show(&self, leads: &str, status: &Status, now: i64) {
        let state = self.state();
        let server = |linked: &Linked| Server { address: linked.leaf.clone(), devices: linked.devices };
        let mut servers: Vec<Server> = state.links.values().map(server).collect();
        servers.sort();
        let shown = Shown {
            leads: leads.to_owned(),
            told: now,
            text: status.to_string(),
            status: status.at(now),
            servers,
        };
        let text = serde_json::to_string(&shown).expect("texts and numbers are JSON");
        for linked in state.links.values() {
            let _ = linked.sender.send(ToLeaf::Shown { text: text.clone() }.into());
        }
    }

    /// The same of rounds that are over.
    pub(super) fn closed(&self, round: u32) {
        let mut state = self.state();
        let is_over = |frame: &Frame<ToLeaf>| matches!(frame.message, ToLeaf::Open { round: open, .. } if open <= round);
        if state.open.as_ref().is_some_and(is_over) {
            state.open = None;
        }
        for linked in state.links.values() {
            let _ = linked.sender.send(ToLeaf::Closed { round }.into());
        }
    }

    /// Tells one leaf something. `false` if it has left.
    pub(super) fn tell(&self, link: u64, message: ToLeaf) -> bool {
        self.state().links.get(&link).is_some_and(|linked| linked.sender.send(message.into()).is_ok())
    }

    /// Takes note of how many devices are connected to a leaf.
    fn count(&self, link: u64, devices: usize) {
        if let Some(linked) = self.state().links.get_mut(&link) {
            linked.devices = devices;
        }
    }

    fn answer(&self, answer: Answer) {
        // Where the run is over, there is nothing to answer to.
        let _ = self.0.answers.lock().unwrap_or_else(PoisonError::into_inner).send(answer);
    }

    /// Why a leaf is refused that simulates a part which another one has.
    fn simulates_the_same(&self, leaf: &str, part: Option<Part>) -> Option<String> {
        let Part { number, of } = part?;
        let state = self.state();
        let same = |linked: &&Linked| linked.leaf != leaf && linked.part == part;
        let other = state.links.values().find(same)?;
        let other = &other.leaf;
        Some(format!(
            "{other} simulates part {number}/{of} of the clients as well; give each server another part"
        ))
    }

    /// Serves a leaf until its link ends, or the run does.
    pub async fn serve(&self, mut link: Link<ToLeaf, ToRoot>) {
        let Some(Frame { message: hello, .. }) = link.receiver.recv().await else { return };
        let Some(mut joined) = self.join(hello, link.sender) else { return };
        let replaced = joined.replaced.clone();
        loop {
            let frame = tokio::select! {
                frame = link.receiver.recv() => frame,
                () = self.0.driver.closed() => None,
                () = replaced.notified() => {
                    // It is not read by a process that has ended.
                    let why = "another process has connected as this server: give each an --address or a --peer-address of its own";
                    let _ = joined.sender.send(ToLeaf::Refused { why: why.to_owned() }.into());
                    None
                }
            };
            let Some(frame) = frame else { break };
            if !joined.hear(frame) {
                break;
            }
        }
        joined.end();
    }

    /// Lets a leaf in that has said this, and is told things through `sender`. `None` if it takes another one for the root.
    #[must_use]
    pub fn join(&self, hello: ToRoot, sender: UnboundedSender<Frame<ToLeaf>>) -> Option<Joined> {
        let ToRoot::Hello { leaf, epoch, part, .. } = hello else { return None };
        if epoch != self.0.epoch {
            return None;
        }
        if let Some(why) = self.simulates_the_same(&leaf, part) {
            warn!("the server {leaf} is not let in: {why}");
            let _ = sender.send(ToLeaf::Refused { why }.into());
            return None;
        }
        let number = self.0.next_link.fetch_add(1, Ordering::Relaxed);
        let replaced = Arc::<Notify>::default();
        self.answer(Answer::Joined { link: number, leaf: leaf.clone() });
        let mut state = self.state();
        // One that was killed is back before its former link is seen to be broken.
        for former in state.links.values().filter(|linked| linked.leaf == leaf) {
            former.replaced.notify_one();
        }
        if let Some(run) = state.run {
            let _ = sender.send(ToLeaf::Welcome { run }.into());
        }
        if let Some(open) = &state.open {
            let _ = sender.send(open.clone());
        }
        let (to, by) = (sender.clone(), replaced.clone());
        let linked = Linked { leaf: leaf.clone(), part, sender: to, replaced: by, devices: 0 };
        state.links.insert(number, linked);
        drop(state);
        let (peers, frozen) = (BTreeMap::new(), Frozen::default());
        Some(Joined { hub: self.clone(), number, leaf, sender, replaced, peers, frozen })
    }
}

/// A leaf that the root listens to.
#[derive(Debug)]
pub struct Joined {
    hub: Hub,
    number: u64,
    leaf: String,
    sender: UnboundedSender<Frame<ToLeaf>>,
    replaced: Arc<Notify>,
    /// Its devices, by its own numbers.
    peers: BTreeMap<u64, PeerId>,
    frozen: Frozen,
}

/// The digest of the frozen parameters that a leaf was sent: it has them for its other devices.
type Frozen = Arc<Mutex<Option<String>>>;

impl Joined {
    /// The link has ended, and with it the connections of its devices.
    pub fn end(self) {
        self.hub.state().links.remove(&self.number);
        self.hub.answer(Answer::Left { link: self.number });
        if !self.peers.is_empty() {
            // Before its devices leave, so that no round does without them at once.
            let _ = self.hub.0.driver.send(FromPeer::ServerLeft);
        }
        for peer in self.peers.into_values() {
            let reason = format!("the server {}, to which it is connected, is away", self.leaf);
            let _ = self.hub.0.driver.send(FromPeer::Disconnected { peer, reason, parted: false });
        }
    }

    /// Handles what a leaf says. `false` if nothing more is to be heard of it.
    pub fn hear(&mut self, Frame { message, payload }: Frame<ToRoot>) -> bool {
        let Self { hub, number: link, sender, peers, frozen, .. } = self;
        let link = *link;
        let event = match message {
            ToRoot::Hello { .. } => return false,
            ToRoot::Opened { round, held } => {
                hub.answer(Answer::Opened { link, round, held });
                return true;
            }
            ToRoot::Accepted { round, outcomes } => {
                hub.answer(Answer::Accepted { link, round, outcomes });
                return true;
            }
            ToRoot::Summed { round } => {
                hub.answer(Answer::Summed { link, round, sum: Some(payload) });
                return true;
            }
            ToRoot::Lacks { round } => {
                hub.answer(Answer::Summed { link, round, sum: None });
                return true;
            }
            ToRoot::Fetched { round, client } => {
                hub.answer(Answer::Fetched { link, round, client, update: payload });
                return true;
            }
            ToRoot::Connected { peer: number } => {
                let peer = PeerId(hub.0.next_peer.fetch_add(1, Ordering::Relaxed));
                peers.insert(number, peer);
                hub.count(link, peers.len());
                FromPeer::Connected { peer, commands: commands_of(number, sender.clone(), frozen.clone()) }
            }
            ToRoot::CutOff { client } => FromPeer::CutOff { client },
            ToRoot::Revoked { client } => FromPeer::Revoked { client },
            ToRoot::Disconnected { peer, reason, parted } => {
                let Some(peer) = peers.remove(&peer) else { return true };
                hub.count(link, peers.len());
                FromPeer::Disconnected { peer, reason, parted }
            }
            ToRoot::Message { peer, message, bytes } => {
                let Some(&peer) = peers.get(&peer) else { return true };
                FromPeer::Message { peer, message, bytes, place: None }
            }
            ToRoot::Uploaded { peer, header, number, bytes } => {
                let Some(&peer) = peers.get(&peer) else {
                    let _ = sender.send(ToLeaf::Discard { number }.into());
                    return true;
                };
                let upload = Upload::Leaf(LeafUpload { link, number });
                FromPeer::Uploaded { peer, header, upload, turn: None, bytes }
            }
            ToRoot::Waits { peer } => {
                let Some(&peer) = peers.get(&peer) else { return true };
                FromPeer::Waits { peer }
            }
        };
        hub.0.driver.send(event).is_ok()
    }
}

/// A channel whose commands go to a device at a leaf.
fn commands_of(peer: u64, leaf: UnboundedSender<Frame<ToLeaf>>, frozen: Frozen) -> UnboundedSender<ToPeer> {
    let (sender, mut commands) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(command) = commands.recv().await {
            let sent = match command {
                ToPeer::Message(message) => leaf.send(ToLeaf::Message { peer, message }.into()),
                ToPeer::Task(delivery) => {
                    let differences = delivery.differences() as u32;
                    leaf.send(ToLeaf::Task { peer, round: delivery.round, differences }.into())
                }
                ToPeer::Frozen(digest, encoded) => {
                    // Held until it is under way: what is sent to another device may not overtake it.
                    let mut there = frozen.lock().unwrap_or_else(PoisonError::into_inner);
                    let has = there.replace(digest.clone()).as_ref() == Some(&digest);
                    let payload = if has { Bytes::new() } else { encoded };
                    leaf.send(Frame { message: ToLeaf::Frozen { peer, digest }, payload })
                }
                ToPeer::Disconnect => leaf.send(ToLeaf::Disconnect { peer }.into()),
            };
            if sent.is_err() {
                return;
            }
        }
    });
    sender
}
