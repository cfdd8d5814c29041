//! What is refused, and what is not.

use models::Layer;
use shared::id::RunId;

use super::*;
use crate::config::Config;

/// What is said of a configuration; nothing of one that is valid.
fn refused(overrides: &[&str]) -> String {
    let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
    let raw = Raw::layered(None, &overrides).expect("keys that exist");
    let found = Config::validate(&raw, RunId::from_bytes([1; 8]));
    found.err().map(|errors| errors.to_string()).unwrap_or_default()
}

#[test]
fn training_does_not_end_by_what_nobody_tests() {
    for (end, shown) in [
        ("early-stopping.patience=3", "early-stopping.patience = 3"),
        ("early-stopping.target=0.5", "early-stopping.target = 0.5"),
    ] {
        for (metric, none, some) in [
            ("accuracy", "evaluate.every=0", "evaluate.every=2"),
            ("loss", "evaluate.every=0", "evaluate.every=1"),
            ("own-accuracy", "evaluate.on-clients-every=0", "evaluate.on-clients-every=1"),
            ("own-loss", "evaluate.on-clients-every=0", "evaluate.on-clients-every=2"),
        ] {
            let by = format!("early-stopping.metric={metric}");
            let said = refused(&[end, &by, none]);
            let (key, metric) = (none.replace("=0", ""), format!("early-stopping.metric = {metric:?}"));
            for part in [shown, &metric, "nothing is tested", &format!("set {key} to 1 or more")] {
                assert!(said.contains(part), "{end} {by}: {part:?} is not in {said}");
            }
            assert_eq!(refused(&[end, &by, some]), "", "{end} {by} {some}");
        }
    }
    // Without an end, nothing has to be tested.
    assert_eq!(refused(&["early-stopping.metric=own-loss"]), "");
    assert!(refused(&["early-stopping.target=80"]).contains("an accuracy is at most 1: 80 per cent are 0.8"));
}

#[test]
fn classes_are_told_apart_where_there_is_a_test_and_they_are_few() {
    let on = "evaluate.by-class=true";
    let tests = ["evaluate.on-clients-every=1", "evaluate.hold-out=0.2", on];
    assert_eq!(refused(&tests), "");
    assert!(refused(&[on]).contains("clients would test nothing"), "{}", refused(&[on]));
    let mut raw = Raw::layered(None, &tests.map(str::to_owned)).expect("keys that exist");
    for (classes, said) in [(1000, None), (1001, Some("the 1001 classes of the model"))] {
        let mut findings = Findings::default();
        Combinations { places: None, findings: &mut findings }.by_class(&raw, Some(classes));
        let found = findings.none_or(()).err().map(|errors| errors.to_string());
        assert_eq!(found.is_some(), said.is_some(), "{found:?}");
        assert!(said.is_none_or(|said| found.expect("it is refused").contains(said)));
    }
    raw.evaluate.by_class = false;
    let mut findings = Findings::default();
    Combinations { places: None, findings: &mut findings }.by_class(&raw, Some(1001));
    assert!(findings.none_or(()).is_ok());
}

#[test]
fn text_is_not_held_out_since_its_samples_overlap() {
    let text = ["data.set=shakespeare", "data.path=x", "model.name=char-lstm", "evaluate.on-clients-every=1"];
    assert_eq!(refused(&text), "");
    let said = refused(&[&text[..], &["evaluate.hold-out=0.2"]].concat());
    assert!(said.contains("overlaps") && said.contains("leave evaluate.hold-out out"), "{said}");
}

#[test]
fn the_names_of_features_are_those_of_a_tables_columns() {
    let table = ["data.set=csv", "data.path=x", "data.shape=2", "data.classes=2", "model.name=linear"];
    let with = |more: &[&str]| refused(&[&table[..], more].concat());
    assert_eq!(with(&["data.features=[\"age\", \"bmi\"]"]), "");
    for (more, said) in [
        (&["data.features=[\"age\"]"][..], "name as many columns as a sample has numbers"),
        (&["data.features=[\"age\", \"label\"]"], "the column \"label\" is learned"),
        (&["data.features=[\"age\", \"bmi\"]", "data.text=said"], "leave data.features out"),
    ] {
        let found = with(more);
        assert!(found.contains(said), "{more:?}: {found}");
    }
    assert!(refused(&["data.features=[\"age\"]"]).contains("those of a table"));
}

