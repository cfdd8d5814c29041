//! Weights, rules, server optimisers and buffers: independent of each other and of the algorithm.

use models::Layer;

use super::*;

fn aggregated(spec: &RunSpec, aggregation: Aggregation) -> RunSpec {
    RunSpec { aggregation, ..spec.clone() }
}

fn server(optimizer: ServerOptimizer) -> Aggregation {
    Aggregation { server_optimizer: optimizer, ..Aggregation::default() }
}

fn shares() -> Vec<View> {
    (0..5).map(|k| view(4 + 5 * k, k)).collect()
}

#[test]
fn server_sgd_with_rate_one_is_plain_averaging_to_the_bit() {
    let shares = shares();
    let spec = with(&spec("fedavg"), training(2, 3));
    let plain = federate(&spec, &shares, 3);
    // A momentum that is too small to count takes the other branch of the code.
    for momentum in [0.0, 1e-30] {
        let sgd = ServerOptimizer::Sgd { learning_rate: 1.0, momentum };
        assert_eq!(federate(&aggregated(&spec, server(sgd)), &shares, 3), plain, "{momentum}");
    }
    let half = ServerOptimizer::Sgd { learning_rate: 0.5, momentum: 0.0 };
    let found = federate(&aggregated(&spec, server(half)), &shares, 1).remove(0);
    let w_0 = initial(&spec);
    let (full, half) = (plain[0].clone().difference(&w_0).unwrap(), found.difference(&w_0).unwrap());
    let mut twice = half;
    twice.scale(2.0);
    assert!(apart(&twice, &full) < 1e-6);
}

/// `w_{t+1}` of an optimiser with state, from the deltas of plain averaging of the same updates, with the state kept here.
#[test]
fn moments_survive_the_round_in_the_checkpoint() {
    let shares = shares();
    let spec = with(&spec("fedavg"), training(1, 4));
    for optimizer in [
        ServerOptimizer::Sgd { learning_rate: 0.7, momentum: 0.9 },
        ServerOptimizer::Adagrad { learning_rate: 0.1, beta1: 0.3, tau: 1e-2 },
        ServerOptimizer::Adam { learning_rate: 0.1, beta1: 0.9, beta2: 0.99, tau: 1e-2 },
        ServerOptimizer::Yogi { learning_rate: 0.1, beta1: 0.9, beta2: 0.99, tau: 1e-2 },
    ] {
        let adaptive = aggregated(&spec, server(optimizer));
        let mut federation = Federation::new(&adaptive, &shares);
        let plain = Server::new(&spec, &shares);
        let (first, second) = optimizer.moments();
        let mut w = initial(&spec);
        let filled = |start: Option<f32>| -> Vec<Vec<f32>> {
            w.iter().map(|(_, array)| start.map_or(Vec::new(), |start| vec![start; array.len()])).collect()
        };
        let (mut first, mut second) = (filled(first), filled(second));
        for number in 1..=4 {
            // The same updates, averaged plainly.
            let mut copy =
                Federation { locals: federation.locals.clone(), ..Federation::new(&adaptive, &shares) };
            (copy.state, copy.number) = (federation.state.clone(), federation.number);
            let updates = copy.updates();
            let state = Record { tensors: w.clone(), ..Record::default() };
            let delta = plain.current_model(&plain.close(&state, &updates, number)).difference(&w).unwrap();
            let moments = first.iter_mut().zip(&mut second);
            for (((_, w), (_, delta)), (first, second)) in w.iter_mut().zip(&delta).zip(moments) {
                optimizer.step(w.values_mut(), delta.values(), first, second);
            }
            let found = federation.round();
            assert!(apart(&found, &w) < 1e-5, "{}, round {number}: {}", optimizer.name(), apart(&found, &w));
            // What differs is the rounding of w + delta - w: do not let it add up.
            w = found;
        }
        assert!(apart(&w, &initial(&spec)) > 0.05, "{}", optimizer.name());
    }
}

