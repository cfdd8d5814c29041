//! A run begins with weights of torchvision, timm or transformers, and answers as those do.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use aggregator::config::{Config, ModelOrigin};
use aggregator::run::{InitialModel, InitialModelError, Run};
use aggregator::storage::Disk;
use federation_tests::python;
use federation_tests::scenario::Scenario;
use federation_tests::whole_run::start;
use models::params::codec;
use models::{Architecture, Array, Backend, Limits, Mode, Network, ParamSet, Precision};
use tempfile::TempDir;

/// The configuration of a run of this network that begins with the file, in which tensors have these names.
fn config(architecture: &Architecture, file: &Path, names: &str, fresh: &[&str]) -> Config {
    let mut config = Scenario::small(&[]).config;
    config.spec.architecture = architecture.clone();
    let text = |path: &Path| Some(path.to_str().unwrap().to_owned());
    config.effective.model.from =
        Some(ModelOrigin { file: text(file), names: Some(names.to_owned()), ..ModelOrigin::default() });
    config.effective.model.fresh = Some(fresh.iter().map(ToString::to_string).collect());
    config
}

fn begun(architecture: &Architecture, file: &Path, names: &str) -> InitialModel {
    let found = InitialModel::read(&Disk, &config(architecture, file, names, &[]));
    found.unwrap_or_else(|error| panic!("{error}")).unwrap()
}

fn refusal(architecture: &Architecture, file: &Path, names: &str, fresh: &[&str]) -> InitialModelError {
    let found = InitialModel::read(&Disk, &config(architecture, file, names, fresh));
    found.err().expect("it is refused")
}

/// The tensors of a network under torchvision's names, with the counters that `PyTorch` keeps beside statistics.
fn theirs(params: &ParamSet) -> ParamSet {
    let mut renamed = ParamSet::new();
    for (name, array) in params {
        let (layer, parameter) = name.rsplit_once('.').unwrap();
        let layer = layer.split_once('.').unwrap().1.replace('-', ".");
        if parameter == "running-mean" {
            renamed.insert(format!("{layer}.num_batches_tracked"), Array::zeros([1]));
        }
        renamed.insert(format!("{layer}.{}", parameter.replace('-', "_")), array.clone());
    }
    renamed
}

fn written(folder: &Path, params: &ParamSet, precision: Precision) -> std::path::PathBuf {
    let file = folder.join("theirs.safetensors");
    fs::write(&file, codec::to_bytes(params, precision, &BTreeMap::new()).unwrap()).unwrap();
    file
}

fn drawn(architecture: &Architecture, salt: u64) -> ParamSet {
    let seed = shared::seed::Seed::root(salt);
    architecture.initialise(|tensor| seed.derive(tensor).rng()).unwrap()
}

fn mobilenet(classes: usize) -> Architecture {
    Architecture::by_name("mobilenet-v2", &[3, 32, 32], classes).unwrap()
}

#[test]
fn tensors_are_found_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let (architecture, params) = (mobilenet(10), drawn(&mobilenet(10), 11));
    let found =
        begun(&architecture, &written(folder.path(), &theirs(&params), Precision::F32), "torchvision");
    assert!(found.params == params);
    assert_eq!(found.remarks, [""; 0]);
    assert_eq!(found.origin.digest.map(|digest| digest.len()), Some(32));

    let mut more = theirs(&params);
    more.insert("classifier.9.weight", Array::zeros([2]));
    let found = begun(&architecture, &written(folder.path(), &more, Precision::BF16), "torchvision");
    let apart = found.params.distance(&params).unwrap();
    assert!(apart > 0.0 && apart < 0.01 * params.l2_norm(), "{apart}");
    let [left, converted] = &found.remarks[..] else { panic!("{:?}", found.remarks) };
    assert!(left.contains("no place for `classifier.9.weight` of"), "{left}");
    assert!(converted.contains("tensors are BF16 in") && converted.ends_with("F32 here"), "{converted}");
}

