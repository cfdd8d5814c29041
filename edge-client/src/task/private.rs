//! What the owner of a device may ask of a run's privacy: that the noise which devices add themselves keeps all rounds within an epsilon.
//!
//! Checked is what the device does itself, with the specification by which it does so: it clips its update, adds its part of the noise, and
//! counts rounds by their numbers. Noise that a server adds is the server's word, and counts for nothing here.

use shared::aggregation::{DeviceNoise, Template};
use shared::privacy::device_noise;
use shared::spec::RunSpec;

use super::TaskError;
use super::private_only::PrivateOnly;

/// The rounds of this run that a device may train in: all of them where its owner asks for nothing. Every round counts, whether it asked
/// the device or not.
///
/// # Errors
/// [`TaskError::NotPrivate`] if the rounds that are planned are too many already, or devices add no noise.
pub(crate) fn private_rounds(spec: &RunSpec, asked: Option<PrivateOnly>) -> Result<u32, TaskError> {
    let Some(asked) = asked else { return Ok(u32::MAX) };
    let noise = noise_of(spec).ok_or(TaskError::NotPrivate { spent: None, rounds: spec.rounds, asked })?;
    let spent = |rounds: u32| device_noise(&noise, rounds).epsilon(asked.delta);
    let stays = |rounds: u32| spent(rounds) <= asked.epsilon;
    if !stays(spec.rounds) {
        return Err(TaskError::NotPrivate { spent: Some(spent(spec.rounds)), rounds: spec.rounds, asked });
    }
    // More than planned, since rounds without a result are followed by others.
    let (mut least, mut most) = (spec.rounds, u32::MAX);
    while most - least > 1 {
        let middle = least + (most - least) / 2;
        if stays(middle) { least = middle } else { most = middle }
    }
    Ok(least)
}

/// Whether a device may train in this round of a run of which it may in this number of rounds.
///
/// # Errors
/// [`TaskError::NotPrivate`].
pub(crate) fn is_private_round(
    spec: &RunSpec,
    asked: Option<PrivateOnly>,
    round: u32,
    most: u32,
) -> Result<(), TaskError> {
    let Some(asked) = asked.filter(|_| round > most) else { return Ok(()) };
    let spent = noise_of(spec).map(|noise| device_noise(&noise, round).epsilon(asked.delta));
    Err(TaskError::NotPrivate { spent, rounds: round, asked })
}

/// The noise that devices of this run add, if it is one that a device goes by.
fn noise_of(spec: &RunSpec) -> Option<DeviceNoise> {
    let template = Template::of_updates(spec.architecture.parameter_specs().ok()?, spec.aggregation.buffers);
    let hidden = |noise: &DeviceNoise| spec.secure.enabled && noise.devices <= spec.secure.min_devices;
    spec.device_noise.filter(|noise| hidden(noise) && noise.is_sound(&template))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOISE: DeviceNoise = DeviceNoise { clip: 1.0, noise: 5.0, devices: 10, over: 10, values: 15 };

    /// A run of three rounds with this noise.
    fn spec(noise: Option<DeviceNoise>) -> RunSpec {
        let mut spec = RunSpec::example("fedavg");
        let parameters = spec.architecture.parameter_specs().expect("a network that there is");
        let values = Template::of_updates(parameters, spec.aggregation.buffers).parameters() as u64;
        (spec.secure.enabled, spec.secure.min_devices) = (true, 10);
        spec.device_noise = noise.map(|noise| DeviceNoise { values, ..noise });
        spec
    }

    fn rounds(spec: &RunSpec, epsilon: f64) -> Result<u32, String> {
        let asked = PrivateOnly { epsilon, delta: 1e-5 };
        private_rounds(spec, Some(asked)).map_err(|error| error.to_string())
    }

    #[test]
    fn rounds_count_up_to_the_last_one_within_the_epsilon() {
        let spec = spec(Some(NOISE));
        let noise = spec.device_noise.expect("it was put there");
        let spent = |rounds| device_noise(&noise, rounds).epsilon(1e-5);
        // As many as planned, and more.
        for allowed in [3, 4, 50] {
            let epsilon = spent(allowed) * (1.0 + 1e-9);
            assert_eq!(rounds(&spec, epsilon), Ok(allowed));
            let asked = Some(PrivateOnly { epsilon, delta: 1e-5 });
            assert!(is_private_round(&spec, asked, allowed, allowed).is_ok());
            let beyond =
                is_private_round(&spec, asked, allowed + 1, allowed).expect_err("too many").to_string();
            let said =
                format!("{} rounds of this run come to epsilon {:.3}", allowed + 1, spent(allowed + 1));
            assert!(beyond.contains(&said) && beyond.contains("--private-only"), "{beyond}");
        }
        let few = rounds(&spec, spent(3) * (1.0 - 1e-9)).expect_err("three are planned");
        assert!(few.contains(&format!("3 rounds of this run come to epsilon {:.3}", spent(3))), "{few}");
    }

    #[test]
    fn noise_that_a_device_does_not_add_or_believe_counts_for_nothing() {
        let plain = RunSpec::example("fedavg");
        let mut without_masks = spec(Some(NOISE));
        without_masks.secure.enabled = false;
        let too_many = DeviceNoise { devices: 11, ..NOISE };
        for spec in [
            plain,
            without_masks,
            spec(None),
            spec(Some(too_many)),
            spec(Some(DeviceNoise { noise: f64::NAN, ..NOISE })),
            spec(Some(DeviceNoise { clip: f64::INFINITY, ..NOISE })),
            RunSpec { device_noise: Some(DeviceNoise { values: 1, ..NOISE }), ..spec(None) },
        ] {
            let refused = rounds(&spec, 1e9).expect_err("no noise of devices");
            assert!(refused.contains("devices of this run add no noise"), "{refused}");
            assert_eq!(private_rounds(&spec, None).ok(), Some(u32::MAX), "nothing is asked for");
            assert!(is_private_round(&spec, None, u32::MAX, u32::MAX).is_ok());
        }
    }
}
