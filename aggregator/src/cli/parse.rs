//! Parsers of values on the command line.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

/// A whole number in this range. The argument has to allow negative numbers, or clap takes them for options.
pub(super) fn whole<T>(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: TryFrom<u64>,
{
    move |text| {
        let number = text.parse::<u64>().ok().filter(|number| range.contains(number));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
            let (low, high) = range.clone().into_inner();
            match u32::try_from(high) {
                Ok(high) if high < u32::MAX => format!("give a whole number from {low} to {high}"),
                _ => format!("give a whole number, at least {low}"),
            }
        })
    }
}

/// An address of this machine. A name would have to be looked up, and may have several.
pub(super) fn address(given: &str) -> Result<SocketAddr, &'static str> {
    given.parse().map_err(|_| "it is not an IP address and a port, such as 0.0.0.0:4433 or [::1]:4433")
}

/// Any whole number.
pub(super) fn count(text: &str) -> Result<u32, String> {
    whole(0..=u32::MAX.into())(text)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};
    use shared::cli::Manual;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn numbers_are_in_their_range() {
        assert_eq!(whole::<u16>(1..=1024)("1024"), Ok(1024));
        for wrong in ["0", "1025", "-1", "1.5", "", "abc", "99999999999999999999"] {
            let said = whole::<u16>(1..=1024)(wrong).unwrap_err();
            assert_eq!(said, "give a whole number from 1 to 1024", "{wrong}");
        }
        assert_eq!(
            whole::<u32>(0..=u64::from(u32::MAX))("-1").unwrap_err(),
            "give a whole number, at least 0"
        );
    }

    #[test]
    fn the_page_of_every_command_says_what_program_it_is_of() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        Manual::Man { out: Some(folder.path().to_owned()) }.run(Cli::command()).expect("it can be written");
        for command in ["", "-serve", "-devices-approve", "-data-split"] {
            let page = folder.path().join(format!("aggregator{command}.1"));
            let page = std::fs::read_to_string(page).expect("there is a page");
            let title = page.lines().find(|line| line.starts_with(".TH")).expect("it has a title");
            let program = format!("\"aggregator {}\"", env!("CARGO_PKG_VERSION"));
            assert!(title.contains(&program), "{command}: {title}");
        }
    }

    #[test]
    fn options_are_still_known_by_their_former_names() {
        for line in ["serve --linger 5 --admit anyone", "serve --drain-timeout 5 --enrolment anyone"] {
            let parsed = Cli::try_parse_from(std::iter::once("aggregator").chain(line.split(' ')));
            let parsed = format!("{:?}", parsed.expect("a command"));
            assert!(parsed.contains("drain_timeout: 5") && parsed.contains("enrolment: Anyone"), "{parsed}");
        }
    }

    #[test]
    fn no_number_is_taken_for_an_option_or_answered_in_words_of_the_language() {
        for line in [
            "simulate --threads -1",
            "serve --drain-timeout -1",
            "serve --linger abc",
            "ticket --uses -1",
            "ticket --withdraw x",
            "ticket --withdraw -1",
            "status --rounds -1",
            "status --events x",
            "predict --model m --limit 0",
            "predict --model m --limit -1",
            "compare f --jobs -1",
            "runs prune --keep -1",
        ] {
            let parsed = Cli::try_parse_from(std::iter::once("aggregator").chain(line.split(' ')));
            let said = parsed.expect_err(line).to_string();
            assert!(said.contains("give a whole number"), "{line}: {said}");
        }
    }
}
