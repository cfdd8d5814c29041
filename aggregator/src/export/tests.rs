//! The sources themselves: a few compared with golden files, all with Python's own parser where there is one.
//!
//! `UPDATE_GOLDEN=1 cargo test -p aggregator --lib export` writes the golden files; read what has changed in them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use models::{BUILT_INS, Initialisation, Layer, Norm, Task, Variant};
use shared::data::{Augmentation, Normalisation, Preparation};
use shared::seed::Seed;
use shared::spec::RunSpec;

use super::*;

fn source(architecture: &Architecture, samples: Option<&DataSpec>, target: Target) -> String {
    let params = ParamSet::new();
    let files = export(Subject::Model(architecture, &params, samples), target, "network").unwrap();
    match files.into_iter().next().map(|file| file.content) {
        Some(Content::Text(text)) => text,
        _ => panic!("the source comes first"),
    }
}

/// The built-in models, with every normalisation that they can have.
fn built_in() -> Vec<Architecture> {
    let of = |built_in: &models::BuiltIn| {
        let norms = [Norm::None, Norm::Batch, Norm::Group].map(Some);
        let norms = if built_in.norm.is_some() { norms.to_vec() } else { vec![None] };
        let variant = |norm| Variant { norm, ..Variant::default() };
        let build =
            |norm| Architecture::variant(built_in.name, built_in.input, built_in.classes, variant(norm));
        norms.into_iter().map(|norm| build(norm).unwrap()).collect::<Vec<_>>()
    };
    BUILT_INS.iter().flat_map(of).collect()
}

/// Blocks in a block, and no name of a layer that Python takes as it is.
fn nested() -> Architecture {
    let conv = |name: &str| Layer::Conv {
        name: name.to_owned(),
        out: 4,
        kernel: 3,
        stride: 1,
        padding: 1,
        bias: false,
    };
    let norm = |name: &str| Layer::BatchNorm { name: name.to_owned() };
    let inner = Layer::Residual { body: vec![conv("class"), norm("1")], shortcut: vec![] };
    let block = Layer::Residual {
        body: vec![inner, Layer::Relu, Layer::Dropout { rate: 0.25 }],
        shortcut: vec![conv("a-b"), norm("a_b")],
    };
    Architecture {
        name: "\"\"\"\nimport os".to_owned(),
        input: vec![4, 6, 6],
        classes: 2,
        initialisation: Initialisation::Uniform,
        extractor: vec![block, Layer::MaxPool { size: 3, stride: 2, partial: true }, Layer::GlobalAvgPool],
        projection: vec![],
        head: vec![Layer::Linear { name: "forward".to_owned(), out: 2, bias: true }],
        ..Architecture::default()
    }
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/export/golden").join(name)
}

#[test]
fn sources_are_the_golden_ones() {
    let samples = |shape: &[usize]| DataSpec { shape: shape.to_vec(), ..RunSpec::example("fedavg").data };
    let channels = Normalisation::Channels { mean: vec![0.1307], deviation: vec![0.3081] };
    let grey = DataSpec {
        class_names: vec!["cat \"Tom\"".to_owned(), "dog\\\n\u{202e}".to_owned()],
        preparation: Preparation {
            augmentation: Augmentation { random_crop: 28, ..Augmentation::default() },
            normalisation: channels,
        },
        ..samples(&[1, 32, 30])
    };
    let named = |name: &str, input: &[usize], classes| Architecture::by_name(name, input, classes).unwrap();
    let (lenet, text) = (named("lenet-5", &[1, 28, 28], 2), named("char-lstm", &[80], 97));
    let table = DataSpec { column: "kind \"x\"".to_owned(), ..samples(&[4]) };
    let whitened = DataSpec {
        preparation: Preparation { normalisation: Normalisation::Whiten, ..Preparation::default() },
        ..samples(&[4, 6, 6])
    };
    for (name, found) in [
        ("images_torch.py", source(&lenet, Some(&grey), Target::Torch)),
        ("images_numpy.py", source(&lenet, Some(&grey), Target::Numpy)),
        ("text_torch.py", source(&text, None, Target::Torch)),
        ("nested_torch.py", source(&nested(), None, Target::Torch)),
        ("nested_numpy.py", source(&nested(), Some(&whitened), Target::Numpy)),
        ("table_numpy.py", source(&named("linear", &[4], 3), Some(&table), Target::Numpy)),
    ] {
        let path = golden(name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &found).unwrap();
        }
        let expected = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}; UPDATE_GOLDEN=1 writes it", path.display()));
        // The version is that of the program.
        let expected = expected.replace("version 0.1.0", concat!("version ", env!("CARGO_PKG_VERSION")));
        assert!(found == expected, "{name} differs from the golden file:\n{found}");
    }
}

#[test]
fn lines_are_short_and_every_source_is_python() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for (number, architecture) in built_in().into_iter().chain([nested()]).enumerate() {
        for target in Target::ALL {
            let text = source(&architecture, None, target);
            let long = text.lines().find(|line| line.chars().count() > python::COLUMNS);
            assert_eq!(long, None, "{} for {target}", architecture.name);
            assert!(!text.contains('\t') && !text.contains(" \n"), "{} for {target}", architecture.name);
            let file = folder.path().join(format!("network_{number}_{target}.py"));
            fs::write(&file, text).unwrap();
            files.push(file);
        }
    }
    match Command::new("python3").args(["-m", "py_compile"]).args(&files).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => println!("not compiled: no python3: {error}"),
    }
}

