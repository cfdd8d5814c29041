//! The question before something is deleted.

use std::io::{self, IsTerminal as _, Write as _};

use super::super::exit::Failure;
use super::super::terminal;

/// Says what would go: on standard output, unless that is for JSON alone.
pub(super) fn announce(lines: &[String], json: bool) -> Result<(), Failure> {
    let text = lines.join("\n") + "\n";
    if !json {
        return terminal::print(&text);
    }
    terminal::written(io::stderr().write_all(text.as_bytes()))
}

/// Whether to go on: with `--yes`, or if the person at the terminal says so. Without both the command is refused.
pub(super) fn confirmed(question: &str, yes: bool) -> Result<bool, Failure> {
    if yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "nothing was deleted: there is no terminal to ask on; --yes deletes without a question"
                .to_owned(),
        ));
    }
    let mut answer = String::new();
    let asked = write!(io::stderr(), "{question} [y/N] ")
        .and_then(|()| io::stderr().flush())
        .and_then(|()| io::stdin().read_line(&mut answer));
    asked.map_err(|error| Failure::Environment(format!("cannot ask on the terminal: {error}")))?;
    Ok(is_yes(&answer))
}

fn is_yes(answer: &str) -> bool {
    ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_one() {
        assert!(["y", "Y\n", " yes \n", "YES"].into_iter().all(is_yes));
        assert!(!["", "\n", "n", "no", "yess", "j", "ye"].into_iter().any(is_yes));
    }
}
