//! Survey of a folder of which nothing is known yet: format, shape, classes and labels, as far as the files show them.

mod table;

use std::collections::BTreeSet;
use std::path::Path;

use super::cifar::{self, Cifar};
use super::csv::Csv;
use super::format::SampleFormat as _;
use super::idx::Idx;
use super::images::{self, Images};
use super::safetensors::{Safetensors, numbers_to_learn};
use super::{DataError, DataSet, Format, Labels, OnError, ReadOptions, Samples, Split, registry, sets, text};
use models::shape::spelled;

/// Images that are looked at.
const IMAGES: usize = 500;
/// The longest side of images that is taken without scaling.
const NATURAL: usize = 64;
/// What a folder holds.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The data set that a configuration names for it.
    pub set: &'static DataSet,
    /// Its format.
    pub format: Format,
    /// Shape of a sample.
    pub shape: Vec<usize>,
    /// How labels are written.
    pub labels: Labels,
    /// The column of a table that holds them.
    pub column: Option<String>,
    /// The column of a table that holds texts, if these are the samples.
    pub text: Option<String>,
    /// The columns of a table that hold the features, in order; empty if there are too many to name, or two have one name.
    pub features: Vec<String>,
    /// How many different tokens there are, if samples are texts with one class each that have been tokenised.
    pub vocabulary: Option<usize>,
    /// Training samples, if all were looked at.
    pub train: Option<usize>,
    /// Whether there is a test split.
    pub test: bool,
    /// Mean and standard deviation of each column of a table; 1 for a column of one value.
    pub moments: Option<(Vec<f64>, Vec<f64>)>,
    /// What was chosen and could be chosen otherwise, for people.
    pub notes: Vec<String>,
}

/// Why a folder cannot be surveyed: all that is in the way, at once.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// It holds no known format, several, or what cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// It holds samples that cannot be used as they are.
    #[error("{directory}: {}", .problems.join("; "))]
    Problems {
        /// The folder.
        directory: String,
        /// What is wrong, and what to do.
        problems: Vec<String>,
    },
}

impl Survey {
    /// How the samples are read.
    #[must_use]
    pub fn options(&self, on_error: OnError) -> ReadOptions {
        let column = self.column.clone().unwrap_or_else(|| ReadOptions::default().column);
        let (shape, labels) = (Some(self.shape.clone()), Some(self.labels.clone()));
        let (text, features) = (self.text.clone(), self.features.clone());
        ReadOptions { shape, labels, column, text, features, on_error, ..ReadOptions::default() }
    }

    /// The survey in words.
    #[must_use]
    pub fn in_words(&self) -> String {
        let samples = self.train.map_or_else(
            || "samples".to_owned(),
            |count| format!("{count} {}", if count == 1 { "sample" } else { "samples" }),
        );
        let classes = self.labels.in_words();
        let column = self.column.as_ref().map_or(String::new(), |column| format!(" in column `{column}`"));
        let format = self.format;
        match &self.text {
            Some(text) => format!("{samples}, texts in column `{text}` of {format}, {classes}{column}"),
            None => format!("{samples} of shape {} from {format}, {classes}{column}", spelled(&self.shape)),
        }
    }
}

/// Looks at a folder.
///
/// # Errors
/// [`SurveyError`]
pub fn survey(directory: &Path) -> Result<Survey, SurveyError> {
    let format = registry::detect(directory, Split::Train, &ReadOptions::default())?;
    let test = format.is_in(directory, Split::Test)?;
    let name = format.about().name;
    let survey = if name == Images.about().name {
        of_images(directory, test)?
    } else if name == Csv.about().name {
        table::of(directory, test)?
    } else if name == Safetensors.about().name || name == Idx.about().name {
        of_numbered(directory, format, test)?
    } else if let Some(cifar) = [Cifar::TEN, Cifar::HUNDRED].iter().find(|cifar| cifar.about().name == name) {
        let set =
            if cifar.about().name == Cifar::TEN.about().name { &sets::CIFAR_10 } else { &sets::CIFAR_100 };
        let classes = if set.name == sets::CIFAR_10.name { 10 } else { 100 };
        found(set, format, cifar::SHAPE.to_vec(), Labels::Numbers(classes), test)
    } else {
        let labels = Labels::Numbers(text::VOCABULARY);
        let mut survey = found(&sets::TEXT, format, vec![text::WINDOW], labels, true);
        survey.train = Some(format.load(directory, Split::Train, &ReadOptions::default())?.len());
        survey
    };
    match unfit_names(&survey.labels) {
        problems if problems.is_empty() => Ok(survey),
        problems => Err(SurveyError::Problems { directory: directory.display().to_string(), problems }),
    }
}

