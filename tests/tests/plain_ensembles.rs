//! The plain ensemble through whole runs: networks that clients have learned alone, and that answer together.

use federation_tests::scenario::Scenario;

use crate::ensembles::simulated;

/// Four clients in one round, unless more is said.
const ONE_SHOT: [&str; 6] = [
    "algorithm.ensemble={}",
    "model.name=mlp-2nn",
    "run.rounds=1",
    "round.min-updates=4",
    "training.batch=10",
    "evaluate.every=1",
];

#[tokio::test]
async fn the_record_has_the_ensemble_beside_its_members() {
    let mut found = Vec::new();
    for weights in ["samples", "uniform"] {
        let weights = format!("aggregation.weights={weights}");
        let skewed = ["data.partition.dirichlet.alpha=0.3", &weights];
        let scenario = Scenario::small(&[&ONE_SHOT[..], &skewed].concat());
        let (_directory, run) = simulated(&scenario, 2).await;
        let record = &run.records()[0];
        assert_eq!(record.accuracy, Some(record.metrics["fused-logits"]));
        assert!(record.metrics["best-member"] >= record.metrics["mean-member"]);
        assert_eq!(record.metrics["members"] as usize, 4);
        let fused = record.metrics.keys().filter(|name| name.starts_with("fused-"));
        assert_eq!(
            fused.collect::<Vec<_>>(),
            ["fused-logits", "fused-probabilities"],
            "no features are fused"
        );
        assert_eq!(run.bundle().unwrap().unwrap().dimensions(), 0);
        found.push(record.loss);
    }
    assert_ne!(found[0], found[1], "by their samples, and all alike");
}

/// In a record only if it is asked for, of FAFI's members and of others.
#[tokio::test]
async fn the_members_inconsistency_is_recorded_on_demand() {
    let names = ["inter-inconsistency", "intra-inconsistency", "intra-inconsistency-start"];
    for algorithm in ["algorithm.ensemble={}", "algorithm.fafi={}"] {
        for asked in [false, true] {
            let asked_for = format!("evaluate.inconsistency={asked}");
            let more = [algorithm, &asked_for, "augment.random-shift=1"];
            let (_directory, run) = simulated(&Scenario::small(&[&ONE_SHOT[1..], &more].concat()), 2).await;
            let metrics = &run.records()[0].metrics;
            let found = names.map(|name| metrics.get(name).is_some_and(|value| (0.0..1.0).contains(value)));
            assert_eq!(found, [asked; 3], "{algorithm}: {metrics:?}");
        }
    }
}

/// A second round brings those who were not in the first, and trains no client twice.
#[tokio::test]
async fn a_second_wave_joins() {
    let waves = ["run.rounds=6", "round.fraction=0.5", "round.min-updates=2"];
    let (_directory, run) = simulated(&Scenario::small(&[&ONE_SHOT[..], &waves].concat()), 2).await;
    let members: Vec<_> = run.records().iter().map(|record| record.metrics["members"] as usize).collect();
    assert!(members.is_sorted() && members[0] == 2 && members[5] == 4, "{members:?}");
}

#[cfg(unix)]
mod processes {
    use std::fs;

    use federation_tests::testbed::Testbed;

    use super::ONE_SHOT;
    use crate::ensembles::processes::{aggregator, assert_a_device_answers_alike, json};

