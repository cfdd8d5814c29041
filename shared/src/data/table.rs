//! Tables as CSV: `train.csv` and `test.csv`, with a header. One column, named by the reader, holds the labels; all others
//! are features, finite numbers in the order of the header.
//!
//! A sample has the shape `[columns]`, or another one of as many values. Labels are class numbers or names, see
//! [`Labels`](super::reading::Labels). Rows are counted as the lines of the file, the header being line 1.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use csv::{ByteRecord, StringRecord};

use super::error::existing_file;
use super::idx::MAX_CONTENT;
use super::reading::{Reading, Skipped, at};
use super::{DataError, Dataset, Samples, Split};

/// The most columns of a table.
const MOST_COLUMNS: usize = 1 << 20;

/// The name of a split's file.
#[must_use]
pub fn file_name(split: Split) -> String {
    format!("{}.csv", split.name())
}

/// Reads a split.
///
/// # Errors
/// [`DataError`], which names the file, and the line for a row.
pub fn load_split(directory: &Path, split: Split, reading: &Reading) -> Result<Dataset, DataError> {
    let (path, file) = open(directory, split)?;
    if split == Split::Test {
        check_order(directory, &path, reading)?;
    }
    read(file, &path, reading)
}

/// Whether the test split has the features of the training split beside it in the same order, if there is one: a model knows them
/// by their places alone.
fn check_order(directory: &Path, path: &Path, reading: &Reading) -> Result<(), DataError> {
    let features = |split: Split| {
        let header = csv::Reader::from_reader(open(directory, split).ok()?.1).headers().ok()?.clone();
        let names = header.iter().map(|name| name.trim().to_owned());
        Some(names.filter(|name| *name != reading.column).collect::<Vec<_>>())
    };
    let (Some(train), Some(test)) = (features(Split::Train), features(Split::Test)) else { return Ok(()) };
    let differ = test.into_iter().zip(train).find(|(test, train)| test != train);
    differ.map_or(Ok(()), |(found, expected)| Err(DataError::ColumnOrder { found, expected }.in_file(path)))
}

/// Reads a split without its labels, which need not be there: all columns are features but for the one that the reader calls
/// the labels'.
///
/// # Errors
/// As [`load_split`].
pub fn load_unlabelled(directory: &Path, split: Split, reading: &Reading) -> Result<Dataset, DataError> {
    let (path, file) = open(directory, split)?;
    read_unlabelled(file, &path, reading)
}

fn open(directory: &Path, split: Split) -> Result<(PathBuf, impl Read), DataError> {
    let path = existing_file(directory, file_name(split))?;
    let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (length, file) = opened.map_err(|error| DataError::from(error).in_file(&path))?;
    if length > MAX_CONTENT {
        let problem = DataError::TooLarge { dimensions: vec![length as usize], limit: MAX_CONTENT };
        return Err(problem.in_file(&path));
    }
    // Numbers have at least as many bytes as half of an `f32`: memory is bounded by the file.
    Ok((path, file.take(MAX_CONTENT)))
}

/// Reads a table from anywhere. `path` is for messages.
pub fn read(input: impl Read, path: &Path, reading: &Reading) -> Result<Dataset, DataError> {
    let labels = |found: &[usize]| match found {
        &[at] => Some(LabelColumn::Read(at)),
        _ => None,
    };
    table(input, path, reading, &labels)
}

/// The same without labels.
pub fn read_unlabelled(input: impl Read, path: &Path, reading: &Reading) -> Result<Dataset, DataError> {
    let labels = |found: &[usize]| match found {
        [] => Some(LabelColumn::Absent),
        &[at] => Some(LabelColumn::LeftOut(at)),
        _ => None,
    };
    table(input, path, reading, &labels)
}

/// The labels of a table.
#[derive(Clone, Copy)]
enum LabelColumn {
    /// In this column.
    Read(usize),
    /// In this column, and not looked at.
    LeftOut(usize),
    /// Nowhere.
    Absent,
}

