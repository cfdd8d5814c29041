//! Matched averaging: independence of the order of hidden units.

use models::{Architecture, Layer};

use super::*;

/// Three channels of 3 by 3 pixels, five features, two classes.
fn network() -> Architecture {
    let named = |name: &str| name.to_owned();
    let conv = Layer::Conv { name: named("conv"), out: 3, kernel: 2, stride: 1, padding: 1, bias: true };
    let architecture = Architecture {
        name: named("small"),
        initialisation: models::Initialisation::default(),
        input: vec![1, 2, 2],
        classes: 2,
        extractor: vec![conv, Layer::Relu, Layer::Flatten],
        projection: vec![Layer::Linear { name: named("fc1"), out: 5, bias: true }, Layer::Relu],
        head: vec![Layer::Linear { name: named("fc2"), out: 2, bias: true }],
        ..Architecture::default()
    };
    architecture.parameter_specs().unwrap();
    architecture
}

fn matched(weights: Weights, rule: Rule) -> RunSpec {
    let aggregation = Aggregation { weights, rule, ..Aggregation::default() };
    RunSpec { architecture: network(), aggregation, ..spec("fedavg") }
}

/// A model of chance, other than the initial one.
fn model(spec: &RunSpec, salt: u64) -> ParamSet {
    let mut params = initial(spec);
    let mut rng = Seed::root(salt).rng();
    for (_, array) in params.iter_mut() {
        for value in array.values_mut() {
            *value += shared::seed::below(2001, &mut rng) as f32 / 1000.0 - 1.0;
        }
    }
    params
}

/// The rows of a tensor in another order.
fn rows(params: &mut ParamSet, tensor: &str, order: &[usize]) {
    let array = params.get_mut(tensor).unwrap();
    let old = array.values().to_vec();
    let row = old.len() / order.len();
    for (place, &from) in array.values_mut().chunks_mut(row).zip(order) {
        place.copy_from_slice(&old[from * row..][..row]);
    }
}

/// The inputs of every row in another order, `block` values each.
fn columns(params: &mut ParamSet, tensor: &str, order: &[usize], block: usize) {
    let array = params.get_mut(tensor).unwrap();
    for row in array.values_mut().chunks_mut(order.len() * block) {
        let old = row.to_vec();
        for (place, &from) in row.chunks_mut(block).zip(order) {
            place.copy_from_slice(&old[from * block..][..block]);
        }
    }
}

/// The same network with its hidden units in another order.
fn permuted(model: &ParamSet, channels: &[usize], features: &[usize]) -> ParamSet {
    let mut params = model.clone();
    rows(&mut params, "extractor.conv.weight", channels);
    rows(&mut params, "extractor.conv.bias", channels);
    columns(&mut params, "projection.fc1.weight", channels, 9);
    rows(&mut params, "projection.fc1.weight", features);
    rows(&mut params, "projection.fc1.bias", features);
    columns(&mut params, "head.fc2.weight", features, 1);
    params
}

/// The global model after a round in which the clients trained these models, on these numbers of samples.
fn average(spec: &RunSpec, models: &[(ParamSet, u64)]) -> ParamSet {
    let shares: Vec<View> = models.iter().map(|(_, samples)| view(*samples as usize, 1)).collect();
    let server = Server::new(spec, &shares);
    let w = initial(spec);
    let updates: Vec<(Record, TrainReport)> = models
        .iter()
        .map(|(model, samples)| {
            let tensors = model.clone().difference(&w).unwrap();
            let report = TrainReport { samples: *samples, ..TrainReport::default() };
            (Record { tensors, ..Record::default() }, report)
        })
        .collect();
    server.current_model(&server.close(&server.algorithm.store(server.algorithm.init(w)), &updates, 1))
}

#[test]
fn permuting_a_clients_hidden_units_leaves_the_matched_average_unchanged() {
    for weights in [Weights::Samples, Weights::Uniform] {
        let spec = matched(weights, Rule::Fedma {});
        let models: Vec<(ParamSet, u64)> = (0..4).map(|k| (model(&spec, k), 3 + k)).collect();
        let expected = average(&spec, &models);
        for (channels, features) in [([2, 0, 1], [4, 2, 0, 1, 3]), ([1, 0, 2], [0, 1, 2, 3, 4])] {
            let mut moved = models.clone();
            moved[2].0 = permuted(&models[2].0, &channels, &features);
            assert!(apart(&moved[2].0, &models[2].0) > 0.1);
            let found = average(&spec, &moved);
            assert!(apart(&found, &expected) < 1e-5, "{weights:?}: {}", apart(&found, &expected));
            // The plain mean is another one.
            let plain = matched(weights, Rule::Mean {});
            assert!(apart(&average(&plain, &moved), &average(&plain, &models)) > 0.1);
        }
    }
}

#[test]
fn one_network_in_many_orders_averages_to_itself() {
    let spec = matched(Weights::Samples, Rule::Fedma {});
    let one = model(&spec, 9);
    let orders = [([0, 1, 2], [0, 1, 2, 3, 4]), ([2, 1, 0], [3, 4, 0, 2, 1]), ([1, 2, 0], [4, 3, 2, 1, 0])];
    let models: Vec<(ParamSet, u64)> =
        orders.iter().zip(1..).map(|((a, b), samples)| (permuted(&one, a, b), samples)).collect();
    let found = average(&spec, &models);
    // In some order of its units; that of the network with this order is then the outcome of each client alone.
    for client in &models {
        let alone = average(&spec, std::slice::from_ref(client));
        assert!(apart(&found, &alone) < 1e-5, "{}", apart(&found, &alone));
    }
    let mut biases: Vec<f32> = found.get("projection.fc1.bias").unwrap().values().to_vec();
    let mut expected: Vec<f32> = one.get("projection.fc1.bias").unwrap().values().to_vec();
    biases.sort_by(f32::total_cmp);
    expected.sort_by(f32::total_cmp);
    assert!(biases.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5), "{biases:?} {expected:?}");
}

#[test]
fn models_that_have_hardly_moved_are_averaged_plainly() {
    let near = |spec: &RunSpec, salt: u64| {
        let mut update = model(spec, salt).difference(&initial(spec)).unwrap();
        update.scale(1e-3);
        let mut near = initial(spec);
        near.add_scaled(1.0, &update).unwrap();
        near
    };
    let spec = matched(Weights::Samples, Rule::Fedma {});
    let models: Vec<(ParamSet, u64)> = (0..4).map(|k| (near(&spec, k), 1 + k)).collect();
    let plain = average(&matched(Weights::Samples, Rule::Mean {}), &models);
    assert!(apart(&average(&spec, &models), &plain) < 1e-6);
    assert!(apart(&plain, &initial(&spec)) > 1e-5);
}
