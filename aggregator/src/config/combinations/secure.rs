//! `[secure-aggregation]`: what needs more of a device than the server learns.

use super::super::Raw;
use super::{Combinations, Shown, shown};

impl Combinations<'_> {
    /// Refuses what goes by single updates, which the server does not see.
    pub(in crate::config) fn secure(&mut self, raw: &Raw) {
        let secure = &raw.secure_aggregation;
        if !secure.enabled {
            return;
        }
        let enabled: Shown = ("secure-aggregation.enabled", "secure-aggregation.enabled = true".to_owned());
        for (key, reason) in needs_single_updates(raw) {
            self.refuse(&[enabled.clone(), key], reason);
        }
        let clients = raw.data.clients;
        let cohort = shared::share::of(raw.round.fraction, clients as usize).max(1);
        if secure.least() > cohort {
            let min = (
                "secure-aggregation.min-devices",
                format!("secure-aggregation.min-devices = {}", secure.min_devices),
            );
            let fraction = ("round.fraction", format!("round.fraction = {}", raw.round.fraction));
            let clients = ("data.clients", format!("data.clients = {clients}"));
            let reason = format!(
                "a cohort has {cohort} devices, and no sum of fewer than secure-aggregation.min-devices is learned; raise the fraction, \
                 or lower that if a sum of so few tells little enough of one"
            );
            self.refuse(&[min, fraction, clients], &reason);
        }
    }
}

/// What is configured and cannot be done with a sum alone, each with the reason and what to do instead.
fn needs_single_updates(raw: &Raw) -> Vec<(Shown, &'static str)> {
    let mut found: Vec<(Shown, &str)> = Vec::new();
    let rule = &raw.aggregation.rule;
    if rule.needs_every_update() {
        let reason = "the rule compares single updates, which the server does not see; use the mean or the clipped mean, which devices \
                      clip themselves";
        found.push((("aggregation.rule", shown(rule)), reason));
    }
    if raw.round.staleness.enabled {
        let key = ("round.staleness.enabled", "round.staleness.enabled = true".to_owned());
        found.push((key, "a late update is masked for a round that is over, and its masks cancel there alone; leave it out"));
    }
    if raw.evaluate.on_clients_every > 0 {
        let shown = format!("evaluate.on-clients-every = {}", raw.evaluate.on_clients_every);
        let reason = "the server would learn what single devices measure; set evaluate.on-clients-every = 0, and test at the server \
                      (evaluate.every)";
        found.push((("evaluate.on-clients-every", shown), reason));
    }
    if raw.personalisation.every > 0 && raw.personalisation.method.is_some() {
        let shown = format!("personalisation.every = {}", raw.personalisation.every);
        let reason = "in rounds of training the server is told nothing that devices measure; set personalisation.every = 0, and personal \
                      models are made and reported once, after the training";
        found.push((("personalisation.every", shown), reason));
    }
    let measure = raw.training.measure;
    if measure.alignment || measure.drift {
        let key = if measure.alignment { "alignment" } else { "drift" };
        let shown = format!("training.measure.{key} = true");
        found.push((
            ("training.measure", shown),
            "the server would learn what single devices measure; leave it out",
        ));
    }
    let metric = raw.early_stopping.metric;
    if metric.is_of_clients() {
        let shown = format!("early-stopping.metric = \"{}\"", metric.name());
        let reason = "the server is not told what devices measure; use accuracy or loss";
        found.push((("early-stopping.metric", shown), reason));
    }
    if raw.privacy.is_asked_for() {
        let reason = "the noise of [privacy] is drawn by the server for cohorts of any size, and no sum of few devices is learned here; \
                      use one of the two";
        let shown = raw.privacy.clip.map_or("[privacy]".to_owned(), |clip| format!("privacy.clip = {clip}"));
        found.push((("privacy.clip", shown), reason));
    }
    found
}

#[cfg(test)]
mod tests {
    use shared::id::RunId;

    use crate::config::{Config, ConfigErrors, Raw};

    const SECURE: [&str; 2] = ["secure-aggregation.enabled=true", "secure-aggregation.min-devices=3"];

    fn read(overrides: &[&str]) -> Result<Config, ConfigErrors> {
        let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
        Config::validate(&Raw::layered(None, &overrides).expect("keys that exist"), RunId::from_bytes([1; 8]))
    }

    #[test]
    fn a_secure_run_has_its_least_cohort() {
        let config = read(&SECURE).expect("valid");
        assert!(config.spec.secure.enabled);
        assert_eq!((config.policy.min, config.spec.secure.least()), (3, 3));
        assert!(!read(&[]).expect("valid").spec.secure.enabled);
        let config = read(&[&SECURE[..], &["round.min-updates=4"]].concat()).expect("valid");
        assert_eq!(config.policy.min, 4);
    }

    #[test]
    fn what_needs_single_updates_is_refused_with_a_way_out() {
        for (overrides, parts) in [
            (
                &["aggregation.rule.median={}", "aggregation.weights=uniform"][..],
                &["single updates", "clipped mean"][..],
            ),
            (&["aggregation.rule.fedma={}", "model.name=mlp-2nn"], &["single updates"]),
            (&["round.staleness.enabled=true"], &["masked for a round"]),
            (&["evaluate.on-clients-every=1"], &["what single devices measure"]),
            (&["training.measure.drift=true"], &["training.measure.drift = true"]),
            (&["personalisation.method=['mfe']", "personalisation.every=2"], &["personalisation.every = 0"]),
            (&["privacy.clip=1", "privacy.noise=1", "aggregation.weights=uniform"], &["one of the two"]),
            (&["algorithm.fafi={}"], &["[algorithm.fafi]", "secure-aggregation.enabled"]),
            (&["algorithm.local={}"], &["[algorithm.local]", "secure-aggregation.enabled"]),
            (&["secure-aggregation.min-devices=400"], &["min-devices = 400", "a cohort has"]),
        ] {
            let all = [&SECURE[..], overrides].concat();
            let refused = read(&all).err().map(|errors| errors.to_string()).unwrap_or_default();
            for part in parts {
                assert!(refused.contains(part), "{overrides:?}: {part:?} is not in {refused:?}");
            }
        }
    }
}