#[test]
fn fedsgd_steps_along_the_gradient_as_its_server_says() {
    let shares = shares();
    let plain = with(&spec("fedsgd"), training(1, 0));
    let adam = ServerOptimizer::Adam { learning_rate: 0.1, beta1: 0.0, beta2: 0.0, tau: 1e-9 };
    let found = federate(&aggregated(&plain, server(adam)), &shares, 1).remove(0);
    // With such moments each parameter moves by the rate, in the direction of plain FedSGD.
    let w_0 = initial(&plain);
    let (signs, steps) = (found.difference(&w_0).unwrap(), federate(&plain, &shares, 1).remove(0));
    for ((_, sign), (_, step)) in signs.iter().zip(&steps.difference(&w_0).unwrap()) {
        for (sign, step) in sign.values().iter().zip(step.values()) {
            assert!((sign - 0.1 * step.signum()).abs() < 1e-4, "{sign} {step}");
        }
    }
}

/// One step of each client and of the server: a client that sends its gradient decays nothing, and the server does.
#[test]
fn fedsgd_decays_what_fedavg_with_one_step_decays() {
    let shares = shares();
    let optimizer = models::Optimizer::from(models::Sgd { decay: 0.5, ..models::Sgd::plain(0.1) }).into();
    for decay_on in [models::DecayOn::All, models::DecayOn::Weights] {
        let training = Training { optimizer, decay_on, ..training(1, 0) };
        let after = |algorithm| federate(&with(&spec(algorithm), training), &shares, 2).remove(1);
        assert!(apart(&after("fedsgd"), &after("fedavg")) < 1e-6, "{decay_on:?}");
    }
    let after = |decay_on| {
        federate(&with(&spec("fedsgd"), Training { optimizer, decay_on, ..training(1, 0) }), &shares, 1)
    };
    assert!(apart(&after(models::DecayOn::All)[0], &after(models::DecayOn::Weights)[0]) > 1e-4);
}

#[test]
fn weights_by_loss_weigh_models_by_the_losses_reported() {
    let shares = shares();
    let spec = with(&spec("fedavg"), training(2, 3));
    let by_loss = aggregated(&spec, Aggregation { weights: Weights::Loss, ..Aggregation::default() });
    let mut federation = Federation::new(&by_loss, &shares);
    let updates = federation.updates();
    let sum: f64 = updates.iter().map(|(_, report)| report.loss).sum();
    let mut expected = initial(&spec);
    for (update, report) in &updates {
        let weight = (1.0 - report.loss / sum) / (updates.len() - 1) as f64;
        expected.add_scaled(weight as f32, &update.tensors).unwrap();
    }
    let mut again = Federation::new(&by_loss, &shares);
    let found = again.round();
    assert!(apart(&found, &expected) < 1e-6, "{}", apart(&found, &expected));
    let uniform = Aggregation { weights: Weights::Uniform, ..Aggregation::default() };
    assert!(apart(&found, &federate(&aggregated(&spec, uniform), &shares, 1)[0]) > 1e-4);
}

#[test]
fn the_median_of_updates_is_that_of_each_value() {
    let shares = shares();
    let uniform = Aggregation { weights: Weights::Uniform, ..Aggregation::default() };
    let spec = with(&spec("fedavg"), training(2, 3));
    let median = aggregated(&spec, Aggregation { rule: Rule::Median {}, ..uniform });
    let mut federation = Federation::new(&median, &shares);
    let mut updates = federation.updates();
    // One client lies; the median of five does not care how much.
    updates[2].0.tensors.scale(-1e3);
    let Federation { server, state, .. } = &federation;
    let found = server.current_model(&server.close(state, &updates, 1)).difference(&initial(&spec)).unwrap();
    for (name, array) in &found {
        for (index, value) in array.values().iter().enumerate() {
            let mut column: Vec<f32> =
                updates.iter().map(|(update, _)| update.tensors.get(name).unwrap().values()[index]).collect();
            column.sort_by(f32::total_cmp);
            assert!((value - column[2]).abs() < 1e-6, "{name}[{index}]");
        }
    }
}

