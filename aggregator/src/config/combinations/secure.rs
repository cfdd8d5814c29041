//! `[secure-aggregation]`: what needs more of a device than the server learns.

use models::params::IntegerFormat;
use shared::aggregation::{Scale, Weights};

use super::super::Raw;
use super::{Combinations, Shown, shown};

impl Combinations<'_> {
    /// Refuses what goes by single updates, which the server does not see.
    pub(in crate::config) fn secure(&mut self, raw: &Raw) {
        let secure = &raw.secure_aggregation;
        // Of private updates the scale is another.
        if secure.integers == IntegerFormat::I32 && raw.privacy.clip.is_none() {
            self.sums_of_32_bits(raw);
        }
        if !secure.enabled {
            return;
        }
        for (key, reason) in needs_single_updates(raw) {
            self.refuse(&[enabled(), key], reason);
        }
        let (clients, cohort, min) = (raw.data.clients, cohort(raw), min_devices(raw));
        if secure.least() < LEAST {
            let reason = "of the sum of two updates either device knows its own, and so the other one's: a sum of fewer than three hides \
                          nothing from those who are in it; set secure-aggregation.min-devices = 3 or more";
            self.refuse(&[min.clone(), enabled()], reason);
        }
        if secure.least() > cohort {
            let fraction = ("round.fraction", format!("round.fraction = {}", raw.round.fraction));
            let clients = ("data.clients", format!("data.clients = {clients}"));
            let reason = format!(
                "a cohort has {cohort} devices, and no sum of fewer than secure-aggregation.min-devices is learned; raise the fraction, \
                 or lower that if a sum of so few tells little enough of one"
            );
            self.refuse(&[min, fraction, clients], &reason);
        }
    }

    /// Refuses what sums of 32 bits have no room for.
    fn sums_of_32_bits(&mut self, raw: &Raw) {
        let narrow: Shown =
            ("secure-aggregation.integers", "secure-aggregation.integers = \"i32\"".to_owned());
        if raw.aggregation.weights == Weights::Loss {
            let reason = "a sum weighted by losses needs more than 32 bits; leave secure-aggregation.integers out, or use other weights";
            let weights = ("aggregation.weights", "aggregation.weights = \"loss\"".to_owned());
            self.refuse(&[narrow.clone(), weights], reason);
        }
        let clients = raw.data.clients as usize;
        let unit = |max_abs: f32| Scale::agree_in(IntegerFormat::I32, max_abs, 1, clients).resolution();
        let max_abs = (raw.update.max_abs as f32).max(f32::MIN_POSITIVE);
        if unit(max_abs) > COARSEST {
            let most = (COARSEST / unit(1.0)).log2().floor().exp2();
            let reason = format!(
                "the sum of {clients} updates fits in 32 bits only if values are rounded to multiples of {:.1e}; set update.max-abs = {most} or \
                 less, beyond which updates are rejected, or leave secure-aggregation.integers out",
                unit(max_abs)
            );
            let max_abs = ("update.max-abs", format!("update.max-abs = {}", raw.update.max_abs));
            self.refuse(&[narrow, max_abs], &reason);
        }
    }
}

/// That updates are hidden, as it is shown.
pub(super) fn enabled() -> Shown {
    ("secure-aggregation.enabled", "secure-aggregation.enabled = true".to_owned())
}

/// The fewest devices of a sum, as they are shown.
pub(super) fn min_devices(raw: &Raw) -> Shown {
    let shown = format!("secure-aggregation.min-devices = {}", raw.secure_aggregation.min_devices);
    ("secure-aggregation.min-devices", shown)
}

/// The devices of a round.
pub(super) fn cohort(raw: &Raw) -> usize {
    shared::share::of(raw.round.fraction, raw.data.clients as usize).max(1)
}

/// The fewest devices whose sum tells none of them the update of another.
const LEAST: usize = 3;

/// The coarsest rounding of single values, which are differences of parameters.
const COARSEST: f64 = 1e-5;

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
            (
                &["privacy.clip=1", "privacy.noise=1", "aggregation.weights=uniform", "privacy.rate=0.5"],
                &["the server knows whom it asks", "privacy.rate"],
            ),
            (
                &[
                    "privacy.clip=1",
                    "privacy.noise=1000",
                    "aggregation.weights=uniform",
                    "model.name=resnet-50",
                    "model.norm=group",
                ],
                &["do not add so much noise", "min-devices = 3"],
            ),
            (&["algorithm.fafi={}"], &["[algorithm.fafi]", "secure-aggregation.enabled"]),
            (&["algorithm.local={}"], &["[algorithm.local]", "secure-aggregation.enabled"]),
            (
                &["secure-aggregation.min-devices=2"],
                &["min-devices = 2", "either device knows its own", "min-devices = 3 or more"],
            ),
            (&["secure-aggregation.min-devices=400"], &["min-devices = 400", "a cohort has"]),
            (&["secure-aggregation.integers=i32", "aggregation.weights=loss"], &["losses needs more"]),
            (
                &["secure-aggregation.integers=i32", "data.clients=1000"],
                &["update.max-abs = 1000", "multiples of 9.8e-4", "set update.max-abs = 8 or less"],
            ),
        ] {
            let all = [&SECURE[..], overrides].concat();
            let refused = read(&all).err().map(|errors| errors.to_string()).unwrap_or_default();
            for part in parts {
                assert!(refused.contains(part), "{overrides:?}: {part:?} is not in {refused:?}");
            }
        }
    }
}
