//! Options that are keys of the configuration: the error for `--epochs` names `--set training.epochs=`.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Error, Parser as _};

use super::Cli;
use crate::config::meant_key;

impl Cli {
    /// Reads a command line.
    ///
    /// # Errors
    /// What it does not accept. An unknown option with the name of a key is told how that key is set, where it can be.
    pub fn of_arguments(line: &[OsString]) -> Result<Self, Box<Error>> {
        Self::try_parse_from(line).map_err(|error| Box::new(with_hint(error, line)))
    }
}

fn with_hint(mut error: Error, line: &[OsString]) -> Error {
    if let Some(hint) = hint(&error, line) {
        // The very name of a key says more than an option that is similar.
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(hint)]));
    }
    error
}

/// How the key is set that the unknown option is called by.
fn hint(error: &Error, line: &[OsString]) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    let key = meant_key(option.strip_prefix("--")?)?;
    let cli = Cli::command();
    // Some commands are in another: `data describe`.
    let command = line.iter().fold(&cli, |command, word| command.find_subcommand(word).unwrap_or(command));
    command.get_arguments().find(|argument| argument.get_long() == Some("set"))?;
    let mut words = line.iter().filter_map(|word| word.to_str());
    let given = words.find_map(|word| word.strip_prefix(option.as_str()))?;
    let value = given.strip_prefix('=').or_else(|| words.next()).unwrap_or("VALUE");
    Some(format!("keys of the configuration are set with '--set {key}={value}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_is_a_key_is_told_how_it_is_set() {
        let said = |line: &str| {
            let line: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            Cli::of_arguments(&line).err().map(|error| error.to_string()).unwrap_or_default()
        };
        for (line, hint) in [
            ("aggregator simulate --epochs 5", "'--set training.epochs=5'"),
            ("aggregator serve lab.toml --rounds=3", "'--set run.rounds=3'"),
            ("aggregator simulate --batch", "'--set training.batch=VALUE'"),
            ("aggregator data describe --clients 5", "'--set data.clients=5'"),
            ("aggregator data split run.toml --seed=3", "'--set run.seed=3'"),
        ] {
            let said = said(line);
            assert!(said.contains(hint) && !said.contains("as a value"), "{said}");
        }
        // No configuration is set there, no key is called so, and an option nearby is what was meant.
        for line in [
            "aggregator status --epochs 5",
            "aggregator simulate --entirely-else",
            "aggregator simulate --jsn",
        ] {
            assert!(!said(line).contains("--set "), "{}", said(line));
        }
    }
}
