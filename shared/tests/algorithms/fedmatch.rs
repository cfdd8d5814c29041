//! `FedMatch`'s two parts and its helpers (Jeong et al. 2021), against the paper's equations in cases with closed forms.

use models::{Network, ParamSet, pseudo_label};
use shared::aggregation::Weights;
use shared::data::Samples;
use shared::seed::standard_normal;

use super::*;

/// No augmentation, no pull at psi and no helpers, except for what `more` says.
fn fedmatch(more: &str) -> RunSpec {
    let plain = "lambda-a = 1.0\nlambda-l1 = 0\nlambda-l2 = 0\nshift = 0\nflip = false\ngate = 0\n";
    let mut table: toml::Table = plain.parse().unwrap();
    table.insert("helpers".to_owned(), 0.into());
    table.extend(more.parse::<toml::Table>().unwrap());
    let mut spec = specified("fedmatch", &table.to_string());
    spec.aggregation.weights = Weights::Uniform;
    spec
}

#[test]
fn psi_begins_with_the_share_of_sigma_that_is_asked_for() {
    let spec = fedmatch("psi-start = 0.25");
    let start = initial(&spec);
    let federation_shares = shares();
    let federation = Federation::new(&spec, &federation_shares);
    let (sigma, psi, helpers) = parts(&federation.state);
    assert_eq!((&sigma, helpers.len()), (&start, 0));
    let mut quarter = start.zeros_like();
    quarter.add_scaled(0.25, &start).unwrap();
    assert_eq!(psi, quarter);
    let mut theta = start.clone();
    theta.add(&quarter).unwrap();
    assert_eq!(federation.server.current_model(&federation.state), theta);
}

#[test]
fn pi_does_as_many_operations_of_rand_augment_as_are_asked_for() {
    let data = view(10, 2);
    let update = |more: &str| first_update(&with(&fedmatch(more), training(2, 3)), &data);
    let three = update("rand-augment = 3");
    assert_ne!(three, update(""), "samples are learned from as they change");
    assert_eq!(three, update("rand-augment = 3"), "by the run's seed");
    assert_ne!(three, update("rand-augment = 1"));
    assert_ne!(three, update("rand-augment = 3\nrand-augment-strength = 0.1"));
}

#[test]
fn rand_augment_is_for_values_from_0_to_1() {
    let (pixels, labels) = (vec![0.5, 2.0, 0.0, 1.0], vec![0_u32]);
    let wide = Dataset::labelled(vec![1, 2, 2], Samples::Floats(pixels), labels, 2).unwrap();
    let spec = with(&fedmatch("rand-augment = 3"), training(2, 3));
    let shares = [View::whole(Arc::new(wide))];
    let broadcast = Federation::new(&spec, &shares).broadcast();
    let trained =
        train_monitored(&spec, 1, 0, &shares[0], broadcast, None, &mut |_| ControlFlow::Continue(()));
    let refused = trained.err().expect("it is out of range").to_string();
    assert!(refused.contains("fedmatch.rand-augment") && refused.contains("a 2 among these"), "{refused}");
}

fn shares() -> Vec<View> {
    (0..4).map(|k| view(8 + 2 * k, 20 + k)).collect()
}

/// What the server has between rounds: sigma, psi, and the helpers' psi by tag.
fn parts(state: &Record) -> (ParamSet, ParamSet, Vec<ParamSet>) {
    let mut tensors = state.tensors.clone();
    let (sigma, psi) = (tensors.take_under("sigma."), tensors.take_under("psi."));
    let mut helpers = Vec::new();
    while !tensors.is_empty() {
        let prefix = tensors.names().next().map(|name| name[..24].to_owned()).unwrap();
        helpers.push(tensors.take_under(&prefix));
    }
    (sigma, psi, helpers)
}

fn sum(a: &ParamSet, b: &ParamSet) -> ParamSet {
    let mut sum = a.clone();
    sum.add(b).unwrap();
    sum
}

/// The server's own training has made this of theta.
fn supervise(federation: &mut Federation<'_>, trained: &ParamSet) {
    let algorithm = &federation.server.algorithm;
    let mut global = algorithm.restore(federation.state.clone()).unwrap();
    algorithm.supervised().unwrap()(&mut global, trained.clone()).unwrap();
    federation.state = algorithm.store(global);
}

