//! Several servers, one run: leaves and the root (feature `cluster`).
//!
//! Every process that serves the run is a *leaf*: it has connections and accepted updates of devices. One of them is also the *root*: it
//! has the run's lease in the store, the coordinator and the model. What a device says goes from its leaf to the root, what the root
//! decides goes back; updates stay at the leaf, and their sum travels. Sums are whole numbers, so that the model has the same bits for
//! any number of leaves.
//!
//! Why the run goes on when any of them dies:
//!
//! * The root puts what the run has into the store before anything follows from it: an opening before its task is sent, a closed round
//!   before a device hears that its update counts. Every write names the epoch of the lease, so that a root that was away writes nothing
//!   any more. The next root goes on from there.
//! * A leaf that comes back has its accepted updates on disk, and says so.
//! * A device keeps its update until the round has closed, and brings it to another leaf if its own is away.
//!
//! | module | what it is |
//! |---|---|
//! | [`standing`] | where a run stands |
//! | [`store`] | what servers ask of their store |
//! | [`leadership`] | the leaves of a run, and which of them leads |
//! | [`process`] | one process: its leaf, and the root while it leads |
//! | [`leaf`] | a leaf, between its devices and the root |
//! | [`leaf_devices`], [`leaf_worker`] | its devices, and what it does for the root |
//! | [`hub`] | the root's end of its links: devices of leaves as peers of its driver |
//! | [`answers`] | what it says of their updates |
//! | [`at_leaves`] | what the root's disk worker asks of leaves |
//! | [`keeper`] | the run, on its way into the store |
//! | [`fetch`] | the run, out of the store |
//! | [`message`], [`link`], [`network`] | what leaves and root tell each other, in memory or over QUIC |

pub mod answers;
pub mod at_leaves;
mod contest;
pub mod fetch;
pub mod hub;
pub mod keeper;
pub mod leadership;
pub mod leaf;
pub mod leaf_devices;
pub mod leaf_worker;
pub mod link;
pub mod message;
pub mod network;
pub mod process;
pub mod shown;
pub mod standing;
pub mod store;
