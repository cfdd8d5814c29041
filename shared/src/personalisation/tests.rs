//! What must hold of all methods together.

use std::ops::ControlFlow;
use std::sync::Arc;

use models::{
    Architecture, Backend, Batch, Initialisation, Layer, Learner, Network, ParamSet, Targets, evaluate,
};
use rand::Rng;

use super::features::Features;
use super::*;
use crate::data::{Dataset, Samples, View};
use crate::id::ClientId;
use crate::seed::Seed;
use crate::spec::RunSpec;

const CLIENT: ClientId = ClientId::from_bytes([5; 16]);

fn linear(name: &str, out: usize) -> Layer {
    Layer::Linear { name: name.into(), out, bias: true }
}

/// Three classes of 2x2 images, an extractor and a head that both learn.
fn spec() -> RunSpec {
    let mut spec = RunSpec::example("fedavg");
    spec.architecture = Architecture {
        name: "small".into(),
        input: vec![1, 2, 2],
        classes: 3,
        initialisation: Initialisation::Uniform,
        extractor: vec![Layer::Flatten, linear("a", 6), Layer::Relu],
        projection: Vec::new(),
        head: vec![linear("b", 5), Layer::Relu, linear("c", 3)],
        ..Architecture::default()
    };
    spec
}

fn global(spec: &RunSpec) -> ParamSet {
    spec.architecture.initialise(|name| Seed::root(9).derive(name).rng()).unwrap()
}

fn settings(methods: &[Method]) -> Personalisation {
    let tuning = Tuning { epochs: 4, batch: 8, learning_rate: 0.05, momentum: 0.9, weight_decay: 0.0 };
    Personalisation {
        method: Some(Methods(methods.to_vec())),
        every: 0,
        expert_share: 0.75,
        mix: Mix::Logits,
        augment: false,
        whole: tuning,
        head: tuning,
        gate: GateTraining { epochs: 5, batch: 8, learning_rate: 0.01, weight_decay: 0.0 },
        report: Reports::default(),
    }
}

/// Noisy images whose label is the brightest of the first three pixels, or always 1.
fn data(samples: usize, one_class: bool) -> View {
    let mut rng = Seed::root(samples as u64).rng();
    let pixels: Vec<u8> = (0..4 * samples).map(|_| rng.next_u32() as u8).collect();
    let brightest = |image: &[u8]| (0..3u8).max_by_key(|&pixel| image[usize::from(pixel)]).unwrap();
    let labels =
        pixels.chunks(4).map(|image| if one_class { 1 } else { brightest(image) }).collect::<Vec<_>>();
    View::whole(Arc::new(Dataset::new(vec![1, 2, 2], pixels, labels, 3).unwrap()))
}

fn made(
    spec: &RunSpec,
    settings: &Personalisation,
    data: &View,
    test: Option<&View>,
) -> Result<Outcome, PersonaliseError> {
    let backend = &Backend::cpu();
    let device = Device { spec, settings, round: 3, client: CLIENT, data, test, backend };
    let mut done = 0;
    let outcome = personalise(&device, &global(spec), &mut |progress| {
        assert!(progress.done >= done && progress.done <= progress.total, "{progress:?}");
        done = progress.done;
        ControlFlow::Continue(())
    });
    if outcome.is_ok() && !data.is_empty() {
        // Every step that was announced was taken.
        let mut total = 0;
        let device = Device { spec, settings, round: 3, client: CLIENT, data, test: None, backend };
        personalise(&device, &global(spec), &mut |progress| {
            total = progress.total;
            ControlFlow::Continue(())
        })?;
        assert_eq!(done, total);
    }
    outcome
}

fn batch(spec: &RunSpec, view: &View) -> Batch {
    let positions: Vec<usize> = (0..view.len()).collect();
    spec.data.preparation.batch(view, &positions, &spec.architecture.input).unwrap()
}

#[test]
fn all_but_ft_leave_the_extractor_as_it_is() {
    let (spec, data) = (spec(), data(40, false));
    let global = global(&spec);
    for method in Method::ALL {
        let model = made(&spec, &settings(&[method]), &data, None).unwrap().model.unwrap();
        assert_eq!((model.method, &model.global), (method, &global));
        if method == Method::Ft {
            global.check_same_layout(&model.local).unwrap();
            assert!(model.local.select("extractor.") != global.select("extractor."));
        } else {
            global.select("head.").check_same_layout(&model.local).unwrap();
            assert!(model.local != global.select("head."), "{method:?} has learned nothing");
        }
        let inputs = model.gate.as_ref().map(Gate::inputs);
        let expected = [(Method::Mf, 4), (Method::Mfe, 6)].into_iter().find(|(of, _)| *of == method);
        assert_eq!(inputs, expected.map(|(_, inputs)| inputs), "{method:?}");
    }
}

