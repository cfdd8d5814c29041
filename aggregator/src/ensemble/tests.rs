use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use models::params::codec;
use models::{Architecture, Array, Backend, Batch, Layer, Limits, Network, ParamSet, Precision, Targets};
use proptest::prelude::*;
use shared::aggregation::Weights;
use shared::algorithm::{Answering, Fusion, Head, Noise, registry};
use shared::data::{Dataset, Preparation, View};
use shared::id::ClientId;
use shared::seed::{Seed, below};
use shared::spec::{DataSpec, RunSpec};

use super::*;
use crate::storage::Disk;

mod classifiers;
mod inconsistency;

const HEAD: &str = "head.out.weight";

/// A member's values out of memory, three at a time.
impl Origin for ParamSet {
    fn pass(&self, visit: &mut Values<'_>) -> Result<(), EnsembleError> {
        for (tensor, array) in self {
            array.values().chunks(3).try_for_each(|values| visit(tensor, values))?;
        }
        Ok(())
    }
}

fn architecture(hidden: usize) -> Architecture {
    let linear = |name: &str, out| Layer::Linear { name: name.into(), out, bias: true };
    let configured = Architecture {
        name: "test".into(),
        input: vec![1, 2, 2],
        classes: 3,
        initialisation: models::Initialisation::default(),
        extractor: vec![Layer::Flatten, linear("fc", hidden), Layer::Relu],
        projection: vec![],
        head: vec![linear("out", 3)],
        ..Architecture::default()
    };
    let fafi = registry::specify("fafi", toml::Table::new()).unwrap();
    registry::build(&fafi).unwrap().network(configured).unwrap()
}

fn model(seed: u64) -> ParamSet {
    architecture(5).initialise(|tensor| Seed::root(seed).derive(tensor).rng()).unwrap()
}

fn manifest() -> Manifest {
    Manifest {
        architecture: architecture(5),
        data: DataSpec { shape: vec![1, 2, 2], class_names: Vec::new(), ..RunSpec::example("fafi").data },
        answering: Answering { temperature: 0.07, ..Answering::default() },
        noise_seed: 3,
        weights: Weights::default(),
        start: digest(&model(0)),
        members: Vec::new(),
    }
}

fn client(index: usize) -> ClientId {
    ClientId::from_bytes([index as u8 + 1; 16])
}

/// An ensemble of these models, with their samples; each belongs to the client of its position.
fn bundle(folder: &Path, members: &[(u64, ParamSet)]) -> Bundle {
    written(folder, &manifest(), members)
}

/// The same with another description.
fn written(folder: &Path, manifest: &Manifest, members: &[(u64, ParamSet)]) -> Bundle {
    let path = folder.join("ensemble.safetensors");
    let origin = |(index, (samples, params)): (usize, &(u64, ParamSet))| {
        let member = Member { client: client(index), samples: *samples, run: "a-run".to_owned() };
        (member, Box::new(params.clone()) as Box<dyn Origin>)
    };
    let members: Vec<_> = members.iter().enumerate().map(origin).collect();
    write(&Disk, &path, manifest, &members).unwrap();
    Bundle::open(Arc::new(Disk), &path).unwrap()
}

fn samples(count: usize) -> View {
    let mut rng = Seed::root(8).rng();
    let pixels: Vec<u8> = (0..4 * count).map(|_| below(256, &mut rng) as u8).collect();
    let labels: Vec<u8> = (0..count).map(|sample| (sample % 3) as u8).collect();
    View::whole(Arc::new(Dataset::new(vec![1, 2, 2], pixels, labels, 3).unwrap()))
}

/// What is said of all samples, by every fusion.
fn answers(bundle: &Bundle, view: &View) -> BTreeMap<Fusion, Vec<Fused>> {
    let preparation = Preparation::default();
    let question =
        Question { view, preparation: &preparation, batch: 4, fusions: Head::Prototypes.fusions() };
    let mut all: BTreeMap<Fusion, Vec<Fused>> = BTreeMap::new();
    let visit = &mut |answers: &Answers<'_>| {
        for (fusion, fused) in &answers.fused {
            all.entry(*fusion).or_default().extend_from_slice(fused);
        }
    };
    bundle.answer(&question, visit).unwrap();
    all
}

