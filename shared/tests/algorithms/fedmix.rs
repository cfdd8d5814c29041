//! `FedMix`'s client half (Wang et al. 2022), against the paper's equations in cases with closed forms.

use models::{Backend, Batch, Learner, Network, ParamSet, Sgd, Targets, pseudo_label};
use shared::aggregation::Mixture;
use shared::algorithm::{Settings, registry};
use shared::data::{Augmentation, Preparation, View};
use shared::message::{Metric, TrainReport};
use shared::seed::Seed;
use shared::spec::{LabelsAt, RunSpec, Training};

use super::{Federation, apart, client_id, client_seed, initial, specified, training, view, with};

/// Nothing is moved, so that all views of a sample are the sample.
const STILL: &str = "perturbations = ['shift', 'shift']\nshift = 0";

fn fedmix(more: &str) -> RunSpec {
    specified("fedmix", &format!("{STILL}\n{more}"))
}

/// What one client learns in the first round, and what it reports.
fn learned(spec: &RunSpec, data: &View) -> (ParamSet, TrainReport) {
    let shares = [data.clone()];
    let (update, report) = Federation::new(spec, &shares).train(0);
    (update.tensors, report)
}

fn metrics(report: &TrainReport) -> Vec<Metric> {
    report.metrics.into_iter().flatten().collect()
}

/// All samples of a view with other labels, and the prediction of the initial model for each.
fn predicted(spec: &RunSpec, data: &View) -> (Batch, Vec<f32>) {
    let (mut x, mut y) = (Vec::new(), Targets::default());
    data.fill(&(0..data.len()).collect::<Vec<_>>(), &mut x, &mut y);
    let mut network = Network::new(&spec.architecture, &initial(spec), &Backend::cpu()).unwrap();
    let batch = Batch::unlabelled(x, [data.len(), 1, 2, 2]).unwrap();
    let predictions = models::predict(&mut network, &batch).unwrap();
    let classes = predictions.iter().map(|prediction| prediction.class).collect();
    let greatest = predictions.iter().map(|p| p.probabilities.iter().copied().fold(0.0, f32::max)).collect();
    (Batch::new(batch.x().to_vec(), batch.shape(), classes).unwrap(), greatest)
}

#[test]
fn behind_the_gate_nothing_is_learned_and_that_is_reported() {
    let spec = with(&fedmix("gate = 1.0\nlambda-2 = 0"), training(3, 4));
    let (update, report) = learned(&spec, &view(10, 1));
    assert_eq!(update, initial(&spec).zeros_like(), "weights stay, to the bit");
    assert_eq!((report.loss, report.steps), (0.0, 9));
    let [Metric::Coverage(coverage), Metric::ClassCoverage(classes), Metric::Entropy(entropy)] =
        metrics(&report)[..]
    else {
        panic!("{report:?}")
    };
    assert!(coverage.abs() < 1e-12);
    assert!((0.5..=1.0).contains(&classes) && entropy > 0.0 && entropy <= 1.0, "{classes} {entropy}");
}

#[test]
fn one_hot_pseudo_labels_are_the_labels_that_are_predicted() {
    let spec = with(&fedmix("gate = 0\nlambda-2 = 0\ntemperature = 0"), training(1, 0));
    let data = view(10, 2);
    let (found, report) = learned(&spec, &data);
    let (batch, _) = predicted(&spec, &data);
    let start = initial(&spec);
    let mut learner = Learner::new(&spec.architecture, &start, Sgd::plain(0.5), &Backend::cpu()).unwrap();
    let loss = learner.step(&batch).unwrap();
    let expected = learner.params().unwrap().difference(&start).unwrap();
    assert!(apart(&found, &expected) < 1e-6 && expected.l2_norm() > 1e-2);
    assert!((report.loss - f64::from(loss)).abs() < 1e-6);
    assert_eq!(metrics(&report)[0], Metric::Coverage(1.0));
}

#[test]
fn what_is_predicted_already_has_no_gradient() {
    let spec = with(&fedmix("gate = 0\nlambda-2 = 0\ntemperature = 1"), training(1, 0));
    let (update, _) = learned(&spec, &view(10, 3));
    assert!(update.max_abs() < 1e-7, "y_hat = f(u)");
}

#[test]
fn the_gate_holds_back_samples_and_not_the_divisor() {
    let data = view(12, 4);
    let open = fedmix("gate = 0\nlambda-2 = 0\ntemperature = 0");
    let (_, mut sure) = predicted(&open, &data);
    sure.sort_by(f32::total_cmp);
    let gate = f64::midpoint(f64::from(sure[5]), f64::from(sure[6]));
    let gated = with(&fedmix(&format!("gate = {gate}\nlambda-2 = 0\ntemperature = 0")), training(1, 0));
    let (found, report) = learned(&gated, &data);
    assert_eq!(metrics(&report)[0], Metric::Coverage(0.5));
    // Those that pass alone, of half as many: the mean over them is twice what it is over all.
    let (_, greatest) = predicted(&open, &data);
    let passing: Vec<u32> = (0..12).filter(|&at| f64::from(greatest[at as usize]) >= gate).collect();
    let (alone, _) = learned(&with(&open, training(1, 0)), &data.part(&passing));
    let mut twice = found;
    twice.scale(2.0);
    assert!(apart(&twice, &alone) < 1e-6 && alone.l2_norm() > 1e-2);
}

