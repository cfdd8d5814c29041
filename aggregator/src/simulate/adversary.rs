//! Attacking clients in a simulation.
//!
//! Client code knows nothing of attacks. To attack with manipulated updates or a false number of samples, a client gets a
//! connection that changes what it sends; to attack with wrong labels, it gets other data.

use std::collections::BTreeSet;
use std::sync::Arc;

use edge_client::address_book::Pass;
use edge_client::transport::{Channel, ConnectError, Connector, Outgoing};
use models::Limits;
use shared::data::{DataError, View};
use shared::message::ToServer;
use shared::outgoing;
use shared::payload::Payload;
use shared::record::Record;
use shared::spec::RunSpec;
use tokio::sync::mpsc;

use crate::attack::{Attack, Attackers};
use crate::config::Config;

/// The attack on a simulation and its attackers.
pub(super) struct Adversary {
    attack: Attack,
    among: BTreeSet<usize>,
    spec: Arc<RunSpec>,
}

/// The change of an attacker's messages on their way to the server.
#[derive(Clone, Debug)]
pub(super) struct Distortion {
    /// The factor of updates.
    factor: f32,
    /// The number of samples that it declares; `None` leaves the true one.
    samples: Option<u64>,
    /// Which client it is, by its number.
    client: u64,
    spec: Arc<RunSpec>,
}

impl Adversary {
    /// The adversary of a run, which may have no attackers.
    pub(super) fn of(config: &Config) -> Self {
        let among = |attackers: Attackers| attackers.among(config.data.clients, &config.spec.root_seed());
        Self {
            attack: config.attackers.map_or_else(Attack::default, |attackers| attackers.attack),
            among: config.attackers.map(among).unwrap_or_default(),
            spec: Arc::new(config.spec.clone()),
        }
    }

    /// The training data of all clients, with flipped labels for attackers with [`Attack::LabelFlip`].
    pub(super) fn poisoned(&self, shares: Vec<View>) -> Result<Vec<View>, DataError> {
        if self.attack != (Attack::LabelFlip {}) {
            return Ok(shares);
        }
        let poison = |(index, share): (usize, View)| {
            if self.among.contains(&index) { with_flipped_labels(&share) } else { Ok(share) }
        };
        shares.into_iter().enumerate().map(poison).collect()
    }

    /// The change of this client's messages; `None` if they are sent unchanged.
    pub(super) fn distortion_of(&self, client: usize) -> Option<Distortion> {
        let factor = self.attack.factor().filter(|_| self.among.contains(&client))?;
        Some(Distortion {
            factor,
            samples: self.attack.samples(),
            client: client as u64,
            spec: self.spec.clone(),
        })
    }

    /// The number of samples that this client declares if it has `samples`.
    pub(super) fn declared(&self, client: usize, samples: usize) -> u64 {
        let inflated = self.attack.samples().filter(|_| self.among.contains(&client));
        inflated.unwrap_or(samples as u64)
    }
}

impl Distortion {
    /// What is sent instead of a message.
    fn of(&self, message: Outgoing) -> Outgoing {
        match message {
            Outgoing::Update(mut header, payload) => {
                if let Some(declared) = self.samples {
                    // Anything else would be rejected: the server knows how many of these a round trains on.
                    header.report.samples = self.spec.samples_in(header.round, declared);
                }
                let payload = self.distorted(&payload, header.round);
                Outgoing::Update(header, payload)
            }
            Outgoing::Message(mut message) => {
                if let (ToServer::Hello(hello), Some(declared)) = (&mut *message, self.samples) {
                    hello.samples = declared;
                }
                Outgoing::Message(message)
            }
        }
    }

    /// The update times the factor.
    fn distorted(&self, payload: &Payload, round: u32) -> Payload {
        let limits = Limits { max_bytes: payload.len() as u64, max_values: u64::MAX, ..Limits::default() };
        let mut update =
            Record::update_from_payload(payload, limits).expect("a client sends what it has encoded");
        update.tensors.scale(self.factor);
        let seed = self.spec.root_seed().derive("attack").derive_numbered("round", u64::from(round));
        outgoing::payload(&update, &self.spec, &seed.derive_numbered("client", self.client))
    }
}

/// A connector whose messages are distorted before they are sent, if its client attacks.
#[derive(Clone)]
pub(super) struct Distorting<C> {
    pub(super) connector: C,
    pub(super) distortion: Option<Distortion>,
}

impl<C: Connector> Connector for Distorting<C> {
    async fn connect(&mut self, pass: Pass) -> Result<Channel, ConnectError> {
        let channel = self.connector.connect(pass).await?;
        let Some(distortion) = self.distortion.clone() else { return Ok(channel) };
        let Channel { server, elsewhere, outgoing: to_server, incoming } = channel;
        let (outgoing, mut from_client) = mpsc::unbounded_channel();
        // The task ends when the client drops its end of the channel, and then drops the other.
        tokio::spawn(async move {
            while let Some(message) = from_client.recv().await {
                if to_server.send(distortion.of(message)).is_err() {
                    return;
                }
            }
        });
        Ok(Channel { server, elsewhere, outgoing, incoming })
    }
}

/// The same samples with the labels `C - 1 - y`.
fn with_flipped_labels(share: &View) -> Result<View, DataError> {
    if share.is_empty() {
        return Ok(share.clone());
    }
    Ok(View::whole(Arc::new(share.to_dataset()?.with_flipped_labels())))
}

#[cfg(test)]
mod tests {
    use models::{Array, ParamSet, Precision};
    use shared::data::Dataset;

    use super::*;

    #[test]
    fn an_update_under_way_is_multiplied_and_nothing_else() {
        let mut tensors = ParamSet::new();
        tensors.insert("w", Array::new([2], vec![1.5, -2.0]).expect("two values"));
        let update = Record { tensors, scalars: vec![7], ..Record::default() };
        for precision in [Precision::F32, Precision::F16] {
            let mut spec = RunSpec::example("fedavg");
            spec.update.precision = precision.into();
            let distortion = Distortion { factor: -3.0, samples: None, client: 0, spec: Arc::new(spec) };
            let sent = distortion.distorted(&update.to_payload(precision), 1);
            let found = Record::from_payload(&sent, Limits::default()).expect("a record");
            assert_eq!(found.tensors.get("w").expect("there").values(), [-4.5, 6.0]);
            assert_eq!(found.scalars, [7]);
            assert_eq!(sent.len(), update.to_bytes(precision).len());
        }
    }

    #[test]
    fn flipped_labels_are_counted_from_the_other_end() {
        let set = Dataset::new(vec![1, 1, 1], vec![10, 20, 30], [0_u8, 2, 9], 10).expect("a data set");
        let share = View::select(Arc::new(set), vec![2, 1]).expect("indices");
        let flipped = with_flipped_labels(&share).expect("some samples");
        let (mut x, mut y, mut before) = (Vec::new(), models::Targets::default(), Vec::new());
        share.fill(&[0, 1], &mut before, &mut y);
        assert_eq!(y.classes(), [9, 2]);
        flipped.fill(&[0, 1], &mut x, &mut y);
        assert_eq!((x, y.classes()), (before, &[0, 7][..]));
        let none = View::select(share.dataset().clone(), Vec::new()).expect("none");
        assert!(with_flipped_labels(&none).expect("none").is_empty());
    }
}