fn features(params: &ParamSet, view: &View) -> Vec<Vec<f32>> {
    let (mut x, mut y) = (Vec::new(), Targets::default());
    view.fill(&(0..view.len()).collect::<Vec<_>>(), &mut x, &mut y);
    let batch = Batch::with_targets(x, [view.len(), 1, 2, 2], y).unwrap();
    let mut network = Network::new(&architecture(5), params, &Backend::cpu()).unwrap();
    network.represent(&batch).unwrap().chunks(5).map(<[f32]>::to_vec).collect()
}

fn close(a: &[f64], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - f64::from(*b)).abs() < 1e-6)
}

#[test]
fn one_member_alone_is_what_is_fused() {
    let folder = tempfile::tempdir().unwrap();
    let view = samples(11);
    let all = answers(&bundle(folder.path(), &[(7, model(1))]), &view);
    for fusion in [Fusion::Informative, Fusion::Size, Fusion::Uniform] {
        let found = &all[&fusion];
        assert_eq!(found.len(), 11);
        for (fused, expected) in found.iter().zip(features(&model(1), &view)) {
            assert!(close(&fused.vector, &expected), "{fusion}");
        }
    }
}

#[test]
fn equal_members_have_equal_weights() {
    let folder = tempfile::tempdir().unwrap();
    let view = samples(9);
    let all = answers(&bundle(folder.path(), &[(7, model(1)), (1, model(1)), (90, model(1))]), &view);
    for (row, expected) in features(&model(1), &view).iter().enumerate() {
        for fusion in [Fusion::Informative, Fusion::Size, Fusion::Uniform] {
            assert!(close(&all[&fusion][row].vector, expected), "{fusion}");
        }
    }
    // Others have others.
    let all = answers(&bundle(folder.path(), &[(7, model(1)), (1, model(2))]), &view);
    assert_ne!(all[&Fusion::Informative], all[&Fusion::Uniform]);
    assert_ne!(all[&Fusion::Size], all[&Fusion::Uniform]);
}

#[test]
fn the_weights_are_those_of_the_paper_with_the_noise_that_is_asked_for() {
    for noise in [Noise::default(), Noise { mean: 0.5, deviation: 3.0 }] {
        weights_with(noise);
    }
}

fn weights_with(noise: Noise) {
    let folder = tempfile::tempdir().unwrap();
    let (view, models) = (samples(6), [model(1), model(2)]);
    let manifest = Manifest { answering: Answering { noise, ..manifest().answering }, ..manifest() };
    let members = [(30, models[0].clone()), (10, models[1].clone())];
    let all = answers(&written(folder.path(), &manifest, &members), &view);
    let of = models.each_ref().map(|model| features(model, &view));
    for (row, fused) in all[&Fusion::Informative].iter().enumerate() {
        let mut rng = Seed::root(3).derive("fusion noise").derive_numbered("sample", row as u64).rng();
        let mut drawn = || noise.mean + noise.deviation * shared::seed::standard_normal(&mut rng);
        let noise: Vec<f32> = (0..4).map(|_| drawn() as f32).collect();
        let noise = Batch::new(noise, [1, 1, 2, 2], vec![0]).unwrap();
        let alpha: Vec<f64> = (0..2)
            .map(|m| {
                let mut network = Network::new(&architecture(5), &models[m], &Backend::cpu()).unwrap();
                let of_noise = network.represent(&noise).unwrap();
                1.0 - models::mean_cosine(&of[m][row], of_noise, 1)
            })
            .collect();
        let mean = |j: usize| {
            let sum = alpha[0] * f64::from(of[0][row][j]) + alpha[1] * f64::from(of[1][row][j]);
            (sum / (alpha[0] + alpha[1])) as f32
        };
        assert!(close(&fused.vector, &(0..5).map(mean).collect::<Vec<_>>()), "row {row}");
        let by_size = |j: usize| 0.75 * of[0][row][j] + 0.25 * of[1][row][j];
        assert!(close(&all[&Fusion::Size][row].vector, &(0..5).map(by_size).collect::<Vec<_>>()));
        // The usual ensemble: each member's features, of length 1, against its own prototypes.
        let logit = |m: usize, class: usize| {
            let f = &of[m][row];
            let length = f.iter().map(|v| v * v).sum::<f32>().sqrt().max(1e-8);
            let p = models[m].get(HEAD).unwrap().values()[5 * class..][..5].iter();
            p.zip(f).map(|(p, f)| p * f).sum::<f32>() / length
        };
        let logits = |class| 0.75 * logit(0, class) + 0.25 * logit(1, class);
        assert!(close(&all[&Fusion::Logits][row].vector, &(0..3).map(logits).collect::<Vec<_>>()));
    }
}

