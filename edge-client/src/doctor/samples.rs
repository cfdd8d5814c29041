//! The device's samples.

use std::path::Path;

use models::shape::spelled;
use shared::cli::counted;
use shared::data::{DataError, Dataset, Format, Labels, OnError, ReadOptions, Split, registry, survey};

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
            findings.extend(tests(folder, format, options));
            findings
        }
    }
}

/// Looks at the training samples of a device that joins without saying what they are: the run will say it. Until then it is
/// taken from the files.
#[must_use]
pub fn survey(
    folder: &Path,
    shape: Option<Vec<usize>>,
    label: Option<&str>,
    on_error: OnError,
) -> Vec<Finding> {
    let survey = match survey::survey(folder) {
        Ok(survey) => survey,
        // Of samples without labels the survey knows nothing.
        Err(error) => {
            let options = ReadOptions { shape, on_error, ..ReadOptions::unlabelled() };
            return match registry::read(folder, Split::Train, &options) {
                Ok((format, data)) => vec![
                    found(format, &data),
                    Finding::warning(
                        SUBJECT,
                        format!("there are no labels: {error}"),
                        "runs whose labels are at the server need none; for other runs the samples need labels",
                    ),
                ],
                Err(_) => vec![Finding::problem(SUBJECT, error.to_string(), advice(folder))],
            };
        }
    };
    let mut options = survey.options(on_error);
    if let Some(shape) = shape {
        options.shape = Some(shape);
    }
    if let Some(label) = label {
        label.clone_into(&mut options.column);
        // Those that were guessed go with another column of labels.
        options.features.clear();
    }
    look_at(folder, &options)
}

/// The test split, which a run may ask for.
fn tests(folder: &Path, format: Format, options: &ReadOptions) -> Option<Finding> {
    if options.labels.is_none() || !format.is_in(folder, Split::Test).unwrap_or(false) {
        return None;
    }
    let read = format.load(folder, Split::Test, options);
    Some(match read.and_then(|tests| options.check_shape(folder, tests.shape()).map(|()| tests)) {
        Ok(tests) => Finding::ok(SUBJECT, counted(tests.len(), "test sample")),
        Err(error) => Finding::problem(
            SUBJECT,
            format!("the test samples cannot be used: {error}"),
            "repair them or take them away: a run that tests on devices would count this one as failed",
        ),
    })
}

fn unusable(folder: &Path, error: &DataError) -> Finding {
    Finding::problem(SUBJECT, error.to_string(), advice(folder))
}

/// The error says what is wrong with the files; these are the options of the program about them.
fn advice(folder: &Path) -> String {
    format!(
        "edge-client join --help lists the formats, and the options --classes, --shape, --label and --unlabelled; this user must \
         be able to read {}",
        folder.display()
    )
}

fn found(format: Format, data: &Dataset) -> Finding {
    Finding::ok(
        SUBJECT,
        format!("{} of shape {} from {format}", counted(data.len(), "sample"), spelled(data.shape())),
    )
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
    if data.has_values() {
        return Some(Finding::ok(SUBJECT, labels.in_words()));
    }
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
        assert!(found[0].starts_with("3 samples of shape 2 from"), "{found:?}");
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
    fn the_test_split_is_read_as_well() {
        let folder = table("1,2,0\n3,4,2\n5,6,1\n");
        std::fs::write(folder.path().join("test.csv"), "a,label,c\n1,0,2\n").unwrap();
        let findings = look_at(folder.path(), &options(OnError::Stop));
        assert_eq!(worst(&findings), Level::Problem, "{findings:?}");
        assert!(
            findings.iter().any(|finding| finding.found.contains("the feature `c` where train.csv has `b`"))
        );
        std::fs::write(folder.path().join("test.csv"), "a,b,label\n1,0,2\n").unwrap();
        let findings = survey(folder.path(), None, None, OnError::Stop);
        assert_eq!(worst(&findings), Level::Ok, "{findings:?}");
        assert!(findings.iter().any(|finding| finding.found == "1 test sample"), "{findings:?}");
    }

    #[test]
    fn samples_of_which_nothing_is_said_are_taken_as_they_look() {
        let findings = survey(table("1,2,cat\n3,4,dog\n").path(), None, None, OnError::Stop);
        assert_eq!(worst(&findings), Level::Ok, "{findings:?}");
        let unlabelled = tempfile::tempdir().unwrap();
        let set = Dataset::new(vec![1, 1, 2], vec![0; 4], vec![0_u8, 1], 2).unwrap();
        write_split(unlabelled.path(), Split::Train, &set).unwrap();
        std::fs::remove_file(unlabelled.path().join("train-labels-idx1-ubyte")).unwrap();
        let findings = survey(unlabelled.path(), None, None, OnError::Stop);
        assert_eq!(worst(&findings), Level::Warning, "{findings:?}");
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
