//! Names of files and folders that keys have, in full: a configuration means the same in any directory.

use std::path::{Path, PathBuf};

use super::ConfigError;

/// The full name of the file or folder that `key` names, also as a text.
pub(super) fn absolute(key: &'static str, path: PathBuf) -> Result<(PathBuf, String), ConfigError> {
    let path = std::path::absolute(&path).map_err(|error| ConfigError::Path {
        key,
        path,
        reason: error.to_string(),
    })?;
    let text = unicode(key, &path)?;
    Ok((path, text))
}

/// Puts the folder before the value of `key`, which is a path relative to it.
pub(super) fn join(key: &'static str, folder: &Path, text: &mut String) -> Result<(), ConfigError> {
    *text = unicode(key, &folder.join(text.as_str()))?;
    Ok(())
}

fn unicode(key: &'static str, path: &Path) -> Result<String, ConfigError> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| ConfigError::Path { key, path: path.to_owned(), reason: "it is not UTF-8".to_owned() })
}