#[test]
fn without_helpers_and_pulls_a_client_learns_its_own_predictions_as_in_fedmix() {
    let still =
        "perturbations = ['shift', 'shift']\nshift = 0\npredictions = 1\nlambda-2 = 0\ntemperature = 0";
    let settings = training(2, 3);
    let fedmix = with(&specified("fedmix", &format!("{still}\ngate = 0")), settings);
    let data = view(10, 2);
    let found = first_update(&with(&fedmatch(""), settings), &data);
    assert_eq!(found, first_update(&fedmix, &data), "to the bit");
    assert!(found.tensors.l2_norm() > 1e-2);
    // With a gate the mean is over those that pass, and FedMix's over all.
    let gate = 0.55;
    let gated = |mut spec: RunSpec, text: &str| {
        let table = text.parse::<toml::Table>().unwrap();
        spec.algorithm = registry::specify(&spec.algorithm.name.clone(), table).unwrap();
        Federation::new(&with(&spec, training(1, 0)), std::slice::from_ref(&data)).train(0)
    };
    let text = "lambda-a = 1.0\nlambda-l1 = 0\nlambda-l2 = 0\nshift = 0\nflip = false\nhelpers = 0";
    let (found, report) = gated(fedmatch(""), &format!("{text}\ngate = {gate}"));
    let (other, _) = gated(fedmix, &format!("{still}\ngate = {gate}"));
    let Some(shared::message::Metric::Coverage(coverage)) = report.metrics[0] else { panic!("{report:?}") };
    assert!(coverage > 0.0 && coverage < 1.0, "{coverage}");
    let mut expected = other.tensors;
    expected.scale((1.0 / coverage) as f32);
    assert!(apart(&found.tensors, &expected) < 1e-6);
}

#[test]
fn behind_the_gate_nothing_but_the_pulls_is_learned() {
    let data = view(10, 3);
    let settings = training(1, 0);
    let still = first_update(&with(&fedmatch("gate = 1.0"), settings), &data);
    assert_eq!(still.tensors, initial(&fedmatch("")).zeros_like());
    // psi is 0: towards zero nothing pulls, towards sigma 2 lambda sigma, in one step of rate 0.5.
    let pulled = with(&fedmatch("gate = 1.0\nlambda-l1 = 0.25\nlambda-l2 = 0.125"), settings);
    let mut federation = Federation::new(&pulled, std::slice::from_ref(&data));
    let (first, report) = federation.train(0);
    let mut expected = initial(&pulled);
    expected.scale(0.125);
    assert!(report.loss.abs() < 1e-12, "pulls say nothing of the samples");
    assert!(apart(&first.tensors, &expected) < 1e-7);
    federation.round();
    // Then both: rate (lambda_1 sign(psi) + 2 lambda_2 (psi - sigma)), downwards.
    let (sigma, psi, _) = parts(&federation.state);
    assert_eq!((&sigma, &psi), (&initial(&pulled), &first.tensors));
    let mut expected = psi.zeros_like();
    for (name, expected) in expected.iter_mut() {
        let of = sigma.get(name).unwrap().values().iter().zip(psi.get(name).unwrap().values());
        for (value, (sigma, psi)) in expected.values_mut().iter_mut().zip(of) {
            let sign = if *psi == 0.0 { 0.0 } else { psi.signum() };
            *value = -0.5 * (0.25 * sign + 0.25 * (psi - sigma));
        }
    }
    let (second, _) = federation.train(0);
    assert!(apart(&second.tensors, &expected) < 1e-6, "{}", apart(&second.tensors, &expected));
}

#[test]
fn clients_move_psi_and_the_server_moves_sigma() {
    let shares = shares();
    let spec = with(&fedmatch("lambda-l2 = 0.1"), training(1, 4));
    let mut federation = Federation::new(&spec, &shares);
    let w_0 = initial(&spec);
    assert_eq!(parts(&federation.state), (w_0.clone(), w_0.zeros_like(), Vec::new()));
    let updates = federation.updates();
    let mut mean = w_0.zeros_like();
    for (update, _) in &updates {
        mean.add_scaled(0.25, &update.tensors).unwrap();
    }
    let mut federation = Federation::new(&spec, &shares);
    let theta = federation.round();
    let (sigma, psi, helpers) = parts(&federation.state);
    assert_eq!((&sigma, helpers.len()), (&w_0, 0));
    assert!(apart(&psi, &mean) < 1e-6 && mean.l2_norm() > 1e-2);
    assert_eq!(theta, sum(&sigma, &psi));
    // The server trains theta, and what it has learned is sigma's.
    let trained = sum(&theta, &mean);
    supervise(&mut federation, &trained);
    let (sigma, after, _) = parts(&federation.state);
    assert_eq!((after, sigma.clone()), (psi.clone(), trained.clone().difference(&psi).unwrap()));
    assert!(apart(&sum(&sigma, &psi), &trained) < 1e-6);
    // While psi is zero, sigma is what was trained, to the bit.
    let mut fresh = Federation::new(&spec, &shares);
    supervise(&mut fresh, &trained);
    assert_eq!(parts(&fresh.state).0, trained);
    assert_eq!(fresh.server.current_model(&fresh.state), trained);
}

