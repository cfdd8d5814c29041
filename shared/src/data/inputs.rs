//! Inputs: samples that a model is asked about, with their labels if these are there, and what each is called.
//!
//! | place | samples |
//! |---|---|
//! | a folder in a known format | its split, without labels if only these are missing |
//! | a folder of images without classes | each image |
//! | a PNG or JPEG | that one image |
//! | a CSV table | its rows; the labels may be missing |
//! | a `.txt` file | that one text, for a model of texts |
//! | a safetensors file | the tensor `x`; `y` may be missing |
//! | `-` | an image or a CSV table from standard input |

use std::io::Read;
use std::path::{Path, PathBuf};

use super::format::{Evidence, MAX_CONTENT, SampleFormat as _, read_file};
use super::{DataError, Dataset, ReadOptions, Split, csv, images, registry, safetensors};

/// The place that stands for standard input.
pub const STANDARD_INPUT: &str = "-";

/// Samples, and what they are called.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    /// The samples, [unlabelled](Dataset::unlabelled) if their labels are not there.
    pub dataset: Dataset,
    /// The file of each sample, for images; empty for samples that have only numbers.
    pub files: Vec<String>,
}

impl Inputs {
    /// Whether the labels are there.
    #[must_use]
    pub fn labelled(&self) -> bool {
        !self.dataset.targets().is_empty()
    }
}

/// Reads what is at `place`. Samples of another size than [`ReadOptions::shape`] are refused by their shape, also if
/// their labels are wrong as well.
///
/// # Errors
/// [`DataError`] with the file, and the record if one is at fault.
pub fn read(place: &Path, split: Split, options: &ReadOptions) -> Result<Inputs, DataError> {
    let read = || {
        if place == Path::new(STANDARD_INPUT) {
            read_stream(std::io::stdin().lock(), options)
        } else if place.is_file() {
            read_one_file(place, options)
        } else {
            read_folder(place, split, options)
        }
    };
    read().map_err(|error| explain(error, place, split, options))
}

/// Reads an image or a table from a stream.
///
/// # Errors
/// As [`read`].
pub fn read_stream(input: impl Read, options: &ReadOptions) -> Result<Inputs, DataError> {
    let path = Path::new("standard input");
    let mut bytes = Vec::new();
    let read = input.take(MAX_CONTENT + 1).read_to_end(&mut bytes).map_err(DataError::from);
    read.map_err(|error| error.in_file(path))?;
    if bytes.len() as u64 > MAX_CONTENT {
        let problem = DataError::TooLarge { dimensions: vec![bytes.len()], limit: MAX_CONTENT };
        return Err(problem.in_file(path));
    }
    if bytes.is_empty() {
        return Err(DataError::Empty.in_file(path));
    }
    if images::is_image_content(&bytes) {
        let dataset = images::read_bytes(&bytes, options.shape.as_deref());
        return Ok(Inputs {
            dataset: dataset.map_err(|error| error.in_file(path))?,
            files: vec![STANDARD_INPUT.to_owned()],
        });
    }
    table(&bytes, path, options)
}

fn read_one_file(path: &Path, options: &ReadOptions) -> Result<Inputs, DataError> {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    match extension.as_deref() {
        Some("csv") => {
            let bytes = read_file(path, MAX_CONTENT).map_err(|error| error.in_file(path))?;
            table(&bytes, path, options)
        }
        Some("safetensors") => {
            let bytes = read_file(path, MAX_CONTENT).map_err(|error| error.in_file(path))?;
            let read = |options: &ReadOptions| safetensors::read(&bytes, path, options);
            Ok(unnamed(with_or_without_labels(options, read)?))
        }
        Some("txt") if options.text.is_some() => {
            let bytes = read_file(path, MAX_CONTENT).map_err(|error| error.in_file(path))?;
            let dataset = csv::read_text(&bytes, options).map_err(|error| error.in_file(path))?;
            Ok(Inputs { dataset, files: vec![path.display().to_string()] })
        }
        _ => {
            let dataset = images::read_one(path, options)?;
            Ok(Inputs { dataset, files: vec![path.display().to_string()] })
        }
    }
}

fn read_folder(directory: &Path, split: Split, options: &ReadOptions) -> Result<Inputs, DataError> {
    let found = registry::detect(directory, split, options);
    // Images in no folder of a class are found by a reader without labels alone, and a note beside them is none of them.
    let weak = found.as_ref().map_or(true, |format| format.about().evidence == Evidence::Weak);
    let unsorted = [split, Split::Train].into_iter().find(|&of| images::holds_unlabelled(directory, of));
    if let Some(split) = unsorted.filter(|_| weak) {
        let without = options.without_labels();
        return Ok(named(directory, images::load_named(directory, split, &without)?));
    }
    let format = found?;
    if format.about().name == images::Images.about().name {
        return Ok(named(directory, images::load_named(directory, split, options)?));
    }
    let dataset = with_or_without_labels(options, |options| format.load(directory, split, options))?;
    Ok(unnamed(dataset))
}

/// Images, called by their paths in the folder.
fn named(directory: &Path, (dataset, files): (Dataset, Vec<PathBuf>)) -> Inputs {
    let name = |path: &PathBuf| path.strip_prefix(directory).unwrap_or(path).display().to_string();
    Inputs { dataset, files: files.iter().map(name).collect() }
}

fn unnamed(dataset: Dataset) -> Inputs {
    Inputs { dataset, files: Vec::new() }
}

fn table(bytes: &[u8], path: &Path, options: &ReadOptions) -> Result<Inputs, DataError> {
    Ok(unnamed(with_or_without_labels(options, |options| csv::read(bytes, path, options))?))
}

