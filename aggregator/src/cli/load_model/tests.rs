//! What models are taken, with which samples, and what is said of the others.

use models::Frozen;
use shared::data::{Augmentation, Dataset, Samples, safetensors};
use shared::spec::RunSpec;

use super::*;

fn drawn(architecture: &Architecture) -> ParamSet {
    let params = architecture.initialise(|name| shared::seed::Seed::root(1).derive(name).rng());
    params.expect("a network")
}

/// What is said of samples of this shape.
fn samples(shape: &[usize]) -> DataSpec {
    DataSpec { shape: shape.to_vec(), class_names: Vec::new(), ..RunSpec::example("fedavg").data }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn data_of_more_classes_than_the_model_is_refused_and_of_fewer_used() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.safetensors");
    let architecture = Architecture::by_name("linear", &[2], 3).expect("built in");
    let params = architecture.initialise(|name| shared::seed::Seed::root(1).derive(name).rng());
    let usable = Usable::Model(Box::new(architecture), params.expect("a network"), None);
    let load = |classes| {
        let data = Dataset::labelled(vec![2], Samples::Floats(vec![0.0; 4]), vec![0, 1], classes)
            .expect("two samples");
        safetensors::write_split(folder.path(), Split::Test, &data).expect("written");
        let inputs = usable.read(folder.path(), Split::Test, None)?;
        usable.check(&path, &inputs.dataset).map(|()| inputs)
    };
    let refused = load(4).expect_err("three are told apart");
    assert!(matches!(refused, Failure::Environment(_)), "{refused:?}");
    let text = refused.to_string();
    assert!(text.contains("tells 3 classes apart, and the data has 4"), "{text}");
    for classes in [2, 3] {
        assert_eq!(load(classes).expect("a model that knows them").dataset.len(), 2);
    }
}

#[test]
fn samples_of_another_size_are_refused_by_their_shape_and_not_by_a_label() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let architecture = Architecture::by_name("linear", &[6], 3).expect("built in");
    let params = architecture.initialise(|name| shared::seed::Seed::root(1).derive(name).rng());
    let usable = Usable::Model(Box::new(architecture), params.expect("a network"), None);
    let images = Dataset::labelled(vec![1, 28, 28], Samples::Bytes(vec![0; 4 * 784]), vec![0, 1, 2, 3], 10);
    shared::data::idx::write_split(folder.path(), Split::Test, &images.expect("four images"))
        .expect("written");
    let read = usable.read(folder.path(), Split::Test, None);
    let refused = read.and_then(|inputs| usable.check(Path::new("m"), &inputs.dataset));
    let text = refused.expect_err("it takes rows").to_string();
    assert!(text.contains("takes samples of shape 6, these have 1x28x28"), "{text}");
}

#[test]
fn without_a_test_split_it_is_said_what_else_there_is() {
    let error = DataError::NoFile { directory: "photos".into(), names: vec!["test".to_owned()] };
    let expected = "photos: contains no `test`: name a folder with a test split by --data, or --train for the samples that were learned";
    assert_eq!(unread(&error, Split::Test).to_string(), expected);
    assert_eq!(unread(&error, Split::Train).to_string(), "photos: contains no `test`");
}

#[test]
fn the_directory_of_a_run_stands_for_its_model() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let opened = |path: &Path, which| open_model(path, which).map(|(path, _)| path);
    let text = opened(folder.path(), Which::Newest).expect_err("no model is in it").to_string();
    assert!(text.contains("model.safetensors") && text.contains("ensemble.safetensors"), "{text}");
    let architecture = Architecture::by_name("linear", &[2], 3).expect("built in");
    let params = architecture.initialise(|name| shared::seed::Seed::root(1).derive(name).rng());
    let params = params.expect("a network");
    for (name, which) in [("model.safetensors", Which::Newest), ("best.safetensors", Which::Best)] {
        let file = folder.path().join(name);
        let mut out = File::create(&file).expect("the folder can be written");
        models::write_model(&architecture, &params, &BTreeMap::new(), &mut out).expect("written");
        assert_eq!(opened(folder.path(), which).ok(), Some(file.clone()));
        assert_eq!(opened(&file, Which::Newest).ok(), Some(file.clone()));
        let text = opened(&file, Which::Best).expect_err("a file is no run").to_string();
        assert!(text.contains("name the run's directory"), "{text}");
    }
}

#[test]
fn a_model_with_a_value_that_is_no_number_is_refused_by_its_tensor() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.safetensors");
    let architecture = Architecture::by_name("linear", &[2], 3).expect("built in");
    let write = |bad: f32| {
        let params = architecture.initialise(|name| shared::seed::Seed::root(1).derive(name).rng());
        let mut params = params.expect("a network");
        params.get_mut("head.fc.bias").expect("it has one").values_mut()[1] = bad;
        let mut file = File::create(&path).expect("the folder can be written");
        models::write_model(&architecture, &params, &BTreeMap::new(), &mut file).expect("written");
    };
    write(1.0);
    assert!(Usable::open(&path).is_ok());
    for bad in [f32::NAN, f32::NEG_INFINITY] {
        write(bad);
        let Err(Failure::Environment(text)) = Usable::open(&path) else { panic!("{bad} is taken") };
        assert!(text.contains("`head.fc.bias`") && text.contains("use another model"), "{text}");
    }
}

