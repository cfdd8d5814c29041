//! Identities of whole rounds.

use super::*;

#[test]
fn fedsgd_is_fedavg_with_one_epoch_of_one_batch() {
    // The largest client's gradient is computed in two chunks.
    let shares = [view(3, 1), view(12, 2), view(1100, 3)];
    for decay in [0.0, 0.1] {
        let one_step =
            Training { optimizer: Sgd { rate: 0.5, momentum: 0.0, decay }.into(), ..training(1, 0) };
        let fedavg = federate(&with(&spec("fedavg"), one_step), &shares, 6);
        let fedsgd = federate(&with(&spec("fedsgd"), one_step), &shares, 6);
        for (round, (a, b)) in fedavg.iter().zip(&fedsgd).enumerate() {
            assert!(apart(a, b) < 1e-6, "decay {decay}, round {}: {}", round + 1, apart(a, b));
        }
        assert!(apart(&fedavg[5], &fedavg[0]) > 0.01, "a model that stands still proves nothing");
    }
}

/// Algorithm 1's `ClientUpdate`, written out.
fn plain_sgd(spec: &RunSpec, round: u32, index: usize, data: &View, start: &ParamSet) -> ParamSet {
    let optimizer = spec.training.optimizer.to_engine();
    let mut learner = Learner::new(&spec.architecture, start, optimizer, &Backend::cpu()).unwrap();
    let seed = client_seed(spec, round, client_id(index));
    let mut order: Vec<usize> = (0..data.len()).collect();
    for epoch in 0..spec.training.epochs {
        shuffle(&mut order, &mut seed.derive_numbered("epoch", u64::from(epoch)).rng());
        for positions in order.chunks(spec.training.batch as usize) {
            let (mut x, mut y) = (Vec::new(), Targets::default());
            data.fill(positions, &mut x, &mut y);
            learner.step(&Batch::with_targets(x, [positions.len(), 1, 2, 2], y).unwrap()).unwrap();
        }
    }
    learner.params().unwrap()
}

#[test]
fn fedavg_with_one_client_is_plain_sgd() {
    for optimizer in optimizers() {
        let spec = with(&spec("fedavg"), Training { optimizer: optimizer.into(), ..training(3, 4) });
        let data = view(10, 1);
        let mut expected = initial(&spec);
        for (round, found) in (1..).zip(federate(&spec, std::slice::from_ref(&data), 3)) {
            expected = plain_sgd(&spec, round, 0, &data, &expected);
            // w_t + (w_k - w_t) is w_k up to two roundings of f32.
            let bound = 4.0 * f32::EPSILON * expected.max_abs() * round as f32;
            let apart = apart(&found, &expected);
            assert!(apart <= bound, "{optimizer:?}, round {round}: {apart} of {bound}");
        }
    }
}

#[test]
fn a_rate_that_changes_with_every_step_is_that_of_the_schedule() {
    let data = view(10, 1);
    let schedule = Schedule::Exponential { gamma: 0.25 };
    let by_step = Training { schedule, schedule_by_step: true, warmup: 1, ..training(3, 0) };
    let spec = with(&spec("fedavg"), by_step);
    let mut learner =
        Learner::new(&spec.architecture, &initial(&spec), Sgd::plain(0.5), &Backend::cpu()).unwrap();
    let (mut x, mut y) = (Vec::new(), Targets::default());
    data.fill(&(0..data.len()).collect::<Vec<_>>(), &mut x, &mut y);
    let batch = Batch::with_targets(x, [data.len(), 1, 2, 2], y).unwrap();
    let models = federate(&spec, std::slice::from_ref(&data), 2);
    for step in 0..6 {
        let passed = f64::from(step) / 3.0;
        learner.set_rate(0.5 * (passed + 1.0 / 3.0).min(1.0) * 0.25f64.powf(passed));
        learner.step(&batch).unwrap();
        if step % 3 == 2 {
            let (found, expected) = (&models[step as usize / 3], learner.params().unwrap());
            assert!(apart(found, &expected) < 1e-6, "step {step}: {}", apart(found, &expected));
        }
    }
    let by_round = with(&spec, Training { schedule_by_step: false, ..by_step });
    assert!(apart(&models[1], &federate(&by_round, std::slice::from_ref(&data), 2)[1]) > 1e-3);
}