/// Reads with labels, or without if only these are missing.
fn with_or_without_labels(
    options: &ReadOptions,
    read: impl Fn(&ReadOptions) -> Result<Dataset, DataError>,
) -> Result<Dataset, DataError> {
    match read(options) {
        Err(error) if error.lacks_labels() => read(&options.without_labels()),
        read => read,
    }
}

/// Of samples that are something else the labels, too, are mostly wrong, and not what to repair.
fn explain(error: DataError, place: &Path, split: Split, options: &ReadOptions) -> DataError {
    let Some(expected) = options.shape.clone().filter(|_| place.is_dir()) else { return error };
    let natural = ReadOptions { labels: None, shape: None, ..options.clone() };
    let Ok((format, dataset)) = registry::read(place, split, &natural) else { return error };
    // Images are brought to any shape that an image can have: their size is never what is wrong.
    if format.about().name == images::Images.about().name && images::is_shape(&expected) {
        return error;
    }
    let size = |shape: &[usize]| shape.iter().product::<usize>();
    if size(&expected) == size(dataset.shape()) {
        return error;
    }
    DataError::NotForModel { expected, found: dataset.shape().to_vec() }.in_file(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Labels, Samples, idx};

    fn options(shape: &[usize]) -> ReadOptions {
        let labels = Labels::Names(vec!["cat".to_owned(), "dog".to_owned()]);
        ReadOptions { shape: Some(shape.to_vec()), labels: Some(labels), ..ReadOptions::default() }
    }

    fn image(path: &Path, grey: u8) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        image::GrayImage::from_pixel(2, 2, image::Luma([grey])).save(path).unwrap();
    }

    #[test]
    fn images_are_called_by_their_files_wherever_they_lie() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        image(&at("flat/b.png"), 20);
        image(&at("flat/a.png"), 10);
        std::fs::write(at("flat/readme.txt"), "notes").unwrap();
        image(&at("classes/test/dog/1.png"), 30);
        image(&at("split/test/1.png"), 40);
        let read = |place: &str| read(&at(place), Split::Test, &options(&[1, 2, 2])).unwrap();
        let flat = read("flat");
        assert_eq!(
            (flat.files.clone(), flat.labelled()),
            (vec!["a.png".to_owned(), "b.png".to_owned()], false)
        );
        assert_eq!(flat.dataset.samples(), &Samples::Bytes([[10; 4], [20; 4]].concat()));
        let classes = read("classes");
        assert_eq!(
            (&classes.files[..], classes.dataset.labels()),
            (&["test/dog/1.png".to_owned()][..], &[1][..])
        );
        assert_eq!(read("split").files, ["test/1.png"]);
        let one = read("flat/b.png");
        assert_eq!((one.dataset.len(), one.labelled()), (1, false));
        assert!(one.files[0].ends_with("b.png"));
    }

    #[test]
    fn tables_may_lack_the_column_of_labels() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new.csv");
        for (text, labels) in [("a,b\n1,2\n", &[][..]), ("a,b,label\n1,2,dog\n", &[1])] {
            std::fs::write(&path, text).unwrap();
            let place = read(&path, Split::Test, &options(&[2])).unwrap();
            let stream = read_stream(text.as_bytes(), &options(&[2])).unwrap();
            assert_eq!((place.dataset.labels(), place.dataset.shape()), (labels, &[2][..]), "{text}");
            assert_eq!(place, stream);
        }
        std::fs::rename(&path, folder.path().join("test.csv")).unwrap();
        let wrong = read(folder.path(), Split::Test, &options(&[6])).unwrap_err().to_string();
        assert!(wrong.contains("takes samples of shape 6, these have 2"), "{wrong}");
    }

    #[test]
    fn a_stream_is_an_image_or_a_table() {
        let mut png = std::io::Cursor::new(Vec::new());
        image::GrayImage::from_pixel(4, 4, image::Luma([9]))
            .write_to(&mut png, image::ImageFormat::Png)
            .unwrap();
        let one = read_stream(png.get_ref().as_slice(), &options(&[3, 2, 2])).unwrap();
        assert_eq!(one.dataset.samples(), &Samples::Bytes(vec![9; 12]));
        assert_eq!(one.files, ["-"]);
        for wrong in ["", "a,b\n1,x\n"] {
            let said = read_stream(wrong.as_bytes(), &options(&[2])).unwrap_err().to_string();
            assert!(said.starts_with("standard input: "), "{said}");
        }
    }

    #[test]
    fn images_in_folders_of_unknown_names_are_refused_by_the_name_and_not_by_their_size() {
        let folder = tempfile::tempdir().unwrap();
        image(&folder.path().join("test/wolf/1.png"), 9);
        let said =
            |shape: &[usize]| read(folder.path(), Split::Test, &options(shape)).unwrap_err().to_string();
        let scaled = said(&[3, 32, 32]);
        assert!(scaled.contains("wolf") && !scaled.contains("shape"), "{scaled}");
        let rows = said(&[6]);
        assert!(rows.contains("takes samples of shape 6, these have 1x2x2"), "{rows}");
    }

    #[test]
    fn samples_of_another_size_are_refused_by_their_shape_and_not_by_a_label() {
        let folder = tempfile::tempdir().unwrap();
        let set = Dataset::new(vec![1, 28, 28], vec![0; 784], [3_u8], 10).unwrap();
        idx::write_split(folder.path(), Split::Test, &set).unwrap();
        let numbers = ReadOptions { labels: Some(Labels::Numbers(3)), ..options(&[6]) };
        let said = read(folder.path(), Split::Test, &numbers).unwrap_err().to_string();
        assert!(said.contains("takes samples of shape 6, these have 1x28x28"), "{said}");
    }
}