#[test]
fn which_client_has_which_model_changes_no_bit() {
    let folder = tempfile::tempdir().unwrap();
    let view = samples(10);
    let members: Vec<_> = (0..4).map(|seed| (3 + 10 * seed, model(seed))).collect();
    let first = bundle(folder.path(), &members);
    let (prototypes, expected) = (first.prototypes.clone(), answers(&first, &view));
    for order in [[3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1]] {
        let permuted: Vec<_> = order.iter().map(|&index: &usize| members[index].clone()).collect();
        let other = bundle(folder.path(), &permuted);
        assert_eq!(other.prototypes, prototypes);
        assert_eq!(answers(&other, &view), expected);
    }
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let first = bundle(folder.path(), &members);
    for threads in [1, 2, 5] {
        assert_eq!(pool(threads).install(|| answers(&first, &view)), expected, "{threads} threads");
    }
}

#[test]
fn the_file_holds_the_members_and_the_mean_of_their_prototypes() {
    let folder = tempfile::tempdir().unwrap();
    let members: Vec<_> = (0..3).map(|seed| (1 + seed, model(seed))).collect();
    let bundle = bundle(folder.path(), &members);
    for (index, (_, params)) in members.iter().enumerate() {
        assert_eq!(&bundle.member(index).unwrap(), params);
    }
    for (place, found) in bundle.prototypes.iter().enumerate() {
        let sum: f64 = members.iter().map(|(_, m)| f64::from(m.get(HEAD).unwrap().values()[place])).sum();
        assert!((f64::from(*found) - sum / 3.0).abs() < 1e-7);
    }
    // Any reader of the format reads it.
    let bytes = fs::read(bundle.path()).unwrap();
    let (tensors, metadata) = codec::from_bytes(&bytes, Limits::default()).unwrap();
    assert_eq!(tensors.len(), 3 * members[0].1.len() + 1);
    assert_eq!(tensors.get("prototypes").unwrap().shape(), [3, 5]);
    assert!(tensors.get("member.000002.extractor.fc.weight").is_some());
    assert!(metadata["ensemble"].contains(&client(2).to_string()), "{metadata:?}");
}

#[test]
fn evaluation_counts_what_answers_say() {
    let folder = tempfile::tempdir().unwrap();
    let view = samples(23);
    let bundle = bundle(folder.path(), &[(5, model(1)), (9, model(4))]);
    let preparation = Preparation::default();
    let question =
        Question { view: &view, preparation: &preparation, batch: 4, fusions: Head::Prototypes.fusions() };
    let (by, members) = bundle.evaluate(&question).unwrap();
    for (fusion, fused) in answers(&bundle, &view) {
        let right = fused.iter().enumerate().filter(|(row, fused)| fused.class() == row % 3).count();
        let loss: f64 =
            fused.iter().enumerate().map(|(row, fused)| -fused.log_probabilities[row % 3]).sum::<f64>()
                / 23.0;
        assert_eq!((by[&fusion].correct, by[&fusion].samples), (right, 23), "{fusion}");
        assert!((by[&fusion].loss - loss).abs() < 1e-12);
    }
    for (index, member) in members.iter().enumerate() {
        let (mut x, mut y) = (Vec::new(), Targets::default());
        view.fill(&(0..23).collect::<Vec<_>>(), &mut x, &mut y);
        let batch = Batch::with_targets(x, [23, 1, 2, 2], y).unwrap();
        let mut network =
            Network::new(&architecture(5), &bundle.member(index).unwrap(), &Backend::cpu()).unwrap();
        assert_eq!(
            member.correct,
            models::evaluate(&mut network, [&batch]).unwrap().correct,
            "member {index}"
        );
    }
    // Labels of other classes are an error and no panic.
    let other = Dataset::new(vec![1, 2, 2], vec![0u8; 4], vec![7u8], 8).unwrap();
    let question = Question { view: &View::whole(Arc::new(other)), ..question };
    assert!(matches!(bundle.evaluate(&question), Err(EnsembleError::Model(_))));
}

