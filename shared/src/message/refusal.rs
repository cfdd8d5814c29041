//! Why a client may not take part.

use serde::{Deserialize, Serialize};

use crate::id::ClientId;
use models::shape::spelled;

/// Why a client may not take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// Its samples have another shape than the model's input.
    #[error("{}", other_shape(.expected, .found))]
    Shape {
        /// What the model takes.
        expected: Vec<u32>,
        /// What the device has.
        found: Vec<u32>,
    },
    /// Its labels are drawn from another number of classes.
    #[error(
        "this run's model tells {expected} classes apart, the device's labels have {found}: use other data or another model"
    )]
    Classes {
        /// What the model tells apart.
        expected: u32,
        /// What the device has.
        found: u32,
    },
    /// It has no training samples.
    #[error("the device has no training samples: check its data directory")]
    NoSamples,
    /// Another connection of the same client took over.
    #[error(
        "another connection with this identity took over: is the client running twice on one state directory?"
    )]
    Replaced,
    /// A second hello came, or an update without a payload.
    #[error("the client broke the protocol: {0}")]
    Protocol(String),
    /// Its samples have no labels, and are to be learned from with labels.
    #[error(
        "this run learns from labels on the devices, and the device's samples are unlabelled: leave --unlabelled out, or \
         join a run whose labels are at the server"
    )]
    Unlabelled,
    /// It says that it is another device than the one whose key it has.
    #[error(
        "the device has another key than the one that its id belongs to: the server knows it as {known}; remove the file \
         `identity` in its state directory to take part as a new device"
    )]
    Identity {
        /// The id of the key that it has proved.
        known: ClientId,
    },
    /// The server does not know the device, which has no ticket.
    #[error(
        "the server does not know this device: ask its operator for a ticket (`aggregator ticket`) and join with that"
    )]
    Unknown,
    /// The device waits for the operator's approval. It may come again.
    #[error(
        "the operator has to approve this device first: on the server's machine, `aggregator devices approve {client}` with the \
         --runs or --identity of the server, which prints the whole command"
    )]
    Pending {
        /// The device.
        client: ClientId,
    },
    /// The operator has thrown the device out.
    #[error(
        "the operator has revoked this device, and no ticket lets it in: if that was a mistake, ask the operator to approve \
         it again (`aggregator devices approve`)"
    )]
    Revoked,
    /// There is no such ticket at this server.
    #[error(
        "the server knows no such ticket: it was withdrawn, or is of another server; ask its operator for a new one"
    )]
    TicketUnknown,
    /// The ticket has expired.
    #[error("the ticket has expired: ask the server's operator for a new one")]
    TicketExpired,
    /// As many devices as it was made for have used the ticket.
    #[error(
        "the ticket was used by as many devices as it was made for: ask the server's operator for a new one"
    )]
    TicketUsedUp,
    /// It declares more training samples than the operator allows one device.
    #[error(
        "the device declares {declared} training samples, and this server takes at most {bound} from one device: use fewer, or ask its operator to raise round.max-samples"
    )]
    TooManySamples {
        /// What the device declares.
        declared: u64,
        /// The server's bound, `round.max-samples`.
        bound: u64,
    },
}

/// Samples that a program of the device's owner reads have no shape, and the samples of its run's model have none.
fn other_shape(expected: &[u32], found: &[u32]) -> String {
    match (expected, found) {
        ([], _) => "this run's model is of a framework of its users' own, and a program on the device trains it: join with \
                    --trainer COMMAND"
            .to_owned(),
        (_, []) => "this run's model is trained by edge-client itself: leave --trainer out, and give the samples with --data"
            .to_owned(),
        (expected, found) => format!(
            "this run's model takes samples of shape {}, the device's data has {}: use other data or another model",
            spelled(expected),
            spelled(found)
        ),
    }
}

impl Refusal {
    /// Whether it is about what the samples are, and not about who the device is.
    #[must_use]
    pub fn is_about_samples(&self) -> bool {
        matches!(self, Self::Shape { .. } | Self::Classes { .. } | Self::Unlabelled)
    }

    /// May the reason pass by itself, so that the device had better come again?
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Pending { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_learns_whether_it_needs_a_trainer() {
        let said = |expected: &[u32], found: &[u32]| {
            Refusal::Shape { expected: expected.to_vec(), found: found.to_vec() }.to_string()
        };
        assert!(said(&[], &[1, 28, 28]).contains("join with --trainer COMMAND"));
        assert!(said(&[1, 28, 28], &[]).contains("leave --trainer out"));
        assert!(said(&[1, 28, 28], &[13]).contains("shape 1x28x28, the device's data has 13"));
    }

    #[test]
    fn a_revoked_device_is_told_of_what_lets_it_in_again() {
        let text = Refusal::Revoked.to_string();
        assert!(
            text.contains("aggregator devices approve") && text.contains("no ticket lets it in"),
            "{text}"
        );
    }
}