/// One image of Gaussian noise, and what a model gives for it.
fn seen_in_noise(spec: &RunSpec, theta: &ParamSet) -> Vec<f32> {
    let mut rng = spec.root_seed().derive("fixed image").rng();
    let x: Vec<f32> = (0..4).map(|_| standard_normal(&mut rng) as f32).collect();
    probabilities(spec, theta, &x)
}

fn probabilities(spec: &RunSpec, theta: &ParamSet, x: &[f32]) -> Vec<f32> {
    let mut network = Network::new(&spec.architecture, theta, &Backend::cpu()).unwrap();
    network.forward(x, &[x.len() / 4, 1, 2, 2], models::Mode::Evaluation).unwrap();
    let mut probabilities = vec![0.0; network.logits().len()];
    pseudo_label::add_probabilities(network.logits(), 2, &mut probabilities);
    probabilities
}

/// Client 0 is helped by the one of the three others whose model sees in noise what its own sees, and not by itself.
#[test]
fn the_helper_is_the_other_model_that_is_nearest_in_one_fixed_image() {
    let shares = shares();
    let settings = training(1, 0);
    let spec = with(&fedmatch("helpers = 1\nbank = 4\nlambda-i = 0.5"), settings);
    let mut federation = Federation::new(&spec, &shares);
    let trained: Vec<ParamSet> = federation.updates().into_iter().map(|(update, _)| update.tensors).collect();
    let mut federation = Federation::new(&spec, &shares);
    federation.round();
    let (sigma, psi, helpers) = parts(&federation.state);
    assert_eq!(helpers.len(), 4, "those of all clients, of the first round");
    for psi_k in &trained {
        assert!(helpers.iter().any(|helper| apart(helper, psi_k) < 1e-7));
    }
    let distance = |k: usize| -> f64 {
        let [own, other] = [0, k].map(|k| seen_in_noise(&spec, &sum(&sigma, &trained[k])));
        own.iter().zip(&other).map(|(a, b)| f64::from(a - b).powi(2)).sum()
    };
    let nearest = (1..4).min_by(|&a, &b| distance(a).total_cmp(&distance(b))).unwrap();
    let step = |helper: Option<usize>| -> ParamSet {
        // The gradient of CE(y_hat, f(u)) + 0.5 KL(helper || f(u)) is p - y_hat + 0.5 (p - helper), by the logits.
        let theta = sum(&sigma, &psi);
        let (mut x, mut y) = (Vec::new(), Targets::default());
        let data = &shares[0];
        data.fill(&(0..data.len()).collect::<Vec<_>>(), &mut x, &mut y);
        let own = probabilities(&spec, &theta, &x);
        let said = helper.map(|k| probabilities(&spec, &sum(&sigma, &trained[k]), &x));
        let batch = Batch::unlabelled(x, [data.len(), 1, 2, 2]).unwrap();
        let mut learner =
            Learner::new(&spec.architecture, &theta, settings.optimizer.to_engine(), &Backend::cpu())
                .unwrap();
        learner
            .step_with_loss(&batch, &mut |_, by| {
                by.logits.clear();
                for (row, p) in own.chunks(2).enumerate() {
                    // Of two votes a draw is one's own.
                    let label = usize::from(p[1] > p[0]);
                    for class in 0..2 {
                        let mut gradient = p[class] - f32::from(u8::from(class == label));
                        if let Some(said) = &said {
                            gradient += 0.5 * (p[class] - said[2 * row + class]);
                        }
                        by.logits.push(gradient / data.len() as f32);
                    }
                }
                Ok(0.0)
            })
            .unwrap();
        learner.params().unwrap().difference(&theta).unwrap()
    };
    let found = federation.train(0).0.tensors;
    for k in 0..4 {
        assert_eq!(apart(&found, &step(Some(k))) < 1e-6, k == nearest, "{k}, and {nearest} is nearest");
    }
    assert!(apart(&found, &step(None)) > 1e-4);
}

