//! Versions of the protocol, and which messages belong to which.
//!
//! Both sides offer the versions that they speak in the TLS handshake (ALPN), the newest first, and the newest one that both
//! know is spoken on the connection. A program speaks the version of its time and at least the one before: devices and server
//! may be updated in any order.
//!
//! | version | brought |
//! |---|---|
//! | 2 | keys of devices and servers in the handshake (version 1 had certificates, and is not spoken any more) |
//! | 3 | tickets, new keys of servers, transfers that go on where they were cut, and refusals for these |
//! | 4 | what a run asks of a device before it trains, and a device's *not now* |
//! | 5 | how many samples a device leaves out |
//! | 6 | the run specification as text, which can grow; a device's word that it cannot follow one; two reasons for a rejection, one for a refusal; which client state a device keeps, and must have; how a device is to read its samples; that it cannot test the run's models; how many rounds have failed before a task; frozen parameters; secure aggregation; models as differences; the server's other addresses |
//!
//! # What may change, and how
//!
//! | what | how it grows | when a version is raised |
//! |---|---|---|
//! | messages | new ones at the end of their enum; those that exist keep their bytes (golden files in `tests/golden`) | with every new message |
//! | run specification ([`SpecText`](crate::spec::SpecText)) | new keys, alternatives, layers and algorithms, with a default that means *as before*: a device that does not know what a run uses refuses it by the name of the key | never |
//! | state directories | every file has a version of its own and is read as that; unknown versions are refused by name | with every change of a file |
//! | checkpoints and all of a run's `state/` | as state directories, and each file ends with a checksum; an aggregator goes on with the runs of the version before, whose files have none | with every change of a file |
//! | `rounds.jsonl` | new fields; readers pass over those that they do not know | never |
//! | database | migrations, each in one transaction, forward alone | the schema's number, with every migration |
//! | configuration keys | a renamed key is read by its old name for one release, and says so | never |
//!
//! Version N speaks with N and N-1, in both directions. What is older may be dropped.

mod positional;

use crate::message::positional::PositionalSpec;
use crate::message::{Discard, Metric, Refusal, Rejection, TaskHeader, ToClient, ToServer, Verdict, reason};

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// The oldest that is spoken.
    V2,
    /// With enrolment.
    V3,
    /// With conditions.
    V4,
    /// With the samples that a device leaves out.
    V5,
    /// The newest: the specification is a text.
    V6,
}

impl Protocol {
    /// All that this program speaks, the newest first.
    pub const SPOKEN: [Self; 5] = [Self::V6, Self::V5, Self::V4, Self::V3, Self::V2];

    /// The message with which a peer that speaks this version is sent a task.
    #[must_use]
    pub fn task(self, header: TaskHeader) -> ToClient {
        let TaskHeader { round, work, failed, offset } = header;
        match (failed, offset) {
            (1.., _) if self >= Self::V6 => ToClient::TaskAfterFailures { round, work, failed, offset },
            (_, 0) => ToClient::Task { round, work },
            _ => ToClient::TaskRest { round, work, offset },
        }
    }

    /// Its name in the handshake.
    #[must_use]
    pub fn name(self) -> &'static [u8] {
        match self {
            Self::V2 => b"federation/2",
            Self::V3 => b"federation/3",
            Self::V4 => b"federation/4",
            Self::V5 => b"federation/5",
            Self::V6 => b"federation/6",
        }
    }

    /// The version that a handshake has agreed on.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        Self::SPOKEN.into_iter().find(|version| version.name() == name)
    }

    /// What is offered in a handshake.
    #[must_use]
    pub fn offered() -> Vec<Vec<u8>> {
        Self::SPOKEN.map(|version| version.name().to_vec()).to_vec()
    }
}

impl ToServer {
    /// The version that brought this message.
    #[must_use]
    pub fn since(&self) -> Protocol {
        match self {
            Self::Hello(_) | Self::Heartbeat(_) | Self::Update(_) | Self::Failed { .. } | Self::Goodbye => {
                Protocol::V2
            }
            Self::Redeem(_) | Self::ResumePoint(_) | Self::UpdateRest { .. } => Protocol::V3,
            Self::Ineligible { .. } => Protocol::V4,
            Self::SkippedSamples { .. } => Protocol::V5,
            Self::Declined { .. }
            | Self::ClientState { .. }
            | Self::Untested { .. }
            | Self::WantsFrozen { .. }
            | Self::Secure { .. }
            | Self::Base { .. } => Protocol::V6,
        }
    }