#[test]
fn what_overflows_in_the_last_step_is_no_model() {
    // One step, whose loss is that of the parameters before it.
    const ONCE: Tuning =
        Tuning { epochs: 1, batch: 0, learning_rate: 1e38, momentum: 0.0, weight_decay: 1e30 };
    let (spec, data) = (spec(), data(40, false));
    let part = |method, change: fn(&mut Personalisation)| {
        let mut settings = settings(&[method]);
        change(&mut settings);
        match made(&spec, &settings, &data, None) {
            Err(PersonaliseError::Diverged { part }) => part,
            other => panic!("{other:?}"),
        }
    };
    assert!(part(Method::Fb, |settings| settings.head = ONCE).starts_with("head."));
    assert!(part(Method::Ft, |settings| settings.whole = ONCE).starts_with("extractor."));
    assert_eq!(
        part(Method::Mfe, |settings| settings.gate =
            GateTraining { epochs: 1, batch: 0, learning_rate: 1e40, weight_decay: 0.0 }),
        "gate"
    );
}

#[test]
fn the_gate_moves_between_the_experts() {
    let (spec, data) = (spec(), data(40, false));
    let batch = batch(&spec, &data);
    for (method, inputs) in [(Method::Mf, 4), (Method::Mfe, 6)] {
        let model = made(&spec, &settings(&[method]), &data, None).unwrap().model.unwrap();
        let learned = model.gate.clone().unwrap();
        assert!(learned != Gate::even(inputs), "{method:?}");
        let answer = |gate: Gate| {
            let model = PersonalModel { gate: Some(gate), ..model.clone() };
            Mixture::new(&model, &Backend::cpu()).unwrap().answer(&batch).unwrap()
        };
        // So far out that the sigmoid is exactly 1 and 0.
        let [open, shut] = [1e3, -1e3].map(|bias| answer(Gate::of(&vec![0.0; inputs], bias)));
        assert_eq!((&open.mixed, &shut.mixed), (&open.global, &open.local));
        assert!(open.global != open.local);
        assert_eq!((open.weights, shut.weights), (vec![1.0; 40], vec![0.0; 40]));
        let between = answer(learned.clone());
        let width = if method == Method::Mf { batch.x() } else { &activations(&spec, &batch) };
        let weights: Vec<f32> = width.chunks(inputs).map(|input| learned.weigh(input)).collect();
        assert_eq!(between.weights, weights);
    }
}

fn activations(spec: &RunSpec, batch: &Batch) -> Vec<f32> {
    let mut network = Network::new(&spec.architecture, &global(spec), &Backend::cpu()).unwrap();
    network.represent(batch).unwrap();
    network.features().to_vec()
}

#[test]
fn the_control_mixes_half_and_half_and_fb_is_the_local_expert() {
    let (spec, data) = (spec(), data(40, false));
    let batch = batch(&spec, &data);
    let answer = |method| {
        let model = made(&spec, &settings(&[method]), &data, None).unwrap().model.unwrap();
        Mixture::new(&model, &Backend::cpu()).unwrap().answer(&batch).unwrap()
    };
    let fixed = answer(Method::Fixed);
    let halves = fixed.global.iter().zip(&fixed.local).map(|(&global, &local)| 0.5 * global + 0.5 * local);
    assert_eq!(fixed.mixed, halves.collect::<Vec<f32>>());
    let fb = answer(Method::Fb);
    assert_eq!((&fb.mixed, &fb.local), (&fixed.local, &fixed.local));
}

#[test]
fn methods_made_together_are_what_they_are_alone() {
    let (spec, data, test) = (spec(), data(40, false), data(30, false));
    let all = made(&spec, &settings(&Method::ALL), &data, Some(&test)).unwrap();
    assert_eq!(all.model.map(|model| model.method), Some(Method::Ft));
    for (at, method) in Method::ALL.into_iter().enumerate() {
        let alone = made(&spec, &settings(&[method]), &data, Some(&test)).unwrap();
        assert_eq!((&alone.personal[..], alone.global), (&all.personal[at..=at], all.global));
        let mut first = Method::ALL.to_vec();
        first.rotate_left(at);
        assert_eq!(made(&spec, &settings(&first), &data, None).unwrap().model, alone.model, "{method:?}");
    }
}

/// The order of a sum depends on the size of a batch, so the last bits do.
fn near(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?} {expected:?}");
}