/// The file with its tensors, or its metadata, changed.
fn changed(bundle: &Bundle, change: impl FnOnce(&mut ParamSet, &mut BTreeMap<String, String>)) -> PathBuf {
    let bytes = fs::read(bundle.path()).unwrap();
    let (mut tensors, mut metadata) = codec::from_bytes(&bytes, Limits::default()).unwrap();
    change(&mut tensors, &mut metadata);
    let path = bundle.path().with_file_name("changed.safetensors");
    fs::write(&path, codec::to_bytes(&tensors, Precision::F32, &metadata).unwrap()).unwrap();
    path
}

fn refused(path: &Path) -> EnsembleError {
    match Bundle::open(Arc::new(Disk), path) {
        Err(error) => {
            assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
            error
        }
        Ok(_) => panic!("{} is fine", path.display()),
    }
}

#[test]
fn each_damage_has_its_error() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = bundle(folder.path(), &[(5, model(1)), (9, model(4))]);
    let bytes = fs::read(bundle.path()).unwrap();
    let cut = folder.path().join("cut.safetensors");
    for length in (0..bytes.len()).step_by(7).chain([bytes.len() - 1]) {
        fs::write(&cut, &bytes[..length]).unwrap();
        let error = refused(&cut);
        let copied = matches!(error, EnsembleError::Length { .. } | EnsembleError::NotSafetensors { .. });
        assert!(copied, "{length}: {error}");
    }
    fs::write(&cut, [&bytes[..], &[0]].concat()).unwrap();
    assert!(matches!(refused(&cut), EnsembleError::Length { .. }));

    let replace = |tensor: &str, array: Array| {
        refused(&changed(&bundle, |tensors, _| drop(tensors.insert(tensor, array))))
    };
    for shape in [[3, 4], [2, 5], [5, 3]] {
        let error = replace("prototypes", Array::zeros(shape));
        assert!(
            matches!(&error, EnsembleError::Layout { reason, .. } if reason.contains("prototypes")),
            "{error}"
        );
    }
    let mut values = vec![0.0; 15];
    values[14] = f32::NAN;
    let error = replace("prototypes", Array::new([3, 5], values).unwrap());
    assert!(matches!(&error, EnsembleError::NotFinite { tensor, .. } if tensor == "prototypes"), "{error}");
    let error = replace("member.000001.extractor.fc.weight", Array::zeros([5, 9]));
    assert!(
        matches!(&error, EnsembleError::Layout { reason, .. } if reason.contains("member.000001")),
        "{error}"
    );
    let error = replace("member.000002.extractor.fc.weight", Array::zeros([5, 4]));
    assert!(matches!(&error, EnsembleError::Layout { .. }), "{error}");

    // An extractor of another architecture than the file says.
    let other = serde_json::to_string(&architecture(6)).unwrap();
    let error = refused(&changed(&bundle, |_, metadata| drop(metadata.insert("architecture".into(), other))));
    assert!(
        matches!(&error, EnsembleError::Layout { reason, .. } if reason.contains("[5] instead of [6]")),
        "{error}"
    );

    // A member is looked at when it is read.
    let path = changed(&bundle, |tensors, _| {
        tensors.get_mut("member.000001.extractor.fc.bias").unwrap().values_mut()[1] = f32::INFINITY;
    });
    let damaged = Bundle::open(Arc::new(Disk), &path).unwrap();
    assert!(damaged.member(0).is_ok());
    let error = damaged.member(1).unwrap_err().to_string();
    assert!(error.contains("member.000001.extractor.fc.bias") && error.contains("not finite"), "{error}");
}