    /// The message as a peer of this version understands it. `None` if it has to do without: nothing depends on that.
    #[must_use]
    pub fn for_peer(mut self, version: Protocol) -> Option<Self> {
        if let Self::Update(header) | Self::UpdateRest { header, .. } = &mut self {
            for metric in &mut header.report.metrics {
                *metric = metric.filter(|metric| metric.since() <= version);
            }
        }
        (self.since() <= version).then_some(self)
    }
}

impl Metric {
    /// The version that brought this measurement.
    #[must_use]
    pub fn since(self) -> Protocol {
        match self {
            Self::Alignment(_)
            | Self::Drift(_)
            | Self::OwnAccuracy(_)
            | Self::OwnLoss(_)
            | Self::Coverage(_)
            | Self::ClassCoverage(_)
            | Self::Entropy(_)
            | Self::Tests(..)
            | Self::Gate(..) => Protocol::V2,
            Self::TrainAccuracy(_) | Self::Own(..) | Self::Contrast(_) => Protocol::V6,
        }
    }
}

impl ToClient {
    /// The version that brought this message.
    #[must_use]
    pub fn since(&self) -> Protocol {
        match self {
            Self::Welcome { .. }
            | Self::Counted { .. }
            | Self::Samples { .. }
            | Self::TaskAfterFailures { .. }
            | Self::Frozen { .. }
            | Self::Secure { .. }
            | Self::BaseTask { .. }
            | Self::Servers { .. }
            | Self::Receipt {
                verdict:
                    Verdict::Rejected(Rejection::Diverged | Rejection::NothingToLearn)
                    | Verdict::Discarded(Discard::Void),
                ..
            } => Protocol::V6,
            Self::PositionalWelcome { .. }
            | Self::Task { .. }
            | Self::Receipt { .. }
            | Self::Finished { .. } => Protocol::V2,
            Self::Refused(refusal) => match refusal {
                Refusal::Shape { .. }
                | Refusal::Classes { .. }
                | Refusal::NoSamples
                | Refusal::Replaced
                | Refusal::Protocol(_)
                | Refusal::Unlabelled => Protocol::V2,
                Refusal::Identity { .. }
                | Refusal::Unknown
                | Refusal::Pending { .. }
                | Refusal::Revoked
                | Refusal::TicketUnknown
                | Refusal::TicketExpired
                | Refusal::TicketUsedUp => Protocol::V3,
                Refusal::TooManySamples { .. } => Protocol::V6,
            },
            Self::ServerKey { .. } | Self::ResumePoint(_) | Self::TaskRest { .. } => Protocol::V3,
            Self::Conditions(_) => Protocol::V4,
        }
    }

