//! Interoperability of model files: Python's safetensors, and our two programs on the same data.

use std::fs::{self, File};
use std::path::PathBuf;

use federation_tests::process::{Ended, run};
use federation_tests::programs::programs;
use federation_tests::python::with_numpy;
use models::ParamSet;
use serde_json::Value;

/// A short run, and every client's data and the test set as files.
struct Trained {
    folder: tempfile::TempDir,
}

impl Trained {
    fn new(model: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let trained = Self { folder };
        let (model, runs, data) = (format!("model.name={model}"), trained.name("runs"), trained.name("data"));
        let sets = [
            "--set",
            &model,
            "--set",
            "data.clients=3",
            "--set",
            "data.max-samples=300",
            "--set",
            "run.rounds=3",
        ];
        let simulate = [&["simulate", "--runs", &runs][..], &sets].concat();
        let split = [&["data", "split", "--out", &data][..], &sets].concat();
        for arguments in [simulate, split] {
            let ended = run(&programs().aggregator, &arguments);
            assert_eq!(ended.code, Some(0), "{}", ended.text);
        }
        trained
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn model(&self) -> PathBuf {
        self.path("runs/glyphs-fedavg/model.safetensors")
    }

    fn params(&self) -> ParamSet {
        models::read_model(&mut File::open(self.model()).unwrap()).unwrap().1
    }
}

/// The last line of a program's output, which is JSON.
fn last_object(ended: &Ended) -> Value {
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    serde_json::from_str(ended.text.lines().last().unwrap()).unwrap()
}

#[test]
fn both_programs_find_the_same_samples_right() {
    for model in ["linear", "cnn-small"] {
        let trained = Trained::new(model);
        let (file, test, train) = (
            trained.model().display().to_string(),
            trained.name("data/test"),
            trained.name("data/client-001"),
        );
        for (data, predict_split, evaluate_split) in [(test, "test", &[][..]), (train, "train", &["--train"])]
        {
            let predict = ["predict", "--model", &file, "--data", &data, "--split", predict_split, "--json"];
            let evaluate =
                [&["evaluate", "--model", &file, "--data", &data, "--json"][..], evaluate_split].concat();
            let predicted = last_object(&run(&programs().edge_client, &predict));
            let evaluated = last_object(&run(&programs().aggregator, &evaluate));
            assert!(predicted["samples"].as_u64().unwrap() >= 100, "{predicted}");
            for key in ["samples", "correct", "accuracy"] {
                assert_eq!(
                    predicted[key], evaluated[key],
                    "{model}, {predict_split}: {predicted} {evaluated}"
                );
            }
        }
        // And so did the run itself, on the test set that it drew.
        let rounds = fs::read_to_string(trained.path("runs/glyphs-fedavg/rounds.jsonl")).unwrap();
        let round: Value = serde_json::from_str(rounds.lines().last().unwrap()).unwrap();
        let evaluate = ["evaluate", "--model", &file, "--data", &trained.name("data/test"), "--json"];
        assert_eq!(round["accuracy"], last_object(&run(&programs().aggregator, &evaluate))["accuracy"]);
    }
}

/// Prints every tensor as JSON: name, type, shape, and the bits of every value, so that nothing is rounded on the way.
const SCRIPT: &str = r"
import json, sys
import numpy
from safetensors import safe_open
with safe_open(sys.argv[1], framework='numpy') as file:
    print(json.dumps(file.metadata()))
    for name in file.keys():
        tensor = file.get_tensor(name)
        bits = numpy.ascontiguousarray(tensor).view(numpy.uint32).ravel().tolist()
        print(json.dumps([name, str(tensor.dtype), list(tensor.shape), bits]))
";

#[test]
fn python_reads_the_model() {
    let python = match with_numpy() {
        Ok(python) => python,
        Err(reason) => {
            println!("skipped: no Python with safetensors and numpy: {reason}");
            return;
        }
    };
    let trained = Trained::new("cnn-small");
    let model = trained.model();
    let ended = run(&python, &["-c", SCRIPT, model.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    let mut lines = ended.text.lines();
    let metadata: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!((&metadata["data"], &metadata["rounds"]), (&"glyphs".into(), &"3".into()), "{metadata}");
    assert!(metadata["architecture"].as_str().unwrap().contains("cnn-small"), "{metadata}");

    let params = trained.params();
    let mut found = Vec::new();
    for line in lines {
        let (name, dtype, shape, bits): (String, String, Vec<usize>, Vec<u32>) =
            serde_json::from_str(line).unwrap();
        let ours = params.get(&name).unwrap_or_else(|| panic!("we have no {name}"));
        assert_eq!((dtype.as_str(), shape.as_slice()), ("float32", ours.shape()), "{name}");
        let expected: Vec<u32> = ours.values().iter().map(|value| value.to_bits()).collect();
        assert!(bits == expected, "{name}: other values");
        found.push(name);
    }
    found.sort();
    assert_eq!(found, params.names().collect::<Vec<_>>());
}
