//! The split of an experiment into shards: the same on every machine at any time, since it follows from the experiment alone.
//!
//! What is split are units. A run is a unit by itself. Where values are tuned, all runs of a variant in a cell are one unit, the
//! candidates and then the chosen one with the other seeds: which one is chosen depends on all candidates. Nothing else depends on
//! another run: baselines, targets that are another variant's accuracy and mixtures of models are looked at when all shards are
//! collected.
//!
//! Units are taken in the order of their [`operations`], the largest first, and each falls to the shard
//! that has the least so far (Graham 1969: the busiest shard has at most a third more than in the best split).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Shard;
use crate::compare::cost::operations;
use crate::compare::plan::{Plan, Planned};

/// What a shard takes as a whole: cell, variant and, unless the variant is tuned, seed.
type Unit = (usize, usize, Option<u64>);

/// Which shard each run of an experiment falls to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The number of each unit's shard, counted from 1.
    numbers: BTreeMap<Unit, u16>,
    /// The multiply-adds of each shard.
    loads: Vec<u128>,
}

impl Split {
    /// The split of `plan` into this number of shards; what was chosen by now changes nothing.
    #[must_use]
    pub fn of(plan: &Plan, shards: u16) -> Self {
        let mut units: Vec<(Unit, u128)> = sizes(plan).into_iter().collect();
        // The sort is stable: units of one size stay in the order of the file.
        units.sort_by_key(|&(_, size)| Reverse(size));
        let mut loads = vec![(0_u128, 0_usize); usize::from(shards.max(1))];
        let mut numbers = BTreeMap::new();
        for (unit, size) in units {
            let (number, load) =
                (1..).zip(&mut loads).min_by_key(|(_, load)| **load).expect("there is a shard at least");
            *load = (load.0.saturating_add(size), load.1 + 1);
            numbers.insert(unit, number);
        }
        Self { numbers, loads: loads.into_iter().map(|(load, _)| load).collect() }
    }

    /// Whether this run falls to `shard`.
    #[must_use]
    pub fn has(&self, shard: Shard, run: &Planned) -> bool {
        self.numbers.get(&unit(run)) == Some(&shard.number())
    }

    /// The number of the shard that this run falls to, counted from 1.
    #[must_use]
    pub fn number(&self, run: &Planned) -> Option<u16> {
        self.numbers.get(&unit(run)).copied()
    }

    /// How many units there are: with more shards than this, some have nothing to run.
    #[must_use]
    pub fn units(&self) -> usize {
        self.numbers.len()
    }

    /// The part of all operations that the busiest shard has, in `(0, 1]`.
    #[must_use]
    pub fn busiest(&self) -> f64 {
        let all: u128 = self.loads.iter().sum();
        let most = self.loads.iter().copied().max().unwrap_or(0);
        most as f64 / all.max(1) as f64
    }
}

fn unit(run: &Planned) -> Unit {
    (run.cell, run.variant, run.candidate.is_none().then_some(run.seed))
}

