//! Completions and manual pages, both made from the arguments' definition.

use std::io;
use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use super::exit::Failure;
use super::{Cli, terminal};

/// Prints a completion script.
pub(super) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "aggregator", &mut script);
    terminal::print(&String::from_utf8_lossy(&script))
}

/// Prints the main manual page.
pub(super) fn page() -> Result<(), Failure> {
    let mut page = Vec::new();
    Man::new(Cli::command()).render(&mut page).map_err(|error| Failure::output(&error))?;
    terminal::print(&String::from_utf8_lossy(&page))
}

/// Writes the manual page of every command into a directory, which is created if need be.
pub(super) fn pages(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| Failure::file("create", folder, error))?;
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let source = format!("aggregator {}", env!("CARGO_PKG_VERSION"));
    page_of_each(program, &source, folder)
        .map_err(|error| Failure::file("write manual pages to", folder, error))
}

/// The pages of a command and of all below it, which say at their foot what program of which version they are of.
fn page_of_each(command: clap::Command, source: &str, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()).cloned() {
        page_of_each(below, source, folder)?;
    }
    Man::new(command).source(source).generate_to(folder).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_every_command_says_what_program_it_is_of() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        pages(folder.path()).expect("it can be written");
        for command in ["", "-serve", "-devices-approve", "-data-split"] {
            let page = folder.path().join(format!("aggregator{command}.1"));
            let page = std::fs::read_to_string(page).expect("there is a page");
            let title = page.lines().find(|line| line.starts_with(".TH")).expect("it has a title");
            let program = format!("\"aggregator {}\"", env!("CARGO_PKG_VERSION"));
            assert!(title.contains(&program), "{command}: {title}");
        }
    }
}
