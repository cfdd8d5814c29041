//! The server's own training: the checks of `[server]` and of `data.labels`.

use shared::aggregation::Mixture;
use shared::algorithm::registry;
use shared::spec::LabelsAt;

use super::combinations::Combinations;
use super::{Raw, ServerPlan, ServerTable};
use crate::attack::Attack;
use crate::round::Plateau;

const KEYS: [&str; 5] = ["data.labels", "data.labelled", "server.epochs", "server.weight", "server.mixing"];

impl Combinations<'_> {
    /// `None` if it cannot be said, which is noted. Puts the default of the mixture into `raw`.
    pub(super) fn server(&mut self, raw: &mut Raw) -> Option<ServerPlan> {
        if KEYS.iter().any(|key| self.findings.is_doubtful(key)) {
            return None;
        }
        let labelled = raw.data.labelled.map(|count| count as usize);
        // An algorithm with a step of the server's own has its own place for what comes of it.
        let step = raw
            .algorithm
            .keys()
            .find(|name| registry::by_default(name).is_ok_and(|known| known.supervised().is_some()))
            .cloned();
        let mixed = labelled.is_some() && step.is_none();
        let default = if mixed { Mixture::PUBLISHED } else { Mixture::CLIENTS };
        raw.server.mixing.complete(default);
        let shares = raw.server.mixing.shares();
        let [clients, server, previous] = shares;
        let mix = (
            "server.mixing",
            format!(
                "server.mixing = {{ clients = {clients:?}, server = {server:?}, previous = {previous:?} }}"
            ),
        );
        let mixture = match Mixture::of(&shares) {
            Ok(mixture) => mixture,
            Err(error) => {
                self.refuse(&[mix], &error.to_string());
                return None;
            }
        };
        let trains = labelled.is_some() && (step.is_some() || mixture.beta > 0.0);
        let none = ("data.labelled", "no data.labelled".to_owned());
        let set = ("data.set", format!("data.set = \"{}\"", raw.data.set));
        let labels = ("data.labels", "data.labels = \"server\"".to_owned());
        match labelled {
            None if step.is_some() => {
                let name = step.unwrap_or_default();
                let reason = format!(
                    "a part of {name}'s model is trained by the server, on labelled samples of its own; say how many it \
                     keeps, data.labelled = 1000"
                );
                self.refuse(&[("algorithm", format!("[algorithm.{name}]")), none.clone()], &reason);
            }
            None if mixture.beta > 0.0 => {
                let reason = "the server has no labelled samples to train a model of its own on; say how many it keeps, \
                              data.labelled = 1000, or give the second share to the others";
                self.refuse(&[mix, none.clone()], reason);
            }
            Some(count) if raw.data.set.is_text() => {
                let reason = "text labels itself, so that every client has labels; leave data.labelled out";
                self.refuse(&[set.clone(), ("data.labelled", format!("data.labelled = {count}"))], reason);
            }
            _ => {}
        }
        if raw.data.labels == LabelsAt::Server {
            if labelled.is_none() {
                let reason =
                    "then no side has labels; say how many samples the server keeps, data.labelled = 1000";
                self.refuse(&[labels.clone(), none], reason);
            }
            if raw.evaluate.on_clients_every > 0 {
                let clients = (
                    "evaluate.on-clients-every",
                    format!("evaluate.on-clients-every = {}", raw.evaluate.on_clients_every),
                );
                self.refuse(
                    &[labels.clone(), clients],
                    "clients have no labels to test with; leave evaluate.on-clients-every out",
                );
            }
            if raw.data.set.is_text() {
                self.refuse(&[labels.clone(), set], "text labels itself; leave data.labels out");
            }
            if raw.simulation.attack == (Attack::LabelFlip {}) {
                let attack = ("simulation.attack.label-flip", "simulation.attack.label-flip".to_owned());
                self.refuse(&[labels, attack], "clients have no labels to flip; choose another attack");
            }
        }
        self.plateau(raw, trains);
        let ServerTable { epochs, batch, weight, plateau, .. } = raw.server;
        let batch = batch.unwrap_or(raw.training.batch);
        Some(ServerPlan { labelled, epochs, batch, weight, mixture, plateau })
    }

    /// Whether there is a rate that could fall, and in every round the loss that it goes by.
    fn plateau(&mut self, raw: &Raw, trains: bool) {
        let Some(patience) = raw.server.plateau.patience else {
            #[expect(clippy::float_cmp, reason = "only the default has its bits")]
            if raw.server.plateau.factor != Plateau::default().factor {
                let factor = (
                    "server.plateau.factor",
                    format!("server.plateau.factor = {}", raw.server.plateau.factor),
                );
                let none = ("server.plateau.patience", "no server.plateau.patience".to_owned());
                let reason = "the rate never falls; say after how many rounds, server.plateau.patience = 20, or leave \
                              server.plateau.factor out";
                self.refuse(&[factor, none], reason);
            }
            return;
        };
        let patience = ("server.plateau.patience", format!("server.plateau.patience = {patience}"));
        if raw.data.labelled.is_none() {
            let none = ("data.labelled", "no data.labelled".to_owned());
            let reason = "the server has nothing to train on; say how many samples it keeps, data.labelled = 1000, or leave \
                          server.plateau out";
            self.refuse(&[patience.clone(), none], reason);
        } else if !trains {
            let mix = ("server.mixing", format!("server.mixing.server = {}", raw.server.mixing.shares()[1]));
            let reason = "the server trains nothing; give its model a share, or leave server.plateau out";
            self.refuse(&[patience.clone(), mix], reason);
        }
        if raw.data.validation.is_none() {
            let none = ("data.validation", "no data.validation".to_owned());
            let reason =
                "the server keeps no samples to measure the loss on; say how many, data.validation = 1000";
            self.refuse(&[patience.clone(), none], reason);
        }
        if raw.evaluate.every != 1 {
            let every = ("evaluate.every", format!("evaluate.every = {}", raw.evaluate.every));
            let reason = "the patience is one of rounds, and each needs a test; set evaluate.every to 1";
            self.refuse(&[patience, every], reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::id::RunId;

    use super::*;
    use crate::config::{Config, ConfigErrors};

    fn read(overrides: &[&str]) -> Result<Config, ConfigErrors> {
        let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
        Config::validate(&Raw::layered(None, &overrides).expect("keys that exist"), RunId::from_bytes([1; 8]))
    }

    #[test]
    fn a_server_with_labels_mixes_as_published() {
        let plan = |overrides: &[&str]| read(overrides).expect("valid").server;
        assert_eq!(plan(&[]).mixture, Mixture::CLIENTS);
        let labelled = plan(&["data.labelled=100", "data.labels=server", "algorithm.fedmix={}"]);
        assert_eq!(
            (labelled.mixture, labelled.labelled, labelled.epochs),
            (Mixture::PUBLISHED, Some(100), 1)
        );
        let own =
            plan(&["data.labelled=100", "server.mixing={server=1}", "server.weight=2", "server.epochs=3"]);
        assert_eq!((own.mixture.beta, own.weight, own.epochs), (1.0, 2.0, 3));
        let effective = read(&["data.labelled=100"]).expect("valid").effective;
        assert_eq!(effective.server.mixing.clients, Some(0.5));
        assert_eq!(Mixture::of(&effective.server.mixing.shares()), Ok(Mixture::PUBLISHED));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_way_out() {
        for (overrides, parts) in [
            (
                &["data.labelled=100", "server.mixing={clients=0.33, server=0.33, previous=0.33}"][..],
                &["sum to 0.99", "server.mixing"][..],
            ),
            (
                &["server.mixing={clients=0.5, server=0.5}"],
                &["no labelled samples", "no data.labelled", "data.labelled = 1000"],
            ),
            (&["data.labels=server", "algorithm.fedmix={}"], &["no side has labels", "data.labelled = 1000"]),
            (
                &["data.labels=server", "data.labelled=50"],
                &["[algorithm.fedavg]", "use fedmix", "training.epochs = 0"],
            ),
            (&["data.labelled=50", "algorithm.local={}"], &["[algorithm.local]", "server.mixing"]),
            (&["data.labelled=50", "algorithm.scaffold={}"], &["[algorithm.scaffold]", "control variates"]),
            (
                &[
                    "data.labels=server",
                    "data.labelled=50",
                    "algorithm.fedmix={}",
                    "simulation.attack.label-flip={}",
                ],
                &["no labels to flip"],
            ),
            (
                &[
                    "data.labels=server",
                    "data.labelled=50",
                    "algorithm.fedmix={}",
                    "evaluate.on-clients-every=2",
                ],
                &["data.labels = \"server\"", "evaluate.on-clients-every = 2", "no labels to test with"],
            ),
            (
                &["data.set=shakespeare", "data.path=x", "model.name=char-lstm", "data.labelled=5"],
                &["text labels itself"],
            ),
            (&["algorithm.fedmatch={lambda-l2=1}"], &["[algorithm.fedmatch]", "data.labelled = 1000"]),
            (
                &[
                    "data.labelled=50",
                    "algorithm.fedmatch={lambda-l2=1}",
                    "server.mixing={clients=0.5, server=0.3, previous=0.2}",
                ],
                &["[algorithm.fedmatch]", "mixes nothing", "leave server.mixing out"],
            ),
            (
                &["data.labelled=50", "algorithm.fedmatch={}", "training.optimizer.sgd.learning-rate=0.1"],
                &["[algorithm.fedmatch]", "beyond it", "lambda-l2"],
            ),
            (
                &[
                    "data.labelled=50",
                    "algorithm.fedmatch={lambda-l2=1}",
                    "aggregation.weights=uniform",
                    "aggregation.rule.median={}",
                ],
                &["[algorithm.fedmatch]", "robust rule"],
            ),
            (&["server.plateau.patience=5"], &["server.plateau.patience = 5", "no data.labelled"]),
            (
                &["data.labelled=50", "server.plateau.factor=0.5"],
                &["server.plateau.factor = 0.5", "server.plateau.patience = 20"],
            ),
            (
                &["data.labelled=50", "server.mixing={clients=1}", "server.plateau.patience=5"],
                &["server.mixing.server = 0", "server trains nothing"],
            ),
            (
                &["data.labelled=50", "server.plateau.patience=5", "evaluate.every=2"],
                &["no data.validation", "evaluate.every = 2", "set evaluate.every to 1"],
            ),
            (&["data.labelled=5990", "data.clients=20"], &["10 training samples", "data.clients = 20"]),
        ] {
            let refused = read(overrides).err().map(|errors| errors.to_string()).unwrap_or_default();
            for part in parts {
                assert!(refused.contains(part), "{overrides:?}: {part:?} is not in {refused}");
            }
        }
        assert!(read(&["data.labels=server", "data.labelled=50", "training.epochs=0"]).is_ok(), "SL");
        let fedmatch = read(&["data.labelled=50", "data.labels=server", "algorithm.fedmatch={lambda-l2=1}"]);
        assert_eq!(fedmatch.expect("valid").server.mixture, Mixture::CLIENTS);
        let known =
            ["data.labelled=50", "data.validation=50", "evaluate.every=1", "server.plateau.patience=5"];
        for algorithm in ["algorithm.fedavg={}", "algorithm.fedmatch={lambda-l2=1}"] {
            let plan = read(&[&known[..], &[algorithm]].concat()).expect("valid").server;
            assert_eq!(plan.plateau, Plateau { patience: Some(5), factor: 0.1 });
        }
    }
}
