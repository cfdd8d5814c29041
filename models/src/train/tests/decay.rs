//! What weight decay takes from.

use super::*;
use crate::architecture::DecayOn;
use crate::optimizer::{AdamSettings, Optimizer};

/// Along a gradient of 0 a step is the decay alone.
#[test]
fn steps_decay_what_they_are_told_to_and_nothing_else() {
    let (rate, decay) = (0.5, 0.25);
    let sgd = Sgd { rate, momentum: 0.9, decay };
    let adam = AdamSettings { decay, ..AdamSettings::with_rate(rate) };
    let architecture = Architecture::by_name("mlp-2nn", &[1, 4, 4], 3).unwrap();
    let params = architecture.initialise(|name| ChaCha8Rng::seed_from_u64(name.len() as u64)).unwrap();
    for backend in [Backend::cpu(), Backend::candle_on_cpu()] {
        for optimizer in
            [Optimizer::Sgd(sgd), Optimizer::Nesterov(Sgd { momentum: 0.0, ..sgd }), Optimizer::AdamW(adam)]
        {
            for on in [DecayOn::All, DecayOn::Weights, DecayOn::HiddenLinear] {
                let mut learner = Learner::new(&architecture, &params, optimizer, &backend).unwrap();
                learner.set_decay_on(on).unwrap();
                learner.apply(&params.zeros_like()).unwrap();
                let spared = architecture.spared_by(on).unwrap();
                for (name, after) in &learner.params().unwrap() {
                    let kept = if spared.contains(name) { 1.0 } else { (1.0 - rate * decay) as f32 };
                    let before = params.get(name).unwrap().values().iter();
                    let mut values = before.zip(after.values());
                    assert!(
                        values.all(|(before, after)| (kept * before - after).abs() < 1e-6),
                        "{optimizer:?} {on:?} {name}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_next_learner_spares_nothing() {
    let architecture = Architecture::by_name("mlp-2nn", &[1, 4, 4], 3).unwrap();
    let params = architecture.initialise(|name| ChaCha8Rng::seed_from_u64(name.len() as u64)).unwrap();
    let sgd = Sgd { decay: 0.25, ..Sgd::plain(0.5) };
    let mut used = Learner::new(&architecture, &params, sgd, &Backend::cpu()).unwrap();
    used.set_decay_on(DecayOn::HiddenLinear).unwrap();
    let mut next = Learner::reusing(Some(used), &architecture, &params, sgd, &Backend::cpu()).unwrap();
    let mut fresh = Learner::new(&architecture, &params, sgd, &Backend::cpu()).unwrap();
    for learner in [&mut next, &mut fresh] {
        learner.step(&noise(&architecture, 4)).unwrap();
    }
    assert_eq!(next.params().unwrap(), fresh.params().unwrap());
}
