//! The folder of a small model.

use models::{Architecture, Evaluation, PerClass};
use serde_json::Value;
use shared::seed::Seed;
use shared::spec::{DataSpec, RunSpec};

use super::*;

fn samples() -> DataSpec {
    let mut samples = RunSpec::example("fedavg").data;
    samples.shape = vec![1, 8, 8];
    samples.class_names = vec!["a|b".to_owned(), "<b>: \"x\"\ny".to_owned()];
    samples
}

fn training() -> Training {
    let mut found = PerClass::new(2);
    found.count(0, 0, 0.9);
    found.count(1, 0, 0.6);
    let evaluation =
        Evaluation { loss: 0.5, accuracy: Some(0.5), samples: 2, correct: 1, ..Evaluation::default() };
    Training {
        run: "photos: \"first\"".to_owned(),
        algorithm: "fedavg".to_owned(),
        data: "images".to_owned(),
        clients: Clients { count: 3, simulated: true, samples: Some(vec![1200, 34]) },
        round: 7,
        changed: vec![("training.epochs".to_owned(), "5".to_owned())],
        sent: Some((21, 2_500_000)),
        tested: Some(Tested {
            accuracy: Some(0.5),
            loss: Some(0.25),
            measures: Vec::new(),
            by_class: Some((evaluation, found)),
        }),
        ..Training::default()
    }
}

/// The texts of the folder: the card, and the description.
fn texts(training: Option<&Training>, licence: Option<&str>) -> (String, Value) {
    let architecture = Architecture::by_name("linear", &[1, 8, 8], 2).unwrap();
    let params =
        architecture.initialise(|name| Seed::root(1).derive_bytes("t", name.as_bytes()).rng()).unwrap();
    let samples = samples();
    let model =
        Model { architecture: &architecture, params: &params, samples: Some(&samples), training, licence };
    let files = folder(model).unwrap();
    let names: Vec<_> = files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["README.md", "config.json", "model.safetensors", "onnx/model.onnx"]);
    let [Exported { content: Content::Text(card), .. }, Exported { content: Content::Text(json), .. }, ..] =
        &files[..]
    else {
        panic!("two texts stand first")
    };
    (card.clone(), serde_json::from_str(json).unwrap())
}

#[test]
fn the_card_of_a_private_run_says_what_is_promised_and_counts_nothing_of_devices() {
    let promised = "epsilon 1.500 at delta 1e-5".to_owned();
    let clients = Clients { samples: None, ..training().clients };
    let private = Training { privacy: Some(promised), sent: None, clients, ..training() };
    let (card, _) = texts(Some(&private), None);
    assert!(
        card.contains("Differential privacy of simulated clients: epsilon 1.500 at delta 1e-5."),
        "{card}"
    );
    for counted in ["updates that counted", "sent by clients", "training samples"] {
        assert!(!card.contains(counted), "{counted}: {card}");
    }
    let (card, _) = texts(Some(&training()), None);
    assert!(card.contains("| updates that counted | 21 |") && !card.contains("privacy"), "{card}");
    assert!(!card.contains("Secure aggregation"), "{card}");
    let (card, _) = texts(Some(&Training { hidden_among: Some(16), ..training() }), None);
    assert!(
        card.contains("sums of the updates of at least 16 simulated clients, and no single update"),
        "{card}"
    );
}

#[test]
fn the_card_says_what_is_known_and_nothing_else() {
    let (card, _) = texts(Some(&training()), Some("apache-2.0"));
    for part in [
        "license: \"apache-2.0\"\n",
        "pipeline_tag: image-classification\n",
        "- name: \"photos: \\\"first\\\"\"\n",
        "    - type: accuracy\n      value: 0.5\n    - type: loss\n      value: 0.25\n---\n",
        "and tells 2 classes apart: a\\|b, &lt;b>: \"x\" y.",
        "| clients | 3 simulated clients |\n",
        "| samples | 1,234 training samples: a\\|b 1,200, &lt;b>: \"x\" y 34 |\n",
        "| `training.epochs` | 5 |\n",
        "On the server's test set (2 samples): accuracy 50.00 %, cross-entropy 0.2500 nats.",
        "| a\\|b | 1 | 50.0 % | 100.0 % | 66.7 % |\n",
        "| &lt;b>: \"x\" y | 1 | - | 0.0 % |",
    ] {
        assert!(card.contains(part), "{part:?} is not in:\n{card}");
    }
    assert_eq!(card.matches("---\n").count(), 2, "{card}");

    let (card, _) = texts(Some(&Training { tested: None, ..training() }), None);
    assert!(
        card.contains("was not tested") && !card.contains("model-index") && !card.contains("license"),
        "{card}"
    );
    let (card, _) = texts(None, None);
    assert!(
        card.contains("# linear\n") && !card.contains("## Training") && !card.contains("## Results"),
        "{card}"
    );
}

#[test]
fn programs_find_classes_and_preparation() {
    let (_, json) = texts(None, None);
    assert_eq!(json["id2label"]["0"], "a|b");
    assert_eq!(json["label2id"]["<b>: \"x\"\ny"], 1);
    assert_eq!((&json["num_labels"], &json["parameters"]), (&2.into(), &130.into()));
    assert_eq!(json["architecture"]["name"], "linear");
    assert!(json["preparation"].is_object() && json["sample"] == serde_json::json!([1, 8, 8]));
}