/// The units with their multiply-adds. Of what is tuned the candidates with the first seed count, which are planned at any time, and the
/// mean of them for each other seed.
fn sizes(plan: &Plan) -> BTreeMap<Unit, u128> {
    let (first, seeds) = (plan.experiment.seeds.first(), plan.experiment.seeds.len() as u128);
    let mut found: BTreeMap<Unit, (u128, u128)> = BTreeMap::new();
    for run in plan.runs.iter().filter(|run| run.candidate.is_none() || Some(&run.seed) == first) {
        let (size, runs) = found.entry(unit(run)).or_default();
        *size = size.saturating_add(operations(&run.config).into());
        *runs += 1;
    }
    let whole = |(unit, (size, runs)): (Unit, (u128, u128))| {
        let is_tuned = unit.2.is_none();
        (unit, if is_tuned { size / runs * (runs + seeds - 1) } else { size })
    };
    found.into_iter().map(whole).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::compare::plan::tests::plan;

    /// Two cells of which one takes four times as long, a small and a large network, and one variant that is tuned.
    const MIXED: &str = r#"
seeds = 3
[base]
data.max-samples = 600
run.rounds = 10
[grid]
"training.epochs" = [1, 4]
[variants.small]
model.name = "linear"
[variants.large]
model.name = "lenet-5"
[variants.tuned]
model.name = "linear"
[tune.variants.tuned]
"training.optimizer.sgd.learning-rate" = [0.1, 0.2]
"#;

    fn mixed() -> Plan {
        plan(MIXED, "full").expect("a plan")
    }

    fn shard(number: u16, of: u16) -> Shard {
        format!("{number}/{of}").parse().expect("a shard")
    }

    /// The names of the runs of a shard, whichever candidates are chosen.
    fn names(plan: &Plan, shard: Shard) -> Vec<String> {
        let split = Split::of(plan, shard.of());
        let own = plan.possible().filter(|run| split.has(shard, run));
        own.map(|run| run.config.spec.name.clone()).collect()
    }

    #[test]
    fn every_run_falls_to_one_shard_of_any_number_of_them() {
        let plan = mixed();
        let mut all: Vec<String> = plan.possible().map(|run| run.config.spec.name.clone()).collect();
        all.sort();
        for of in (1..=20).chain([1000]) {
            let mut found: Vec<String> =
                (1..=of).flat_map(|number| names(&plan, shard(number, of))).collect();
            found.sort();
            assert_eq!(found, all, "{of} shards");
        }
        assert_eq!(names(&plan, shard(1, 1)).len(), all.len());
    }

    #[test]
    fn candidates_and_the_chosen_one_are_of_one_shard_whatever_was_chosen() {
        let mut plan = mixed();
        let before = Split::of(&plan, 4);
        let tuned = plan.variant("tuned").expect("it is there");
        for cell in 0..2 {
            let of = |run: &&Planned| (run.cell, run.variant) == (cell, tuned);
            let numbers: BTreeSet<_> = plan.possible().filter(of).map(|run| before.number(run)).collect();
            assert_eq!(numbers.len(), 1, "{numbers:?}");
        }
        assert!(plan.choose(&BTreeMap::from([((0, tuned), 1)])), "it was open");
        assert_eq!(Split::of(&plan, 4), before, "a choice moves nothing");
    }

    #[test]
    fn no_shard_has_more_than_the_least_one_by_more_than_a_unit() {
        let plan = mixed();
        let largest = sizes(&plan).into_values().max().expect("units");
        let total: u128 = sizes(&plan).into_values().sum();
        for of in 1..=20 {
            let split = Split::of(&plan, of);
            let (least, most) =
                (split.loads.iter().min().expect("one"), split.loads.iter().max().expect("one"));
            assert!(most - least <= largest, "{of}: {:?}", split.loads);
            assert_eq!(split.loads.iter().sum::<u128>(), total);
        }
        // Six units of the large network in the long cell and the short one: a pair of them each.
        let split = Split::of(&plan, 3);
        assert!(split.busiest() < 0.36, "{}", split.busiest());
    }

    #[test]
    fn equal_runs_are_dealt_in_turn() {
        let plan = plan("seeds = 5\n[variants.x]\nmodel.name = 'linear'", "full").expect("a plan");
        let seeds = |number| names(&plan, shard(number, 2));
        assert_eq!(
            (seeds(1), seeds(2)),
            (
                ["x--1", "x--3", "x--5"].map(str::to_owned).to_vec(),
                vec!["x--2".to_owned(), "x--4".to_owned()]
            )
        );
    }

    #[test]
    fn a_part_plans_its_own_runs_alone() {
        let mut part = mixed();
        let split = Split::of(&part, 4);
        let shard = (1..=4).map(|number| shard(number, 4)).find(|&shard| {
            part.runs.iter().any(|run| run.candidate.is_some() && run.cell == 1 && split.has(shard, run))
        });
        let shard = shard.expect("one of them tunes");
        part.restrict(|run| split.has(shard, run));
        let tuned: BTreeSet<_> =
            part.runs.iter().filter(|run| run.candidate.is_some()).map(|run| run.cell).collect();
        assert_eq!(part.undecided(), tuned.len(), "what others tune is not awaited");
        let variant = part.variant("tuned").expect("it is there");
        assert!(part.choose(&BTreeMap::from([((1, variant), 0)])));
        assert!(part.runs.iter().any(|run| (run.cell, run.variant, run.seed) == (1, variant, 3)));
    }
}
