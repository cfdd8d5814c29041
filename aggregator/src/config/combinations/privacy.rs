//! `[privacy]`: what a run promises, and what would break that.

use models::Architecture;
use shared::aggregation::{AdaptiveClip, Buffers, DeviceNoise, Mechanism, Rule, Template, Weights};

use super::super::Raw;
use super::secure::cohort;
use super::{Combinations, Shown};
use crate::config::Sampling;
use crate::privacy::{Promise, is_no_promise};

impl Combinations<'_> {
    /// What the run promises, if anything; refuses what would break it. Notes the defaults in `raw`.
    pub(in crate::config) fn privacy(
        &mut self,
        raw: &mut Raw,
        architecture: Option<&Architecture>,
    ) -> Option<Promise> {
        let table = raw.privacy;
        let (Some(clip), Some(noise)) = (table.clip, table.noise) else {
            if table.is_asked_for() {
                let missing = |key, value: Option<f64>| {
                    (key, value.map_or(format!("no {key}"), |value| format!("{key} = {value}")))
                };
                let reason = "a private run needs both, the length to which updates are clipped and the noise: \
                              `aggregator privacy plan` says how much; without [privacy] leave all of it out";
                let keys = [missing("privacy.clip", table.clip), missing("privacy.noise", table.noise)];
                self.refuse(&keys, reason);
            }
            return None;
        };
        let clip_key: Shown = ("privacy.clip", format!("privacy.clip = {clip}"));
        for (key, reason) in breaks(raw, architecture) {
            self.refuse(&[clip_key.clone(), key], &reason);
        }
        let (hidden, clients) = (raw.secure_aggregation.enabled, raw.data.clients);
        // Of hidden updates the sum of a cohort is learned, of whom the server knows.
        let expected = if hidden { cohort(raw) as u32 } else { clients };
        let devices = *raw.privacy.devices.get_or_insert(expected);
        let devices_key = ("privacy.devices", format!("privacy.devices = {devices}"));
        if is_no_promise(table.delta, devices.max(clients)) {
            let delta = ("privacy.delta", format!("privacy.delta = {}", table.delta));
            let reason = "delta must be smaller than one in the number of devices: with such a one even the publication of \
                          a whole update of one of them at random would count as private";
            self.refuse(&[delta, devices_key.clone()], reason);
        }
        let rate_key = ("privacy.rate", format!("privacy.rate = {}", table.rate));
        if hidden && table.rate < 1.0 {
            let reason = "the server knows whom it asks, so that chance hides no device from it: leave privacy.rate out; round.fraction asks \
                          a part of the devices";
            self.refuse(&[rate_key.clone(), super::secure::enabled()], reason);
        }
        if table.rate * f64::from(devices) < 1.0 - 1e-9 {
            let reason = "a round would ask less than one device on average; raise the rate";
            self.refuse(&[rate_key.clone(), devices_key], reason);
        }
        let sampling = ("privacy.sampling", format!("privacy.sampling = \"{}\"", table.sampling.name()));
        if hidden && table.sampling == Sampling::None {
            let reason = "where devices add the noise every round counts for every device, and none is counted; leave it out, and \
                          privacy.max-participations";
            self.refuse(&[sampling.clone(), super::secure::enabled()], reason);
        }
        match (table.sampling, table.max_participations) {
            (Sampling::None, None) => {
                let reason = "without sampling the account needs to know how many rounds ask a device at most: set \
                              privacy.max-participations";
                self.refuse(&[sampling], reason);
            }
            (Sampling::Poisson, Some(most)) => {
                let reason = "with sampling the account is that of all rounds, and a device that is not asked any more would say \
                              that it was asked before; set privacy.sampling = \"none\", or leave the bound out";
                let most = format!("privacy.max-participations = {most}");
                self.refuse(&[sampling, ("privacy.max-participations", most)], reason);
            }
            (Sampling::Poisson, None) | (Sampling::None, Some(_)) => {}
        }
        let mut mechanism = Mechanism { clip, noise, rate: table.rate, devices, adaptive: None };
        mechanism.adaptive = self.adaptive_clip(raw, &mechanism);
        let participations = table.max_participations;
        let device_noise = if hidden { self.device_noise(raw, &mechanism, architecture) } else { None };
        let promise =
            Promise { mechanism, participations, device_noise, delta: table.delta, budget: table.epsilon };
        if let Some(budget) = table.epsilon
            && promise.affordable(1) == 0
        {
            let reason = format!(
                "one round spends epsilon {:.3} at delta {:e}, and the budget is {budget}; `aggregator privacy plan` says how much \
                 noise it takes",
                promise.epsilon(1),
                table.delta
            );
            let noise = ("privacy.noise", format!("privacy.noise = {noise}"));
            let budget = ("privacy.epsilon", format!("privacy.epsilon = {budget}"));
            self.refuse(&[noise, rate_key, budget], &reason);
        }
        Some(promise)
    }

    /// How the bound on updates adapts, if it does.
    fn adaptive_clip(&mut self, raw: &mut Raw, mechanism: &Mechanism) -> Option<AdaptiveClip> {
        let table = raw.privacy.adaptive_clip.as_mut()?;
        let adaptive = table.complete(mechanism.noise, mechanism.expected());
        if raw.secure_aggregation.enabled {
            let reason = "the bound follows the lengths of single updates, and of hidden updates the server sees the sum alone: leave \
                          privacy.adaptive-clip out";
            let key = ("privacy.adaptive-clip", "[privacy.adaptive-clip]".to_owned());
            self.refuse(&[key, super::secure::enabled()], reason);
            return None;
        }
        if (Mechanism { adaptive: Some(adaptive), ..*mechanism }).noise_of_sum().is_none() {
            let noise = ("privacy.noise", format!("privacy.noise = {}", mechanism.noise));
            let of_count =
                ("privacy.adaptive-clip.noise", format!("privacy.adaptive-clip.noise = {}", adaptive.noise));
            let reason = format!(
                "the number of updates within the bound takes more of the account than it may, and the sum would need more than ten \
                 times its noise; set privacy.adaptive-clip.noise to {} or more, or leave it out",
                adaptive.enough_noise(mechanism.noise)
            );
            self.refuse(&[noise, of_count], &reason);
            return None;
        }
        Some(adaptive)
    }

    /// The noise that devices add to updates of this network before they hide them.
    fn device_noise(
        &mut self,
        raw: &Raw,
        mechanism: &Mechanism,
        architecture: Option<&Architecture>,
    ) -> Option<DeviceNoise> {
        let specs = architecture?.parameter_specs().ok()?;
        let Mechanism { clip, noise, devices: over, .. } = *mechanism;
        let values = Template::of_updates(specs, raw.aggregation.buffers).parameters() as u64;
        let secure = &raw.secure_aggregation;
        let noise = DeviceNoise { clip, noise, devices: secure.min_devices, over, values };
        if !noise.is_drawn() {
            let key = ("privacy.noise", format!("privacy.noise = {}", noise.noise));
            let reason = format!(
                "so few devices do not add so much noise to {values} values; raise secure-aggregation.min-devices, or lower the noise"
            );
            self.refuse(&[key, super::secure::min_devices(raw)], &reason);
            return None;
        }
        if !noise.fits(secure.integers, raw.data.clients as usize) {
            let reason = format!(
                "the sum of {} updates with their noise needs more bits; leave secure-aggregation.integers out",
                raw.data.clients
            );
            let integers = (
                "secure-aggregation.integers",
                format!("secure-aggregation.integers = \"{}\"", secure.integers),
            );
            self.refuse(&[integers], &reason);
        }
        Some(noise)
    }
}

