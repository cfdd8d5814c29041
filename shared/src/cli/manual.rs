//! Shell completions and manual pages, generated from a program's arguments.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::{Command, Subcommand, ValueHint};
use clap_complete::Shell;
use clap_mangen::Man;

/// The commands that print what a package installs beside a program.
#[derive(Clone, Debug, Subcommand)]
pub enum Manual {
    /// Print a completion script for a shell
    ///
    /// For bash, write it into ~/.local/share/bash-completion/completions, to a file with the name of the program.
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write one for each command
    Man {
        /// Directory to write the pages to; without it, the main page is printed
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        out: Option<PathBuf>,
    },
}

/// Why there is no manual.
#[derive(Debug, thiserror::Error)]
pub enum ManualError {
    /// Standard output fails.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    /// The manual pages cannot be written.
    #[error("cannot write the manual pages to {}: {error}; name a directory that this user may write to", folder.display())]
    Pages {
        /// The directory.
        folder: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

impl Manual {
    /// Prints or writes what was asked for of `program`. A directory for pages is created if absent. A reader of standard output
    /// that has gone away is no error.
    pub fn run(&self, mut program: Command) -> Result<(), ManualError> {
        let mut text = Vec::new();
        match self {
            Self::Completions { shell } => {
                let name = program.get_name().to_owned();
                clap_complete::generate(*shell, &mut program, name, &mut text);
            }
            Self::Man { out: None } => Man::new(program).render(&mut text).map_err(ManualError::Output)?,
            Self::Man { out: Some(folder) } => {
                return pages(program, folder)
                    .map_err(|error| ManualError::Pages { folder: folder.clone(), error });
            }
        }
        let mut out = io::stdout();
        match out.write_all(&text).and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(ManualError::Output(error)),
            _ => Ok(()),
        }
    }
}

fn pages(program: Command, folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let source = format!("{} {}", program.get_name(), program.get_version().unwrap_or_default());
    let mut program = program.disable_help_subcommand(true);
    program.build();
    page_of_each(program, &source, folder)
}

/// Writes the pages of a command and its subcommands, with the program's version in the footer.
fn page_of_each(command: Command, source: &str, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()).cloned() {
        page_of_each(below, source, folder)?;
    }
    Man::new(command).source(source).generate_to(folder).map(drop)
}