impl LabelColumn {
    fn column(self) -> Option<usize> {
        match self {
            Self::Read(at) | Self::LeftOut(at) => Some(at),
            Self::Absent => None,
        }
    }
}

/// Reads a table whose labels are what `labels` says of the columns of the name looked for.
fn table(
    input: impl Read,
    path: &Path,
    reading: &Reading,
    labels: &dyn Fn(&[usize]) -> Option<LabelColumn>,
) -> Result<Dataset, DataError> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(input);
    let damaged = |error: csv::Error| DataError::Csv { reason: error.to_string() }.in_file(path);
    let header = reader.headers().map_err(damaged)?.clone();
    let named = header.iter().enumerate().filter(|(_, name)| name.trim() == reading.column);
    let named: Vec<usize> = named.map(|(at, _)| at).collect();
    let Some(label) = labels(&named) else {
        let columns = header.iter().take(20).collect::<Vec<_>>().join(", ");
        let (column, found) = (reading.column.clone(), named.len());
        return Err(DataError::LabelColumn { column, found, columns }.in_file(path));
    };
    let columns = header.len() - usize::from(label.column().is_some());
    let shape = reading.shape.clone().unwrap_or_else(|| vec![columns]);
    let wanted = shape.iter().try_fold(1_usize, |product, &axis| product.checked_mul(axis));
    if columns == 0 || columns > MOST_COLUMNS || wanted != Some(columns) {
        return Err(DataError::Columns { columns, shape }.in_file(path));
    }
    let (mut values, mut classes, mut skipped) = (Vec::new(), Vec::new(), Skipped::default());
    let mut raw = ByteRecord::new();
    while reader.read_byte_record(&mut raw).map_err(damaged)? {
        let line = raw.position().map_or(0, csv::Position::line);
        // Whatever it says: nobody knows how many rows it hides.
        if raw.iter().any(|field| field.contains(&b'\n')) {
            return Err(at(format!("line {line}"), path, DataError::OpenQuote));
        }
        let begin = values.len();
        // Text that is not UTF-8 is one row's fault.
        let record = StringRecord::from_byte_record(std::mem::take(&mut raw))
            .map_err(|_| DataError::Csv { reason: "it is not UTF-8".to_owned() });
        let class = record.and_then(|record| {
            let class = row(&record, &header, label, reading, &mut values);
            // Its memory is for the next one.
            raw = record.into_byte_record();
            class
        });
        match class {
            Ok(class) => classes.extend(class),
            Err(error) => {
                values.truncate(begin);
                skipped.take(reading.on_error, at(format!("line {line}"), path, error))?;
            }
        }
    }
    let dataset = match label {
        LabelColumn::Read(_) => Dataset::features(shape, values, classes, reading.labels.classes())
            .map(|dataset| dataset.named(reading.labels.names().to_vec())),
        LabelColumn::LeftOut(_) | LabelColumn::Absent => Dataset::unlabelled(shape, Samples::Floats(values)),
    };
    Ok(dataset.map_err(|error| skipped.explain(error).in_file(path))?.leaving_out(skipped))
}