/// What is configured and breaks the guarantee, each with the reason and what to do instead.
fn breaks(raw: &Raw, architecture: Option<&Architecture>) -> Vec<(Shown, String)> {
    let (aggregation, round) = (&raw.aggregation, &raw.round);
    let mut found: Vec<(Shown, String)> = Vec::new();
    let mut refuse =
        |key: &'static str, shown: String, reason: &str| found.push(((key, shown), reason.to_owned()));
    let weights = match aggregation.weights {
        Weights::Samples => {
            Some(("samples", "the number of a device's samples would decide how much it changes the sum"))
        }
        Weights::Loss => Some(("loss", "a device's loss would change what others count")),
        Weights::Uniform => None,
    };
    if let Some((name, reason)) = weights {
        refuse(
            "aggregation.weights",
            format!("aggregation.weights = \"{name}\""),
            &format!("{reason}; set aggregation.weights = \"uniform\""),
        );
    }
    if aggregation.rule != (Rule::Mean {}) {
        let reason =
            "the account is that of a clipped mean: privacy.clip clips, so leave aggregation.rule out";
        refuse("aggregation.rule", format!("[{}]", aggregation.rule.key()), reason);
    }
    if let Some(architecture) = architecture
        && architecture.has_buffers()
        && aggregation.buffers == Buffers::Average
    {
        let reason = "statistics of normalisation layers are averaged without a bound; use group norm, or leave them on the devices \
                      (aggregation.buffers = \"local\", evaluate.every = 0)";
        refuse("aggregation.buffers", "aggregation.buffers = \"average\"".to_owned(), reason);
    }
    if round.fraction < 1.0 && !raw.secure_aggregation.enabled {
        let reason = "the account needs every device drawn on its own: leave it out, and set privacy.rate";
        refuse("round.fraction", format!("round.fraction = {}", round.fraction), reason);
    }
    if let Some(max) = round.max_updates {
        let reason = "who comes first would decide who counts, which is no sampling that an account knows; leave it out";
        refuse("round.max-updates", format!("round.max-updates = {max}"), reason);
    }
    if round.staleness.enabled {
        let reason = "a late update counts in a round for which its device was not drawn; leave it out";
        refuse("round.staleness.enabled", "round.staleness.enabled = true".to_owned(), reason);
    }
    if raw.evaluate.on_clients_every > 0 {
        let reason = "records and reports would have what single devices measured, without noise; set \
                      evaluate.on-clients-every = 0";
        let shown = format!("evaluate.on-clients-every = {}", raw.evaluate.on_clients_every);
        refuse("evaluate.on-clients-every", shown, reason);
    }
    if raw.personalisation.every > 0 && raw.personalisation.method.is_some() {
        let reason = "records would have what single devices measured, round for round, without noise; set personalisation.every = 0: \
                      personal models are made all the same, never leave their devices, and are tested once, after the training";
        let shown = format!("personalisation.every = {}", raw.personalisation.every);
        refuse("personalisation.every", shown, reason);
    }
    for (asked, name) in
        [(raw.training.measure.alignment, "alignment"), (raw.training.measure.drift, "drift")]
    {
        if asked {
            let reason = "what devices measure of their training would stand in every record, without noise; leave it out";
            refuse("training.measure", format!("training.measure.{name} = true"), reason);
        }
    }
    let metric = raw.early_stopping.metric;
    if metric.is_of_clients() {
        let reason = "which model is best, and when training ends, would depend on what devices measured; use accuracy or loss";
        refuse("early-stopping.metric", format!("early-stopping.metric = \"{}\"", metric.name()), reason);
    }
    found
}

