//! Both halves of FAFI and of the plain ensemble: the client's training, and the ensemble's membership.

use super::*;
use shared::algorithm::membership::{Invitation, Membership};
use shared::data::Augmentation;
use shared::record::ToRecord;

/// FAFI with these settings: [`of`].
fn run(table: &str) -> RunSpec {
    of("fafi", table)
}

/// Images of 4x4 pixels whose class is their brighter half, a network with a hidden layer, and an augmentation.
fn of(algorithm: &str, table: &str) -> RunSpec {
    let linear = |name: &str, out| models::Layer::Linear { name: name.into(), out, bias: true };
    let mut spec = spec(algorithm);
    spec.algorithm = registry::specify(algorithm, table.parse().unwrap()).unwrap();
    spec.data.shape = vec![1, 4, 4];
    spec.architecture.input = vec![1, 4, 4];
    spec.architecture.extractor = vec![models::Layer::Flatten, linear("fc", 8), models::Layer::Relu];
    spec.architecture.head = vec![linear("out", 2)];
    spec.data.preparation.augmentation = Augmentation { random_shift: 1, ..Augmentation::default() };
    fitted(with(
        &spec,
        Training {
            optimizer: Sgd { momentum: 0.9, ..Sgd::plain(0.05) }.into(),
            clip_norm: Some(1.0),
            ..training(15, 8)
        },
    ))
}

fn halves(count: usize, salt: usize) -> View {
    let mut rng = Seed::root(salt as u64).rng();
    let labels: Vec<u8> = (0..count).map(|sample| (sample % 2) as u8).collect();
    let pixels = labels.iter().flat_map(|&label| {
        let bright = [200 * usize::from(label == 0) + 28, 200 * usize::from(label == 1) + 28];
        let mut pixel = |place: usize| bright[place / 8] + shared::seed::below(28, &mut rng);
        (0..16).map(|place| pixel(place) as u8).collect::<Vec<_>>()
    });
    View::whole(Arc::new(Dataset::new(vec![1, 4, 4], pixels.collect(), labels, 2).unwrap()))
}

fn accuracy(spec: &RunSpec, params: &ParamSet, data: &View) -> f64 {
    let positions: Vec<usize> = (0..data.len()).collect();
    let (mut x, mut y) = (Vec::new(), Targets::default());
    spec.data.preparation.evaluation(data, &positions, &mut x, &mut y);
    let batch = Batch::with_targets(x, [data.len(), 1, 4, 4], y).unwrap();
    let mut network = models::Network::new(&spec.architecture, params, &Backend::cpu()).unwrap();
    models::evaluate(&mut network, [&batch]).unwrap().accuracy.unwrap()
}

fn learned(spec: &RunSpec, data: &View) -> ParamSet {
    let Membership::New(delta) = Membership::from_record(first_update(spec, data)).unwrap() else {
        panic!("the ensemble has no member yet");
    };
    let mut params = initial(spec);
    params.add(&delta).unwrap();
    params
}

#[test]
fn a_client_learns_its_classes_with_and_without_contrast() {
    let (data, test) = (halves(40, 1), halves(100, 2));
    for table in ["", "contrast = 0.0", "classify = 0.0", "separate = 0.0"] {
        let spec = run(table);
        let params = learned(&spec, &data);
        if table != "classify = 0.0" {
            assert!(accuracy(&spec, &params, &test) > 0.95, "{table}");
        }
        assert!(apart(&params, &initial(&spec)) > 1e-2, "{table}");
    }
}

#[test]
fn every_term_and_the_views_change_what_is_learned() {
    let data = halves(20, 1);
    let all = learned(&run(""), &data);
    let plain = RunSpec {
        data: shared::spec::DataSpec { preparation: shared::data::Preparation::default(), ..run("").data },
        ..run("")
    };
    for other in [
        run("contrast = 0.0"),
        run("separate = 0.0"),
        run("classify = 1.0"),
        run("temperature = 0.5"),
        run("prototype-temperature = 0.5"),
        plain,
    ] {
        assert!(apart(&learned(&other, &data), &all) > 1e-4, "{:?}", other.algorithm);
    }
}

