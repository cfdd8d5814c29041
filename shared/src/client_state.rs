//! Client state: what a device keeps of a run from round to round, and what holds when device and server disagree on it.
//!
//! Some algorithms keep something on the device ([`Algorithm::Local`](crate::algorithm::Algorithm::Local)), and so does every
//! algorithm whose buffers or optimiser's state stay there, or whose updates leave something out. Such state *stands after an update*: the client's last one that counted. The
//! server knows that update as well, by its round and its [fingerprint](crate::message::TrainReport::fingerprint), and keeps it in the run's folder, so that a backup of the folder has it. Both say it on every
//! connection, the server by [`Counted`](crate::message::ToClient::Counted) and the device by
//! [`ClientState`](crate::message::ToServer::ClientState); both compare, and both tell their people of a [`Difference`].
//!
//! Without damage they never differ: a device syncs the state before it sends the update, and the server syncs the update before it
//! sends the receipt. They differ where one side was put back, replaced or damaged.
//!
//! # What then holds
//!
//! The device goes on with the state that it has, whichever round that is of; without any it begins as in its first round. Nothing is
//! deleted, no round waits, and no other client is concerned. From the next update of the client that counts, both agree again. Two
//! runs that are disturbed alike end in the same bytes; an undisturbed one ends in others:
//!
//! | algorithm | what the state is | what another round's state means |
//! |---|---|---|
//! | `scaffold` | `c_k` | the server's c keeps its share of the lost `c_k`, so that c is no longer the mean of them; the difference stays as a constant part of every correction, the smaller the closer the two rounds are, which is why the device's is kept |
//! | `moon` | the previous local model | the client's next round contrasts with another model; later rounds do not |
//! | `fedmatch` | what the client's last model gives for a fixed image | as `moon`: the client's next round compares with it |
//! | `local` | the client's own model | it is the result: a newer one has learned from more rounds, an older one from fewer |
//! | any, with buffers on the device | the statistics of its samples | they go on from there; the next batches move them on |
//! | any, with `update.top-k` | what was left out of updates | of an earlier round, the client sends again what it has sent since; without any, it never sends what it had left out |
//! | any, with `training.keep-optimizer` | velocity or moments | the first steps of the client's next round go along other ones; they fade as fast as the optimiser forgets |
//!
//! Personal models do not depend on earlier ones: each is made from its round's broadcast and the device's samples.

use std::cmp::Ordering;

use crate::aggregation::Buffers;
use crate::algorithm::registry;
use crate::message::CountedUpdate;
use crate::spec::RunSpec;

/// Whether clients of this run keep state.
#[must_use]
pub fn is_kept(spec: &RunSpec) -> bool {
    registry::build(&spec.algorithm).is_ok_and(|algorithm| algorithm.keeps_state())
        || spec.aggregation.buffers == Buffers::Local && has_buffers(spec)
        || spec.training.keeps_optimizer()
        || spec.update.top_k.is_some()
}

fn has_buffers(spec: &RunSpec) -> bool {
    let specs = spec.architecture.parameter_specs().unwrap_or_default();
    specs.iter().any(|parameter| parameter.kind == models::ParameterKind::Buffer)
}

/// Where client state stands: after the last update that counted, or before any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stands(pub Option<CountedUpdate>);

/// How the state that a device keeps differs from the one that it must have by what the server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// The device's is of a later round, or the server knows of none.
    Ahead,
    /// The device's is of an earlier round.
    Behind,
    /// The device has none.
    Missing,
    /// The device's is of another update of the same round.
    Other,
}

