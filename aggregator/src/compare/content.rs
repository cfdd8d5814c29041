//! Digests of the data that a run learned from, to detect that its files have changed.
//!
//! Each run that reads files stores one. Runs of older versions have none and are taken as unchanged.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use shared::data::{DataError, Dataset, Split};

use super::plan::{Planned, Standing};
use crate::config::{Config, Source};
use crate::data;
use crate::data::digest;
use crate::storage::{FileLayer, write_durably};

/// Digests of the samples and labels of both splits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Content {
    train: String,
    /// Unset if nothing is tested.
    test: Option<String>,
}

impl Content {
    pub(super) fn of(train: &Dataset, test: Option<&Dataset>) -> Self {
        Self { train: digest::of(train), test: test.map(digest::of) }
    }

    /// The digests of the current files of `config`.
    fn now(config: &Config) -> Result<Self, DataError> {
        let train = data::load(config, Split::Train)?;
        let test = if data::is_tested(config) { data::test_samples(config)? } else { None };
        Ok(Self::of(&train, test.as_ref()))
    }

    /// Stores the digests with a new run, if it reads files.
    pub(super) fn keep(&self, files: &dyn FileLayer, run: &Planned, runs: &Path) -> std::io::Result<()> {
        if matches!(run.config.data.source, Source::Drawn { .. } | Source::Trainers) {
            return Ok(());
        }
        let json = serde_json::to_vec(self).expect("texts are JSON");
        write_durably(files, &place(run, runs), |out| out.write_all(&json))
    }

    /// The digests stored with a run; `None` if they cannot be read.
    pub(super) fn kept(files: &dyn FileLayer, run: &Planned, runs: &Path) -> Option<Self> {
        let mut json = Vec::new();
        files.open(&place(run, runs)).ok()?.read_to_end(&mut json).ok()?;
        serde_json::from_slice(&json).ok()
    }

    /// The differences to the current digests, as in [`Standing::Changed`].
    fn changes(&self, now: &Self) -> Vec<(String, String, String)> {
        let splits = [
            ("training", Some(&self.train), Some(&now.train)),
            ("test", self.test.as_ref(), now.test.as_ref()),
        ];
        let short = |digest: &String| digest.chars().take(12).collect::<String>();
        let changed = |(split, there, now): (&str, Option<&String>, Option<&String>)| {
            let (there, now) = there.zip(now).filter(|(there, now)| there != now)?;
            Some((format!("the content of the {split} files"), short(there), short(now)))
        };
        splits.into_iter().filter_map(changed).collect()
    }
}

fn place(run: &Planned, runs: &Path) -> PathBuf {
    run.directory(runs).state().join("content.json")
}

/// Marks runs, each with the folder that it lies in, as changed if their files hold other data now. Unreadable files are ignored here: an
/// unfinished run reports them when it reads them, and a complete one does not need them. All that read the same files must have
/// read the same data, which shows if they ran on several machines.
pub fn compare<'a>(
    planned: impl IntoIterator<Item = (&'a Planned, &'a Path)>,
    files: &dyn FileLayer,
    standing: impl IntoIterator<Item = &'a mut Standing>,
) {
    let mut seen: Vec<(&Config, Option<Content>)> = Vec::new();
    for ((run, runs), standing) in planned.into_iter().zip(standing) {
        if !matches!(standing, Standing::Done | Standing::Unfinished(_)) {
            continue;
        }
        let Some(kept) = Content::kept(files, run, runs) else { continue };
        let same = |config: &Config| {
            config.data.source == run.config.data.source
                && config.data.set == run.config.data.set
                && config.data.reading == run.config.data.reading
                && config.data.pooled == run.config.data.pooled
        };
        let known = seen.iter().find(|(config, _)| same(config)).map(|(_, now)| now.clone());
        let now = known.unwrap_or_else(|| {
            let now = Content::now(&run.config).ok().or_else(|| Some(kept.clone()));
            seen.push((&run.config, now.clone()));
            now
        });
        let changes = now.map_or_else(Vec::new, |now| kept.changes(&now));
        if !changes.is_empty() {
            *standing = Standing::Changed(changes);
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::data::Samples;

    use super::*;

    fn features(values: &[f32], labels: &[u32]) -> Dataset {
        Dataset::labelled(vec![2], Samples::Floats(values.to_vec()), labels.to_vec(), 3)
            .expect("two numbers each")
    }

    #[test]
    fn every_sample_and_label_counts_and_names_the_split() {
        let (train, test) = (features(&[1.0, 2.0, 3.0, 4.0], &[0, 1]), features(&[5.0, 6.0], &[2]));
        let there = Content::of(&train, Some(&test));
        assert_eq!(there.changes(&Content::of(&train.clone(), Some(&test))), []);
        assert_eq!(there.changes(&Content::of(&train, None)), [], "nothing is known of what is not tested");
        let names = |changes: Vec<(String, String, String)>| -> Vec<String> {
            assert!(changes.iter().all(|(_, there, now)| there != now && now.len() == 12));
            changes.into_iter().map(|(name, ..)| name).collect()
        };
        let (training, tests) = ("the content of the training files", "the content of the test files");
        let value = features(&[1.0, 2.0, 3.0, 4.5], &[0, 1]);
        assert_eq!(names(there.changes(&Content::of(&value, Some(&test)))), [training]);
        let label = features(&[5.0, 6.0], &[1]);
        assert_eq!(names(there.changes(&Content::of(&value, Some(&label)))), [training, tests]);
        let order = features(&[3.0, 4.0, 1.0, 2.0], &[1, 0]);
        assert_eq!(names(there.changes(&Content::of(&order, Some(&test)))), [training]);
    }
}
