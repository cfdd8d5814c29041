//! `aggregator export`: a trained model, or an ensemble of them, for other programs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use models::Architecture;
use serde_json::json;
use shared::algorithm::Fusion;
use shared::personalisation::Personal;

use super::exit::Failure;
use super::load_model::{Usable, open_model, open_personal};
use super::model_origin::training_of;
use super::terminal;
use crate::export::onnx::{OPSET, Onnx, Preparing, outputs_in_words};
use crate::export::{Content, ExportError, Exported, Subject, Target, export as exported, hub};
use crate::report::units;
use crate::run::{Run, Which};
use crate::storage::{Disk, FileLayer as _, create_dir_durably, write_durably};

/// What is exported to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum To {
    /// An nn.Module and its state dictionary, for torch.
    Torch,
    /// Python with numpy alone.
    Numpy,
    /// One file of ONNX, for its runtimes in every language.
    Onnx,
    /// A folder as on the Hugging Face hub: model, description, card and ONNX.
    Hub,
}

impl To {
    /// The extension of the file that stands for the others; `None` where only a folder does.
    fn extension(self) -> Option<&'static str> {
        match self {
            Self::Torch | Self::Numpy => Some("py"),
            Self::Onnx => Some("onnx"),
            Self::Hub => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Torch => "torch",
            Self::Numpy => "numpy",
            Self::Onnx => "onnx",
            Self::Hub => "hub",
        }
    }

    /// The packages of Python that use what is exported.
    fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Torch => Target::Torch.packages(),
            Self::Numpy => Target::Numpy.packages(),
            Self::Onnx => &["onnxruntime"],
            Self::Hub => &["safetensors"],
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// The model or the ensemble, as a run leaves it; or the run's directory, also while the run goes on; or for onnx the personal model
    /// of a device
    #[arg(long, value_name = "PATH")]
    model: PathBuf,
    /// Of a run's directory, take the best of the models that were tested instead of the newest
    #[arg(long)]
    best: bool,
    /// What to export to
    #[arg(long, value_enum, value_name = "TARGET")]
    to: To,
    /// The file to write, NAME.py or NAME.onnx; or a directory, for network.py or network.onnx in it, or the files of the hub. The weights
    /// of source lie beside it
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// Of onnx: where samples are cropped and normalised [default: inside]
    #[arg(long, value_enum, value_name = "WHERE")]
    preparation: Option<Preparing>,
    /// Of hub: the licence that the card names, such as apache-2.0
    #[arg(long, value_name = "ID")]
    license: Option<String>,
    /// How the members of an ensemble become one answer [default: as its run says]
    #[arg(long, value_enum, value_name = "FUSION")]
    fusion: Option<Fusion>,
    /// Replace files that are there
    #[arg(long)]
    force: bool,
    /// Print one JSON object: what was written
    #[arg(long)]
    json: bool,
}

pub(super) fn export(arguments: &ExportArgs) -> Result<(), Failure> {
    let place = Place::of(&arguments.out, arguments.to)?;
    check_options(arguments)?;
    if let Some(personal) = open_personal(&arguments.model)? {
        return export_personal(arguments, &place, &personal);
    }
    let which = if arguments.best { Which::Best } else { Which::Newest };
    let (path, usable) = open_model(&arguments.model, which)?;
    usable.check_fusion(&arguments.model, arguments.fusion)?;
    let subject = match &usable {
        Usable::Model(architecture, params, samples) => {
            Subject::Model(architecture, params, samples.as_deref())
        }
        Usable::Ensemble(bundle) => {
            Subject::Ensemble(bundle, arguments.fusion.unwrap_or(bundle.manifest.answering.fusion))
        }
    };
    let training = match arguments.to {
        To::Hub => training_of(&arguments.model, which)?,
        To::Torch | To::Numpy | To::Onnx => None,
    };
    let files = match arguments.to {
        To::Torch => exported(subject, Target::Torch, &place.name),
        To::Numpy => exported(subject, Target::Numpy, &place.name),
        To::Onnx => Onnx::of(subject, arguments.preparation.unwrap_or(Preparing::Inside)).map(|onnx| {
            vec![Exported { name: format!("{}.onnx", place.name), content: Content::Onnx(Box::new(onnx)) }]
        }),
        To::Hub => {
            let Subject::Model(architecture, params, samples) = subject else {
                return Err(Failure::Usage(format!(
                    "{} is an ensemble, and a folder of the hub is for one model: --to torch, numpy or onnx takes all members",
                    path.display()
                )));
            };
            let (training, licence) = (training.as_ref(), arguments.license.as_deref());
            hub::folder(hub::Model { architecture, params, samples, training, licence })
        }
    };
    let files = files.map_err(|error| failed(error, &path))?;
    let files = placed(&place.folder, files);
    check(&files, &path, arguments.force)?;
    write(&files)?;
    let (members, fusion) = match subject {
        Subject::Model(..) => (1, None),
        Subject::Ensemble(bundle, fusion) => (bundle.manifest.members.len(), Some(fusion)),
    };
    say(arguments, subject.architecture(), (members, fusion), &files)
}

