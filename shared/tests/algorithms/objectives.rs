//! Exact results of the algorithms other than `FedAvg`, and the settings of local training.

use std::collections::BTreeMap;

use models::Network;
use shared::aggregation::Mixture;
use shared::algorithm::Settings;
use shared::message::Metric;
use shared::schedule::Schedule;
use shared::spec::{DataSpec, LabelsAt, Measures};

use super::*;

/// `algorithm` with these hyper-parameters, as TOML.
pub(super) fn with_parameters(algorithm: &str, parameters: &str, training: Training) -> RunSpec {
    let specified = registry::specify(algorithm, parameters.parse().unwrap()).unwrap();
    RunSpec { algorithm: specified, ..with(&spec(algorithm), training) }
}

pub(super) fn shares() -> Vec<View> {
    (0..4).map(|k| view(5 + 6 * k, k)).collect()
}

/// A network that has a representation: 4 pixels, 6 hidden units, 3 of them in the projection.
pub(super) fn deep(spec: RunSpec) -> RunSpec {
    let linear = |name: &str, out| models::Layer::Linear { name: name.into(), out, bias: true };
    let mut spec = spec;
    spec.architecture.name = "deep".into();
    spec.architecture.extractor = vec![models::Layer::Flatten, linear("fc", 6), models::Layer::Relu];
    spec.architecture.projection = vec![linear("fc", 3)];
    spec.architecture.head = vec![linear("fc", 2)];
    fitted(spec)
}

pub(super) fn momentum(training: Training) -> Training {
    Training {
        optimizer: Sgd { rate: training.optimizer.to_engine().rate(), momentum: 0.9, decay: 0.01 }.into(),
        ..training
    }
}

#[test]
fn fedprox_without_pull_is_fedavg_to_the_bit() {
    for training in [training(3, 4), momentum(training(3, 4))] {
        let fedavg = federate(&with(&spec("fedavg"), training), &shares(), 3);
        assert_eq!(federate(&with_parameters("fedprox", "mu = 0", training), &shares(), 3), fedavg);
    }
}

#[test]
fn fedprox_takes_the_steps_of_its_objective() {
    let mu = 0.8;
    let settings = momentum(training(2, 4));
    let spec = with_parameters("fedprox", &format!("mu = {mu}"), settings);
    let data = view(10, 1);
    let w_0 = initial(&spec);
    // Its local steps, written out.
    let mut learner =
        Learner::new(&spec.architecture, &w_0, settings.optimizer.to_engine(), &Backend::cpu()).unwrap();
    let mut order: Vec<usize> = (0..data.len()).collect();
    let seed = client_seed(&spec, 1, client_id(0));
    for epoch in 0..settings.epochs {
        shuffle(&mut order, &mut seed.derive_numbered("epoch", u64::from(epoch)).rng());
        for positions in order.chunks(settings.batch as usize) {
            let (mut x, mut y) = (Vec::new(), Targets::default());
            data.fill(positions, &mut x, &mut y);
            let batch = Batch::with_targets(x, [positions.len(), 1, 2, 2], y).unwrap();
            let (_, mut gradient) = learner.gradient(&batch).unwrap();
            let away = learner.params().unwrap().difference(&w_0).unwrap();
            gradient.add_scaled(mu as f32, &away).unwrap();
            learner.apply(&gradient).unwrap();
        }
    }
    let expected = learner.params().unwrap();
    let found = federate(&spec, std::slice::from_ref(&data), 1).remove(0);
    assert!(apart(&found, &expected) < 1e-6, "{}", apart(&found, &expected));
    let fedavg = federate(&with(&self::spec("fedavg"), settings), std::slice::from_ref(&data), 1).remove(0);
    assert!(found.distance(&w_0).unwrap() < 0.9 * fedavg.distance(&w_0).unwrap(), "it is held back");
}

