//! `update.top-k`: what updates of which a few values are sent do not go with.

use super::super::Raw;
use super::{Combinations, shown};

impl Combinations<'_> {
    /// Refuses what needs whole updates.
    pub(super) fn top_k(&mut self, raw: &Raw) {
        let Some(share) = raw.update.top_k else { return };
        let top_k = ("update.top-k", format!("update.top-k = {share}"));
        let rule = &raw.aggregation.rule;
        if rule.needs_every_update() {
            let reason = "the rule compares updates value by value or by their distances, and of two updates of which a few values are sent \
                          most of what it would compare is left out; use the mean or the clipped mean, or update.precision = \"int8\"";
            self.refuse(&[top_k.clone(), ("aggregation.rule", shown(rule))], reason);
        }
        if raw.round.staleness.enabled {
            let reason = "a late update counts less, and what it loses of what earlier ones left out is not sent again; leave one of \
                          both out";
            self.refuse(
                &[top_k.clone(), ("round.staleness", "round.staleness.enabled = true".to_owned())],
                reason,
            );
        }
        if let Some(clip) = raw.privacy.clip {
            let reason = "noise is added to every value of the sum, also to those that were not sent, and of what devices add to later \
                          updates the clip takes away; leave update.top-k out, update.precision = \"int8\" goes with [privacy]";
            self.refuse(&[top_k.clone(), ("privacy.clip", format!("privacy.clip = {clip}"))], reason);
        }
        if raw.secure_aggregation.enabled {
            let reason = "a hidden update has every value, since those that were left out would show where the others are; leave \
                          update.top-k out, secure-aggregation.integers = \"i32\" takes half the bytes";
            self.refuse(&[top_k, super::secure::enabled()], reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::id::RunId;

    use crate::config::{Config, Raw};

    fn refused(overrides: &[&str]) -> String {
        let overrides: Vec<String> =
            overrides.iter().chain(&["update.top-k=0.01"]).map(ToString::to_string).collect();
        let raw = Raw::layered(None, &overrides).expect("keys that exist");
        let found = Config::validate(&raw, RunId::from_bytes([1; 8]));
        found.err().map(|errors| errors.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_needs_whole_updates_is_refused_with_a_way_out() {
        for (overrides, parts) in [
            (
                &["aggregation.rule.median={}", "aggregation.weights=uniform"][..],
                &["update.top-k = 0.01", "value by value", "the clipped mean"][..],
            ),
            (
                &["aggregation.rule.krum={}", "aggregation.weights=uniform", "round.min-updates=9"],
                &["distances"],
            ),
            (&["aggregation.rule.fedma={}", "model.name=mlp-2nn"], &["update.top-k = 0.01"]),
            (
                &["privacy.clip=1", "privacy.noise=1", "aggregation.weights=uniform"],
                &["update.top-k = 0.01", "privacy.clip = 1", "noise is added to every value", "int8"],
            ),
            (
                &["secure-aggregation.enabled=true", "secure-aggregation.min-devices=3"],
                &["update.top-k = 0.01", "would show where the others are", "i32"],
            ),
            (&["round.staleness.enabled=true"], &["update.top-k = 0.01", "a late update counts less"]),
            (&["algorithm.scaffold={}"], &["[algorithm.scaffold]", "control variates"]),
            (&["algorithm.fafi={}"], &["[algorithm.fafi]", "one round"]),
            (&["algorithm.ensemble={}"], &["[algorithm.ensemble]", "one round"]),
            (&["algorithm.local={}"], &["[algorithm.local]", "whole models"]),
        ] {
            let said = refused(overrides);
            for part in parts {
                assert!(said.contains(part), "{overrides:?}: {part:?} is not in {said:?}");
            }
        }
    }

    #[test]
    fn what_adds_updates_up_goes_with_it() {
        for overrides in [
            &[][..],
            &["update.precision=int4"],
            &["aggregation.rule.clipped-mean={}"],
            &["aggregation.server-optimizer.adam={}", "aggregation.weights=loss"],
            &["algorithm.fednova={}"],
            &["algorithm.moon={}", "model.name=mlp-2nn"],
        ] {
            assert_eq!(refused(overrides), "", "{overrides:?}");
        }
    }
}