/// With two helpers that agree, their label counts, regardless of the client's own prediction.
#[test]
fn two_helpers_outvote_a_client() {
    let data = view(12, 4);
    let shares = [data.clone(), view(9, 5), view(9, 6)];
    let spec = with(&fedmatch("helpers = 2\nbank = 3\nlambda-i = 0.0"), training(1, 0));
    let mut federation = Federation::new(&spec, &shares);
    federation.round();
    // Both others have learned that everything is of class 1.
    let (sigma, _, _) = parts(&federation.state);
    let (mut own, mut sure) = (sigma.zeros_like(), sigma.zeros_like());
    sure.get_mut("head.fc.bias").unwrap().values_mut().copy_from_slice(&[-50.0, 50.0]);
    own.get_mut("head.fc.bias").unwrap().values_mut().copy_from_slice(&[50.0, -50.0]);
    let names: Vec<String> = federation.state.tensors.names().map(str::to_owned).collect();
    for name in names.iter().filter(|name| name.starts_with("helper.")) {
        let value = sure.get(&name[24..]).unwrap().clone();
        federation.state.tensors.insert(name.clone(), value);
    }
    for (name, value) in &own {
        federation.state.tensors.insert(format!("psi.{name}"), value.clone());
    }
    let theta = federation.server.current_model(&federation.state);
    let mut expected = Learner::new(&spec.architecture, &theta, Sgd::plain(0.5), &Backend::cpu()).unwrap();
    let (mut x, mut y) = (Vec::new(), Targets::default());
    data.fill(&(0..data.len()).collect::<Vec<_>>(), &mut x, &mut y);
    expected.step(&Batch::new(x, [data.len(), 1, 2, 2], vec![1; data.len()]).unwrap()).unwrap();
    let expected = expected.params().unwrap().difference(&theta).unwrap();
    let found = federation.train(0).0.tensors;
    assert!(apart(&found, &expected) < 1e-5 && expected.l2_norm() > 0.1, "{}", apart(&found, &expected));
}

#[test]
fn a_bank_is_filled_anew_after_refresh_rounds_and_stays_as_small_as_asked() {
    let shares = shares();
    let spec = with(&fedmatch("helpers = 1\nbank = 2\nrefresh = 3\nlambda-i = 1.0"), training(1, 4));
    let mut federation = Federation::new(&spec, &shares);
    let mut banks = vec![parts(&federation.state).2];
    for _ in 0..7 {
        federation.round();
        banks.push(parts(&federation.state).2);
    }
    assert_eq!(banks.iter().map(Vec::len).collect::<Vec<_>>(), [0, 2, 2, 2, 2, 2, 2, 2]);
    let changed: Vec<bool> = banks.windows(2).map(|pair| pair[0] != pair[1]).collect();
    assert_eq!(changed, [true, false, false, true, false, false, true]);
}

/// Finite parameters of a malicious client whose outputs are not finite: they help no client, and nothing breaks.
#[test]
fn a_helper_that_computes_no_numbers_helps_no_client() {
    let shares = shares();
    let spec = with(&fedmatch("helpers = 2\nbank = 4\nlambda-i = 1.0"), training(1, 4));
    let mut federation = Federation::new(&spec, &shares);
    federation.round();
    let names: Vec<String> = federation.state.tensors.names().map(str::to_owned).collect();
    for name in names.iter().filter(|name| name.starts_with("helper.")) {
        let shape = federation.state.tensors.get(name).unwrap().shape().to_vec();
        let mut huge = Array::zeros(shape);
        huge.values_mut().fill(f32::MAX);
        federation.state.tensors.insert(name.clone(), huge);
    }
    let update = federation.train(0).0;
    assert_eq!(update.tensors.first_non_finite(), None);
    assert!(update.tensors.l2_norm() > 0.0);
}

#[test]
fn hyper_parameters_that_make_no_sense_are_refused() {
    for (table, part) in [
        ("lambda-a = -1.0", "lambda-a"),
        ("lambda-l2 = nan", "lambda-l2"),
        ("lambda-a = 0.0\nlambda-i = 0.0", "learn nothing"),
        ("lambda-a = 0.0\nhelpers = 0", "learn nothing"),
        ("gate = 1.5", "gate"),
        ("helpers = 6", "bank"),
        ("bank = 65", "64"),
        ("refresh = 0", "refresh"),
    ] {
        let refused = registry::specify("fedmatch", table.parse().unwrap()).unwrap_err().to_string();
        assert!(refused.contains("fedmatch") && refused.contains(part), "{table}: {refused}");
    }
}

/// A helper's statistics would be of two rounds at once.
#[test]
fn models_with_batch_normalisation_have_no_helpers() {
    let network = axes::normalised("fedavg", Aggregation::default()).architecture;
    let of = |helpers: u32| {
        let table = format!("helpers = {helpers}").parse().unwrap();
        registry::build(&registry::specify("fedmatch", table).unwrap()).unwrap()
    };
    let reason = of(2).network(network.clone()).unwrap_err();
    assert!(reason.contains("helpers = 0") && reason.contains("group"), "{reason}");
    assert_eq!(of(0).network(network.clone()), Ok(network));
    let plain = spec("fedavg").architecture;
    assert_eq!(of(2).network(plain.clone()), Ok(plain));
}