fn export_personal(arguments: &ExportArgs, place: &Place, personal: &Personal) -> Result<(), Failure> {
    let path = &arguments.model;
    if arguments.best || arguments.fusion.is_some() {
        return Err(Failure::Usage(format!(
            "{} is the personal model of a device: leave --best and --fusion out, which are for runs and ensembles",
            path.display()
        )));
    }
    if arguments.to != To::Onnx {
        return Err(Failure::Usage(format!(
            "{} is the personal model of a device, two networks and what is between them: --to onnx takes it",
            path.display()
        )));
    }
    let preparing = arguments.preparation.unwrap_or(Preparing::Inside);
    let onnx = Onnx::personal(&personal.model, &personal.samples, preparing);
    let content = Content::Onnx(Box::new(onnx.map_err(|error| failed(error, path))?));
    let files = placed(&place.folder, vec![Exported { name: format!("{}.onnx", place.name), content }]);
    check(&files, path, arguments.force)?;
    write(&files)?;
    say(arguments, &personal.model.architecture, (1, None), &files)
}

fn failed(error: ExportError, path: &Path) -> Failure {
    match error {
        ExportError::Ensemble(error) => error.into(),
        error @ (ExportError::Architecture(_) | ExportError::Model(_) | ExportError::TooLarge { .. }) => {
            Failure::file("use the model", path, error)
        }
    }
}

/// The files with their paths in this folder.
fn placed<'a>(folder: &Path, files: Vec<Exported<'a>>) -> Vec<(PathBuf, Exported<'a>)> {
    files.into_iter().map(|file| (folder.join(&file.name), file)).collect()
}

