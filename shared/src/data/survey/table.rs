//! Survey of a table: which columns hold the labels, the features or the texts.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use super::{Survey, SurveyError, found};
use crate::data::csv::{self, Csv};
use crate::data::error::{MAX_CLASSES, existing_file};
use crate::data::format::SampleFormat as _;
use crate::data::line_breaks::LineFeeds;
use crate::data::{DataError, Labels, Split};

/// Rows of a table that are looked at.
const ROWS: usize = 100_000;
/// The most columns whose scales are taken.
const SCALED: usize = 64;
/// Columns that hold labels by habit, in the order of preference.
const LABEL_COLUMNS: [&str; 8] = ["label", "class", "target", "y", "category", "species", "kind", "digit"];
/// The most bytes of a text that are proposed: a transformer's work grows with their square.
const MOST_BYTES: usize = 512;
/// Columns of numbers, such as that of the row, beside which a column of texts is taken for the samples.
const MOST_NUMBERS: usize = 1;
/// Words of a column's values, in the mean, from which on it holds texts and no names.
const TEXT_WORDS: f64 = 3.0;

/// Looks at a folder with a table.
pub(super) fn of(directory: &Path, test: bool) -> Result<Survey, SurveyError> {
    let path = existing_file(directory, vec![Csv.signature(Split::Train)])?;
    let Columns { header, text, words, bytes, mut sums, rows } = columns(&path)?;
    let known = |name: &&str| header.iter().position(|column| column.eq_ignore_ascii_case(name));
    let known = LABEL_COLUMNS.iter().find_map(known);
    let wordy = |&at: &usize| text[at].is_some() && words[at] as f64 >= TEXT_WORDS * rows as f64;
    let texts = (0..header.len()).filter(|&at| Some(at) != known).filter(wordy).max_by_key(|&at| words[at]);
    // Beside several columns of numbers it is a remark, which the numbers are not to be dropped for.
    let numbers = (0..header.len()).filter(|&at| Some(at) != known && text[at].is_none()).count();
    let texts = texts.filter(|_| numbers <= MOST_NUMBERS);
    let name = |&at: &usize| text[at].is_some() && Some(at) != texts;
    let other = || (0..header.len()).rfind(|&at| Some(at) != texts);
    let label = known.or_else(|| (0..header.len()).rfind(name)).or_else(other).unwrap_or(header.len() - 1);
    let mut problems = Vec::new();
    for (at, found) in text.iter().enumerate().filter(|_| texts.is_none()) {
        if let Some(found) = found.as_ref().filter(|_| at != label) {
            problems.push(format!(
                "column `{}` holds {found:?}, which is no number: take the column away, or write numbers in it (data.text of a \
                 configuration of your own learns from the texts of a column alone)",
                header[at]
            ));
        }
    }
    if !problems.is_empty() {
        problems.push(format!("labels are taken from column `{}`", header[label]));
        return Err(SurveyError::Problems { directory: path.display().to_string(), problems });
    }
    let written = values(&path, label)?;
    let numbers: Option<Vec<usize>> = written.iter().map(|label| label.parse().ok()).collect();
    let values: Option<Vec<f32>> = written.iter().map(|value| value.parse().ok()).collect();
    let are_fractions = values.is_some_and(|values| {
        values.iter().all(|value| value.is_finite()) && values.iter().any(|value| value.fract() != 0.0)
    });
    let labels = match numbers {
        Some(numbers) => Labels::Numbers(numbers.into_iter().max().unwrap_or(0).saturating_add(1)),
        None if are_fractions => Labels::Values { outputs: 1, names: Vec::new(), flags: false },
        None => Labels::Names(written),
    };
    if labels.classes() > MAX_CLASSES || labels.classes() > rows.max(2) {
        let most = match &labels {
            Labels::Numbers(classes) => format!("whole numbers up to {}", classes - 1),
            labels => format!("{} different ones", labels.classes()),
        };
        let problem = format!(
            "column `{}` is taken for the labels, and holds {most} in {rows} rows: call the column that holds them `label`; if it is a \
             number to learn, write model.task = \"regression\" and data.label in a configuration of your own",
            header[label]
        );
        return Err(SurveyError::Problems { directory: path.display().to_string(), problems: vec![problem] });
    }
    let mut survey = found(&csv::SET, &Csv, vec![header.len() - 1], labels, test);
    survey.train = (rows < ROWS).then_some(rows);
    if let Some(texts) = texts {
        // Room for nine texts of ten, in whole blocks of 64 bytes.
        let length = quantile(&bytes[texts], 0.9).next_multiple_of(64).clamp(64, MOST_BYTES);
        survey.shape = vec![length];
        survey.text = Some(header[texts].clone());
        survey.notes.push(format!(
            "column `{}` is taken for texts, of which the first {length} bytes count, and all further columns are passed over: \
             data.text and data.shape say otherwise",
            header[texts]
        ));
    } else {
        sums.remove(label);
        survey.moments = (sums.len() <= SCALED).then(|| sums.iter().map(|&sums| moments(sums, rows)).unzip());
    }
    survey.column = Some(header[label].clone());
    let what = match survey.labels {
        Labels::Values { .. } => "number to learn, since it holds fractions",
        _ => "labels",
    };
    if what != "labels" || !header[label].eq_ignore_ascii_case("label") {
        let note = format!("column `{}` is taken for the {what}: data.label says otherwise", header[label]);
        survey.notes.push(note);
    }
    Ok(survey)
}

