//! MOON: its steps, and what its term does.

use models::{Network, mean_cosine, model_contrast};
use shared::message::Metric;
use shared::spec::Measures;

use super::objectives::{deep, measured, momentum, shares, with_parameters};
use super::*;

#[test]
fn moon_is_fedavg_without_its_term_and_in_the_first_round() {
    let training = momentum(training(2, 4));
    let fedavg = federate(&deep(with(&spec("fedavg"), training)), &shares(), 3);
    assert_eq!(federate(&deep(with_parameters("moon", "mu = 0", training)), &shares(), 3), fedavg);
    let moon = federate(&deep(with_parameters("moon", "mu = 5", training)), &shares(), 3);
    assert_eq!(moon[0], fedavg[0]);
    assert!(apart(&moon[1], &fedavg[1]) > 1e-4);
}

#[test]
fn moon_takes_the_steps_of_its_objective() {
    let (mu, tau) = (2.0, 0.7);
    let settings = momentum(training(3, 4));
    let spec = deep(with_parameters("moon", &format!("mu = {mu:?}\ntau = {tau:?}"), settings));
    let mut shifted = spec.clone();
    shifted.data.preparation.augmentation.random_shift = 1;
    let shares = shares();
    // Where samples change, so do their representations from epoch to epoch.
    for spec in [spec, shifted] {
        let mut federation = Federation::new(&spec, &shares);
        let w_t = federation.round();
        let w_prev = federation.locals[1].clone().unwrap().tensors;
        let network = |w: &ParamSet| Network::new(&spec.architecture, w, &Backend::cpu()).unwrap();
        let (mut global, mut previous) = (network(&w_t), network(&w_prev));
        let mut learner =
            Learner::new(&spec.architecture, &w_t, settings.optimizer.to_engine(), &Backend::cpu()).unwrap();
        let (mut terms, mut steps) = (0.0, 0.0);
        let mut order: Vec<usize> = (0..shares[1].len()).collect();
        let seed = client_seed(&spec, 2, client_id(1));
        for epoch in 0..u64::from(settings.epochs) {
            shuffle(&mut order, &mut seed.derive_numbered("epoch", epoch).rng());
            let changes = seed.derive("augmentation").derive_numbered("epoch", epoch);
            for positions in order.chunks(settings.batch as usize) {
                let (mut x, mut y) = (Vec::new(), Targets::default());
                spec.data.preparation.training(&shares[1], positions, &changes, &mut x, &mut y);
                let batch = Batch::with_targets(x, [positions.len(), 1, 2, 2], y).unwrap();
                let (z_glob, z_prev) =
                    (global.represent(&batch).unwrap(), previous.represent(&batch).unwrap());
                let mut contrast = |z: &[f32], gradient: &mut Vec<f32>| {
                    let term = model_contrast(z, z_glob, z_prev, (batch.len(), tau, mu), gradient);
                    terms += f64::from(term);
                    mu * term
                };
                learner.step_with_term(&batch, &mut contrast).unwrap();
                steps += 1.0;
            }
        }
        let (_, report) = federation.train(1);
        assert_eq!(report.metrics[0], Some(Metric::Contrast(terms / steps)));
        assert_eq!(federation.locals[1].as_ref().unwrap().tensors, learner.params().unwrap());
    }
}

/// Where they are alike, MOON's term drives a representation away from both, to the cosine that its documentation says.
#[test]
fn the_term_of_moon_is_least_away_from_both_models() {
    let (global, previous) = ([1.0, 0.0, 0.0], [0.8, 0.6, 0.0]);
    let mut z = vec![1.0, 0.3, 0.2];
    let mut gradient = Vec::new();
    for _ in 0..4_000 {
        let _ = model_contrast(&z, &global, &previous, (1, 0.5, 1.0), &mut gradient);
        z.iter_mut().zip(&gradient).for_each(|(z, g)| *z -= 0.1 * g);
    }
    let found = mean_cosine(&z, &global, 1);
    // c = 0.8.
    assert!((found - 0.1f64.sqrt()).abs() < 1e-3, "{found}");
}

#[test]
fn moon_holds_the_representations_of_this_small_network_nearer_to_the_global_ones() {
    let alignment = |mu: f64| {
        let measure = Measures { alignment: true, drift: false };
        let training = Training { measure, ..training(4, 4) };
        measured(&deep(with_parameters("moon", &format!("mu = {mu:?}"), training)))["alignment"]
    };
    let (without, with) = (alignment(0.0), alignment(5.0));
    assert!(with > without, "{without} {with}");
    assert!(with <= 1.0 + 1e-9 && without > -1.0);
}
