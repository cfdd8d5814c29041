//! Which events the log of a program has.

use tracing_subscriber::filter::{LevelFilter, Targets};

/// The variable that says which events are logged: levels, of all targets or of some, as in `info,quinn=debug`.
pub const LOG_VARIABLE: &str = "RUST_LOG";

/// The target under which the log has what a trainer of the owner's own writes to its standard error.
const TRAINER: &str = "trainer";

/// The events of these levels, and what trainers write, which is for people.
///
/// # Panics
/// If they are none.
#[must_use]
pub fn log_filter(levels: &str) -> Targets {
    parsed(levels).unwrap_or_else(|reason| panic!("{levels}: {reason}"))
}

/// The same of the levels that the environment names, or else of `levels`. The text says what is wrong with the environment's, if
/// these are none.
///
/// # Panics
/// As [`log_filter`].
#[must_use]
pub fn log_filter_of(environment: Option<&str>, levels: &str) -> (Targets, Option<String>) {
    let Some(given) = environment.filter(|given| !given.trim().is_empty()) else {
        return (log_filter(levels), None);
    };
    match parsed(given) {
        Ok(targets) => (targets, None),
        Err(reason) => (log_filter(levels), Some(format!("{LOG_VARIABLE}={given} is not used: {reason}"))),
    }
}

fn parsed(levels: &str) -> Result<Targets, String> {
    let targets: Targets = levels.parse().map_err(|error| format!("{error}"))?;
    let others = targets.default_level().unwrap_or(LevelFilter::WARN);
    Ok(targets.with_default(others).with_target(TRAINER, LevelFilter::INFO))
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn the_environment_overrides_and_what_it_does_not_name_is_told_of_by_warnings() {
        for (environment, quinn, others) in [
            (None, Level::INFO, Level::INFO),
            (Some(" "), Level::INFO, Level::INFO),
            (Some("quinn=debug"), Level::DEBUG, Level::WARN),
            (Some("error,quinn=trace"), Level::TRACE, Level::ERROR),
            (Some("debug"), Level::DEBUG, Level::DEBUG),
        ] {
            let (targets, wrong) = log_filter_of(environment, "info");
            assert_eq!(wrong, None);
            for (target, level) in [("quinn", quinn), ("aggregator", others), ("trainer", Level::INFO)] {
                assert!(targets.would_enable(target, &level), "{environment:?}: {target} {level}");
                let more = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
                let finer = more.into_iter().find(|finer| *finer > level);
                assert!(finer.is_none_or(|finer| !targets.would_enable(target, &finer)), "{environment:?}");
            }
        }
        let (targets, wrong) = log_filter_of(Some("quinn=loud"), "info");
        assert!(targets.would_enable("quinn", &Level::INFO));
        assert!(wrong.is_some_and(|wrong| wrong.starts_with("RUST_LOG=quinn=loud is not used: ")));
    }
}