#[test]
fn the_first_round_of_scaffold_is_fedavg_to_the_bit_and_the_second_is_not() {
    let fedavg = federate(&with(&spec("fedavg"), training(2, 4)), &shares(), 2);
    let scaffold = federate(&with(&spec("scaffold"), training(2, 4)), &shares(), 2);
    assert_eq!(scaffold[0], fedavg[0]);
    assert!(apart(&scaffold[1], &fedavg[1]) > 1e-4);
}

#[test]
fn who_comes_later_is_corrected_by_the_servers_control_variate_alone() {
    let (settings, shares) = (training(1, 0), shares());
    let (spec, plain) = (with(&spec("scaffold"), settings), with(&spec("fedavg"), settings));
    let mut federation = Federation::new(&spec, &shares);
    let first = federation.train(0);
    federation.state = federation.server.close(&federation.state, &[first], 1);
    federation.number = 1;
    let mut w = federation.state.tensors.clone();
    let c = w.take_under("control.");
    assert!(c.max_abs() > 1e-3);
    // One step: w - eta (g + c), and FedAvg's from there is w - eta g.
    let mut fedavg = Federation::new(&plain, &shares);
    (fedavg.state, fedavg.number) = (Record { tensors: w, ..Record::default() }, 1);
    let mut expected = fedavg.train(1).0.tensors;
    expected.add_scaled(-settings.optimizer.to_engine().rate() as f32, &c).unwrap();
    let found = federation.train(1).0.tensors.select("head.");
    assert!(apart(&found, &expected) < 1e-6, "{}", apart(&found, &expected));
}

#[test]
fn control_variates_are_those_of_option_two() {
    let spec = with(&spec("scaffold"), training(2, 4));
    let shares = shares();
    let mut federation = Federation::new(&spec, &shares);
    let control = |record: &Record| -> ParamSet {
        let own = record.tensors.select("control.");
        own.into_iter().map(|(name, array)| (name["control.".len()..].to_owned(), array)).collect()
    };
    let updates = federation.updates();
    let mut mean = initial(&spec).zeros_like();
    for (index, (update, report)) in updates.iter().enumerate() {
        // c_k+ = (w_t - w_k) / (tau eta), all control variates being zero.
        let mut expected = update.tensors.select("head.");
        expected.scale(-1.0 / (report.steps as f32 * spec.training.optimizer.to_engine().rate() as f32));
        assert!(apart(&control(update), &expected) < 1e-6);
        let c_k = &federation.locals[index].as_ref().unwrap().tensors;
        assert_eq!(c_k, &control(update), "what it keeps began at zero");
        mean.add_scaled(1.0 / shares.len() as f32, &control(update)).unwrap();
    }
    federation.state = federation.server.close(&federation.state, &updates, 1);
    federation.number = 1;
    let c = control(&federation.state);
    assert!(apart(&c, &mean) < 1e-6);
    // In the next round: c_k+ - c_k = -c + (w_t - w_k) / (tau eta).
    let (update, report) = federation.train(1);
    let mut expected = update.tensors.select("head.");
    expected.scale(-1.0 / (report.steps as f32 * spec.training.optimizer.to_engine().rate() as f32));
    expected.add_scaled(-1.0, &c).unwrap();
    assert!(apart(&control(&update), &expected) < 1e-6);
    // K clients are known, and one of them takes part: c moves by a K-th of its difference.
    let moved = control(&federation.server.close(&federation.state, &[(update.clone(), report)], 2));
    let mut expected = c.clone();
    expected.add_scaled(1.0 / shares.len() as f32, &control(&update)).unwrap();
    assert!(apart(&moved, &expected) < 1e-6);
}

/// The length of the gradient of the clients' mean objective, weight decay included.
fn slope(spec: &RunSpec, shares: &[View], w: &ParamSet) -> f64 {
    let mut sum = w.zeros_like();
    for share in shares {
        let mut learner =
            Learner::new(&spec.architecture, w, spec.training.optimizer.to_engine(), &Backend::cpu())
                .unwrap();
        let (mut x, mut y) = (Vec::new(), Targets::default());
        share.fill(&(0..share.len()).collect::<Vec<_>>(), &mut x, &mut y);
        let (_, gradient) =
            learner.gradient(&Batch::with_targets(x, [share.len(), 1, 2, 2], y).unwrap()).unwrap();
        sum.add_scaled(1.0 / shares.len() as f32, &gradient).unwrap();
    }
    sum.add_scaled(spec.training.optimizer.decay() as f32, w).unwrap();
    sum.l2_norm()
}