/// What is wrong with the names of classes: no configuration takes these, and a terminal would obey them.
fn unfit_names(labels: &Labels) -> Vec<String> {
    let Labels::Names(names) = labels else { return Vec::new() };
    let unfit = names.iter().filter(|name| name.chars().any(char::is_control));
    unfit.map(|name| format!("the class {name:?} has a control character in its name: rename it")).collect()
}

fn found(set: &'static DataSet, format: Format, shape: Vec<usize>, labels: Labels, test: bool) -> Survey {
    Survey {
        set,
        format,
        shape,
        labels,
        column: None,
        text: None,
        features: Vec::new(),
        vocabulary: None,
        train: None,
        test,
        moments: None,
        notes: Vec::new(),
    }
}

fn of_images(directory: &Path, test: bool) -> Result<Survey, SurveyError> {
    let mut names = BTreeSet::new();
    for split in [Split::Train, Split::Test] {
        if let Some(folder) = images::folder(directory, split).filter(|folder| folder.is_dir()) {
            names.extend(images::class_folders(&folder)?);
        }
    }
    let names: Vec<String> = names.into_iter().collect();
    let labels = Labels::Names(names);
    let files = images::files(directory, Split::Train, &labels)?;
    let step = files.len().div_ceil(IMAGES).max(1);
    let sizes: Vec<(usize, usize)> =
        files.iter().step_by(step).filter_map(|file| images::size(file)).collect();
    let first = files.iter().find_map(|file| images::colours(file)).unwrap_or(3);
    let mut notes = Vec::new();
    let same = sizes.windows(2).all(|pair| pair[0] == pair[1]);
    let shape = match sizes.first() {
        Some(&(height, width)) if same && height.max(width) <= NATURAL => vec![first, height, width],
        _ => {
            let least = sizes.iter().map(|&(height, width)| height.min(width)).min().unwrap_or(32);
            let side = if least >= NATURAL { NATURAL } else { 32 };
            let (from, to) = range(&sizes);
            notes.push(format!(
                "images are {from} to {to} pixels and are brought to {side}x{side}: data.shape says otherwise"
            ));
            vec![first, side, side]
        }
    };
    let train = Some(files.len());
    Ok(Survey { train, notes, ..found(&images::SET, &Images, shape, labels, test) })
}

/// The smallest and the largest size, as text.
fn range(sizes: &[(usize, usize)]) -> (String, String) {
    let by_area = |size: &&(usize, usize)| size.0 * size.1;
    let text =
        |size: Option<&(usize, usize)>| size.map_or_else(|| "?".to_owned(), |(h, w)| format!("{h}x{w}"));
    (text(sizes.iter().min_by_key(by_area)), text(sizes.iter().max_by_key(by_area)))
}

/// Files with as many numbers to learn of each sample.
fn of_values(directory: &Path, outputs: usize, test: bool) -> Result<Survey, SurveyError> {
    let labels = |flags| Labels::Values { outputs, names: Vec::new(), flags };
    let options = ReadOptions { labels: Some(labels(false)), ..ReadOptions::default() };
    let dataset = Safetensors.load(directory, Split::Train, &options)?;
    let are_flags = outputs > 1 && dataset.targets().values().iter().all(|value| [0.0, 1.0].contains(value));
    let shape = dataset.shape().to_vec();
    let mut survey = found(&super::safetensors::SET, &Safetensors, shape, labels(are_flags), test);
    survey.train = Some(dataset.len());
    if are_flags {
        let note =
            "y holds 0 and 1 alone, which are taken for classes that apply or not: model.task says otherwise";
        survey.notes.push(note.to_owned());
    }
    Ok(survey)
}

