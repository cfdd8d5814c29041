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
use crate::settings::Kind;

/// Rows of a table that are looked at.
const ROWS: usize = 100_000;
/// The most columns whose names and scales are taken.
const SCALED: usize = 64;
/// The most characters of a name in a list of a configuration ([`Kind::Names`]).
const MOST_CHARACTERS: usize = 200;
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
    let Columns { header, text, words, bytes, mut spreads, rows } = columns(&path)?;
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
        spreads.remove(label);
        survey.moments = (spreads.len() <= SCALED).then(|| spreads.iter().map(Spread::rounded).unzip());
        let mut features = header.clone();
        features.remove(label);
        let distinct: BTreeSet<&String> = features.iter().collect();
        let can_be_named = distinct.len() == features.len()
            && features.len() <= SCALED
            && features.iter().all(|name| Kind::is_text(name, MOST_CHARACTERS));
        survey.features = if can_be_named { features } else { Vec::new() };
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
    /// The numbers of each column.
    spreads: Vec<Spread>,
    rows: usize,
}

fn columns(path: &Path) -> Result<Columns, SurveyError> {
    let mut reader = table(path)?;
    let header = reader.headers().map_err(|error| broken(path, &error))?;
    let header: Vec<String> = header.iter().map(|name| name.trim().to_owned()).collect();
    let (mut text, mut spreads) = (vec![None; header.len()], vec![Spread::default(); header.len()]);
    let (mut words, mut bytes) = (vec![0; header.len()], vec![Vec::new(); header.len()]);
    let mut rows = 0;
    for record in reader.records().take(ROWS) {
        let record = record.map_err(|error| broken(path, &error))?;
        rows += 1;
        for (at, field) in record.iter().take(header.len()).enumerate() {
            let field = field.trim();
            // As samples have them.
            if let Ok(value) = field.parse::<f32>() {
                spreads[at].add(f64::from(value));
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
    Ok(Columns { header, text, words, bytes, spreads, rows })
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

/// Mean and standard deviation of numbers, one after another (Welford 1962): sums of squares would lose the deviation of numbers that are
/// large beside it, such as dates.
#[derive(Clone, Copy, Default)]
struct Spread {
    count: f64,
    mean: f64,
    /// The sum of the squared distances to the mean.
    squares: f64,
}

impl Spread {
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        let before = value - self.mean;
        self.mean += before / self.count;
        self.squares += before * (value - self.mean);
    }

    /// Mean and deviation: four digits of the deviation, and as many places of the mean. The deviation of equal numbers is 1.
    fn rounded(&self) -> (f64, f64) {
        let deviation = (self.squares / self.count.max(1.0)).sqrt();
        let deviation = if deviation.is_finite() && deviation > 0.0 { deviation } else { 1.0 };
        let to = |value: f64, digits: String| digits.parse().unwrap_or(value);
        let places = (3.0 - deviation.log10().floor()).clamp(0.0, 300.0) as usize;
        (to(self.mean, format!("{:.places$}", self.mean)), to(deviation, format!("{deviation:.3e}")))
    }
}

/// The smallest of these lengths that this share of them does not exceed.
fn quantile(lengths: &[u32], share: f64) -> usize {
    let mut lengths = lengths.to_vec();
    lengths.sort_unstable();
    let rank = (lengths.len() as f64 * share).ceil() as usize;
    lengths.get(rank.saturating_sub(1)).copied().unwrap_or(0) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What normalising by them makes of the numbers: the mean and the deviation.
    fn normalised(values: impl Iterator<Item = f32> + Clone) -> (f64, f64) {
        let mut spread = Spread::default();
        values.clone().for_each(|value| spread.add(f64::from(value)));
        let (mean, deviation) = spread.rounded();
        let mut after = Spread::default();
        values.for_each(|value| after.add((f64::from(value) - mean) / deviation));
        (after.mean, (after.squares / after.count).sqrt())
    }

    #[test]
    fn numbers_are_brought_to_one_scale_however_large_they_are_beside_it() {
        let days = (0..300).map(|day| (day % 31) as f32);
        for begin in [0.0, 1e-3, -4e4, 2_460_310.0] {
            for scale in [1e-3, 1.0, 60.0] {
                let (mean, deviation) = normalised(days.clone().map(|day| begin + scale * day));
                // Steps of less than the numbers' own precision are lost in them.
                let coarse = scale < f32::EPSILON * begin.abs() * 100.0;
                assert!(coarse || mean.abs() < 1e-3, "{begin} {scale}: {mean}");
                assert!(coarse || (deviation - 1.0).abs() < 1e-3, "{begin} {scale}: {deviation}");
            }
        }
    }

    #[test]
    fn means_and_deviations_have_a_few_digits_and_equal_numbers_the_deviation_1() {
        let of = |values: &[f64]| {
            let mut spread = Spread::default();
            for &value in values {
                spread.add(value);
            }
            spread.rounded()
        };
        assert_eq!(of(&[1.0, 3.0]), (2.0, 1.0));
        assert_eq!(of(&[0.1, 0.2, 0.4]), (0.2333, 0.1247));
        assert_eq!(of(&[2_460_310.0, 2_460_311.0]), (2_460_310.5, 0.5));
        assert_eq!(of(&[123_456.7; 3]), (123_456.7, 1.0));
        assert_eq!(of(&[]), (0.0, 1.0));
    }
}