#[test]
fn features_computed_once_are_those_computed_anew() {
    let (spec, data) = (spec(), data(300, false));
    let mut network = Network::new(&spec.architecture, &global(&spec), &Backend::cpu()).unwrap();
    let mut monitor = |_| ControlFlow::Continue(());
    let mut steps = Steps { progress: Progress::default(), monitor: &mut monitor };
    let features = Features::of(&mut network, &spec.data.preparation, &data, None, &mut steps).unwrap();
    assert_eq!((&features.shape[..], features.labels.len()), (&[6][..], 300));
    // More samples than a pass takes, in another order, one by one.
    let (mut x, mut y) = (Vec::new(), Targets::default());
    for position in [299, 0, 256, 255, 7] {
        let one = data.part(&[position as u32]);
        let anew = batch(&spec, &one);
        features.fill(&[position], &mut x, &mut y);
        assert_eq!(&y, anew.targets());
        near(&x, &activations(&spec, &anew));
        network.represent(&anew).unwrap();
        near(&features.logits[position * 3..][..3], network.logits());
    }
}

#[test]
fn heads_and_gates_learn_on_augmented_samples_if_they_are_told_to() {
    let (mut spec, data) = (spec(), data(40, false));
    let of = |spec: &RunSpec, augment| {
        let settings = Personalisation { augment, ..settings(&[Method::Mf, Method::Mfe]) };
        made(spec, &settings, &data, None).unwrap()
    };
    assert_eq!(of(&spec, true), of(&spec, false), "nothing changes where the run augments nothing");
    spec.data.preparation.augmentation.horizontal_flip = 0.5;
    let (once, anew) = (of(&spec, false), of(&spec, true));
    assert_eq!(of(&spec, true), anew);
    let [once_model, anew_model] = [&once, &anew].map(|outcome| outcome.model.as_ref().unwrap());
    assert!(once_model.local != anew_model.local && once_model.gate != anew_model.gate);
    // What is always mirrored is learned as images are that lie there mirrored.
    spec.data.preparation.augmentation.horizontal_flip = 1.0;
    let always = of(&spec, true).model.unwrap();
    let samples = data.dataset();
    let Samples::Bytes(pixels) = samples.samples() else { panic!("bytes") };
    let mirrored: Vec<u8> = pixels.chunks(4).flat_map(|at| [at[1], at[0], at[3], at[2]]).collect();
    let labels = batch(&spec, &data).y().iter().map(|&label| label as u8).collect::<Vec<_>>();
    let mirrored = View::whole(Arc::new(Dataset::new(vec![1, 2, 2], mirrored, labels, 3).unwrap()));
    let expected =
        made(&spec, &settings(&[Method::Mf, Method::Mfe]), &mirrored, None).unwrap().model.unwrap();
    assert_eq!((always.local, always.gate), (expected.local, expected.gate));
}

#[test]
fn a_head_that_learns_on_features_is_one_that_learns_under_a_frozen_extractor() {
    let (spec, data) = (spec(), data(8, false));
    let mut settings = settings(&[Method::Fb]);
    settings.head.batch = 0;
    let outcome = made(&spec, &settings, &data, None).unwrap();

    let part = batch(&spec, &data.part(&outcome.split.expert));
    let sgd = settings.head.sgd();
    let mut learner = Learner::new(&spec.architecture, &global(&spec), sgd, &Backend::cpu()).unwrap();
    for _ in 0..settings.head.epochs {
        let (_, mut gradient) = learner.gradient(&part).unwrap();
        gradient.overlay(gradient.select("extractor.").zeros_like()).unwrap();
        learner.apply(&gradient).unwrap();
    }
    let (expected, found) = (learner.params().unwrap().select("head."), outcome.model.unwrap().local);
    assert!(found.distance(&expected).unwrap() < 1e-5);
    assert!(found.distance(&global(&spec).select("head.")).unwrap() > 1e-2);
}

#[test]
fn the_tests_are_of_the_models() {
    let (spec, data, test) = (spec(), data(200, false), data(600, false));
    let mut settings = settings(&[Method::Ft]);
    (settings.whole.epochs, settings.whole.learning_rate) = (40, 0.01);
    let outcome = made(&spec, &settings, &data, Some(&test)).unwrap();
    let accuracy = |params: &ParamSet| {
        let mut network = Network::new(&spec.architecture, params, &Backend::cpu()).unwrap();
        evaluate(&mut network, [batch(&spec, &test)]).unwrap().accuracy
    };
    let model = outcome.model.as_ref().unwrap();
    assert_eq!(outcome.global.global, accuracy(&model.global));
    assert_eq!(outcome.personal[0].scores.global, accuracy(&model.local));
    let tests_alone =
        made(&spec, &Personalisation { method: Some(Methods::default()), ..settings }, &data, Some(&test))
            .unwrap();
    assert_eq!((tests_alone.model, tests_alone.global), (None, outcome.global));
    assert!(outcome.personal[0].scores.global > outcome.global.global, "it has learned from {outcome:?}");
    assert!(outcome.personal[0].scores.local.is_some_and(|share| (0.0..=1.0).contains(&share)));
}