    /// The message as a peer of this version understands it. `None` if it has to do without: nothing depends on that.
    #[must_use]
    pub fn for_peer(self, version: Protocol) -> Option<Self> {
        match self {
            message if message.since() <= version => Some(message),
            Self::Welcome { spec, wants } => {
                let positional = spec.read().ok().as_ref().and_then(PositionalSpec::of);
                let reason = "this run uses what came with a newer edge-client: update it";
                Some(positional.map_or_else(
                    || Self::Refused(Refusal::Protocol(reason.to_owned())),
                    |spec| Self::PositionalWelcome { spec: Box::new(spec), wants },
                ))
            }
            // Any reason is understood as text.
            Self::Refused(refusal) => Some(Self::Refused(Refusal::Protocol(reason(&refusal)))),
            Self::Receipt { round, verdict: Verdict::Rejected(rejection) } => {
                let verdict = Verdict::Rejected(Rejection::Layout { reason: reason(&rejection) });
                Some(Self::Receipt { round, verdict })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ClientId;
    use crate::message::{TrainReport, UpdateHeader};

    #[test]
    fn versions_have_names_of_their_own() {
        for version in Protocol::SPOKEN {
            assert_eq!(Protocol::named(version.name()), Some(version));
        }
        assert!(Protocol::SPOKEN.is_sorted_by(|newer, older| newer > older));
        assert_eq!(Protocol::named(b"federation/1"), None);
    }

    #[test]
    fn an_older_peer_is_told_why_in_words_and_nothing_that_it_does_not_know() {
        let client = ClientId::from_bytes([1; 16]);
        for refusal in [Refusal::Unknown, Refusal::Revoked, Refusal::Pending { client }] {
            let told = ToClient::Refused(refusal.clone()).for_peer(Protocol::V2);
            let Some(ToClient::Refused(Refusal::Protocol(text))) = told else { panic!("{told:?}") };
            assert_eq!(text, reason(&refusal));
            let message = ToClient::Refused(refusal);
            assert_eq!(message.clone().for_peer(Protocol::V3), Some(message));
        }
        let refusal = Refusal::TooManySamples { declared: 1 << 32, bound: 5000 };
        let told = ToClient::Refused(refusal.clone()).for_peer(Protocol::V5);
        assert_eq!(told, Some(ToClient::Refused(Refusal::Protocol(reason(&refusal)))));
        let message = ToClient::Refused(refusal);
        assert_eq!(message.clone().for_peer(Protocol::V6), Some(message));
        for rejection in [Rejection::Diverged, Rejection::NothingToLearn] {
            let message = ToClient::Receipt { round: 3, verdict: Verdict::Rejected(rejection.clone()) };
            assert_eq!(message.clone().for_peer(Protocol::V6), Some(message.clone()));
            let told = Verdict::Rejected(Rejection::Layout { reason: reason(&rejection) });
            let told = Some(ToClient::Receipt { round: 3, verdict: told });
            assert_eq!(message.for_peer(Protocol::V5), told);
        }
        let key = crate::identity::PublicKey::from_bytes([1; 32]);
        assert_eq!(ToClient::ServerKey { key }.for_peer(Protocol::V2), None);
        let servers = ToClient::Servers { addresses: vec!["lab:4433".to_owned()] };
        assert_eq!(servers.clone().for_peer(Protocol::V5), None);
        assert_eq!(servers.clone().for_peer(Protocol::V6), Some(servers));
        let over = ToClient::Finished { rounds: 3 };
        assert_eq!(over.clone().for_peer(Protocol::V2), Some(over));
    }

    #[test]
    fn an_older_server_is_sent_no_measurement_that_it_does_not_know() {
        let mut report = TrainReport { samples: 3, ..TrainReport::default() };
        report.metrics[..2].copy_from_slice(&[Some(Metric::Contrast(0.5)), Some(Metric::Drift(1.0))]);
        let update = |report| ToServer::Update(UpdateHeader { round: 2, report });
        assert_eq!(update(report).for_peer(Protocol::V6), Some(update(report)));
        let told = TrainReport {
            metrics: report.metrics.map(|metric| metric.filter(|of| matches!(of, Metric::Drift(_)))),
            ..report
        };
        assert_eq!(update(report).for_peer(Protocol::V5), Some(update(told)));
        assert_eq!(ToServer::Declined { reason: "full".to_owned() }.for_peer(Protocol::V5), None);
    }

    #[test]
    fn a_specification_reaches_a_peer_of_the_version_before_whole() {
        use crate::spec::personalisation::{Method, Methods};
        use crate::spec::{Personalisation, RunSpec, SpecText, Training};

        let mut spec = RunSpec {
            training: Training { chunks: 3, clip_norm: Some(0.5), ..Training::default() },
            personalisation: Box::new(Personalisation {
                method: Some(Methods(vec![Method::Fb])),
                ..Personalisation::default()
            }),
            ..RunSpec::example("fedprox")
        };
        spec.data.preparation.augmentation.horizontal_flip = 0.1;
        spec.update.broadcast = Some(spec.update.broadcast());
        let welcome = ToClient::Welcome { spec: SpecText::of(&spec), wants: Some(2) };
        assert_eq!(welcome.clone().for_peer(Protocol::V6), Some(welcome.clone()));
        let Some(ToClient::PositionalWelcome { spec: told, wants: Some(2) }) = welcome.for_peer(Protocol::V5)
        else {
            panic!("no welcome")
        };
        spec.update.broadcast = None;
        assert_eq!(told.into_spec(), Ok(spec));
    }

    #[test]
    fn a_peer_of_the_version_before_is_refused_in_words_what_it_cannot_be_told() {
        use models::Layer;

        use crate::spec::{RunSpec, SpecText, Training};

        let spec = RunSpec::example("fedavg");
        let algorithm = SpecText::of(&spec).as_str().replace("fedavg", "fednew").into();
        let training = Training { warmup: 5, ..spec.training };
        let key = SpecText::of(&RunSpec { training, ..spec.clone() });
        let mut architecture = spec.architecture.clone();
        architecture.extractor.push(Layer::Residual { body: vec![Layer::Silu], shortcut: vec![] });
        let layer = SpecText::of(&RunSpec { architecture, ..spec.clone() });
        let mut architecture = spec.architecture.clone();
        architecture.frozen = Some(models::Frozen::named(vec!["head.fc.bias".to_owned()]));
        let frozen = SpecText::of(&RunSpec { architecture, ..spec });
        for spec in [algorithm, key, layer, frozen] {
            let told = ToClient::Welcome { spec, wants: None }.for_peer(Protocol::V5);
            let Some(ToClient::Refused(Refusal::Protocol(text))) = told else { panic!("{told:?}") };
            assert!(text.contains("update it"), "{text}");
        }
    }
}