#[test]
fn scaffold_ends_at_the_true_optimum_and_fedavg_beside_it() {
    // Strongly convex, with clients that pull in different directions: each has one class, by its brightest pixel.
    let shares: Vec<View> = (0..3)
        .map(|k| {
            let pixels: Vec<u8> = (0..8).flat_map(|i| [200 - 60 * k, 10 * i, 90 * k, 255 - 20 * i]).collect();
            View::whole(Arc::new(Dataset::new(vec![1, 2, 2], pixels, vec![u8::from(k == 1); 8], 2).unwrap()))
        })
        .collect();
    let settings =
        Training { optimizer: Sgd { rate: 0.5, momentum: 0.0, decay: 0.05 }.into(), ..training(10, 0) };
    let slopes = ["fedavg", "scaffold"].map(|name| {
        let spec = with(&spec(name), settings);
        let last = federate(&spec, &shares, 400).pop().unwrap();
        slope(&spec, &shares, &last)
    });
    assert!(slopes[1] < 1e-5, "scaffold is at the optimum: {slopes:?}");
    assert!(slopes[0] > 100.0 * slopes[1] && slopes[0] > 1e-3, "fedavg is not: {slopes:?}");
}

#[test]
fn fednova_is_fedavg_where_all_take_as_many_steps() {
    let equal: Vec<View> = (0..4).map(|k| view(12, k)).collect();
    for training in [training(2, 4), momentum(training(2, 4))] {
        let fedavg = federate(&with(&spec("fedavg"), training), &equal, 3);
        let fednova = federate(&with(&spec("fednova"), training), &equal, 3);
        for (a, b) in fedavg.iter().zip(&fednova) {
            assert!(apart(a, b) < 1e-6, "{}", apart(a, b));
        }
    }
}

#[test]
fn fednova_normalises_by_the_steps_taken() {
    let shares = shares();
    for settings in [training(2, 4), Training { drop_last: true, ..momentum(training(2, 4)) }] {
        let spec = with(&spec("fednova"), settings);
        let updates = Federation::new(&spec, &shares).updates();
        let rho = settings.optimizer.to_engine().descent().unwrap().momentum;
        let samples: f64 = shares.iter().map(|share| share.len() as f64).sum();
        let (mut effective, mut direction) = (0.0, initial(&spec).zeros_like());
        for ((update, report), share) in updates.iter().zip(&shares) {
            assert_eq!(report.steps, settings.steps(share.len() as u64), "the server knows the steps");
            let tau = report.steps as f64;
            let a = (tau - rho * (1.0 - rho.powf(tau)) / (1.0 - rho)) / (1.0 - rho);
            let p = share.len() as f64 / samples;
            effective += p * a;
            direction.add_scaled((p / a) as f32, &update.tensors).unwrap();
        }
        let mut expected = initial(&spec);
        expected.add_scaled(effective as f32, &direction).unwrap();
        let found = federate(&spec, &shares, 1).remove(0);
        assert!(apart(&found, &expected) < 1e-5, "{}", apart(&found, &expected));
        let fedavg = federate(&with(&self::spec("fedavg"), settings), &shares, 1).remove(0);
        assert!(apart(&found, &fedavg) > 1e-4, "the clients take different numbers of steps");
    }
}

/// The means over the clients of what they measure in the second round, by the names of the metrics.
pub(super) fn measured(spec: &RunSpec) -> BTreeMap<String, f64> {
    let shares = shares();
    let mut federation = Federation::new(spec, &shares);
    federation.round();
    let mut means = BTreeMap::new();
    for (_, report) in federation.updates() {
        for metric in report.metrics.into_iter().flatten() {
            for (name, value) in metric.values() {
                *means.entry(name).or_default() += value / shares.len() as f64;
            }
        }
    }
    means
}

