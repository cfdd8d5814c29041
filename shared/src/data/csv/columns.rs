//! The columns of a table, and what the fields of a row are.

use csv::{ByteRecord, StringRecord};
use models::Targets;

use super::error::CsvError;
use super::{MAX_COLUMNS, MAX_TEXT_LENGTH, TEXT_LENGTH};
use crate::data::{DataError, Labels, ReadOptions, byte_tokens};

/// The columns of a table.
pub(super) struct Columns<'a> {
    header: &'a StringRecord,
    /// The columns of what is to be learned, as far as they are there.
    targets: Vec<usize>,
    /// The columns of the features, in the order in which samples have them.
    features: Vec<usize>,
    /// The column that holds the texts, if samples are texts.
    pub(super) text: Option<usize>,
    /// How labels are written, if they are read.
    pub(super) labels: Option<&'a Labels>,
}

impl<'a> Columns<'a> {
    pub(super) fn of(header: &'a StringRecord, options: &'a ReadOptions) -> Result<Self, CsvError> {
        let labels = options.labels.as_ref();
        let names = label_names(options)?;
        let named = |column: &str| {
            let named = header.iter().enumerate().filter(|(_, name)| name.trim() == column);
            named.map(|(at, _)| at).collect::<Vec<_>>()
        };
        let all = || header.iter().take(20).collect::<Vec<_>>().join(", ");
        let mut targets = Vec::new();
        for column in &names {
            match named(column)[..] {
                [at] => targets.push(at),
                [] if labels.is_none() => {}
                ref found => {
                    let (column, found, columns) = (column.clone(), found.len(), all());
                    return Err(CsvError::LabelColumn { column, found, columns });
                }
            }
        }
        let text = match &options.text {
            None => None,
            Some(column) if names.contains(column) => {
                return Err(CsvError::TextIsLabel { column: column.clone() });
            }
            Some(column) => match named(column)[..] {
                [at] => Some(at),
                ref found => {
                    let (column, found, columns) = (column.clone(), found.len(), all());
                    return Err(CsvError::TextColumn { column, found, columns });
                }
            },
        };
        let features = match text {
            Some(_) => Vec::new(),
            None if options.features.is_empty() => {
                (0..header.len()).filter(|at| !targets.contains(at)).collect()
            }
            None => {
                let mut is_known = vec![false; header.len()];
                for &at in &targets {
                    is_known[at] = true;
                }
                let mut feature = |column: &String| match named(column)[..] {
                    [at] if targets.contains(&at) => Err(CsvError::FeatureIsLabel { column: column.clone() }),
                    [at] => {
                        is_known[at] = true;
                        Ok(at)
                    }
                    ref found => {
                        let (column, found, columns) = (column.clone(), found.len(), all());
                        Err(CsvError::FeatureColumn { column, found, columns })
                    }
                };
                let features = options.features.iter().map(&mut feature).collect::<Result<Vec<_>, _>>()?;
                if let Some(at) = is_known.iter().position(|known| !known) {
                    return Err(CsvError::UnknownColumn { column: header[at].trim().to_owned() });
                }
                features
            }
        };
        Ok(Self { header, targets, features, text, labels })
    }

    /// The names of the features, in the order in which samples have them.
    pub(super) fn names(&self) -> Vec<String> {
        self.features.iter().map(|&at| self.header[at].trim().to_owned()).collect()
    }

    /// The shape of a sample, which is to be the wanted one if that is given.
    pub(super) fn shape(&self, wanted: Option<&[usize]>) -> Result<Vec<usize>, CsvError> {
        if self.text.is_some() {
            return text_shape(wanted);
        }
        let features = self.features.len();
        let shape = wanted.map_or_else(|| vec![features], <[usize]>::to_vec);
        let values = shape.iter().try_fold(1_usize, |product, &axis| product.checked_mul(axis));
        if features == 0 || features > MAX_COLUMNS || values != Some(features) {
            return Err(CsvError::Columns { columns: features, shape });
        }
        Ok(shape)
    }

    /// Whether a quotation mark that is not closed hides rows behind it. Numbers and labels stand in one line. Texts, and what is passed
    /// over beside them, may have several, if the row has as many fields as the header and closes its quotation marks.
    pub(super) fn hides_rows(&self, row: &ByteRecord, is_closed: bool) -> bool {
        let may_go_on = self.text.is_some() && is_closed && row.len() == self.header.len();
        let in_one_line = |at| !may_go_on || self.targets.contains(&at);
        row.iter().enumerate().any(|(at, field)| in_one_line(at) && field.contains(&b'\n'))
    }

    /// Appends the tokens of a row's text and returns what is to be learned of it, if labels are read.
    pub(super) fn parse_text(
        &self,
        record: &StringRecord,
        text: usize,
        length: usize,
        tokens: &mut Vec<u16>,
    ) -> Result<Targets, DataError> {
        let targets = self.targets_of(record)?;
        byte_tokens::append(&record[text], length, tokens);
        Ok(targets)
    }

    /// What is to be learned of a row, if labels are read.
    fn targets_of(&self, record: &StringRecord) -> Result<Targets, DataError> {
        let columns = self.header.len();
        if record.len() != columns {
            return Err(CsvError::Fields { found: record.len(), columns }.into());
        }
        self.labels.map_or_else(|| Ok(Targets::default()), |labels| self.targets(record, labels))
    }

    /// Appends the features of a row and returns what is to be learned of it, if labels are read.
    pub(super) fn parse(&self, record: &StringRecord, values: &mut Vec<f32>) -> Result<Targets, DataError> {
        let targets = self.targets_of(record)?;
        for (at, field) in self.features.iter().map(|&at| (at, &record[at])) {
            match field.trim().parse::<f32>() {
                Ok(value) if value.is_finite() => values.push(value),
                _ => {
                    let found = field.chars().take(60).collect();
                    return Err(CsvError::NotNumber { column: self.header[at].to_owned(), found }.into());
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

/// The columns that hold what is to be learned; without labels those that may be there and are no features.
pub(super) fn label_names(options: &ReadOptions) -> Result<Vec<String>, CsvError> {
    Ok(match options.labels.as_ref() {
        Some(Labels::Values { names, .. }) if !names.is_empty() => names.clone(),
        Some(&Labels::Values { outputs, .. }) if outputs > 1 => return Err(CsvError::NoNames { outputs }),
        Some(_) => vec![options.column.clone()],
        None => [std::slice::from_ref(&options.column), &options.left_out].concat(),
    })
}

/// The shape of a text, which is to be the wanted one if that is given.
pub(super) fn text_shape(wanted: Option<&[usize]>) -> Result<Vec<usize>, CsvError> {
    match wanted {
        None => Ok(vec![TEXT_LENGTH]),
        Some(&[length @ 1..=MAX_TEXT_LENGTH]) => Ok(vec![length]),
        Some(shape) => Err(CsvError::TextShape { shape: shape.to_vec() }),
    }
}
