//! What the runs of an experiment will take: in seconds, from steps that are measured on this machine, and in operations, which are
//! the same on every machine.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use edge_client::bench::{BenchError, Pace};
use shared::algorithm::registry;

use super::plan::Planned;
use crate::config::{Config, Source};

/// An estimate of the time of some runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Processor time in seconds of all runs that could be estimated.
    pub seconds: f64,
    /// Runs of which it is not known how many samples they have.
    pub unknown: usize,
    /// Runs that make personal models beside it, which are not counted.
    pub personal: usize,
}

impl Cost {
    /// That of these runs. `measure` gives the pace of a network on one core, and is asked once for each network and size of batch.
    ///
    /// # Errors
    /// Those of `measure`.
    pub fn of<'a>(
        runs: impl IntoIterator<Item = &'a Planned>,
        mut measure: impl FnMut(&Config, usize) -> Result<Pace, BenchError>,
    ) -> Result<Self, BenchError> {
        let mut known: BTreeMap<(String, usize), Pace> = BTreeMap::new();
        let mut cost = Self::default();
        for run in runs {
            let config = &run.config;
            let Some(work) = Work::of(config) else {
                cost.unknown += 1;
                continue;
            };
            // Networks of one experiment have names of their own, but for lists of layers: their text tells these apart.
            let network = format!("{:?}", config.spec.architecture);
            let pace = match known.entry((network, work.batch)) {
                Entry::Occupied(found) => *found.get(),
                Entry::Vacant(place) => *place.insert(measure(config, work.batch)?),
            };
            cost.seconds += work.seconds(pace);
            cost.personal += usize::from(config.spec.personalised().is_some());
        }
        Ok(cost)
    }
}

/// Training and test samples of a run of which it is not known how many there are.
const ASSUMED: (usize, usize) = (10_000, 2_000);

/// The multiply-adds of a run, as far as its configuration tells: the same number on every machine, whether its data are there or not.
/// It is at least 1.
#[must_use]
pub fn operations(config: &Config) -> u64 {
    let network = &config.spec.architecture;
    let parameters = network.parameters().unwrap_or(0) as u64;
    let pass = network.multiply_adds().unwrap_or(0).max(parameters).max(1) as f64;
    let work = Work::of(config).or_else(|| Work::on(config, ASSUMED));
    // A step is a forward pass and, twice as long, a backward one.
    work.map_or(1, |work| work.seconds(Pace { trained: 3.0 * pass, tested: pass }).round().max(1.0) as u64)
}

/// What a run does, in samples.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Work {
    /// Samples in a batch.
    batch: usize,
    /// Samples that are trained on, in all rounds of all clients.
    trained: f64,
    /// By what a step of the algorithm exceeds one of plain training.
    factor: f64,
    /// Samples that models are tested on, in all tests.
    tested: f64,
}

impl Work {
    /// `None` if it is not known how many samples there are.
    fn of(config: &Config) -> Option<Self> {
        let samples = match &config.data.source {
            Source::Drawn { train, test } => (*train, *test),
            // The tests of published sets are about a sixth of their training samples.
            Source::Files { limit, test_limit, .. } => {
                let all = config.data.set.training_samples?;
                let most = |limit: &Option<usize>, all| limit.unwrap_or(all).min(all);
                let (all, tests) = match test_limit {
                    Some(tests) if config.data.pooled => ((all + all / 6).saturating_sub(*tests), *tests),
                    _ => (all, most(test_limit, all / 6)),
                };
                (most(limit, all), tests)
            }
            Source::Trainers => return None,
        };
        Self::on(config, samples)
    }