fn write(files: &[(PathBuf, Exported<'_>)]) -> Result<(), Failure> {
    for (path, file) in files {
        // An empty one is the current directory.
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            create_dir_durably(&Disk, folder).map_err(|error| Failure::file("create", folder, error))?;
        }
        write_durably(&Disk, path, |out| file.content.write(out))
            .map_err(|error| Failure::file("write", path, error))?;
    }
    Ok(())
}

/// Leaves the folder of the hub beside the model that a run has left; of a run that leaves no single network there is none.
pub(super) fn leave_folder(run: &Run) -> Result<(), Failure> {
    if !run.has_one_model() || run.spec().architecture.is_opaque() {
        return Ok(());
    }
    let directory = run.directory();
    let folder = directory.folder_of_hub();
    // Before the model is opened: it may be one of which there is no folder.
    remove_earlier(&folder)?;
    let path = directory.model();
    let Usable::Model(architecture, params, samples) = Usable::open(&path)? else { return Ok(()) };
    let training = training_of(&path, Which::Newest)?;
    let (architecture, params, samples) = (&*architecture, &params, samples.as_deref());
    let model = hub::Model { architecture, params, samples, training: training.as_ref(), licence: None };
    write(&placed(&folder, hub::folder(model).map_err(|error| failed(error, &path))?))
}

/// Removes the files of an earlier end of the run, which would be taken for those of this one. What else is in the folder is the user's.
fn remove_earlier(folder: &Path) -> Result<(), Failure> {
    for name in hub::FILES {
        let path = folder.join(name);
        Disk.remove(&path).map_err(|error| Failure::file("remove", &path, error))?;
    }
    Ok(())
}

/// Refuses options that are of another target.
fn check_options(arguments: &ExportArgs) -> Result<(), Failure> {
    if let (Some(preparation), To::Torch | To::Numpy | To::Hub) = (arguments.preparation, arguments.to) {
        let why = match arguments.to {
            To::Hub => "the folder's ONNX prepares samples itself",
            _ => "exported source prepares samples with a function of its own, `prepare`",
        };
        return Err(Failure::Usage(format!("--preparation {preparation} is for --to onnx: {why}")));
    }
    if arguments.license.is_some() && arguments.to != To::Hub {
        return Err(Failure::Usage(
            "--license is for --to hub, whose card names it: leave it out".to_owned(),
        ));
    }
    Ok(())
}

fn say(
    arguments: &ExportArgs,
    architecture: &Architecture,
    (members, fusion): (usize, Option<Fusion>),
    files: &[(PathBuf, Exported<'_>)],
) -> Result<(), Failure> {
    let parameters = architecture.parameters().map_err(Failure::internal)?;
    let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |about| about.len());
    let (target, packages) = (arguments.to.name(), arguments.to.packages());
    if arguments.json {
        let written: Vec<_> = files
            .iter()
            .map(|(path, file)| match &file.content {
                Content::Text(_) => json!({ "file": path, "bytes": bytes(path) }),
                Content::Tensors(weights) => {
                    json!({ "file": path, "bytes": bytes(path), "tensors": weights.len() })
                }
                Content::Model(_, params, _) => {
                    json!({ "file": path, "bytes": bytes(path), "tensors": params.len() })
                }
                Content::Onnx(onnx) => json!({
                    "file": path, "bytes": bytes(path), "opset": OPSET, "input": onnx.input, "output": onnx.output,
                }),
            })
            .collect();
        return terminal::print_json(&json!({
            "target": target, "model": architecture.name, "input": architecture.input,
            "classes": architecture.classes, "parameters": parameters, "members": members, "fusion": fusion,
            "packages": packages, "files": written,
        }));
    }
    let mut text = String::new();
    for (path, file) in files {
        let size = units::bytes(bytes(path));
        let _ = match &file.content {
            Content::Text(_) => writeln!(text, "wrote {}: {}, {size}", path.display(), architecture.name),
            Content::Model(_, params, _) => {
                writeln!(text, "wrote {}: {} tensors, {size}", path.display(), params.len())
            }
            Content::Tensors(weights) => {
                writeln!(text, "wrote {}: {} tensors, {size}", path.display(), weights.len())
            }
            Content::Onnx(onnx) => writeln!(
                text,
                "wrote {}: {}, {size}, opset {OPSET}; `samples` [n, {}] to {} [n, {}]",
                path.display(),
                architecture.name,
                listed(&onnx.input),
                outputs_in_words(architecture.task),
                listed(&onnx.output)
            ),
        };
    }
    if let (Some((source, _)), To::Torch | To::Numpy) = (files.first(), arguments.to) {
        let _ =
            writeln!(text, "python3 {} --help says more; it needs {}", source.display(), packages.join(", "));
    }
    terminal::print(&text)
}

fn listed(shape: &[usize]) -> String {
    shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// What exported scripts import: a script of such a name would be imported in its place.
const MODULES: [&str; 11] = [
    "argparse",
    "collections",
    "csv",
    "json",
    "math",
    "numpy",
    "pathlib",
    "safetensors",
    "struct",
    "sys",
    "torch",
];

/// Where the files go.
struct Place {
    folder: PathBuf,
    /// Their name, without an extension.
    name: String,
}

impl Place {
    /// A name that ends in `.py`, or for ONNX in `.onnx`, is a file's, any other one a directory's.
    fn of(out: &Path, to: To) -> Result<Self, Failure> {
        let extension = out.extension().and_then(|extension| extension.to_str()).filter(|_| !out.is_dir());
        let Some(wanted) = to.extension().filter(|wanted| extension == Some(*wanted)) else {
            let takes = match to.extension() {
                Some(wanted) => format!("a directory, or the name of a file that ends in .{wanted}"),
                None => "a directory".to_owned(),
            };
            if [To::Torch, To::Onnx].iter().any(|other| extension.is_some() && other.extension() == extension)
            {
                return Err(Failure::Usage(format!(
                    "{} is the name of another kind of file: --out takes {takes}",
                    out.display()
                )));
            }
            if out.exists() && !out.is_dir() {
                return Err(Failure::Usage(format!("{} is a file: --out takes {takes}", out.display())));
            }
            return Ok(Self { folder: out.to_owned(), name: "network".to_owned() });
        };
        let folder = out.parent().unwrap_or(Path::new(""));
        let name = out.file_stem().and_then(|stem| stem.to_str()).ok_or_else(|| {
            Failure::Usage(format!("the name of {} is not UTF-8: give it another name", out.display()))
        })?;
        if wanted == "py" && MODULES.contains(&name) {
            return Err(Failure::Usage(format!(
                "{name}.py would stand in the way of Python's module {name}, which the script uses: give it another name"
            )));
        }
        Ok(Self { folder: folder.to_owned(), name: name.to_owned() })
    }
}

/// Nothing is replaced that is not to be, and never the model itself.
fn check(files: &[(PathBuf, Exported<'_>)], model: &Path, force: bool) -> Result<(), Failure> {
    let same =
        |path: &Path| path.canonicalize().ok().is_some_and(|path| model.canonicalize().ok() == Some(path));
    for (path, _) in files {
        if same(path) {
            return Err(Failure::Usage(format!(
                "{} is the model that is exported: --out names another place",
                path.display()
            )));
        }
        if path.exists() && !force {
            return Err(Failure::Environment(format!(
                "{} is there already, and is not replaced without --force; --out names another place",
                path.display()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_source_is_a_file_and_any_other_a_directory() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = |place: Place, extension: &str| place.folder.join(format!("{}.{extension}", place.name));
        let at = |name: &str| Place::of(&folder.path().join(name), To::Torch).map(|place| file(place, "py"));
        assert_eq!(at("out").ok(), Some(folder.path().join("out/network.py")));
        assert_eq!(at("my.py").ok(), Some(folder.path().join("my.py")));
        std::fs::create_dir(folder.path().join("odd.py")).expect("a folder in it");
        assert_eq!(at("odd.py").ok(), Some(folder.path().join("odd.py/network.py")));
        std::fs::write(folder.path().join("file"), "").expect("a file in it");
        let text = at("file").expect_err("neither").to_string();
        assert!(text.contains("ends in .py"), "{text}");
        let bare = Place::of(Path::new("my.py"), To::Numpy).expect("a file here");
        assert_eq!(file(bare, "py"), Path::new("my.py"));
        let of_onnx = Place::of(Path::new("torch.onnx"), To::Onnx).expect("no module of Python");
        assert_eq!(file(of_onnx, "onnx"), Path::new("torch.onnx"));
        for (name, to) in [("my.onnx", To::Torch), ("my.py", To::Onnx), ("my.onnx", To::Hub)] {
            let text = Place::of(Path::new(name), to).err().expect("another kind").to_string();
            assert!(text.contains("another kind of file"), "{text}");
        }
    }

    #[test]
    fn of_an_earlier_folder_our_own_files_alone_are_removed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        remove_earlier(&folder.path().join("absent")).expect("nothing is there");
        let theirs = [".git/HEAD", "LICENSE", "onnx/notes.txt"].map(|name| folder.path().join(name));
        let ours = hub::FILES.map(|name| folder.path().join(name));
        for path in theirs.iter().chain(&ours) {
            std::fs::create_dir_all(path.parent().expect("the folder")).expect("a folder in it");
            std::fs::write(path, "").expect("a file in it");
        }
        remove_earlier(folder.path()).expect("they can be removed");
        assert!(theirs.iter().all(|path| path.exists()) && !ours.iter().any(|path| path.exists()));
    }
}