impl Difference {
    /// Compares the update that the server says with the one that the device says. `None` if they agree, as far as is known.
    #[must_use]
    pub fn between(server: Option<CountedUpdate>, device: Option<CountedUpdate>) -> Option<Self> {
        let (server, device) = match (server, device) {
            (Some(server), Some(device)) => (server, device),
            (Some(_), None) => return Some(Self::Missing),
            (None, Some(_)) => return Some(Self::Ahead),
            (None, None) => return None,
        };
        let known = server.fingerprint.zip(device.fingerprint);
        match device.round.cmp(&server.round) {
            Ordering::Less => Some(Self::Behind),
            Ordering::Greater => Some(Self::Ahead),
            Ordering::Equal => known.filter(|(server, device)| server != device).map(|_| Self::Other),
        }
    }

    fn cause(self) -> &'static str {
        match self {
            Self::Ahead => {
                "the run's folder was probably restored from a backup, or the server's disk has lost an update"
            }
            Self::Behind => {
                "the device's state directory was probably restored from a backup, or its disk has lost what was synced"
            }
            Self::Missing => "it was probably removed, by hand or to make room for later runs",
            Self::Other => {
                "the run was probably put back to an earlier round once, and the device's state is of the rounds before that"
            }
        }
    }

    fn consequence(self) -> &'static str {
        match self {
            Self::Ahead | Self::Behind | Self::Other => "The device goes on with it",
            Self::Missing => "The device begins afresh",
        }
    }
}

/// A difference as a sentence for people; `None` if server and device agree.
#[must_use]
pub fn difference_in_words(server: Option<CountedUpdate>, device: Option<CountedUpdate>) -> Option<String> {
    let difference = Difference::between(server, device)?;
    let stands = device.map_or_else(
        || "the device has no client state of this run".to_owned(),
        |update| format!("the device's client state stands after round {}", update.round),
    );
    let counts = server.map_or_else(
        || "the server knows of no update of it that counts".to_owned(),
        |update| {
            let other = if difference == Difference::Other { "another one " } else { "" };
            format!("its last update that counts is {other}of round {}", update.round)
        },
    );
    Some(format!(
        "{stands}, and {counts}: {}. {}, and the run ends in another model than it would have: begin a new run if that matters",
        difference.cause(),
        difference.consequence()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_words_are_compared() {
        let update = |round, fingerprint| CountedUpdate { round, fingerprint };
        let of = |round| update(round, Some(7));
        for (server, device, difference) in [
            (None, None, None),
            (Some(of(5)), Some(of(5)), None),
            (Some(of(5)), Some(update(5, None)), None),
            (Some(of(5)), Some(update(5, Some(8))), Some(Difference::Other)),
            (Some(of(5)), Some(of(15)), Some(Difference::Ahead)),
            (None, Some(of(1)), Some(Difference::Ahead)),
            (Some(of(5)), Some(of(4)), Some(Difference::Behind)),
            (Some(of(5)), None, Some(Difference::Missing)),
        ] {
            assert_eq!(Difference::between(server, device), difference, "{server:?} {device:?}");
        }
    }

    #[test]
    fn buffers_that_stay_on_the_device_are_state() {
        let mut spec = RunSpec::example("fedavg");
        assert!(!is_kept(&spec));
        spec.aggregation.buffers = Buffers::Local;
        assert_eq!(is_kept(&spec), has_buffers(&spec));
        assert!(is_kept(&RunSpec::example("scaffold")));
    }

    #[test]
    fn what_is_left_out_of_updates_is_state() {
        let mut spec = RunSpec::example("fedavg");
        spec.update.top_k = Some(1.0);
        assert!(is_kept(&spec));
    }

    #[test]
    fn what_the_optimizer_keeps_is_state_if_it_is_to_be_kept() {
        let mut spec = RunSpec::example("fedavg");
        spec.training.keep_optimizer = true;
        assert!(!is_kept(&spec), "plain descent has nothing to keep");
        spec.training.optimizer = models::Sgd { momentum: 0.9, ..models::Sgd::plain(0.1) }.into();
        assert!(is_kept(&spec));
        spec.training.keep_optimizer = false;
        assert!(!is_kept(&spec));
    }
}
