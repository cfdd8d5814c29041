//! CSV tables: `train.csv` and `test.csv`, with a header. One column, named by the reader, holds the labels; all others
//! are features, finite numbers in the order of the header.
//!
//! For other tasks than classification there is a column for each number to learn, named by the reader.
//!
//! A sample has the shape `[columns]`, or another one of as many values. Labels are class numbers or names, see
//! [`Labels`]. Messages number the lines of the file, the header being line 1.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use csv::{ByteRecord, StringRecord};
use models::Targets;
use models::shape::spelled;
use thiserror::Error;

use super::error::{FormatError, existing_file};
use super::format::{About, Evidence, MAX_CONTENT, SampleFormat};
use super::line_breaks::LineFeeds;
use super::{DataError, DataSet, Dataset, Labels, Lacks, ReadOptions, Samples, SetSamples, Skipped, Split};

const MAX_COLUMNS: usize = 1 << 20;

/// `train.csv` and `test.csv`. Without labels all columns are features but [`ReadOptions::column`], which may be absent.
#[derive(Debug)]
pub struct Csv;

/// Features of the user's own, as a configuration names them.
pub const SET: DataSet = DataSet {
    name: "csv",
    format: Some(&Csv),
    files: "train.csv and test.csv",
    labels_each: Some(1),
    samples: SetSamples::Own { by_names: true, by_number: true },
    training_samples: None,
    moments: None,
};

impl SampleFormat for Csv {
    fn about(&self) -> About {
        let files = "train.csv and test.csv with a header; one column holds the labels (--label)";
        About { name: "a CSV table", help: ("CSV", files), evidence: Evidence::Common }
    }

    fn signature(&self, split: Split) -> String {
        format!("{}.csv", split.name())
    }

    fn load(&self, directory: &Path, split: Split, options: &ReadOptions) -> Result<Dataset, DataError> {
        let (path, file) = open(directory, split)?;
        if split == Split::Test && options.labels.is_some() {
            check_order(directory, &path, options)?;
        }
        read(file, &path, options)
    }
}

/// Errors of tables.
#[derive(Debug, Error)]
enum CsvError {
    #[error("cannot be read as CSV: {reason}")]
    Malformed { reason: String },
    #[error("{found} columns are named `{column}`; there are {columns}; one of them is to hold the labels")]
    LabelColumn { column: String, found: usize, columns: String },
    #[error(
        "has the feature `{found}` where train.csv has `{expected}`: put the columns of both in one order, since a model knows them by \
         their places"
    )]
    ColumnOrder { found: String, expected: String },
    #[error(
        "{outputs} numbers are to be learned, and their columns have no names: give them (data.targets in a configuration)"
    )]
    NoNames { outputs: usize },
    #[error("{columns} columns of features do not make samples of shape {}", spelled(.shape))]
    Columns { columns: usize, shape: Vec<usize> },
    #[error("has {found} fields where the header has {columns}")]
    Fields { found: usize, columns: usize },
    #[error(
        "a quotation mark is not closed, and hides what follows: close it in the same line, or write it twice if it belongs to \
         the text"
    )]
    OpenQuote,
    #[error("has no label in column `{column}`")]
    NoLabel { column: String },
    #[error("column `{column}` holds {found:?}, which is no finite number")]
    NotNumber { column: String, found: String },
}

impl FormatError for CsvError {
    fn lacks_labels(&self) -> bool {
        matches!(self, Self::LabelColumn { found: 0, .. })
    }

    fn lacks(&self) -> Option<Lacks> {
        matches!(self, Self::LabelColumn { .. }).then_some(Lacks::LabelColumn)
    }
}

/// Checks that the test split has its features in the order of the training split, if there is one: a model knows them
/// by their places alone.
fn check_order(directory: &Path, path: &Path, options: &ReadOptions) -> Result<(), DataError> {
    let features = |split: Split| {
        let header = csv::Reader::from_reader(open(directory, split).ok()?.1).headers().ok()?.clone();
        let names = header.iter().map(|name| name.trim().to_owned());
        Some(names.filter(|name| *name != options.column).collect::<Vec<_>>())
    };
    let (Some(train), Some(test)) = (features(Split::Train), features(Split::Test)) else { return Ok(()) };
    let differ = test.into_iter().zip(train).find(|(test, train)| test != train);
    differ.map_or(Ok(()), |(found, expected)| Err(CsvError::ColumnOrder { found, expected }.in_file(path)))
}

