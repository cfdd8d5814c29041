//! CSV tables: `train.csv` and `test.csv`, with a header. One column, named by the reader, holds the labels; all others
//! are features, finite numbers in the order of the header. If the reader names the features, they have the order of these names, and
//! each of them is there once.
//!
//! For other tasks than classification there is a column for each number to learn, named by the reader. If the reader names a
//! column of texts, each sample is a text, as [`byte_tokens`] has it, and all further columns are passed over.
//!
//! A sample has the shape `[columns]`, or another one of as many values. Labels are class numbers or names, see
//! [`Labels`](super::Labels). Messages number the lines of the file, the header being line 1.

mod columns;
mod error;
mod quotes;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use csv::{ByteRecord, StringRecord};
use models::Targets;

use self::columns::Columns;
use self::error::CsvError;
use self::quotes::Quotes;
use super::error::{FormatError as _, existing_file};
use super::format::{About, Evidence, MAX_CONTENT, SampleFormat};
use super::line_breaks::LineFeeds;
use super::{DataError, DataSet, Dataset, ReadOptions, Samples, SetSamples, Skipped, Split, byte_tokens};

const MAX_COLUMNS: usize = 1 << 20;
/// Bytes of a text, if nothing is said.
pub const TEXT_LENGTH: usize = 256;
/// The most bytes of a text: 128 MB for a thousand samples.
pub const MAX_TEXT_LENGTH: usize = 1 << 16;

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
        if split == Split::Test
            && options.labels.is_some()
            && options.text.is_none()
            && options.features.is_empty()
        {
            check_order(directory, &path, options)?;
        }
        read(file, &path, options)
    }
}