#[test]
fn members_are_compared_where_an_ensemble_is_tested() {
    let on = ["evaluate.inconsistency=true", "algorithm.ensemble={}"];
    assert_eq!(refused(&on), "");
    assert!(refused(&on[..1]).contains("use ensemble or fafi"), "{}", refused(&on[..1]));
    let never = refused(&[&on[..], &["evaluate.every=0"]].concat());
    assert!(never.contains("set evaluate.every to 1 or more"), "{never}");
}

#[test]
fn representations_are_needed_for_what_compares_them() {
    for overrides in [["algorithm.moon={}"], ["training.measure.alignment=true"]] {
        let linear = refused(&[&overrides[..], &["model.name=linear"]].concat());
        assert!(linear.contains("the model linear") && linear.contains("the samples themselves"), "{linear}");
        assert_eq!(refused(&[&overrides[..], &["model.name=mlp-2nn"]].concat()), "");
    }
    let fedsgd = ["algorithm.fedsgd={}", "training.batch=0", "training.measure.drift=true"];
    assert!(refused(&fedsgd).contains("training.measure.drift = true"));
}

/// What is said of a model's statistics.
fn refused_buffers(overrides: &[&str], architecture: &Architecture) -> Option<String> {
    let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
    let raw = Raw::layered(None, &overrides).expect("keys that exist");
    let mut findings = Findings::default();
    Combinations { places: None, findings: &mut findings }.buffers(&raw, architecture);
    findings.none_or(()).err().map(|errors| errors.to_string())
}

/// A model without statistics, and one with.
fn plain_and_normalised() -> (Architecture, Architecture) {
    let plain = Architecture::by_name("linear", &[1, 28, 28], 10).expect("a built-in");
    let mut normalised = plain.clone();
    normalised.head.insert(1, Layer::BatchNorm { name: "norm".to_owned() });
    (plain, normalised)
}

#[test]
fn averaged_statistics_and_late_updates_do_not_go_together() {
    let (plain, normalised) = plain_and_normalised();
    let refused = refused_buffers;
    let message = refused(&["round.staleness.enabled=true"], &normalised).expect("refused");
    for part in
        ["round.staleness.enabled = true", "aggregation.buffers = \"average\"", "group norm", "negative"]
    {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(refused(&["round.staleness.enabled=true"], &plain), None, "there are no statistics");
    let local = ["round.staleness.enabled=true", "aggregation.buffers=local", "evaluate.every=0"];
    assert_eq!(refused(&local, &normalised), None);
}

#[test]
fn local_statistics_and_tests_of_the_global_model_do_not_go_together() {
    let (plain, normalised) = plain_and_normalised();
    let refused = refused_buffers;
    let message = refused(&["aggregation.buffers=local"], &normalised).expect("refused");
    for part in ["aggregation.buffers = \"local\"", "evaluate.every = 1", "average the buffers"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(refused(&["aggregation.buffers=local"], &plain), None, "there are no statistics");
    assert_eq!(refused(&["aggregation.buffers=local", "evaluate.every=0"], &normalised), None);
    assert_eq!(refused(&[], &normalised), None);
}

#[test]
fn late_updates_are_for_means_alone() {
    let refused = |rule: &str| {
        let overrides =
            ["round.staleness.enabled=true", "aggregation.weights=uniform", rule].map(str::to_owned);
        let raw = Raw::layered(None, &overrides).expect("keys that exist");
        let found = Config::validate(&raw, RunId::from_bytes([1; 8]));
        found.err().map(|errors| errors.to_string()).unwrap_or_default()
    };
    for rule in ["median={}", "trimmed-mean.beta=0.1", "fedma={}"] {
        let said = refused(&format!("aggregation.rule.{rule}"));
        assert!(
            said.contains("round.staleness.enabled = true") && said.contains("another model"),
            "{rule}: {said}"
        );
    }
    for rule in ["mean={}", "clipped-mean.bound=1"] {
        assert_eq!(refused(&format!("aggregation.rule.{rule}")), "");
    }
}
