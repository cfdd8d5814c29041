//! Shell completions and manual pages, generated from the arguments.

use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use super::arguments::Arguments;
use super::error::CliError;

/// Prints a completion script.
pub(super) fn completions(shell: Shell) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "edge-client", &mut script);
    print(&script)
}

/// Prints the main manual page.
pub(super) fn page() -> Result<(), CliError> {
    let mut page = Vec::new();
    Man::new(Arguments::command()).render(&mut page).map_err(CliError::Output)?;
    print(&page)
}

/// Writes the manual page of every command into a directory, which is created if absent.
pub(super) fn pages(folder: &Path) -> Result<(), CliError> {
    let mut program = Arguments::command().disable_help_subcommand(true);
    program.build();
    let source = format!("edge-client {}", env!("CARGO_PKG_VERSION"));
    std::fs::create_dir_all(folder)
        .and_then(|()| page_of_each(program, &source, folder))
        .map_err(|error| CliError::Pages { folder: folder.to_path_buf(), error })
}

/// Writes the pages of a command and its subcommands, with the program's version in the footer.
fn page_of_each(command: clap::Command, source: &str, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()).cloned() {
        page_of_each(below, source, folder)?;
    }
    Man::new(command).source(source).generate_to(folder).map(drop)
}

fn print(bytes: &[u8]) -> Result<(), CliError> {
    io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()).map_err(CliError::Output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_for_every_command_with_the_exit_codes_in_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let man = folder.path().join("a/man1");
        pages(&man).unwrap();
        for command in ["", "-join", "-predict", "-completions", "-man"] {
            let page = std::fs::read_to_string(man.join(format!("edge-client{command}.1"))).unwrap();
            let title = page.lines().find(|line| line.starts_with(".TH")).unwrap();
            assert!(title.contains(&format!("\"edge-client {}\"", env!("CARGO_PKG_VERSION"))), "{title}");
        }
        let main = std::fs::read_to_string(man.join("edge-client.1")).unwrap();
        assert!(main.contains("Exit codes"), "{main}");
    }

    #[test]
    fn a_directory_that_cannot_be_is_the_users_to_mend() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(matches!(pages(&file.join("man1")), Err(CliError::Pages { .. })));
    }
}