/// One of each kind, all of which keep something.
fn optimizers() -> [Optimizer; 4] {
    let sgd = Sgd { rate: 0.3, momentum: 0.9, decay: 0.01 };
    // The larger epsilon keeps values that differ in their last bit from steps of another direction.
    let adam = AdamSettings { epsilon: 1e-3, decay: 0.01, ..AdamSettings::with_rate(0.05) };
    [Optimizer::Sgd(sgd), Optimizer::Nesterov(sgd), Optimizer::Adam(adam), Optimizer::AdamW(adam)]
}

#[test]
fn an_optimizer_that_is_kept_goes_on_as_if_there_were_no_rounds() {
    let data = view(10, 1);
    for optimizer in optimizers() {
        let once = Training { optimizer: optimizer.into(), ..training(1, 0) };
        let steps = |keep_optimizer| {
            let spec = with(&spec("fedavg"), Training { keep_optimizer, ..once });
            federate(&spec, std::slice::from_ref(&data), 8).remove(7)
        };
        let spec = with(&spec("fedavg"), once);
        let mut learner =
            Learner::new(&spec.architecture, &initial(&spec), optimizer, &Backend::cpu()).unwrap();
        let (mut x, mut y) = (Vec::new(), Targets::default());
        data.fill(&(0..data.len()).collect::<Vec<_>>(), &mut x, &mut y);
        let batch = Batch::with_targets(x, [data.len(), 1, 2, 2], y).unwrap();
        (0..8).for_each(|_| assert!(learner.step(&batch).unwrap().is_finite()));
        let expected = learner.params().unwrap();
        assert!(apart(&steps(true), &expected) < 1e-5, "{optimizer:?}: {}", apart(&steps(true), &expected));
        assert!(apart(&steps(false), &expected) > 1e-3, "{optimizer:?}: each round begins anew");
    }
}

#[test]
fn fedavg_of_several_clients_is_the_weighted_mean_of_their_models() {
    let shares = [view(3, 1), view(7, 2), view(20, 3)];
    let mut means = Vec::new();
    for weights in [Weights::Samples, Weights::Uniform] {
        let aggregation = Aggregation { weights, ..Aggregation::default() };
        let spec = RunSpec { aggregation, ..with(&spec("fedavg"), training(2, 2)) };
        let w_0 = initial(&spec);
        let share_of = |share: &View| match weights {
            Weights::Samples => share.len() as f64 / 30.0,
            _ => 1.0 / 3.0,
        };
        let models: Vec<_> =
            (0..).zip(&shares).map(|(k, share)| plain_sgd(&spec, 1, k, share, &w_0)).collect();
        let found = federate(&spec, &shares, 1).remove(0);
        for (name, array) in &found {
            for (index, &value) in array.values().iter().enumerate() {
                let terms = models.iter().zip(&shares);
                let expected: f64 = terms
                    .map(|(model, share)| {
                        share_of(share) * f64::from(model.get(name).unwrap().values()[index])
                    })
                    .sum();
                assert!((f64::from(value) - expected).abs() < 1e-6, "{name}[{index}]: {value}, {expected}");
            }
        }
        means.push(found);
    }
    assert!(apart(&means[0], &means[1]) > 1e-3, "samples and uniform weights differ on these clients");
}

/// A round's updates go to three partial results, which are sent to another process, or not, and merged in any order.
#[test]
fn partial_results_that_travel_and_merge_in_any_order_give_the_same_bytes() {
    let rules = [Rule::Mean {}, Rule::ClippedMean { max_norm: 0.1 }];
    let every_weight = [Weights::Samples, Weights::Uniform, Weights::Loss];
    for name in registry::names() {
        for (weights, rule) in every_weight.into_iter().flat_map(|weights| rules.map(|rule| (weights, rule)))
        {
            let shares: Vec<View> = (0..7).map(|k| view(1 + 4 * k, k)).collect();
            let aggregation = Aggregation { weights, rule, ..Aggregation::default() };
            let spec = RunSpec { aggregation, ..spec(name) };
            let mut federation = Federation::new(&spec, &shares);
            let updates = federation.updates();
            let Federation { server, state, .. } = &federation;
            let expected = server.close(state, &updates, 1).to_bytes(Precision::F32);
            for attempt in 0..30 {
                let mut rng = Seed::root(attempt).rng();
                let mut order: Vec<usize> = (0..updates.len()).collect();
                shuffle(&mut order, &mut rng);
                // One of the three may stay empty.
                let begin = || server.algorithm.begin(&server.round(1)).unwrap();
                let mut partials = [begin(), begin(), begin()];
                for k in order {
                    let (update, report) = &updates[k];
                    let partial = &mut partials[shared::seed::below(3, &mut rng)];
                    server.fold(partial, k, update, *report, &server.round(1));
                }
                let travels = attempt % 3 > 0;
                let [mut first, mut second, third] =
                    partials.map(|partial| if travels { server.sent(partial) } else { partial });
                if attempt % 2 == 0 {
                    server.algorithm.merge(&mut second, third).unwrap();
                    server.algorithm.merge(&mut first, second).unwrap();
                } else {
                    server.algorithm.merge(&mut first, third).unwrap();
                    server.algorithm.merge(&mut first, second).unwrap();
                }
                let mut whole = begin();
                server.algorithm.merge(&mut whole, first).unwrap();
                let mut global = server.algorithm.restore(state.clone()).unwrap();
                server.algorithm.close(&mut global, whole, &server.round(1)).unwrap();
                let found = server.algorithm.store(global).to_bytes(Precision::F32);
                assert_eq!(found, expected, "{name}, {weights:?}, {rule:?}, attempt {attempt}");
            }
        }
    }
}