fn open(directory: &Path, split: Split) -> Result<(PathBuf, impl Read), DataError> {
    let path = existing_file(directory, vec![Csv.signature(split)])?;
    let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (length, file) = opened.map_err(|error| DataError::from(error).in_file(&path))?;
    if length > MAX_CONTENT {
        let problem = DataError::TooLarge { dimensions: vec![length as usize], limit: MAX_CONTENT };
        return Err(problem.in_file(&path));
    }
    // Numbers have at least as many bytes as half of an `f32`: memory is bounded by the file.
    Ok((path, file.take(MAX_CONTENT)))
}

/// Reads a table from any source. `path` is for messages.
pub fn read(input: impl Read, path: &Path, options: &ReadOptions) -> Result<Dataset, DataError> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(LineFeeds::new(input));
    let malformed = |error: csv::Error| CsvError::Malformed { reason: error.to_string() }.in_file(path);
    let header = reader.headers().map_err(malformed)?.clone();
    let columns = Columns::of(&header, options).map_err(|error| error.in_file(path))?;
    let features = header.len() - columns.targets.len();
    let shape = options.shape.clone().unwrap_or_else(|| vec![features]);
    let wanted = shape.iter().try_fold(1_usize, |product, &axis| product.checked_mul(axis));
    if features == 0 || features > MAX_COLUMNS || wanted != Some(features) {
        return Err(CsvError::Columns { columns: features, shape }.in_file(path));
    }
    let (mut values, mut targets, mut skipped) = (Vec::new(), Targets::default(), Skipped::default());
    let mut raw = ByteRecord::new();
    while reader.read_byte_record(&mut raw).map_err(malformed)? {
        let line = raw.position().map_or(0, csv::Position::line);
        let at = |error: DataError| error.at(format!("line {line}")).in_file(path);
        // An error even where samples are skipped: it is unknown how many rows the quotation hides.
        if raw.iter().any(|field| field.contains(&b'\n')) {
            return Err(at(CsvError::OpenQuote.into()));
        }
        let begin = values.len();
        // Text that is not UTF-8 is an error of one row only.
        let record = StringRecord::from_byte_record(std::mem::take(&mut raw))
            .map_err(|_| CsvError::Malformed { reason: "it is not UTF-8".to_owned() }.into());
        let found = record.and_then(|record| {
            let found = columns.parse(&record, &mut values);
            // Its memory is for the next one.
            raw = record.into_byte_record();
            found
        });
        match found {
            Ok(found) => targets.extend_from(&found, 0..found.len()),
            Err(error) => {
                values.truncate(begin);
                skipped.take(options.on_error, at(error))?;
            }
        }
    }
    let samples = Samples::Floats(values);
    let dataset = match columns.labels {
        Some(labels) => Dataset::learned(shape, samples, targets, labels.classes())
            .map(|dataset| dataset.named(labels.names().to_vec())),
        None => Dataset::unlabelled(shape, samples),
    };
    skipped.finish(dataset, path)
}

/// The columns of a table.
struct Columns<'a> {
    header: &'a StringRecord,
    /// The columns of what is to be learned, as far as they are there.
    targets: Vec<usize>,
    /// How labels are written, if they are read.
    labels: Option<&'a Labels>,
}

impl<'a> Columns<'a> {
    fn of(header: &'a StringRecord, options: &'a ReadOptions) -> Result<Self, CsvError> {
        let labels = options.labels.as_ref();
        let names = match labels {
            Some(Labels::Values { names, .. }) if !names.is_empty() => names.clone(),
            Some(&Labels::Values { outputs, .. }) if outputs > 1 => {
                return Err(CsvError::NoNames { outputs });
            }
            Some(_) => vec![options.column.clone()],
            None => [std::slice::from_ref(&options.column), &options.left_out].concat(),
        };
        let mut targets = Vec::new();
        for column in &names {
            let named = header.iter().enumerate().filter(|(_, name)| name.trim() == column);
            match named.map(|(at, _)| at).collect::<Vec<_>>()[..] {
                [at] => targets.push(at),
                [] if labels.is_none() => {}
                ref found => {
                    let columns = header.iter().take(20).collect::<Vec<_>>().join(", ");
                    return Err(CsvError::LabelColumn {
                        column: column.clone(),
                        found: found.len(),
                        columns,
                    });
                }
            }
        }
        Ok(Self { header, targets, labels })
    }