#[test]
fn the_consistency_term_is_the_squared_distance_of_two_views() {
    let text = "perturbations = ['shift', 'flip']\nshift = 0\nlambda-1 = 0\nlambda-2 = 3";
    let spec = with(&specified("fedmix", text), training(1, 0));
    let data = view(10, 5);
    let (found, report) = learned(&spec, &data);
    let flip = Preparation {
        augmentation: Augmentation { horizontal_flip: 1.0, ..Augmentation::default() },
        ..Preparation::default()
    };
    let all: Vec<usize> = (0..data.len()).collect();
    let (mut x, mut mirrored, mut y) = (Vec::new(), Vec::new(), Targets::default());
    data.fill(&all, &mut x, &mut y);
    flip.training(&data, &all, &Seed::root(1), &mut mirrored, &mut y);
    let start = initial(&spec);
    let distance = |params: &ParamSet| {
        let mut network = Network::new(&spec.architecture, params, &Backend::cpu()).unwrap();
        let mut logits = |x: &[f32]| {
            network.forward(x, &[10, 1, 2, 2], models::Mode::Evaluation).unwrap();
            network.logits().to_vec()
        };
        let (a, b) = (logits(&x), logits(&mirrored));
        let (mut by_a, mut by_b) = (vec![0.0; a.len()], vec![0.0; b.len()]);
        f64::from(pseudo_label::squared_distance((&a, &b), 10, 1.0, (&mut by_a, &mut by_b)))
    };
    assert!((report.loss - 3.0 * distance(&start)).abs() < 1e-6 && report.loss > 1e-3);
    // A step of rate 0.5 along the negative gradient, which differences know.
    for (name, array) in &start {
        for index in 0..array.len() {
            let at = |offset: f32| {
                let mut moved = start.clone();
                moved.get_mut(name).unwrap().values_mut()[index] += offset;
                distance(&moved)
            };
            let expected = -0.5 * 3.0 * (at(1e-2) - at(-1e-2)) / 2e-2;
            let found = f64::from(found.get(name).unwrap().values()[index]);
            assert!((found - expected).abs() < 2e-4, "{name}[{index}]: {found} {expected}");
        }
    }
}

/// With its defaults: perturbed, gated, sharpened, on both terms.
#[test]
fn labels_are_not_looked_at() {
    let spec = with(&specified("fedmix", "gate = 0.5"), training(2, 3));
    let data = view(11, 6);
    let seen = learned(&spec, &data);
    assert!(seen.0.l2_norm() > 1e-3);
    assert_eq!(learned(&spec, &data.clone().without_labels()), seen);
    let mut hidden = spec.clone();
    hidden.data.labels = LabelsAt::Server;
    let device = hidden.data_in(1, client_id(0), &data);
    assert!((0..device.len()).all(|position| device.labels_of(position).is_empty()));
    assert_eq!(learned(&hidden, &device), seen);
}

#[test]
fn views_are_drawn_from_the_seed_of_the_client_and_the_round() {
    let spec = with(&specified("fedmix", "gate = 0\ntemperature = 0"), training(1, 4));
    let data = view(12, 7);
    assert_eq!(learned(&spec, &data), learned(&spec, &data));
    let other = RunSpec { seed: 2, ..spec.clone() };
    let start = initial(&spec);
    let of = |spec: &RunSpec| {
        let mut monitor = |_| std::ops::ControlFlow::Continue(());
        let (backend, seed) = (Backend::cpu(), client_seed(spec, 1, client_id(0)));
        let mut client = shared::algorithm::Client::new(spec, 1, seed, &data, &backend, &mut monitor);
        let record = shared::record::Record { tensors: start.clone(), ..shared::record::Record::default() };
        registry::build(&spec.algorithm).unwrap().train(&mut client, record, None).unwrap().update
    };
    assert_ne!(of(&spec), of(&other));
}

#[test]
fn an_algorithm_that_takes_a_mixture_has_a_model_to_mix() {
    for name in registry::names() {
        let spec = specified(name, "");
        let algorithm = registry::build(&spec.algorithm).unwrap();
        let settings = Settings {
            training: &Training { batch: 0, ..spec.training },
            aggregation: &spec.aggregation,
            architecture: None,
            mixture: Mixture::PUBLISHED,
            late: false,
            private: None,
            secure: false,
            top_k: None,
        };
        let refused = algorithm.conflicts(&settings).iter().any(|conflict| conflict.key == "server.mixing");
        let mut global = algorithm.init(initial(&spec));
        let published = algorithm.current_model(&global).clone();
        let mixed = algorithm.mixable(&mut global).map(std::mem::take);
        assert_eq!(mixed, (!refused).then_some(published), "{name}");
    }
}

#[test]
fn samples_and_labels_that_do_not_suit_are_refused_with_a_way_out() {
    let refused = |algorithm: &str, change: &dyn Fn(&mut RunSpec)| {
        let mut spec = specified(algorithm, "");
        change(&mut spec);
        let built = registry::build(&spec.algorithm).unwrap();
        built.check_data(&spec.data, &spec.training).err().unwrap_or_default()
    };
    assert_eq!(refused("fedmix", &|spec| spec.data.labels = LabelsAt::Server), "");
    let features = refused("fedmix", &|spec| spec.data.shape = vec![13]);
    assert!(features.contains("fedmix") && features.contains("images"), "{features}");
    let small = refused("fedmix", &|spec| spec.data.shape = vec![1, 1, 1]);
    assert!(small.contains("shift of 1 pixels"), "{small}");
    for name in registry::names().into_iter().filter(|name| !["fedmix", "fedmatch"].contains(name)) {
        let unlabelled = refused(name, &|spec| spec.data.labels = LabelsAt::Server);
        assert!(unlabelled.contains(name) && unlabelled.contains("use fedmix"), "{unlabelled}");
        let idle = refused(name, &|spec| {
            spec.data.labels = LabelsAt::Server;
            spec.training = Training { epochs: 0, ..spec.training };
        });
        assert_eq!(idle, "", "where nothing is learned, nothing is missing");
    }
}