#[test]
fn every_algorithm_measures_what_is_asked_for_and_nothing_else() {
    // What is measured is the second round, in which an ensemble learns nothing.
    for algorithm in registry::names() {
        let built = registry::by_default(algorithm).unwrap();
        let measurable = Training { measure: Measures { alignment: true, drift: true }, ..training(1, 0) };
        let settings = Settings {
            training: &measurable,
            aggregation: &Aggregation::default(),
            architecture: None,
            mixture: Mixture::CLIENTS,
            late: false,
            private: None,
            secure: false,
            top_k: None,
        };
        if built.ensemble().is_some() || !built.conflicts(&settings).is_empty() {
            continue;
        }
        let data = DataSpec { labels: LabelsAt::Server, ..RunSpec::example(algorithm).data };
        let specified = registry::build(&spec(algorithm).algorithm).unwrap();
        let pseudo = specified.check_data(&data, &training(1, 0)).is_ok();
        let names = |alignment, drift| {
            let measure = Measures { alignment, drift };
            let found = measured(&deep(with(&spec(algorithm), Training { measure, ..training(2, 4) })));
            // Those of pseudo-labels are told in every round of it, and so is the term of moon.
            let always = ["class-coverage", "contrast", "coverage", "entropy"];
            let (told, asked): (Vec<_>, Vec<_>) =
                found.into_keys().partition(|name| always.contains(&name.as_str()));
            let own = if pseudo { 3 } else { usize::from(algorithm == "moon") };
            assert_eq!(told.len(), own, "{algorithm}");
            asked
        };
        assert!(names(false, false).is_empty(), "{algorithm}");
        assert_eq!(names(true, false), ["alignment"], "{algorithm}");
        assert_eq!(names(true, true), ["alignment", "drift"], "{algorithm}");
    }
}

#[test]
fn what_is_measured_is_the_length_of_the_update_and_the_cosine_of_representations() {
    let measure = Measures { alignment: true, drift: true };
    let spec = deep(with(&spec("fedavg"), Training { measure, ..training(4, 4) }));
    let shares = shares();
    let mut federation = Federation::new(&spec, &shares);
    let w_t = federation.server.current_model(&federation.state).clone();
    for ((update, report), share) in federation.updates().iter().zip(&shares) {
        let positions: Vec<usize> = (0..share.len()).collect();
        let (mut x, mut y) = (Vec::new(), Targets::default());
        spec.data.preparation.evaluation(share, &positions, &mut x, &mut y);
        let batch = Batch::with_targets(x, [share.len(), 1, 2, 2], y).unwrap();
        let mut w_k = w_t.clone();
        w_k.add(&update.tensors).unwrap();
        let [local, global] = [&w_k, &w_t].map(|w| {
            let mut network = Network::new(&spec.architecture, w, &Backend::cpu()).unwrap();
            network.represent(&batch).unwrap().to_vec()
        });
        let width = local.len() / share.len();
        let rows = local.chunks(width).zip(global.chunks(width)).map(|(a, b)| {
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
            dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
        });
        let alignment = rows.sum::<f64>() / share.len() as f64;
        let [Some(Metric::Alignment(found)), Some(Metric::Drift(drift)), None, ..] = report.metrics else {
            panic!("{:?}", report.metrics);
        };
        assert!((found - alignment).abs() < 1e-4 && alignment < 1.0 - 1e-6, "{found} {alignment}");
        assert!((drift - update.tensors.l2_norm()).abs() < 1e-9);
    }
}

