//! Whole simulated runs: virtual time, delays, cuts and crashes of either side.

use std::path::Path;
use std::time::Duration;

use aggregator::coordinator::Outcome;
use aggregator::round::{WaitedFor, jsonl};
use federation_tests::faults::Faults;
use federation_tests::faulty_disk::Loss;
use federation_tests::scenario::Scenario;
use federation_tests::schedule::Schedule;
use federation_tests::simulator::{Simulator, Troubles, model_of};
use models::ParamSet;

/// Schedules of the suite.
const SCHEDULES: u64 = 200;
const LIMIT: Duration = Duration::from_hours(24);

/// All four clients in every round, however long it takes.
fn patient(more: &[&str]) -> Scenario {
    let mut overrides = vec!["round.min-updates=4"];
    overrides.extend_from_slice(more);
    Scenario::small(&overrides)
}

#[test]
fn a_run_without_faults_completes_and_learns() {
    let scenario = patient(&[]);
    let model = model_of(&scenario, Faults::NONE, 1);
    let initial = scenario.initial();
    assert!(model.distance(&initial).unwrap() > 0.1, "three rounds of training move the model");
}

#[test]
fn any_faults_give_the_bits_of_a_run_without_faults() {
    let scenario = patient(&[]);
    let reference = model_of(&scenario, Faults::NONE, 0);
    for seed in 0..50 {
        assert_eq!(model_of(&scenario, Faults::HEAVY, seed), reference, "seed {seed}");
    }
}

/// Thousands are a program: `federation-lab schedules`.
#[test]
fn every_random_schedule_of_faults_ends_with_exact_sums_and_loses_nothing_accepted() {
    let mut troubles = Troubles::default();
    for seed in 0..SCHEDULES {
        // The seed is printed with what it ended in.
        println!("seed {seed}");
        let directory = tempfile::tempdir().unwrap();
        let played = Schedule::drawn(seed).play(directory.path(), false);
        troubles.silences += played.troubles.silences;
        troubles.twice += played.troubles.twice;
        troubles.resumed += played.troubles.resumed;
        troubles.resumed_tasks += played.troubles.resumed_tasks;
        troubles.jumps += played.troubles.jumps;
    }
    let Troubles { silences, twice, resumed, resumed_tasks, jumps, .. } = troubles;
    let counts = [silences, twice, resumed, resumed_tasks, jumps];
    assert!(counts.iter().all(|&count| count > 5), "{troubles:?}");
}

/// Two rounds that close by time, each without device 3, which would need half as long again.
fn without_the_straggler(directory: &Path) -> Simulator {
    let scenario = Scenario::small(&["run.rounds=2", "round.min-updates=2", "round.timeout=60"]);
    let mut simulator = Simulator::new(scenario, Faults::NONE, 0, directory);
    simulator.slow_down(3, Duration::from_secs(90));
    simulator
}

#[test]
fn a_round_that_was_decided_by_time_closes_as_decided_whenever_the_aggregator_dies() {
    let (reference, whole) = {
        let directory = tempfile::tempdir().unwrap();
        let mut simulator = without_the_straggler(directory.path());
        assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed));
        assert!(simulator.now() >= Duration::from_mins(2), "both rounds closed by time");
        let accepted: Vec<_> = simulator.records().iter().map(|round| round.accepted).collect();
        assert_eq!(accepted, [3, 3]);
        let whole = simulator.disk().operations();
        (simulator.model(), whole)
    };
    let (mut decided, mut undecided) = (0, 0);
    for fatal in 0..whole {
        let directory = tempfile::tempdir().unwrap();
        let mut simulator = without_the_straggler(directory.path());
        simulator.die_at(fatal, Loss::Nothing);
        assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed), "death at operation {fatal}");
        assert_eq!(simulator.server_deaths, 1, "death at operation {fatal}");
        let reopened = simulator.resumes.first().and_then(|resume| resume.open.as_ref());
        if reopened.is_some_and(|open| open.closing.is_some()) {
            decided += 1;
            let records = simulator.records();
            assert!(records.iter().all(|round| round.waited_for == WaitedFor::MaxTime), "{records:?}");
        }
        // While the decision itself is being written there is none, and the straggler is as welcome as before.
        let is_undecided = reopened.is_some_and(|open| open.closing.is_none() && open.accepted.len() == 3);
        if simulator.model() != reference {
            assert!(is_undecided, "death at operation {fatal}: {:?}", simulator.resumes);
            undecided += 1;
        }
    }
    assert!(decided > 20, "only {decided} deaths fell between a decision and its checkpoint");
    assert!(undecided <= 2 * DECISION, "{undecided} deaths gave another model");
}

