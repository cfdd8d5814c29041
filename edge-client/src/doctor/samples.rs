//! The device's samples.

use std::path::Path;

use shared::data::{DataError, Dataset, Format, Labels, OnError, ReadOptions, Split, registry};

use super::Finding;

const SUBJECT: &str = "data";
/// Number of missing classes that are named.
const MAX_NAMED: usize = 5;

/// Reads the training samples as `edge-client join` would with these options, and describes them.
#[must_use]
pub fn look_at(folder: &Path, options: &ReadOptions) -> Vec<Finding> {
    // All unusable samples are counted, even where joining would stop at the first.
    let skip = ReadOptions { on_error: OnError::Skip, ..options.clone() };
    let read = registry::read(folder, Split::Train, &skip);
    match read.and_then(|read| options.check_shape(folder, read.1.shape()).map(|()| read)) {
        Err(error) => vec![unusable(folder, &error)],
        Ok((format, data)) => {
            let mut findings = vec![found(format, &data)];
            findings.extend(unreadable(&data, options.on_error));
            findings.extend(options.labels.as_ref().and_then(|labels| classes(&data, labels)));
            findings
        }
    }
}

fn unusable(folder: &Path, error: &DataError) -> Finding {
    // The error says what is wrong with the files; these are the options of the program about them.
    let advice = format!(
        "edge-client join --help lists the formats, and the options --classes, --shape, --label and --unlabelled; this user must \
         be able to read {}",
        folder.display()
    );
    Finding::problem(SUBJECT, error.to_string(), advice)
}

fn found(format: Format, data: &Dataset) -> Finding {
    Finding::ok(SUBJECT, format!("{} samples of shape {:?} from {format}", data.len(), data.shape()))
}

fn unreadable(data: &Dataset, on_error: OnError) -> Option<Finding> {
    let skipped = data.skipped();
    let what = format!("not to be used: {}", skipped.in_words("sample")?);
    Some(match on_error {
        OnError::Skip => {
            Finding::warning(SUBJECT, what, "repair or remove them; until then they are left out")
        }
        OnError::Stop => Finding::problem(
            SUBJECT,
            what,
            "repair or remove them, or join with --on-error skip, which leaves them out",
        ),
    })
}

/// The classes of the samples. Few classes are normal in federated learning; a single one is a warning.
fn classes(data: &Dataset, labels: &Labels) -> Option<Finding> {
    let counts = data.histogram();
    let there = counts.iter().filter(|count| **count > 0).count();
    let missing: Vec<String> = counts
        .iter()
        .enumerate()
        .filter(|(_, count)| **count == 0)
        .map(|(class, _)| labels.names().get(class).cloned().unwrap_or_else(|| class.to_string()))
        .collect();
    let of = format!("{there} of {} classes", counts.len());
    match there {
        0 => None,
        1 if counts.len() > 1 => Some(Finding::warning(
            SUBJECT,
            format!("all samples are of one class, of {}", counts.len()),
            "is --classes right, and are the labels? What this device trains knows nothing but that class",
        )),
        _ if missing.is_empty() => Some(Finding::ok(SUBJECT, of)),
        _ => {
            let more = if missing.len() > MAX_NAMED { ", ..." } else { "" };
            let some = missing.get(..MAX_NAMED).unwrap_or(&missing).join(", ");
            Some(Finding::ok(SUBJECT, format!("{of}; none of {some}{more}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::data::idx::write_split;

    use super::super::{Level, worst};
    use super::*;

    /// A table of these rows.
    fn table(rows: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("train.csv"), format!("a,b,label\n{rows}")).unwrap();
        folder
    }

    fn options(on_error: OnError) -> ReadOptions {
        ReadOptions { labels: Some(Labels::Numbers(3)), on_error, ..ReadOptions::default() }
    }

    #[test]
    fn samples_are_counted_by_class() {
        let folder = table("1,2,0\n3,4,2\n5,6,2\n");
        let findings = look_at(folder.path(), &options(OnError::Stop));
        let found: Vec<&str> = findings.iter().map(|finding| &finding.found[..]).collect();
        assert_eq!(worst(&findings), Level::Ok, "{findings:?}");
        assert!(found[0].starts_with("3 samples of shape [2] from"), "{found:?}");
        assert_eq!(found[1], "2 of 3 classes; none of 1");
        let one = look_at(table("1,2,0\n3,4,0\n").path(), &options(OnError::Stop));
        assert_eq!(worst(&one), Level::Warning, "{one:?}");
    }

    #[test]
    fn samples_that_cannot_be_read_are_counted_and_stop_whoever_does_not_skip_them() {
        let folder = table("1,2,0\n3,x,2\n5,6,7\n8,9,1\n");
        for (on_error, level) in [(OnError::Stop, Level::Problem), (OnError::Skip, Level::Warning)] {
            let findings = look_at(folder.path(), &options(on_error));
            assert_eq!(worst(&findings), level, "{findings:?}");
            assert!(findings[1].found.starts_with("not to be used: 2 samples ("), "{findings:?}");
        }
    }

    #[test]
    fn a_shape_that_the_files_do_not_have_is_a_problem() {
        let folder = tempfile::tempdir().unwrap();
        let set = Dataset::new(vec![1, 2, 2], vec![0; 8], [0_u8, 1], 3).unwrap();
        write_split(folder.path(), Split::Train, &set).unwrap();
        for (shape, level) in [(vec![1, 2, 2], Level::Ok), (vec![1, 4, 4], Level::Problem)] {
            let options = ReadOptions { shape: Some(shape), ..options(OnError::Stop) };
            let findings = look_at(folder.path(), &options);
            assert_eq!(worst(&findings), level, "{findings:?}");
        }
    }

    #[test]
    fn where_no_sample_can_be_read_the_first_reason_is_told() {
        for on_error in [OnError::Stop, OnError::Skip] {
            let findings = look_at(table("1,2,cat\n3,4,dog\n").path(), &options(on_error));
            assert_eq!(worst(&findings), Level::Problem, "{findings:?}");
            let found = &findings[0].found;
            assert!(found.contains("2 left out, the first:") && found.contains("line 2"), "{found}");
            assert!(found.contains("\"cat\" is none of the whole numbers from 0 to 2"), "{found}");
        }
    }

    #[test]
    fn no_data_is_a_problem() {
        let folder = tempfile::tempdir().unwrap();
        for place in [folder.path().to_owned(), folder.path().join("gone")] {
            assert_eq!(worst(&look_at(&place, &options(OnError::Stop))), Level::Problem);
        }
    }
}
