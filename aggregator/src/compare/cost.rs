//! What the runs of an experiment will take: in seconds, from steps that are measured on this machine, and in operations, which are
//! the same on every machine.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use edge_client::bench::{BenchError, Pace};
use models::Architecture;

use self::passes::Passes;
use self::work::{Samples, passes};
use super::plan::Planned;
use crate::config::Config;

mod passes;
mod personal;
mod work;

/// An estimate of the time of some runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Processor time in seconds of all runs that could be estimated, with their personal models, if all of their rounds are needed.
    pub seconds: f64,
    /// The same if runs that end at a target need as many rounds to it as were published, where that is known.
    pub as_published: f64,
    /// Runs that cannot be estimated: as a rule since it is not known how many samples they have.
    pub unknown: usize,
}

/// A run that has rounds to go.
#[derive(Clone, Copy, Debug)]
pub struct ToRun<'a> {
    /// The run.
    pub run: &'a Planned,
    /// The rounds to its target that were [published](super::plan::Plan::published_rounds).
    pub published: Option<f64>,
    /// The rounds that it has closed.
    pub closed: u32,
}

impl Cost {
    /// That of these runs. `measure` gives the pace of a network on one core, and is asked once for each network and size of batch.
    ///
    /// # Errors
    /// Those of `measure`.
    pub fn of<'a>(
        runs: impl IntoIterator<Item = ToRun<'a>>,
        mut measure: impl FnMut(&Architecture, usize) -> Result<Pace, BenchError>,
    ) -> Result<Self, BenchError> {
        let mut known: BTreeMap<(String, usize), Pace> = BTreeMap::new();
        let mut cost = Self::default();
        for ToRun { run, published, closed } in runs {
            let samples = Samples::of(&run.config);
            let Some(work) = samples.and_then(|samples| passes(&run.config, samples)) else {
                cost.unknown += 1;
                continue;
            };
            let mut seconds = 0.0;
            for passes in work {
                // Networks of one experiment have names of their own, but for lists of layers: their text tells these apart.
                let network = format!("{:?}", passes.network);
                let pace = match known.entry((network, passes.batch)) {
                    Entry::Occupied(found) => *found.get(),
                    Entry::Vacant(place) => *place.insert(measure(&passes.network, passes.batch)?),
                };
                seconds += passes.at(pace);
            }
            let rounds = f64::from(run.config.spec.rounds.max(1));
            // Of a run that needed more already it is not known how many.
            let open = |needed: &f64| run.config.stop.target.is_some() && *needed > f64::from(closed);
            let needed = published.filter(open).unwrap_or(rounds);
            let share = |last: f64| (last.min(rounds) - f64::from(closed)).max(0.0) / rounds;
            cost.seconds += seconds * share(rounds);
            cost.as_published += seconds * share(needed);
        }
        Ok(cost)
    }
}

/// Samples of a run of which it is not known how many there are.
const ASSUMED: Samples = Samples { train: 10_000, test: 2_000 };