#[cfg(test)]
mod tests {
    use shared::aggregation::AdaptiveClip;
    use shared::id::RunId;

    use crate::config::{Config, ConfigErrors, Raw};
    use crate::privacy::adaptive::AdaptiveClipTable;

    const PRIVATE: [&str; 4] =
        ["privacy.clip=1", "privacy.noise=1", "privacy.rate=0.5", "aggregation.weights=uniform"];

    fn read(overrides: &[&str]) -> Result<Config, ConfigErrors> {
        let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
        Config::validate(&Raw::layered(None, &overrides).expect("keys that exist"), RunId::from_bytes([1; 8]))
    }

    #[test]
    fn a_private_run_has_its_promise_and_ends_with_its_budget() {
        assert_eq!(read(&[]).expect("valid").promise, None);
        let config = read(&[&PRIVATE[..], &["run.rounds=50", "data.clients=20"]].concat()).expect("valid");
        let promise = config.promise.expect("it is private");
        assert_eq!((promise.mechanism.devices, promise.mechanism.expected()), (20, 10.0));
        assert_eq!(config.spec.rounds, 50);
        let budget = format!("privacy.epsilon={}", promise.epsilon(7) + 1e-9);
        let config =
            read(&[&PRIVATE[..], &["run.rounds=50", "data.clients=20", &budget]].concat()).expect("valid");
        assert_eq!((config.spec.rounds, config.effective.run.rounds), (7, Some(50)));
        let again = Config::validate(&config.effective, RunId::from_bytes([1; 8])).expect("its own");
        assert_eq!(again, config);
    }

    #[test]
    fn personal_models_that_are_tested_after_the_training_alone_go_with_it() {
        let personal = ["personalisation.method=['fb']", "model.name=mlp-2nn"];
        let config = read(&[&PRIVATE[..], &personal].concat()).expect("valid");
        assert!(config.promise.is_some() && config.spec.personalised().is_some());
    }

