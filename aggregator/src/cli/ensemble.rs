//! `aggregator ensemble`: shows, extends and reduces ensembles.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Subcommand;
use serde_json::json;
use shared::algorithm::Head;
use shared::cli::counted;
use shared::id::ClientId;

use super::exit::Failure;
use super::terminal;
use crate::ensemble::{Bundle, extend, leave_out};
use crate::storage::Disk;

#[derive(Debug, Subcommand)]
pub(super) enum EnsembleCommand {
    /// List the members
    Show {
        /// The ensemble, as a run leaves it
        #[arg(value_name = "ENSEMBLE")]
        ensemble: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Add the members of another ensemble, without training any client again
    ///
    /// Clients that came too late for a run train in another of the same configuration; that run's ensemble is the
    /// other one. Of a client in both, the model in the other counts.
    Extend {
        /// The ensemble, as a run leaves it
        #[arg(value_name = "ENSEMBLE")]
        ensemble: PathBuf,
        /// The ensemble whose members are added
        #[arg(long, value_name = "OTHER")]
        with: PathBuf,
        /// Where to write the result [default: in place of ENSEMBLE]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Replace the file that --out names if it is there
        #[arg(long, requires = "out")]
        force: bool,
    },
    /// Leave members out, without training any client again
    ///
    /// For a member whose model computes no numbers for some samples, or whose owner wants it back. The run that it came
    /// from knows the client as a member all the same and does not ask it for another model.
    Drop {
        /// The ensemble, as a run leaves it
        #[arg(value_name = "ENSEMBLE")]
        ensemble: PathBuf,
        /// Whose model is left out, as `ensemble show` lists it; may be given more than once
        #[arg(long, value_name = "ID", required = true)]
        client: Vec<ClientId>,
        /// Where to write the result [default: in place of ENSEMBLE]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Replace the file that --out names if it is there
        #[arg(long, requires = "out")]
        force: bool,
    },
}

pub(super) fn ensemble(command: &EnsembleCommand) -> Result<(), Failure> {
    let files = Arc::new(Disk);
    match command {
        EnsembleCommand::Show { ensemble, json } => {
            let bundle = Bundle::open_verified(files, ensemble)?;
            terminal::show(*json, &object(&bundle), || table(&bundle))
        }
        EnsembleCommand::Extend { ensemble, with, out, force } => {
            let out = place(ensemble, out.as_deref(), *force)?;
            let (bundle, other) = (
                Bundle::open_verified(files.clone(), ensemble)?,
                Bundle::open_verified(files.clone(), with)?,
            );
            let extended = extend(&*files, &bundle, &other, out)?;
            terminal::print(&format!(
                "{}: {}, new {}, replaced {}\n",
                out.display(),
                counted(extended.members, "member"),
                extended.added,
                extended.replaced
            ))
        }
        EnsembleCommand::Drop { ensemble, client, out, force } => {
            let out = place(ensemble, out.as_deref(), *force)?;
            let bundle = Bundle::open_verified(files.clone(), ensemble)?;
            let left = leave_out(&*files, &bundle, &client.iter().copied().collect(), out)?;
            let are = if left == 1 { "member is" } else { "members are" };
            terminal::print(&format!("{}: {left} {are} left\n", out.display()))
        }
    }
}

/// Where the result goes: in place of the ensemble, or where nothing is that would be lost.
fn place<'a>(ensemble: &'a Path, out: Option<&'a Path>, force: bool) -> Result<&'a Path, Failure> {
    let Some(out) = out else { return Ok(ensemble) };
    let is_ensemble =
        || out.canonicalize().is_ok_and(|out| ensemble.canonicalize().is_ok_and(|own| own == out));
    if out.exists() && !force && !is_ensemble() {
        return Err(Failure::Environment(format!(
            "{} is there already, and is not replaced without --force; --out names another place",
            out.display()
        )));
    }
    Ok(out)
}

fn object(bundle: &Bundle) -> serde_json::Value {
    let manifest = &bundle.manifest;
    json!({
        "architecture": manifest.architecture.name, "fusion": manifest.answering.fusion,
        "head": manifest.answering.head, "weights": manifest.weights, "dimensions": bundle.dimensions(), "classes": manifest.architecture.classes, "samples": manifest.samples(),
        "members": manifest.members,
    })
}

fn table(bundle: &Bundle) -> String {
    let manifest = &bundle.manifest;
    let features = match manifest.answering.head {
        Head::Prototypes => format!("{} features, ", bundle.dimensions()),
        Head::Classifier => String::new(),
    };
    let mut text = format!(
        "{}: {}, {} samples, {} classes, {features}{} fusion\n",
        manifest.architecture.name,
        counted(manifest.members.len(), "member"),
        manifest.samples(),
        manifest.architecture.classes,
        manifest.answering.fusion
    );
    let _ = writeln!(text, "{:>8}  {:<32} {:>8}  run", "member", "client", "samples");
    for (number, member) in manifest.members.iter().enumerate() {
        let _ = writeln!(text, "{number:>8}  {:<32} {:>8}  {}", member.client, member.samples, member.run);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_file_is_replaced_unless_that_is_asked_for() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let [ensemble, other, new] =
            ["a.safetensors", "b.safetensors", "c"].map(|name| folder.path().join(name));
        for path in [&ensemble, &other] {
            std::fs::write(path, "").expect("a file in it");
        }
        let same = folder.path().join("./a.safetensors");
        for (out, force) in [(&ensemble, false), (&same, false), (&new, false), (&other, true)] {
            assert_eq!(place(&ensemble, Some(out), force).ok(), Some(&**out));
        }
        assert_eq!(place(&ensemble, None, false).ok(), Some(&*ensemble));
        let text = place(&ensemble, Some(&other), false).expect_err("it is there").to_string();
        assert!(text.contains("b.safetensors is there already") && text.contains("--force"), "{text}");
    }
}
