//! Parsers for values on the command line.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use shared::cli::address;
use shared::message::MAX_SERVERS;
use shared::ticket::{ParseTicketError, Ticket};

/// The shape of one sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape(pub Vec<usize>);

pub(super) fn shape(text: &str) -> Result<Shape, String> {
    models::shape::parse(text).map(Shape)
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=3600.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "give a number of seconds from 0.001 to 3600".to_owned())
}

/// The largest batch that can be measured.
const MAX_BATCH: usize = 1 << 16;

pub(super) fn samples(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse().ok().filter(|number: &NonZeroUsize| number.get() <= MAX_BATCH);
    number.ok_or_else(|| format!("give a whole number, at least 1 and at most {MAX_BATCH}"))
}

pub(super) fn limit(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "give a whole number, at least 1, or leave it out for all".to_owned())
}

pub(super) fn threads(text: &str) -> Result<NonZeroUsize, String> {
    text.parse()
        .map_err(|_| "give a whole number, at least 1, or leave it out to use the whole machine".to_owned())
}

pub(super) fn devices(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| "give a number of devices, at least 1, or leave it out for any run".to_owned())
}

/// An epsilon of differential privacy.
pub(super) fn epsilon(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|epsilon: &f64| *epsilon > 0.0 && epsilon.is_finite());
    number.ok_or_else(|| "give a number above 0, as in 8, or leave it out for any run".to_owned())
}

/// The probability with which an epsilon does not hold.
pub(super) fn delta(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|delta: &f64| *delta > 0.0 && *delta < 1.0);
    number.ok_or_else(|| "give a number between 0 and 1, as in 1e-6".to_owned())
}

/// The units of memory, and their bytes.
const UNITS: [(&str, f64); 7] = [
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("B", 1.0),
];

pub(super) fn memory(text: &str) -> Result<u64, String> {
    let number =
        |(unit, bytes): &(&str, f64)| Some(text.strip_suffix(unit)?.trim_end().parse::<f64>().ok()? * bytes);
    let bytes = UNITS.iter().find_map(number).filter(|bytes| (1.0..=1e18).contains(bytes));
    bytes.map(|bytes| bytes as u64).ok_or_else(|| {
        "give a number above 0 and its unit: kB, MB, GB, KiB, MiB or GiB, as in 900MB".to_owned()
    })
}

/// The server, as given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A ticket: a server's addresses, its key, and a secret that admits this device.
    Ticket(Box<Ticket>),
    /// One or more of `HOST:PORT` or `IP:PORT`.
    Addresses(Vec<String>),
    /// A mistyped ticket. Reported later: clap would print it, and most of it is a secret.
    Mistyped(ParseTicketError),
}

pub(super) fn target(text: &str) -> Result<Target, String> {
    match text.parse::<Ticket>() {
        Ok(ticket) => Ok(Target::Ticket(Box::new(ticket))),
        Err(ParseTicketError::Other) => addresses(text).map(Target::Addresses),
        // It may be the name of a host.
        Err(error) => Ok(addresses(text).map_or(Target::Mistyped(error), Target::Addresses)),
    }
}

/// The addresses of one server, with commas between them.
fn addresses(text: &str) -> Result<Vec<String>, String> {
    let addresses = text.split(',').map(address).collect::<Result<Vec<_>, _>>()?;
    if addresses.len() > MAX_SERVERS {
        return Err(format!("give at most {MAX_SERVERS} addresses"));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::{delta, epsilon, memory};

    #[test]
    fn epsilon_is_above_0_and_delta_a_probability() {
        assert_eq!((epsilon("8"), epsilon("0.5"), delta("1e-6")), (Ok(8.0), Ok(0.5), Ok(1e-6)));
        for text in ["", "0", "-1", "nan", "inf", "x"] {
            assert!(epsilon(text).unwrap_err().contains("above 0"), "{text}");
            assert!(delta(text).unwrap_err().contains("between 0 and 1"), "{text}");
        }
        assert!(delta("1").is_err());
    }

    #[test]
    fn memory_is_a_number_with_its_unit() {
        for (text, bytes) in
            [("900MB", 900_000_000), ("1.5 GB", 1_500_000_000), ("512MiB", 512 << 20), ("1B", 1)]
        {
            assert_eq!(memory(text), Ok(bytes), "{text}");
        }
        for text in ["", "900", "MB", "-1MB", "0GB", "NaNGB", "infGB", "1e99GB", "1 TB", "900mb"] {
            assert!(memory(text).unwrap_err().contains("900MB"), "{text}");
        }
    }
}
