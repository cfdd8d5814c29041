//! Predictions in closed form, and one error for each mistake.

use std::collections::BTreeMap;
use std::sync::Arc;

use models::{Array, Layer, ModelFileError, ParamSet, write_model};
use shared::data::Dataset;
use shared::personalisation::Method;

use super::*;

#[test]
fn a_model_of_other_samples_is_no_newer_one() {
    let features = vec!["height".to_owned(), "width".to_owned()];
    let old = DataSpec { features, ..shared::spec::RunSpec::example("fedavg").data };
    let unnamed = DataSpec { features: Vec::new(), ..old.clone() };
    assert!(interchangeable(&unnamed, &old).is_ok(), "those of the header, in its order");
    let differs = |change: fn(&mut DataSpec)| {
        let mut new = old.clone();
        change(&mut new);
        match interchangeable(&old, &new) {
            Ok(()) => None,
            Err(PredictError::OtherSamples { what }) => Some(what),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(differs(|_| {}), None);
    assert_eq!(
        differs(|new| new.preparation.augmentation.horizontal_flip = 0.5),
        None,
        "only training is augmented"
    );
    assert!(differs(|new| new.shape = vec![3, 2, 2]).is_some_and(|what| what.contains("shapes")));
    assert!(
        differs(|new| new.class_names = vec!["b".into(), "a".into()])
            .is_some_and(|what| what.contains("names"))
    );
    assert!(
        differs(|new| new.features = vec!["width".into(), "height".into()])
            .is_some_and(|what| what.contains("columns"))
    );
    let whitened = differs(|new| new.preparation.normalisation = shared::data::Normalisation::Whiten);
    assert!(whitened.is_some_and(|what| what.contains("normalisations")));
}

/// A model of 1x1x2 samples whose two logits are ten times the pixels, plus `bias`.
fn model(folder: &Path, bias: [f32; 2]) -> PathBuf {
    model_of(folder, [10.0, 0.0, 0.0, 10.0], bias)
}

/// A linear model of 1x1x2 samples.
fn model_of(folder: &Path, weight: [f32; 4], bias: [f32; 2]) -> PathBuf {
    let architecture = Architecture::by_name("linear", &[1, 1, 2], 2).unwrap();
    let mut params = ParamSet::new();
    params.insert("head.fc.weight", Array::new([2, 2], weight.to_vec()).unwrap());
    params.insert("head.fc.bias", Array::new([2], bias.to_vec()).unwrap());
    let path = folder.join("model.safetensors");
    let mut file = File::create(&path).unwrap();
    write_model(&architecture, &params, &BTreeMap::new(), &mut file).unwrap();
    path
}

fn view(shape: &[usize], pixels: Vec<u8>, labels: Vec<u8>) -> View {
    View::whole(Arc::new(Dataset::new(shape.to_vec(), pixels, labels, 2).unwrap()))
}

fn open(path: &Path) -> Result<Predictor, PredictError> {
    Predictor::open(path, &Backend::cpu())
}

#[test]
fn predictions_are_those_of_the_closed_form() {
    let folder = tempfile::tempdir().unwrap();
    let mut predictor = open(&model(folder.path(), [0.0; 2])).unwrap();
    // Logits (0, 10), (10, 0), (10, 10): the first class wins the tie.
    let data = view(&[1, 1, 2], vec![0, 255, 255, 0, 255, 255], vec![1, 1, 0]);
    let mut rows = Vec::new();
    let score = predictor
        .predict(&data, &mut |row| {
            rows.push(row);
            ControlFlow::Continue(())
        })
        .unwrap();
    let sure = 1.0 / (1.0 + (-10f32).exp());
    let expected = [(0, 1, sure, 1), (1, 0, sure, 1), (2, 0, 0.5, 0)];
    for (row, (sample, class, probability, label)) in rows.iter().zip(expected) {
        assert_eq!((row.sample, row.class, row.label), (sample, class, Some(label)));
        assert!((row.probability() - f64::from(probability)).abs() < 1e-6, "{row:?}");
    }
    assert_eq!((rows.len(), score), (3, Score { samples: 3, correct: 2 }));
    assert!((score.accuracy() - 2.0 / 3.0).abs() < 1e-12);
}

#[test]
fn labels_of_more_classes_than_the_model_tells_apart_are_no_mistakes_of_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let of = |classes| Dataset::new(vec![1, 1, 2], vec![0; 4], [0_u8, 0], classes).unwrap();
    for mut predictor in [
        open(&model(folder.path(), [0.0; 2])).unwrap(),
        Predictor::personal(&Personal::example(Method::Mf), &Backend::cpu()).unwrap(),
    ] {
        let mut asked = |classes| {
            let data = View::whole(Arc::new(of(classes)));
            predictor.predict(&data, &mut |_| ControlFlow::Continue(()))
        };
        assert!(matches!(asked(3), Err(PredictError::Classes { expected: 2, found: 3 })));
        assert_eq!(asked(1).unwrap().samples, 2, "a model of more classes is one for these as well");
    }
}

#[test]
fn every_sample_of_several_batches_comes_once_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut predictor = open(&model(folder.path(), [0.0; 2])).unwrap();
    let samples = 2 * BATCH + 3;
    let labels: Vec<u8> = (0..samples).map(|sample| (sample % 3 == 0).into()).collect();
    let pixels = labels.iter().flat_map(|&label| [255 * (1 - label), 255 * label]).collect();
    let data = view(&[1, 1, 2], pixels, labels);
    let mut seen = 0;
    let mut row = |row: Row| {
        assert_eq!(row.sample, seen);
        seen += 1;
        if row.sample == BATCH + 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let score = predictor.predict(&data, &mut row).unwrap();
    assert_eq!(score, Score { samples: BATCH + 2, correct: BATCH + 2 });
    let score = predictor.predict(&data, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(score, Score { samples, correct: samples });
}

#[test]
fn each_mistake_has_its_error() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent");
    assert!(matches!(open(&absent), Err(PredictError::Open { path, .. }) if path == absent));

    let text = folder.path().join("text");
    std::fs::write(&text, "round,accuracy\n1,0.5\n").unwrap();
    let error = open(&text).unwrap_err();
    assert!(matches!(error, PredictError::Model { problem: ModelFileError::NotSafetensors(_), .. }));
    assert!(error.to_string().contains("text"), "{error}");
    let is_a_directory = open(folder.path()).unwrap_err();
    assert!(matches!(is_a_directory, PredictError::Open { .. } | PredictError::Model { .. }));

    let path = model(folder.path(), [0.0; 2]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.truncate(bytes.len() - 1);
    std::fs::write(folder.path().join("cut"), bytes).unwrap();
    assert!(matches!(open(&folder.path().join("cut")), Err(PredictError::Model { .. })));

    let data = view(&[1, 2, 1], vec![0, 0], vec![0]);
    let error = open(&path).unwrap().predict(&data, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(
        matches!(&error, PredictError::Shape { expected, found } if *expected == [1, 1, 2] && *found == [1, 2, 1])
    );
}

#[test]
fn a_personal_model_answers_with_the_weight_of_the_global_one() {
    // The global expert says 0, the local one 1; the gate is open where the first pixel is the brighter one.
    let data = view(&[1, 1, 2], vec![255, 0, 0, 255], vec![0, 1]);
    let answers_on = |method: Method, backend: &Backend| {
        let mut predictor = Predictor::personal(&Personal::example(method), backend).unwrap();
        let mut rows = Vec::new();
        predictor
            .predict(&data, &mut |row| {
                rows.push((row.class, row.gate.unwrap()));
                ControlFlow::Continue(())
            })
            .unwrap();
        rows
    };
    let answers = |method| answers_on(method, &Backend::cpu());
    // Weights of 8 bits are as good for this.
    for backend in [Backend::cpu(), Backend::int8()] {
        let answers = answers_on(Method::Mf, &backend);
        let [(first, open), (second, shut)] = answers[..] else { panic!("two samples") };
        assert_eq!((first, second), (0, 1));
        assert!(open > 0.999 && shut < 0.001, "{open} {shut}");
    }
    assert_eq!(answers(Method::Fb), [(1, 0.0), (1, 0.0)]);
    assert!(answers(Method::Fixed).iter().all(|&(_, gate)| (gate - 0.5).abs() < 1e-9));
    let mut probabilities = Personal::example(Method::Mf);
    probabilities.model.mix = Mix::Probabilities;
    let mut predictor = Predictor::personal(&probabilities, &Backend::cpu()).unwrap();
    let score = predictor.predict(&data, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(score, Score { samples: 2, correct: 2 });
}

#[test]
fn a_diverged_model_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    for bad in [f32::NAN, f32::INFINITY] {
        let error = open(&model(folder.path(), [0.0, bad])).unwrap_err();
        assert!(matches!(error, PredictError::Diverged { tensor } if tensor == "head.fc.bias"));
    }
    // Numbers, of which it makes none.
    let mut predictor = open(&model_of(folder.path(), [f32::MAX; 4], [0.0; 2])).unwrap();
    let data = view(&[1, 1, 2], vec![255, 255], vec![0]);
    let error = predictor.predict(&data, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(error, PredictError::NotFinite { sample: 0 }));
}

/// A model of tokens without a memory, in whose view each token is followed by the next number.
pub(crate) fn counting(path: &Path, window: usize, vocabulary: usize, class_names: &[&str]) {
    let embedding = Layer::Embedding { name: "embedding".to_owned(), vocabulary, dim: vocabulary };
    let linear = Layer::Linear { name: "fc".to_owned(), out: vocabulary, bias: false };
    let mut next = vec![0.0; vocabulary * vocabulary];
    (0..vocabulary).for_each(|token| next[(token + 1) % vocabulary * vocabulary + token] = 9.0);
    let mut same = vec![0.0; vocabulary * vocabulary];
    (0..vocabulary).for_each(|token| same[token * vocabulary + token] = 1.0);
    let mut params = ParamSet::new();
    let square = |values| Array::new([vocabulary, vocabulary], values).unwrap();
    params.insert("extractor.embedding.weight", square(same));
    params.insert("head.fc.weight", square(next));
    text_model(path, window, vec![embedding], linear, &params, class_names);
}

fn text_model(
    path: &Path,
    window: usize,
    extractor: Vec<Layer>,
    last: Layer,
    params: &ParamSet,
    class_names: &[&str],
) {
    let Layer::Linear { out: classes, .. } = last else { panic!("a linear layer") };
    let architecture = Architecture {
        name: "text".to_owned(),
        input: vec![window],
        classes,
        initialisation: models::Initialisation::default(),
        extractor,
        projection: Vec::new(),
        head: vec![last],
        ..Architecture::default()
    };
    let mut samples = shared::spec::RunSpec::example("fedavg").data;
    samples.shape = vec![window];
    samples.class_names = class_names.iter().map(|&name| name.to_owned()).collect();
    let extra = BTreeMap::from([(SAMPLES_KEY.to_owned(), serde_json::to_string(&samples).unwrap())]);
    write_model(&architecture, params, &extra, &mut File::create(path).unwrap()).unwrap();
}

#[test]
fn what_follows_a_text_is_what_follows_its_last_character_however_long_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    counting(&path, 5, shared::data::text::VOCABULARY, &[]);
    let mut predictor = Predictor::open(&path, &Backend::cpu()).unwrap();
    let names = predictor.names();
    let mut after = |text: &str| {
        let tokens = predictor.tokens(text).unwrap();
        names[predictor.follow(&tokens).unwrap().class as usize].clone()
    };
    assert_eq!(after("a"), "b");
    assert_eq!(after("To be or not to b"), "c");
    assert_eq!(after("\n"), "space");
    assert_eq!(after("é"), "line feed", "characters that are not in the vocabulary are one token, the last");
    assert!(matches!(predictor.follow(&[]), Err(PredictError::Text(TextError::Empty))));
}

/// A recurrent network's answer depends on what was before, and not on what fills its window up.
#[test]
fn a_short_text_is_answered_as_the_same_beginning_of_a_long_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let extractor = || {
        let embedding = Layer::Embedding { name: "embedding".to_owned(), vocabulary: 7, dim: 3 };
        vec![embedding, Layer::Lstm { name: "lstm".to_owned(), hidden: 4 }]
    };
    let linear = || Layer::Linear { name: "fc".to_owned(), out: 7, bias: true };
    let architecture = Architecture {
        name: "text".to_owned(),
        input: vec![6],
        classes: 7,
        initialisation: models::Initialisation::default(),
        extractor: extractor(),
        projection: Vec::new(),
        head: vec![linear()],
        ..Architecture::default()
    };
    let params = architecture.initialise(|name| shared::seed::Seed::root(3).derive(name).rng()).unwrap();
    text_model(&path, 6, extractor(), linear(), &params, &[]);
    let mut predictor = Predictor::open(&path, &Backend::cpu()).unwrap();
    let long: Vec<u32> = vec![3, 1, 4, 1, 5, 2];
    let data = Dataset::labelled(
        vec![6],
        shared::data::Samples::Tokens(long.iter().map(|&token| token as u16).collect()),
        long.clone(),
        7,
    );
    let mut rows = Vec::new();
    let mut keep = |row: Row| {
        rows.push(row.probabilities);
        ControlFlow::Continue(())
    };
    predictor.predict(&View::whole(Arc::new(data.unwrap())), &mut keep).unwrap();
    for length in 1..=6 {
        assert_eq!(predictor.follow(&long[..length]).unwrap().probabilities, rows[length - 1], "{length}");
    }
    let longer = [&[6, 6, 0], &long[..]].concat();
    assert_eq!(predictor.follow(&longer).unwrap().probabilities, rows[5], "the last window counts");
}

#[test]
fn words_are_those_that_the_model_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    counting(&path, 3, 4, &["the", "cat", "sat", "down"]);
    let mut predictor = Predictor::open(&path, &Backend::cpu()).unwrap();
    let tokens = predictor.tokens(" the  cat\n").unwrap();
    assert_eq!(tokens, [0, 1]);
    assert_eq!(predictor.names()[predictor.follow(&tokens).unwrap().class as usize], "sat");
    let refused = predictor.tokens("the dog").unwrap_err();
    assert!(matches!(&refused, TextError::UnknownWord { word } if word == "dog"), "{refused}");
    assert_eq!(predictor.tokens_of(&[2.0]).unwrap(), [2]);
    for wrong in [4.0, -1.0, 0.5, f32::NAN] {
        assert!(predictor.tokens_of(&[wrong]).unwrap_err().to_string().contains("from 0 to 3"), "{wrong}");
    }
    counting(&path, 3, 4, &[]);
    let predictor = Predictor::open(&path, &Backend::cpu()).unwrap();
    assert!(matches!(predictor.tokens("the"), Err(TextError::Unnamed { vocabulary: 4 })));
    let predictor = Predictor::open(&model(folder.path(), [0.0; 2]), &Backend::cpu()).unwrap();
    assert!(predictor.tokens("the").unwrap_err().to_string().contains("takes samples of shape 1x1x2"));
}