#[test]
fn what_is_no_ensemble_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = bundle(folder.path(), &[(5, model(1)), (9, model(4))]);
    let edited = |change: &dyn Fn(&str) -> String| {
        refused(&changed(&bundle, |_, metadata| {
            let text = change(&metadata["ensemble"]);
            metadata.insert("ensemble".into(), text);
        }))
        .to_string()
    };
    let newer = edited(&|text| text.replace("\"version\":1", "\"version\":2"));
    assert!(newer.contains("format 2") && newer.contains("format 1"), "{newer}");
    let twice = edited(&|text| text.replace(&client(1).to_string(), &client(0).to_string()));
    assert!(twice.contains("ordered by client"), "{twice}");
    assert!(edited(&|_| "{".to_owned()).contains("cannot be understood"));
    assert!(edited(&|text| text.replace("0.07", "0.0")).contains("temperature"));
    let plain = folder.path().join("model.safetensors");
    models::write_model(
        &architecture(5),
        &model(1),
        &BTreeMap::new(),
        &mut fs::File::create(&plain).unwrap(),
    )
    .unwrap();
    assert!(refused(&plain).to_string().contains("no `ensemble`"));
    fs::write(&plain, "round,accuracy\n").unwrap();
    assert!(matches!(refused(&plain), EnsembleError::NotSafetensors { .. }));
    let absent = folder.path().join("absent");
    assert!(matches!(refused(&absent), EnsembleError::Disk { action: "open", .. }));
}

#[test]
fn an_ensemble_is_extended_and_the_newer_model_counts() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = bundle(here.path(), &[(5, model(1)), (9, model(4))]);
    let second = bundle(there.path(), &[(50, model(7)), (9, model(4)), (2, model(8))]);
    // In place of the first.
    let extended = extend(&Disk, &first, &second, first.path()).unwrap();
    assert_eq!(extended, Extended { members: 3, added: 1, replaced: 2 });
    let found = Bundle::open(Arc::new(Disk), first.path()).unwrap();
    assert_eq!(found.manifest.samples(), 61);
    let direct = fs::read(second.path()).unwrap();
    assert_eq!(fs::read(found.path()).unwrap(), direct, "as if all had been there from the beginning");
    let again = extend(&Disk, &found, &second, first.path()).unwrap();
    assert_eq!((again.added, fs::read(first.path()).unwrap()), (0, direct));

    let unrelated = changed(&found, |tensors, metadata| {
        metadata.insert("architecture".into(), serde_json::to_string(&architecture(6)).unwrap());
        for member in 0..3 {
            let shapes: [(&str, &[usize]); 3] =
                [("extractor.fc.weight", &[6, 4]), ("extractor.fc.bias", &[6]), (HEAD, &[3, 6])];
            for (tensor, shape) in shapes {
                tensors.insert(format!("member.{member:06}.{tensor}"), Array::zeros(shape));
            }
        }
        tensors.insert("prototypes", Array::zeros([3, 6]));
    });
    let unrelated = Bundle::open(Arc::new(Disk), &unrelated).unwrap();
    let before = fs::read(found.path()).unwrap();
    let error = extend(&Disk, &found, &unrelated, found.path()).unwrap_err().to_string();
    assert!(error.contains("of different layers") && error.contains("[model]"), "{error}");
    let elsewhere = changed(&found, |_, metadata| {
        let text = metadata["ensemble"].replace(&digest(&model(0)), &digest(&model(1)));
        metadata.insert("ensemble".into(), text);
    });
    let elsewhere = Bundle::open(Arc::new(Disk), &elsewhere).unwrap();
    let error = extend(&Disk, &found, &elsewhere, found.path()).unwrap_err().to_string();
    assert!(error.contains("model.seed"), "{error}");
    let columns = |names: [&str; 4]| {
        let features = names.map(str::to_owned).to_vec();
        let folder = tempfile::tempdir().unwrap();
        let of = Manifest { data: DataSpec { features, ..manifest().data }, ..manifest() };
        (written(folder.path(), &of, &[(5, model(1))]), folder)
    };
    let (named, _folder) = columns(["width", "height", "depth", "weight"]);
    let (swapped, _other) = columns(["height", "width", "depth", "weight"]);
    let error = extend(&Disk, &named, &swapped, named.path()).unwrap_err().to_string();
    assert!(error.contains("data.features"), "{error}");
    assert_eq!(fs::read(found.path()).unwrap(), before, "nothing is destroyed");
}