/// Checks that the test split has its features in the order of the training split, if there is one: a model knows them
/// by their places alone.
fn check_order(directory: &Path, path: &Path, options: &ReadOptions) -> Result<(), DataError> {
    let labels = columns::label_names(options).map_err(|error| error.in_file(path))?;
    let features = |split: Split| {
        let header = csv::Reader::from_reader(open(directory, split).ok()?.1).headers().ok()?.clone();
        let names = header.iter().map(|name| name.trim().to_owned());
        Some(names.filter(|name| !labels.contains(name)).collect::<Vec<_>>())
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
    let input = Quotes::new(LineFeeds::new(input));
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(input);
    let malformed = |error: csv::Error| CsvError::Malformed { reason: error.to_string() }.in_file(path);
    let header = reader.headers().map_err(malformed)?.clone();
    let columns = Columns::of(&header, options).map_err(|error| error.in_file(path))?;
    let shape = columns.shape(options.shape.as_deref()).map_err(|error| error.in_file(path))?;
    let (mut values, mut tokens) = (Vec::new(), Vec::new());
    let (mut targets, mut skipped) = (Targets::default(), Skipped::default());
    let names = columns.names();
    let mut raw = ByteRecord::new();
    // Where the last row begins, if its text has several lines.
    let mut last_lines = None;
    while reader.read_byte_record(&mut raw).map_err(malformed)? {
        let line = raw.position().map_or(0, csv::Position::line);
        let at = |error: DataError| error.at(format!("line {line}")).in_file(path);
        // An error even where samples are skipped: it is unknown how many rows the quotation hides.
        let end = reader.position().byte();
        let is_closed = reader.get_mut().closed_up_to(end);
        if columns.hides_rows(&raw, is_closed) {
            return Err(at(CsvError::OpenQuote.into()));
        }
        last_lines = raw.iter().any(|field| field.contains(&b'\n')).then_some(line);
        // A row of a few bytes has as many tokens as a long one.
        if (2 * tokens.len()) as u64 > MAX_CONTENT {
            let dimensions = vec![targets.len(), 2 * shape[0]];
            return Err(DataError::TooLarge { dimensions, limit: MAX_CONTENT }.in_file(path));
        }
        let begin = values.len();
        // Text that is not UTF-8 is an error of one row only.
        let record = StringRecord::from_byte_record(std::mem::take(&mut raw))
            .map_err(|_| CsvError::Malformed { reason: "it is not UTF-8".to_owned() }.into());
        let found = record.and_then(|record| {
            let found = match columns.text {
                Some(text) => columns.parse_text(&record, text, shape[0], &mut tokens),
                None => columns.parse(&record, &mut values),
            };
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
    if let Some(line) = last_lines.filter(|_| reader.get_ref().ends_open()) {
        return Err(DataError::from(CsvError::OpenQuote).at(format!("line {line}")).in_file(path));
    }
    let samples = if columns.text.is_some() { Samples::Tokens(tokens) } else { Samples::Floats(values) };
    let dataset = match columns.labels {
        Some(labels) => Dataset::learned(shape, samples, targets, labels.classes())
            .map(|dataset| dataset.named(labels.names().to_vec())),
        None => Dataset::unlabelled(shape, samples),
    };
    skipped.finish(dataset.map(|dataset| dataset.of_columns(names)), path)
}

/// One text as a sample.
///
/// # Errors
/// [`DataError`] if it is not UTF-8, or samples are to have another shape than one axis.
pub(super) fn read_text(bytes: &[u8], options: &ReadOptions) -> Result<Dataset, DataError> {
    let text = str::from_utf8(bytes).map_err(|_| CsvError::NotUtf8)?;
    let shape = columns::text_shape(options.shape.as_deref())?;
    byte_tokens::sample(text, shape[0])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::data::{Labels, OnError};

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
    fn a_column_of_texts_makes_tokens_and_all_others_are_passed_over() {
        let options = |shape: Option<&[usize]>| ReadOptions {
            text: Some("said".to_owned()),
            shape: shape.map(<[usize]>::to_vec),
            ..options()
        };
        let table = b"id,said,kind\nq1,\"ab,\nc\",dog\nq2,,cat\n";
        let read = load(table, &options(Some(&[3]))).unwrap();
        assert_eq!((read.shape(), read.labels(), read.labels_each()), (&[3][..], &[1, 0][..], 1));
        assert_eq!(read.samples(), &Samples::Tokens(vec![98, 99, 45, 0, 0, 0]));
        assert_eq!(load(table, &options(None)).unwrap().shape(), [TEXT_LENGTH]);
        // What is passed over may have lines as well, and a bare field any quotation mark.
        let notes = b"notes,said,kind\n\"1\n2\",\"a\nb\",dog\n6\" wide,\"\"\"c\"\"\",cat\n";
        let notes = load(notes, &options(Some(&[3]))).unwrap();
        assert_eq!(notes.samples(), &Samples::Tokens(vec![98, 11, 99, 35, 100, 35]));
        // Line breaks of Windows are those of others.
        let windows = load(b"said,kind\r\n\"a\r\nb\",dog\r\n", &options(Some(&[3]))).unwrap();
        assert_eq!(windows.samples(), &Samples::Tokens(vec![98, 11, 99]));
        let one = load(b"said,kind\nab,dog\n\xc3\xa9,cat\n", &options(Some(&[1]))).unwrap();
        assert_eq!((one.samples(), one.labels()), (&Samples::Tokens(vec![98, 196]), &[1, 0][..]));
        let unlabelled = load(b"said\nab\n", &options(Some(&[3])).without_labels()).unwrap();
        assert_eq!((unlabelled.len(), unlabelled.classes()), (1, 0));
        let values = Labels::Values { outputs: 1, names: Vec::new(), flags: false };
        let rated = ReadOptions { labels: Some(values), ..options(Some(&[3])) };
        assert_eq!(load(b"said,kind\nab,0.5\n", &rated).unwrap().targets().values(), [0.5]);
        let skip = ReadOptions { on_error: OnError::Skip, ..options(Some(&[3])) };
        for (table, said) in [
            (
                &b"id,kind\n1,dog\n"[..],
                "0 columns are named `said`; there are id, kind; one of them is to hold the texts",
            ),
            (b"said,kind,said\na,dog,b\n", "2 columns are named `said`"),
            // What is not closed hides the rows behind it, wherever it ends.
            (b"kind,said\ndog,a\ndog,\"b\ncat,c\n", "line 3: a quotation mark is not closed"),
            (b"kind,said\ndog,\"b\ncat,\"c\"\ncat,d\n", "line 2: a quotation mark is not closed"),
            (b"said,kind\n\"b,cat\nc,cat\n", "line 2: a quotation mark is not closed"),
            (b"kind,said\ndog,\"b\ncat,\"c\n", "line 2: a quotation mark is not closed"),
            (b"kind,said\ndog,a\n\"cat\ndog\",b\n", "line 3: a quotation mark is not closed"),
        ] {
            let error = load(table, &skip).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        let said = |options: &ReadOptions| load(table, options).unwrap_err().to_string();
        assert!(said(&options(Some(&[1, 3, 3]))).contains("1x3x3"));
        assert!(
            said(&ReadOptions { text: Some("kind".to_owned()), ..options(None) }).contains("both the texts")
        );
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
    fn features_that_are_named_stand_in_any_order() {
        let named = ReadOptions { features: vec!["a".to_owned(), "b".to_owned()], ..options() };
        for text in [&b"a,kind,b\n1,dog,2\n"[..], b"b,a,kind\n2,1,dog\n", b"kind, b ,a\ndog,2,1\n"] {
            let dataset = load(text, &named).unwrap();
            assert_eq!((dataset.samples(), dataset.labels()), (&Samples::Floats(vec![1.0, 2.0]), &[1][..]));
        }
        let asked = load(b"b,a\n2,1\n", &named.without_labels()).unwrap();
        assert_eq!(asked.samples(), &Samples::Floats(vec![1.0, 2.0]));
        for (text, said) in [
            (
                &b"a,kind,c\n1,dog,2\n"[..],
                "0 columns are named `b`, which holds a feature of the model; there are a, kind, c",
            ),
            (b"a,b,kind,b\n1,2,dog,2\n", "2 columns are named `b`"),
            (b"a,b,kind,c\n1,2,dog,3\n", "column `c` is no feature of the model"),
        ] {
            let error = load(text, &named).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        let known = ReadOptions { column: "b".to_owned(), ..named.clone() };
        let error = load(b"a,b\n1,dog\n", &known).unwrap_err().to_string();
        assert!(error.contains("column `b` cannot hold both a feature and what is learned"), "{error}");
        assert_eq!(load(b"b,a,kind\n2,1,dog\n", &named).unwrap().columns(), ["a", "b"]);
        let by_place = load(b"b, a,kind\n2,1,dog\n", &options()).unwrap();
        assert_eq!(
            (by_place.columns(), by_place.subset(&[0]).unwrap().columns()),
            (&["b".to_owned(), "a".to_owned()][..], by_place.columns())
        );
    }

    #[test]
    fn the_order_of_features_is_that_beside_all_that_is_learned() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let values = |names: &[&str]| ReadOptions {
            labels: Some(Labels::Values {
                outputs: names.len(),
                names: names.iter().map(|name| (*name).to_owned()).collect(),
                flags: false,
            }),
            ..ReadOptions::default()
        };
        write("train.csv", "x,price,y,rent\n1,2,3,4\n");
        write("test.csv", "x,y,price,rent\n1,3,2,4\n");
        assert!(Csv.load(folder.path(), Split::Test, &values(&["price", "rent"])).is_ok());
        // What is called as the column of classes would be is a feature where another one is learned.
        write("train.csv", "label,x,t\n1,2,3\n");
        write("test.csv", "x,label,t\n2,1,3\n");
        let error = Csv.load(folder.path(), Split::Test, &values(&["t"])).unwrap_err().to_string();
        assert!(error.contains("has the feature `x` where train.csv has `label`"), "{error}");
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