/// Batch normalisation of the four pixels before softmax regression.
pub(super) fn normalised(algorithm: &str, aggregation: Aggregation) -> RunSpec {
    let mut spec = aggregated(&with(&spec(algorithm), training(1, 0)), aggregation);
    let layers = [Layer::Flatten, Layer::BatchNorm { name: "norm".into() }];
    spec.architecture.extractor = layers.to_vec();
    spec.architecture.name = "normalised".into();
    spec
}

/// One sample more than there are in a chunk where chunks do not matter: alone it has no variance.
#[test]
fn fedsgd_normalises_all_samples_together() {
    let shares = [view(1001, 1)];
    let settings = Aggregation::default();
    let [fedavg, fedsgd] =
        ["fedavg", "fedsgd"].map(|name| federate(&normalised(name, settings), &shares, 2).remove(1));
    assert!(apart(&fedavg, &fedsgd) < 1e-5, "{}", apart(&fedavg, &fedsgd));
}

pub(super) const MEAN: &str = "extractor.norm.running-mean";

#[test]
fn buffers_are_averaged_plainly_with_any_server_optimizer() {
    let shares = shares();
    let adam = server(ServerOptimizer::ALL[2]);
    for algorithm in ["fedavg", "fedsgd"] {
        let plain = normalised(algorithm, Aggregation::default());
        let updates = Federation::new(&plain, &shares).updates();
        let total: f64 = shares.iter().map(|share| share.len() as f64).sum();
        let expected = |index: usize| -> f64 {
            let terms = updates.iter().zip(&shares);
            let term = |((update, _), share): (&(Record, TrainReport), &View)| {
                share.len() as f64 / total * f64::from(update.tensors.get(MEAN).unwrap().values()[index])
            };
            terms.map(term).sum()
        };
        for aggregation in [Aggregation::default(), adam] {
            let model = federate(&normalised(algorithm, aggregation), &shares, 1).remove(0);
            // They begin at 0.
            for (index, &value) in model.get(MEAN).unwrap().values().iter().enumerate() {
                assert!(value > 0.01, "{algorithm}: it has moved");
                assert!((f64::from(value) - expected(index)).abs() < 1e-6, "{algorithm}: {value}");
            }
        }
    }
}

#[test]
fn local_buffers_stay_on_the_device_and_go_on_there() {
    let shares = shares();
    let local = Aggregation { buffers: Buffers::Local, ..Aggregation::default() };
    for algorithm in ["fedavg", "fedsgd"] {
        let spec = normalised(algorithm, local);
        let mut federation = Federation::new(&spec, &shares);
        let mut means = Vec::new();
        for round in 1..=2 {
            let updates = federation.updates();
            assert!(updates.iter().all(|(update, _)| !update.tensors.names().any(|name| name == MEAN)));
            let kept: Vec<Record> = federation.locals.iter().flatten().cloned().collect();
            assert_eq!(kept.len(), shares.len());
            let own = |local: &Record| local.tensors.get(&format!("client.buffers.{MEAN}")).unwrap().clone();
            let own: Vec<Array> = kept.iter().map(own).collect();
            assert_ne!(own[0], own[1], "each client has its own");
            means.push(own);
            federation.state = federation.server.close(&federation.state, &updates, round);
            federation.number = round;
        }
        // One batch a round moves the mean from m to 0.9 m + 0.1 x: from 0 to 0.1 x, and then to 0.19 x.
        for (first, second) in means[0].iter().zip(&means[1]) {
            for (first, second) in first.values().iter().zip(second.values()) {
                assert!((second / first - 1.9).abs() < 1e-4, "{algorithm}: {first} {second}");
            }
        }
        let model = federation.server.current_model(&federation.state);
        assert_eq!(model.get(MEAN), initial(&spec).get(MEAN), "the global model's stay as they began");
    }
}