/// The multiply-adds of a run, as far as its configuration tells: the same number on every machine, whether its data are there or not.
/// It is at least 1.
#[must_use]
pub fn operations(config: &Config) -> u64 {
    let work = passes(config, Samples::of(config).unwrap_or(ASSUMED)).unwrap_or_default();
    work.iter().map(Passes::operations).sum::<f64>().round().max(1.0) as u64
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

    /// All of a run, which aims at nothing.
    fn all(run: &Planned) -> ToRun<'_> {
        ToRun { run, published: None, closed: 0 }
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
        let cost = Cost::of(plan.runs.iter().map(all), |network, batch| {
            asked.push((network.name.clone(), batch));
            Ok(Pace { trained: 1e-3, tested: 1e-4 })
        });
        assert_eq!(asked, [("cnn-small".to_owned(), 10), ("moon-cnn".to_owned(), 10)], "once each");
        // 20 rounds of 5 clients with 100 samples, three times; 4 tests of 2,000.
        let fedavg = 30.0 + 0.8;
        // Two frozen networks answer once for each sample that nothing random changes.
        let moon = 30.0 + 2.0 + 0.8;
        let cost = cost.unwrap();
        assert!((cost.seconds - 2.0 * (fedavg + moon)).abs() < 1e-6, "{cost:?}");
        assert_eq!((cost.unknown, cost.as_published.to_bits()), (0, cost.seconds.to_bits()));
    }

    #[test]
    fn runs_that_end_at_a_target_are_estimated_by_what_was_published() {
        let text = format!("{TWO}[paper]\nsource = 'x'\nrounds = {{ fedavg = 5, moon = 50 }}");
        let left = |text: &str, closed: u32| {
            let plan = plan(text);
            let runs = plan.runs.iter().map(|run| ToRun {
                published: plan.published_rounds(run.cell, run.variant),
                closed,
                ..all(run)
            });
            let cost = Cost::of(runs, |_, _| Ok(Pace { trained: 1.0, tested: 0.0 })).unwrap();
            (cost.seconds / 1500.0, cost.as_published / 1500.0)
        };
        let near = |(all, published): (f64, f64), expected: (f64, f64)| {
            assert!(
                (all - expected.0).abs() < 1e-9 && (published - expected.1).abs() < 1e-9,
                "{all} {published}"
            );
        };
        // Two seeds of two variants, of 20 rounds each; none has more than its rounds.
        let rounds = |text: &str| left(text, 0);
        near(rounds(&text), (80.0, 80.0));
        let ending = text.replace("run.rounds = 20", "run.rounds = 20\nearly-stopping.target = 0.9");
        near(rounds(&format!("target = 0.9{ending}")), (80.0, 2.0 * (5.0 + 20.0)));
        // What was done is not done again.
        near(left(&format!("target = 0.9{ending}"), 3), (4.0 * 17.0, 2.0 * (2.0 + 17.0)));
        near(left(&format!("target = 0.9{ending}"), 8), (4.0 * 12.0, 4.0 * 12.0));
        // What was counted to another accuracy says nothing.
        near(
            rounds(&format!("target = 0.9{}", ending.replace("[forms.full]", "[forms.full]\ntarget = 0.5"))),
            (80.0, 80.0),
        );
    }

    /// What stands above the variants, with 100 labelled samples at the server.
    fn labelled() -> String {
        let base = TWO.split("[variants.fedavg]").next().unwrap();
        base.replace("max-samples = 1000", "max-samples = 1000, labels = \"server\", labelled = 100")
    }

    #[test]
    fn pseudo_labels_take_a_forward_pass_for_each_prediction() {
        let plan =
            plan(&format!("{}[variants.fedmix]\nalgorithm.fedmix.predictions = 4\n[forms.full]", labelled()));
        let pace = Pace { trained: 1e-3, tested: 1e-4 };
        let cost = Cost::of([all(&plan.runs[0])], |_, _| Ok(pace)).unwrap();
        // 20 rounds of 5 clients with 90 samples, three times; each sample is predicted 4 times and learned from with two copies. The
        // server learns from 100 of its own in every round, in as many epochs as it has by default.
        let server = f64::from(plan.runs[0].config.server.epochs) * 20.0 * 100.0;
        let seconds = 27_000.0 * (3.0 * 1e-3 + 4.0 * 1e-4) + server * 1e-3 + 4.0 * 2_000.0 * 1e-4;
        assert!((cost.seconds - seconds).abs() < 1e-6, "{cost:?}, not {seconds}");
    }

    #[test]
    fn a_server_that_trains_as_a_step_of_the_algorithm_trains_once_more_than_there_are_rounds() {
        let without = "training.epochs = 0\nalgorithm.fedmatch = { helpers = 0 }\nserver.epochs = 3";
        let plan = plan(&format!("{}[variants.fedmatch]\n{without}\n[forms.full]", labelled()));
        let cost = Cost::of([all(&plan.runs[0])], |_, _| Ok(Pace { trained: 1.0, tested: 0.0 })).unwrap();
        assert!((cost.seconds - 21.0 * 3.0 * 100.0).abs() < 1e-6, "{cost:?}");
    }

    #[test]
    fn personal_models_are_counted() {
        let personal = |settings: &str| {
            let base = TWO.replace("[base]", &format!("[base]\npersonalisation = {{ {settings} }}"));
            let [base, ..] = base.split("[variants.moon]").collect::<Vec<_>>()[..] else {
                panic!("two parts")
            };
            let plan = plan(&format!("{base}[forms.full]"));
            // The classifier alone takes a hundredth of the whole network's time.
            let paced = |network: &Architecture, _| {
                let whole = !network.extractor.is_empty();
                Ok(if whole {
                    Pace { trained: 1.0, tested: 0.1 }
                } else {
                    Pace { trained: 0.01, tested: 0.001 }
                })
            };
            let plain = 30_000.0 + 8_000.0 * 0.1;
            Cost::of([all(&plan.runs[0])], paced).unwrap().seconds - plain
        };
        let is = |settings: &str, seconds: f64| {
            let counted = personal(settings);
            assert!((counted - seconds).abs() < 1e-6, "{settings}: {counted}, not {seconds}");
        };
        // Ten clients with 75 samples for the expert and 25 for the gate; each tests on all 2,000, the global model too.
        is("method = \"ft\", whole.epochs = 4", 10.0 * (4.0 * 75.0 + 0.1 * 2.0 * 2_000.0));
        is(
            "method = \"fb\", head.epochs = 40",
            10.0 * (0.1 * 75.0 + 40.0 * 75.0 * 0.01 + (0.1 + 0.001) * 2_000.0),
        );
        is(
            "method = [\"mf\", \"mfe\"], head.epochs = 40, gate.epochs = 9",
            10.0 * (0.1 * 75.0 + 40.0 * 75.0 * 0.01 + (0.1 + 0.001) * 25.0 + (0.1 + 0.001) * 2_000.0),
        );
        // In rounds 6, 11 and 16 the five clients of the cohort make them beside.
        is("method = \"none\", every = 5", (3.0 * 5.0 + 10.0) * 0.1 * 2_000.0);
    }

    #[test]
    fn samples_that_are_augmented_anew_go_through_the_extractor_in_every_epoch() {
        let settings =
            "personalisation = { method = \"mf\", augment = true, head.epochs = 40, gate.epochs = 9 }";
        let text = TWO.replace("[base]", &format!("[base]\naugment.random-shift = 1\n{settings}"));
        let run = &plan(&text).runs[0];
        let passes = personal::passes(&run.config, 100.0, 2_000).unwrap();
        let [whole, classifier] = &passes[..] else { panic!("{passes:?}") };
        assert_eq!((whole.trained, whole.tested), (0.0, 10.0 * (40.0 * 75.0 + 11.0 * 25.0 + 2_000.0)));
        assert_eq!(
            (classifier.trained, classifier.tested),
            (10.0 * 40.0 * 75.0, 10.0 * (11.0 * 25.0 + 2_000.0))
        );
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
        let plan = plan(&own);
        let runs = plan.runs.iter().map(all);
        let cost = Cost::of(runs, |_, _| panic!("nothing to measure")).unwrap();
        assert_eq!((cost.unknown, cost.seconds.to_bits()), (4, 0));
    }
}