#[test]
fn what_does_not_fit_is_refused_with_the_nearest_names_unless_it_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let params = drawn(&mobilenet(1000), 11);
    let file = written(folder.path(), &theirs(&params), Precision::F32);
    let error = refusal(&mobilenet(10), &file, "torchvision", &[]);
    assert!(error.is_of_configuration());
    let error = error.to_string();
    assert!(error.contains("`classifier.1.weight` is 1000x1280 in it and 10x1280 here"), "{error}");
    assert!(error.contains("model.fresh"), "{error}");

    let found = InitialModel::read(&Disk, &config(&mobilenet(10), &file, "torchvision", &["head.*"]));
    let found = found.unwrap_or_else(|error| panic!("{error}")).unwrap();
    let body = params.iter().filter(|(name, _)| !name.starts_with("head."));
    assert!(found.params == body.map(|(name, array)| (name.to_owned(), array.clone())).collect());
    assert_eq!(found.remarks, [""; 0], "the head that is not taken is none");

    let error = refusal(&mobilenet(10), &file, "torchvision", &["haed.*"]).to_string();
    assert!(error.contains("\"haed.*\" stands for no tensor") && error.contains("`head."), "{error}");

    let mut less = theirs(&params);
    less.remove("features.18.0.weight");
    let file = written(folder.path(), &less, Precision::F32);
    let error = refusal(&mobilenet(1000), &file, "torchvision", &[]).to_string();
    assert!(error.contains("it lacks `features.18.0.weight` (1280x320x1x1)"), "{error}");
    assert!(error.contains("nearest are `features.18.1.weight`"), "{error}");
}

#[test]
fn programs_and_damaged_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("resnet18.pth");
    for names in [Some("torchvision"), None] {
        let mut config = config(&mobilenet(10), &file, "torchvision", &[]);
        config.effective.model.from.as_mut().unwrap().names = names.map(str::to_owned);
        for (content, said) in [
            (&b"PK\x03\x04 and so on"[..], "save_file({k: v.clone().contiguous() for k, v in m.items()}"),
            (b"\x80\x02ctorch", "weights_only=True"),
            (b"12345678 nothing", "cannot be read"),
        ] {
            fs::write(&file, content).unwrap();
            let error = InitialModel::read(&Disk, &config).err().expect("it is refused").to_string();
            assert!(error.contains(said), "{error}");
        }
        fs::remove_file(&file).unwrap();
        let error = InitialModel::read(&Disk, &config).err().expect("it is refused").to_string();
        assert!(error.contains("the file is not there"), "{error}");
    }
}

#[test]
fn names_of_ones_own_are_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let map = folder.path().join("names.toml");
    fs::write(&map, "rename = [['head.*.weight', 'out.$1.a', 'out.$1.b'], ['*.*', 'net/$2']]").unwrap();
    let architecture = Architecture::by_name("mlp-2nn", &[1, 2, 2], 4).unwrap();
    let params = drawn(&architecture, 5);
    let mut parts = ParamSet::new();
    for (name, array) in &params {
        let rest = name.split_once('.').unwrap().1;
        match (name.starts_with("head."), rest.strip_suffix(".weight")) {
            (true, Some(layer)) => {
                let halves = array.values().chunks(array.values().len() / 2);
                for (half, part) in halves.zip(["a", "b"]) {
                    parts.insert(format!("out.{layer}.{part}"), Array::new([2, 200], half.to_vec()).unwrap());
                }
            }
            _ => drop(parts.insert(format!("net/{rest}"), array.clone())),
        }
    }
    let file = written(folder.path(), &parts, Precision::F32);
    assert!(begun(&architecture, &file, map.to_str().unwrap()).params == params);
}