/// Appends the features of a row and gives its class, if that is read.
fn row(
    record: &StringRecord,
    header: &StringRecord,
    label: LabelColumn,
    reading: &Reading,
    values: &mut Vec<f32>,
) -> Result<Option<u32>, DataError> {
    if record.len() != header.len() {
        return Err(DataError::Fields { found: record.len(), columns: header.len() });
    }
    let class = match label {
        LabelColumn::Read(at) if record[at].trim().is_empty() => {
            return Err(DataError::NoLabel { column: header[at].to_owned() });
        }
        LabelColumn::Read(at) => Some(reading.labels.class(record[at].trim())?),
        LabelColumn::LeftOut(_) | LabelColumn::Absent => None,
    };
    for (column, field) in record.iter().enumerate().filter(|&(column, _)| Some(column) != label.column()) {
        match field.trim().parse::<f32>() {
            Ok(value) if value.is_finite() => values.push(value),
            _ => {
                let column = header[column].to_owned();
                return Err(DataError::NotNumber { column, found: field.chars().take(60).collect() });
            }
        }
    }
    Ok(class)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::data::reading::{Labels, OnError};

    fn reading() -> Reading {
        let labels = Labels::Names(vec!["cat".to_owned(), "dog".to_owned()]);
        Reading { labels, column: "kind".to_owned(), ..Reading::default() }
    }

    fn load(text: &[u8], reading: &Reading) -> Result<Dataset, DataError> {
        read(text, Path::new("train.csv"), reading)
    }

    #[test]
    fn a_table_is_read_column_by_column() {
        let text = b"a,kind,b\n1, dog ,2.5\n\"-3\",cat,1e-3\n";
        let dataset = load(text, &reading()).unwrap();
        let skipped = dataset.skipped();
        assert_eq!((dataset.shape(), dataset.labels(), dataset.classes()), (&[2][..], &[1, 0][..], 2));
        assert_eq!(dataset.samples(), &Samples::Floats(vec![1.0, 2.5, -3.0, 1e-3]));
        assert_eq!(skipped, &Skipped::default());
        let image = Reading { shape: Some(vec![1, 2, 1]), ..reading() };
        assert_eq!(load(text, &image).unwrap().shape(), [1, 2, 1]);
        let numbers = Reading { labels: Labels::Numbers(3), ..reading() };
        assert_eq!(load(b"kind,a\n2,0\n", &numbers).unwrap().labels(), [2]);
    }

    #[test]
    fn without_labels_all_columns_are_features_but_the_one_called_so() {
        let load = |text: &[u8]| read_unlabelled(text, Path::new("train.csv"), &reading());
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
            let error = load(text.as_bytes(), &reading()).unwrap_err().to_string();
            assert!(error.starts_with("train.csv: line 3: ") && error.contains(said), "{error}");
            let skip = Reading { on_error: OnError::Skip, ..reading() };
            let dataset = load(text.as_bytes(), &skip).unwrap();
            let skipped = dataset.skipped();
            assert_eq!(dataset.samples(), &Samples::Floats(vec![1.0, 2.0, 3.0, 4.0]), "{row}");
            assert_eq!((skipped.count, &skipped.reasons[..]), (1, &[error][..]));
        }
        let skip = Reading { on_error: OnError::Skip, ..reading() };
        let dataset = load(b"a,kind,b\n1,c\xff,2\n1,cat,2\n", &skip).unwrap();
        let skipped = dataset.skipped();
        assert_eq!((dataset.len(), skipped.count), (1, 1));
    }

    #[test]
    fn features_of_both_splits_stand_in_one_order() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let test = || load_split(folder.path(), Split::Test, &reading());
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
        let skip = Reading { on_error: OnError::Skip, ..reading() };
        let says = |text: &[u8], reading: &Reading, said: &str| {
            let error = load(text, reading).unwrap_err().to_string();
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
        let ignored = read_unlabelled(&b"a,kind\n1,\"cat\n2,cat\n"[..], Path::new("train.csv"), &skip);
        assert!(ignored.unwrap_err().to_string().contains("line 2: a quotation mark"));
        let shape = Reading { shape: Some(vec![3]), ..skip };
        says(b"a,kind\n1,cat\n", &shape, "1 columns of features do not make samples of shape [3]");
        let endless = Reading { shape: Some(vec![1 << 40, 1 << 40]), ..shape };
        says(b"a,kind\n1,cat\n", &endless, "1 columns of features do not make samples of shape");
        let folder = tempfile::tempdir().unwrap();
        let absent = load_split(folder.path(), Split::Train, &reading()).unwrap_err().to_string();
        assert!(absent.contains("contains no `train.csv`"), "{absent}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>, head: bool, skip: bool) {
            let mut text = if head { b"a,kind,b\n".to_vec() } else { Vec::new() };
            text.extend(bytes);
            let on_error = if skip { OnError::Skip } else { OnError::Stop };
            let reading = Reading { on_error, ..reading() };
            let _ = load(&text, &reading);
            let _ = read_unlabelled(&text[..], Path::new("train.csv"), &reading);
        }
    }
}