#[test]
fn local_clients_go_on_from_their_own_models_and_the_server_changes_nothing() {
    let spec = with(&spec("local"), training(2, 4));
    let shares = shares();
    let mut federation = Federation::new(&spec, &shares);
    let w_0 = initial(&spec);
    let mut alone = vec![w_0.clone(); shares.len()];
    for number in 1..=3 {
        let updates = federation.updates();
        for (k, (update, _)) in updates.iter().enumerate() {
            // One client's round of FedAvg, from its own model.
            let fedavg = with(&self::spec("fedavg"), spec.training);
            let mut learner = Learner::new(
                &fedavg.architecture,
                &alone[k],
                fedavg.training.optimizer.to_engine(),
                &Backend::cpu(),
            )
            .unwrap();
            let mut order: Vec<usize> = (0..shares[k].len()).collect();
            let seed = client_seed(&spec, number, client_id(k));
            for epoch in 0..2 {
                shuffle(&mut order, &mut seed.derive_numbered("epoch", epoch).rng());
                for positions in order.chunks(4) {
                    let (mut x, mut y) = (Vec::new(), Targets::default());
                    shares[k].fill(positions, &mut x, &mut y);
                    learner.step(&Batch::with_targets(x, [positions.len(), 1, 2, 2], y).unwrap()).unwrap();
                }
            }
            alone[k] = learner.params().unwrap();
            let checked = federation.server.check(update).unwrap();
            let global = federation.server.algorithm.restore(federation.state.clone()).unwrap();
            let deployed = federation.server.algorithm.personal().unwrap()(&global, checked).unwrap();
            assert!(apart(&deployed, &alone[k]) < 1e-6, "round {number}, client {k}");
        }
        federation.state = federation.server.close(&federation.state, &updates, number);
        federation.number = number;
        assert_eq!(federation.server.current_model(&federation.state), w_0);
    }
}

#[test]
fn an_incomplete_batch_is_left_out_if_told_so() {
    let data = view(10, 1);
    let steps = |batch: u32, drop_last: bool| {
        let settings = Training { drop_last, ..training(2, batch) };
        let spec = with(&spec("fedavg"), settings);
        let steps = Federation::new(&spec, std::slice::from_ref(&data)).train(0).1.steps;
        assert_eq!(steps, settings.steps(10));
        steps
    };
    assert_eq!((steps(4, false), steps(4, true)), (6, 4));
    assert_eq!((steps(5, false), steps(5, true)), (4, 4));
    assert_eq!((steps(64, false), steps(64, true)), (2, 2), "fewer samples than a batch still train");
    assert_eq!((steps(0, false), steps(0, true)), (2, 2));
}

#[test]
fn the_rate_follows_its_schedule_from_round_to_round() {
    let data = view(10, 1);
    let schedule = Schedule::Exponential { gamma: 0.5 };
    for algorithm in ["fedavg", "fedsgd"] {
        let spec = with(&spec(algorithm), Training { schedule, ..training(1, 0) });
        let mut federation = Federation::new(&spec, std::slice::from_ref(&data));
        for number in 1..=3u32 {
            let before = federation.server.current_model(&federation.state);
            let after = federation.round();
            let mut learner = Learner::new(
                &spec.architecture,
                &before,
                spec.training.optimizer.to_engine(),
                &Backend::cpu(),
            )
            .unwrap();
            let (mut x, mut y) = (Vec::new(), Targets::default());
            data.fill(&(0..10).collect::<Vec<_>>(), &mut x, &mut y);
            let (_, gradient) = learner.gradient(&Batch::with_targets(x, [10, 1, 2, 2], y).unwrap()).unwrap();
            let mut expected = before;
            expected.add_scaled(-0.5 * 0.5f32.powi(number.cast_signed() - 1), &gradient).unwrap();
            assert!(apart(&after, &expected) < 1e-6, "{algorithm}, round {number}");
        }
    }
}

#[test]
fn gradients_are_shortened_to_the_bound() {
    let data = view(10, 1);
    let clip = 0.01;
    let spec = with(&spec("fedavg"), Training { clip_norm: Some(clip), ..training(1, 0) });
    let after = federate(&spec, std::slice::from_ref(&data), 1).remove(0);
    let step = after.distance(&initial(&spec)).unwrap();
    assert!((step - 0.5 * clip).abs() < 1e-5, "the rate times the bound, not {step}");
}
