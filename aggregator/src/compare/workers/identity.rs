//! Which experiments are the same: those whose runs have the same names and configurations, by the same version of the program.

use sha2::{Digest as _, Sha256};

use crate::cluster::experiments::Description;
use crate::compare::plan::Plan;

/// `plan` as it is entered in the store, before anything is chosen in it.
#[must_use]
pub fn describe(plan: &Plan) -> Description {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    };
    add("federation experiment 1");
    add(env!("CARGO_PKG_VERSION"));
    add(&plan.experiment.form);
    let mut runs = Vec::new();
    for run in plan.possible() {
        add(&run.config.spec.name);
        add(&run.config.effective.without_local_paths().to_toml());
        runs.push(run.config.spec.name.clone());
    }
    Description {
        id: hash.finalize().into(),
        name: plan.experiment.title.clone(),
        form: plan.experiment.form.clone(),
        runs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::plan::tests::plan;

    #[test]
    fn what_changes_a_result_makes_another_experiment_and_what_does_not_leaves_it() {
        let id = |text: &str| describe(&plan(text, "full").expect("a plan")).id;
        let text = "seeds = 2\n[variants.x]\nmodel.name = 'linear'";
        assert_eq!(id(text), id(&format!("title = 'For people'\n{text}")));
        for other in [
            "seeds = 3\n[variants.x]\nmodel.name = 'linear'",
            "seeds = 2\n[variants.y]\nmodel.name = 'linear'",
            "seeds = 2\n[variants.x]\nmodel.name = 'linear'\nrun.rounds = 7",
        ] {
            assert_ne!(id(text), id(other), "{other}");
        }
    }

    #[test]
    fn all_runs_that_may_be_chosen_are_entered() {
        let text = "seeds = 2\n[variants.x]\nmodel.name = 'linear'\n[tune]\n\"training.batch\" = [4, 8]";
        let described = describe(&plan(text, "full").expect("a plan"));
        assert_eq!(described.runs, ["x--4--1", "x--8--1", "x--4--2", "x--8--2"]);
    }
}