/// Files whose labels are numbers: their samples are read.
fn of_numbered(directory: &Path, format: Format, test: bool) -> Result<Survey, SurveyError> {
    let is_safetensors = format.about().name == Safetensors.about().name;
    if let Some(outputs) = numbers_to_learn(directory, Split::Train).filter(|_| is_safetensors) {
        return of_values(directory, outputs, test);
    }
    let most = Labels::Numbers(super::error::MAX_CLASSES);
    let options = ReadOptions { labels: Some(most), ..ReadOptions::default() };
    let dataset = format.load(directory, Split::Train, &options)?;
    let stored = dataset.classes();
    let seen = dataset.labels().iter().max().map_or(1, |&label| label as usize + 1);
    let classes = if stored == super::error::MAX_CLASSES { seen } else { stored };
    // What follows a token may be any of the vocabulary.
    let classes = if dataset.labels_each() > 1 { stored } else { classes };
    let set = if format.about().name == Idx.about().name { &sets::IDX } else { &super::safetensors::SET };
    let mut survey = found(set, format, dataset.shape().to_vec(), Labels::Numbers(classes), test);
    survey.train = Some(dataset.len());
    if let (Samples::Tokens(tokens), 1) = (dataset.samples(), dataset.labels_each()) {
        let most = tokens.iter().max().map_or(0, |&token| usize::from(token));
        survey.vocabulary = Some(most + 1);
        survey.notes.push(format!("the largest token is {most}: model.vocabulary says how many there are"));
    }
    survey.notes.push(format!("the largest label is {}: data.classes says otherwise", seen - 1));
    Ok(survey)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Dataset, safetensors};

    fn image(path: &Path, side: u32) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        image::RgbImage::from_pixel(side, side, image::Rgb([9, 9, 9])).save(path).unwrap();
    }

    #[test]
    fn images_show_their_classes_and_their_shape() {
        let folder = tempfile::tempdir().unwrap();
        for (name, side) in [("train/dog/1.png", 20), ("train/cat/1.png", 20), ("test/fox/1.png", 20)] {
            image(&folder.path().join(name), side);
        }
        std::fs::write(folder.path().join("train/dog/Thumbs.db"), "x").unwrap();
        let found = survey(folder.path()).unwrap();
        let names = ["cat", "dog", "fox"].map(str::to_owned).to_vec();
        assert_eq!(
            (found.labels.clone(), &found.shape[..], found.test),
            (Labels::Names(names), &[3, 20, 20][..], true)
        );
        assert_eq!(
            found.in_words(),
            "2 samples of shape 3x20x20 from images by class, classes cat, dog, fox"
        );
        image(&folder.path().join("train/dog/2.png"), 200);
        let found = survey(folder.path()).unwrap();
        assert_eq!(found.shape, [3, 32, 32]);
        assert!(found.notes[0].contains("20x20 to 200x200"), "{:?}", found.notes);
    }

    #[test]
    fn a_class_whose_name_would_steer_a_terminal_is_refused_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["train/dog/1.png", "train/\u{1b}[31mcat/1.png", "train/f\nox/1.png"] {
            image(&folder.path().join(name), 20);
        }
        let said = survey(folder.path()).unwrap_err().to_string();
        assert!(said.contains(r#""\u{1b}[31mcat""#) && said.contains(r#""f\nox""#), "{said}");
        assert!(!said.contains('\u{1b}') && !said.contains('\n'), "{said}");
    }

    #[test]
    fn a_table_shows_its_labels_and_every_column_that_is_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let table = |text: &str| {
            std::fs::write(folder.path().join("train.csv"), text).unwrap();
            survey(folder.path())
        };
        let named = table("a,species,b\n1,setosa,2\n3,virginica,4\n").unwrap();
        assert_eq!(named.labels, Labels::Names(vec!["setosa".to_owned(), "virginica".to_owned()]));
        assert_eq!((named.column.as_deref(), &named.shape[..]), (Some("species"), &[2][..]));
        assert_eq!(named.moments, Some((vec![2.0, 3.0], vec![1.0, 1.0])));
        assert_eq!(named.features, ["a", "b"]);
        assert!(
            table("a,species,a\n1,setosa,2\n3,virginica,4\n").unwrap().features.is_empty(),
            "two of one name"
        );
        let numbers = table("a,b,label\n1,2,0\n1,2,2\n1,2,1\n").unwrap();
        assert_eq!((numbers.labels, numbers.column.as_deref()), (Labels::Numbers(3), Some("label")));
        let text = table("id,name,x,label\nq1,anna,1,0\nq2,otto,2,1\n").unwrap_err().to_string();
        for part in ["`id` holds \"q1\"", "`name` holds \"anna\"", "labels are taken from column `label`"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(table("a,label\n").is_err());
    }

    #[test]
    fn a_column_of_sentences_is_taken_for_texts() {
        let folder = tempfile::tempdir().unwrap();
        let table = |text: &str| {
            std::fs::write(folder.path().join("train.csv"), text).unwrap();
            survey(folder.path()).unwrap()
        };
        let rows = "1,\"what a fine day\",glad,q1\n2,\"it rains and rains\",sad,q2\n";
        for header in ["n,said,mood,id\n", "n,said,label,id\n"] {
            let found = table(&format!("{header}{rows}"));
            // Without a name that is known the last column that holds no sentences has the labels.
            let label = if header.contains("label") { "label" } else { "id" };
            assert_eq!((found.text.as_deref(), found.column.as_deref()), (Some("said"), Some(label)));
            assert_eq!((&found.shape[..], found.moments, found.train), (&[64][..], None, Some(2)));
            assert!(found.notes[0].contains("the first 64 bytes count"), "{:?}", found.notes);
        }
        std::fs::write(
            folder.path().join("train.csv"),
            "a,b,said,label\n1,2,\"on the left side\",0\n3,4,\"on the right\",1\n",
        )
        .unwrap();
        let remark = survey(folder.path()).unwrap_err().to_string();
        assert!(remark.contains("`said`") && remark.contains("data.text"), "{remark}");
        let words = table("mood,said\nglad,\"what a fine day\"\nsad,\"it rains and rains\"\n");
        assert_eq!((words.text.as_deref(), words.column.as_deref()), (Some("said"), Some("mood")));
    }

    #[test]
    fn numbers_to_learn_are_told_from_labels() {
        let folder = tempfile::tempdir().unwrap();
        let survey_of = |values: &[f32]| {
            let samples = Samples::Floats(vec![0.5; 4]);
            let set = Dataset::valued(vec![2], samples, values.to_vec(), values.len() / 2).unwrap();
            safetensors::write_split(folder.path(), Split::Train, &set).unwrap();
            survey(folder.path()).unwrap()
        };
        let of = |outputs, flags| Labels::Values { outputs, names: Vec::new(), flags };
        assert_eq!(survey_of(&[0.5, 2.0]).labels, of(1, false));
        assert_eq!(survey_of(&[1.0, 0.0]).labels, of(1, false));
        assert_eq!(survey_of(&[1.0, 0.0, 1.0, 1.0]).labels, of(2, true));
        assert_eq!(survey_of(&[1.0, 0.0, 1.0, 2.0]).labels, of(2, false));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("train.csv"), "area,price\n1,2.5\n2,3\n").unwrap();
        let found = survey(folder.path()).unwrap();
        assert_eq!((&found.labels, found.column.as_deref()), (&of(1, false), Some("price")));
        assert!(found.notes[0].contains("since it holds fractions"), "{:?}", found.notes);
        assert!(found.in_words().contains("a number to learn in column `price`"), "{}", found.in_words());
    }

    #[test]
    fn numbered_files_show_their_largest_label() {
        let folder = tempfile::tempdir().unwrap();
        let set = Dataset::labelled(vec![2], Samples::Floats(vec![0.5; 6]), vec![0, 4, 1], 5).unwrap();
        safetensors::write_split(folder.path(), Split::Train, &set).unwrap();
        let found = survey(folder.path()).unwrap();
        assert_eq!((found.labels, found.set.name, found.train), (Labels::Numbers(5), "safetensors", Some(3)));
        let texts = Dataset::labelled(vec![2], Samples::Tokens(vec![7, 0, 3, 1]), vec![1, 0], 2).unwrap();
        safetensors::write_split(folder.path(), Split::Train, &texts).unwrap();
        let found = survey(folder.path()).unwrap();
        assert_eq!((found.vocabulary, found.labels), (Some(8), Labels::Numbers(2)));
        let folder = tempfile::tempdir().unwrap();
        let set = Dataset::new(vec![1, 2, 2], vec![0; 8], [6_u8, 0], 10).unwrap();
        super::super::idx::write_split(folder.path(), Split::Train, &set).unwrap();
        let found = survey(folder.path()).unwrap();
        assert_eq!((found.labels, found.set.name, found.test), (Labels::Numbers(7), "idx", false));
    }
}