proptest! {
    /// No bytes make the reader panic, or believe what is not there.
    #[test]
    fn any_damage_is_an_error_or_an_ensemble(place in 0..4000usize, byte: u8) {
        let folder = tempfile::tempdir().unwrap();
        let bundle = bundle(folder.path(), &[(5, model(1)), (9, model(4))]);
        let mut bytes = fs::read(bundle.path()).unwrap();
        let place = place % bytes.len();
        bytes[place] = byte;
        let path = folder.path().join("damaged.safetensors");
        fs::write(&path, &bytes).unwrap();
        if let Ok(damaged) = Bundle::open(Arc::new(Disk), &path) {
            for member in 0..damaged.manifest.members.len() {
                let _ = damaged.member(member);
            }
        }
    }
}

#[test]
fn prototypes_that_cannot_be_averaged_are_refused_with_the_way_out() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let whole = bundle(here.path(), &[(5, model(1)), (9, model(4)), (2, model(7))]);
    let small = bundle(there.path(), &[(5, model(1))]);
    // Two of these would wrap around.
    let path = changed(&whole, |tensors, _| {
        for member in [1, 2] {
            tensors.get_mut(&format!("member.{member:06}.{HEAD}")).unwrap().values_mut()[3] = 1e15;
        }
    });
    let damaged = Bundle::open(Arc::new(Disk), &path).unwrap();
    let before = fs::read(&path).unwrap();
    let without = |clients: &[usize]| {
        let clients = clients.iter().map(|&index| client(index)).collect();
        leave_out(&Disk, &damaged, &clients, damaged.path())
    };
    for error in [extend(&Disk, &small, &damaged, damaged.path()).unwrap_err(), without(&[0]).unwrap_err()] {
        let text = error.to_string();
        assert!(text.contains(&client(1).to_string()) && text.contains("too large to be averaged"), "{text}");
    }
    assert!(fs::read(&path).unwrap() == before, "nothing is destroyed");
    assert_eq!(without(&[1, 2]).unwrap(), 1);
}

#[test]
fn a_model_is_tried_before_it_is_a_member() {
    let (architecture, view, preparation) = (architecture(5), samples(7), Preparation::default());
    let question = Question { view: &view, preparation: &preparation, batch: 3, fusions: &[] };
    let sound = |params: &ParamSet, question| {
        is_sound(&architecture, params, (Answering::default(), 3), question).unwrap()
    };
    assert!(sound(&model(1), None) && sound(&model(1), Some(&question)));
    // Finite parameters, and too much of them.
    let mut huge = model(1);
    huge.scale(1e10);
    assert!(!sound(&huge, None));
    // The features are small enough, and the answers are not.
    let mut far = model(1);
    far.get_mut(HEAD).unwrap().values_mut().fill(1e10);
    assert!(!sound(&far, None));
    // Where the features are nothing, no answer shows it.
    let mut hidden = ParamSet::new();
    model(1).iter().for_each(|(name, array)| drop(hidden.insert(name, Array::zeros(array.shape()))));
    assert!(sound(&hidden, None));
    hidden.get_mut(HEAD).unwrap().values_mut()[0] = -1e15;
    assert!(!sound(&hidden, None));
    assert!(
        is_sound(&self::architecture(6), &model(1), (Answering::default(), 3), None).is_err(),
        "of another architecture"
    );
}