#[test]
fn small_and_one_sided_devices_get_their_models_too() {
    let spec = spec();
    for (samples, one_class) in [(1, false), (2, false), (3, true), (30, true)] {
        let data = data(samples, one_class);
        for test in [None, Some(&data)] {
            let outcome = made(&spec, &settings(&Method::ALL), &data, test).unwrap();
            assert_eq!(outcome.split.samples(), samples);
            for tested in outcome.personal {
                let Scores { local, global } = tested.scores;
                assert_eq!((local.is_some(), global.is_some()), (test.is_some(), test.is_some()));
                let gated = matches!(tested.method, Method::Mf | Method::Mfe);
                assert_eq!(tested.gate.is_some(), gated && samples > 1, "{tested:?}");
            }
        }
    }
}

#[test]
fn a_text_is_weighed_position_by_position() {
    let mut spec = spec();
    spec.architecture = Architecture {
        input: vec![3],
        classes: 5,
        extractor: vec![Layer::Embedding { name: "e".into(), vocabulary: 5, dim: 4 }],
        head: vec![linear("c", 5)],
        ..spec.architecture
    };
    let tokens: Vec<u16> = (0..36).map(|at| at * 7 % 5).collect();
    let labels = tokens.iter().map(|&token| u32::from(token + 1) % 5).collect();
    let data = View::whole(Arc::new(Dataset::labelled(vec![3], Samples::Tokens(tokens), labels, 5).unwrap()));
    let methods = [Method::Mfe, Method::Ft, Method::Fb, Method::Fixed];
    let outcome = made(&spec, &settings(&methods), &data, Some(&data)).unwrap();
    let model = outcome.model.unwrap();
    assert_eq!(model.gate.as_ref().map(Gate::inputs), Some(4));
    let answer = Mixture::new(&model, &Backend::cpu()).unwrap().answer(&batch(&spec, &data)).unwrap();
    assert_eq!((answer.weights.len(), answer.mixed.len()), (36, 180));
    let refused = made(&spec, &settings(&[Method::Mf]), &data, None);
    assert!(matches!(refused, Err(PersonaliseError::Unfit(Unfit::Tokens { .. }))));
}

#[test]
fn it_stops_when_it_is_told_to() {
    let (spec, data, settings) = (spec(), data(40, false), settings(&Method::ALL));
    let backend = &Backend::cpu();
    let device = Device {
        spec: &spec,
        settings: &settings,
        round: 1,
        client: CLIENT,
        data: &data,
        test: None,
        backend,
    };
    let mut calls = 0;
    let stopped = personalise(&device, &global(&spec), &mut |_| {
        calls += 1;
        if calls == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(stopped, Err(PersonaliseError::Cancelled)) && calls == 5);
}

#[test]
fn a_newer_global_model_is_taken_if_it_is_the_same_network() {
    let (spec, data) = (spec(), data(40, false));
    let mut model = made(&spec, &settings(&[Method::Mfe]), &data, None).unwrap().model.unwrap();
    let mut newer = global(&spec);
    newer.scale(1.5);
    let before = model.clone();
    model.refresh(&spec.architecture, newer.clone()).unwrap();
    assert_eq!(model, PersonalModel { global: newer.clone(), ..before.clone() });
    let answer = Mixture::new(&model, &Backend::cpu()).unwrap().answer(&batch(&spec, &data)).unwrap();
    assert!(answer.mixed.iter().all(|value| value.is_finite()));

    let kept = model.clone();
    let mut wider = spec.architecture.clone();
    wider.extractor[1] = linear("a", 7);
    let params = wider.initialise(|name| Seed::root(1).derive(name).rng()).unwrap();
    let error = model.refresh(&wider, params).unwrap_err();
    assert!(error.difference.contains("extractor.a.bias"), "{error}");
    // Layers without parameters count too.
    let mut linear_only = spec.architecture.clone();
    linear_only.extractor.truncate(2);
    assert!(model.refresh(&linear_only, newer).is_err());
    assert_eq!(model, kept);
}