#[test]
fn a_disk_that_is_full_for_a_while_changes_nothing_whenever_that_is() {
    let scenario = patient(&[]);
    let run = |full: std::ops::Range<usize>| {
        let directory = tempfile::tempdir().unwrap();
        let mut simulator = Simulator::new(scenario.clone(), Faults::NONE, 0, directory.path());
        simulator.fill_during(full.clone());
        assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed), "full during {full:?}");
        assert_eq!(simulator.server_deaths, 0, "full during {full:?}");
        let records: Vec<_> = simulator.records().iter().map(|round| (round.round, round.accepted)).collect();
        let once = simulator.trainings().values().all(|&times| times == 1);
        assert!(once, "full during {full:?}");
        (simulator.model(), records, simulator.disk().operations(), simulator.disk().waits())
    };
    let (reference, records, whole, _) = run(0..0);
    let mut waits = 0;
    for from in 0..whole {
        let (model, rounds, _, waited) = run(from..from + 5);
        assert!(model == reference && rounds == records, "full from operation {from}");
        waits += waited;
    }
    assert!(waits > whole, "only {waits} waits in {whole} runs");
}

/// Disk operations until a decision is durable: create, write in pieces, sync, rename.
const DECISION: usize = 14;

/// Whole runs with deaths, all to be compared with one without.
struct Trial {
    scenario: Scenario,
    reference: ParamSet,
    /// Disk operations of the run without a death.
    operations: usize,
    synced_uploads: bool,
}

impl Trial {
    fn new(synced_uploads: bool) -> Self {
        let scenario = patient(&["run.rounds=3"]);
        let directory = tempfile::tempdir().unwrap();
        let mut simulator = Simulator::new(scenario.clone(), Faults::NONE, 0, directory.path());
        simulator.synced_uploads = synced_uploads;
        assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed));
        assert_eq!(simulator.server_deaths, 0);
        let operations = simulator.disk().operations();
        assert!(operations > 150, "only {operations} operations were counted");
        Self { scenario, reference: simulator.model(), operations, synced_uploads }
    }

    /// The aggregator's first lives end in `deaths`.
    fn survives(&self, deaths: &[(usize, Loss)]) {
        let directory = tempfile::tempdir().unwrap();
        let mut simulator = Simulator::new(self.scenario.clone(), Faults::NONE, 0, directory.path());
        simulator.synced_uploads = self.synced_uploads;
        simulator.forgiving = !self.synced_uploads;
        for &(fatal, loss) in deaths {
            simulator.die_at(fatal, loss);
        }
        assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed), "{deaths:?}");
        assert!(simulator.server_deaths >= 1, "{deaths:?}");
        // Devices keep their updates until the receipt, so none of them trains twice.
        let once = simulator.trainings().values().all(|&times| times == 1);
        assert!(once || !self.synced_uploads, "{deaths:?}: {:?}", simulator.trainings());

        // The run is complete, and once the last process has ended no power failure can change that.
        if simulator.server().is_some() {
            simulator.disk().cut_power(Loss::Everything);
        }
        let run = simulator.run_directory();
        for path in [run.finished(), run.model(), run.report(), run.config()] {
            assert!(path.is_file(), "{deaths:?}: {}", path.display());
        }
        let text = std::fs::read_to_string(run.rounds()).unwrap();
        let rounds: Vec<_> = jsonl::read(&text).unwrap().records.iter().map(|record| record.round).collect();
        assert_eq!(rounds, [1, 2, 3], "{deaths:?}");
        assert_eq!(simulator.model(), self.reference, "{deaths:?}");
    }
}

#[test]
fn a_kill_at_any_disk_operation_loses_nothing() {
    let trial = Trial::new(true);
    for fatal in 0..trial.operations {
        trial.survives(&[(fatal, Loss::Nothing)]);
    }
}

#[test]
fn a_power_failure_at_any_disk_operation_loses_nothing() {
    let trial = Trial::new(true);
    for fatal in 0..trial.operations {
        for loss in [Loss::Everything, Loss::Some(fatal as u64)] {
            trial.survives(&[(fatal, loss)]);
        }
    }
}

#[test]
fn a_power_failure_soon_after_a_kill_loses_nothing() {
    let trial = Trial::new(true);
    for fatal in 0..trial.operations {
        // The second process reads, relies on what it reads, and dies; at another point every time.
        trial.survives(&[(fatal, Loss::Nothing), (fatal * 7 % 60, Loss::Everything)]);
    }
}

#[test]
fn updates_that_were_not_synced_are_asked_for_again_after_a_power_failure() {
    let trial = Trial::new(false);
    for fatal in 0..trial.operations {
        let loss = if fatal % 2 == 0 { Loss::Bytes } else { Loss::Some(fatal as u64) };
        trial.survives(&[(fatal, loss)]);
    }
}