    /// With this number of training and test samples.
    fn on(config: &Config, (train, test): (usize, usize)) -> Option<Self> {
        let spec = &config.spec;
        let clients = config.data.clients;
        let validation = config.data.validation.unwrap_or(0);
        let train = train.saturating_sub(validation + config.server.labelled.unwrap_or(0));
        let own = (train as f64 / clients as f64 / f64::from(spec.training.chunks.max(1))).max(1.0);
        let cohort = config.policy.cohort(clients) as f64;
        let batch = spec.training.batch_of(own.round() as u64) as usize;
        let (rounds, epochs) = (f64::from(spec.rounds), f64::from(spec.training.epochs));
        let server = config.server.labelled.map_or(0.0, |labelled| {
            let alone = config.server.mixture.beta > 0.0;
            if alone { rounds * f64::from(config.server.epochs) * labelled as f64 } else { 0.0 }
        });
        // A forward pass is a third of a step.
        let memory = registry::build(&spec.algorithm).ok()?.client_memory();
        let factor = f64::from(memory.views.max(1)) * (1.0 + f64::from(memory.frozen) / 3.0);
        let tests = (1..=spec.rounds).filter(|&round| spec.evaluate.after(round, spec.rounds)).count();
        Some(Self {
            batch: batch.max(1),
            trained: rounds * cohort * epochs * own + server / factor,
            factor,
            tested: tests as f64 * (test + validation) as f64,
        })
    }

    fn seconds(&self, pace: Pace) -> f64 {
        self.trained * self.factor * pace.trained + self.tested * pace.tested
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::experiment::Experiment;
    use crate::compare::plan::Plan;

    fn plan(text: &str) -> Plan {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("e.toml");
        std::fs::write(&file, text).unwrap();
        Plan::of(Experiment::read(&file, "full").unwrap(), &[]).unwrap()
    }

    const TWO: &str = r#"
title = "two"
seeds = [1, 2]
[base]
data = { set = "glyphs", clients = 10, max-samples = 1000 }
run.rounds = 20
round.fraction = 0.5
training = { epochs = 3, batch = 10 }
evaluate.every = 5
[variants.fedavg]
[variants.moon]
model.name = "moon-cnn"
algorithm.moon.mu = 1.0
[forms.full]
"#;

    #[test]
    fn time_is_that_of_the_samples_that_are_trained_and_tested_on() {
        let plan = plan(TWO);
        let mut asked = Vec::new();
        let cost = Cost::of(&plan.runs, |config, batch| {
            asked.push((config.spec.architecture.name.clone(), batch));
            Ok(Pace { trained: 1e-3, tested: 1e-4 })
        });
        assert_eq!(asked, [("cnn-small".to_owned(), 10), ("moon-cnn".to_owned(), 10)], "once each");
        // 20 rounds of 5 clients with 100 samples, three times; 4 tests of 2,000.
        let fedavg = 30.0 + 0.8;
        // With two frozen networks beside.
        let moon = 30.0 * 5.0 / 3.0 + 0.8;
        let cost = cost.unwrap();
        assert!((cost.seconds - 2.0 * (fedavg + moon)).abs() < 1e-6, "{cost:?}");
        assert_eq!((cost.unknown, cost.personal), (0, 0));
    }

    #[test]
    fn operations_are_those_of_the_network_and_need_no_data() {
        let plan = plan(TWO);
        let [small, _, large, _] =
            &plan.runs.iter().map(|run| operations(&run.config)).collect::<Vec<_>>()[..]
        else {
            panic!("four runs")
        };
        let pass = plan.runs[0].config.spec.architecture.multiply_adds().unwrap();
        // 20 rounds of 5 clients with 100 samples, three times, of three passes each; 4 tests of 2,000.
        assert_eq!(*small, pass * (30_000 * 3 + 8_000));
        assert!(large > small);
        let own = TWO.replace(
            "set = \"glyphs\", clients = 10, max-samples = 1000",
            "set = \"images\", path = \"x\", shape = [1, 28, 28], class-names = [\"a\", \"b\"], clients = 10",
        );
        assert!(operations(&self::plan(&own).runs[0].config) > 1, "samples that are not counted yet");
    }

    #[test]
    fn samples_that_are_not_counted_yet_are_not_guessed() {
        let own = TWO.replace(
            "set = \"glyphs\", clients = 10, max-samples = 1000",
            "set = \"images\", path = \"x\", shape = [1, 28, 28], class-names = [\"a\", \"b\"], clients = 10",
        );
        let cost = Cost::of(&plan(&own).runs, |_, _| panic!("nothing to measure")).unwrap();
        assert_eq!((cost.unknown, cost.seconds.to_bits()), (4, 0));
    }
}
