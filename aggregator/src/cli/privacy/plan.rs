//! `aggregator privacy plan`: how much noise a private run needs, and what that does to a model.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use shared::aggregation::{MOST_NOISE, Mechanism, Template};
use shared::id::RunId;

use super::super::exit::Failure;
use super::super::terminal;
use super::positive;
use crate::config::Config;
use crate::privacy::adaptive;
use crate::privacy::{is_no_promise, plan as needed};

/// What is asked for.
#[derive(Debug, Args)]
pub(in crate::cli) struct Plan {
    /// Devices that may take part (privacy.devices)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    devices: u32,
    /// Devices that a round asks on average: privacy.rate is this share of them
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..))]
    cohort: u32,
    /// Rounds (run.rounds)
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The budget (privacy.epsilon)
    #[arg(long, value_parser = positive)]
    epsilon: f64,
    /// The probability with which epsilon does not hold (privacy.delta), less than 1 in N
    #[arg(long, default_value = "1e-6", value_parser = positive)]
    delta: f64,
    /// The account of a run without sampling, in which a device takes part in at most K rounds (privacy.max-participations)
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    max_participations: Option<u32>,
    /// The account of noise that devices add themselves, before they hide their updates ([secure-aggregation])
    #[arg(long, conflicts_with = "max_participations")]
    secure_aggregation: bool,
    /// Also say how long the noise of a round is in a model of this many parameters that are learned
    #[arg(long, value_name = "D", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "config")]
    parameters: Option<u64>,
    /// The same for the model of this configuration
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// What a cohort needs.
#[derive(Debug, Serialize)]
struct Row {
    /// Devices that a round asks on average.
    cohort: u32,
    /// privacy.rate.
    rate: f64,
    /// privacy.noise; `None` if there is none.
    noise: Option<f64>,
    /// The deviation of the noise on each parameter of the mean, as a multiple of privacy.clip.
    noise_of_mean: Option<f64>,
    /// The same with privacy.adaptive-clip, whose number of updates within the bound has its share of the noise; `None` where devices
    /// add the noise.
    noise_of_mean_with_adaptive_clip: Option<f64>,
    /// The length of the noise in the mean of the updates, over all parameters, as a multiple of privacy.clip, which the mean's own
    /// length is not above; `None` where the number of parameters is not given.
    noise_length_of_mean: Option<f64>,
}

/// Multiples of the cohort that are shown beside it.
const MULTIPLES: [u32; 5] = [1, 2, 4, 8, 16];

pub(super) fn plan(plan: &Plan) -> Result<(), Failure> {
    let Plan {
        devices,
        cohort,
        rounds,
        epsilon,
        delta,
        max_participations,
        secure_aggregation: hidden,
        json,
        ..
    } = *plan;
    if cohort > devices {
        let text =
            format!("--cohort {cohort} is more than --devices {devices}: a round asks each of them once");
        return Err(Failure::Usage(text));
    }
    if is_no_promise(delta, devices) {
        let text = format!(
            "--delta {delta:e} is not less than 1 in {devices} devices: with it even the publication of a whole update at random would \
             count as private"
        );
        return Err(Failure::Usage(text));
    }
    let parameters = match &plan.config {
        Some(file) => Some(learned(file)?),
        None => plan.parameters,
    };
    let cohorts = MULTIPLES.iter().map(|multiple| cohort.saturating_mul(*multiple).min(devices));
    let mut cohorts: Vec<u32> = cohorts.collect();
    cohorts.dedup();
    let row = |cohort: u32| {
        let rate = f64::from(cohort) / f64::from(devices);
        let (drawn, counted) = max_participations.map_or((rate, rounds), |most| (1.0, most.min(rounds)));
        let noise = if hidden {
            needed::multiplier_of_devices(cohort, rounds, epsilon, delta, MOST_NOISE)
        } else {
            needed::multiplier(drawn, counted, epsilon, delta, MOST_NOISE)
        };
        let of_sum = noise.filter(|_| !hidden).and_then(|noise| with_adaptive_clip(noise, cohort));
        let of_mean = |noise: f64| noise / f64::from(cohort);
        Row {
            cohort,
            rate,
            noise,
            noise_of_mean: noise.map(of_mean),
            noise_of_mean_with_adaptive_clip: of_sum.map(of_mean),
            noise_length_of_mean: noise
                .zip(parameters)
                .map(|(noise, parameters)| length(of_mean(noise), parameters)),
        }
    };
    let rows: Vec<Row> = cohorts.into_iter().map(row).collect();
    terminal::show(json, &rows, || {
        text(&rows, devices, (rounds, max_participations, hidden), (epsilon, delta))
    })
}