#[test]
fn a_model_is_tested_on_the_data_of_its_run_unless_somebody_says_otherwise() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (model, beside) = (folder.path().join("model.safetensors"), folder.path().join("config.toml"));
    let config = |config: Option<&Path>, overrides: &[&str]| {
        let overrides = overrides.iter().map(|&text| text.to_owned()).collect();
        ConfigArgs { config: config.map(Path::to_owned), overrides }.or_of_run(&model).config
    };
    assert_eq!(config(None, &[]), None, "it lies alone");
    std::fs::write(&beside, "").expect("a file in it");
    assert_eq!(config(None, &[]), Some(beside));
    assert_eq!(config(None, &["data.set=mnist"]), None);
    let other = Path::new("other.toml");
    assert_eq!(config(Some(other), &[]), Some(other.to_owned()));
}

/// The model of a run that is not over is as little of use as a file, and is refused by the same function.
#[test]
fn models_that_cannot_answer_are_refused() {
    let linear = Architecture::by_name("linear", &[1, 4, 4], 3).expect("built in");
    let given = |architecture: &Architecture, samples: Option<DataSpec>| {
        let params = drawn(&linear);
        Usable::one(Path::new("m"), architecture.clone(), params, samples)
            .err()
            .map(|error| error.to_string())
    };
    assert_eq!(given(&linear, None), None);
    assert_eq!(given(&linear, Some(samples(&[1, 4, 4]))), None);
    let mut cropped = samples(&[1, 6, 5]);
    cropped.preparation.augmentation = Augmentation { random_crop: 4, ..Augmentation::default() };
    assert_eq!(given(&linear, Some(cropped.clone())), None);
    cropped.preparation.augmentation.random_crop = 40;
    let opaque = Architecture { tensors: Some(Vec::new()), ..linear.clone() };
    let frozen = Architecture { frozen: Some(Frozen::named(names(&["extractor.*"]))), ..linear.clone() };
    for (architecture, samples, part) in [
        (&opaque, None, "no layers here"),
        (&frozen, None, "frozen tensors"),
        (&linear, Some(cropped), "is of none ("),
        (&linear, Some(samples(&[1, 5, 4])), "are said to have 1x5x4"),
    ] {
        let text = given(architecture, samples).expect("it cannot answer");
        assert!(text.contains(part), "{text}");
    }
    let mut params = drawn(&linear);
    params.get_mut("head.fc.bias").expect("it has one").values_mut()[1] = f32::NAN;
    let refused = Usable::one(Path::new("m"), linear, params, None).err().expect("it diverged").to_string();
    assert!(refused.contains("`head.fc.bias`"), "{refused}");
}

#[test]
fn a_configuration_names_what_the_model_knows_in_its_order() {
    let architecture = Architecture::by_name("linear", &[2], 3).expect("built in");
    let described = |classes: &[&str], features: &[&str]| DataSpec {
        class_names: names(classes),
        features: names(features),
        ..samples(&[2])
    };
    let spec = described(&["cat", "dog", "owl"], &["height", "width"]);
    let usable = Usable::one(Path::new("m"), architecture.clone(), drawn(&architecture), Some(spec));
    let usable = usable.expect("a model");
    let said = |classes: &[&str], features: &[&str]| {
        usable.check_names(Path::new("m"), &described(classes, features)).err().map(|error| error.to_string())
    };
    for classes in [&["cat", "dog", "owl"][..], &["cat", "dog"], &[]] {
        assert_eq!(said(classes, &["height", "width"]), None);
        assert_eq!(said(classes, &[]), None);
    }
    let text = said(&["dog", "cat", "owl"], &[]).expect("another order");
    assert!(text.contains("cat, dog, owl") && text.contains("data.class-names says dog, cat, owl"), "{text}");
    let text = said(&[], &["width", "height"]).expect("another order");
    assert!(text.contains("data.features says width, height"), "{text}");
}

#[test]
fn no_column_takes_the_place_of_those_that_the_model_names() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let table = folder.path().join("table.csv");
    std::fs::write(&table, "height,width,red,green\n1,2,1,0\n").expect("written");
    let architecture = Architecture::by_name("linear", &[2], 2).expect("built in");
    let architecture = Architecture { task: models::Task::MultiLabel, ..architecture };
    let spec = DataSpec { class_names: names(&["red", "green"]), ..samples(&[2]) };
    let params = drawn(&architecture);
    let usable = Usable::one(Path::new("m"), architecture, params, Some(spec)).expect("a model");
    assert_eq!(usable.read(&table, Split::Test, None).expect("a table").dataset.len(), 1);
    let text = usable.read(&table, Split::Test, Some("red")).expect_err("two are learned").to_string();
    assert!(text.contains("leave --label out"), "{text}");
}
