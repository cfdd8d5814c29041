//! Which files of images there are, and of which classes.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::super::error::FormatError as _;
use super::super::{DataError, Labels, OnError, Skipped, Split};
use super::decoding::is_image_content;
use super::error::ImagesError;

/// The names of the folders in `folder` that hold images, sorted.
pub(in crate::data) fn class_folders(folder: &Path) -> Result<Vec<String>, DataError> {
    let holds = |class: &PathBuf| {
        class.is_dir() && entries(class).is_ok_and(|files| files.iter().any(|file| is_image(file)))
    };
    let name = |class: PathBuf| class.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(entries(folder)?.into_iter().filter(holds).map(name).collect())
}

/// The folder that holds the classes of a split: the one named after it, or for training the directory itself if there is
/// no folder of either name.
pub(in crate::data) fn folder(directory: &Path, split: Split) -> Option<PathBuf> {
    let of = |split: Split| Some(directory.join(split.name())).filter(|folder| folder.is_dir());
    of(split).or_else(|| {
        let none = of(Split::Train).is_none() && of(Split::Test).is_none();
        (split == Split::Train && none).then(|| directory.to_path_buf())
    })
}

/// The visible entries of a folder, sorted by name.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let failed = |error: std::io::Error| DataError::from(error).in_file(folder);
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !entry.file_name().to_string_lossy().starts_with('.') {
            entries.push(entry.path());
        }
    }
    entries.sort();
    Ok(entries)
}

/// Whether a file has the name of an image.
pub(super) fn is_image(path: &Path) -> bool {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    matches!(extension.as_deref(), Some("png" | "jpg" | "jpeg"))
}

/// Whether it is a pipe, a socket or a machine's device, and no file of bytes.
fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Whether a file lies beside images by habit of people and systems (`readme.txt`, `Thumbs.db`, `desktop.ini`), and is
/// passed over in silence. An image of another format is none: its owner wants it to count.
fn is_note(path: &Path) -> bool {
    const OTHER_IMAGES: [&str; 18] = [
        "avif", "bmp", "cr2", "dcm", "dng", "gif", "heic", "heif", "ico", "jfif", "jp2", "nef", "pgm", "ppm",
        "svg", "tif", "tiff", "webp",
    ];
    if !path.is_file() || is_image(path) {
        return false;
    }
    if let Some(extension) = path.extension() {
        return !OTHER_IMAGES.contains(&extension.to_string_lossy().to_lowercase().as_str());
    }
    let mut beginning = Vec::new();
    let read = File::open(path).and_then(|file| file.take(16).read_to_end(&mut beginning));
    read.is_ok() && !is_image_content(&beginning)
}

/// The files of all class folders, each with its class.
pub(super) fn list(
    folder: &Path,
    labels: &Labels,
    on_error: OnError,
    skipped: &mut Skipped,
) -> Result<Vec<(PathBuf, u32)>, DataError> {
    let mut files = Vec::new();
    for class in entries(folder)? {
        let name = class.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if is_note(&class) {
            continue;
        }
        if !class.is_dir() {
            skipped.pass_over(on_error, ImagesError::NoClassFolder.in_file(&class))?;
            continue;
        }
        // A folder of an unknown name is a whole class, perhaps misspelt: not a damaged sample to be skipped.
        let number = labels.class(&name).map_err(|error| error.in_file(&class))?;
        let before = files.len();
        add_images(entries(&class)?, number, &mut files, on_error, skipped)?;
        if files.len() == before {
            skipped.pass_over(on_error, ImagesError::EmptyClass.in_file(class))?;
        }
    }
    Ok(files)
}

/// The files of a folder and of the folders in it, all of class 0.
pub(super) fn list_unlabelled(
    folder: &Path,
    on_error: OnError,
    skipped: &mut Skipped,
) -> Result<Vec<(PathBuf, u32)>, DataError> {
    let mut files = Vec::new();
    for entry in entries(folder)? {
        let within = if entry.is_dir() { entries(&entry)? } else { vec![entry] };
        add_images(within, 0, &mut files, on_error, skipped)?;
    }
    Ok(files)
}

/// Adds the images among some entries of a folder, and skips the others.
fn add_images(
    entries: Vec<PathBuf>,
    class: u32,
    files: &mut Vec<(PathBuf, u32)>,
    on_error: OnError,
    skipped: &mut Skipped,
) -> Result<(), DataError> {
    for file in entries {
        // A pipe would be waited for.
        if is_image(&file) && !is_special(&file) {
            files.push((file, class));
        } else if !is_note(&file) {
            skipped.pass_over(on_error, ImagesError::NoImage.in_file(file))?;
        }
    }
    Ok(())
}