/// The length of noise of this deviation in each of this number of parameters: hardly less than this on average, and hardly ever far
/// from it.
fn length(deviation: f64, parameters: u64) -> f64 {
    (parameters as f64).sqrt() * deviation
}

/// The parameters of this configuration's model that devices learn and send.
fn learned(file: &Path) -> Result<u64, Failure> {
    let config = Config::read(Some(file), &[], RunId::from_bytes([1; 8]))?;
    let spec = &config.spec;
    let specs = spec.architecture.parameter_specs().map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(Template::of_updates(specs, spec.aggregation.buffers).parameters() as u64)
}

/// The noise that this noise of all that a round gives away leaves the sum of a cohort with `privacy.adaptive-clip = {}`.
fn with_adaptive_clip(noise: f64, cohort: u32) -> Option<f64> {
    let adaptive = Some(adaptive::usual(noise, cohort.into()));
    Mechanism { clip: 1.0, noise, rate: 1.0, devices: cohort, adaptive }.noise_of_sum()
}

fn text(
    rows: &[Row],
    devices: u32,
    (rounds, most, hidden): (u32, Option<u32>, bool),
    (epsilon, delta): (f64, f64),
) -> String {
    let bound =
        most.map_or_else(String::new, |most| format!(", of which a device takes part in at most {most}"));
    let mut text = format!(
        "epsilon {epsilon} at delta {delta:e}, {devices} devices, {rounds} rounds{bound}\n\n\
         cohort        rate     noise  noise of the mean"
    );
    let with_lengths = rows.iter().any(|row| row.noise_length_of_mean.is_some());
    text.push_str(if with_lengths { "  its length\n" } else { "\n" });
    for Row { cohort, rate, noise, noise_of_mean, noise_length_of_mean, .. } in rows {
        let shown = noise.zip(*noise_of_mean).map_or_else(
            || format!("  none up to {MOST_NOISE} is enough"),
            |(noise, mean)| {
                let length = noise_length_of_mean.map(|length| format!("     {length:.3} x clip"));
                format!("{noise:>10}  {mean:.5} x clip{}", length.unwrap_or_default())
            },
        );
        let _ = writeln!(text, "{cohort:>6}  {rate:>10.6}{shown}");
    }
    text.push_str(
        "\nThe noise of the mean is what the model sees in every parameter: the smaller it is beside the\n\
         changes that devices have in common, the less accuracy it costs. At the same epsilon a larger\n\
         cohort has less of it.\n",
    );
    if with_lengths {
        text.push_str(
            "Its length is that over all parameters, and no mean of updates is longer than 1 x clip: up to a\n\
             few times the clip costs little, since noise points anywhere and updates of many rounds do\n\
             not; ten times and more costs percents of accuracy.\n",
        );
    }
    if let Some(with) = rows.first().and_then(|row| row.noise_of_mean_with_adaptive_clip) {
        let _ = write!(
            text,
            "With privacy.adaptive-clip = {{}} the same noise pays for a clip that follows the lengths of updates,\n\
             and that of the mean is {with:.5} x clip for the first cohort.\n"
        );
    }
    if let Some(Row { cohort, rate, noise: Some(noise), .. }) = rows.first().filter(|_| hidden) {
        let _ = write!(
            text,
            "\n[aggregation]\nweights = \"uniform\"\n\n[privacy]\nclip = 1.0  # the usual length of an update, or less\nnoise = {noise}\n\
             delta = {delta:e}\nepsilon = {epsilon}\n\n[secure-aggregation]\nenabled = true\nmin-devices = {cohort}  # less, if some \
             of a cohort may be lost: a sum of fewer is not learned\n\n[round]\nfraction = {rate}\n"
        );
    } else if let Some(Row { rate, noise: Some(noise), .. }) = rows.first() {
        let _ = write!(
            text,
            "\n[aggregation]\nweights = \"uniform\"\n\n[privacy]\nclip = 1.0  # the usual length of an update, or less\nnoise = {noise}\n\
             rate = {rate}\ndevices = {devices}\ndelta = {delta:e}\nepsilon = {epsilon}\n"
        );
        if let Some(most) = most {
            let _ = write!(text, "sampling = \"none\"\nmax-participations = {most}\n");
        }
    }
    text
}