#[test]
fn two_views_of_a_sample_are_drawn_apart() {
    let spec = run("");
    let (data, backend) = (halves(20, 1), Backend::cpu());
    let mut monitor = |_| ControlFlow::Continue(());
    let mut client = Client::new(&spec, 1, Seed::root(1), &data, &backend, &mut monitor);
    let (mut equal, mut all) = (0, 0);
    client
        .epochs_of(&initial(&spec), |_, batch, drawn| {
            let mut second = Vec::new();
            drawn.view(&spec.data.preparation, "second view", &mut second);
            for (a, b) in batch.x().chunks(16).zip(second.chunks(16)) {
                equal += usize::from(a == b);
                all += 1;
            }
            Ok(0.0)
        })
        .unwrap();
    // One of nine shifts is that of the other view.
    assert!(all == 15 * 20 && (10..60).contains(&equal), "{equal} of {all}");
}

#[test]
fn fewer_samples_than_a_batch_and_a_single_class_train() {
    let spec = run("");
    for data in [halves(1, 1), halves(3, 1)] {
        assert_eq!(learned(&spec, &data).first_non_finite(), None);
    }
}

#[test]
fn members_are_not_trained_again_and_others_join_them() {
    let spec = run("");
    let shares = [halves(10, 1), halves(10, 2), halves(10, 3)];
    let mut federation = Federation::new(&spec, &shares);
    // A first wave without the last client.
    let updates: Vec<_> = (0..2).map(|index| federation.train(index)).collect();
    federation.number = 1;
    federation.state = federation.server.close(&federation.state, &updates, 1);
    let members = |state: &Record| Invitation::from_record(state.clone()).unwrap().members;
    assert_eq!(members(&federation.state), [client_id(0), client_id(1)].into());
    let again = federation.updates();
    for (index, (update, report)) in again.iter().enumerate() {
        let is_new = index == 2;
        assert_eq!(matches!(Membership::from_record(update.clone()), Ok(Membership::New(_))), is_new);
        assert_eq!(report.steps > 0, is_new);
    }
    assert!(again[0].0.to_bytes(Precision::F32).len() < 100, "a word, and no model");
    let start = federation.server.current_model(&federation.state);
    federation.state = federation.server.close(&federation.state, &again, 2);
    assert_eq!(members(&federation.state).len(), 3);
    assert_eq!(federation.server.current_model(&federation.state), start, "all clients start from the same");
}

#[test]
fn training_is_measured_as_that_of_others() {
    let spec = run("");
    let measure = shared::spec::Measures { alignment: true, drift: true };
    let spec = with(&spec, Training { measure, ..spec.training });
    let shares = [halves(10, 1)];
    let (update, report) = Federation::new(&spec, &shares).train(0);
    let found: Vec<f64> = report
        .metrics
        .into_iter()
        .flatten()
        .flat_map(shared::message::Metric::values)
        .map(|(_, value)| value)
        .collect();
    assert_eq!(found.len(), 2);
    assert!(found[0] < 1.0 && (found[1] - update.tensors.l2_norm()).abs() < 1e-6, "{found:?}");
}

