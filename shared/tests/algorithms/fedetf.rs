//! FedETF: its steps, and what its loss and its classifier do.

use models::{Layer, cross_entropy};

use super::objectives::{deep, momentum, with_parameters};
use super::*;

/// Samples of two classes, with the number of each.
fn of_classes(counts: [usize; 2], salt: usize) -> View {
    let all = view(200, salt);
    let of = |class: u32| (0..200).filter(|&sample| all.labels_of(sample as usize) == [class]).collect();
    let [first, second]: [Vec<u32>; 2] = [of(0), of(1)];
    all.part(&[&first[..counts[0]], &second[..counts[1]]].concat())
}

/// What one client has learned in one round.
fn learned(spec: &RunSpec, data: &View) -> ParamSet {
    federate(spec, std::slice::from_ref(data), 1).remove(0)
}

#[test]
fn classes_of_equal_numbers_need_no_balance_and_others_do() {
    let settings = momentum(training(3, 4));
    let plain = deep(with_parameters("fedetf", "balance = 0.0", settings));
    let balanced = deep(with_parameters("fedetf", "", settings));
    let (equal, skewed) = (of_classes([10, 10], 1), of_classes([18, 2], 1));
    let far = |data: &View| apart(&learned(&plain, data), &learned(&balanced, data));
    assert!(far(&equal) < 1e-5, "{}", far(&equal));
    assert!(far(&skewed) > 1e-2, "{}", far(&skewed));
}

#[test]
fn one_step_is_that_of_its_loss() {
    let settings = training(1, 0);
    let spec = deep(with_parameters("fedetf", "balance = 0.5", settings));
    let data = of_classes([9, 4], 2);
    let w_0 = initial(&spec);
    let mut learner =
        Learner::new(&spec.architecture, &w_0, settings.optimizer.to_engine(), &Backend::cpu()).unwrap();
    let positions: Vec<usize> = {
        let mut order: Vec<usize> = (0..data.len()).collect();
        let seed = client_seed(&spec, 1, client_id(0));
        shuffle(&mut order, &mut seed.derive_numbered("epoch", 0).rng());
        order
    };
    let (mut x, mut y) = (Vec::new(), Targets::default());
    data.fill(&positions, &mut x, &mut y);
    let batch = Batch::with_targets(x, [positions.len(), 1, 2, 2], y).unwrap();
    // 9^0.5 = 3 and 4^0.5 = 2.
    let mut loss = |network: &models::Network, gradients: &mut models::LossGradients| {
        let prior = [3f32.ln(), 2f32.ln()];
        let logits: Vec<f32> =
            network.logits().iter().enumerate().map(|(place, logit)| logit + prior[place % 2]).collect();
        Ok(cross_entropy(&logits, batch.y(), &mut gradients.logits))
    };
    learner.step_with_loss(&batch, &mut loss).unwrap();
    let (expected, found) = (learner.params().unwrap(), learned(&spec, &data));
    assert!(apart(&found, &expected) < 1e-6, "{}", apart(&found, &expected));
}

#[test]
fn a_client_with_one_class_learns_more_where_nothing_is_asked_for_less() {
    let data = of_classes([12, 0], 3);
    let moved = |table: &str| {
        let spec = deep(with_parameters("fedetf", table, training(2, 4)));
        apart(&learned(&spec, &data), &initial(&spec))
    };
    let (balanced, plain) = (moved(""), moved("balance = 0.0"));
    assert!(balanced > 1e-4 && balanced < 0.5 * plain, "{balanced} {plain}");
}

#[test]
fn samples_of_another_number_of_classes_are_the_servers_mistake() {
    let data = view(12, 1);
    let three = Dataset::new(vec![1, 2, 2], vec![7; 48], (0..12_u32).map(|sample| sample % 3), 3).unwrap();
    for algorithm in ["fedetf", "fedproto"] {
        let spec = deep(with(&spec(algorithm), training(1, 4)));
        let broadcast = Federation::new(&spec, std::slice::from_ref(&data)).broadcast();
        let three = View::whole(Arc::new(three.clone()));
        let mut monitor = |_| ControlFlow::Continue(());
        let found = train_monitored(&spec, 1, 0, &three, broadcast, None, &mut monitor).map(|_| ());
        assert!(
            matches!(found, Err(TrainError::Broadcast(_) | TrainError::Model(_))),
            "{algorithm}: {found:?}"
        );
    }
}

#[test]
fn without_balance_it_is_fedavg_with_the_same_network() {
    let settings = momentum(training(2, 4));
    let fedetf = deep(with_parameters("fedetf", "balance = 0.0", settings));
    let mut fedavg = deep(with(&spec("fedavg"), settings));
    fedavg.architecture.head.push(Layer::SimplexEtf { name: "etf".into() });
    assert_eq!(fedavg.architecture, fedetf.architecture);
    let shares = [of_classes([9, 3], 4), of_classes([2, 8], 5)];
    assert_eq!(federate(&fedetf, &shares, 3), federate(&fedavg, &shares, 3));
}