/// The whole way: what is drawn beside what was taken is what a run of this seed draws, and the run goes on without the file.
#[test]
fn a_run_begins_with_them_and_needs_the_file_no_more() {
    let (folder, runs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let network = "model.name=mlp-2nn";
    let plain = Scenario::small(&[network, "run.name=plain"]);
    let params = drawn(&plain.config.spec.architecture, 23);
    let file = written(folder.path(), &theirs(&params), Precision::F32);
    let from = format!("model.from.file={}", file.display());
    let scenario = Scenario::small(&[
        network,
        &from,
        "model.from.names=torchvision",
        "model.fresh=['head.*']",
        "run.name=tuned",
    ]);
    let begin = |scenario: &Scenario| start(Arc::new(Disk), runs.path(), scenario).unwrap();
    let model = |run: &Run| run.current_model().unwrap();
    let (own, begun) = (model(&begin(&plain).run), model(&begin(&scenario).run));
    for (name, array) in &begun {
        let expected = if name.starts_with("head.") { &own } else { &params };
        assert!(Some(array) == expected.get(name), "{name}");
    }
    let frozen = ["model.freeze=['extractor.*']", "run.name=frozen"];
    let settings =
        [&[network, &from, "model.from.names=torchvision", "model.fresh=['head.*']"][..], &frozen].concat();
    let run = begin(&Scenario::small(&settings)).run;
    let values = run.config().spec.architecture.frozen.as_ref().unwrap().values().unwrap().clone();
    assert!(*values == params.select("extractor."), "what is frozen is what was taken");
    assert!(model(&run) == own.select("head."));
    fs::remove_file(&file).unwrap();
    let again = begin(&scenario);
    assert!(again.continued && model(&again.run) == begun);
}

/// What a library's networks say of 64 images, and what ours say with their weights. `Err` is why it is not tried.
fn answers(library: &str) -> Result<TempDir, String> {
    let python = python::with_torch()?;
    let folder = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign_weights.py");
    let tried = Command::new(&python).args(["-c", &format!("import {library}")]).output();
    if !tried.is_ok_and(|output| output.status.success()) {
        return Err(format!("{} has no {library}", python.display()));
    }
    let output = Command::new(&python).args([script, library]).arg(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let models = String::from_utf8(output.stdout).unwrap();
    assert!(!models.trim().is_empty(), "{said}");
    for model in models.lines() {
        let file = |end: &str| folder.path().join(format!("{model}{end}.safetensors"));
        let limits = Limits { max_bytes: u64::MAX, any_order: true, ..Limits::default() };
        let (answers, _) = codec::read(&mut fs::File::open(file("-answers")).unwrap(), limits).unwrap();
        let (images, logits) = (answers.get("images").unwrap(), answers.get("logits").unwrap());
        let &[count, classes] = logits.shape() else { panic!("a row for each image") };
        let architecture = Architecture::by_name(model, &images.shape()[1..], classes).unwrap();
        let params = begun(&architecture, &file(""), library).params;
        let mut network = Network::new(&architecture, &params, &Backend::cpu()).unwrap();
        let shape = [&[1], &images.shape()[1..]].concat();
        let each = images.values().len() / count;
        for (image, expected) in images.values().chunks(each).zip(logits.values().chunks(classes)) {
            network.forward(image, &shape, Mode::Evaluation).unwrap();
            for (found, expected) in network.logits().iter().zip(expected) {
                let apart = (found - expected).abs();
                assert!(apart < 1e-4 * expected.abs().max(1.0), "{library} {model}: {found} {expected}");
            }
        }
    }
    Ok(folder)
}

#[test]
fn torchvisions_networks_answer_as_there() {
    if let Err(reason) = answers("torchvision") {
        eprintln!("not tried: {reason}");
    }
}

#[test]
fn timms_networks_answer_as_there() {
    if let Err(reason) = answers("timm") {
        eprintln!("not tried: {reason}");
    }
}

#[test]
fn networks_of_transformers_answer_as_there() {
    if let Err(reason) = answers("transformers") {
        eprintln!("not tried: {reason}");
    }
}