#[test]
fn a_step_is_that_of_the_loss_on_two_views() {
    let spec = with(&run(""), training(1, 0));
    let (data, backend, start) = (halves(6, 1), Backend::cpu(), initial(&spec));
    let mut monitor = |_| ControlFlow::Continue(());
    let seed = client_seed(&spec, 1, client_id(0));
    let mut client = Client::new(&spec, 1, seed, &data, &backend, &mut monitor);
    let loss = models::PrototypeLoss {
        classify: 2.0,
        contrast: 1.0,
        separate: 1.0,
        temperature: 0.07,
        prototype_temperature: 1.0,
    };
    let expected = client.epochs_of(&start, |learner, first, drawn| {
        let mut x = first.x().to_vec();
        drawn.view(&spec.data.preparation, "second view", &mut x);
        assert_ne!(x[..x.len() / 2], x[x.len() / 2..]);
        let batch = Batch::new(x, [12, 1, 4, 4], first.y().repeat(2))?;
        let value = learner.step_with_loss(&batch, &mut |network, gradients| {
            let prototypes = network.parameter("head.out.weight")?;
            let outputs = models::Prototyped {
                representation: network.representation(),
                logits: network.logits(),
                prototypes: prototypes.values(),
                labels: batch.y(),
            };
            Ok(loss.value(&loss.of(outputs, "head.out.weight", gradients)))
        })?;
        Ok(value)
    });
    assert!(apart(&learned(&spec, &data), &expected.unwrap()) < 1e-6);
}

/// The plain ensemble's client is that of federated averaging, to the bit, and its network the one that is configured.
#[test]
fn a_member_of_the_plain_ensemble_learns_as_a_client_of_fedavg_does() {
    let (plain, averaged) = (spec("ensemble"), spec("fedavg"));
    assert_eq!(plain.architecture, averaged.architecture);
    let data = view(12, 1);
    for epochs in [0, 3] {
        let trained = |spec: &RunSpec| first_update(&with(spec, training(epochs, 4)), &data);
        let Membership::New(delta) = Membership::from_record(trained(&plain)).unwrap() else {
            panic!("the ensemble has no member yet");
        };
        assert_eq!(delta, trained(&averaged).tensors);
        assert_eq!(delta.max_abs() > 0.0, epochs > 0);
    }
}

#[test]
fn prototypes_of_fedproto_point_where_the_mean_features_of_what_was_learned_do() {
    let spec = of("fedproto", "");
    let (data, head) = (halves(40, 1), "head.out.weight");
    let (member, start) = (learned(&spec, &data), initial(&spec));
    assert!(accuracy(&spec, &member, &halves(100, 2)) > 0.95, "its own prototypes answer for a member");
    // All but the prototypes is what federated averaging learns with the same network.
    let mut fedavg = of("fedavg", "");
    fedavg.architecture = spec.architecture.clone();
    let mut plain = start.clone();
    plain.add(&first_update(&fedavg, &data).tensors).unwrap();
    let others = |params: &ParamSet| {
        let mut others = params.clone();
        others.remove(head);
        others
    };
    assert!(apart(&others(&member), &others(&plain)) < 1e-6);
    let positions: Vec<usize> = (0..data.len()).collect();
    let (mut x, mut y) = (Vec::new(), Targets::default());
    spec.data.preparation.evaluation(&data, &positions, &mut x, &mut y);
    let batch = Batch::with_targets(x, [data.len(), 1, 4, 4], y).unwrap();
    let mut network = models::Network::new(&spec.architecture, &plain, &Backend::cpu()).unwrap();
    let features = network.represent(&batch).unwrap();
    for (class, prototype) in member.get(head).unwrap().values().chunks(8).enumerate() {
        let mean = |feature: usize| -> f64 {
            (class..40).step_by(2).map(|sample| f64::from(features[sample * 8 + feature])).sum::<f64>() / 20.0
        };
        let length = (0..8).map(|feature| mean(feature).powi(2)).sum::<f64>().sqrt();
        for (feature, value) in prototype.iter().enumerate() {
            // One over the temperature long.
            let expected = mean(feature) / length / 0.07;
            assert!((f64::from(*value) - expected).abs() < 1e-4, "{class} {feature}: {value}");
        }
    }
    // A class that is not there is no direction.
    let one = learned(&spec, &data.part(&(0..40).step_by(2).collect::<Vec<u32>>()));
    assert!(one.get(head).unwrap().values()[8..].iter().all(|value| *value == 0.0));
}
