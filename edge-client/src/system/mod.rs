//! What the operating system reports of the device, in `/sys` and `/proc` of Linux. Other systems report nothing.
//!
//! | module | contents |
//! |---|---|
//! | [`memory`] | free memory for this process |
//! | `power` | temperatures, and whether the device runs on a battery |
//!
//! Everything is read from files below [`System::root`], which is `/` but in tests.

pub mod memory;
pub(crate) mod power;

use std::path::PathBuf;
use std::time::SystemTime;

/// An operating system.
#[derive(Clone, Debug)]
pub struct System {
    /// The root of its files: `/`.
    pub root: PathBuf,
    /// The time of day.
    pub now: SystemTime,
    /// When this program was built or installed; a correct clock is later.
    pub built: Option<SystemTime>,
}

impl System {
    /// The system that this process runs on.
    #[must_use]
    pub fn this() -> Self {
        let built = std::env::current_exe().and_then(|program| program.metadata()?.modified()).ok();
        Self { root: PathBuf::from("/"), now: SystemTime::now(), built }
    }

    /// The content of a file without the end of its last line; `None` if there is no such file.
    pub(crate) fn read(&self, path: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim_end().to_owned())
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// The entries of a directory whose names start with `beginning`, as sorted paths below the root.
    fn entries(&self, directory: &str, beginning: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.root.join(directory)).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut paths: Vec<String> = names
            .filter(|name| name.starts_with(beginning))
            .map(|name| format!("{directory}/{name}"))
            .collect();
        paths.sort();
        paths
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;

    /// A system with these files.
    pub(crate) fn system(files: &[(&str, &str)]) -> (tempfile::TempDir, System) {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let now = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
        let system = System { root: root.path().to_owned(), now, built: None };
        (root, system)
    }
}