    #[test]
    fn devices_become_an_ensemble_that_answers() {
        let more = ["training.batch=10", "evaluate.every=1", "data.max-samples=240"];
        let testbed = Testbed::new(3, &[&ONE_SHOT[..3], &more].concat());
        let server = testbed.serve();
        let devices = (0..3).map(|index| testbed.join(index)).collect();
        // The simulation's, byte for byte.
        testbed.assert_completed(server, devices);
        let ensemble = testbed.run().join("ensemble.safetensors").display().to_string();
        let config = testbed.name("run.toml");
        let evaluation = json(&["evaluate", "--model", &ensemble, &config, "--json"]);
        assert_eq!(evaluation["accuracy"].as_f64(), testbed.rounds()[0].accuracy);
        assert_eq!(
            evaluation["fusions"].as_object().unwrap().keys().collect::<Vec<_>>(),
            ["logits", "probabilities"]
        );
        assert_a_device_answers_alike(&testbed, &ensemble);

        let shown = aggregator(&["ensemble", "show", &ensemble]);
        assert!(shown.text.contains("10 classes, logits fusion"), "{}", shown.text);
        let refused = aggregator(&["predict", "--model", &ensemble, &config, "--fusion", "size"]);
        assert!(
            refused.code == Some(2) && refused.text.contains("choose logits or probabilities"),
            "{}",
            refused.text
        );
        let client = json(&["ensemble", "show", &ensemble, "--json"])["members"][0]["client"]
            .as_str()
            .unwrap()
            .to_owned();
        let rest = testbed.name("rest.safetensors");
        let dropped = aggregator(&["ensemble", "drop", &ensemble, "--client", &client, "--out", &rest]);
        assert!(dropped.text.contains("2 members are left"), "{}", dropped.text);
        let extended = aggregator(&["ensemble", "extend", &rest, "--with", &ensemble]);
        assert!(extended.text.contains("3 members, new 1, replaced 2"), "{}", extended.text);
        assert!(fs::read(&rest).unwrap() == fs::read(&ensemble).unwrap());
        // Its page, and its last round by classes.
        let page = fs::read_to_string(testbed.run().join("report.html")).unwrap();
        assert!(page.contains("fused-logits") && page.contains("best-member"), "{page}");
        let hub = aggregator(&["export", "--model", &ensemble, "--to", "hub", "--out", &testbed.name("hub")]);
        assert!(hub.code == Some(2) && hub.text.contains("--to torch, numpy or onnx"), "{}", hub.text);
    }

    /// Texts are read as they are: there is no noise that they would be compared with.
    #[test]
    fn an_ensemble_reads_texts() {
        let folder = tempfile::tempdir().unwrap();
        let line = |n: usize| {
            if n.is_multiple_of(2) { format!("good {n},glad\n") } else { format!("bad {n},sad\n") }
        };
        let table: String = (0..60).map(line).collect();
        for name in ["train.csv", "test.csv"] {
            fs::write(folder.path().join(name), format!("review,mood\n{table}")).unwrap();
        }
        let data = format!("data.path={}", folder.path().display());
        let runs = folder.path().join("runs").display().to_string();
        let settings = [
            "algorithm.ensemble={}",
            "data.set=csv",
            &data,
            "data.text=review",
            "data.shape=16",
            "data.label=mood",
            r#"data.class-names=["glad","sad"]"#,
            "data.clients=3",
            "model.layers=[{ embedding = { vocabulary = 257, dim = 16 } }, { linear = 32 }, 'relu', 'mean-positions', \
             { linear = 'classes' }]",
            "training.epochs=20",
            "training.batch=5",
            "training.optimizer.adam.learning-rate=0.01",
            "run.name=texts",
        ];
        let set = settings.iter().flat_map(|setting| ["--set", setting]);
        let arguments: Vec<&str> = ["simulate", "--runs", &runs].into_iter().chain(set).collect();
        let ended = aggregator(&arguments);
        assert_eq!(ended.code, Some(0), "{}", ended.text);
        let ensemble = folder.path().join("runs/texts/ensemble.safetensors").display().to_string();
        let evaluation = json(&["evaluate", "--model", &ensemble, "--json"]);
        assert!(evaluation["accuracy"].as_f64() > Some(0.9), "{evaluation}");
        let said = folder.path().join("said.txt");
        fs::write(&said, "bad 7").unwrap();
        let predicted =
            aggregator(&["predict", "--model", &ensemble, "--data", &said.display().to_string(), "--json"]);
        assert!(predicted.text.contains("\"name\":\"sad\""), "{}", predicted.text);
    }
}
