//! Low-rank adapters: they alone are learned and sent, and what is written has them merged.
#![cfg(unix)]

use std::fs;
use std::path::Path;

use aggregator::config::{Config, Raw};
use federation_tests::process::Process;
use federation_tests::scenario::Scenario;
use federation_tests::testbed::Testbed;
use federation_tests::whole_run::whole;
use models::{Architecture, ParamSet};
use shared::id::RunId;

/// A model's file.
fn model(path: &Path) -> (Architecture, ParamSet) {
    let (architecture, params, _) = models::read_model(&mut fs::File::open(path).unwrap()).unwrap();
    (architecture, params)
}

/// A run of three rounds, and its model's file.
async fn pretrained(folder: &Path) -> String {
    let run = whole(folder, &Scenario::small(&["model.name=mlp-2nn", "run.name=pretrained"])).await;
    run.directory().model().display().to_string()
}

#[tokio::test]
async fn they_alone_are_learned_and_the_model_has_them_merged() {
    let folder = tempfile::tempdir().unwrap();
    let from = pretrained(folder.path()).await;
    let begun = model(Path::new(&from)).1;
    for (fresh, adapted) in [(None, "extractor"), (Some("model.fresh=['head.*']"), "extractor")] {
        let from = format!("model.from.file={from}");
        let mut settings = vec![
            "model.name=mlp-2nn",
            "model.adapters.lora.rank=2",
            "model.adapters.lora.on=['extractor.*']",
            "training.optimizer.sgd.learning-rate=0.5",
            "evaluate.every=1",
            &from,
        ];
        settings.extend(fresh);
        let [place, next_place] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let run = whole(place.path(), &Scenario::small(&settings)).await;
        let sent = run.current_model().unwrap();
        assert!(
            sent.names().all(|name| name.contains("-lora-") || fresh.is_some() && name.starts_with("head."))
        );
        for record in run.records() {
            let bound = 4 * (4 * sent.parameters() as u64 + 4096);
            assert!(record.bytes_up <= bound, "{} bytes up, {bound} allowed", record.bytes_up);
        }
        let (architecture, learned) = model(&run.directory().model());
        assert!(!architecture.has_adapters() && architecture.frozen.is_none());
        begun.check_same_layout(&learned).unwrap();
        for (name, array) in &learned {
            let moved = begun.get(name) != Some(array);
            let may = name.starts_with(adapted) && name.ends_with(".weight")
                || fresh.is_some() && name.starts_with("head.");
            assert_eq!(moved, may, "{name}");
        }
        // Merged they predict what they predicted in the run.
        let tests = run.tests.as_ref().unwrap();
        let found = tests.evaluate(&architecture, &learned, &models::Backend::cpu()).unwrap();
        let told = run.records().last().unwrap();
        assert!((found.accuracy.unwrap() - told.accuracy.unwrap()).abs() < 2e-3, "{found:?} and {told:?}");
        assert!((found.loss - told.loss.unwrap()).abs() < 1e-4, "{found:?} and {told:?}");
        // Another run begins with them as with any model.
        let next = format!("model.from.file={}", run.directory().model().display());
        let begins =
            whole(next_place.path(), &Scenario::small(&["model.name=mlp-2nn", "training.epochs=0", &next]))
                .await;
        assert_eq!(model(&begins.directory().model()).1, learned);
    }
}

/// A transformer over the patches of an image: attention alone is adapted.
#[tokio::test]
async fn a_transformer_learns_by_adapters_of_its_attention() {
    let network = "model.layers=[{ conv = { out = 12, kernel = 7, stride = 7, name = 'patches' } }, 'to-sequence', \
                   { residual = ['layer-norm', { linear = { out = 36, name = 'attn-qkv' } }, { attention = 3 }, \
                   { linear = { out = 12, name = 'attn-proj' } }] }, 'mean-positions', { linear = 'classes' }]";
    let folder = tempfile::tempdir().unwrap();
    let begun = whole(folder.path(), &Scenario::small(&[network, "run.name=pretrained"])).await;
    let begun = begun.directory().model();
    let from = format!("model.from.file={}", begun.display());
    let lora = ["model.adapters.lora.rank=2", "model.adapters.lora.on=['*attn-*']", &from];
    let run = whole(folder.path(), &Scenario::small(&[&[network][..], &lora].concat())).await;
    let sent: Vec<String> = run.current_model().unwrap().names().map(str::to_owned).collect();
    assert_eq!(sent.len(), 4, "{sent:?}");
    assert!(sent.iter().all(|name| name.contains("attn-") && name.contains("-lora-")), "{sent:?}");
    let (begun, learned) = (model(&begun).1, model(&run.directory().model()).1);
    for (name, array) in &learned {
        let adapted = name.contains("attn-") && name.ends_with(".weight");
        assert_eq!(begun.get(name) != Some(array), adapted, "{name}");
    }
}

#[tokio::test]
async fn devices_train_the_adapters_of_the_simulation() {
    let folder = tempfile::tempdir().unwrap();
    let from = format!("model.from.file={}", pretrained(folder.path()).await);
    let testbed = Testbed::new(2, &["model.name=mlp-2nn", "model.adapters.lora.rank=3", &from]);
    let server = testbed.serve();
    let devices: Vec<Process> = (0..2).map(|index| testbed.join(index)).collect();
    testbed.assert_completed(server, devices);
}

/// What is said of a configuration that makes no sense.
fn refused(settings: &[&str]) -> String {
    let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
    let raw = Raw::layered(None, &settings).unwrap();
    Config::validate(&raw, RunId::from_bytes([9; 8])).unwrap_err().to_string()
}

#[test]
fn what_makes_no_sense_with_them_is_refused() {
    let lora = ["model.name=mlp-2nn", "model.adapters.lora.rank=2"];
    let from = [&lora[..], &["model.from.file=x"]].concat();
    let with = |more: &[&'static str]| refused(&[&from[..], more].concat());
    assert!(refused(&lora).contains("give model.from"));
    assert!(with(&["model.freeze=['head.*']"]).contains("leave model.freeze out"));
    let said = with(&["model.adapters.lora.on=['*.conv.*']"]);
    assert!(said.contains("no weight of a linear layer") && said.contains("extractor.fc1.weight"), "{said}");
    assert!(with(&["algorithm.fafi={}", "evaluate.on-clients-every=0"]).contains("fafi"));
    assert!(with(&["aggregation.rule.fedma={}"]).contains("fedma"));
}
