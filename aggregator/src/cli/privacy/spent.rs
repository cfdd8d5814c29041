//! `aggregator privacy spent`: the epsilon of a noise, by the account of runs and by that of Rényi.

use clap::Args;
use serde::Serialize;
use shared::aggregation::{DeviceNoise, LEAST_NOISE, MOST_NOISE};
use shared::privacy::{Noise, Renyi, device_noise};

use super::super::exit::Failure;
use super::super::terminal;
use super::positive;
use crate::privacy::account::{Account, Method, ROUNDED, Spent};

/// What is asked for.
#[derive(Debug, Args)]
pub(in crate::cli) struct Asked {
    /// z: deviation of the noise on a sum, as a multiple of the clip (privacy.noise)
    #[arg(long, value_name = "Z", value_parser = noise)]
    noise: f64,
    /// Rounds, or those that ask a device at most (privacy.max-participations)
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The probability with which a round asks a device (privacy.rate)
    #[arg(long, value_name = "Q", default_value = "1", value_parser = probability)]
    rate: f64,
    /// The probability with which epsilon does not hold (privacy.delta)
    #[arg(long, default_value = "1e-6", value_parser = below_one)]
    delta: f64,
    /// The account of noise that this number of devices adds, before they hide their updates ([secure-aggregation])
    #[arg(long, value_name = "M", conflicts_with = "rate", value_parser = clap::value_parser!(u32).range(2..))]
    secure_aggregation: Option<u32>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// What the rounds give away.
#[derive(Debug, Serialize)]
struct Found {
    /// What a run would say.
    epsilon: f64,
    /// By which account.
    account: Method,
    /// The distance of the points on which losses are composed, if they are: that of the usual grid.
    interval: Option<f64>,
    /// The part of `epsilon` that is for discrete noise, which the account of normal noise lacks.
    rounded: f64,
    /// By the account of Rényi's divergences.
    renyi: f64,
}

pub(super) fn spent(asked: &Asked) -> Result<(), Failure> {
    let Asked { noise: multiplier, rounds, rate, delta, secure_aggregation, json } = *asked;
    let found = match secure_aggregation {
        Some(devices) => by_devices(multiplier, rounds, delta, devices),
        None => by_server(Noise { multiplier, rate }, rounds, delta),
    };
    if !found.epsilon.is_finite() {
        let text = format!("--noise {multiplier}: no epsilon follows from so little noise; give more");
        return Err(Failure::Usage(text));
    }
    terminal::show(json, &found, || {
        format!(
            "epsilon {:.6} at delta {delta:e} after {rounds} rounds; the account is that {}\n",
            found.epsilon, found.account
        )
    })
}

fn by_server(noise: Noise, rounds: u32, delta: f64) -> Found {
    let account = Account::of(noise);
    let Spent { epsilon, method } = account.spent(rounds, delta);
    let rounded = if method == Method::Renyi { 0.0 } else { ROUNDED };
    let interval = account.interval().filter(|_| method == Method::Losses);
    Found { epsilon, account: method, interval, rounded, renyi: Renyi::of(noise, rounds).epsilon(delta) }
}

/// The same of noise in a large number of values, where its units cost nothing.
fn by_devices(noise: f64, rounds: u32, delta: f64, devices: u32) -> Found {
    let noise = DeviceNoise { clip: 1.0, noise, devices, over: devices, values: 1_000_000 };
    let epsilon = device_noise(&noise, rounds).epsilon(delta);
    Found { epsilon, account: Method::Renyi, interval: None, rounded: 0.0, renyi: epsilon }
}

/// A number of `privacy.noise`.
fn noise(text: &str) -> Result<f64, String> {
    let value = positive(text)?;
    let range = LEAST_NOISE..=MOST_NOISE;
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(format!("a number from {LEAST_NOISE} to {MOST_NOISE} is needed"))
    }
}

/// A number above 0 and up to 1.
fn probability(text: &str) -> Result<f64, String> {
    let value = positive(text)?;
    if value <= 1.0 { Ok(value) } else { Err("a number above 0 and up to 1 is needed".to_owned()) }
}

/// A number above 0 and below 1.
fn below_one(text: &str) -> Result<f64, String> {
    let value = positive(text)?;
    if value < 1.0 { Ok(value) } else { Err("a number above 0 and below 1 is needed".to_owned()) }
}
