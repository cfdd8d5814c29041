//! Frozen parameters, one file for each set of them: what travels once and is used in many rounds and runs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;
use models::architecture::frozen_digest;
use tracing::{info, warn};

use super::durable;
use super::error::StoreError;

/// Sets that are kept, those used last. A device takes part in one run at a time; more are kept for federations that take turns.
const KEPT: usize = 4;

/// The suffix of the files.
const SUFFIX: &str = "safetensors";

/// The `frozen/` directory. A file is named by the digest of its bytes, which is all that says what it holds.
#[derive(Debug)]
pub(super) struct FrozenFiles {
    directory: PathBuf,
}

impl FrozenFiles {
    pub(super) fn of(state: &Path) -> Self {
        Self { directory: state.join("frozen") }
    }

    fn path(&self, digest: &str) -> PathBuf {
        self.directory.join(format!("{digest}.{SUFFIX}"))
    }

    /// The bytes of this digest; `None` if they are not here. Damaged ones are removed: the server has them.
    pub(super) fn read(&self, digest: &str) -> Result<Option<Bytes>, StoreError> {
        let path = self.path(digest);
        if !is_digest(digest) || !durable::exists(&path)? {
            return Ok(None);
        }
        let bytes = Bytes::from(fs::read(&path).map_err(StoreError::io("read", &path))?);
        if frozen_digest(&bytes) != digest {
            warn!(
                "{} is damaged and is removed: the frozen parameters in it are received again",
                path.display()
            );
            durable::remove_file(&path)?;
            return Ok(None);
        }
        // Files go by their last use; where the date cannot be set, by the first.
        let _ =
            File::options().append(true).open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        Ok(Some(bytes))
    }

    /// Keeps bytes of this digest, and removes the sets beyond the limit that were not used for longest. A clock that jumps can
    /// make the choice among the others wrong, and never removes this one.
    pub(super) fn save(&self, digest: &str, bytes: &[u8]) -> Result<(), StoreError> {
        durable::create_dir_durably(&self.directory)?;
        durable::replace(&self.path(digest), bytes)?;
        let mut others = Vec::new();
        let failed = || StoreError::io("list", &self.directory);
        for entry in fs::read_dir(&self.directory).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            let name = entry.file_name().into_string().unwrap_or_default();
            let of = name.strip_suffix(SUFFIX).and_then(|name| name.strip_suffix('.'));
            if let Some(of) = of.filter(|of| is_digest(of) && *of != digest) {
                let used =
                    entry.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
                others.push((used, of.to_owned()));
            }
        }
        others.sort_unstable();
        others.truncate((others.len() + 1).saturating_sub(KEPT));
        for (_, old) in others {
            info!(digest = %old, "removing frozen parameters that were not used for long");
            durable::remove_file(&self.path(&old))?;
        }
        Ok(())
    }
}

/// Whether this names a file of this directory and nothing else: the server has said it.
fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn files() -> (tempfile::TempDir, FrozenFiles) {
        let folder = tempfile::tempdir().unwrap();
        let files = FrozenFiles::of(folder.path());
        (folder, files)
    }

    fn save(files: &FrozenFiles, content: &str, seconds: u64) -> String {
        let digest = frozen_digest(content.as_bytes());
        files.save(&digest, content.as_bytes()).unwrap();
        let file = File::options().append(true).open(files.path(&digest)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        digest
    }

    #[test]
    fn what_was_saved_is_read_and_a_flipped_bit_is_told() {
        let (_folder, files) = files();
        assert_eq!(files.read(&frozen_digest(b"one")).unwrap(), None);
        let digest = save(&files, "one", 1);
        assert_eq!(files.read(&digest).unwrap().as_deref(), Some(&b"one"[..]));
        for content in ["onf", "on", ""] {
            fs::write(files.path(&digest), content).unwrap();
            assert_eq!(files.read(&digest).unwrap(), None, "{content:?}");
            assert!(!files.path(&digest).exists(), "{content:?}");
        }
    }

    #[test]
    fn those_used_last_are_kept_and_nothing_else_is_touched() {
        let (_folder, files) = files();
        let digests: Vec<String> = ["a", "b", "c", "d"]
            .iter()
            .zip(1..)
            .map(|(content, second)| save(&files, content, second))
            .collect();
        fs::write(files.directory.join("notes"), "mine").unwrap();
        assert!(files.read(&digests[0]).unwrap().is_some(), "it is used");
        save(&files, "e", 0);
        let kept: Vec<bool> = digests.iter().map(|digest| files.path(digest).exists()).collect();
        assert_eq!(kept, [true, false, true, true]);
        // Saved again, it takes no place of another.
        save(&files, "e", 0);
        assert_eq!(fs::read_dir(&files.directory).unwrap().count(), KEPT + 1);
        assert!(files.directory.join("notes").exists());
    }

    #[test]
    fn a_server_names_no_other_file() {
        let (folder, files) = files();
        fs::write(folder.path().join("identity.safetensors"), "secret").unwrap();
        fs::create_dir(&files.directory).unwrap();
        assert_eq!(files.read("../identity").unwrap(), None);
        assert!(folder.path().join("identity.safetensors").exists());
    }
}