    /// Appends the features of a row and returns what is to be learned of it, if labels are read.
    fn parse(&self, record: &StringRecord, values: &mut Vec<f32>) -> Result<Targets, DataError> {
        let (header, columns) = (self.header, self.header.len());
        if record.len() != columns {
            return Err(CsvError::Fields { found: record.len(), columns }.into());
        }
        let targets = match self.labels {
            None => Targets::default(),
            Some(labels) => self.targets(record, labels)?,
        };
        for (at, field) in record.iter().enumerate().filter(|(at, _)| !self.targets.contains(at)) {
            match field.trim().parse::<f32>() {
                Ok(value) if value.is_finite() => values.push(value),
                _ => {
                    let found = field.chars().take(60).collect();
                    return Err(CsvError::NotNumber { column: header[at].to_owned(), found }.into());
                }
            }
        }
        Ok(targets)
    }

    fn targets(&self, record: &StringRecord, labels: &Labels) -> Result<Targets, DataError> {
        let (mut classes, mut values) = (Vec::new(), Vec::new());
        for &at in &self.targets {
            let (written, column) = (record[at].trim(), || self.header[at].to_owned());
            if written.is_empty() {
                return Err(CsvError::NoLabel { column: column() }.into());
            }
            if let &Labels::Values { flags, .. } = labels {
                let value = Labels::check_value(written.parse().ok(), flags, &written);
                values.push(value.map_err(|error| error.at(format!("column `{}`", column())))?);
            } else {
                classes.push(labels.class(written)?);
            }
        }
        Ok(if values.is_empty() { Targets::Classes(classes) } else { Targets::Values(values) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::data::OnError;

    fn options() -> ReadOptions {
        let labels = Labels::Names(vec!["cat".to_owned(), "dog".to_owned()]);
        ReadOptions { labels: Some(labels), column: "kind".to_owned(), ..ReadOptions::default() }
    }

    fn unlabelled() -> ReadOptions {
        ReadOptions { labels: None, ..options() }
    }

    fn load(text: &[u8], options: &ReadOptions) -> Result<Dataset, DataError> {
        read(text, Path::new("train.csv"), options)
    }

    #[test]
    fn numbers_to_learn_have_columns_of_their_own() {
        let values = |names: &[&str], outputs, flags| ReadOptions {
            labels: Some(Labels::Values {
                outputs,
                names: names.iter().map(|name| (*name).to_owned()).collect(),
                flags,
            }),
            column: "price".to_owned(),
            ..ReadOptions::default()
        };
        let table = b"area,price,rooms,rent\n50,1.5,2,1\n70,2.5,3,0\n";
        let one = load(b"area,price\n50,1.5\n70,-2e3\n", &values(&[], 1, false)).unwrap();
        assert_eq!((one.targets().values(), one.shape(), one.classes()), (&[1.5, -2e3][..], &[1][..], 1));
        // In the order of the names, not of the columns.
        let two = load(table, &values(&["rent", "price"], 2, false)).unwrap();
        assert_eq!(two.targets().values(), [1.0, 1.5, 0.0, 2.5]);
        assert_eq!(
            (two.samples(), two.class_names()),
            (&Samples::Floats(vec![50.0, 2.0, 70.0, 3.0]), &["rent".to_owned(), "price".to_owned()][..])
        );
        let refused = |table: &[u8], options: &ReadOptions| load(table, options).unwrap_err().to_string();
        let flag = refused(table, &values(&["rent", "price"], 2, true));
        assert!(flag.contains("line 2") && flag.contains("`price`") && flag.contains("0 or 1"), "{flag}");
        let unnamed = refused(table, &values(&[], 2, false));
        assert!(unnamed.contains("data.targets"), "{unnamed}");
        let absent = load(table, &values(&["rent", "tax"], 2, false)).unwrap_err();
        assert!(absent.lacks_labels() && absent.to_string().contains("`tax`"), "{absent}");
        // To be asked about, rows need none of them; one that is given is no feature.
        let blind = load(table, &values(&["rent", "tax"], 2, false).without_labels()).unwrap();
        assert_eq!((blind.shape(), blind.targets().is_empty()), (&[2][..], true));
        for bad in ["", "dear", "nan", "inf"] {
            let error = refused(format!("area,price\n1,{bad}\n").as_bytes(), &values(&[], 1, false));
            assert!(error.contains("line 2") && error.contains("`price`"), "{error}");
        }
        let skip = ReadOptions { on_error: OnError::Skip, ..values(&["rent"], 1, true) };
        let some = load(b"area,rent\n1,2\n2,1\n", &skip).unwrap();
        assert_eq!((some.targets().values(), some.skipped().in_words("row").is_some()), (&[1.0][..], true));
    }

    #[test]
    fn a_table_is_read_column_by_column() {
        let text = b"a,kind,b\n1, dog ,2.5\n\"-3\",cat,1e-3\n";
        let dataset = load(text, &options()).unwrap();
        let skipped = dataset.skipped();
        assert_eq!((dataset.shape(), dataset.labels(), dataset.classes()), (&[2][..], &[1, 0][..], 2));
        assert_eq!(dataset.samples(), &Samples::Floats(vec![1.0, 2.5, -3.0, 1e-3]));
        assert_eq!(skipped, &Skipped::default());
        let image = ReadOptions { shape: Some(vec![1, 2, 1]), ..options() };
        assert_eq!(load(text, &image).unwrap().shape(), [1, 2, 1]);
        let numbers = ReadOptions { labels: Some(Labels::Numbers(3)), ..options() };
        assert_eq!(load(b"kind,a\n2,0\n", &numbers).unwrap().labels(), [2]);
    }

    #[test]
    fn without_labels_all_columns_are_features_but_the_one_called_so() {
        let load = |text: &[u8]| load(text, &unlabelled());
        let values = Samples::Floats(vec![1.0, 2.5, -3.0, 4.0]);
        // What stands in it is not looked at.
        for text in [&b"a,b\n1,2.5\n-3,4\n"[..], b"a,kind,b\n1,what,2.5\n-3,,4\n"] {
            let dataset = load(text).unwrap();
            assert_eq!((dataset.samples(), dataset.shape(), dataset.len()), (&values, &[2][..], 2));
            assert_eq!((dataset.classes(), dataset.labels().len(), dataset.class_names().len()), (0, 0, 0));
        }
        let says = |text: &[u8], said: &str| {
            let error = load(text).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        };
        says(b"kind,a,kind\n1,2,3\n", "2 columns are named `kind`");
        says(b"a,b\n1,cat\n", "column `b` holds \"cat\"");
        says(b"kind\ncat\n", "0 columns of features");
        says(b"a,b\n", "holds no sample");
    }

    #[test]
    fn a_wrong_row_is_named_or_skipped_and_counted() {
        for (row, said) in [
            ("1,,2", "no label in column `kind`"),
            ("1,bird,2", "label \"bird\""),
            ("1,cat", "2 fields where the header has 3"),
            ("1,cat,2,3", "4 fields"),
            ("1,cat,x", "column `b` holds \"x\""),
            ("1,cat,inf", "column `b` holds \"inf\""),
            ("1,cat,", "column `b` holds \"\""),
        ] {
            let text = format!("a,kind,b\n1,dog,2\n{row}\n3,cat,4\n");
            let error = load(text.as_bytes(), &options()).unwrap_err().to_string();
            assert!(error.starts_with("train.csv: line 3: ") && error.contains(said), "{error}");
            let excel = load(text.replace('\n', "\r\n").as_bytes(), &options()).unwrap_err().to_string();
            assert_eq!(excel, error, "with the line breaks of Windows");
            let skip = ReadOptions { on_error: OnError::Skip, ..options() };
            let dataset = load(text.as_bytes(), &skip).unwrap();
            let skipped = dataset.skipped();
            assert_eq!(dataset.samples(), &Samples::Floats(vec![1.0, 2.0, 3.0, 4.0]), "{row}");
            assert_eq!((skipped.count, &skipped.reasons[..]), (1, &[error][..]));
        }
        let skip = ReadOptions { on_error: OnError::Skip, ..options() };
        let dataset = load(b"a,kind,b\n1,c\xff,2\n1,cat,2\n", &skip).unwrap();
        let skipped = dataset.skipped();
        assert_eq!((dataset.len(), skipped.count), (1, 1));
    }

    #[test]
    fn features_of_both_splits_stand_in_one_order() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let test = || Csv.load(folder.path(), Split::Test, &options());
        write("test.csv", "b,a,kind\n1,2,cat\n");
        assert!(test().is_ok(), "no training split is beside it");
        // The label may stand anywhere, and need not be there.
        for (train, same) in
            [("kind, b ,a\ncat,1,2\n", true), ("b,a\n1,2\n", true), ("a,b,kind\n1,2,cat\n", false)]
        {
            write("train.csv", train);
            let error = test().err().map(|error| error.to_string());
            assert_eq!(error.is_none(), same, "{train:?}: {error:?}");
            assert!(
                error.is_none_or(
                    |error| error.contains("test.csv: has the feature `b` where train.csv has `a`")
                )
            );
        }
    }

    #[test]
    fn a_wrong_table_is_an_error_whatever_is_skipped() {
        let skip = ReadOptions { on_error: OnError::Skip, ..options() };
        let says = |text: &[u8], options: &ReadOptions, said: &str| {
            let error = load(text, options).unwrap_err().to_string();
            assert!(error.starts_with("train.csv: ") && error.contains(said), "{error}");
        };
        says(b"a,b\n1,2\n", &skip, "0 columns are named `kind`; there are a, b");
        says(b"kind,kind\ncat,cat\n", &skip, "2 columns are named");
        says(b"kind\ncat\n", &skip, "0 columns of features");
        says(b"", &skip, "0 columns are named");
        says(b"a,kind\n", &skip, "holds no sample");
        says(b"a,kind\nx,cat\n", &skip, "holds no sample");
        // Two rows would be lost, and one counted.
        for rest in ["", "4,dog\n", "4,\"dog\n"] {
            let text = format!("a,kind\n1,cat\n2,\"dog\n3,cat\n{rest}");
            says(text.as_bytes(), &skip, "line 3: a quotation mark is not closed");
        }
        says(b"a,kind\n1,cat\n2,\"dog\n3,\xff\n", &skip, "line 3: a quotation mark is not closed");
        assert!(load(b"a,kind\n\"1\",\"cat\"\n", &skip).is_ok());
        let ignored = load(b"a,kind\n1,\"cat\n2,cat\n", &ReadOptions { labels: None, ..skip.clone() });
        assert!(ignored.unwrap_err().to_string().contains("line 2: a quotation mark"));
        let shape = ReadOptions { shape: Some(vec![3]), ..skip };
        says(b"a,kind\n1,cat\n", &shape, "1 columns of features do not make samples of shape 3");
        let endless = ReadOptions { shape: Some(vec![1 << 40, 1 << 40]), ..shape };
        says(b"a,kind\n1,cat\n", &endless, "1 columns of features do not make samples of shape");
        let folder = tempfile::tempdir().unwrap();
        let absent = Csv.load(folder.path(), Split::Train, &options()).unwrap_err().to_string();
        assert!(absent.contains("contains no `train.csv`"), "{absent}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>, head: bool, skip: bool) {
            let mut text = if head { b"a,kind,b\n".to_vec() } else { Vec::new() };
            text.extend(bytes);
            let on_error = if skip { OnError::Skip } else { OnError::Stop };
            let options = ReadOptions { on_error, ..options() };
            let _ = load(&text, &options);
            let _ = load(&text, &ReadOptions { labels: None, ..options });
        }
    }
}
