//! `[personalisation]`: how clients make models of their own of the global one.

use models::Architecture;
use shared::algorithm::registry;
use shared::personalisation::Method;
use shared::spec::LabelsAt;

use super::Raw;
use super::combinations::{Combinations, Shown};

/// Refuses what the model or the algorithm has no part for.
pub(super) fn check(raw: &Raw, architecture: Option<&Architecture>, checks: &mut Combinations<'_>) {
    if raw.personalisation.method.is_none() {
        return;
    }
    let methods = raw.personalisation.methods();
    let shown = |methods: &[Method]| -> Shown {
        let names: Vec<&str> = if methods.is_empty() {
            vec!["none"]
        } else {
            methods.iter().map(|method| method.name()).collect()
        };
        let names: Vec<String> = names.into_iter().map(|name| format!("{name:?}")).collect();
        ("personalisation.method", format!("personalisation.method = {}", names.join(", ")))
    };
    for (name, known) in
        raw.algorithm.keys().filter_map(|name| Some((name, registry::by_default(name).ok()?)))
    {
        let keys = [("algorithm", format!("[algorithm.{name}]")), shown(methods)];
        if known.personal().is_some() && !methods.is_empty() {
            let reason = "every client has a model of its own already, and there is no global one to personalise; set \
                          personalisation.method = \"none\" to have these tested, or use another algorithm";
            checks.refuse(&keys, reason);
        } else if known.ensemble().is_some() {
            let reason =
                "its clients are sent no model that could be personalised or tested; use another algorithm";
            checks.refuse(&keys, reason);
        }
    }
    if raw.data.labels == LabelsAt::Server {
        let keys = [("data.labels", "data.labels = \"server\"".to_owned()), shown(methods)];
        let reason = "clients have no labels to make models of their own with, or to test any; leave one of the two out";
        checks.refuse(&keys, reason);
    }
    for method in methods {
        if let Some(architecture) = architecture
            && let Err(unfit) = method.fits(architecture)
        {
            let model = ("model", format!("the model {}", architecture.name));
            checks.refuse(&[shown(&[*method]), model], &unfit.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::id::RunId;
    use shared::personalisation::{Mix, Personalisation, Reports};

    use super::*;
    use crate::config::{Config, ConfigErrors};

    fn made(overrides: &[&str]) -> Result<Option<Personalisation>, ConfigErrors> {
        let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
        let raw = Raw::layered(None, &overrides)?;
        let config = Config::validate(&raw, RunId::from_bytes([1; 8]))?;
        Ok(config.spec.personalised().cloned())
    }

    #[test]
    fn a_method_is_a_name_or_a_list_and_unset_is_nothing() {
        let methods = |given: &str| {
            made(&[&format!("personalisation.method={given}")]).unwrap().unwrap().methods().to_vec()
        };
        assert_eq!(made(&[]).unwrap(), None);
        assert_eq!(methods("mfe"), [Method::Mfe]);
        assert_eq!(methods("[\"fb\", \"ft\"]"), [Method::Fb, Method::Ft]);
        assert_eq!(methods("none"), []);
        // What clients have of their own can be tested, though there is nothing to personalise.
        let local = made(&["personalisation.method=none", "algorithm.local={}"]).unwrap().unwrap();
        assert_eq!((local.methods().len(), local.report), (0, Reports::default()));
    }

    #[test]
    fn what_is_no_method_is_refused() {
        for (given, part) in [
            ("mef", "there is no \"mef\"; accepted: none, ft, fb"),
            ("[\"fb\", \"mef\"]", "there is no \"mef\""),
            ("[\"fb\", \"fb\"]", "different ones"),
            ("[]", "different ones"),
            ("3", "different ones"),
        ] {
            let error = made(&[&format!("personalisation.method={given}")]).unwrap_err().to_string();
            assert!(error.contains(part), "{given}: {error}");
        }
    }

    #[test]
    fn what_has_nothing_to_personalise_is_refused_with_a_way_out() {
        let labels = ["data.labels=server", "data.labelled=50", "algorithm.fedmix={}"];
        for (overrides, parts) in [
            (&labels[..], &["data.labels = \"server\"", "no labels to make models of their own with"][..]),
            (
                &["algorithm.fafi={}", "run.rounds=1", "model.name=mlp-2nn"],
                &["[algorithm.fafi]", "use another algorithm"],
            ),
            (&["algorithm.local={}"], &["[algorithm.local]", "\"none\""]),
        ] {
            assert!(made(overrides).is_ok(), "{overrides:?}");
            let refused =
                made(&[overrides, &["personalisation.method=ft"]].concat()).unwrap_err().to_string();
            for part in parts.iter().chain(&["personalisation.method = \"ft\""]) {
                assert!(refused.contains(part), "{overrides:?}: {part:?} is not in {refused}");
            }
        }
    }

    #[test]
    fn samples_that_are_held_out_for_nothing_are_refused() {
        let refused = made(&["evaluate.hold-out=0.25"]).unwrap_err().to_string();
        for part in [
            "evaluate.hold-out = 0.25",
            "evaluate.on-clients-every = 0",
            "test nothing",
            "personalisation.method",
        ] {
            assert!(refused.contains(part), "{part:?} is not in {refused}");
        }
        for reason in ["evaluate.on-clients-every=1", "personalisation.method=fb"] {
            assert!(made(&["evaluate.hold-out=0.25", reason]).is_ok(), "{reason}");
        }
    }

    #[test]
    fn settings_are_what_the_table_says() {
        let given =
            ["method=mf", "every=3", "mix=probabilities", "head.learning-rate=0.5", "report.gate=false"];
        let given = given.map(|given| format!("personalisation.{given}"));
        let settings = made(&given.each_ref().map(String::as_str)).unwrap().unwrap();
        assert_eq!((settings.every, settings.mix, settings.head.momentum), (3, Mix::Probabilities, 0.9));
        assert!(
            (settings.head.learning_rate - 0.5).abs() < 1e-12 && (settings.expert_share - 0.75).abs() < 1e-12
        );
        assert_eq!(settings.report, Reports { gate: false, ..Reports::default() });
    }
}