#[test]
fn every_tensor_of_a_model_is_exported_once() {
    for architecture in built_in().into_iter().chain([nested()]) {
        let plan = Plan::of(&architecture).unwrap();
        let specs = architecture.parameter_specs().unwrap();
        let of_model: BTreeSet<_> = specs.into_iter().map(|spec| (spec.name, spec.shape)).collect();
        let ours = |tensor: &plan::Planned| Some((tensor.ours.clone()?, tensor.shape.clone()));
        let exported: Vec<_> = plan.tensors.iter().filter_map(ours).collect();
        assert_eq!(exported.len(), of_model.len(), "{}", architecture.name);
        assert_eq!(exported.into_iter().collect::<BTreeSet<_>>(), of_model, "{}", architecture.name);
        for names in [
            plan.tensors.iter().map(|tensor| tensor.torch.clone()).collect::<Vec<_>>(),
            plan.tensors.iter().filter_map(|tensor| tensor.numpy.clone()).collect(),
        ] {
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{}", architecture.name);
        }
    }
}

#[test]
fn weights_are_the_models_own_under_the_names_of_torch() {
    let architecture = Architecture::by_name("char-lstm", &[80], 97).unwrap();
    let params = architecture.initialise(|name| Seed::root(1).derive(name).rng()).unwrap();
    let files = export(Subject::Model(&architecture, &params, None), Target::Torch, "n").unwrap();
    let Some(Content::Tensors(weights)) = files.into_iter().nth(1).map(|file| file.content) else {
        panic!("the weights come second")
    };
    let mut bytes = Vec::new();
    weights.write(&mut bytes).unwrap();
    let limits = models::Limits { any_order: true, ..models::Limits::default() };
    let (found, metadata) = models::codec::from_bytes(&bytes, limits).unwrap();
    assert_eq!(metadata.get("format").map(String::as_str), Some("pt"));
    assert_eq!(found.len(), params.len() + 2, "two LSTMs have a bias more");
    assert_eq!(found.len(), weights.len());
    let values = |set: &ParamSet, name: &str| set.get(name).unwrap().values().to_vec();
    for (torch, ours) in [
        ("extractor.lstm2.weight_hh_l0", "extractor.lstm2.weight-hh"),
        ("extractor.lstm1.bias_ih_l0", "extractor.lstm1.bias"),
        ("head.fc.weight", "head.fc.weight"),
    ] {
        assert_eq!(values(&found, torch), values(&params, ours), "{torch}");
    }
    assert!(values(&found, "extractor.lstm1.bias_hh_l0").iter().all(|&value| value == 0.0));
}

/// Our engines take 0 for a variance that rounding has made negative; the root of it would be no number.
#[test]
fn no_variance_of_an_exported_network_is_negative() {
    const NEGATIVE: f32 = -1.234e-5;
    let architecture = nested();
    let mut params = architecture.initialise(|name| Seed::root(1).derive(name).rng()).unwrap();
    for variance in ["extractor.a_b.running-var", "extractor.1.running-var"] {
        params.get_mut(variance).unwrap().values_mut()[1] = NEGATIVE;
    }
    let mut files = Vec::new();
    for target in Target::ALL {
        files.extend(export(Subject::Model(&architecture, &params, None), target, "n").unwrap());
    }
    let (architecture, params) = (&architecture, &params);
    let model = hub::Model { architecture, params, samples: None, training: None, licence: None };
    files.extend(hub::folder(model).unwrap());
    assert!(files.iter().any(|file| matches!(file.content, Content::Onnx(_))));
    for file in files {
        let mut bytes = Vec::new();
        file.content.write(&mut bytes).unwrap();
        assert!(!bytes.windows(4).any(|bytes| bytes == NEGATIVE.to_le_bytes()), "{}", file.name);
    }
}

#[test]
fn functions_in_numpy_come_with_those_that_they_call() {
    let extractor = vec![Layer::Attention { heads: 1, causal: false }, Layer::MeanPositions];
    let numbers = Task::Regression { huber: None };
    let architecture = Architecture { input: vec![4, 6], task: numbers, extractor, ..nested() };
    assert!(source(&architecture, None, Target::Numpy).contains("\ndef softmax(x):"));
}

#[test]
fn of_learned_positions_there_are_no_more_and_fewer_if_none_sees_later_ones() {
    let linear = |name: &str, out| Layer::Linear { name: name.to_owned(), out, bias: true };
    let said = |causal, last| {
        let extractor = vec![
            Layer::Embedding { name: "e".to_owned(), vocabulary: 11, dim: 6 },
            Layer::Positions { name: "places".to_owned() },
            linear("qkv", 18),
            Layer::Attention { heads: 2, causal },
            last,
        ];
        let architecture = Architecture { input: vec![9], extractor, ..nested() };
        Target::ALL.map(|target| source(&architecture, None, target))
    };
    for text in said(true, Layer::Relu) {
        assert!(text.contains("    if x.shape[1] > SHAPE[0]:\n"), "{text}");
        assert!(text.contains("have at most {SHAPE[0]} positions, and not {x.shape[1]}\")"), "{text}");
    }
    for text in said(false, Layer::Relu).into_iter().chain(said(true, Layer::MeanPositions)) {
        assert!(text.contains("    if x.shape[1] != SHAPE[0]:\n"), "{text}");
    }
}