#[test]
fn rules_that_need_every_update_say_that_they_have_no_partial_results() {
    for name in registry::names() {
        for &rule in Rule::ALL {
            let aggregation = Aggregation { rule, ..Aggregation::default() };
            let spec = RunSpec { aggregation, ..spec(name) };
            let server = Server::new(&spec, &[view(3, 1)]);
            match server.algorithm.begin(&server.round(1)) {
                Ok(_) => assert!(!rule.needs_every_update(), "{name}, {rule:?}"),
                Err(AggregateError::NeedsEveryUpdate { rule: found }) => {
                    assert!(rule.needs_every_update() && found == rule.name(), "{name}, {rule:?}");
                }
                Err(other) => panic!("{name}, {rule:?}: {other}"),
            }
        }
    }
}

/// The partial result of another model, or of another round's scale, is an error and no panic.
#[test]
fn partial_results_of_another_round_are_not_merged() {
    for name in registry::names() {
        let (spec, other) = (spec(name), super::objectives::deep(spec(name)));
        let server = Server::new(&spec, &[view(3, 1)]);
        // The others count their clients, for any model.
        let sums = server.algorithm.personal().is_none() && server.algorithm.ensemble().is_none();
        let shares = [view(3, 1), view(300, 2), view(3, 3)];
        for (foreign, what) in
            [(Server::new(&other, &[view(3, 1)]), "model"), (Server::new(&spec, &shares), "scale")]
        {
            let mut own = server.algorithm.begin(&server.round(1)).unwrap();
            let partial = foreign.sent(foreign.algorithm.begin(&foreign.round(1)).unwrap());
            assert_eq!(server.algorithm.merge(&mut own, partial).is_err(), sums, "{name}, another {what}");
        }
    }
}

#[test]
fn sixteen_bits_on_the_wire_cost_a_bounded_error_and_half_the_bytes() {
    let shares = [view(3, 1), view(20, 2)];
    let spec = with(&spec("fedavg"), training(2, 2));
    let updates = Federation::new(&spec, &shares).updates();
    let largest = updates.iter().map(|(update, _)| update.tensors.max_abs()).fold(0.0, f32::max);
    let exact = federate(&spec, &shares, 1).remove(0);
    for (precision, relative) in [(Precision::F16, 2f32.powi(-11)), (Precision::BF16, 2f32.powi(-8))] {
        let short = RunSpec {
            update: Update {
                precision: precision.into(),
                broadcast: Some(spec.update.broadcast()),
                ..spec.update
            },
            ..spec.clone()
        };
        let found = federate(&short, &shares, 1).remove(0);
        // A mean errs by no more than its terms; f16 errs by 2^-25 where a value is tiny.
        let bound = largest * relative + 2f32.powi(-25) + 2.0 * f32::EPSILON;
        let error = apart(&found, &exact);
        assert!(error <= bound, "{precision:?}: {error} of {bound}");
        assert!(error > bound / 1000.0, "{precision:?}: {error} is no rounding at all");
        assert_eq!(precision.bytes() * 2, Precision::F32.bytes());
    }
}

#[test]
fn a_round_without_updates_is_an_error_and_leaves_the_model() {
    for name in registry::names() {
        let spec = spec(name);
        let server = Server::new(&spec, &[view(3, 1)]);
        let mut global = server.algorithm.init(initial(&spec));
        let empty = server.algorithm.begin(&server.round(1)).unwrap();
        assert!(server.algorithm.close(&mut global, empty, &server.round(1)).is_err(), "{name}");
        assert_eq!(server.algorithm.current_model(&global), &initial(&spec), "{name}");
    }
}