    #[test]
    fn a_bound_that_adapts_has_its_noise_and_costs_no_epsilon() {
        let of = |given: &[&str]| read(&[&PRIVATE[..], given].concat()).expect("valid");
        let fixed = of(&["data.clients=200"]);
        let adaptive = of(&["data.clients=200", "privacy.adaptive-clip={}"]);
        let promised = adaptive.promise.expect("private");
        let twentieth = AdaptiveClip { quantile: 0.5, rate: 0.2, noise: 5.0 };
        assert_eq!(promised.mechanism.adaptive, Some(twentieth));
        let noted = AdaptiveClipTable { quantile: Some(0.5), rate: Some(0.2), noise: Some(5.0) };
        assert_eq!(adaptive.effective.privacy.adaptive_clip, Some(noted));
        let few = of(&["privacy.adaptive-clip.quantile=0.7"]).promise.expect("private");
        assert_eq!(few.mechanism.adaptive.map(|of| (of.noise, of.quantile)), Some((1.4, 0.7)));
        let epsilon = |config: &Config| config.promise.map(|promise| promise.epsilon(3).to_bits());
        assert_eq!(epsilon(&adaptive), epsilon(&fixed));
        let again = Config::validate(&adaptive.effective, RunId::from_bytes([1; 8])).expect("its own");
        assert_eq!(again, adaptive);
        assert_eq!(fixed.effective.privacy.adaptive_clip, None);
        for out_of_range in ["quantile=0.04", "quantile=0.96", "rate=0", "rate=1.5", "noise=0", "noise=1e7"] {
            let given = [format!("privacy.adaptive-clip.{out_of_range}")];
            assert!(Raw::layered(None, &given).is_err(), "{out_of_range}");
        }
    }

    #[test]
    fn what_breaks_the_guarantee_is_refused_with_a_way_out() {
        for (overrides, parts) in [
            (&["aggregation.weights=samples"][..], &["aggregation.weights", "uniform"][..]),
            (&["aggregation.weights=loss"], &["a device's loss"]),
            (&["aggregation.rule.median={}"], &["[aggregation.rule.median]", "privacy.clip clips"]),
            (&["round.fraction=0.5"], &["set privacy.rate"]),
            (&["round.max-updates=2"], &["round.max-updates = 2", "who comes first"]),
            (&["round.staleness.enabled=true"], &["was not drawn"]),
            (&["evaluate.on-clients-every=1"], &["without noise"]),
            (
                &["personalisation.method=['fb']", "personalisation.every=2", "model.name=mlp-2nn"],
                &["personalisation.every = 2", "without noise", "never leave their devices"],
            ),
            (&["training.measure.drift=true"], &["training.measure.drift = true", "without noise"]),
            (&["training.measure.alignment=true"], &["training.measure.alignment = true", "without noise"]),
            (&["early-stopping.metric=own-loss", "evaluate.on-clients-every=1"], &["early-stopping.metric"]),
            (&["algorithm.scaffold={}"], &["[algorithm.scaffold]", "privacy.clip"]),
            (&["algorithm.fednova={}"], &["[algorithm.fednova]", "privacy.clip"]),
            (&["privacy.delta=0.2"], &["one in the number of devices"]),
            (&["privacy.rate=0.001"], &["less than one device"]),
            (&["privacy.epsilon=0.1"], &["one round spends", "privacy plan"]),
            (
                &["privacy.adaptive-clip.noise=0.5"],
                &["privacy.adaptive-clip.noise = 0.5", "privacy.noise = 1", "noise to 1 or more"],
            ),
            (
                &["privacy.adaptive-clip.noise=0.9", "privacy.adaptive-clip.quantile=0.1"],
                &["privacy.adaptive-clip.noise = 0.9", "noise to 1.8 or more"],
            ),
            (
                &["privacy.adaptive-clip={}", "secure-aggregation.enabled=true", "privacy.rate=1"],
                &["[privacy.adaptive-clip]", "secure-aggregation.enabled = true", "the sum alone"],
            ),
            (&["privacy.sampling=none"], &["privacy.sampling = \"none\"", "set privacy.max-participations"]),
            (
                &["privacy.max-participations=3"],
                &["privacy.max-participations = 3", "privacy.sampling = \"none\""],
            ),
            (
                &["model.name=resnet-18", "model.norm=batch", "data.set=cifar-10", "data.path=x"],
                &["without a bound"],
            ),
        ] {
            let all = [&PRIVATE[..], overrides].concat();
            let refused = read(&all).err().map(|errors| errors.to_string()).unwrap_or_default();
            for part in parts {
                assert!(refused.contains(part), "{overrides:?}: {part:?} is not in {refused:?}");
            }
        }
        for alone in [
            "privacy.adaptive-clip={}",
            "privacy.clip=1",
            "privacy.noise=1",
            "privacy.epsilon=3",
            "privacy.rate=0.5",
        ] {
            let refused = read(&[alone]).err().map(|errors| errors.to_string()).unwrap_or_default();
            assert!(refused.contains("needs both"), "{alone}: {refused}");
        }
    }
}