/// What the first [`ROWS`] rows of a table show of its columns.
struct Columns {
    header: Vec<String>,
    /// The first value of each column that is no number.
    text: Vec<Option<String>>,
    /// Words of each column.
    words: Vec<usize>,
    /// Bytes of each value of a column, as far as it holds text.
    bytes: Vec<Vec<u32>>,
    /// Sums of the values and of their squares.
    sums: Vec<(f64, f64)>,
    rows: usize,
}

fn columns(path: &Path) -> Result<Columns, SurveyError> {
    let mut reader = table(path)?;
    let header = reader.headers().map_err(|error| broken(path, &error))?;
    let header: Vec<String> = header.iter().map(|name| name.trim().to_owned()).collect();
    let (mut text, mut sums) = (vec![None; header.len()], vec![(0.0_f64, 0.0_f64); header.len()]);
    let (mut words, mut bytes) = (vec![0; header.len()], vec![Vec::new(); header.len()]);
    let mut rows = 0;
    for record in reader.records().take(ROWS) {
        let record = record.map_err(|error| broken(path, &error))?;
        rows += 1;
        for (at, field) in record.iter().take(header.len()).enumerate() {
            let field = field.trim();
            if let Ok(value) = field.parse::<f64>() {
                sums[at].0 += value;
                sums[at].1 += value * value;
                continue;
            }
            text[at].get_or_insert_with(|| field.chars().take(30).collect());
            words[at] += field.split_whitespace().count();
            bytes[at].push(field.len() as u32);
        }
    }
    if rows == 0 || header.len() < 2 {
        return Err(broken(path, &"a header, at least two columns and a row are needed"));
    }
    Ok(Columns { header, text, words, bytes, sums, rows })
}

/// The different values of one column in the first [`ROWS`] rows, no more than one above [`MAX_CLASSES`].
/// They are read apart from the rest, as a wide table's values of all columns would fill the memory.
fn values(path: &Path, column: usize) -> Result<Vec<String>, SurveyError> {
    let mut values = BTreeSet::new();
    for record in table(path)?.records().take(ROWS) {
        let record = record.map_err(|error| broken(path, &error))?;
        if let Some(field) = record.get(column).filter(|_| values.len() <= MAX_CLASSES) {
            values.insert(field.trim().to_owned());
        }
    }
    Ok(values.into_iter().collect())
}

fn table(path: &Path) -> Result<::csv::Reader<LineFeeds<File>>, SurveyError> {
    let file = File::open(path).map_err(|error| DataError::from(error).in_file(path))?;
    Ok(::csv::ReaderBuilder::new().flexible(true).from_reader(LineFeeds::new(file)))
}

fn broken(path: &Path, reason: &dyn std::fmt::Display) -> SurveyError {
    let problems = vec![format!("cannot be read as CSV: {reason}")];
    SurveyError::Problems { directory: path.display().to_string(), problems }
}

/// Mean and standard deviation from the sums of values and of squares, to four digits.
fn moments((sum, squares): (f64, f64), count: usize) -> (f64, f64) {
    let mean = sum / count as f64;
    let deviation = (squares / count as f64 - mean * mean).max(0.0).sqrt();
    let rounded = |value: f64| format!("{value:.3e}").parse().unwrap_or(value);
    (rounded(mean), if deviation > 1e-6 * mean.abs().max(1e-6) { rounded(deviation) } else { 1.0 })
}

/// The smallest of these lengths that this share of them does not exceed.
fn quantile(lengths: &[u32], share: f64) -> usize {
    let mut lengths = lengths.to_vec();
    lengths.sort_unstable();
    let rank = (lengths.len() as f64 * share).ceil() as usize;
    lengths.get(rank.saturating_sub(1)).copied().unwrap_or(0) as usize
}
