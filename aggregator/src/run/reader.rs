//! The reader of a run's directory: what the run was asked to do, and its closed rounds. For processes that work on it, and for those
//! that only look.

use super::directory::RunDirectory;
use super::error::disk;
use super::{RunError, RunManifest};
use crate::config::Config;
use crate::round::RoundRecord;
use crate::round::jsonl::{self, Bookmark, Rounds};
use crate::storage::{FileLayer, read_if_there};

/// The configuration of the run in `directory`; `None` if it holds no run.
pub fn configuration(files: &dyn FileLayer, directory: &RunDirectory) -> Result<Option<Config>, RunError> {
    let Some(manifest) = RunManifest::read(files, directory)? else { return Ok(None) };
    let raw = manifest.config(directory)?;
    let config = Config::validate(&raw, manifest.run);
    config.map(Some).map_err(|source| RunError::Config { path: directory.root().to_owned(), source })
}

/// The closed rounds as they are written down, with what each client measured; `None` if there is no such file.
///
/// # Errors
/// The file cannot be read, a line of it is no round, or its rounds are out of order.
pub fn rounds(files: &dyn FileLayer, directory: &RunDirectory) -> Result<Option<Rounds>, RunError> {
    Ok(rounds_on(files, directory, Vec::new(), Bookmark::default())?.map(|(rounds, _)| rounds))
}

/// The rounds of a run that was read before, when it had these: what is new is read alone.
pub fn rounds_on(
    files: &dyn FileLayer,
    directory: &RunDirectory,
    earlier: Vec<RoundRecord>,
    bookmark: Bookmark,
) -> Result<Option<(Rounds, Bookmark)>, RunError> {
    let path = directory.rounds();
    let Some(bytes) = read_if_there(files, &path).map_err(disk("read", &path))? else { return Ok(None) };
    let damaged = |reason: String| RunError::Rounds { path: path.clone(), reason };
    let (rounds, bookmark) =
        jsonl::read_on(&bytes, earlier, bookmark).map_err(|error| damaged(error.to_string()))?;
    if let Some(line) = rounds.records.windows(2).position(|pair| pair[0].round >= pair[1].round) {
        let round = rounds.records[line + 1].round;
        return Err(damaged(format!("line {} holds round {round}, out of order", line + 2)));
    }
    Ok(Some((rounds, bookmark)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Disk;

    #[test]
    fn rounds_are_in_order_or_the_file_is_damaged() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let directory = RunDirectory::new(folder.path());
        assert_eq!(rounds(&Disk, &directory).expect("nothing is wrong"), None, "there is no file");
        let write = |numbers: &[u32]| {
            let records = numbers.iter().map(|&round| RoundRecord { round, ..RoundRecord::default() });
            let text = jsonl::write(&records.collect::<Vec<_>>());
            std::fs::write(directory.rounds(), text).expect("a file in it");
            rounds(&Disk, &directory)
        };
        let read = write(&[1, 2, 4]).expect("in order").expect("there is a file");
        assert_eq!(read.records.len(), 3);
        let text = write(&[1, 3, 2]).expect_err("out of order").to_string();
        assert!(text.contains("line 3 holds round 2, out of order"), "{text}");
        assert!(write(&[2, 2]).is_err(), "no round is closed twice");
    }
}
